"""Streams that publish again what they stored, and that store under other subjects."""

import random
from typing import Any

import pytest

from jsserver.text.transforms import parse_mapping
from tests.unit.consumer_disk import until
from tests.unit.stream_world import FILE, INTEREST, MEMORY, World, compiled, headers, stream_params
from tests.unit.test_consumer_state import disk
from tests.unit.test_stream_failure import REFUSED, broken, mended
from tests.unit.test_stream_truncate import truncate

__all__ = ["disk"]

LOG = 5


def to_out(source="s.>", destination="out.>"):
    return compiled(source, destination)


def outline(sent):
    """Replies by their subject, what was published again by sequence."""
    lines: list[tuple[Any, ...]] = []
    for subject, _, _, header, data in sent:
        if header.startswith(b"NATS/1.0\r\n"):
            fields = dict(line.split(b": ", 1) for line in header.split(b"\r\n")[1:] if line)
            place = int(fields[b"Nats-Sequence"]), int(fields[b"Nats-Last-Sequence"])
            lines.append((subject, *place, data))
        else:
            lines.append((subject, data))
    return lines


def ack(seq):
    return b"ack", b'{"stream":"S","seq":%d}' % seq


# ---- when


def test_what_is_durable_is_published_before_its_ack(disk):
    w = disk.open(held=True, consumers=(), republish=to_out())
    for subject in (b"s.a", b"s.b", b"s.a"):
        w.env.inject(subject, b"x", b"ack")
    w.env.advance(1_000_000)
    assert w.env.take() == []
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 6)
    assert outline(w.env.take()) == [
        *((b"out.a", 1, 0, b"x"), (b"out.b", 2, 0, b"x"), (b"out.a", 3, 1, b"x")),
        *(ack(1), ack(2), ack(3)),
    ]


@pytest.mark.parametrize("kind", ["memory", "early"])
def test_what_does_not_wait_is_published_at_the_end_of_the_turn(disk, kind):
    if kind == "memory":
        w = World(storage=MEMORY, republish=to_out())
    else:
        w = disk.open(consumers=(), republish=to_out(), persist_mode="async")
    w.env.inject(b"s.a", b"x", b"ack", run=False)
    w.env.inject(b"s.a", b"y", b"", run=False)
    assert w.env.take() == []
    w.env.run()
    assert outline(w.env.take()) == [(b"out.a", 1, 0, b"x"), (b"out.a", 2, 1, b"y"), ack(1)]


def test_what_is_replaced_at_once_is_published_too(disk):
    w = disk.open(held=True, consumers=(), republish=to_out(), max_msgs_per_subject=1)
    for n in range(3):
        w.env.inject(b"s.a", b"%d" % n)
    w.stream.purge(None, 0, 0)
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 3)
    assert outline(w.env.take()) == [(b"out.a", n + 1, n, b"%d" % n) for n in range(3)]


def test_what_the_disk_refuses_is_not_published(disk):
    w = disk.open(consumers=(), republish=to_out())
    w.fill(1)
    w.env.take()

    def publish():
        for _ in range(2):
            w.env.inject(b"s.a", b"x", b"ack")

    assert [(m[0], m[4]) for m in broken(w, publish)] == [(b"ack", REFUSED)] * 2
    mended(w)
    w.env.inject(b"s.a", b"y", b"ack")
    until(w, lambda: len(w.env.sent) == 2)
    assert outline(w.env.take()) == [(b"out.a", 2, 1, b"y"), ack(2)]


def test_what_is_truncated_is_not_published(disk):
    w = disk.open(consumers=(), republish=to_out())
    w.fill(3)
    w.env.stall_commits()
    for _ in range(4):
        w.env.inject(b"s.a", b"x")
    truncate(w, 5)
    w.env.inject(b"s.a", b"y")
    w.env.resume_commits()
    w.stream.wait_durable()
    until(w, lambda: len(w.env.sent) == 3)
    assert [line[1:] for line in outline(w.env.take())] == [
        (4, 3, b"x"),
        (5, 4, b"x"),
        (6, 5, b"y"),
    ]


def test_what_waits_is_published_when_its_stream_is_removed(disk):
    w = disk.open(consumers=(), republish=to_out())
    w.env.stall_commits()
    w.env.inject(b"s.a", b"x", b"ack")
    w.env.resume_commits()
    w.stream.close(True)
    assert outline(w.env.take()) == [(b"out.a", 1, 0, b"x"), ack(1)]


def test_an_update_concerns_what_comes_after_it(disk):
    w = disk.open(held=True, consumers=(), republish=to_out())
    w.env.inject(b"s.a", b"1")
    for republish in (None, to_out("s.a", "other"), to_out("s.b", "other")):
        w.stream.update(stream_params(storage=FILE, republish=republish))
        w.env.inject(b"s.a", b"2")
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 2)
    assert outline(w.env.take()) == [(b"out.a", 1, 0, b"1"), (b"other", 3, 2, b"2")]


def test_streams_that_publish_into_each_other_let_others_have_their_turns():
    w = World(name=b"S", subjects=(b"s.>",), republish=to_out("s.>", "t.>"))
    other = World(w.env, name=b"T", subjects=(b"t.>",), republish=to_out("t.>", "s.>"))
    w.env.inject(b"s.a", b"x", run=False)
    for _ in range(10):
        assert w.env.run(10) == 10
    assert w.stream.state().messages == 51
    assert other.stream.state().messages == 50


def test_what_comes_of_a_turn_waits_for_the_next():
    """Other accounts may lead a message back to where it was stored."""
    w = World(republish=to_out("s.>", "s.>"))
    w.env.inject(b"s.a", b"x", run=False)
    for turn in range(5):
        assert w.env.run(1) == 1
        assert w.stream.state().messages == turn + 2


