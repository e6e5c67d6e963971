"""What is in the segments of a store's journal comes into the files, and nothing else does."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsserver.cext.store import journal_drain
from tests.unit.journals import (
    FOLDER,
    FORGET,
    FORGET_ALL,
    PAGE,
    WITNESS,
    WRITE,
    Entry,
    frame,
    head,
    journal,
    segment,
)

KEY = b"k" * 32
ZEROS = bytes(64)
PATHS = (b"S1/a", b"S1/b", b"S10/a", b"S1/deep/a")


def files(root: Path) -> dict[bytes, bytes]:
    return {path: (root / path.decode()).read_bytes() for path in PATHS}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path)


def filled(root: Path) -> Path:
    for path in PATHS:
        (root / path.decode()).parent.mkdir(parents=True, exist_ok=True)
        (root / path.decode()).write_bytes(ZEROS)
    return root


def write(data: bytes, path: bytes = b"S1/a", offset: int = 0) -> Entry:
    return WRITE, path, offset, data


def test_both_segments_are_brought_into_the_files_in_the_order_of_their_use(root: Path) -> None:
    folder = journal(root, segment(8, [[write(b"new")]]), segment(7, [[write(b"older one")]]))
    assert journal_drain(root, look=True) == (2, 0, 0, False, False)
    assert files(root)[b"S1/a"] == ZEROS
    assert journal_drain(root) == (2, 1, 12, False, False)
    assert files(root)[b"S1/a"] == b"newer one" + ZEROS[9:]
    assert not folder.exists()
    assert journal_drain(root) == (0, 0, 0, False, False)


@pytest.mark.parametrize("left", [0, 1, 23, 24, 60, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_of_a_frame_that_is_torn_nothing_counts(root: Path, left: int) -> None:
    last = frame(1, KEY, [write(b"b" * 2 * PAGE, b"S1/b")])
    journal(root, segment(1, [[write(b"a")]]) + last[:left].ljust(len(last), b"\0"))
    assert journal_drain(root) == (1, 1, 1, False, False)
    assert files(root)[b"S1/a"] == b"a" + ZEROS[1:]
    assert files(root)[b"S1/b"] == ZEROS


def test_frames_of_an_earlier_use_do_not_count(root: Path) -> None:
    old = segment(1, [[write(b"a")], [write(b"b", b"S1/b")]])
    new = segment(3, [[write(b"c")]], key=b"n" * 32)
    journal(root, new + old[len(new) :])
    assert journal_drain(root) == (1, 1, 1, False, False)
    assert files(root)[b"S1/b"] == ZEROS


def test_a_head_that_is_torn_says_that_no_frame_counts(root: Path) -> None:
    data = bytearray(segment(1, [[write(b"a")]]))
    data[40] ^= 1
    journal(root, bytes(data))
    assert journal_drain(root) == (0, 0, 0, False, False)
    assert files(root)[b"S1/a"] == ZEROS


def test_a_journal_of_a_later_version_is_left_alone(root: Path) -> None:
    folder = journal(root, head(1, KEY, version=2) + frame(0, KEY, [write(b"a")]))
    with pytest.raises(OSError):
        journal_drain(root)
    assert files(root)[b"S1/a"] == ZEROS
    assert (folder / "1").exists()


def test_what_stands_behind_a_damaged_frame_counts_and_the_bytes_are_kept(root: Path) -> None:
    data = bytearray(segment(5, [[write(b"a")], [write(b"b", b"S1/b")], [write(b"c", b"S10/a")]]))
    data[2 * PAGE + 30] ^= 1
    folder = journal(root, bytes(data))
    assert journal_drain(root) == (2, 2, 2, True, False)
    assert files(root)[b"S1/b"] == ZEROS
    assert files(root)[b"S10/a"] == b"c" + ZEROS[1:]
    assert [path.name for path in folder.iterdir()] == ["kept-1"]
    assert (folder / "kept-1").read_bytes() == data
    assert journal_drain(root) == (0, 0, 0, False, False)


def test_damaged_segments_are_kept_but_for_the_oldest_of_many(root: Path) -> None:
    folder = root / FOLDER
    for turn in range(6):
        data = bytearray(segment(5, [[write(b"%d" % turn)], [write(b"b")]]))
        data[PAGE + 30] ^= 1
        folder.mkdir(exist_ok=True)
        (folder / "2").write_bytes(data)
        assert journal_drain(root)[3]
        assert (folder / f"kept-{turn + 1}").read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == [f"kept-{n}" for n in (3, 4, 5, 6)]


def test_a_journal_from_before_a_start_of_nats_server_is_left_out_and_kept(root: Path) -> None:
    data = segment(5, [[write(b"a")], [write(b"b", b"S1/b")]])
    folder = journal(root, data)
    (root / WITNESS).unlink()  # as nats-server does
    assert journal_drain(root, look=True) == (2, 0, 0, False, True)
    assert (folder / "1").exists()
    assert journal_drain(root) == (2, 0, 0, False, True)
    assert set(files(root).values()) == {ZEROS}
    assert (folder / "kept-1").read_bytes() == data
    assert journal_drain(root) == (0, 0, 0, False, False)


@pytest.mark.parametrize(
    "kind, path, left",
    [
        (FORGET, b"S1/a", {b"S1/b", b"S1/deep/a", b"S10/a"}),
        (FORGET, b"S1", set(PATHS)),
        (FORGET_ALL, b"S1", {b"S10/a"}),
        (FORGET_ALL, b"S1/deep", {b"S1/a", b"S1/b", b"S10/a"}),
    ],
)
def test_what_was_forgotten_is_not_written(
    root: Path, kind: int, path: bytes, left: set[bytes]
) -> None:
    journal(root, segment(1, [[write(b"old", p) for p in PATHS], [(kind, path, 0, b"")]]))
    journal_drain(root)
    assert {p for p, data in files(root).items() if data != ZEROS} == left


def test_what_is_written_after_it_was_forgotten_counts(root: Path) -> None:
    frames = [[write(b"aaa")], [(FORGET, b"S1/a", 0, b"")], [write(b"b")]]
    journal(root, segment(1, frames))
    journal_drain(root)
    assert files(root)[b"S1/a"] == b"b" + ZEROS[1:]


@pytest.mark.timeout(60)
def test_a_journal_of_many_writes_and_removals_takes_no_long_time(root: Path) -> None:
    """In proportion to both, not to their product."""
    many = 60_000
    writes = [write(b"x", b"S1/%d" % i) for i in range(many)]
    removals = [(FORGET, b"S1/%d" % i, 0, b"") for i in range(many)]
    start = time.process_time()
    journal(root, segment(1, [writes, removals, [write(b"b")]]))
    made = time.process_time()
    assert journal_drain(root) == (3, 1, 1, False, False)
    assert time.process_time() - made < 2 * (made - start) + 1


def test_a_file_that_was_removed_is_not_made_again(root: Path) -> None:
    journal(root, segment(1, [[write(b"a", b"S2/a"), write(b"b", b"S1/x"), write(b"c")]]))
    assert journal_drain(root) == (1, 1, 1, False, False)
    assert not (root / "S2").exists() and not (root / "S1" / "x").exists()


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/etc/x",
        b"../out",
        b"S1/../../out",
        b"S1//a",
        b"S1/./a",
        b"S1/",
        b".",
        b"..",
        b"S1\0a",
    ],
)
def test_a_path_that_leads_elsewhere_is_not_followed(tmp_path: Path, path: bytes) -> None:
    root = tmp_path / "root"
    root.mkdir()
    filled(root)
    (tmp_path / "out").write_bytes(ZEROS)
    journal(root, segment(1, [[write(b"a", path)]]))
    assert journal_drain(root)[1:] == (0, 0, True, False)
    assert (tmp_path / "out").read_bytes() == ZEROS
    assert set(files(root).values()) == {ZEROS}


def test_a_journal_stays_where_a_file_cannot_be_written(root: Path) -> None:
    (root / "S1" / "folder").mkdir()
    folder = journal(root, segment(1, [[write(b"x", b"S1/folder"), write(b"a")]]))
    with pytest.raises(OSError):
        journal_drain(root)
    assert (folder / "1").exists()


WRITES = st.tuples(
    st.just(WRITE), st.sampled_from(PATHS), st.integers(0, 80), st.binary(min_size=1, max_size=40)
)
FORGETS = st.tuples(
    st.sampled_from([FORGET, FORGET_ALL]),
    st.sampled_from([*PATHS, b"S1", b"S10", b"S1/deep"]),
    st.just(0),
    st.just(b""),
)
FRAMES = st.lists(st.lists(st.one_of(WRITES, WRITES, FORGETS), max_size=6), max_size=6)


def left_by(frames: list[list[Entry]]) -> dict[bytes, bytes]:
    """The files as the journal leaves them."""
    writes: list[Entry] = []
    for kind, path, offset, data in (e for entries in frames for e in entries):
        if kind == WRITE:
            writes.append((kind, path, offset, data))
            continue
        below = path + b"/" if kind == FORGET_ALL else path
        writes = [
            w
            for w in writes
            if w[1] != path and not (kind == FORGET_ALL and w[1].startswith(below))
        ]
    left = dict.fromkeys(PATHS, ZEROS)
    for _, path, offset, data in writes:
        was = left[path].ljust(offset, b"\0")
        left[path] = was[:offset] + data + was[offset + len(data) :]
    return left


@given(older=FRAMES, newer=FRAMES, swapped=st.booleans(), torn=st.integers(0, 5000))
def test_any_journal_leaves_what_its_whole_frames_say(
    older: list[list[Entry]], newer: list[list[Entry]], swapped: bool, torn: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = filled(Path(folder))
        last = [frame(i, KEY, f) for i, f in enumerate(newer)]
        data = head(2, KEY) + b"".join(last)
        kept = newer
        if newer and torn:  # the last frame lacks its end
            used = len(last[-1].rstrip(b"\0"))
            left = min(torn, used - 1)
            data = head(2, KEY) + b"".join(last[:-1]) + last[-1][:left]
            kept = newer[:-1]
        both = [segment(1, older, key=b"o" * 32), data]
        journal(root, *(reversed(both) if swapped else both))
        rounds, _, _, damaged, _ = journal_drain(root)
        assert (rounds, damaged) == (len(older) + len(kept), False)
        assert files(root) == left_by(older + kept)
        assert not (root / FOLDER).exists() and not (root / WITNESS).parent.exists()


@given(
    frames=FRAMES,
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4
    ),
)
def test_changed_bytes_never_bring_in_what_no_frame_says(
    frames: list[list[Entry]], changes: list[tuple[int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = filled(Path(folder))
        data = bytearray(segment(1, frames))
        hurt = set()
        for at, bits in changes:
            data[at % len(data)] ^= bits
            hurt.add(at % len(data))
        journal(root, bytes(data))
        journal_drain(root)
        at = PAGE
        whole = []
        for number, entries in enumerate(frames):
            size = len(frame(number, KEY, entries))
            used = 24 + sum(16 + len(e[1]) + len(e[3]) for e in entries)
            if not hurt & set(range(at, at + used)):
                whole.append(entries)
            at += size
        begins = not hurt & set(range(64))
        assert files(root) == left_by(whole if begins else [])
