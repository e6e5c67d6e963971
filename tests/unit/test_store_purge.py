"""A purge of a whole stream and the power cuts in its middle, at the level of the store."""

import os
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jsserver.cext.bytes import hh64, sha256
from tests.cext.store import PyFilter, PyStore
from tests.waiting import wait_until


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped store of 20 messages."""
    path = tmp_path / "S"
    path.mkdir()
    s = PyStore(path)
    for i in range(20):
        s.append(f"k.{i % 3}", b"%d" % i * 20)
    s.close()
    return path


def purged_block(directory: Path, last: int, *, n: int = 2, name: bytes = b"S") -> None:
    """What a purge makes first: a directory with a block that says which sequence was the last."""
    directory.mkdir()
    body = struct.pack("<QqH", last | 1 << 62, 0, 0)
    hashed = hh64(sha256(name + b"-%d" % n), body[:16])
    (directory / f"{n}.blk").write_bytes(struct.pack("<I", 30) + body + struct.pack("<Q", hashed))


@pytest.mark.parametrize("fresh", ["none", "no block", "no bytes", "half", "other's", "whole"])
@pytest.mark.parametrize("old", ["none", "part", "whole"])
@pytest.mark.parametrize("msgs", ["none", "empty", "old", "new"])
def test_interrupted_purge(directory: Path, msgs: str, old: str, fresh: str) -> None:
    """A power cut in the middle leaves a purge done or undone; no sequence is used again.

    Names and bytes may have reached the disk or not, but for the new directory, which is there with
    its name before msgs changes.
    """
    shutil.move(directory / "msgs", directory / "kept")
    if msgs == "old":
        shutil.copytree(directory / "kept", directory / "msgs")
    elif msgs == "new":
        purged_block(directory / "msgs", 20)
    elif msgs == "empty":
        (directory / "msgs").mkdir()
    if old == "part":
        (directory / "__msgs__").mkdir()
    elif old == "whole":
        shutil.copytree(directory / "kept", directory / "__msgs__")
    if fresh != "none":
        purged_block(directory / "__new_msgs__", 20, name=b"T" if fresh == "other's" else b"S")
        path = directory / "__new_msgs__" / "2.blk"
        if fresh == "no block":
            path.unlink()
        else:
            os.truncate(path, {"no bytes": 0, "half": 13}.get(fresh, 30))
    shutil.rmtree(directory / "kept")
    if msgs in ("none", "empty") and old != "whole" and fresh != "whole":
        return  # cannot be: nothing is left
    undone = msgs == "old" or (msgs != "new" and fresh != "whole")
    for _ in range(2):
        s = PyStore(directory, commit="manual")
        state = s.state()
        assert (state["msgs"], state["last_seq"]) == (20 if undone else 0, 20)
        assert s.lost()["damage"] == 0
        s.abandon()
    s = PyStore(directory)
    assert s.append("a") == 21
    s.close()
    assert not {"__msgs__", "__new_msgs__"} & set(os.listdir(directory))


def test_what_purges_replace_goes_meanwhile(directory: Path) -> None:
    """Purges one after another, and a stop right behind one: nothing of them is left, and nothing
    else goes with it."""
    s = PyStore(directory)
    for _ in range(20):
        for i in range(300):
            s.append(f"k.{i % 3}", b"x" * 100)
        s.purge()
        s.wait_durable()
    s.append("k.0", b"last")
    s.wait_durable()
    wait_until(
        lambda: not list((directory / ".del-store").iterdir()), "what purges replaced is gone"
    )
    s.purge()
    kept = s.append("k.1", b"kept")
    s.close()
    assert not {"__msgs__", "__new_msgs__", ".del-store"} & set(os.listdir(directory))
    s = PyStore(directory)
    state = s.state()
    assert (state["msgs"], state["first_seq"], state["last_seq"]) == (1, kept, kept)
    s.close()


def test_large_blocks_that_leave_go_meanwhile(tmp_path: Path) -> None:
    """Their names are gone with the group, their bytes soon after, also where a start had to be."""
    path = tmp_path / "S"
    path.mkdir()
    trash = path / ".del-store"
    for life in range(2):
        s = PyStore(path, max_bytes=10 << 20)
        for _ in range(400):
            s.append("k", b"x" * 100_000)
        s.wait_durable()
        assert trash.is_dir()
        blocks = {p.name for p in (path / "msgs").glob("*.blk")}
        assert len(blocks) <= 4
        wait_until(lambda: not list(trash.iterdir()), "what has left is gone")
        assert {p.name for p in (path / "msgs").glob("*.blk")} == blocks
        s.close()
        assert not trash.exists()
        if life == 0:
            trash.mkdir()
            (trash / "1").write_bytes(b"of a server that was killed")
    s = PyStore(path, max_bytes=10 << 20)
    assert s.state()["msgs"] == (10 << 20) // (100_000 + 31)
    s.close()


def test_a_purge_that_cannot_be_made(directory: Path) -> None:
    """The messages stay, and nothing is left of the attempt."""
    s = PyStore(directory, commit="manual")
    (directory / "__new_msgs__").write_bytes(b"in the way")
    s.purge()
    s.commit()
    s.abandon()
    (directory / "__new_msgs__").unlink()
    s = PyStore(directory)
    assert s.state()["msgs"] == 20
    s.close()


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_all_but_the_newest_goes_at_once(tmp_path: Path, storage: str) -> None:
    """In one step, however many messages there are in however many blocks."""
    path = tmp_path / "S"
    path.mkdir()
    s = PyStore(path if storage == "file" else None, "S", max_bytes=1 << 20, commit="manual")
    kept = PyFilter(("k.*", "nothing"))
    for n in range(3000):
        s.append(f"k.{n % 700}", b"x" * 200)
    assert s.next(kept, 5) == 5
    s.remove(2995)
    s.commit()
    s.append("k.3", b"all", b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    s.removed.clear()
    before = s.state()
    assert s.purge(keep=1) == before["msgs"] - 1
    assert s.removed == [(0, "", 4)]
    for _ in range(2):
        state = s.state()
        assert (state["msgs"], state["first_seq"], state["last_seq"]) == (1, 3001, 3001)
        assert s.subjects() == {"k.3": 1}
        assert s.next(kept, 1) == 3001
        assert s.load(3001)[2] == "k.3"
        with pytest.raises(KeyError):
            s.load(3000)
        if storage == "file":
            s.commit()
            assert len(list((path / "msgs").glob("*.blk"))) == 1
            s.reopen()
    assert s.append("k.9") == 3002
    assert s.subjects() == {"k.3": 1, "k.9": 1}
    s.close()


@pytest.mark.parametrize("how", [{"keep": 300}, {"seq": 2701}])
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_all_but_a_few_goes_at_once(tmp_path: Path, storage: str, how: dict[str, Any]) -> None:
    """As far as what stays stands in the last block; each subject has what stays of it."""
    path = tmp_path / "S"
    path.mkdir()
    s = PyStore(path if storage == "file" else None, "S", max_bytes=1 << 20, commit="manual")
    for n in range(3000):
        s.append(f"k.{n % 700}", b"%d" % (n + 1) * 50)
    s.remove(2990)
    s.commit()
    stays = [n for n in range(2700 + ("seq" in how), 3001) if n != 2990]
    s.removed.clear()
    assert s.purge(**how) == 2999 - len(stays)
    assert s.removed == [(0, "", 4)]
    subjects = Counter(f"k.{(n - 1) % 700}" for n in stays)
    for _ in range(2):
        state = s.state()
        assert (state["msgs"], state["first_seq"]) == (len(stays), stays[0])
        assert s.subjects() == subjects
        assert [s.load(n)[4] for n in stays] == [b"%d" % n * 50 for n in stays]
        assert s.next(PyFilter(("k.*",)), 1) == stays[0]
        assert s.next(PyFilter((f"k.{(stays[5] - 1) % 700}",)), 1) == stays[5]
        with pytest.raises(KeyError):
            s.load(stays[0] - 1)
        if storage == "file":
            s.commit()
            assert len(list((path / "msgs").glob("*.blk"))) == 1
            s.reopen()
    s.remove(stays[0])
    assert s.state()["first_seq"] == stays[1]
    assert s.append("k.9") == 3001
    s.close()
