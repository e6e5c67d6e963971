"""Publishes, kills the server, starts it again: what was acked is there once, in order, unchanged.

Rounds and seed come from the environment: `SIGKILL_ROUNDS` (5) and `SIGKILL_SEED` (1, shown).
"""

import json
import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.client.raw import Frame, RawApp, TimedOut, header_block
from tests.seeds import seed_of
from tests.servers import Server, Servers, command_of_peer

ROUNDS = int(os.environ.get("SIGKILL_ROUNDS", "5"))
SEED = seed_of("SIGKILL_SEED")
IN_FLIGHT = 200
STOPPED_SECONDS = 20


@dataclass
class Sent:
    """What a publisher sent as its n-th message, and the sequence in the ack, if one came."""

    subject: str
    header: bytes
    body: bytes
    seq: int = 0


@dataclass
class Publisher:
    """Publishes from a connection of its own, at most `window` messages unacked."""

    name: str
    stream: str
    window: int
    seed: int
    sent: list[Sent] = field(default_factory=list)
    failure: str = ""

    def run(self, port: int) -> None:
        """Publishes until the server is gone."""
        try:
            with RawApp(port, timeout=STOPPED_SECONDS) as client:
                client.subscribe(f"ack.{self.name}.*")
                self.publish_until_eof(client)
        except (OSError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def publish_until_eof(self, client: RawApp) -> None:
        values = random.Random(self.seed + len(self.sent))
        waiting = 0
        while True:
            while waiting < self.window:
                number = len(self.sent)
                message = self.message(number, values)
                self.sent.append(message)
                client.publish(
                    message.subject,
                    message.body,
                    reply=f"ack.{self.name}.{number}",
                    header=message.header,
                )
                waiting += 1
            frame = client.frame()
            if frame.verb == "EOF":
                return
            if frame.verb in ("MSG", "HMSG"):
                self.take_ack(frame)
                waiting -= 1

    def message(self, number: int, values: random.Random) -> Sent:
        size = values.choice([0, 10, 100, 1000, 20_000]) if number % 50 == 0 else 60
        body = f"{self.name} {number} ".encode() + values.randbytes(size)
        header = header_block(f"N: {number}") if number % 3 == 0 else b""
        return Sent(f"{self.stream}.{number % 11}", header, body)

    def take_ack(self, frame: Frame) -> None:
        ack = json.loads(frame.payload)
        assert "error" not in ack and "duplicate" not in ack, ack
        number = int(frame.subject.rpartition(".")[2])
        self.sent[number].seq = ack["seq"]

    def acked(self) -> int:
        return sum(1 for sent in self.sent if sent.seq)


@dataclass
class Acker:
    """Pulls from a consumer and acks with a confirmation."""

    confirmed: set[int] = field(default_factory=set)
    failure: str = ""

    def run(self, port: int) -> None:
        try:
            with RawApp(port, timeout=STOPPED_SECONDS) as client:
                pulls = client.inbox()
                client.subscribe("confirm.*")
                while self.step(client, pulls):
                    pass
        except (OSError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def step(self, client: RawApp, pulls: str) -> bool:
        request = b'{"batch":20,"expires":200000000}'
        client.publish("$JS.API.CONSUMER.MSG.NEXT.SYNC.acker", request, reply=pulls)
        unconfirmed = 0
        got = 0
        while got < 20 or unconfirmed:
            frame = client.frame()
            if frame.verb == "EOF":
                return False
            if frame.subject.startswith("confirm."):
                self.confirmed.add(int(frame.subject.rpartition(".")[2]))
                unconfirmed -= 1
            elif frame.reply:
                seq = frame.reply.split(".")[5]
                client.publish(frame.reply, b"+ACK", reply=f"confirm.{seq}")
                unconfirmed += 1
                got += 1
            elif frame.status:
                got = 20
        return True


def read_all(client: RawApp, stream: str) -> list[Frame]:
    """All messages of a stream, by batched direct gets."""
    inbox = client.inbox()
    found: list[Frame] = []
    following = 1
    while True:
        request = json.dumps({"seq": following, "batch": 500}).encode()
        client.publish(f"$JS.API.DIRECT.GET.{stream}", request, reply=inbox)
        while not (frame := client.message(10)).status:
            found.append(frame)
            following = int(frame.headers["Nats-Sequence"]) + 1
        if frame.status.startswith("404") or frame.headers["Nats-Num-Pending"] == "0":
            return found


def verify(client: RawApp, stream: str, publishers: list[Publisher]) -> None:
    """Each acked message once, at its sequence, unchanged; each publisher's in its order."""
    by_body: dict[bytes, int] = {}
    previous = 0
    last_number = {p.name: -1 for p in publishers}
    for frame in read_all(client, stream):
        seq = int(frame.headers["Nats-Sequence"])
        assert seq > previous, f"{stream}: sequence {seq} after {previous}"
        previous = seq
        assert frame.payload not in by_body, f"{stream}: {frame.payload[:30]!r} is there twice"
        by_body[frame.payload] = seq
        name, number, _ = frame.payload.split(b" ", 2)
        owner = next(p for p in publishers if p.name.encode() == name)
        sent = owner.sent[int(number)]
        assert frame.payload == sent.body
        assert frame.headers["Nats-Subject"] == sent.subject
        stored = header_block(*(line for line in lines(frame) if not line.startswith("Nats-")))
        assert stored == (sent.header or header_block())
        assert last_number[owner.name] < int(number), f"{stream}: {name!r} is out of order"
        last_number[owner.name] = int(number)
    for publisher in publishers:
        for sent in publisher.sent:
            if sent.seq:
                found = by_body.get(sent.body)
                assert found == sent.seq, f"{stream}: acked {sent.seq}, found at {found}"


def lines(frame: Frame) -> list[str]:
    return [line for line in frame.header.decode().split("\r\n")[1:] if line]


def prepare(client: RawApp) -> None:
    for name, extra in (("SYNC", {}), ("ASYNC", {}), ("KV_B", {"max_msgs_per_subject": 100_000})):
        subjects = ["$KV.B.>"] if name == "KV_B" else [f"{name}.>"]
        config = {"name": name, "subjects": subjects, "allow_direct": True, **extra}
        assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
    consumer = {"durable_name": "acker", "ack_policy": "explicit", "ack_wait": 1_000_000_000}
    body = {"stream_name": "SYNC", "config": consumer}
    assert "error" not in client.api("CONSUMER.DURABLE.CREATE.SYNC.acker", body)


def run_until_killed(
    server: Server, publishers: list[Publisher], acker: Acker, seconds: float
) -> None:
    """Kills the server this long after every publisher had its first ack."""
    workers: list[Publisher | Acker] = [*publishers, acker]
    before = [p.acked() for p in publishers]
    threads = [threading.Thread(target=w.run, args=(server.port,)) for w in workers]
    for thread in threads:
        thread.start()
    end = time.monotonic() + STOPPED_SECONDS
    while any(p.acked() <= b for p, b in zip(publishers, before, strict=True)):
        assert time.monotonic() < end, f"no acks: {[w.failure for w in workers]}"
        time.sleep(0.01)
    time.sleep(seconds)  # when it is killed
    server.kill()
    for thread in threads:
        thread.join(STOPPED_SECONDS)
        assert not thread.is_alive(), "a client hangs though the server is gone"
    assert [w.failure for w in workers if w.failure] == []


@pytest.mark.timeout(60 + 30 * ROUNDS)
@pytest.mark.parametrize("cipher", ["", "chacha", "aes"])
def test_acked_is_kept(servers: Servers, tmp_path: Path, cipher: str) -> None:
    print(f"SIGKILL_SEED={SEED} SIGKILL_ROUNDS={ROUNDS}")
    moments = random.Random(SEED)
    words = f'key: "secret", cipher: {cipher}' if cipher else ""
    server = servers.under_test(config=f'jetstream {{ store_dir: "{tmp_path}", {words} }}')
    # The reference confirms an ack before it has written it, and forgets it when it is killed.
    durable_acks = server.command != command_of_peer()
    with RawApp(server.port) as client:
        prepare(client)
    streams = {
        "SYNC": [Publisher(f"sync{n}", "SYNC", 1, SEED + n) for n in range(2)],
        "ASYNC": [Publisher(f"async{n}", "ASYNC", IN_FLIGHT, SEED + n) for n in range(2)],
        "KV_B": [Publisher("kv", "$KV.B", 5, SEED)],
    }
    publishers = [p for group in streams.values() for p in group]
    acker = Acker()
    for turn in range(ROUNDS if not cipher else (ROUNDS + 1) // 2):
        before = [p.acked() for p in publishers]
        run_until_killed(server, publishers, acker, moments.uniform(0, 0.6))
        server.start()
        with RawApp(server.port) as client:
            for stream, group in streams.items():
                verify(client, stream, group)
            if durable_acks:
                verify_acks(client, acker.confirmed)
        gained = [p.acked() - b for p, b in zip(publishers, before, strict=True)]
        print(f"round {turn}: acked {gained}, confirmed {len(acker.confirmed)}")
    with RawApp(server.port) as client:
        again = delivered_again(client)
        assert not durable_acks or not acker.confirmed & again, "an acked message came again"
    assert all(p.acked() for p in publishers)


def verify_acks(client: RawApp, confirmed: set[int]) -> None:
    info = client.api("CONSUMER.INFO.SYNC.acker")
    floor = info["ack_floor"]["stream_seq"]
    assert floor >= contiguous(confirmed), f"confirmed acks are lost: {info}"


def contiguous(confirmed: set[int]) -> int:
    """The last sequence up to which all are confirmed."""
    last = 0
    while last + 1 in confirmed:
        last += 1
    return last


def delivered_again(client: RawApp) -> set[int]:
    """The sequences that the consumer still delivers, read until its ack wait has passed."""
    inbox = client.inbox()
    seen: set[int] = set()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        request = b'{"batch":1000,"expires":1500000000}'
        client.publish("$JS.API.CONSUMER.MSG.NEXT.SYNC.acker", request, reply=inbox)
        got = 0
        while not (frame := client.message(10)).status:
            seen.add(int(frame.reply.split(".")[5]))
            client.publish(frame.reply, b"+ACK")
            got += 1
            if got == 1000:
                break
        else:
            if got == 0:
                return seen
    raise AssertionError("the consumer does not come to an end")


@pytest.mark.parametrize("policy", ["new", "last", "last_per_subject"])
def test_a_consumer_begins_where_it_began_before_the_kill(servers: Servers, policy: str) -> None:
    """What these policies mean depends on what is stored when the consumer is made."""
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        client.request("s", b"1")
        config = {"durable_name": "c", "ack_policy": "explicit", "deliver_policy": policy}
        if policy == "last_per_subject":
            config["filter_subject"] = "s"
        body = {"stream_name": "S", "config": config}
        answer = client.api("CONSUMER.DURABLE.CREATE.S.c", body)
        assert "error" not in answer, answer
        assert json.loads(client.request("s", b"2").payload)["seq"] == 2
        server.kill()
    server.start()
    with RawApp(server.port) as client:
        first = client.request("$JS.API.CONSUMER.MSG.NEXT.S.c")
        assert first.payload == (b"2" if policy == "new" else b"1")
