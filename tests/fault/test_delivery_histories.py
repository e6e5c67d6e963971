"""Random histories of every kind of consumer, stopped and killed, against a plain model of it.

What `test_consumer_histories` has not: pushes to a group, ack policy all, `+NXT`, max_deliver,
expiry, filters that change, pauses, priority groups; each also where acked messages go, which
`retention_model` adds. Rounds of each kind and the seed come from the
environment: `DELIVERY_ROUNDS` (1) and `DELIVERY_SEED` (1, shown).
"""

import json
import os
import time
from typing import Any

import pytest

from tests.client.raw import Frame
from tests.fault.delivery_model import HOUR, SECOND, SECONDS_TO_COME, STEPS_OF, SUBJECTS, History
from tests.fault.retention_model import Interest, WorkQueue, on
from tests.seeds import seed_of
from tests.servers import Server, Servers

ROUNDS = int(os.environ.get("DELIVERY_ROUNDS", "1"))
SEED = seed_of("DELIVERY_SEED")
STEPS = 40
TARGET = "push.here"


class AckAll(History):
    """An ack is one of all that came before, too."""

    kind = "all"
    settings = {"ack_policy": "all"}  # noqa: RUF012

    def acked(self, seq: int) -> None:
        """What was given up no longer counts; an ack of what is acked changes nothing."""
        self.given_up = {s for s in self.given_up if s > seq}
        self.pending = {s: entry for s, entry in self.pending.items() if s > seq}
        self.floor = max(self.floor, seq)


class Push(History):
    """Pushes to two members of a group, when they listen; few may be pending."""

    kind = "push"
    settings = {  # noqa: RUF012
        "deliver_subject": TARGET,
        "deliver_group": "g",
        "max_ack_pending": 4,
    }
    more_steps = ("deliver", "deaf")

    def __init__(self, server: Server, seed: int) -> None:
        self.members: list[str] = []
        self.early: list[Frame] = []
        """What came while an answer was waited for."""
        super().__init__(server, seed)

    def ask(self, subject: str, data: bytes = b"") -> Frame:
        inbox = self.app.inbox()
        sid = str(self.app.last_sid)
        self.app.publish(subject, data, reply=inbox)
        while True:
            frame = self.app.message(SECONDS_TO_COME)
            if frame.sid == sid:
                return frame
            self.early.append(frame)

    def agree(self) -> None:
        """All that may come has come by then."""
        while self.members and not self.paused and (self.due() or self.room()):
            frame = self.early.pop(0) if self.early else self.app.message(SECONDS_TO_COME)
            assert not frame.status and frame.sid in self.members, frame
            self.take(frame)
        assert not self.early
        if self.members and not self.paused and len(self.pending) < 4:
            self.at = self.ends + 1
        super().agree()

    def room(self) -> bool:
        return len(self.pending) < 4 and bool(self.new())

    def deliver(self) -> None:
        """Somebody listens, or one more."""
        if len(self.members) < 2:
            self.members.append(self.app.subscribe(TARGET, "g"))

    def deaf(self) -> None:
        for sid in self.members:
            self.app.send(f"UNSUB {sid}\r\n".encode())
        self.members = []
        self.app.sync()

    def ack_next(self) -> None:
        seq = self.chosen()
        if seq:
            assert self.ask(self.reply(seq), b"+NXT").status == "409 Consumer is push based"
            self.acked(seq)

    def expire(self) -> None:
        self.deaf()
        super().expire()

    def come_back(self) -> None:
        self.members = []
        self.early = []
        super().come_back()


class Overflow(History):
    """Requests have thresholds."""

    kind = "overflow"
    settings = {"priority_policy": "overflow", "priority_groups": ["A"]}  # noqa: RUF012

    def body(self, batch: int) -> dict[str, Any]:
        more = {name: self.random.randint(1, 4) for name in ("min_pending", "min_ack_pending")}
        chosen = self.random.choice(([], ["min_pending"], ["min_ack_pending"], [*more]))
        chosen = [] if self.ending else chosen
        return super().body(batch) | {"group": "A"} | {name: more[name] for name in chosen}

    def may_have(self, body: dict[str, Any]) -> int:
        ahead, new, unacked = len(self.due()), len(self.new()), len(self.pending)
        for count in range(super().may_have(body)):
            enough = 0 < body.get("min_pending", 0) <= new + (ahead > 0)
            enough |= 0 < body.get("min_ack_pending", 0) <= unacked
            if not enough and {"min_pending", "min_ack_pending"} & body.keys():
                return count
            if ahead:
                ahead -= 1
            else:
                new -= 1
                unacked += 1
        return super().may_have(body)


