"""Random histories of a consumer whose server is stopped and killed, against a plain model of it.

What is not acked stays so and comes again only for a reason; what is acked does not; nothing is
lost. Rounds and seed come from the environment: `HISTORY_ROUNDS` (3) and `HISTORY_SEED` (1,
shown).
"""

import json
import os
import random
import time
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.seeds import seed_of
from tests.servers import Server, Servers

ROUNDS = int(os.environ.get("HISTORY_ROUNDS", "3"))
SEED = seed_of("HISTORY_SEED")
STEPS = 40
SECONDS_TO_COME = 20
SECOND = 10**9
HOUR = 3600 * SECOND
SUBJECTS = ("s.a", "s.b", "s.c")
FILTERS = (["s.>"], ["s.a"], ["s.a", "s.c"])
ACKS = (b"", b"+ACK", b"+OK", b"+TERM", b"+TERM for a reason", b"-TERM")
WAITS = (b'-NAK {"delay":3600000000000}', b"-NAK 1h")
WORKING = (b"+WPI", b"-WPI")
NAKS = (b"-NAK", b"-NAK x", b'-NAK {"delay":"0"}')
UPDATES: dict[str, tuple[Any, ...]] = {
    "description": ("", "one", "two"),
    "max_ack_pending": (-1, 1000, 2000),
    "ack_wait": (HOUR, 2 * HOUR),
    "backoff": ([], [HOUR, 2 * HOUR]),
    "headers_only": (False, True),
}
STEPS_OF = (
    *("publish",) * 3,
    *("pull",) * 5,
    *("ack",) * 4,
    *("nak",) * 3,
    *("wait",) * 2,
    *("work", "update", "delete", "stop", "kill"),
)


