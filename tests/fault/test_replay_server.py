"""Streams of a server before and after SIGKILL, and after a clean stop: message by message.

The numbers come from the environment: `REPLAY_ROUNDS` (2), `REPLAY_STREAMS` (20), `REPLAY_SEED`
(1, shown).
"""

import json
import os
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.fault.test_sigkill import read_all
from tests.seeds import seed_of
from tests.servers import Server, Servers

ROUNDS = int(os.environ.get("REPLAY_ROUNDS", "2"))
STREAMS = int(os.environ.get("REPLAY_STREAMS", "20"))
SEED = seed_of("REPLAY_SEED")
IN_FLIGHT = 10


def limits_of(rng: random.Random) -> dict[str, int]:
    return {
        "max_msgs": rng.choice([-1, -1, 2, 50, 500]),
        "max_bytes": rng.choice([-1, 20_000, 127_000, 127_000]),
        "max_msgs_per_subject": rng.choice([-1, -1, 1, 1, 3]),
    }


@dataclass
class Life:
    """One stream and what is done to it."""

    client: RawApp
    name: str
    rng: random.Random
    config: dict[str, Any] = field(default_factory=dict)
    consumed: bool = False

    def create(self) -> None:
        retention = self.rng.choice(["limits", "limits", "limits", "interest", "workqueue"])
        self.config = {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            "retention": retention,
            "discard": self.rng.choice(["old", "old", "old", "new"]),
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            **limits_of(self.rng),
        }
        self.asked("STREAM.CREATE", self.config)
        if retention != "limits":
            self.consumed = True
            consumer = {
                "durable_name": "c",
                "ack_policy": "explicit",
                "ack_wait": 3_600_000_000_000,
            }
            self.asked(
                "CONSUMER.DURABLE.CREATE", {"stream_name": self.name, "config": consumer}, "c"
            )

    def asked(self, what: str, body: object = None, more: str = "") -> dict[str, Any]:
        subject = f"{what}.{self.name}" + (f".{more}" if more else "")
        answer: dict[str, Any] = self.client.api(subject, body)
        assert "error" not in answer, (subject, body, answer)
        return answer

    def subject(self) -> str:
        n = min(self.rng.randrange(40), self.rng.randrange(40))
        return f"{self.name}.{n % 4}.{n}"

    def publish(self) -> None:
        count = self.rng.choice([1, 1, 10, 100, 300])
        inbox = self.client.inbox()
        waiting = 0
        for _ in range(count):
            header = b""
            if self.rng.random() < 0.01:
                header = header_block("Nats-Rollup: " + self.rng.choice(["sub", "sub", "all"]))
            body = self.rng.randbytes(self.rng.randrange(90))
            self.client.publish(self.subject(), body, reply=inbox, header=header)
            waiting += 1
            if waiting == IN_FLIGHT:
                self.client.message()
                waiting -= 1
        for _ in range(waiting):
            self.client.message()

    def state(self) -> dict[str, Any]:
        body = {"deleted_details": True}
        state: dict[str, Any] = self.asked("STREAM.INFO", body)["state"]
        return state

    def delete(self) -> None:
        state = self.state()
        gone = set(state.get("deleted") or ())
        sequences = range(state["first_seq"], state["last_seq"] + 1 if state["messages"] else 0)
        live = [q for q in sequences if q not in gone]
        for seq in self.rng.sample(live, min(len(live), self.rng.choice([1, 3, 20]))):
            erase = self.rng.random() < 0.6
            self.asked("STREAM.MSG.DELETE", {"seq": seq, "no_erase": not erase})

    def delete_newest(self) -> None:
        state = self.state()
        if state["messages"] and state["last_seq"] not in (state.get("deleted") or ()):
            self.asked("STREAM.MSG.DELETE", {"seq": state["last_seq"]})

    def purge(self) -> None:
        body: dict[str, Any] = {}
        kind = self.rng.choice(["all", "filter", "keep", "both", "seq"])
        if kind in ("filter", "both"):
            body["filter"] = self.rng.choice([self.subject(), f"{self.name}.1.*"])
        if kind in ("keep", "both"):
            body["keep"] = self.rng.choice([1, 20])
        if kind == "seq":
            body["seq"] = max(1, self.state()["last_seq"] - self.rng.randrange(100))
        self.asked("STREAM.PURGE", body)

    def update(self) -> None:
        changed = limits_of(self.rng)
        for name in self.rng.sample(sorted(changed), self.rng.choice([1, 2, 3])):
            self.config[name] = changed[name]
        self.asked("STREAM.UPDATE", self.config)

    def consume(self) -> None:
        """Takes some messages and has the acks confirmed."""
        if not self.consumed:
            return
        inbox = self.client.inbox()
        batch = self.rng.choice([1, 30])
        request = json.dumps({"batch": batch, "no_wait": True}).encode()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.c", request, reply=inbox)
        taken: list[str] = []
        while len(taken) < batch and not (frame := self.client.message()).status:
            taken.append(frame.reply)
        for reply in taken:
            if self.rng.random() < 0.8:
                self.client.request(reply, b"+ACK")

    def step(self) -> None:
        self.rng.choices(STEPS, [4, 2, 1, 1, 1, 2])[0](self)

    def seen(self) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        state = self.state()
        state.pop("consumer_count")
        state["first_seq"] = max(1, state["first_seq"])  # 0: nothing was ever done to it
        frames = read_all(self.client, self.name) if state["messages"] else []
        return state, [(frame.header, frame.payload) for frame in frames]


STEPS = [Life.publish, Life.delete, Life.delete_newest, Life.purge, Life.update, Life.consume]


def differences(server: Server, lives: list[Life], *, kill: bool) -> list[str]:
    """What a restart changes."""
    before = [life.seen() for life in lives]
    lives[0].client.close()
    server.restart(kill=kill)
    client = RawApp(server.port)
    found = []
    for life, (state, messages) in zip(lives, before, strict=True):
        life.client = client
        now, again = life.seen()
        if (now, again) != (state, messages):
            what = "kill" if kill else "stop"
            found.append(
                f"{what}: {life.config}: {state}, {len(messages)} became {now}, {len(again)}"
            )
    return found


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_streams_are_what_they_were(servers: Servers) -> None:
    print(f"REPLAY_SEED={SEED}")
    rng = random.Random(SEED)
    server = servers.under_test(jetstream=True)
    client = RawApp(server.port)
    lives = [Life(client, f"S{n}", random.Random(rng.random())) for n in range(STREAMS)]
    for life in lives:
        life.create()
    for turn in range(ROUNDS):
        for life in lives:
            for _ in range(rng.choice([1, 3, 6])):
                life.step()
        changed = differences(server, lives, kill=True)
        assert not changed, "\n".join(changed)
        if turn % 3 == 1:
            changed = differences(server, lives, kill=False)
            assert not changed, "\n".join(changed)
    lives[0].client.close()