def test_many_messages_leave_others_their_turns():
    """They are sent in pieces, each followed by its acks."""
    w = World(republish=to_out())
    for _ in range(1200):
        w.env.inject(b"s.a", b"x", b"ack", run=False)
    seqs = iter(range(1, 1201))
    for piece in (500, 500, 200):
        assert w.env.run(1) == 1
        sent = outline(w.env.take())
        wanted = [next(seqs) for _ in range(piece)]
        assert [line[1] for line in sent[:piece]] == wanted
        assert sent[piece:] == [ack(n) for n in wanted]
    assert w.env.run(1) == 0


def test_acks_of_many_durable_messages_wait_for_their_publishing(disk):
    w = disk.open(held=True, consumers=(), republish=to_out())
    for _ in range(1200):
        w.env.inject(b"s.a", b"x", b"ack")
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 2400)
    published = 0
    acked = []
    for line in outline(w.env.take()):
        if line[0] == b"out.a":
            published += 1
            assert line[1] == published
        else:
            acked.append(line)
            assert len(acked) <= published
    assert acked == [ack(n + 1) for n in range(1200)]


# ---- what


def test_headers_are_kept_and_bodies_are_not_where_only_headers_are_wanted():
    for bare in (False, True):
        w = World(republish=to_out(), republish_headers_only=bare)
        w.env.inject(b"s.a", b"12345", b"", headers(A="b"))
        w.env.inject(b"s.a", b"")
        first, second = w.env.take()
        told = b"Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: %d\r\n"
        time = b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\nNats-Last-Sequence: %d\r\n"
        size = b"Nats-Msg-Size: 5\r\n" if bare else b""
        assert first[3] == b"NATS/1.0\r\nA: b\r\n" + told % 1 + time % 0 + size + b"\r\n"
        size = b"Nats-Msg-Size: 0\r\n" if bare else b""
        assert second[3] == b"NATS/1.0\r\n" + told % 2 + time % 1 + size + b"\r\n"
        assert first[4] == (b"" if bare else b"12345")


def test_what_would_go_to_an_invalid_subject_is_told_now_and_then():
    w = World(republish=to_out("s.*", "out.{{split(1,-)}}"))
    for subject in (b"s.-", b"s.-", b"s.a-b"):
        w.env.inject(subject, b"x")
    assert [m[0] for m in w.env.take()] == [b"out.a.b"]
    texts = [texts[0] for kind, texts, _ in w.env.events if kind == LOG]
    assert texts == [b"stream S: a message is not republished to an invalid subject: 'out.'"]
    w.env.advance(11 * 10**9)
    w.env.inject(b"s.-", b"x")
    assert len(w.env.events) == 2


def test_nothing_is_published_of_what_nobody_is_interested_in():
    w = World(retention=INTEREST, republish=to_out())
    w.env.inject(b"s.a", b"x", b"ack")
    assert outline(w.env.take()) == [ack(1)]


def test_long_messages_are_whole(disk):
    w = disk.open(consumers=(), republish=to_out())
    rng = random.Random(1)
    bodies = [rng.randbytes(size) for size in (0, 3900, 4000, 4096, 5000, 100_000)]
    for body in bodies:
        w.env.inject(b"s.a", body)
    until(w, lambda: len(w.env.sent) == len(bodies))
    assert [m[4] for m in w.env.take()] == bodies


# ---- transforms


def renamed(source, destination):
    transform = parse_mapping(source, destination)
    assert transform is not None
    return transform.compiled()


def test_what_becomes_too_long_is_refused():
    w = World(subject_transform=renamed("s.*", ".".join(["$1"] * 250)))
    answer = w.publish(b"s." + b"x" * 262)
    assert "message too large" in answer and '"err_code":10077' in answer
    assert w.publish(b"s." + b"x" * 240) == '{"stream":"S","seq":1}'
    assert len(w.message(1).subject) == 60_249


def test_what_waits_for_ids_keeps_the_subject_that_it_is_stored_under(disk):
    w = disk.open(consumers=())
    for n in range(2200):
        w.env.inject(b"s.a", b"x", b"", headers(Nats_Msg_Id=str(n)))
    disk.close(w)
    w = disk.open(consumers=(), subject_transform=renamed("s.*", "t.$1"))
    w.env.inject(b"s.b", b"x", b"ack", headers(Nats_Msg_Id="new"), run=False)
    w.env.inject(b"s.c", b"x", b"ack", run=False)
    assert w.stream.state().messages == 2200
    until(w, lambda: len(w.env.sent) == 2)
    assert [w.message(seq).subject for seq in (2201, 2202)] == [b"t.b", b"t.c"]


def test_random_numbers_are_drawn_once_a_message():
    w = World(
        subject_transform=renamed("s.*", "t.{{random(1000000)}}"),
        republish=to_out("t.*", "out.$1"),
    )
    for _ in range(20):
        w.env.inject(b"s.a")
    stored = [w.message(seq).subject for seq in range(1, 21)]
    assert len(set(stored)) > 10
    assert [m[0].replace(b"out.", b"t.") for m in w.env.take()] == stored


def test_nothing_is_published_again_as_an_answer_to_a_service():
    """A subject that the publisher chose may not begin with _R_, where the answers come back."""
    world = World(republish=compiled("s.*.*", "$1.$2"))
    world.publish(b"s._R_.a")
    world.publish(b"s.out.a")
    world.env.run()
    assert b"_R_.a" not in [m[0] for m in world.env.sent]
    assert b"out.a" in [m[0] for m in world.env.sent]
