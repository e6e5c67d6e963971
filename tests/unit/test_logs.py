"""The log: its lines, levels, files and rotation, and readers that do not read."""

import os
import re
import threading
import time
from pathlib import Path

import pytest

from jsserver.process import logs
from jsserver.process.logs import LogError, Logger
from tests.waiting import wait_until

LINE = re.compile(
    rb"\[(\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|DBG|WRN|ERR|FTL|TRC)\] (.*)\r?"
)


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def texts(file: Path) -> list[tuple[str, str]]:
    found = []
    for line in lines(file):
        match = LINE.fullmatch(line)
        assert match is not None, line
        assert int(match[1]) == os.getpid()
        found.append((match[2].decode(), match[3].decode()))
    return found


def test_lines_and_levels(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), debug=True, trace=True)
    for write, level in (
        (log.info, "INF"), (log.warn, "WRN"), (log.error, "ERR"),
        (log.fatal, "FTL"), (log.debug, "DBG"), (log.trace, "TRC"),
    ):  # fmt: skip
        write(f"text é of {level}")
    assert texts(tmp_path / "log") == [
        (level, f"text é of {level}") for level in ("INF", "WRN", "ERR", "FTL", "DBG", "TRC")
    ]


def test_debug_and_trace_are_off_unless_asked_for(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"))
    log.debug("a")
    log.trace("b")
    assert lines(tmp_path / "log") == []
    log.debug_on = log.trace_on = True
    log.debug("a")
    log.trace("b")
    assert texts(tmp_path / "log") == [("DBG", "a"), ("TRC", "b")]


def test_without_timestamps(tmp_path: Path) -> None:
    Logger(str(tmp_path / "log"), timestamps=False).info("x")
    assert lines(tmp_path / "log") == [b"[%d] [INF] x" % os.getpid()]


def test_local_and_utc_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "ABC-5")
    time.tzset()
    try:
        monkeypatch.setattr(time, "time_ns", lambda: 1_462_388_021_120_005_999)
        Logger(str(tmp_path / "local")).info("x")
        Logger(str(tmp_path / "utc"), utc=True).info("x")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert b" 2016/05/04 23:53:41.120005 " in lines(tmp_path / "local")[0]
    assert b" 2016/05/04 18:53:41.120005 " in lines(tmp_path / "utc")[0]


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), timestamps=False)
    log.info("a\udcffb")
    log.info("a\ud800b")
    assert [line.partition(b"] [INF] ")[2] for line in lines(tmp_path / "log")] == [
        b"a\xffb",
        b"a?b",
    ]


def test_nobody_writes_lines_of_their_own(tmp_path: Path) -> None:
    """What others named is in one line, or in lines that begin as none of the log does."""
    file = tmp_path / "log"
    log = Logger(str(file), timestamps=False)
    log.info("a\n[1] [INF] forged\r\n\x1b[31mred\x9b\x7f\tb\u00e9\0")
    prefix = f"[{os.getpid()}] [INF] a\n\t[1] [INF] forged\\x0d\n\t"
    assert file.read_text() == prefix + "\\x1b[31mred\\x9b\\x7f\tb\u00e9\\x00\n"


def test_a_file_is_appended_to_and_private(tmp_path: Path) -> None:
    file = tmp_path / "log"
    Logger(str(file)).info("one")
    Logger(str(file)).info("two")
    assert [text for _, text in texts(file)] == ["one", "two"]
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(LogError) as caught:
        Logger(str(tmp_path / "no" / "log"))
    assert str(caught.value) == (
        f"error opening file: open {tmp_path}/no/log: no such file or directory"
    )


def test_reopening(tmp_path: Path) -> None:
    file = tmp_path / "log"
    log = Logger(str(file))
    log.info("one")
    file.rename(tmp_path / "moved")
    log.info("two")
    log.reopen()
    log.info("three")
    assert [text for _, text in texts(tmp_path / "moved")] == ["one", "two"]
    assert [text for _, text in texts(file)] == ["File log re-opened", "three"]


def backups(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if re.search(r"\.\d{9}$", p.name))


def test_rotation(tmp_path: Path) -> None:
    file = tmp_path / "log"
    log = Logger(str(file), size_limit=200)
    for number in range(20):
        log.info(f"line {number}")
    assert len(backups(tmp_path)) >= 3
    seen = [text for part in [*backups(tmp_path), file] for _, text in texts(part)]
    assert [text for text in seen if text.startswith("line")] == [f"line {n}" for n in range(20)]
    first, second = lines(file)[0], backups(tmp_path)[-1]
    assert first.endswith(f'[INF] Rotated log, backup saved as "{second}"'.encode())
    assert b'"\r\n' in file.read_bytes()
    assert all(part.stat().st_size <= 400 for part in [*backups(tmp_path), file])
    assert re.fullmatch(r"log\.\d{4}(\.\d\d){5}\.\d{9}", second.name)


