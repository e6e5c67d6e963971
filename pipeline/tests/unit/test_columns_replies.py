"""The parser of servers' answers: whole, byte by byte, at random cuts, and with senseless bytes."""

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.batches import Batches
from jsserver_spark.cext.columns import Replies, ReplyError, Rows
from jsserver_spark.options import SourceOptions
from jsserver_spark.schema import TIMESTAMP, Column, Table
from jsserver_spark.text.goformat import rfc3339_nano

SID = 3
LAST = (1 << 63) - 1
SECOND = 1_000_000_000
NOON = 1_700_000_000 * SECOND

SOURCES = {
    "subject": pa.binary(),
    "seq": pa.int64(),
    "timestamp": TIMESTAMP,
    "ts_nanos": pa.int32(),
    "headers_raw": pa.binary(),
    "data": pa.binary(),
}


def batches(**options: str) -> Batches:
    table = Table(tuple(Column(name, name, kind, None) for name, kind in SOURCES.items()))  # type: ignore[arg-type]
    return Batches(table, "S", SourceOptions.read({"stream": "S", **options}, "a test"))


def rows_of(made: Batches) -> list[dict[str, Any]]:
    batch = made.take()
    batch.validate(full=True)
    rows: list[dict[str, Any]]
    rows = batch.set_column(2, "timestamp", batch["timestamp"].cast(pa.int64())).to_pylist()
    for row in rows:
        row["ts"] = row.pop("timestamp") * 1000 + row.pop("ts_nanos")
    return rows


def message(subject: str, header: bytes, data: bytes, reply: str = "", sid: int = SID) -> bytes:
    middle = f"{subject} {sid} {reply} " if reply else f"{subject} {sid} "
    if header:
        line = f"HMSG {middle}{len(header)} {len(header) + len(data)}\r\n"
    else:
        line = f"MSG {middle}{len(data)}\r\n"
    return line.encode() + header + data + b"\r\n"


def direct(
    seq: int, *, ts: int = NOON, subject: str = "a.b", stored: bytes = b"", data: bytes = b"x"
) -> bytes:
    """An answer to a batched direct get, as both servers write it."""
    lines = (
        f"Nats-Stream: S\r\nNats-Subject: {subject}\r\nNats-Sequence: {seq}\r\n"
        f"Nats-Time-Stamp: {rfc3339_nano(ts)}\r\n"
        f"Nats-Num-Pending: 7\r\nNats-Last-Sequence: {seq - 1}\r\n\r\n"
    ).encode()
    return message("in.1", (stored[:-2] or b"NATS/1.0\r\n") + lines, data)


def end(pending: int, last: int) -> bytes:
    head = f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\n\r\n"
    return message("in.1", head.encode(), b"")


def delivery(seq: int, count: int, *, pending: int = 0, header: bytes = b"", long: bool = False):
    place = f"S.C.1.{seq}.{count}.{NOON + seq}.{pending}"
    reply = f"$JS.ACK._.hash.{place}.token" if long else f"$JS.ACK.{place}"
    return message("a.b", header, b"data", reply)


def feed(replies: Replies, data: bytes) -> None:
    while data:
        with memoryview(replies) as view:
            size = min(len(view), len(data))
            view[:size] = data[:size]
        data = data[size:]
        replies.feed(size)


def parsed(chunks: list[bytes], **kind: Any) -> tuple[list[dict[str, Any]], Replies]:
    replies, made = Replies(stream="S", **kind), batches()
    replies.expect(0, SID, made.rows, 0, LAST)
    for chunk in chunks:
        feed(replies, chunk)
    return rows_of(made), replies


STORED = b"NATS/1.0\r\nA: b\r\nNats-Sequence: 9\r\nNats-Num-Pending: 1\r\n\r\n"


def test_what_another_stream_answers_is_no_row() -> None:
    data = direct(4).replace(b"Nats-Stream: S\r\n", b"Nats-Stream: T\r\n") + direct(5)
    rows, replies = parsed([data])
    assert rows == []
    answer = replies.answer(0)
    assert (answer.messages, answer.status, answer.text) == (0, 421, "T")


def test_direct_messages_become_rows_with_their_stored_headers() -> None:
    data = direct(4, data=b"\r\nMSG a 1 1\r\n", ts=NOON + 123_456_789)
    data += direct(6, stored=STORED, data=b"", ts=NOON + 120_000_000, subject="c")
    rows, replies = parsed([data + end(12, 6)])
    assert rows == [
        {
            "subject": b"a.b",
            "seq": 4,
            "ts": NOON + 123_456_789,
            "headers_raw": None,
            "data": b"\r\nMSG a 1 1\r\n",
        },
        {
            "subject": b"c",
            "seq": 6,
            "ts": NOON + 120_000_000,
            "headers_raw": STORED,
            "data": b"",
        },
    ]
    answer = replies.answer(0)
    assert (answer.messages, answer.seen, answer.pending) == (2, 6, 12)
    assert (answer.status, answer.text) == (204, "204 EOB")


