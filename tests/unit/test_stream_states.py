"""The state of a stream in a snapshot: nats-server's bytes, and the same ones back."""

import random
import struct

import pytest

from tests.cext.replicas import read_state, state_of
from tests.cext.stream import put_change
from tests.seeds import seed_of
from tests.unit.stream_world import headers
from tests.unit.test_stream_member import PURGE, RELEASE, Follower, message

WRONG = headers(Nats_Expected_Last_Msg_Id="other")


def uv(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def state(*figures: int, holes: bytes = b"", version: int = 1) -> bytes:
    return bytes([42, version]) + b"".join(map(uv, figures)) + holes


def set_of(sequences: set[int]) -> bytes:
    """A set of nodes of 2048 sequences, as nats-server has it."""
    bases = sorted({seq // 2048 * 2048 for seq in sequences})
    nodes = b""
    for base in bases:
        bits = sum(1 << seq - base for seq in sequences if base <= seq < base + 2048)
        nodes += struct.pack("<Q", base) + bits.to_bytes(256, "little") + struct.pack("<H", 1)
    return b"\x16\x02" + struct.pack("<II", len(bases), len(sequences)) + nodes


def deleted(found: bytes) -> set[int]:
    said = read_state(found, 1 << 20)
    assert said is not None
    return {seq for first, count in said["runs"] for seq in range(first, first + count)}


def test_a_recorded_state_is_read() -> None:
    assert read_state(bytes.fromhex("2a018d01adff8004018d010000")) == {
        "msgs": 141, "bytes": 8404909, "first": 1, "last": 141, "refused": 0, "runs": [],
    }  # fmt: skip


def test_sets_and_runs_are_read_in_their_order() -> None:
    sequences = {5, 6, 7, 2047, 2048, 4096, 9000}
    holes = set_of(sequences) + b"\x21" + uv(20000) + uv(1 << 40) + set_of({1 << 41})
    said = read_state(state(9, 9, 2, 1 << 42, 3, 7, holes=holes))
    assert said is not None and (said["first"], said["last"], said["refused"]) == (2, 1 << 42, 3)
    assert said["runs"] == [
        (5, 3), (2047, 1), (2048, 1), (4096, 1), (9000, 1), (20000, 1 << 40), (1 << 41, 1),
    ]  # fmt: skip


def test_the_forms_of_other_versions_are_read() -> None:
    old = b'{"messages":3,"bytes":9,"first_seq":2,"last_seq":6,"clfs":4,"deleted":[3, 5]}'
    said = read_state(old)
    assert said is not None and said["refused"] == 4 and said["runs"] == [(3, 1), (5, 1)]
    sources = uv(2) + b"\x03abc" + uv(500) + b"\x02id" + b"\x00" + uv(0) + b"\x00"
    newer = state(3, 9, 2, 6, 4, 1, holes=sources + b"\x21\x03\x02", version=2)
    said = read_state(newer)
    assert said is not None and said["runs"] == [(3, 2)]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x2b\x01\x00\x00\x00\x00\x00\x00",
        state(1, 1, 1, 1, 0, 0, version=3),
        state(0, 0, 9, 2, 0, 0),
        state(1, 1, 1, 9, 0, 3, holes=b"\x99"),
        state(1, 1, 1, 9, 0, 3, holes=b"\x16\x01" + set_of({3})[2:]),
        state(1, 1, 1, 9, 0, 3, holes=b"\x16\x02" + struct.pack("<II", 1 << 30, 3)),
        b'{"messages":"x"}',
        b'{"messages":3',
    ],
)
def test_what_is_damaged_is_said_to_be(damaged: bytes) -> None:
    assert read_state(damaged) is None


def test_a_state_that_is_cut_is_damaged_or_says_less() -> None:
    whole = state(9, 9, 2, 1 << 42, 3, 7, holes=set_of({5, 9000}) + b"\x21" + uv(20000) + uv(300))
    said = read_state(whole)
    assert said is not None
    for end in range(len(whole)):
        less = read_state(whole[:end])
        assert less is None or less["runs"] in (said["runs"][:0], said["runs"][:2])


def test_a_member_says_what_it_has() -> None:
    """Deleted sequences one by one, in runs and in between, at both ends of nodes."""
    rng = random.Random(seed_of("STATES_SEED"))
    follower = Follower()
    entries = [message(n) for n in range(6000)]
    entries.append(message(6000, header=WRONG))
    assert follower.apply(*entries) == 0
    gone = {4095, 4096, *range(5000, 5600), *range(10, 400, 2)}
    gone |= {rng.randrange(2, 5999) for _ in range(rng.choice((3, 40, 900)))} | {6000}
    removals = [put_change({"kind": RELEASE, "seq": seq, "stream": b"S"}) for seq in gone]
    assert follower.apply(*removals) == 0
    found = state_of(follower.stream)
    now = follower.stream.state()
    said = read_state(found)
    assert said is not None
    assert {key: said[key] for key in ("msgs", "bytes", "first", "last", "refused")} == {
        "msgs": 6000 - len(gone), "bytes": now.bytes, "first": 1, "last": 6000, "refused": 1,
    }  # fmt: skip
    assert deleted(found) == gone
    assert len(found) < 2400, "what is dense takes a bit each"


def test_an_empty_member_says_so() -> None:
    follower = Follower()
    assert read_state(state_of(follower.stream)) == {
        "msgs": 0, "bytes": 0, "first": 1, "last": 0, "refused": 0, "runs": [],
    }  # fmt: skip
    assert follower.apply(message(0), message(1)) == 0
    assert follower.apply(put_change({"kind": PURGE, "stream": b"S", "last": 2, "seq": 3})) == 0
    said = read_state(state_of(follower.stream))
    assert said is not None and (said["first"], said["last"], said["runs"]) == (3, 2, [])
