"""Works of several that wait for the disk, carried out together."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from jsserver.instances import syncs as module
from jsserver.instances.backend import StoreError, StreamHandle
from jsserver.instances.rounds import Durable, Rounds, Synced, Work, alone


class Disk:
    """Files, whose syncs are counted, may be held up and may fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = [os.open(folder / f"{n}", os.O_CREAT | os.O_RDWR) for n in range(20)]
        self.go = Event()
        self.go.set()
        self.synced: list[int] = []
        self.together = 0
        self.bad: set[int] = set()
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(module, "sync_file_system", self.sync_all)

    def fsync(self, descriptor: int) -> None:
        assert self.go.wait(60)
        self.synced.append(descriptor)
        if descriptor in self.bad:
            raise OSError(errno.EIO, "bad")

    def sync_all(self, _: int) -> None:
        assert self.go.wait(60)
        self.together += 1
        if self.bad:
            raise OSError(errno.EIO, "all")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(tmp_path, monkeypatch)
    yield made
    for descriptor in made.opened:
        os.close(descriptor)


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    made = Rounds()
    yield made
    made.close()


def two_files(disk: Disk, number: int, steps: list[str]) -> Work[int]:
    """Waits for one file and then for another one."""
    for step in range(2):
        steps.append(f"{number}.{step}")
        yield Synced([disk.opened[2 * number + step]])
    steps.append(f"{number}.end")
    return number


def test_all_of_a_round_take_their_steps_in_order_and_wait_together(
    rounds: Rounds, disk: Disk
) -> None:
    steps: list[str] = []
    ended: list[int] = []

    async def one(number: int) -> None:
        ended.append(await rounds.together(two_files(disk, number, steps)))

    async def run() -> None:
        await asyncio.gather(*map(one, range(10)))

    asyncio.run(run())
    assert steps == [f"{n}.{step}" for step in ("0", "1", "end") for n in range(10)]
    assert ended == list(range(10))
    assert (disk.together, disk.synced) == (2, [])


def test_who_comes_while_a_round_is_under_way_is_of_the_next(rounds: Rounds, disk: Disk) -> None:
    steps: list[str] = []

    async def run() -> None:
        disk.go.clear()
        first = asyncio.ensure_future(rounds.together(two_files(disk, 0, steps)))
        while not steps:
            await asyncio.sleep(0.001)
        others = [
            asyncio.ensure_future(rounds.together(two_files(disk, n, steps))) for n in range(1, 10)
        ]
        await asyncio.sleep(0)
        assert steps == ["0.0"]
        disk.go.set()
        assert await asyncio.gather(first, *others) == list(range(10))

    asyncio.run(run())
    assert steps[:3] == ["0.0", "0.1", "0.end"]
    assert disk.together == 2


def test_each_hears_of_its_own_files(rounds: Rounds, disk: Disk) -> None:
    """Another one's goes on; its own may be caught, or ends it."""
    disk.bad = {disk.opened[2 * 3], disk.opened[2 * 5 + 1]}
    steps: list[str] = []

    def caught() -> Work[str]:
        try:
            yield Synced([disk.opened[2 * 3]])
        except OSError:
            return "caught"
        return "not told"

    async def run() -> list[object]:
        works: list[Work[object]] = [two_files(disk, n, steps) for n in range(10)]
        return await asyncio.gather(
            *map(rounds.together, [*works, caught()]), return_exceptions=True
        )

    *found, last = asyncio.run(run())
    assert last == "caught"
    for number, result in enumerate(found):
        if number in (3, 5):
            assert isinstance(result, OSError) and result.errno == errno.EIO
        else:
            assert result == number


def test_a_file_of_many_is_synced_once(rounds: Rounds, disk: Disk) -> None:
    def one() -> Work[None]:
        again = os.dup(disk.opened[0])
        yield Synced([again])
        os.close(again)

    async def run() -> None:
        await asyncio.gather(*(rounds.together(one()) for _ in range(10)))

    asyncio.run(run())
    assert disk.together == 0 and len(disk.synced) == 1


class FakeHandle:
    """A stream that becomes durable, or fails."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.waits = 0

    def wait_durable(self) -> None:
        self.waits += 1
        if self.fails:
            raise StoreError(self.fails)


def test_a_stream_that_many_changed_is_waited_for_once(rounds: Rounds) -> None:
    handles = [FakeHandle(), FakeHandle("full")]

    def changed(handle: FakeHandle) -> Work[str]:
        yield Durable(cast(StreamHandle, handle))
        return "done"

    async def run() -> list[object]:
        works = [rounds.together(changed(handles[n % 2])) for n in range(10)]
        return await asyncio.gather(*works, return_exceptions=True)

    found = asyncio.run(run())
    assert [handle.waits for handle in handles] == [1, 1]
    assert found[::2] == ["done"] * 5
    assert all(isinstance(result, StoreError) for result in found[1::2])


def test_a_work_that_fails_by_itself_harms_no_other(rounds: Rounds, disk: Disk) -> None:
    def wrong() -> Work[None]:
        yield Synced([disk.opened[0]])
        raise KeyError("wrong")

    async def run() -> list[object]:
        works = rounds.together(wrong()), rounds.together(two_files(disk, 1, []))
        return [*await asyncio.gather(*works, return_exceptions=True)]

    first, second = asyncio.run(run())
    assert isinstance(first, KeyError) and second == 1


def test_one_is_carried_out_alone_the_same_way(rounds: Rounds, disk: Disk) -> None:
    steps: list[str] = []
    assert alone(two_files(disk, 0, steps)) == 0
    assert rounds.alone(two_files(disk, 1, steps)) == 1
    assert steps == [f"{n}.{step}" for n in range(2) for step in ("0", "1", "end")]
    assert disk.synced == disk.opened[:4]
    disk.bad = {disk.opened[1]}
    with pytest.raises(OSError, match="bad"):
        alone(two_files(disk, 0, steps))