@pytest.mark.parametrize("files", [1, 3, 50])
def test_purging_keeps_so_many_files_and_touches_no_other(tmp_path: Path, files: int) -> None:
    others = [tmp_path / name for name in ("log.old", "log.1", "log.2026.01.01", "logs.txt")]
    for other in others:
        other.touch()
    log = Logger(str(tmp_path / "log"), size_limit=100, max_files=files)
    for number in range(20):
        log.info(f"line {number}")
    assert len(backups(tmp_path)) + 1 == files if files < 20 else len(backups(tmp_path)) >= 9
    assert all(other.exists() for other in others)
    if files == 1:
        assert b'[INF] Purged log file "log.' in (tmp_path / "log").read_bytes()


def test_a_rotation_that_fails_goes_on_in_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "rename", refuse)
    log = Logger(str(tmp_path / "log"), size_limit=100)
    for number in range(20):
        log.info(f"line {number}")
    written = [text for _, text in texts(tmp_path / "log")]
    assert [text for text in written if text.startswith("line")] == [f"line {n}" for n in range(20)]
    assert any(text.startswith("Unable to rotate the log") for text in written)


def test_a_full_disk_costs_the_lines_only() -> None:
    log = Logger("/dev/full")
    log.info("x")
    log.info("y")
    assert log.dropped == 2


# Standard error.


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.data = bytearray()

    def read_all(self) -> None:
        while chunk := os.read(self.reading, 65536):
            self.data += chunk


def test_a_pipe_gets_the_lines_without_colours() -> None:
    pipe = Pipe()
    log = Logger(fd=pipe.writing)
    log.info("x")
    assert LINE.fullmatch(os.read(pipe.reading, 1000).rstrip(b"\n"))
    log.reopen()
    assert b"File log re-open ignored, not a file logger" in os.read(pipe.reading, 1000)


def test_a_terminal_gets_colours() -> None:
    ours, theirs = os.openpty()
    Logger(fd=theirs, timestamps=False).info("x")
    assert os.read(ours, 1000) == b"[%d] [\x1b[32mINF\x1b[0m] x\r\n" % os.getpid()


def test_a_reader_that_went_away_costs_the_lines_only() -> None:
    pipe = Pipe()
    os.close(pipe.reading)
    log = Logger(fd=pipe.writing)
    log.info("x")
    log.info("y")
    assert log.dropped == 2


def test_a_closed_standard_error_costs_the_lines_only() -> None:
    pipe = Pipe()
    os.close(pipe.writing)
    log = Logger(fd=pipe.writing)
    log.info("x")
    assert log.dropped == 1


def test_a_reader_that_does_not_read_stops_nobody() -> None:
    pipe = Pipe()
    log = Logger(fd=pipe.writing, timestamps=False)
    start = time.monotonic()
    for number in range(2000):
        log.info(f"line {number} " + "x" * 100)
    log.info("y" * 10_000)
    assert time.monotonic() - start < 10
    assert os.get_blocking(pipe.writing)
    assert log.dropped == 0
    reader = threading.Thread(target=pipe.read_all)
    reader.start()
    wait_until(lambda: b"y" * 10_000 in pipe.data, "what was written after the reader came")
    log.info("last")
    log.close()
    os.close(pipe.writing)
    reader.join(20)
    got = bytes(pipe.data).splitlines()
    assert len(got) == 2002
    assert [line.split()[3] for line in got[:2000]] == [b"%d" % n for n in range(2000)]


def test_what_is_kept_for_a_reader_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_BACKLOG", 10_000)
    pipe = Pipe()
    log = Logger(fd=pipe.writing, timestamps=False)
    for _ in range(2000):
        log.info("x" * 100)
    dropped = log.dropped
    assert 0 < dropped < 2000
    reader = threading.Thread(target=pipe.read_all)
    reader.start()
    notice = f"[WRN] {dropped} log lines dropped, nobody read them\n".encode()
    wait_until(lambda: notice in pipe.data, "the notice of lost lines")
    os.close(pipe.writing)
    reader.join(20)
    assert len(bytes(pipe.data).splitlines()) == 2001 - dropped


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    log = Logger(str(tmp_path / "log"), size_limit=5000)

    def write(name: int) -> None:
        for number in range(200):
            log.info(f"{name}:{number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [
        text
        for part in [*backups(tmp_path), tmp_path / "log"]
        for _, text in texts(part)
        if re.fullmatch(r"\d:\d+", text)
    ]
    assert sorted(seen) == sorted(f"{a}:{b}" for a in range(4) for b in range(200))
