"""Streams whose disk failed are brought back, whenever that is heard of."""

import asyncio
import errno
import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jsserver.instances import mending
from jsserver.instances.account import Account
from jsserver.instances.mending import Mender
from jsserver.instances.shared import Shared


class Handle:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def reopen(self, mirror: bool = False) -> None:
        self.calls.append("reopen")

    def resume(self) -> None:
        self.calls.append("resume")


class Place:
    """An account, as far as a mender asks for it."""

    name = "A"

    def __init__(self) -> None:
        self.streams: dict[str, Any] = {}
        self.instances = SimpleNamespace(write_back=lambda stream: None)
        self.intakes = SimpleNamespace(failed=lambda name: None)
        self.held = asyncio.Lock()

    def lock(self, name: str) -> asyncio.Lock:
        return self.held


async def run_here(work: Any, *args: Any) -> Any:
    return work(*args)


async def failed_while_it_is_made(tmp_path: Path, made: bool) -> Any:
    place = Place()
    config = SimpleNamespace(mirror=None)
    stream = SimpleNamespace(handle=Handle(), config=config, directory=tmp_path, failing="")
    stream.member = None
    shared = SimpleNamespace(run=run_here, full="")
    mender = Mender(cast(Shared, shared), lambda: None, lambda: None)
    async with place.held:
        mender.stream_failed(cast(Account, place), "S", errno.EIO)
        await asyncio.sleep(0)
        if made:
            place.streams["S"] = stream
    async with asyncio.timeout(5):
        while mender._tasks:
            await asyncio.sleep(0.001)
    return stream


def test_a_stream_that_fails_while_it_is_made_comes_back(tmp_path: Path) -> None:
    stream = asyncio.run(failed_while_it_is_made(tmp_path, True))
    assert stream.handle.calls == ["reopen", "resume"]
    assert stream.failing == ""


def test_one_that_is_not_made_after_all_is_nothing_to_mend(tmp_path: Path) -> None:
    stream = asyncio.run(failed_while_it_is_made(tmp_path, False))
    assert stream.handle.calls == []


async def tries_on_a_flapping_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a stream is brought back whose disk fails again each time right after."""
    monkeypatch.setattr(mending, "RETRY_SECONDS", 0.05)
    place = Place()
    config = SimpleNamespace(mirror=None)
    stream = SimpleNamespace(handle=Handle(), config=config, directory=tmp_path, failing="")
    stream.member = None
    place.streams["S"] = stream
    shared = SimpleNamespace(run=run_here, full="")
    mender = Mender(cast(Shared, shared), lambda: None, lambda: None)
    times: list[float] = []
    for _ in range(4):
        mender.stream_failed(cast(Account, place), "S", errno.EIO)
        async with asyncio.timeout(5):
            while mender._tasks:
                await asyncio.sleep(0.001)
        times.append(asyncio.get_running_loop().time())
    return times


def test_what_fails_again_at_once_is_not_tried_in_a_tight_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = asyncio.run(tries_on_a_flapping_disk(tmp_path, monkeypatch))
    pauses = [later - before for before, later in itertools.pairwise(times)]
    assert min(pauses) >= 0.05


def test_a_disk_that_takes_writes_and_no_syncs_does_not_work_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    mending.probe(tmp_path)
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="Input/output error"):
        mending.probe(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_what_was_noticed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SimpleNamespace(run=run_here, full="")
    mender = Mender(cast(Shared, shared), lambda: None, lambda: None)
    monkeypatch.setattr(mender, "_start", lambda key, work: work.close())
    place = cast(Account, SimpleNamespace(directory=tmp_path / "streams"))
    for reason in "first", "second":
        mender.no_room(place, reason)
        assert shared.full == "cannot make streams and consumers: first"
    mender.disk_full(errno.ENOSPC)
    mender.no_room(place, "third")
    assert shared.full == f"writing to disk failed: {os.strerror(errno.ENOSPC)}"
