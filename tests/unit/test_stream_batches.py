"""Batches that are open: their bounds, their ends, a disk that fails, publishes that are staged."""

import errno
import json

import pytest

from tests.cext.stream import TestEnv
from tests.unit.consumer_disk import until
from tests.unit.stream_world import SECOND, World, headers, refusal
from tests.unit.test_consumer_state import disk
from tests.unit.test_stream_failure import mended, shown

__all__ = ["disk"]

STORE_ERROR, BATCH_GONE = 3, 7
ADVISORY = b"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"


def world(**params) -> World:
    return World(TestEnv(), **{"allow_atomic": True, "allow_batched": True} | params)


def put(w, id, number, commit=None, reply=b"ack", data=b"x", subject=b"s.a", **more):
    """One message of an atomic batch; the payloads of the answers."""
    lines = {"Nats_Batch_Id": id, "Nats_Batch_Sequence": number, **more}
    if commit is not None:
        lines["Nats_Batch_Commit"] = commit
    w.env.take()
    w.env.inject(subject, data, reply, headers(**lines))
    return [m[4] for m in w.env.take()]


def code(answers) -> int:
    (answer,) = answers
    return refusal(answer)


def fast(w, id, number, op=1, flow=1, gap="fail", data=b"x", **lines):
    """One message of a fast batch; what is said to its publisher by then."""
    reply = f"fast.{id}.{flow}.{gap}.{number}.{op}.$FI".encode()
    w.env.inject(b"s.a", data, reply, headers(**lines) if lines else b"")
    return [json.loads(m[4]) for m in w.env.take()]


def gone(w) -> list[tuple[str, str]]:
    told = [texts[1:3] for kind, texts, _ in w.env.events if kind == BATCH_GONE]
    w.env.events.clear()
    return [(id.decode(), reason.decode()) for id, reason in told]


def test_silence_ends_a_batch_and_is_told() -> None:
    w = world()
    w.env.listen(ADVISORY)
    put(w, "a", 1)
    put(w, "b", 1)
    fast(w, "f", 1, 0)
    w.env.advance(6 * SECOND)
    put(w, "b", 2)
    w.env.advance(5 * SECOND)
    assert gone(w) == [("a", "timeout")]
    assert w.env.open_batches[:2] == (1, 0)
    assert code(put(w, "a", 2)) == 10176
    assert fast(w, "f", 2)[0]["error"]["err_code"] == 10208
    w.env.advance(6 * SECOND)
    assert gone(w) == [("b", "timeout")]
    assert w.env.open_batches == (0, 0, 0)
    w.env.ignore(ADVISORY)
    put(w, "c", 1)
    w.env.advance(11 * SECOND)
    assert gone(w) == [] and w.env.open_batches == (0, 0, 0)


def test_the_limits_of_the_server() -> None:
    env = TestEnv()
    env.limit_batches(per_stream=2, total=3, size=2, timeout=SECOND)
    w = World(env, allow_atomic=True, allow_batched=True)
    other = World(
        env,
        name=b"T",
        subjects=(b"t.>",),
        allow_direct=False,
        allow_atomic=True,
        allow_batched=True,
    )
    put(w, "a", 1)
    put(w, "b", 1)
    assert code(put(w, "c", 1)) == 10210
    put(other, "a", 1, subject=b"t.a")
    assert code(put(other, "b", 1, subject=b"t.a")) == 10210
    put(w, "a", 2)
    assert put(w, "a", 3, commit="eob") == [b'{"stream":"S","seq":2,"batch":"a","count":2}']
    put(w, "b", 2)
    assert code(put(w, "b", 3)) == 10199
    for id in ("d", "e", "f"):
        fast(w, id, 1, 0)
    assert env.open_batches == (1, 2, env.open_batches[2])
    env.advance(2 * SECOND)
    assert env.open_batches == (0, 0, 0)


def test_bytes_are_bounded() -> None:
    w = world()
    w.env.listen(ADVISORY)
    data = bytes(20 << 20)
    for number in (1, 2, 3):
        assert put(w, "large", number, data=data) == [b""]
    assert w.env.open_batches[2] > 60 << 20
    assert code(put(w, "large", 4, data=data)) == 10199
    assert gone(w) == [("large", "large")] and w.env.open_batches == (0, 0, 0)
    for id in "abcd":
        for number in (1, 2, 3):
            assert put(w, id, number, data=data) == [b""]
    assert code(put(w, "e", 1, data=data)) == 10199
    assert put(w, "a", 4, commit="eob") == [b'{"stream":"S","seq":3,"batch":"a","count":3}']
    assert put(w, "e", 1, commit=1, data=data)


