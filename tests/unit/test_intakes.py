"""Mirrors and sources end when they are ended, and positions are written for those that stay."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jsserver.instances import positions
from jsserver.instances.asking import Asking
from jsserver.instances.backend import AccountHandle
from jsserver.instances.intakes import Intake, Intakes
from jsserver.instances.locks import Hold
from jsserver.instances.metafiles import MetaFiles
from jsserver.instances.positions import Positions
from jsserver.instances.running import Stream
from jsserver.instances.shared import Shared

from .api_server import stub_hash


class Account:
    def __init__(self) -> None:
        self.reply = b""

    def serve_answers(self, subject: bytes) -> None:
        self.reply = subject

    def stop_requests(self, subject: bytes) -> None:
        assert subject == self.reply

    def request(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        assert reply == self.reply


async def ended(task: asyncio.Future[Any], turns: int) -> None:
    """Cancels what has got what it waits for, some turns later: it has done its work, or ends."""
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("turns", range(4))
def test_who_is_ended_as_the_answer_comes_does_not_go_on(turns: int) -> None:
    async def run() -> None:
        account, asking = Account(), Asking()
        asked = asking.ask(cast(AccountHandle, account), "a", b"", b"", 5)
        task = asyncio.ensure_future(asked)
        await asyncio.sleep(0)
        assert asking.receive(account.reply, b"answer")
        await ended(task, turns)

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(4))
def test_who_is_ended_as_it_is_woken_does_not_go_on(turns: int) -> None:
    async def run() -> None:
        intake = Intake.__new__(Intake)
        intake._wake = asyncio.Event()
        task = asyncio.ensure_future(intake._woken(5))
        await asyncio.sleep(0)
        intake.wake()
        await ended(task, turns)

    asyncio.run(run())


def test_a_stream_that_is_removed_while_another_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither it nor the ones behind it are in the way."""
    written = []

    async def run_here(work: Any, *args: Any) -> Any:
        of.end("B", removed=True)
        return work(*args)

    def write(files: object, stream: Any, now: Positions) -> bool:
        written.append((stream.name, now))
        return True

    def source() -> Any:
        ended = {"stop": lambda: None, "drop_consumer": lambda: None}
        return SimpleNamespace(key="O > >", reached=lambda: 7, **ended)

    monkeypatch.setattr(positions, "write", write)
    shared = cast(Shared, SimpleNamespace(run=run_here, files=None))
    of = Intakes("A", cast(AccountHandle, None), shared, lambda name: cast(Hold, asyncio.Lock()))
    for name in "ABC":
        config = SimpleNamespace(mirror=None)
        handle = SimpleNamespace(state=lambda: SimpleNamespace(last_seq=9))
        stream: Any = SimpleNamespace(name=name, config=config, handle=handle, member=None)
        stream.directory = tmp_path
        of._streams[name] = cast(Stream, stream)
        of._of[name] = {"O > >": source()}
    asyncio.run(of._write())
    now = Positions(stream_seq=9, origins={"O > >": 7})
    assert written == [("A", now), ("C", now)]


def test_positions_are_written_when_what_they_tell_of_is_on_disk(tmp_path: Path) -> None:
    """Ahead of the messages they would pass over those that a power cut took."""
    seen: list[bool] = []

    def wait_durable() -> None:
        seen.append((tmp_path / positions.FILE).exists())
        if len(seen) == 1:
            raise OSError("the disk fails")

    handle = SimpleNamespace(wait_durable=wait_durable)
    stream = cast(Stream, SimpleNamespace(directory=tmp_path, handle=handle))
    wanted = Positions(stream_seq=7, origins={"O": 9})
    files = MetaFiles(stub_hash)
    assert not positions.write(files, stream, wanted)
    assert positions.write(files, stream, wanted)
    assert seen == [False, False]
    assert positions.read(files, tmp_path) == wanted
