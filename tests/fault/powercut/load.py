"""The load of the power cut tests: what was asked and answered when, and what must be left of it.

Every message says who sent it as its how manieth message, so whatever is found can be checked. The
checks take the moment of the cut (CLOCK_MONOTONIC, ns): what had been answered by then must hold,
what had been asked may.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.client.raw import RawApp, TimedOut, header_block

HOUR_NS = 3600 * 10**9
KEYS = 12
SMALL_BLOCKS: dict[str, object] = {"compression": "s2", "max_bytes": 120_000}
"""Blocks of 32 kB, of which one after the other is compressed."""
NEWEST = 150
"""So many of the longest messages are in a few such blocks."""
TEXT = b"what comes again and again gets smaller. " * 8


@dataclass
class Message:
    """A published message; `acked` is when its ack came, 0: never."""

    subject: str
    body: bytes
    sent: int
    rollup: bool = False
    seq: int = 0
    acked: int = 0


@dataclass
class Purge:
    """A purge of the whole stream, or of a subject; `done` is when the answer came, 0: never."""

    asked: int
    done: int = 0
    subject: str = ""


@dataclass
class Stream:
    """One stream under load, by a thread of its own."""

    name: str
    config: dict[str, object]
    window: int
    messages: list[Message] = field(default_factory=list)
    purges: list[Purge] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)
    """Of a work queue: (sequence, when its double ack was answered)."""
    made: int = 0
    failure: str = ""

    def create(self, client: RawApp) -> None:
        answer = client.api(
            f"STREAM.CREATE.{self.name}",
            {"name": self.name, "subjects": [f"{self.name}.>"]} | self.config,
        )
        assert "error" not in answer, answer
        if self.name == "QUEUE":
            consumer = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": HOUR_NS}
            answer = client.api(
                f"CONSUMER.DURABLE.CREATE.{self.name}.c",
                {"stream_name": self.name, "config": consumer},
            )
            assert "error" not in answer, answer
        self.made = time.monotonic_ns()

    def run(self, port: int, stop: threading.Event, seed: int) -> None:
        try:
            with RawApp(port) as client:
                client.subscribe(f"ack.{self.name}.*")
                self._publish(client, stop, random.Random(seed))
        except (OSError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def _publish(self, client: RawApp, stop: threading.Event, chance: random.Random) -> None:
        waiting = 0
        while not stop.is_set():
            while waiting < self.window:
                number = len(self.messages)
                body = f"{self.name} {number} ".encode() + self._payload(chance)
                subject = f"{self.name}.{number % KEYS}"
                rollup = self.name == "ROLLED" and chance.random() < 0.1
                self.messages.append(Message(subject, body, time.monotonic_ns(), rollup))
                header = header_block("Nats-Rollup: sub") if rollup else self.header(number)
                client.publish(subject, body, reply=f"ack.{self.name}.{number}", header=header)
                waiting += 1
            waiting -= self._take(client)
            if self.name in ("PURGED", "PARTLY", "QUEUE") and chance.random() < 0.2:
                while waiting:
                    waiting -= self._take(client)
                if self.name == "PURGED":
                    self._purge(client)
                elif self.name == "PARTLY":
                    self._purge(client, f"{self.name}.{chance.randrange(KEYS)}")
                else:
                    self._work(client)
        while waiting:
            waiting -= self._take(client)

    def _payload(self, chance: random.Random) -> bytes:
        """It gets smaller where it is compressed."""
        size = chance.randint(0, 300)
        if "compression" in self.config:
            return chance.randbytes(8) + TEXT[:size]
        return chance.randbytes(size)

    def header(self, number: int) -> bytes:
        """The header block of a message without a rollup."""
        return header_block(f"Nats-Msg-Id: {number}") if self.name == "ONCE" else b""

    def _take(self, client: RawApp) -> int:
        frame = client.message(10)
        if not frame.subject.startswith(f"ack.{self.name}."):
            return 0
        message = self.messages[int(frame.subject.rpartition(".")[2])]
        answer = json.loads(frame.payload)
        assert "error" not in answer, answer
        message.seq, message.acked = answer["seq"], time.monotonic_ns()
        return 1

    def _purge(self, client: RawApp, subject: str = "") -> None:
        purge = Purge(time.monotonic_ns(), subject=subject)
        self.purges.append(purge)
        answer = client.api(f"STREAM.PURGE.{self.name}", {"filter": subject} if subject else None)
        assert answer.get("success"), answer
        purge.done = time.monotonic_ns()

    def _work(self, client: RawApp) -> None:
        frame = client.request("$JS.API.CONSUMER.MSG.NEXT.QUEUE.c", b'{"batch":1,"no_wait":true}')
        if frame.reply.startswith("$JS.ACK."):
            client.request(frame.reply, b"+ACK")
            self.taken.append((int(frame.reply.split(".")[5]), time.monotonic_ns()))


def streams() -> list[Stream]:
    """One of each kind of promise."""
    return [
        Stream("PLAIN", {}, 50),
        Stream("LIMITED", {"max_msgs": 40} | SMALL_BLOCKS, 30),
        Stream("KEYS", {"max_msgs_per_subject": 1} | SMALL_BLOCKS, 10),
        Stream("PACKED", SMALL_BLOCKS, 30),
        Stream("PURGED", {}, 5),
        Stream("QUEUE", {"retention": "workqueue"}, 4),
        Stream("ROLLED", {"allow_rollup_hdrs": True}, 12),
        Stream("ONCE", {"duplicate_window": HOUR_NS}, 8),
        Stream("PARTLY", {}, 8),
    ]


# ---- what must be left -------------------------------------------------------------------------


def stored(client: RawApp, stream: str) -> tuple[dict[int, tuple[str, bytes]], dict[str, int]]:
    """Every message of a stream by its sequence, and the state of its info."""
    import base64

    info = client.api(f"STREAM.INFO.{stream}")
    assert "error" not in info, info
    state = info["state"]
    assert isinstance(state, dict)
    found: dict[int, tuple[str, bytes]] = {}
    seq = 1
    while True:
        answer = client.api(f"STREAM.MSG.GET.{stream}", {"seq": seq, "next_by_subj": ">"})
        if "error" in answer:
            assert answer["error"]["err_code"] == 10037, answer
            break
        message = answer["message"]
        assert isinstance(message, dict)
        seq = message["seq"]
        found[seq] = (message["subject"], base64.b64decode(message.get("data", "")))
        seq += 1
    assert len(found) == state["messages"], (len(found), state)
    return found, state


def check(stream: Stream, client: RawApp, cut: int) -> None:
    """AssertionError where something that was promised by the cut does not hold."""
    if stream.made > cut and f'"{stream.name}"' not in str(client.api("STREAM.NAMES")).replace(
        "'", '"'
    ):
        return
    found, state = stored(client, stream.name)
    by_seq = {m.seq: m for m in stream.messages if m.seq}
    for seq, (subject, body) in found.items():
        number = int(body.split(b" ", 2)[1])
        assert (stream.messages[number].subject, stream.messages[number].body) == (subject, body)
        if seq in by_seq:
            assert by_seq[seq] is stream.messages[number], f"{stream.name} {seq}: another message"
    acked = [m for m in stream.messages if 0 < m.acked < cut]
    highest = max((m.seq for m in acked), default=0)
    assert state["last_seq"] >= highest, f"{stream.name}: last {state['last_seq']} < {highest}"
    CHECKS[stream.name](stream, found, acked, cut)
    if stream.name == "ONCE":
        check_repeats(stream, client, acked)
    answer = json.loads(client.request(f"{stream.name}.0", b"after 0 the cut").payload)
    assert answer["seq"] > max(highest, *found, 0), f"{stream.name}: {answer} used again"


Found = dict[int, tuple[str, bytes]]


def check_plain(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    lost = [m.seq for m in acked if m.seq not in found]
    assert not lost, f"{stream.name}: acked and lost {lost}"


def check_limited(
    stream: Stream, found: Found, acked: list[Message], cut: int, kept: int = 40
) -> None:
    # Later messages may have pushed acked ones out: as many as were sent and not acked by the cut.
    newest = sorted(m.seq for m in acked)[-kept:]
    later = sum(m.sent < cut for m in stream.messages) - len(acked)
    lost = [seq for seq in newest[later:] if seq not in found]
    assert not lost, f"{stream.name}: acked and lost {lost}"
    if "max_msgs" in stream.config:
        assert len(found) <= kept


def check_packed(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    check_limited(stream, found, acked, cut, NEWEST)


def check_keys(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    newest: dict[str, int] = {}
    for message in acked:
        newest[message.subject] = max(newest.get(message.subject, 0), message.seq)
    there = {subject: seq for seq, (subject, _) in found.items()}
    assert len(there) == len(found), f"{stream.name}: two values of one key"
    for subject, seq in newest.items():
        assert there.get(subject, 0) >= seq, f"{stream.name}: {subject} fell back from {seq}"


def check_purged(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    done = max((p.asked for p in stream.purges if 0 < p.done < cut), default=0)
    begun = max((p.asked for p in stream.purges if p.asked < cut), default=0)
    back = [m.seq for m in stream.messages if m.seq in found and m.acked and m.acked < done]
    assert not back, f"{stream.name}: purged and back {back}"
    lost = [m.seq for m in acked if m.sent > begun and m.seq not in found]
    assert not lost, f"{stream.name}: acked after the purge and lost {lost}"


def check_queue(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    back = [seq for seq, at in stream.taken if at < cut and seq in found]
    assert not back, f"{stream.name}: acked twice over and back {back}"
    lost = [
        m.seq for m in acked if m.seq not in found and m.seq not in {s for s, _ in stream.taken}
    ]
    # The one whose ack was under way may be gone.
    assert len(lost) <= 1, f"{stream.name}: acked and lost {lost}"


def check_rolled(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    # A rollup that was acked has removed all that it removes. One without an ack may be there
    # without that, where its group was torn and it is not the last message.
    there: dict[str, int] = {}
    begun: dict[str, int] = {}
    for number, message in enumerate(stream.messages):
        if message.rollup and message.sent < cut:
            begun[message.subject] = number
    for message in acked:
        if message.rollup:
            there[message.subject] = max(there.get(message.subject, 0), message.seq)
    back = [seq for seq, (subject, _) in found.items() if seq < there.get(subject, 0)]
    assert not back, f"{stream.name}: rolled up and there {back}"
    lost = [
        m.seq
        for number, m in enumerate(stream.messages)
        if 0 < m.acked < cut and m.seq not in found and number >= begun.get(m.subject, 0)
    ]
    assert not lost, f"{stream.name}: acked after the rollup and lost {lost}"


def check_partly(stream: Stream, found: Found, acked: list[Message], cut: int) -> None:
    done: dict[str, int] = {}
    begun: dict[str, int] = {}
    for purge in stream.purges:
        if purge.asked < cut:
            begun[purge.subject] = purge.asked
            if 0 < purge.done < cut:
                done[purge.subject] = purge.asked
    back = [m.seq for m in acked if m.seq in found and m.acked < done.get(m.subject, 0)]
    assert not back, f"{stream.name}: purged and back {back}"
    lost = [m.seq for m in acked if m.seq not in found and m.sent > begun.get(m.subject, 0)]
    assert not lost, f"{stream.name}: acked after the purge and lost {lost}"


def check_repeats(stream: Stream, client: RawApp, acked: list[Message]) -> None:
    """What was acked is known as a duplicate after the cut."""
    for message in acked[-20:]:
        header = stream.header(stream.messages.index(message))
        answer = json.loads(client.request(message.subject, message.body, header=header).payload)
        assert (answer.get("seq"), answer.get("duplicate")) == (message.seq, True), answer


CHECKS: dict[str, Callable[[Stream, Found, list[Message], int], None]] = {
    "PLAIN": check_plain,
    "LIMITED": check_limited,
    "KEYS": check_keys,
    "PACKED": check_packed,
    "PURGED": check_purged,
    "QUEUE": check_queue,
    "ROLLED": check_rolled,
    "ONCE": check_plain,
    "PARTLY": check_partly,
}
