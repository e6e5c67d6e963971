"""Which messages are live: blocks replayed, against a simple model, and the caches beside them."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.cext.bytes import hh64
from jsserver_spark.cext.columns import (
    SIDE_NONE,
    WALK_BAD,
    WALK_DONE,
    BlockReader,
    Rows,
    Survey,
    Wanted,
    block_key,
    index_db,
)
from pipeline.tests.unit.blocks import plain
from pipeline.tests.unit.test_columns_blocks import seqs
from tests.fault.histories import History
from tests.unit.records import (
    STREAM,
    erased,
    key,
    marker,
    pairs,
    record,
    short_marker,
    svarint,
    tombstone,
    uvarint,
)


def replay(blocks: list[bytes], **options: Any) -> tuple[Survey, set[int]]:
    """The survey and what is live after it."""
    survey = Survey(**options)
    for number, code in enumerate(blocks, 1):
        survey.begin(number, plain(code), key(number))
        assert survey.walk() == WALK_DONE
    survey.finish(1 << 62)
    return survey, live_of(survey)


def live_of(survey: Survey) -> set[int]:
    paired, gone = survey.gone()
    dead = set()
    if paired:
        for first, last in pairs(bytes(gone)):
            dead |= set(range(first, last + 1))
    else:
        dead = {seq for (seq,) in struct.iter_unpack("<Q", bytes(gone))}
    spans = [(first, last) for _, first, last, *_ in survey.surveyed() if first]
    live = {seq for first, last in spans for seq in range(first, last + 1)} - dead
    return {seq for seq in live if seq >= survey.first_seq}


def test_tombstones_in_later_blocks() -> None:
    one = record(1) + record(2) + record(3)
    two = tombstone(2, block=2) + record(4, block=2) + tombstone(4, block=2)
    survey, live = replay([one, two])
    assert live == {1, 3}
    assert survey.last_seq == 4


def test_figures_of_a_block() -> None:
    survey, _ = replay([record(7, ts=50) + record(9, ts=40) + marker(), erased(11, 40, block=2)])
    (number, first, last, low, high, end, lost), empty = survey.surveyed()
    assert (number, first, last, low, high, lost) == (1, 7, 9, 40, 50, 0)
    assert end == len(record(7) + record(9) + marker())
    assert empty[:3] == (2, 0, 0)
    assert survey.last_seq == 11


def test_limits() -> None:
    blocks = [b"".join(record(i) for i in range(1, 8)) + tombstone(6)]
    assert replay(blocks, max_msgs=5)[1] == {2, 3, 4, 5, 7}
    assert replay(blocks, max_msgs=5, trim=False)[1] == {1, 2, 3, 4, 5, 7}


@pytest.mark.parametrize("limits", [{}, {"max_msgs": 5}])
def test_what_our_limits_removed(limits: dict[str, int]) -> None:
    """Our markers say below which sequence nothing is left. nats-server passes over them."""
    blocks = [
        record(1) + record(2) + short_marker() + record(3) + record(4) + marker(3, 4),
        record(5, block=2) + tombstone(4, block=2) + marker(2, 5, block=2),
    ]
    assert replay(blocks, ours=True, **limits)[1] == {3, 5}
    assert replay(blocks, **limits)[1] == {1, 2, 3, 5}


def test_lives_end_before_the_limit_of_a_subject() -> None:
    blocks = [record(1) + record(2, header=b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n")]
    assert replay(blocks, max_msgs_per=1)[1] == {2}
    assert replay(blocks, max_msgs_per=1, lives=True)[1] == {1}


def test_damage() -> None:
    bad = bytearray(record(2, data=b"payload"))
    bad[-1] ^= 1
    survey = Survey()
    survey.begin(1, plain(record(1), bytes(bad), record(3)), key())
    assert survey.walk() == WALK_BAD
    assert survey.offset == len(record(1))
    assert survey.skip() == len(bad)
    assert survey.walk() == WALK_DONE
    assert survey.surveyed()[0][6] == len(bad)


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("delete"), st.integers(1, 40), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
    ),
    max_size=60,
)
LIMIT = st.one_of(st.just(-1), st.integers(1, 12))


class Model:
    """A stream as a list of (sequence, subject, size)."""

    def __init__(self, msgs: int, size: int, per: int) -> None:
        self.msgs, self.size, self.per = msgs, size, per
        self.live: list[tuple[int, int, int]] = []

    def keep(self, *, subjects_first: bool) -> None:
        if subjects_first:
            self.keep_subjects()
        while self.live and (
            (0 < self.msgs < len(self.live)) or (0 < self.size < sum(m[2] for m in self.live))
        ):
            del self.live[0]
        if not subjects_first:
            self.keep_subjects()

    def keep_subjects(self) -> None:
        for subject in {m[1] for m in self.live}:
            mine = [m for m in self.live if m[1] == subject]
            if self.per > 0:
                self.live = [m for m in self.live if m not in mine[: -self.per]]


@given(OPS, LIMIT, st.one_of(st.just(-1), st.integers(40, 900)), LIMIT, st.booleans())
@settings(max_examples=200)
def test_as_a_model(ops: list[Any], msgs: int, size: int, per: int, ours: bool) -> None:
    model = Model(msgs, size, per)
    blocks = [b""]
    seq = 0
    for kind, a, b in ops:
        number = len(blocks)
        if kind == "roll":
            blocks.append(b"")
        elif kind == "delete":
            if a <= seq:
                blocks[-1] += tombstone(a, block=number)
                model.live = [m for m in model.live if m[0] != a]
        else:
            seq += 1
            code = record(seq, b"k.%d" % a, bytes(b), block=number)
            blocks[-1] += code
            model.live.append((seq, a, len(code)))
    model.keep(subjects_first=ours)
    options = {"max_msgs": msgs, "max_bytes": size, "max_msgs_per": per, "ours": ours}
    assert replay(blocks, **options)[1] == {m[0] for m in model.live}


# ---- index.db ----------------------------------------------------------------------------------


def delete_map(seqs: list[int]) -> bytes:
    nodes: dict[int, int] = {}
    for seq in seqs:
        base = seq // 2048 * 2048
        nodes[base] = nodes.get(base, 0) | 1 << (seq - base)
    out = struct.pack("<BBII", 22, 2, len(nodes), len(seqs))
    for base in sorted(nodes, reverse=True):  # in a tree's order, not ascending
        out += struct.pack("<Q", base) + nodes[base].to_bytes(256, "little") + b"\x01\x00"
    return out


def index(first: int = 10, last: int = 5000, deleted: tuple[int, ...] = (12, 13, 4096)) -> bytes:
    n = last - first + 1 - len(deleted)
    body = bytes([11, 4]) + uvarint(n) + uvarint(n * 40) + uvarint(first) + svarint(1_000)
    body += uvarint(last) + svarint(9_000)
    body += uvarint(2) + uvarint(3) + b"k.1" + uvarint(n - 1) + uvarint(1) + uvarint(7)
    body += uvarint(3) + b"k.2" + uvarint(1) + uvarint(7) + uvarint(7)
    body += uvarint(1) + uvarint(7) + uvarint(n * 40) + uvarint(first) + svarint(0)
    body += uvarint(last) + svarint(8_000) + uvarint(len(deleted)) + uvarint(0) + uvarint(0)
    body += delete_map(list(deleted)) if deleted else b""
    body += uvarint(7) + b"lasteight"[:8]
    return body + struct.pack("<Q", hh64(block_key(STREAM), body))


def test_index() -> None:
    found = index_db(index(), block_key(STREAM))
    assert found is not None
    n, size, first, last, blocks, number, end = found
    assert (n, size, first, last) == (4988, 4988 * 40, 10, 5000)
    assert (number, end) == (7, b"lasteigh")
    ((num, b_size, b_first, ts1, b_last, ts2, deleted, gone),) = blocks
    assert (num, b_size, b_first, ts1, b_last, ts2, deleted) == (7, size, 10, 1000, 5000, 9000, 3)
    assert pairs(gone) == [(12, 13), (4096, 4096)]
    found = index_db(index(deleted=()), block_key(STREAM))
    assert found is not None and found[4][0][7] == b""


def test_an_index_that_does_not_fit() -> None:
    assert index_db(b"", block_key(STREAM)) is None
    assert index_db(index(), block_key("T")) is None
    assert index_db(index()[:-1], block_key(STREAM)) is None


@given(st.integers(2, len(index()) - 9), st.integers(0, 255))
@settings(max_examples=200)
def test_an_index_of_nonsense_harms_nothing(at: int, byte: int) -> None:
    """Even when its checksum fits."""
    body = bytearray(index()[:-8])
    body[at] = byte
    index_db(
        bytes(body) + struct.pack("<Q", hh64(block_key(STREAM), bytes(body))), block_key(STREAM)
    )


@pytest.mark.parametrize("cut", range(0, 60))
def test_a_short_index_harms_nothing(cut: int) -> None:
    body = index()[:cut]
    assert (
        index_db(body + struct.pack("<Q", hh64(block_key(STREAM), body)), block_key(STREAM)) is None
    )


# ---- a store's own files -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_killed_store_is_read_as_it_is(tmp_path: Path, seed: int) -> None:
    """What a replay of its blocks and sidecars takes for live is what the store holds."""
    history = History(tmp_path / "S", random.Random(seed))
    history.limits["max_age"] = 0
    history.store.update(**history.limits)
    for _ in range(30):
        history.step()
        if history.limits["max_age"]:
            history.limits["max_age"] = 0
            history.store.update(**history.limits)
    history.store.commit()
    want = set(history.live())
    messages = tmp_path / "S" / "msgs"
    survey = Survey(ours=True, trim=history.trim, **history.limits)
    words = tmp_path / "S" / "subjects.jsd"
    survey.dictionary(words.read_bytes() if words.exists() else b"", STREAM)
    rows = Rows(["seq"], "S", 100_000, 1 << 28)
    for number in sorted(int(path.stem) for path in messages.glob("*.blk")):
        code = (messages / f"{number}.blk").read_bytes()
        side = messages / f"{number}.jsx"
        done = SIDE_NONE
        if side.exists():
            block = plain(code)
            done = survey.sided(number, side.read_bytes(), len(code), code[-8:], STREAM, block)
        if done == SIDE_NONE:
            survey.begin(number, plain(code), key(number))
            assert survey.walk() == WALK_DONE or survey.rest_is_zero
        BlockReader(plain(code), key(number), Wanted()).fill(rows)
    survey.finish(1 << 62)
    assert live_of(survey) & set(seqs(rows)) == want
    history.store.abandon()
