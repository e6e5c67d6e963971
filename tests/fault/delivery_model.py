"""A random history of a consumer on a server that is stopped and killed, and a plain model of it.

After a kill the model asks what is pending, and whether that is what a kill may leave: what was
confirmed stays, the rest is as it was or as it is. Time passes for an ack when the model says so
(`expire`), and not before.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.client.raw import Frame, RawApp
from tests.servers import Server

SECOND = 10**9
HOUR = 3600 * SECOND
SECONDS_TO_COME = 20
SUBJECTS = ("s.a", "s.b", "s.c")
FILTERS: tuple[list[str], ...] = ([], ["s.a"], ["s.a", "s.c"], ["s.b", "s.c"])
ACKS = (b"", b"+ACK", b"+OK", b"+TERM", b"+TERM for a reason", b"-TERM")
NAKS = (b"-NAK", b"-NAK x", b'-NAK {"delay":"0"}')
LATER = (b'-NAK {"delay":3600000000000}', b"-NAK 1h")
WORKING = (b"+WPI", b"-WPI")
STEPS_OF = (
    *("publish",) * 3,
    *("deliver",) * 5,
    *("ack",) * 3,
    *("ack_next",) * 2,
    *("nak",) * 3,
    *("later", "work", "expire", "expire", "filters", "limit", "pause", "delete", "stop", "kill"),
    "kill",
)


@dataclass
class Entry:
    """A message that is delivered and not acked."""

    deliveries: int
    reply: str
    due: bool = False
    """Whether it is to be delivered again."""


class History:
    """One stream with one consumer that is pulled from; the kinds below say what else it is."""

    kind = "pull"
    retention = "limits"
    settings: dict[str, Any] = {}  # noqa: RUF012
    more_steps: tuple[str, ...] = ()

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(f"{self.kind} {seed}")
        self.app = RawApp(server.port)
        self.stored: dict[int, str] = {}
        self.ends = 0
        """The last sequence of the stream."""
        self.at = 1
        """The first sequence that the consumer has not looked at."""
        self.last = 0
        self.dseq = 0
        self.floor = 0
        self.floor_dseq = 0
        self.pending: dict[int, Entry] = {}
        self.given_up: set[int] = set()
        self.sure: dict[int, int] = {}
        """How often what is pending had been delivered when the server last confirmed something."""
        self.sure_last = 0
        self.since: dict[int, int] = {}
        """How often what was delivered since then had been: its ack may be lost."""
        self.paused = False
        self.ending = False
        """Whether requests are to get all that is there."""
        self.config: dict[str, Any] = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "ack_wait": HOUR,
            "filter_subjects": self.random.choice(FILTERS),
            "max_deliver": self.random.choice((-1, 2, 3)),
        } | self.settings
        stream = {"name": "S", "subjects": ["s.>"], "retention": self.retention}
        self.api("STREAM.CREATE.S", stream)
        self.put()

    # asking the server

    def ask(self, subject: str, data: bytes = b"") -> Frame:
        return self.app.request(subject, data)

    def api(self, subject: str, body: object = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        return json.loads(self.ask(f"$JS.API.{subject}", data).payload)

    def put(self, **changes: object) -> None:
        self.config |= changes
        body = {"stream_name": "S", "config": self.config}
        answer = self.api("CONSUMER.DURABLE.CREATE.S.c", body)
        assert "error" not in answer, answer

    def info(self) -> Any:
        return self.api("CONSUMER.INFO.S.c")

    def listed(self, name: str = "c") -> dict[int, Any]:
        answer: Any = self.api(f"JSSERVER.CONSUMER.PENDING.S.{name}", {})
        return {one["seq"]: one for one in answer.get("messages") or ()}

    def settled_list(self) -> dict[int, Any]:
        """What is pending, once nothing of it is about to be due."""
        end = time.monotonic() + SECONDS_TO_COME
        while True:
            found = self.listed()
            soon = datetime.fromtimestamp(time.time() + 600, UTC).isoformat()
            if all(one.get("queued") or one.get("due", "9") > soon for one in found.values()):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)

    # the model

    def wanted(self, subject: str) -> bool:
        return not self.config["filter_subjects"] or subject in self.config["filter_subjects"]

    def new(self) -> list[int]:
        return sorted(s for s, of in self.stored.items() if s >= self.at and self.wanted(of))

    def due(self) -> set[int]:
        return {seq for seq, entry in self.pending.items() if entry.due}

    def spent(self, entry: Entry) -> bool:
        most: int = self.config["max_deliver"]
        return 0 < most <= entry.deliveries

    def call_again(self, seq: int) -> None:
        if self.spent(self.pending[seq]):
            del self.pending[seq]
            self.given_up.add(seq)
        else:
            self.pending[seq].due = True

    def confirmed(self) -> None:
        self.sure = {seq: entry.deliveries for seq, entry in self.pending.items()}
        self.sure_last = self.last
        self.since = {}

    def agree(self) -> None:
        about = self.info()
        assert about["num_ack_pending"] == len(self.pending)
        assert about["num_pending"] == len(self.new())
        assert about["delivered"]["stream_seq"] == self.last
        assert about["delivered"]["consumer_seq"] == self.dseq
        assert about["ack_floor"]["stream_seq"] == self.floor
        self.floor_dseq = about["ack_floor"]["consumer_seq"]
        again = sum(entry.deliveries > 1 for entry in self.pending.values())
        assert about["num_redelivered"] == again + len(self.given_up)

    def take(self, frame: Frame) -> None:
        """A message came: for the first time in its turn, or again for a reason."""
        came, seq, dseq = (int(token) for token in frame.reply.split(".")[4:7])
        assert seq in self.stored, f"{seq} is gone"
        entry = self.pending.get(seq)
        self.dseq += 1
        self.since[seq] = came
        assert dseq == self.dseq
        if entry is None:
            assert not self.due(), f"{seq} instead of {self.due()}"
            assert seq == self.new()[0], f"{seq} is not the next of {self.new()}"
            assert came == 1
            self.pending[seq] = Entry(came, frame.reply)
            self.last = seq
            self.at = seq + 1
        else:
            assert entry.due, f"{seq} came again without a reason"
            assert came == entry.deliveries + 1
            self.pending[seq] = Entry(came, frame.reply)

    def gone(self, seq: int) -> None:
        """Acked, or away."""
        lowest = min(self.pending) == seq
        del self.pending[seq]
        if not self.pending:
            self.floor = max(self.floor, self.last)
        elif lowest:
            self.floor = max(self.floor, min(self.pending) - 1)

    def forget(self, seq: int) -> None:
        if seq in self.given_up:
            self.given_up.remove(seq)
        else:
            self.gone(seq)

    # delivery

    def body(self, batch: int) -> dict[str, Any]:
        return {"batch": batch, "no_wait": True}

    def may_have(self, body: dict[str, Any]) -> int:
        """How many messages a request gets that does not wait."""
        return 0 if self.paused else min(body["batch"], len(self.due()) + len(self.new()))

    def receive(self, body: dict[str, Any], sid: str) -> list[Frame]:
        """All that a request brings."""
        count = self.may_have(body)
        looked = not self.paused and bool(self.due() or self.new())
        frames = []
        for _ in range(count):
            frames.append(self.app.message(SECONDS_TO_COME))
            assert not frames[-1].status and frames[-1].sid == sid, frames[-1]
            self.take(frames[-1])
        if count < body["batch"]:
            frame = self.app.message(SECONDS_TO_COME)
            assert frame.status == self.end_of(body), frame
            if looked and not self.due():
                self.at = self.new()[0] if self.new() else self.ends + 1
        return frames

    def end_of(self, body: dict[str, Any]) -> str:
        return "404 No Messages"

    def deliver(self) -> None:
        body = self.body(self.random.randint(1, 5))
        inbox = self.app.inbox()
        data = json.dumps(body).encode()
        self.app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", data, reply=inbox)
        self.receive(body, str(self.app.last_sid))

    # what is said of messages

    def chosen(self, *, given_up: bool = False) -> int:
        """One that is not acked; 0: there is none."""
        found = sorted({*self.pending, *self.given_up} if given_up else self.pending)
        return self.random.choice(found) if found else 0

    def reply(self, seq: int) -> str:
        """The last ack subject of it; of one that was given up, any with its sequence."""
        known = self.pending.get(seq)
        return known.reply if known and known.reply else f"$JS.ACK.S.c.1.{seq}.{self.dseq}.1.0"

    def say(self, seq: int, bodies: tuple[bytes, ...]) -> None:
        answer = self.ask(self.reply(seq), self.random.choice(bodies))
        assert not answer.status and not answer.payload, answer

    def ack(self) -> None:
        seq = self.chosen(given_up=True)
        if seq:
            self.say(seq, ACKS)
            self.acked(seq)
            self.confirmed()

    def acked(self, seq: int) -> None:
        self.forget(seq)

    def ack_next(self) -> None:
        seq = self.chosen()
        if seq:
            inbox = self.app.inbox()
            body = self.body(self.random.randint(1, 3))
            data = self.random.choice((b"+NXT ", b"-NXT ")) + json.dumps(body).encode()
            self.app.publish(self.reply(seq), data, reply=inbox)
            self.acked(seq)
            self.receive(body, str(self.app.last_sid))

    def heard(self, seq: int) -> bool:
        """Whether a `-NAK` of it counts: by its number it comes behind the ack floor.

        With ack policy all it may not, after an ack of something older that came again; as in
        nats-server."""
        return int(self.reply(seq).split(".")[6]) > self.floor_dseq

    def refuse(self, bodies: tuple[bytes, ...], then: Callable[[int], None]) -> None:
        seq = self.chosen()
        if seq:
            heard = self.heard(seq)
            self.say(seq, bodies)
            if heard:
                then(seq)
            self.confirmed()

    def nak(self) -> None:
        self.refuse(NAKS, self.call_again)

    def later(self) -> None:
        self.refuse(LATER, self.put_off)

    def put_off(self, seq: int) -> None:
        self.pending[seq].due = False

    def work(self) -> None:
        seq = self.chosen()
        if seq:
            self.say(seq, WORKING)
            self.confirmed()

    # what else happens

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            subject = self.random.choice(SUBJECTS)
            self.ends = json.loads(self.ask(subject, b"x").payload)["seq"]
            self.stored[self.ends] = subject

    def expire(self) -> None:
        """The time for an ack passes, for all."""
        self.put(ack_wait=SECOND // 10)
        self.settled_list()
        self.put(ack_wait=HOUR)
        for seq in list(self.pending):
            self.call_again(seq)

    def filters(self) -> None:
        self.put(filter_subjects=self.random.choice(FILTERS))

    def limit(self) -> None:
        """Of deliveries: what had as many already is given up when its turn comes."""
        self.put(max_deliver=self.random.choice((-1, 2, 3)))
        for seq in self.due():
            self.call_again(seq)

    def pause(self) -> None:
        self.paused = not self.paused
        body = {"pause_until": "2099-01-01T00:00:00Z"} if self.paused else {}
        assert self.api("CONSUMER.PAUSE.S.c", body)["paused"] == self.paused

    def delete(self) -> None:
        """Not what is pending from before a filter changed: it is missed when it is due."""
        held = {*self.pending, *self.given_up}
        found = [s for s, of in self.stored.items() if s not in held or self.wanted(of)]
        if found:
            seq = self.random.choice(found)
            self.api("STREAM.MSG.DELETE.S", {"seq": seq})
            del self.stored[seq]
            if seq in self.pending or seq in self.given_up:
                self.forget(seq)

    def stop(self) -> None:
        self.server.restart()
        self.confirmed()
        self.come_back()

    def kill(self) -> None:
        self.server.restart(kill=True)
        self.come_back()

    def come_back(self) -> None:
        """Takes over what is there, if it is what may be."""
        self.app.close()
        self.app = RawApp(self.server.port)
        about = self.info()
        found = self.settled_list()
        last = about["delivered"]["stream_seq"]
        assert self.sure_last <= last <= self.last
        for seq, one in found.items():
            most = self.since.get(seq, 0) or self.sure.get(seq, 0)
            assert most, f"{seq} came back"
            least = self.sure.get(seq, 1)
            assert least <= one["deliveries"] <= most, (seq, least, one["deliveries"], most)
        for seq in self.pending:
            assert seq in found or seq not in self.sure, f"{seq} is lost"
        for seq, entry in self.pending.items():
            if seq in found and found[seq]["deliveries"] == entry.deliveries and self.sure_due(seq):
                assert found[seq].get("queued"), f"{seq} is not to come again"
        known = {seq: entry.reply for seq, entry in self.pending.items()}
        self.given_up = {seq for seq in self.given_up if seq not in found}
        self.pending = {
            seq: Entry(one["deliveries"], known.get(seq, ""), one.get("queued", False))
            for seq, one in found.items()
        }
        self.floor = about["ack_floor"]["stream_seq"]
        self.floor_dseq = about["ack_floor"]["consumer_seq"]
        self.last = last
        self.dseq = about["delivered"]["consumer_seq"]
        self.at = last + 1
        self.confirmed()

    def sure_due(self, seq: int) -> bool:
        return False

    # the end

    def finish(self) -> None:
        """All that is not acked comes, and nothing else."""
        self.ending = True
        if self.paused:
            self.pause()
        self.agree()
        self.put(max_deliver=-1)
        self.expire()
        while self.due() or self.new() or self.pending:
            self.deliver()
            self.agree()
            for seq in sorted(self.pending):
                if seq in self.pending and not self.pending[seq].due:
                    self.say(seq, (b"+ACK",))
                    self.acked(seq)
                    self.agree()
