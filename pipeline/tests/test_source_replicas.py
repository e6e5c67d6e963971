"""Reads from servers that lag, refuse, fall silent, close, or send what makes no sense."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark import patience
from jsserver_spark.errors import NatsError
from jsserver_spark.live import fetch as fetching
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import SourceOptions
from pipeline.tests.scripted import Answer, Scripted, scripted

CREATED = "2026-05-04T12:00:00Z"


def api(body: dict[str, Any]) -> Answer:
    return [(b"", json.dumps(body).encode())]


def stream(last: int, **config: Any) -> Answer:
    return api(
        {
            "config": {"name": "S", "subjects": ["s"], "allow_direct": True} | config,
            "state": {"messages": last, "bytes": last * 40, "first_seq": 1, "last_seq": last},
            "created": CREATED,
        }
    )


def messages(first: int, last: int, behind: int) -> Answer:
    """A batched direct get's answer: messages first to last, `behind` more."""
    found = [
        (
            f"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s\r\nNats-Sequence: {seq}\r\n"
            f"Nats-Time-Stamp: {CREATED}\r\nNats-Num-Pending: 1\r\nNats-Last-Sequence: 1\r\n\r\n",
            b"x",
        )
        for seq in range(first, last + 1)
    ]
    end = f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {behind}\r\nNats-Last-Sequence: {last}\r\n\r\n"
    return [(head.encode(), data) for head, data in [*found, (end, b"")]]


def read(server: Scripted, last: int, **options: str) -> list[int]:
    given = {"servers": server.url, "stream": "S", "requestTimeout": "300ms", **options}
    batches = fetch(SourceOptions.read(given, "a test"), "S", 1, last)
    return [seq for batch in batches for seq in batch["seq"].to_pylist()]


def server_of(direct: Callable[[int], Answer | bytes | None], leader: int = 10) -> Any:
    """A leader that has `leader` messages; `direct(seq)` answers direct gets."""

    def answer(subject: str, body: Any) -> Answer | bytes | None:
        if subject.endswith("STREAM.INFO.S"):
            return stream(leader)
        if subject.endswith("STREAM.MSG.GET.S"):
            if body["seq"] > leader:
                return api({"error": {"code": 404, "err_code": 10037, "description": "none"}})
            return api({"message": {"seq": body["seq"]}})
        return direct(body["seq"])

    return scripted(answer)


def test_a_replica_that_lags_is_not_the_end() -> None:
    known = iter([4, 4, 7, 10])

    def direct(seq: int) -> Answer:
        upto = next(known, 10)
        return messages(seq, upto, 0) if upto >= seq else [(b"NATS/1.0 404 Not Found\r\n\r\n", b"")]

    with server_of(direct) as server:
        assert read(server, 10) == list(range(1, 11))


def test_what_the_leader_does_not_have_is_the_end() -> None:
    """The last sequences of the range were deleted."""

    def direct(seq: int) -> Answer:
        return messages(seq, 8, 0) if seq <= 8 else [(b"NATS/1.0 404 Not Found\r\n\r\n", b"")]

    def answer(subject: str, body: Any) -> Answer | bytes | None:
        if subject.endswith("STREAM.INFO.S"):
            return stream(10)
        if subject.endswith("STREAM.MSG.GET.S"):
            return api({"error": {"code": 404, "err_code": 10037, "description": "none"}})
        return direct(body["seq"])

    with scripted(answer) as server:
        assert read(server, 10) == list(range(1, 9))


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    breaks = [True, True]

    def direct(seq: int) -> Answer | None:
        return None if seq > 3 and breaks and breaks.pop() else messages(seq, min(seq + 2, 10), 5)

    with server_of(direct) as server:
        assert read(server, 10, batchRows="3") == list(range(1, 11))


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([], "nothing came"),
        ([(b"NATS/1.0 503\r\n\r\n", b"")], "nobody answers direct gets"),
        (b"-ERR 'Slow Consumer'\r\n", "Slow Consumer"),
        (None, "closed the connection"),
    ],
)
def test_trouble_that_lasts_is_an_error_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch, sent: Answer | bytes | None, text: str
) -> None:
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 0.5)
    begun = time.monotonic()
    with server_of(lambda _: sent) as server, pytest.raises(NatsError, match=text):
        read(server, 10)
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "none of the protocol"),
        ([(b"", b"hello")], "which message"),
        ([(b"NATS/1.0 408 Bad Request\r\n\r\n", b"")], "sequence 1: 408 Bad Request"),
        (b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n", "Permissions Violation"),
        (messages(1, 12, 0)[:-1] * 2, "which message"),
    ],
)
def test_senseless_answers_are_errors_at_once(sent: Answer | bytes, text: str) -> None:
    begun = time.monotonic()
    with server_of(lambda _: sent) as server, pytest.raises(NatsError, match=text):
        read(server, 10)
    assert time.monotonic() - begun < 5


def test_a_message_behind_the_end_of_an_answer_is_passed_over() -> None:
    with server_of(lambda seq: messages(seq, 10, 0) + messages(3, 3, 0)[:1]) as server:
        assert read(server, 10) == list(range(1, 11))


class Moody:
    """A stream whose direct gets end early, lag behind, or break off, as chance has it."""

    def __init__(self, seqs: list[int], last: int, rng: random.Random, trouble: float) -> None:
        self.seqs = seqs
        self.last = last
        self.rng = rng
        self.trouble = trouble

    def answer(self, subject: str, body: Any) -> Answer | bytes | None:
        if subject.endswith("STREAM.INFO.S"):
            return stream(self.last)
        if subject.endswith("STREAM.MSG.GET.S"):
            behind = [seq for seq in self.seqs if seq >= body["seq"]]
            if not behind:
                return api({"error": {"code": 404, "err_code": 10037, "description": "none"}})
            return api({"message": {"seq": behind[0]}})
        mood = self.rng.random() / self.trouble if self.trouble else 1.0
        if mood < 0.2:
            return None
        upto = self.last if mood >= 0.5 else self.rng.randint(1, self.last)
        found = [seq for seq in self.seqs if body["seq"] <= seq <= upto]
        if not found:
            return [(b"NATS/1.0 404 Message Not Found\r\n\r\n", b"")]
        most = body["batch"] if mood >= 0.8 else self.rng.randint(1, body["batch"])
        sent = found[:most]
        *_, end = messages(sent[-1], sent[-1], len(found) - len(sent))
        return [*(messages(seq, seq, 0)[0] for seq in sent), end]


@settings(max_examples=40)
@given(
    st.sets(st.integers(1, 60)),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.4]),
    st.integers(0, 1 << 32),
)
def test_every_row_comes_once_and_in_order_whatever_the_server_does(
    seqs: set[int], last: int, batch: int, trouble: float, seed: int
) -> None:
    moody = Moody(sorted(seqs), 60, random.Random(seed), trouble)
    with scripted(moody.answer) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "PAUSE_SECONDS", 0.001)
        patch.setattr(patience, "PAUSE_SECONDS_MAX", 0.001)
        assert read(server, last, batchRows=str(batch)) == sorted(s for s in seqs if s <= last)
