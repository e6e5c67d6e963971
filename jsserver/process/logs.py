"""The server's log: nats-server's line format, to standard error or to a file that rotates.

Writing never waits for the reader of standard error: what a full pipe does not take is kept, up to
MAX_BACKLOG bytes, and written by a thread when there is room; beyond that lines are dropped and
counted. A reader that went away, or a full disk, costs the lines and nothing else.
"""

import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable

from jsserver.text.goformat import SECOND

MAX_BACKLOG = 1 << 20
"""Bytes kept for a reader of standard error that does not read."""

_CHUNK = select.PIPE_BUF
_COLOURS = {
    "INF": "\x1b[32m",
    "DBG": "\x1b[36m",
    "WRN": "\x1b[0;93m",
    "ERR": "\x1b[31m",
    "FTL": "\x1b[31m",
    "TRC": "\x1b[33m",
}
_RESET = "\x1b[0m"

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10)
} | {10: "\n\t"}
"""What is written instead of control characters: what others named must not look like a line of the
log, nor command a terminal."""


def _try(call: Callable[..., object], *arguments: object) -> None:
    """Calls what may fail and costs nothing then."""
    try:
        call(*arguments)
    except OSError:
        return


_Lines = Callable[[str, str], bytes]
"""Makes the bytes of a line of a level and a text."""


class LogError(Exception):
    """A log file that cannot be opened."""


