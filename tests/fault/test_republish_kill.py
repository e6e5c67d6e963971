"""A server that is killed while it publishes again: subscribers have heard only what is stored,
under the subjects that a transform makes; after the start it goes on."""

import random
import threading
from dataclasses import dataclass, field

from tests.client.raw import Frame, RawApp
from tests.fault.test_sigkill import (
    IN_FLIGHT,
    STOPPED_SECONDS,
    Acker,
    Publisher,
    read_all,
    run_until_killed,
)
from tests.seeds import seed_of
from tests.servers import Servers

ROUNDS = 3
SEED = seed_of("SIGKILL_SEED")
CONFIG = {
    "name": "SYNC",
    "subjects": ["SYNC.>"],
    "allow_direct": True,
    "max_msgs_per_subject": 5000,
    "subject_transform": {"src": "SYNC.*", "dest": "stored.{{partition(3,1)}}.$1"},
    "republish": {"src": "stored.*.*", "dest": "again.$2"},
}


@dataclass
class Listener:
    """Hears what is published again, until the server is gone."""

    heard: list[Frame] = field(default_factory=list)
    failure: str = ""

    def run(self, port: int) -> None:
        with RawApp(port, timeout=STOPPED_SECONDS) as client:
            client.subscribe("again.>")
            while (frame := client.frame()).verb != "EOF":
                if frame.verb == "HMSG":
                    self.heard.append(frame)


def test_what_is_heard_is_stored(servers: Servers) -> None:
    print(f"SEED={SEED}")
    moments = random.Random(SEED)
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.SYNC", CONFIG)
        consumer = {"durable_name": "acker", "ack_policy": "explicit", "ack_wait": 1_000_000_000}
        body = {"stream_name": "SYNC", "config": consumer}
        assert "error" not in client.api("CONSUMER.DURABLE.CREATE.SYNC.acker", body)
    publishers = [Publisher(f"p{n}", "SYNC", IN_FLIGHT, SEED + n) for n in range(2)]
    listener = Listener()
    for _ in range(ROUNDS):
        listening = threading.Thread(target=listener.run, args=(server.port,))
        listening.start()
        run_until_killed(server, publishers, Acker(), moments.uniform(0, 0.4))
        listening.join(STOPPED_SECONDS)
        assert not listening.is_alive()
        server.start()
    with RawApp(server.port) as client:
        stored = {int(f.headers["Nats-Sequence"]): f for f in read_all(client, "SYNC")}
    places = [int(frame.headers["Nats-Sequence"]) for frame in listener.heard]
    assert places == sorted(set(places))
    assert len(places) > ROUNDS
    for seq, frame in zip(places, listener.heard, strict=True):
        assert frame.payload == stored[seq].payload
        assert frame.headers["Nats-Subject"] == stored[seq].headers["Nats-Subject"]
        token = frame.subject.removeprefix("again.")
        assert stored[seq].headers["Nats-Subject"].startswith("stored.")
        assert stored[seq].headers["Nats-Subject"].endswith(f".{token}")
    by_subject: dict[str, int] = {}
    for seq, frame in zip(places, listener.heard, strict=True):
        before = int(frame.headers["Nats-Last-Sequence"])
        assert by_subject.get(frame.subject, 0) <= before < seq
        by_subject[frame.subject] = seq
    for publisher in publishers:
        for sent in publisher.sent:
            if sent.seq:
                assert stored[sent.seq].payload == sent.body


def test_a_start_goes_on_as_before(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.SYNC", CONFIG)
        client.request("SYNC.a", b"1")
        before = client.api("STREAM.INFO.SYNC")["config"]
        server.kill()
    server.start()
    with RawApp(server.port) as client:
        assert client.api("STREAM.INFO.SYNC")["config"] == before
        client.subscribe("again.>")
        client.publish("SYNC.a", b"2")
        frame = client.message()
        assert (frame.subject, frame.payload) == ("again.a", b"2")
        assert frame.headers["Nats-Last-Sequence"] == "1"
        assert frame.headers["Nats-Subject"] == "stored.1.a"