class History:
    """One stream with one consumer; the time for an ack does not pass before the end."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.app = RawApp(server.port)
        self.stored: dict[int, str] = {}
        self.pending: dict[int, tuple[int, str]] = {}
        """Not acked: how often each came, and its ack subject."""
        self.due: list[int] = []
        """Of these, those that come again, in this order."""
        self.last = 0
        """The last one that came for the first time."""
        self.floor = 0
        self.fresh: set[int] = set()
        """What came since the server last confirmed something: a kill may undo that."""
        self.shaky: set[int] = set()
        """What such a kill may let come again, as if it had not come."""
        self.uncounted: set[int] = set()
        """What such a kill may have taken deliveries from, until it comes again."""
        self.orderly = True
        """Whether what is due comes before what is new; after a start it may take a second."""
        self.config: dict[str, Any] = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "ack_wait": HOUR,
            "filter_subjects": self.random.choice(FILTERS),
        }
        self.app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        self.put()

    def put(self) -> None:
        body = {"stream_name": "S", "config": self.config}
        answer = self.app.api("CONSUMER.DURABLE.CREATE.S.c", body)
        assert "error" not in answer, answer

    def new(self) -> list[int]:
        wanted = self.config["filter_subjects"]
        found = [s for s, subject in self.stored.items() if wanted == ["s.>"] or subject in wanted]
        return sorted(s for s in found if s > self.last)

    def info(self) -> Any:
        return self.app.api("CONSUMER.INFO.S.c")

    def agree(self) -> None:
        about = self.info()
        assert about["num_ack_pending"] == len(self.pending)
        assert about["num_pending"] == len(self.new())
        assert about["delivered"]["stream_seq"] == self.last
        assert about["ack_floor"]["stream_seq"] == self.floor

    # what comes

    def take(self, reply: str) -> None:
        came, seq = (int(token) for token in reply.split(".")[4:6])
        assert seq in self.stored, f"{seq} is gone"
        known = self.pending.get(seq, (0, ""))[0]
        assert came == known + 1 or (seq in self.uncounted and came <= known), (seq, came, known)
        self.uncounted.discard(seq)
        self.fresh.add(seq)
        self.pending[seq] = (came, reply)
        if self.due and (seq == self.due[0] or (seq in self.due and not self.orderly)):
            self.due.remove(seq)
        elif seq in self.shaky and known:
            self.shaky.remove(seq)
        else:
            assert not self.due or not self.orderly, f"{seq} instead of {self.due}"
            assert known == 0, f"{seq} came again without a reason"
            assert seq == self.new()[0], f"{seq} is not the next of {self.new()}"
            self.last = seq
        self.orderly = self.orderly or not self.due

    def pull(self) -> None:
        batch = self.random.randint(1, 6)
        certain = len(self.due) + len(self.new())
        sure = self.orderly and not self.shaky
        if not sure:
            batch = min(batch, max(certain, 1))
        body: dict[str, Any] = {"batch": batch}
        body |= {"no_wait": True} if sure or not certain else {"expires": SECONDS_TO_COME * SECOND}
        inbox = self.app.inbox()
        self.app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", json.dumps(body).encode(), reply=inbox)
        for n in range(batch):
            frame = self.app.message(2 * SECONDS_TO_COME)
            if frame.status:
                assert frame.status.startswith("404"), frame
                assert n == certain or not sure, f"{n} came of {certain}"
                return
            self.take(frame.reply)

    # what is said of them

    def say(self, bodies: tuple[bytes, ...]) -> int:
        """Says one of these of a message that is not acked; 0: there is none."""
        if not self.pending:
            return 0
        seq = self.random.choice(sorted(self.pending))
        answer = self.app.request(self.pending[seq][1], self.random.choice(bodies))
        assert not answer.status and not answer.payload
        self.fresh.clear()
        return seq

    def forget(self, seq: int) -> None:
        lowest = min(self.pending) == seq
        del self.pending[seq]
        self.shaky.discard(seq)
        if seq in self.due:
            self.due.remove(seq)
        if not self.pending:
            self.floor = self.last
        elif lowest:
            self.floor = max(self.floor, min(self.pending) - 1)

    def ack(self) -> None:
        if seq := self.say(ACKS):
            self.forget(seq)

    def nak(self) -> None:
        seq = self.say(NAKS)
        if seq and seq not in self.due:
            self.due.append(seq)
            self.shaky.discard(seq)

    def wait(self) -> None:
        seq = self.say(WAITS)
        if seq in self.due:
            self.due.remove(seq)
        self.shaky.discard(seq)

    def work(self) -> None:
        """Takes nothing back that is due."""
        seq = self.say(WORKING)
        if seq not in self.due:
            self.shaky.discard(seq)

    # what else happens

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            subject = self.random.choice(SUBJECTS)
            self.stored[json.loads(self.app.request(subject, b"x").payload)["seq"]] = subject

    def update(self) -> None:
        name = self.random.choice(sorted(UPDATES))
        self.config[name] = self.random.choice(UPDATES[name])
        if self.config.get("backoff"):
            self.config["ack_wait"] = HOUR
        self.put()

    def delete(self) -> None:
        if self.stored:
            seq = self.random.choice(sorted(self.stored))
            self.app.api("STREAM.MSG.DELETE.S", {"seq": seq})
            del self.stored[seq]
            if seq in self.pending:
                self.forget(seq)

    def stop(self) -> None:
        self.server.restart()
        self.come_back()

    def kill(self) -> None:
        self.server.restart(kill=True)
        self.come_back()
        self.last = self.info()["delivered"]["stream_seq"]
        lost = {seq for seq in self.pending if seq > self.last}
        assert lost <= self.fresh, f"what was confirmed is lost: {sorted(lost - self.fresh)}"
        for seq in lost:
            del self.pending[seq]
        self.shaky |= self.fresh - lost
        self.uncounted |= self.fresh - lost
        self.due = [seq for seq in self.due if seq not in lost]
        self.fresh.clear()

    def come_back(self) -> None:
        self.app.close()
        self.app = RawApp(self.server.port)
        self.orderly = not self.due

    # the end

    def finish(self) -> None:
        """All that is not acked comes, and nothing else."""
        self.config |= {"ack_wait": 2 * SECOND, "backoff": [], "max_ack_pending": -1}
        self.put()
        wanted = {*self.pending, *self.new()}
        inbox = self.app.inbox()
        end = time.monotonic() + 2 * SECONDS_TO_COME
        while wanted:
            assert time.monotonic() < end, f"lost: {sorted(wanted)}"
            body = {"batch": len(wanted), "expires": SECOND}
            data = json.dumps(body).encode()
            self.app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", data, reply=inbox)
            came: dict[int, str] = {}
            while len(came) < len(wanted):
                frame = self.app.message(SECONDS_TO_COME)
                if frame.status:
                    break
                came[int(frame.reply.split(".")[5])] = frame.reply
            assert came.keys() <= wanted, f"{came.keys() - wanted} came, which were acked"
            for seq, reply in came.items():
                self.app.request(reply, b"+ACK")
                wanted.remove(seq)
        about = self.info()
        assert (about["num_ack_pending"], about["num_pending"]) == (0, 0)
        assert about["ack_floor"]["stream_seq"] == about["delivered"]["stream_seq"]


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_histories(servers: Servers) -> None:
    for seed in range(SEED, SEED + ROUNDS):
        print(f"HISTORY_SEED={seed} HISTORY_ROUNDS=1")
        server = servers.under_test(jetstream=True)
        history = History(server, seed)
        for number in range(STEPS):
            step = history.random.choice(STEPS_OF)
            print(number, step)
            getattr(history, step)()
            if not history.shaky:
                history.agree()
        history.finish()
        history.app.close()
        server.kill()