class _StreamSink:
    """Writes to a descriptor that others hold too: no flag of it is changed, no write waits."""

    def __init__(self, fd: int, lines: _Lines) -> None:
        self._fd = fd
        self._lines = lines
        self._lock = threading.RLock()
        self._backlog: deque[bytes] = deque()
        self._size = 0
        self._draining = False
        self._closed = False
        self._missed = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.dropped = 0

    def write(self, line: bytes) -> None:
        with self._lock:
            if self._closed:
                self.dropped += 1
                return
            if self._size + len(line) > MAX_BACKLOG:
                self.dropped += 1
                self._missed += 1
                return
            self._keep(line)
            if not self._draining and not self._drain(0):
                self._draining = True
                threading.Thread(target=self._drain_later, name="log", daemon=True).start()

    def _keep(self, line: bytes) -> None:
        for start in range(0, len(line), _CHUNK):
            self._backlog.append(line[start : start + _CHUNK])
        self._size += len(line)

    def _drain(self, wait_ms: int) -> bool:
        """Writes what there is room for, and says whether that was all."""
        while self._backlog:
            try:
                if not self._poll.poll(wait_ms):
                    return False
                chunk = self._backlog[0]
                written = os.write(self._fd, chunk)
            except BlockingIOError:
                return False
            except OSError:
                self._closed = True
                self.dropped += 1
                self._backlog.clear()
                self._size = 0
                return True
            self._size -= written
            if written < len(chunk):
                self._backlog[0] = chunk[written:]
            else:
                self._backlog.popleft()
            if not self._backlog and self._missed:
                missed, self._missed = self._missed, 0
                self._keep(self._lines("WRN", f"{missed} log lines dropped, nobody read them"))
        return True

    def _drain_later(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while True:
            _try(poll.poll, 1000)
            with self._lock:
                if self._drain(0):
                    self._draining = False
                    return
            time.sleep(0.01)  # Room for less than a chunk still counts as room.

    def reopen(self) -> bool:
        return False

    def close(self, timeout: float) -> None:
        """Waits up to `timeout` seconds for the reader to take what is kept."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with self._lock:
                if not self._backlog:
                    return
            time.sleep(0.005)


class _FileSink:
    """Appends to a file; at `limit` bytes it is renamed and a new one begun."""

    def __init__(self, path: str, limit: int, files: int, lines: _Lines) -> None:
        self._path = path
        self._limit = limit
        self._files = files
        self._lines = lines
        self._lock = threading.RLock()
        self.dropped = 0
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o640)
        except OSError as error:
            from jsserver.text.denied import remedy  # few need it

            said = f"{(error.strerror or '').lower()}{remedy(error, self._path)}"
            raise LogError(f"error opening file: open {self._path}: {said}") from None

    def write(self, line: bytes) -> None:
        with self._lock:
            try:
                self._size += os.write(self._fd, line)
            except OSError:
                self.dropped += 1
                return
            if self._limit > 0 and self._size > self._limit:
                self._rotate()

    def _rotate(self) -> None:
        now = time.time_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(now // SECOND))
        backup = f"{self._path}.{stamp}.{now % SECOND:09d}"
        try:
            os.rename(self._path, backup)
        except OSError as error:
            text = f"Unable to rotate the log ({error.strerror}), will attempt to resume"
            self._append("ERR", text)
            self._limit *= 2  # Not for every line again.
            return
        try:
            fd = self._open()
        except LogError:
            _try(os.rename, backup, self._path)
            self._limit *= 2
            return
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._append("INF", f'Rotated log, backup saved as "{backup}"')
        if self._files > 0:
            self._purge()

    def _append(self, level: str, text: str) -> None:
        line = self._lines(level, text)[:-1] + b"\r\n"
        try:
            self._size += os.write(self._fd, line)
        except OSError:
            return  # there is nowhere to tell it

    def _purge(self) -> None:
        """Removes the oldest backups, so that there are `files` files with the current one."""
        import re  # takes a start some milliseconds, which purges nothing

        stamp = re.compile(r"\.\d{4}(\.\d\d){5}\.\d{9}")
        folder, name = os.path.split(self._path)
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            return
        backups = sorted(
            entry
            for entry in entries
            if entry.startswith(name) and stamp.fullmatch(entry[len(name) :])
        )
        for backup in backups[: max(0, len(backups) - (self._files - 1))]:
            try:
                os.unlink(os.path.join(folder, backup))
            except OSError:
                continue  # the next rotation tries again
            self._append("INF", f'Purged log file "{backup}"')

    def reopen(self) -> bool:
        with self._lock:
            try:
                fd = self._open()
            except LogError as error:
                self._append("ERR", str(error))
                return True
            os.close(self._fd)
            self._fd, self._size = fd, os.fstat(fd).st_size
        return True

    def close(self, timeout: float) -> None:
        """Nothing is kept back: every line was written at once. What comes later is dropped."""
        with self._lock:
            try:
                os.close(self._fd)
            except OSError:
                return  # it was closed before
            self._fd = -1


Sink = _FileSink | _StreamSink
"""What lines are written to."""


class Logger:
    """Writes lines of the six levels; safe to use from every thread.

    `debug_on` and `trace_on` say whether such lines are wanted; ask before building a costly text.
    """

    def __init__(
        self,
        file: str = "",
        *,
        debug: bool = False,
        trace: bool = False,
        timestamps: bool = True,
        utc: bool = False,
        size_limit: int = 0,
        max_files: int = 0,
        fd: int = 2,
    ) -> None:
        """Logs to the file, or to descriptor `fd` without one; LogError if it does not open.

        A `size_limit` (bytes) of 0 never rotates; `max_files` counts the current file, 0 keeps all.
        """
        self._prefix = f"[{os.getpid()}] "
        self._fd = fd
        self._limits = size_limit, max_files
        self.choose(debug=debug, trace=trace, timestamps=timestamps, utc=utc)
        self._take(self.open(file))

    def choose(self, *, debug: bool, trace: bool, timestamps: bool, utc: bool) -> None:
        """Which lines are written from now on, and with what time."""
        self.debug_on = debug
        self.trace_on = trace
        self._timestamps = timestamps
        self._utc = utc
        self._second = (-1, "")

    def open(self, file: str) -> Sink:
        """What writes to the file, or to the descriptor without one; LogError if it does not
        open."""
        if file:
            return _FileSink(file, *self._limits, self._line)
        return _StreamSink(self._fd, self._line)

    def switch(self, sink: Sink) -> None:
        """Writes there from now on."""
        before = self._sink
        self._take(sink)
        before.close(0)

    def _take(self, sink: Sink) -> None:
        self._labels = {level: f"[{level}] " for level in _COLOURS}
        if isinstance(sink, _StreamSink) and _is_character_device(self._fd):
            self._labels = {
                level: f"[{colour}{level}{_RESET}] " for level, colour in _COLOURS.items()
            }
        self._sink = sink

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return self._sink.dropped

    def info(self, text: str) -> None:
        self._sink.write(self._line("INF", text))

    def warn(self, text: str) -> None:
        self._sink.write(self._line("WRN", text))

    def error(self, text: str) -> None:
        self._sink.write(self._line("ERR", text))

    def fatal(self, text: str) -> None:
        """Says why the server ends; ending it is the caller's."""
        self._sink.write(self._line("FTL", text))

    def debug(self, text: str) -> None:
        if self.debug_on:
            self._sink.write(self._line("DBG", text))

    def trace(self, text: str) -> None:
        if self.trace_on:
            self._sink.write(self._line("TRC", text))

    def reopen(self) -> None:
        """Opens the log file anew, for those who moved it away."""
        if self._sink.reopen():
            self.info("File log re-opened")
        else:
            self.info("File log re-open ignored, not a file logger")

    def close(self, timeout: float = 0.2) -> None:
        """Gives a slow reader of standard error `timeout` seconds for the last lines."""
        self._sink.close(timeout)

    def _line(self, level: str, text: str) -> bytes:
        if not text.isprintable():
            text = text.translate(_CONTROLS)
        line = f"{self._prefix}{self._time()}{self._labels[level]}{text}\n"
        try:
            return line.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return line.encode("utf-8", "replace")

    def _time(self) -> str:
        if not self._timestamps:
            return ""
        seconds, nanos = divmod(time.time_ns(), SECOND)
        known, text = self._second
        if known != seconds:
            broken_down = time.gmtime(seconds) if self._utc else time.localtime(seconds)
            text = time.strftime("%Y/%m/%d %H:%M:%S", broken_down)
            self._second = (seconds, text)
        return f"{text}.{nanos // 1000:06d} "


def _is_character_device(fd: int) -> bool:
    try:
        return stat.S_ISCHR(os.fstat(fd).st_mode)
    except OSError:
        return False
