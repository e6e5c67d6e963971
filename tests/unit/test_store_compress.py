"""Compressed blocks: written when they are sealed, read, changed, damaged, and found again."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jsserver.cext.bytes import S2Stream
from tests.cext.store import PyStore
from tests.unit.records import records
from tests.unit.test_store_cold import wait_load

LIMITS: dict[str, Any] = {"max_bytes": 100_000, "trim": False, "commit": "manual"}
"""Blocks of 32 kB."""
TEXT = b"what comes again and again gets smaller. "


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def blocks(directory: Path) -> list[Path]:
    return sorted((directory / "msgs").glob("*.blk"), key=lambda path: int(path.stem))


def is_compressed(path: Path) -> bool:
    return path.read_bytes()[:4] == b"cmp\x01"


def plain(path: Path) -> bytes:
    """The bytes of the block."""
    data = path.read_bytes()
    if not is_compressed(path):
        return data
    at = 4
    while data[at] >= 0x80:
        at += 1
    stream = S2Stream()
    out = stream.feed(data[at + 1 : -8])
    while more := stream.feed(b""):
        out += more
    stream.finish()
    return out + data[-8:]


def payload(seq: int) -> bytes:
    return b"%d " % seq + TEXT * 12


def fill(s: PyStore, count: int, subjects: int = 7) -> None:
    for _ in range(count):
        seq = s.state()["last_seq"] + 1
        s.append(f"k.{seq % subjects}", payload(seq))
        if seq % 50 == 0:
            s.commit()
    s.commit()
    s.upkeep()


@pytest.fixture(params=[0, 10**12], ids=["synced", "lazy"])
def s(directory: Path, request: pytest.FixtureRequest) -> Iterator[PyStore]:
    store = PyStore(directory, compress=True, sync_interval=request.param, **LIMITS)
    fill(store, 1200)
    yield store
    with suppress(RuntimeError, ValueError):
        store.close()


def check(s: PyStore, count: int = 1200, gone: frozenset[int] = frozenset()) -> None:
    state = s.state()
    assert state["msgs"] == count - len(gone)
    for seq in range(1, count + 1):
        if seq in gone:
            with pytest.raises(KeyError):
                s.load(seq)
        else:
            assert s.load(seq)[4] == payload(seq)


def test_all_but_the_last_are_compressed(s: PyStore, directory: Path) -> None:
    files = blocks(directory)
    assert [is_compressed(path) for path in files] == [True] * (len(files) - 1) + [False]
    assert len(files) >= 3
    assert sum(path.stat().st_size for path in files[:-1]) < 0.2 * 1200 * len(payload(100))
    check(s)
    s.reopen()
    check(s)
    assert s.lost()["damage"] == 0


def test_without_caches(s: PyStore, directory: Path) -> None:
    s.close()
    for path in (directory / "msgs").iterdir():
        if path.suffix != ".blk":
            path.unlink()
    again = PyStore(directory, compress=True, **LIMITS)
    check(again)
    assert again.lost()["damage"] == 0
    assert is_compressed(blocks(directory)[0])
    again.close()


def test_after_a_kill(s: PyStore, directory: Path, tmp_path: Path) -> None:
    s.remove(3)
    s.commit()
    shutil.copytree(directory, tmp_path / "K" / "S")
    again = PyStore(tmp_path / "K" / "S", compress=True, **LIMITS)
    check(again, gone=frozenset([3]))
    again.close()


def test_an_erased_message_is_nowhere(s: PyStore, directory: Path) -> None:
    for seq in (5, 6, 900):
        s.remove(seq, erase=True)
    for _ in range(4):  # with an interval a second sync has to speak of the first
        s.append("other", b"x")
        s.commit()
        s.tick(None)
        s.upkeep()
    s.close()
    for path in blocks(directory):
        data = plain(path)
        for seq in (5, 6, 900):
            assert b"k.%d" % (seq % 7) + payload(seq) not in data
    again = PyStore(directory, compress=True, **LIMITS)
    assert again.load(7)[4] == payload(7)
    again.close()


def test_compaction_keeps_the_form(s: PyStore, directory: Path) -> None:
    gone = frozenset(seq for seq in range(2, 700) if seq % 5)
    for seq in gone:
        s.remove(seq)
    s.commit()
    s.upkeep()
    check(s, gone=gone)
    first = blocks(directory)[0]
    assert is_compressed(first)
    assert len(list(records(plain(first)))) < 30
    s.reopen()
    check(s, gone=gone)


def test_truncation_within_a_compressed_block(s: PyStore) -> None:
    s.truncate(100)
    s.commit()
    s.upkeep()
    check(s, 100)
    fill(s, 900)
    check(s, 1000)
    s.reopen()
    check(s, 1000)


def test_purge(s: PyStore) -> None:
    s.purge(seq=800)
    s.commit()
    s.upkeep()
    check(s, gone=frozenset(range(1, 800)))
    s.reopen()
    check(s, gone=frozenset(range(1, 800)))
    s.purge()
    s.commit()
    assert s.state()["msgs"] == 0


def test_an_update_is_for_new_blocks(directory: Path) -> None:
    s = PyStore(directory, **LIMITS)
    fill(s, 500)
    before = len(blocks(directory))
    s.update(compress=True)
    fill(s, 700)
    s.update(compress=False)
    middle = len(blocks(directory))
    fill(s, 700)
    forms = [is_compressed(path) for path in blocks(directory)]
    assert not any(forms[: before - 1])
    assert all(forms[before : middle - 1])
    assert not any(forms[middle:])
    check(s, 1900)
    s.reopen()
    check(s, 1900)
    s.close()


def test_what_gets_no_smaller_stays_plain(directory: Path) -> None:
    s = PyStore(directory, compress=True, **LIMITS)
    for _ in range(60):
        s.append("noise", random.randbytes(10_000))
        s.commit()
    s.upkeep()
    assert len(blocks(directory)) >= 3
    assert not any(is_compressed(path) for path in blocks(directory))
    s.close()


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("number", range(12))
def test_a_flipped_bit_is_damage(
    directory: Path, tmp_path: Path, caches: bool, number: int
) -> None:
    s = PyStore(directory, compress=True, **LIMITS)
    fill(s, 1000)
    if caches:
        s.close()
    rng = random.Random(f"{number} {caches}")
    copy = tmp_path / "C" / "S"
    for _ in range(8):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        path = rng.choice([p for p in blocks(copy) if is_compressed(p)])
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data)) if rng.random() < 0.7 else rng.randrange(40)
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if not caches:
            for cache in (copy / "msgs").iterdir():
                if cache.suffix != ".blk":
                    cache.unlink()
        again = PyStore(copy, compress=True, **LIMITS)
        bad = 0
        for seq in range(1, 1001):
            try:
                assert again.load(seq)[4] == payload(seq)
            except (OSError, KeyError, ValueError):
                bad += 1
        lost = again.lost()
        assert (bad == 0 or lost["damage"]) and bad <= 500
        assert again.append("next", b"x") == 1001
        again.close()
    if not caches:
        s.close()


def test_large_messages(directory: Path) -> None:
    s = PyStore(directory, compress=True, **LIMITS)
    for seq in range(1, 30):
        s.append("large", b"%d " % seq + TEXT * 2500)
        s.commit()
    s.upkeep()
    before = s.state()["bytes"]
    s.reopen()
    assert s.state()["bytes"] == before
    for seq in range(1, 30):
        assert s.load(seq)[4] == b"%d " % seq + TEXT * 2500
    s.close()


# ---- large blocks, of which a reader that cannot wait decodes what it reads ----------------------

COUNT = 36_000
"""Two blocks of 8 MiB and a bit."""
CHUNK = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "S"
    path.mkdir()
    s = PyStore(path, compress=True, commit="manual")
    fill(s, COUNT)
    s.close()
    assert [is_compressed(p) for p in blocks(path)] == [True, True, False]
    return path


@pytest.fixture
def copy(large: Path, directory: Path) -> Path:
    shutil.copytree(large, directory, dirs_exist_ok=True)
    return directory


def test_one_message_costs_its_chunk(copy: Path) -> None:
    s = PyStore(copy, compress=True, commit="manual")
    begun = time.process_time()
    assert s.load(9000)[4] == payload(9000)
    one = time.process_time() - begun
    begun = time.process_time()
    for seq in range(1, 18_000, 100):
        assert s.load(seq)[4] == payload(seq)
    assert one < (time.process_time() - begun) / 2
    s.close()


def test_messages_of_a_large_block_in_any_order(copy: Path) -> None:
    s = PyStore(copy, compress=True, commit="manual")
    order = list(range(1, COUNT + 1))
    random.Random(5).shuffle(order)
    for seq in order:
        assert s.load(seq)[4] == payload(seq)
    assert s.lost()["damage"] == 0
    s.close()


@pytest.mark.timeout(60)
def test_a_thread_decodes_the_rest_for_who_can_wait(copy: Path) -> None:
    s = PyStore(copy, compress=True)
    assert s.load(9000)[4] == payload(9000)
    waits = 0
    for seq in range(1, COUNT + 1, 37):
        data, waited = wait_load(s, seq)
        assert data == payload(seq)
        waits += waited
    assert 1 <= waits <= 6
    s.close()


def test_what_replaces_a_large_block_does_not_mix_with_it(copy: Path) -> None:
    """A block of which a part was decoded is written again without a message, and compacted."""
    s = PyStore(copy, compress=True, commit="manual", slim_wait=0)
    assert s.load(2)[4] == payload(2)
    s.remove(9000, erase=True)
    s.commit()
    s.upkeep()
    check(s, COUNT, frozenset([9000]))
    s.reopen()
    assert s.load(3)[4] == payload(3)
    gone = frozenset(seq for seq in range(1, 14_000) if seq % 4) | {9000}
    for seq in gone - {9000}:
        s.remove(seq)
    s.commit()
    s.upkeep()
    check(s, COUNT, gone)
    s.reopen()
    check(s, COUNT, gone)
    assert s.lost()["damage"] == 0
    s.close()


def test_a_damaged_chunk_costs_what_it_holds(copy: Path) -> None:
    path = blocks(copy)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    s = PyStore(copy, compress=True, commit="manual")
    bad = set()
    for seq in range(1, COUNT + 1):
        try:
            assert s.load(seq)[4] == payload(seq)
        except ValueError:
            bad.add(seq)
    assert 0 < len(bad) <= CHUNK // len(payload(1)) + 2
    assert max(bad) - min(bad) == len(bad) - 1
    assert set(s.lost()["msgs"]) == bad
    s.close()
