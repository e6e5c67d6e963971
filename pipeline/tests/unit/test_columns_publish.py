"""Frames out of Arrow columns, and the window of rows that wait for their acks."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.cext.columns import ROW_FAULTS, Offsets, Outbox
from jsserver_spark.errors import NatsError
from jsserver_spark.write import outgoing

INBOX = b"_INBOX.x."


def outbox(max_rows: int = 1000, max_bytes: int = 1 << 20, **more: Any) -> Outbox:
    return Outbox(INBOX, max_rows, max_bytes, more.pop("max_payload", 1 << 20), **more)


def rows_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def taken(out: Outbox, now: int = 1) -> bytes:
    """All that is to be sent, as if it was."""
    data = b""
    while (view := out.to_send(100)) is not None:
        data += view
        out.sent(len(view), now)
    return data


def sent(rows: pa.RecordBatch, **more: Any) -> bytes:
    out = outbox(**more)
    outgoing.load(out, rows)
    assert out.fill(1 << 30) == 0
    assert out.taken
    return taken(out)


def fault(rows: pa.RecordBatch, **more: Any) -> str:
    out = outbox(**more)
    outgoing.load(out, rows)
    return ROW_FAULTS[out.fill(1 << 30)]


def frame(subject: bytes, n: int, lines: list[tuple[bytes, bytes]], data: bytes) -> bytes:
    """The frame as the protocol's description has it."""
    if not lines:
        return b"PUB %s %s%d %d\r\n%s\r\n" % (subject, INBOX, n, len(data), data)
    block = b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % line for line in lines) + b"\r\n"
    sizes = (len(block), len(block) + len(data))
    return b"HPUB %s %s%d %d %d\r\n%s%s\r\n" % (subject, INBOX, n, *sizes, block, data)


def ack(n: int, text: str) -> bytes:
    return b"MSG %s%d 1 %d\r\n%s\r\n" % (INBOX, n, len(text), text.encode())


# ---- frames ------------------------------------------------------------------------------------

subjects = st.lists(st.sampled_from(["a", "bc", "é", "x-1"]), min_size=1, max_size=4).map(".".join)
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
headers = st.none() | st.dictionaries(
    st.sampled_from(["A", "Bc", "X-Y"]), st.lists(values, max_size=3), max_size=3
)
messages = st.tuples(
    subjects, st.none() | st.binary(max_size=40), headers, st.none() | st.sampled_from(["i1", "i2"])
)


@settings(max_examples=80)
@given(
    given=st.lists(messages, max_size=12),
    large=st.booleans(),
    cut=st.integers(0, 5),
    form=st.sampled_from(["map", "array"]),
)
def test_frames_are_those_of_a_simple_encoder(
    given: list[Any], large: bool, cut: int, form: str
) -> None:
    text, octets = (pa.large_string(), pa.large_binary()) if large else (pa.string(), pa.binary())
    if form == "map":
        type_ = pa.map_(text, pa.list_(text))
        made = [None if m[2] is None else list(m[2].items()) for m in given]
    else:
        type_ = pa.list_(pa.struct([("key", text), ("value", octets)]))
        made = [
            None
            if m[2] is None
            else [{"key": k, "value": v.encode()} for k, several in m[2].items() for v in several]
            for m in given
        ]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([m[0] for m in given], text),
            pa.array([m[1] for m in given], octets),
            pa.array(made, type_),
            pa.array([m[3] for m in given], text),
        ],
        names=["subject", "data", "headers", "msg_id"],
    ).slice(cut)
    wanted = b""
    for n, (subject, data, head, msg_id) in enumerate(given[cut:]):
        lines = [(k.encode(), v.encode()) for k, several in (head or {}).items() for v in several]
        bare = form == "map" and bool(head) and not lines and not msg_id
        lines += [(b"Nats-Msg-Id", msg_id.encode())] if msg_id else []
        if bare:  # names without a value
            block = b"NATS/1.0\r\n\r\n"
            size = len(block) + len(data or b"")
            wanted += b"HPUB %s %s%d 12 %d\r\n" % (subject.encode(), INBOX, n, size)
            wanted += block + (data or b"") + b"\r\n"
        else:
            wanted += frame(subject.encode(), n, lines, data or b"")
    assert sent(rows) == wanted


