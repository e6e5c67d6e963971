"""The server under test, which tells how long it kept its clients waiting at most.

A connection to the socket `$WATCHED` is told, since the one before, of the longest step of the
event loop (seconds of the processor), the longest hold of the engine lock, and the longest wait for
Python's lock (seconds), as JSON.
"""

import asyncio
import json
import threading
import time
from pathlib import Path

from bench.watched import Watched, serve

PAUSE = 0.002
"""Seconds between two looks at Python's lock."""


def named(handle: asyncio.Handle) -> str:
    """What a step calls. Not its text: that of a large result takes longer than the step."""
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    called = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return str(getattr(called, "__qualname__", type(called).__name__))


class Steps:
    """The longest step of the event loop, and what that was."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""
        self._run = asyncio.Handle._run

    def watch(self) -> None:
        run, steps = self._run, self

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > steps.longest:
                steps.longest, steps.what = took, named(handle)

        # A method takes the place of another.
        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    def take(self) -> tuple[float, str]:
        taken = self.longest, self.what
        self.longest, self.what = 0.0, ""
        return taken


class Turns(threading.Thread):
    """Waits for Python's lock again and again; what others had the processor for does not count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0

    def run(self) -> None:
        queued = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        before, asked = time.monotonic(), self._queued(queued)
        while True:
            time.sleep(PAUSE)
            now, waited = time.monotonic(), self._queued(queued)
            self.longest = max(self.longest, now - before - (waited - asked) - PAUSE)
            before, asked = now, waited

    @staticmethod
    def _queued(path: Path) -> float:
        return int(path.read_text().split()[1]) / 1e9

    def take(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest


class Timed(Watched):
    """A data plane that tells of all three."""

    def __init__(self, reactors: int = 1) -> None:
        self._steps, self._turns = Steps(), Turns()
        self._steps.watch()
        self._turns.start()
        super().__init__(reactors)

    def told(self) -> bytes:
        step, what = self._steps.take()
        held = self.longest_hold() / 1e9
        told = {"step": step, "held": held, "turn": self._turns.take(), "what": what}
        return json.dumps(told).encode()


if __name__ == "__main__":
    serve(Timed)
