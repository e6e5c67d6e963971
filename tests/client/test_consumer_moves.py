"""Consumers move with a cleanly stopped directory: to nats-server, and back again."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.raw import Frame, RawApp, TimedOut
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(120)]

SECOND = 1_000_000_000
WAIT = 2
"""Seconds of the consumers' ack wait: longer than it takes to stop one server and start another."""

STREAMS = {"L": "limits", "I": "interest", "W": "workqueue"}
KINDS: dict[str, dict[str, Any]] = {
    "explicit": {},
    "all": {"ack_policy": "all"},
    "none": {"ack_policy": "none", "ack_wait": 0},
    "given_up": {"max_deliver": 1, "ack_wait": SECOND // 10},
    "filtered": {"filter_subjects": ["L.a", "L.c"]},
    "newest": {"deliver_policy": "last_per_subject", "filter_subject": "L.*"},
    "fourth": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
    "new": {"deliver_policy": "new"},
    "untouched": {},
    "paused": {"pause_until": "2090-01-01T00:00:00Z"},
    "pushed": {"deliver_subject": "push.here", "max_ack_pending": 5},
}


class Mover:
    """One store directory, and the servers that are started on it in turn."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.server: Server = servers.under_test(jetstream=True)
        self.client = RawApp(self.server.port)

    def move(self, start: Callable[..., Server]) -> None:
        """Stops the server and starts another one on a copy of its store."""
        self.client.close()
        self.server.stop()
        self.server = start(jetstream=True).start_on_copy(self.server.store)
        self.client = RawApp(self.server.port)

    def make(self, stream: str, name: str, **config: object) -> None:
        settings = {"durable_name": name, "ack_policy": "explicit", "ack_wait": WAIT * SECOND}
        body = {"stream_name": stream, "config": settings | config}
        answer = self.client.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
        assert "error" not in answer, answer

    def pull(self, stream: str, name: str, count: int) -> list[Frame]:
        inbox = self.client.inbox()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self.client.publish(subject, b"%d" % count, reply=inbox)
        return self.client.messages(count)

    def rest(self, stream: str, name: str, seconds: float) -> list[tuple[int, int]]:
        """Everything that comes within a time: stream sequence and deliveries, not acked."""
        inbox = self.client.inbox()
        body = b'{"batch":100,"expires":%d}' % int(seconds * SECOND)
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, reply=inbox)
        got: list[tuple[int, int]] = []
        while True:
            frame = self.client.message(seconds + 5)
            if not frame.reply:
                return got
            words = frame.reply.split(".")
            got.append((int(words[5]), int(words[4])))

    def ack(self, frame: Frame, body: bytes = b"") -> None:
        self.client.request(frame.reply, body)

    def infos(self) -> dict[str, Any]:
        found = {}
        for stream in STREAMS:
            listed = self.client.api(f"CONSUMER.LIST.{stream}")
            for info in listed["consumers"]:
                state = {key: info[key] for key in info if key.startswith("num_")}
                for position in ("delivered", "ack_floor"):
                    state[position] = (
                        info[position]["consumer_seq"],
                        info[position]["stream_seq"],
                    )
                state |= {"paused": info.get("paused"), "config": info["config"]}
                found[f"{stream}.{info['name']}"] = state | {"num_waiting": 0}
            state = self.client.api(f"STREAM.INFO.{stream}")["state"]
            found[stream] = {key: state[key] for key in ("messages", "first_seq", "last_seq")}
        return found

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def mover(servers: Servers) -> Any:
    found = Mover(servers)
    yield found
    found.close()


def fill(mover: Mover) -> None:
    for stream, retention in STREAMS.items():
        body = {"name": stream, "subjects": [f"{stream}.*"], "retention": retention}
        assert "error" not in mover.client.api(f"STREAM.CREATE.{stream}", body)
    mover.make("I", "one")
    mover.make("I", "two", filter_subject="I.a")
    mover.make("W", "work")
    for n in range(12):
        for stream in STREAMS:
            mover.client.request(f"{stream}.{'abc'[n % 3]}", b"%d" % n)
    for name, config in KINDS.items():
        mover.make("L", name, **config)


def use(mover: Mover, pushed: bool) -> None:
    """Delivers and acks on every consumer, with gaps; some messages have been delivered twice."""
    got = mover.pull("L", "explicit", 6)
    for at in (0, 1, 3):
        mover.ack(got[at])
    mover.ack(got[4], b"-NAK")
    assert mover.pull("L", "explicit", 1)[0].reply.startswith("$JS.ACK.L.explicit.2.")
    mover.ack(mover.pull("L", "all", 5)[2])
    mover.pull("L", "none", 3)
    mover.pull("L", "given_up", 2)
    mover.ack(mover.pull("L", "filtered", 3)[1])
    mover.ack(mover.pull("L", "newest", 2)[1])
    if pushed:
        sid = mover.client.subscribe("push.here")
        for frame in mover.client.messages(5)[:2]:
            mover.ack(frame)
        mover.client.messages(2)
        mover.client.send(b"UNSUB " + sid.encode() + b"\r\n")
    for frame in mover.pull("I", "one", 4)[1:]:
        mover.ack(frame)
    for frame in mover.pull("I", "two", 2):
        mover.ack(frame)
    for frame in mover.pull("W", "work", 4)[1:3]:
        mover.ack(frame)
    end = time.monotonic() + 5
    while mover.infos()["L.given_up"]["num_ack_pending"]:
        assert time.monotonic() < end


def test_there_and_back(mover: Mover, servers: Servers) -> None:
    """What each server shows is what the one before it showed, and what is due is due."""
    fill(mover)
    use(mover, pushed=True)
    for start in (servers.peer, servers.under_test, servers.peer):
        before = mover.infos()
        mover.move(start)
        assert mover.infos() == before
    assert "not written" not in mover.server.log()


def test_what_is_not_acked_comes_again_on_the_other_server(mover: Mover, servers: Servers) -> None:
    fill(mover)
    use(mover, pushed=False)
    so_far = {3: 1, 5: 2, 6: 1} | dict.fromkeys(range(7, 13), 0)
    for start in (servers.peer, servers.under_test):
        mover.move(start)
        for seq, deliveries in mover.rest("L", "explicit", WAIT + 1):
            so_far[seq] += 1
            assert deliveries == so_far[seq]
        assert set(so_far) == {3, *range(5, 13)}
    assert min(so_far.values()) >= 2


def test_what_the_other_server_did_counts(mover: Mover, servers: Servers) -> None:
    """Deliveries and acks of nats-server; acks alone, without a delivery; a new consumer."""
    fill(mover)
    use(mover, pushed=False)
    mover.move(servers.peer)
    for frame in mover.pull("L", "explicit", 3):
        mover.ack(frame)
    mover.ack(mover.pull("L", "all", 1)[0])
    inbox = mover.client.inbox()
    mover.client.publish("$JS.ACK.L.newest.1.11.1.1.0", reply=inbox)
    mover.client.api("CONSUMER.DELETE.L.none")
    mover.make("L", "none", ack_policy="explicit", deliver_policy="last")
    mover.client.api("STREAM.PURGE.L", {"seq": 3})
    time.sleep(0.5)  # nats-server writes its states now and then
    before = mover.infos()
    mover.move(servers.under_test)
    assert mover.infos() == before
    with pytest.raises(TimedOut):
        mover.client.message(0.1)