def test_a_slice_of_nested_headers_takes_its_own_rows() -> None:
    type_ = pa.map_(pa.string(), pa.list_(pa.string()))
    column = pa.array([[("A", ["1"])], None, [("B", ["2", "3"])], [("C", ["4"])]], type_)
    rows = pa.RecordBatch.from_arrays([pa.array(["s"] * 4), column], names=["subject", "headers"])
    assert sent(rows.slice(2, 1)) == frame(b"s", 0, [(b"B", b"2"), (b"B", b"3")], b"")


def test_a_block_goes_as_it_stands() -> None:
    block = b"NATS/1.0 100 Idle\r\nA:1\r\nb :  2 \r\n\r\n"
    rows = rows_of(subject=["s", "t"], headers_raw=[block, None], data=[b"x", b"y"])
    first = b"HPUB s %s0 %d %d\r\n%sx\r\n" % (INBOX, len(block), len(block) + 1, block)
    assert sent(rows) == first + frame(b"t", 1, [], b"y")


def test_headers_that_are_left_out_and_those_that_are_added() -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: old\r\nA: 1\r\n\r\n"
    out = sent(
        rows_of(subject=["s"], headers_raw=[block], ttl=["5s"], expected_last_subject_seq=[7]),
        id_prefix=b"run-",
        lines=b"Nats-Expected-Stream: S\r\n",
        left_out=[b"Nats-Msg-Id"],
    )
    lines = [
        (b"A", b"1"),
        (b"Nats-Msg-Id", b"run-0"),
        (b"Nats-Expected-Stream", b"S"),
        (b"Nats-TTL", b"5s"),
        (b"Nats-Expected-Last-Subject-Sequence", b"7"),
    ]
    assert out == frame(b"s", 0, lines, b"")


def test_rows_without_a_subject_have_the_constant_one() -> None:
    out = sent(rows_of(subject=["a", None], data=["x", "y"]), subject=b"other")
    assert out == frame(b"a", 0, [], b"x") + frame(b"other", 1, [], b"y")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (None, "no subject"),
        ("", "no subject"),
        (".a", "empty token"),
        ("a..b", "empty token"),
        ("a.", "empty token"),
        ("a b", "blank"),
        ("a\r\nPUB b 0", "blank"),
        ("a\0", "blank"),
        ("a.*", "wildcard"),
        (">", "wildcard"),
        ("a" * 5000, "too long"),
    ],
)
def test_subjects_that_cannot_be_published_to(subject: str | None, words: str) -> None:
    assert words in fault(rows_of(subject=pa.array([subject], pa.string())))


def test_a_star_within_a_token_is_a_letter() -> None:
    assert sent(rows_of(subject=["a*b.c>"])) == frame(b"a*b.c>", 0, [], b"")


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (("", "v"), "name"),
        (("a b", "v"), "name"),
        (("a:", "v"), "name"),
        (("a\r\n", "v"), "name"),
        (("a", "v\r\nNats-Rollup: all"), "value"),
        (("a", "v\n"), "value"),
    ],
)
def test_headers_that_cannot_be_sent(pair: tuple[str, str], words: str) -> None:
    column = pa.array([[pair]], pa.map_(pa.string(), pa.string()))
    rows = pa.RecordBatch.from_arrays([pa.array(["s"]), column], names=["subject", "headers"])
    assert words in fault(rows)


@pytest.mark.parametrize(
    "block", [b"A: 1\r\n\r\n", b"NATS/1.0\r\nA: 1\r\n", b"NATS/1.0\r\n\r\nA: 1\r\n\r\n", b"NATS"]
)
def test_bytes_that_are_no_header_block(block: bytes) -> None:
    assert "header block" in fault(rows_of(subject=["s"], headers_raw=[block]))


def test_an_added_value_with_a_line_break_is_refused() -> None:
    assert "value" in fault(rows_of(subject=["s"], msg_id=["a\r\nb: c"]))


def test_a_row_above_max_payload_is_named() -> None:
    out = outbox(max_payload=10)
    outgoing.load(out, rows_of(subject=["a", "b"], data=["x" * 10, "x" * 11]))
    assert "max_payload" in ROW_FAULTS[out.fill(1 << 20)]
    assert (out.next_row, out.subject_of(1)) == (1, b"b")
    assert not out.taken
    out.drop()
    assert out.taken


def test_columns_of_no_use_are_named() -> None:
    for rows, words in [
        (rows_of(subject=["s"], seq=[1]), "'seq'"),
        (rows_of(subject=["s"], data=[1]), "'data' is int64"),
        (rows_of(subject=["s"], headers=[1]), "'headers' is int64"),
        (rows_of(subject=["s"], headers=[b""], headers_raw=[b""]), "exclude"),
    ]:
        with pytest.raises(NatsError, match=words):
            outgoing.load(outbox(), rows)


