"""A server that is killed among uploads, replacements and deletions of objects.

After each start what was answered is there, an object is as one of those who wrote it wanted, and
nothing is left of the others. Rounds and seed come from the environment: `SIGKILL_ROUNDS` (5) and
`SIGKILL_SEED` (1, shown).
"""

import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.client.raw import RawApp, TimedOut
from tests.client.test_object_reload import BUCKET
from tests.seeds import seed_of
from tests.servers import Server, Servers

ROUNDS = int(os.environ.get("SIGKILL_ROUNDS", "5"))
SEED = seed_of("SIGKILL_SEED")
CUT = 20_000
CONFIG = 'jetstream { store_dir: "%s", object_requests: true }\n'

pytestmark = pytest.mark.timeout(120)


@dataclass
class Owner:
    """Writes and deletes its own object, one after the other."""

    name: str
    values: random.Random
    sure: bytes | None = None
    """What the object is, None: there is none."""
    maybe: list[bytes | None] = field(default_factory=list)
    """What it may be instead."""
    count: int = 0

    def run(self, port: int) -> None:
        try:
            with RawApp(port, timeout=10) as client:
                while True:
                    self.step(client)
        except (OSError, TimedOut, AssertionError):
            pass  # the server is gone

    def ask(self, client: RawApp, subject: str, body: bytes) -> Any:
        answer = json.loads(client.request(subject, body).payload)
        assert "error" not in answer, answer
        return answer

    def step(self, client: RawApp) -> None:
        if self.sure is not None and self.values.random() < 0.2:
            self.maybe = [None]
            self.ask(client, "$OBJ.b", json.dumps({"action": "delete", "name": self.name}).encode())
            self.sure = None
        else:
            self.count += 1
            data = self.values.randbytes(self.values.choice([1, CUT, 5 * CUT, 20 * CUT]))
            chunks = [data[at : at + CUT] for at in range(0, len(data), CUT)]
            nonce = f"{self.name}{self.count}"
            begin = {"nonce": nonce, "size": len(data), "chunks": len(chunks)}
            self.ask(client, f"$OBJ.b.info.{self.name}", json.dumps(begin).encode())
            self.maybe = [data]
            for chunk in chunks:
                self.ask(client, f"$OBJ.b.chunks.{nonce}", chunk)
            self.sure = data
        self.maybe = []

    def check(self, client: RawApp) -> int:
        """How many messages of the bucket its object has."""
        inbox = client.inbox()
        body = {"name": self.name, "deliver_subject": inbox}
        answer = json.loads(client.request("$OBJ.b", json.dumps(body).encode()).payload)
        found = None
        if "error" in answer:
            assert answer["error"]["code"] == 404, answer
        else:
            frames = [client.message()]
            while not frames[-1].status:
                frames.append(client.message())
            assert frames[-1].status == "204 EOB"
            found = b"".join(frame.payload for frame in frames)
        assert found in (self.sure, *self.maybe), (self.name, len(found or b""))
        never = found is None and self.sure is None and not self.count
        self.sure, self.maybe = found, []
        return 0 if never else 1 + answer.get("chunks", 0)


def killed_among(server: Server, owners: list[Owner], seconds: float) -> None:
    threads = [threading.Thread(target=owner.run, args=(server.port,)) for owner in owners]
    for thread in threads:
        thread.start()
    time.sleep(seconds)  # when it is killed
    server.restart(kill=True)
    for thread in threads:
        thread.join()


def test_objects_after_kills(servers: Servers) -> None:
    print(f"SIGKILL_SEED={SEED}")
    values = random.Random(SEED)
    server = servers.under_test(config=CONFIG % (servers.base / "objects"))
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
    owners = [Owner(f"o{n}", random.Random(SEED * 100 + n)) for n in range(4)]
    for _ in range(ROUNDS):
        killed_among(server, owners, values.uniform(0.2, 0.6))
        with RawApp(server.port) as client:
            expected = sum(owner.check(client) for owner in owners)
            state: Any = client.api("STREAM.INFO.OBJ_b", {"subjects_filter": ">"})["state"]
            assert expected - len(owners) <= state["messages"] <= expected, state
            chunked = [name for name in state["subjects"] if ".C." in name]
            assert len(chunked) == sum(bool(owner.sure) for owner in owners), state["subjects"]