def test_a_stored_header_may_look_like_the_servers_or_like_a_status() -> None:
    like = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 1\r\nNats-Last-Sequence: 3\r\n\r\n"
    rows, replies = parsed([direct(1, stored=like)])
    assert rows[0]["headers_raw"] == like
    assert replies.answer(0).status == 0


@pytest.mark.parametrize("ts", [0, 951_782_399 * SECOND, 1_709_164_800 * SECOND + 1, NOON + 10])
def test_times_keep_their_nanoseconds(ts: int) -> None:
    rows, _ = parsed([direct(1, ts=ts)])
    assert rows[0]["ts"] == ts


def test_byte_by_byte_gives_the_same_rows() -> None:
    data = b"PING\r\n" + direct(1) + b"INFO {}\r\n" + direct(2, stored=STORED) + end(0, 2)
    whole, _ = parsed([data])
    pieces, replies = parsed([data[i : i + 1] for i in range(len(data))])
    assert pieces == whole and len(pieces) == 2
    assert replies.take_pings() == 1 and replies.take_pings() == 0
    assert replies.answer(0).status == 204


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.binary(max_size=300), st.sampled_from([b"", STORED])), max_size=12),
    st.randoms(use_true_random=False),
)
def test_any_cuts_give_the_same_rows(messages: list[Any], rng: random.Random) -> None:
    data = b"".join(
        direct(i, data=payload, stored=stored) for i, (payload, stored) in enumerate(messages, 1)
    )
    data += end(0, len(messages))
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(6))
    edges = [0, *cuts, len(data)]
    rows, replies = parsed([data[a:b] for a, b in itertools.pairwise(edges)])
    assert [row["data"] for row in rows] == [payload for payload, _ in messages]
    assert [row["headers_raw"] for row in rows] == [stored or None for _, stored in messages]
    assert replies.answer(0).status == 204


@settings(max_examples=150)
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 40), st.booleans())
def test_senseless_bytes_are_an_error_or_wait_for_more(
    noise: bytes, at: int, cut: int, deliveries: bool
) -> None:
    """Nothing else can come of them, whatever they replace."""
    good = delivery(1, 1, header=STORED) if deliveries else direct(1, stored=STORED)
    data = good[:at] + noise + good[at + cut :]
    replies, made = Replies(stream="S", deliveries=deliveries), batches()
    replies.expect(0, SID, made.rows, 0, LAST)
    try:
        feed(replies, data)
    except ReplyError as error:
        assert str(error)
    rows_of(made)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 200 OK\r\n", "none of the protocol"),
        (b"\r\n", "none of the protocol"),
        (b"MSG in.1 3\r\n", "none of the protocol"),
        (b"MSG in.1 3 four\r\n", "sizes"),
        (b"MSG in.1 3 -1\r\n", "sizes"),
        (b"HMSG in.1 3 9 8\r\n12345678\r\n", "sizes"),
        (b"MSG in.1 3 99999999999999999999999\r\n", "sizes"),
        (b"MSG in.1 3 999999999999\r\n", "longer"),
        (b"MSG in.1 3 1\r\nabcd\r\n", "does not end"),
        (b"MSG in.1 3 1\r\nx\r\n", "which message"),
        (message("in.1", b"NATS/1.0\r\nA: b\r\n\r\n", b""), "which message"),
        (direct(5) + direct(5), "which message"),
        (direct(1).replace(b"T2", b"T9"), "which message"),
        (b"x" * (2 << 20), "longer"),
    ],
)
def test_what_no_server_sends_is_told(data: bytes, text: str) -> None:
    with pytest.raises(ReplyError, match=text):
        parsed([data])


def test_a_refusal_is_kept_for_whoever_asks() -> None:
    _, replies = parsed([b"-ERR 'Slow Consumer'\r\n"])
    assert replies.take_refusal() == "'Slow Consumer'"
    assert replies.take_refusal() == ""


def test_messages_of_other_subscriptions_are_passed_over() -> None:
    other = message("in.9", b"", b"hello", sid=9)
    rows, _ = parsed([other + direct(1) + other])
    assert [row["seq"] for row in rows] == [1]


def test_rows_outside_the_range_or_of_other_subjects_are_left_out() -> None:
    replies, made = Replies(stream="S", filters=("a.*",)), batches()
    replies.expect(0, SID, made.rows, 2, 5)
    feed(replies, b"".join(direct(i, subject="c.b" if i == 4 else "a.b") for i in range(1, 8)))
    assert [row["seq"] for row in rows_of(made)] == [3, 5]
    assert replies.answer(0).messages == 7 and replies.answer(0).seen == 7