def test_other_layouts_of_text_are_taken() -> None:
    subject = pa.array(["a", "b", "a"]).dictionary_encode()
    data = pa.array([b"12", b"34", None], pa.binary(2))
    rows = pa.RecordBatch.from_arrays([subject, data], names=["subject", "data"])
    wanted = [(b"a", b"12"), (b"b", b"34"), (b"a", b"")]
    assert sent(rows) == b"".join(frame(s, n, [], d) for n, (s, d) in enumerate(wanted))


def test_buffers_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="needed"):
        Offsets(2, 0, False, None, b"\0" * 8, data=b"")
    with pytest.raises(ValueError, match="needed"):
        Offsets(9, 0, False, b"\xff", b"\0" * 40, data=b"")
    for offsets in ([0, 5], [3, 2], [-1, 2]):
        column = Offsets(
            1,
            0,
            False,
            None,
            b"".join(o.to_bytes(4, "little", signed=True) for o in offsets),
            data=b"abcd",
        )
        out = outbox()
        out.load(1, subject=column)
        assert "not in order" in ROW_FAULTS[out.fill(100)]


# ---- the window --------------------------------------------------------------------------------


def test_no_more_rows_are_under_way_than_may_be() -> None:
    out = outbox(max_rows=2)
    outgoing.load(out, rows_of(subject=["a", "b", "c"]))
    assert out.fill(1 << 20) == 0
    assert (out.under_way, out.taken, out.crowded) == (2, False, True)
    taken(out)
    assert out.received(ack(1, '{"stream":"S","seq":2}'), len(ack(1, '{"stream":"S","seq":2}')))
    assert (out.under_way, out.acked, out.first_row) == (2, 1, 0)
    said = ack(0, '{"stream":"S", "seq": 1, "duplicate": true}')
    assert out.received(said, len(said))
    assert (out.under_way, out.acked, out.duplicates, out.last_seq) == (0, 2, 1, 2)
    assert out.fill(1 << 20) == 0
    assert taken(out) == frame(b"c", 2, [], b"")


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    max_rows=st.integers(1, 9),
    order=st.randoms(use_true_random=False),
    piece=st.integers(1, 50),
)
def test_every_row_is_sent_and_acked_once_whatever_the_order(
    sizes: list[int], max_rows: int, order: Any, piece: int
) -> None:
    """Frames wrap around the ring, acks come in any order and in pieces."""
    out = outbox(max_rows, max_bytes=400, max_payload=500)
    data = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    outgoing.load(out, rows_of(subject=["s"] * len(sizes), data=pa.array(data, pa.binary())))
    got, acked = b"", 0
    while not out.taken or out.under_way:
        before = out.next_row
        assert out.fill(150) == 0
        while (view := out.to_send(64)) is not None:
            step = order.randint(1, len(view))
            got += view[:step]
            out.sent(step, 1)
        waiting = list(range(out.first_row, out.next_row))
        assert waiting or out.next_row > before
        order.shuffle(waiting)
        said = b"".join(ack(n, f'{{"stream":"S","seq":{n + 1}}}') for n in waiting) + b"PONG\r\n"
        for at in range(0, len(said), piece):
            assert out.received(said[at : at + piece], len(said[at : at + piece]))
        acked = out.acked
        assert out.first_row == out.next_row
    assert got == b"".join(frame(b"s", n, [], d) for n, d in enumerate(data))
    assert (acked, out.last_seq) == (len(sizes), len(sizes))


def test_some_rows_that_were_there_already_are_told_with_their_payloads() -> None:
    out = outbox(subject=b"a", lines=b"H: v\r\n")
    data = [b"%d" % i * (1 if i < 9 else 9000) for i in range(40)]
    outgoing.load(out, rows_of(data=pa.array(data, pa.binary())))
    assert out.fill(1 << 30) == 0
    taken(out)
    for i in range(40):
        said = ack(i, f'{{"stream":"S", "seq": {i + 100}, "duplicate": {str(i != 3).lower()}}}')
        assert out.received(said, len(said))
    doubles = out.doubles()
    assert [one.row for one in doubles] == [0, 1, 2, 4, 5, 6, 7, 8, 16, 32]
    for one in doubles:
        payload = data[one.row]
        assert (one.stream, one.seq) == ("S", one.row + 100)
        assert (one.size, one.start) == (len(payload), payload[:4096])
    assert out.doubles() == []


