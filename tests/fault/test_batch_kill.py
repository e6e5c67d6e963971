"""Publishers of batches, and a server that is killed among them.

Of an atomic batch all is there or nothing, and what was acked of either kind is.

Rounds and seed come from the environment: `SIGKILL_ROUNDS` (5) and `SIGKILL_SEED` (1, shown).
"""

import json
import os
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.client.raw import RawApp, TimedOut, header_block
from tests.fault.test_sigkill import read_all
from tests.seeds import seed_of
from tests.servers import Server, Servers

ROUNDS = int(os.environ.get("SIGKILL_ROUNDS", "5"))
SEED = seed_of("SIGKILL_SEED")
STOPPED_SECONDS = 20
FLOW = 50


@dataclass
class Atomic:
    """Commits one batch after the other, each of some messages, without waiting for acks."""

    name: str
    seed: int
    begun: dict[int, int] = field(default_factory=dict)
    """Of each batch how many messages it has."""
    acked: dict[int, int] = field(default_factory=dict)
    """The sequence of the last message of those that are acked."""
    failure: str = ""

    def run(self, port: int) -> None:
        try:
            with RawApp(port, timeout=STOPPED_SECONDS) as client:
                client.subscribe(f"ack.{self.name}.*")
                values = random.Random(self.seed + len(self.begun))
                waiting = 0
                while True:
                    while waiting < 8:
                        self.send(client, values)
                        waiting += 1
                    frame = client.frame()
                    if frame.verb == "EOF":
                        return
                    if frame.verb == "MSG":
                        ack = json.loads(frame.payload)
                        number = int(frame.subject.rpartition(".")[2])
                        assert ack["count"] == self.begun[number], ack
                        self.acked[number] = ack["seq"]
                        waiting -= 1
        except (OSError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def send(self, client: RawApp, values: random.Random) -> None:
        number = len(self.begun)
        count = self.begun[number] = values.choice([1, 2, 10, 100])
        size = values.choice([10, 100, 3000])
        for k in range(1, count + 1):
            lines = [f"Nats-Batch-Id: {self.name}-{number}", f"Nats-Batch-Sequence: {k}"]
            if k == count:
                lines.append("Nats-Batch-Commit: 1")
            client.publish(
                f"S.{k % 7}",
                f"{self.name} {number} {k} ".encode() + bytes(size),
                header=header_block(*lines),
                reply=f"ack.{self.name}.{number}" if k == count else "",
            )

    def verify(self, there: dict[tuple[int, int], int]) -> None:
        """there: number of the batch and of the message -> sequence."""
        batches: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for (number, k), seq in there.items():
            batches[number][k] = seq
        for number, found in batches.items():
            count = self.begun[number]
            first = found[1]
            wanted = {k: first + k - 1 for k in range(1, count + 1)}
            assert found == wanted, f"of batch {number} of {count} there is {sorted(found)}"
        for number, last in self.acked.items():
            assert batches[number][self.begun[number]] == last


@dataclass
class Fast:
    """One fast batch a life, of which what is acked is noted."""

    name: str
    life: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    """Life -> up to which number."""
    failure: str = ""

    def run(self, port: int) -> None:
        self.life += 1
        self.acked[self.life] = 0
        try:
            with RawApp(port, timeout=STOPPED_SECONDS) as client:
                client.subscribe(f"fast.{self.name}.>")
                sent = 0
                while True:
                    while sent < self.acked[self.life] + 4 * FLOW:
                        sent += 1
                        client.publish(
                            f"S.{sent % 7}",
                            f"{self.name} {self.life} {sent} ".encode() + bytes(100),
                            reply=f"fast.{self.name}.{self.name}{self.life}.{FLOW}.fail"
                            f".{sent}.{int(sent > 1)}.$FI",
                        )
                    frame = client.frame()
                    if frame.verb == "EOF":
                        return
                    if frame.verb == "MSG":
                        said = json.loads(frame.payload)
                        assert said["type"] == "ack", said
                        self.acked[self.life] = said["seq"]
        except (OSError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def verify(self, there: dict[tuple[int, int], int]) -> None:
        for life, upto in self.acked.items():
            found = sorted(k for number, k in there if number == life)
            assert found == list(range(1, len(found) + 1)), f"life {life}: gaps"
            assert len(found) >= upto, f"life {life}: {upto} were acked, {len(found)} are there"


def run_until_killed(server: Server, workers: list[Atomic | Fast], seconds: float) -> None:
    before = [sum(w.acked.values()) for w in workers]
    threads = [threading.Thread(target=w.run, args=(server.port,)) for w in workers]
    for thread in threads:
        thread.start()
    end = time.monotonic() + STOPPED_SECONDS
    while any(sum(w.acked.values()) <= b for w, b in zip(workers, before, strict=True)):
        assert time.monotonic() < end, f"no acks: {[w.failure for w in workers]}"
        time.sleep(0.01)
    time.sleep(seconds)  # when it is killed
    server.kill()
    for thread in threads:
        thread.join(STOPPED_SECONDS)
        assert not thread.is_alive(), "a client hangs though the server is gone"
    assert [w.failure for w in workers if w.failure] == []


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_batches_are_whole_after_a_kill(servers: Servers) -> None:
    print(f"SIGKILL_SEED={SEED} SIGKILL_ROUNDS={ROUNDS}")
    moments = random.Random(SEED)
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        config = {"name": "S", "subjects": ["S.*"], "allow_direct": True}
        made = client.api(
            "STREAM.CREATE.S", {**config, "allow_atomic": True, "allow_batched": True}
        )
        assert "error" not in made, made
    workers: list[Atomic | Fast] = [
        Atomic("a1", SEED),
        Atomic("a2", SEED + 1),
        Fast("f1"),
        Fast("f2"),
    ]
    for _ in range(ROUNDS):
        run_until_killed(server, workers, moments.uniform(0, 0.6))
        server.start()
        found: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
        with RawApp(server.port) as client:
            for frame in read_all(client, "S"):
                name, number, k, _ = frame.payload.split(b" ", 3)
                place = (int(number), int(k))
                assert place not in found[name.decode()], f"{frame.payload[:30]!r} is there twice"
                found[name.decode()][place] = int(frame.headers["Nats-Sequence"])
        for worker in workers:
            worker.verify(found[worker.name])