def test_an_answer_leaves_to_the_next_what_has_not_come() -> None:
    replies, made = Replies(stream="S"), batches()
    replies.expect(0, SID, made.rows, 0, LAST)
    feed(replies, direct(1) + direct(5))
    assert replies.ends_before(0, 4) == 6  # 5 is there already
    assert replies.ends_before(0, 8) == 8
    feed(replies, direct(6) + direct(9))
    assert [row["seq"] for row in rows_of(made)] == [1, 5]


def test_more_rows_than_asked_for_are_an_error() -> None:
    replies, made = Replies(stream="S"), batches(batchRows="2")
    replies.expect(0, SID, made.rows, 0, LAST)
    with pytest.raises(ReplyError, match="more messages"):
        feed(replies, direct(1) + direct(2) + direct(3))
    assert len(rows_of(made)) == 2


def test_a_message_larger_than_the_buffer_finds_room() -> None:
    large = bytes(range(256)) * (3 << 12)
    rows, _ = parsed([direct(1, data=large) + direct(2)])
    assert [row["data"] for row in rows] == [large, b"x"]


def test_the_buffer_is_not_moved_while_somebody_looks_at_it() -> None:
    replies = Replies(stream="S")
    with memoryview(replies), pytest.raises(BufferError):
        replies.feed(0)
    with pytest.raises(ValueError, match="do not fit"):
        replies.feed(1 << 40)
    with pytest.raises(ValueError, match="slots"):
        replies.expect(2, 1, Rows(["seq"], "S", 1, 1), 0, 1)


# ---- deliveries --------------------------------------------------------------------------------


@pytest.mark.parametrize("long", [False, True])
def test_deliveries_become_rows(long: bool) -> None:
    data = delivery(4, 1, pending=1, long=long) + delivery(9, 2, header=STORED, long=long)
    rows, replies = parsed([data], deliveries=True)
    assert [(row["subject"], row["seq"], row["ts"]) for row in rows] == [
        (b"a.b", 4, NOON + 4),
        (b"a.b", 9, NOON + 9),
    ]
    assert [row["headers_raw"] for row in rows] == [None, STORED]
    assert replies.answer(0).pending == 0


def test_the_size_that_headers_only_adds_is_taken_off() -> None:
    bare = b"NATS/1.0\r\nNats-Msg-Size: 4\r\n\r\n"
    own = b"NATS/1.0\r\nNats-Msg-Size: 9\r\nNats-Msg-Size: 4\r\n\r\n"
    data = delivery(1, 1, header=bare) + delivery(2, 2, header=own)
    rows, _ = parsed([data], deliveries=True, headers_only=True)
    assert [row["headers_raw"] for row in rows] == [None, b"NATS/1.0\r\nNats-Msg-Size: 9\r\n\r\n"]


def test_a_lost_delivery_is_noticed() -> None:
    with pytest.raises(ReplyError, match="lost"):
        parsed([delivery(1, 1) + delivery(3, 3)], deliveries=True)


@pytest.mark.parametrize(
    "reply", ["$JS.ACK.S.C.1.2", "$JS.ACK.S.C.1.x.1.1.1", "$JS.ACK.a.b.c.d.e.f.1.1"]
)
def test_a_delivery_that_does_not_say_which_it_is_is_an_error(reply: str) -> None:
    with pytest.raises(ReplyError, match="which it is"):
        parsed([message("a", b"", b"x", reply)], deliveries=True)


def test_a_full_batch_stops_and_goes_on_when_it_was_taken() -> None:
    replies, made = Replies(deliveries=True), batches(batchRows="2")
    replies.expect(0, SID, made.rows, 0, LAST)
    feed(replies, b"".join(delivery(i, i) for i in range(1, 6)))
    seen = []
    while replies.full:
        seen.append([row["seq"] for row in rows_of(made)])
        replies.feed(0)
    seen.append([row["seq"] for row in rows_of(made)])
    assert seen == [[1, 2], [3, 4], [5]]


def test_a_pull_request_that_ends_says_what_it_did_not_get() -> None:
    over = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 7\r\n\r\n"
    rows, replies = parsed(
        [delivery(1, 1) + message("in.1", over, b"") + delivery(2, 2)], deliveries=True
    )
    answer = replies.answer(0)
    assert (answer.status, answer.unused, len(rows)) == (409, 7, 1)
    assert answer.text == "409 Message Size Exceeds MaxBytes"
    replies.clear_status(0)
    replies.feed(0)
    assert replies.answer(0).messages == 2