def test_digests_add_up_and_know_the_order_where_they_are_asked_to() -> None:
    rows = rows_of(data=[str(i) for i in range(50)], subject=["a"] * 50)
    turned = rows.take(pa.array(range(49, -1, -1)))
    assert outgoing.digest(rows) == outgoing.digest(turned)
    assert outgoing.digest(rows, 0) != outgoing.digest(turned, 0) != outgoing.digest(rows)
    assert outgoing.digest(rows, 0) != outgoing.digest(rows, 1)
    parts = outgoing.digest(rows.slice(0, 20), 7) + outgoing.digest(rows.slice(20), 27)
    assert parts % (1 << 64) == outgoing.digest(rows, 7)


def test_what_is_not_acked_is_sent_again_after_a_lost_connection() -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a", "b", "c"]))
    out.fill(1 << 20)
    first = taken(out)
    said = ack(1, '{"stream":"S","seq":1}')
    out.received(said + b"MSG half a li", len(said) + 13)
    out.lost()
    again = taken(out)
    assert again == frame(b"a", 0, [], b"") + frame(b"c", 2, [], b"")
    assert again in first.replace(frame(b"b", 1, [], b""), b"")
    said = ack(0, '{"stream":"S","seq":2}') + ack(2, '{"stream":"S","seq":3}')
    out.received(said, len(said))
    assert (out.under_way, out.acked) == (0, 3)


def sent_next(out: Outbox, limit: int) -> bytes:
    return bytes(out.to_send(limit) or b"")


def test_a_frame_that_was_sent_in_part_is_ended_first() -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a", "b"]))
    out.fill(1 << 20)
    out.sent(len(out.to_send(1) or b"") - 1, 5)
    assert out.received(b"PING\r\n", 6)
    assert out.again(100) == -1
    assert sent_next(out, 1) == b"\n"
    out.sent(1, 5)
    assert sent_next(out, 100) == b"PONG\r\n"
    out.sent(6, 5)
    assert taken(out, 7) == frame(b"b", 1, [], b"")
    assert out.again(6) == 1
    assert taken(out) == frame(b"a", 0, [], b"")


def test_refusals_are_told_and_can_be_sent_again() -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a", "b"]))
    out.fill(1 << 20)
    taken(out)
    status = b"NATS/1.0 503\r\n\r\n"
    error = '{"error":{"code":400,"err_code":10071},"stream":"S","seq":0}'
    said = b"HMSG %s0 1 %d %d\r\n%s\r\n" % (INBOX, len(status), len(status), status)
    said += ack(1, error)
    assert out.received(said, len(said))
    assert out.refusals() == [(0, status), (1, error.encode())]
    assert (out.refusals(), out.acked, out.under_way) == ([], 0, 2)
    assert out.refused_again() == 2
    assert len(taken(out)) == len(frame(b"a", 0, [], b"")) * 2


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"seq":', '{"stream":"S"}', "hello", '{"seq" 1}', '{"x":"\\']
)
def test_an_answer_that_is_no_ack_is_a_refusal(text: str) -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a"]))
    out.fill(1 << 20)
    taken(out)
    assert out.received(ack(0, text), len(ack(0, text)))
    assert out.refusals() == [(0, text.encode())]


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a", "b"]))
    out.fill(1 << 20)
    good = '{"stream":"S","seq":1}'
    said = ack(0, good) + ack(7, good) + b"MSG other 2 2\r\nhi\r\n+OK\r\nINFO {}\r\n"
    assert out.received(said, len(said))  # before row 0 was sent
    assert (out.acked, out.under_way) == (0, 2)
    taken(out)
    out.received(ack(0, good) * 2, len(ack(0, good)) * 2)
    assert (out.acked, out.under_way) == (1, 1)


def test_an_error_of_the_server_is_kept() -> None:
    out = outbox()
    assert out.received(b"-ERR 'Stale Connection'\r\n", 25)
    assert out.said == b" 'Stale Connection'"


@given(st.binary(max_size=60))
def test_bytes_of_no_server_do_no_harm(data: bytes) -> None:
    out = outbox()
    outgoing.load(out, rows_of(subject=["a"]))
    out.fill(1 << 20)
    taken(out)
    for said in (data, b"MSG " + data, b"HMSG _INBOX.x.0 1 " + data + b"\r\n", ack(0, "{") + data):
        out.received(said, len(said))
    assert out.acked == 0
