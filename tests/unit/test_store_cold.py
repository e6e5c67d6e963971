"""Messages whose block is not in memory are fetched without the lock, and who asked is called."""

import os
import time
from pathlib import Path

import pytest

from tests.cext.store import PyStore

COUNT = 3000
SIZE = 4000  # so that two sealed blocks and a tail stand on disk


def body(i: int) -> bytes:
    return i.to_bytes(4, "little") * (SIZE // 4)


def forget(directory: Path) -> None:
    """Has the system let go of the files' pages."""
    for path in directory.rglob("*.blk"):
        with path.open("rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    s = PyStore(path)
    for i in range(1, COUNT + 1):
        s.append("a", body(i))
    s.wait_durable()
    s.close()
    forget(path)
    return path


def wait_load(s: PyStore, seq: int) -> tuple[bytes, int]:
    """The data, and how often it had to be waited for."""
    waits = 0
    while True:
        wakes = s.wakes
        data = s.load_warm(seq)
        if data is not None:
            return data, waits
        waits += 1
        end = time.monotonic() + 20
        while s.wakes == wakes:
            assert time.monotonic() < end, f"nobody was called for {seq}"
            s.tick()
            time.sleep(0.0002)


@pytest.mark.timeout(60)
def test_all_messages_come_in_order(directory: Path) -> None:
    s = PyStore(directory)
    waited = 0
    for i in range(1, COUNT + 1):
        data, waits = wait_load(s, i)
        assert data == body(i)
        waited += waits
    assert waited >= 1
    # What comes next is fetched while one reads on: far fewer waits than pieces of blocks.
    assert waited <= COUNT * SIZE // (1 << 20) + 3
    again = sum(wait_load(s, i)[1] for i in range(1, COUNT + 1))
    assert again == 0
    s.close()


@pytest.mark.timeout(60)
def test_a_fetch_ends_with_its_block_or_store(directory: Path) -> None:
    s = PyStore(directory)
    if s.load_warm(5) is None:
        s.purge(seq=COUNT - 10)  # its block leaves meanwhile
    with pytest.raises(KeyError):
        s.load_warm(5)
    assert wait_load(s, COUNT)[0] == body(COUNT)
    s.close()


@pytest.mark.timeout(60)
def test_a_store_is_closed_while_it_fetches(directory: Path) -> None:
    for seq in (1, 1500, 2, 1700):
        s = PyStore(directory)
        s.load_warm(seq)
        s.close()
        forget(directory)


@pytest.mark.timeout(60)
def test_a_block_that_is_gone_is_an_error_and_not_a_wait(directory: Path) -> None:
    s = PyStore(directory)
    (directory / "msgs" / "1.blk").unlink()
    with pytest.raises(ValueError, match="damaged"):
        wait_load(s, 3)
    assert wait_load(s, COUNT)[0] == body(COUNT)
    s.close()


def test_the_first_time_is_known_without_its_block(directory: Path) -> None:
    """A list of thousands of streams asks for it under the lock."""
    s = PyStore(directory)
    block, aside = directory / "msgs" / "1.blk", directory / "1.blk"
    block.rename(aside)
    shown = s.state()["first_ts"]
    aside.rename(block)
    assert shown == s.load(1)[1]
    s.close()