class Pinned(History):
    """One client gets all, until its pin is taken, is over, or the server starts again."""

    kind = "pinned"
    settings = {  # noqa: RUF012
        "priority_policy": "pinned_client",
        "priority_groups": ["A"],
        "priority_timeout": HOUR,
    }
    more_steps = ("unpin", "lapse")
    pin = ""
    old = "x" * 22

    def body(self, batch: int) -> dict[str, Any]:
        pin = self.pin if self.ending else self.random.choice(("", self.pin, self.pin, self.old))
        return super().body(batch) | {"group": "A"} | ({"id": pin} if pin else {})

    def may_have(self, body: dict[str, Any]) -> int:
        return super().may_have(body) if body.get("id", "") == self.pin else 0

    def end_of(self, body: dict[str, Any]) -> str:
        if self.pin and body.get("id", self.pin) != self.pin:
            return "423 Nats-Pin-Id mismatch"
        there = not self.paused and (self.due() or self.new())
        if not self.pin and "id" in body and there:
            return "423 Nats-Wrong-Pin-Id"
        return super().end_of(body)

    def receive(self, body: dict[str, Any], sid: str) -> list[Frame]:
        refused = bool(self.pin) and body.get("id", self.pin) != self.pin
        at = self.at
        frames = super().receive(body, sid)
        for frame in frames:
            self.pin = self.pin or frame.headers["Nats-Pin-Id"]
            assert frame.headers["Nats-Pin-Id"] == self.pin != self.old
        if refused:
            self.at = at
        return frames

    def pinned(self) -> str:
        [group] = self.info()["priority_groups"]
        pin: str = group.get("pinned_client_id", "")
        return pin

    def agree(self) -> None:
        assert self.pinned() == self.pin
        super().agree()

    def let_go(self) -> None:
        self.old, self.pin = self.pin or self.old, ""

    def unpin(self) -> None:
        assert "error" not in self.api("CONSUMER.UNPIN.S.c", {"group": "A"})
        self.let_go()

    def lapse(self) -> None:
        """The pinned client asks for nothing for too long, after a last request."""
        if self.pin:
            self.put(priority_timeout=SECOND // 2)
            body = {"batch": 1, "group": "A", "id": self.pin, "expires": SECOND // 1000}
            if self.paused or not (self.due() or self.new()):
                answer = self.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", json.dumps(body).encode())
                assert answer.status == "408 Request Timeout", answer
                end = time.monotonic() + SECONDS_TO_COME
                while self.pinned():
                    assert time.monotonic() < end
                    time.sleep(0.02)
                self.let_go()
            self.put(priority_timeout=HOUR)

    def come_back(self) -> None:
        self.let_go()
        super().come_back()


class Prioritized(History):
    """Requests that wait are served by their priorities, and take turns."""

    kind = "prioritized"
    settings = {"priority_policy": "prioritized", "priority_groups": ["A"]}  # noqa: RUF012
    more_steps = ("compete", "compete", "compete")

    def body(self, batch: int) -> dict[str, Any]:
        return super().body(batch) | {"group": "A", "priority": self.random.randint(0, 9)}

    def compete(self) -> None:
        if self.paused or self.due() or self.new():
            return
        queue: list[tuple[int, int, str]] = []
        for _ in range(self.random.randint(2, 4)):
            body = self.body(self.random.randint(1, 3)) | {"no_wait": False}
            inbox = self.app.inbox()
            data = json.dumps(body).encode()
            self.app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", data, reply=inbox)
            queue.append((body["priority"], body["batch"], str(self.app.last_sid)))
        assert self.info()["num_waiting"] == len(queue)
        subject = (self.config["filter_subjects"] or SUBJECTS)[0]
        while queue:
            queue.sort(key=lambda one: one[0])
            priority, batch, sid = queue.pop(0)
            self.app.publish(subject)
            self.ends += 1
            self.stored[self.ends] = subject
            frame = self.app.message(SECONDS_TO_COME)
            assert frame.sid == sid, (frame, queue)
            self.take(frame)
            if batch > 1:
                queue.append((priority, batch - 1, sid))


KINDS = (History, AckAll, Push, Overflow, Pinned, Prioritized)
KEPT = (
    *(on(WorkQueue, kind) for kind in KINDS if kind is not AckAll),  # which work queues have not
    *(on(Interest, kind) for kind in KINDS),
)


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.parametrize("kind", KINDS + KEPT, ids=lambda kind: kind.kind)
def test_histories(servers: Servers, kind: type[History]) -> None:
    for seed in range(SEED, SEED + ROUNDS):
        print(f"DELIVERY_SEED={seed} DELIVERY_ROUNDS=1")
        server = servers.under_test(jetstream=True)
        history = kind(server, seed)
        for number in range(STEPS):
            step = history.random.choice((*STEPS_OF, *history.more_steps))
            print(number, step)
            getattr(history, step)()
            history.agree()
        history.finish()
        history.app.close()
        server.kill()