def test_the_end_of_the_stream_is_that_of_its_batches() -> None:
    w = world()
    put(w, "a", 1)
    fast(w, "f", 1, 0)
    w.stream.close(False)
    assert w.env.open_batches == (0, 0, 0)
    w.env.advance(20 * SECOND)


def test_an_account_that_is_full_takes_nothing_of_a_batch(disk) -> None:
    w = disk.open(allow_atomic=True, max_bytes=200, discard="new")
    for number in range(1, 6):
        put(w, "a", number, data=bytes(30))
    assert code(put(w, "a", 6, commit=1)) == 10077
    assert w.stream.state().last_seq == 0


def test_a_batch_is_acked_when_it_is_durable(disk) -> None:
    w = disk.open(allow_atomic=True, allow_batched=True)
    w.env.stall_commits()
    assert put(w, "a", 1) == [b""]
    assert put(w, "a", 2, commit=1) == []
    assert fast(w, "f", 1, 0) == [] and fast(w, "f", 2) == [] and fast(w, "f", 9) == []
    assert w.stream.state().messages == 4
    w.env.resume_commits()
    until(w, lambda: len(w.env.sent) == 6)
    said = [json.loads(m[4]) for m in w.env.take()]
    assert said == [
        {"stream": "S", "seq": 2, "batch": "a", "count": 2},
        {"type": "ack", "seq": 0, "msgs": 1},
        {"type": "ack", "seq": 1, "msgs": 1},
        {"type": "ack", "seq": 2, "msgs": 1},
        {"type": "gap", "last_seq": 3, "seq": 9},
        {"stream": "S", "seq": 4, "batch": "f", "count": 2},
    ]


@pytest.mark.parametrize("op", ["datasync", "pwrite"])
def test_a_disk_that_fails_refuses_all(disk, op: str) -> None:
    w = disk.open(allow_atomic=True, allow_batched=True)
    w.fill(2)
    before = shown(w)[:2]
    for number in range(1, 4):
        put(w, "a", number)
    w.env.fail(errno.EIO, op)
    answers = put(w, "a", 4, commit="eob")
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    assert code(answers + [m[4] for m in w.env.take()]) == 10077
    mended(w)
    assert shown(w)[:2] == before
    assert w.env.open_batches == (0, 0, 0)


def test_a_fast_batch_hears_that_the_disk_failed(disk) -> None:
    w = disk.open(allow_batched=True)
    w.env.fail(errno.EIO)
    heard = fast(w, "f", 1, 0)
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    heard += [json.loads(m[4]) for m in w.env.take()]
    assert [h.get("type") or h["error"]["err_code"] for h in heard] == ["ack", 10077]


def test_batches_where_publishes_are_staged() -> None:
    w = world(max_msgs_per_subject=2)
    w.fill(1)
    w.env.stage(w.stream)
    w.env.inject(b"s.a", b"p", b"plain")
    put(w, "a", 1)
    assert put(w, "a", 2, commit=1, Nats_Msg_Id="m") == []
    assert code(put(w, "b", 1, commit=1, Nats_Msg_Id="m")) == 10201
    assert put(w, "b", 1, commit=1, Nats_Expected_Last_Sequence=4) == []
    assert fast(w, "f", 1, 0, Nats_Expected_Last_Sequence=5) == [
        {"type": "ack", "seq": 0, "msgs": 1}
    ]
    assert fast(w, "f", 2, 1) == []
    assert fast(w, "f", 3, 3) == []
    assert w.env.stage_apply(w.stream, 1) == 0
    assert [m[4] for m in w.env.take()] == [b'{"stream":"S","seq":2}']
    assert w.env.stage_apply(w.stream, 2) == 0
    assert [m[4] for m in w.env.take()] == [b'{"stream":"S","seq":4,"batch":"a","count":2}']
    w.env.stage_end(w.stream, True)
    assert [json.loads(m[4]) for m in w.env.take()] == [
        {"stream": "S", "seq": 5, "batch": "b", "count": 1},
        {"type": "ack", "seq": 1, "msgs": 1},
        {"stream": "S", "seq": 7, "batch": "f", "count": 2},
    ]
    assert w.stream.state().last_seq == 7 and w.stream.state().messages == 2
    assert w.env.open_batches == (0, 0, 0)


def test_what_is_staged_and_dropped_ends_its_fast_batch(disk) -> None:
    w = disk.open(allow_batched=True)
    w.fill(2)
    w.env.stage(w.stream)
    fast(w, "f", 1, 0)
    w.env.fail(errno.EIO)
    w.env.stage_end(w.stream, True)
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    assert w.env.open_batches[1] <= 1
    mended(w)
    assert w.env.open_batches == (0, 0, 0)
