"""What interest retention keeps and removes, over updates and restarts: as nats-server does."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(120)]

MS = 1_000_000
SETTLE_SECONDS = 5.0


class Story:
    """One stream of one server, and what was seen of it."""

    def __init__(self, server: Server, kill: bool) -> None:
        self.server = server
        self.kill = kill
        self.client = RawApp(server.port)
        self.seen: list[object] = []

    def stream(self, verb: str, retention: str) -> None:
        body = {
            "name": "S",
            "subjects": ["s.*"],
            "retention": retention,
            "allow_rollup_hdrs": True,
        }
        assert "error" not in self.client.api(f"STREAM.{verb}.S", body)

    def consumer(self, name: str, **config: object) -> None:
        body = {
            "stream_name": "S",
            "config": {"durable_name": name, "ack_policy": "explicit"} | config,
        }
        assert "error" not in self.client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)

    def delete(self, name: str) -> None:
        assert "error" not in self.client.api(f"CONSUMER.DELETE.S.{name}")

    def fill(self, count: int) -> None:
        for n in range(count):
            self.client.request(f"s.{'ab'[n % 2]}", b"%d" % n)

    def roll_up(self, subject: str, kind: str) -> None:
        header = f"NATS/1.0\r\nNats-Rollup: {kind}\r\n\r\n".encode()
        self.client.request(subject, b"", header=header)

    def pull(self, name: str, count: int) -> list[Frame]:
        inbox = self.client.inbox()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", b"%d" % count, reply=inbox)
        return self.client.messages(count)

    def work(self, name: str, count: int) -> None:
        """Takes and acks."""
        for frame in self.pull(name, count):
            self.client.request(frame.reply)

    def restart(self) -> None:
        self.client.close()
        self.server.restart(kill=self.kill)
        self.client = RawApp(self.server.port)

    def look(self, messages: int, *consumers: str) -> None:
        """Notes the stream, once it has so many messages, and consumers."""
        end = time.monotonic() + SETTLE_SECONDS
        state: dict[str, object] = {}
        while state.get("messages") != messages and time.monotonic() < end:
            answer = self.client.api("STREAM.INFO.S", {"deleted_details": True})
            state = answer["state"]
        names = ("messages", "first_seq", "last_seq", "deleted")
        self.seen.append({name: state.get(name) for name in names})
        for consumer in consumers:
            info = self.client.api(f"CONSUMER.INFO.S.{consumer}")
            numbers = [info["num_pending"], info["num_ack_pending"]]
            for position in (info["delivered"], info["ack_floor"]):
                numbers += [position["consumer_seq"], position["stream_seq"]]
            self.seen.append((consumer, *numbers))


def nobody_at_first(s: Story) -> None:
    s.stream("CREATE", "limits")
    s.fill(10)
    s.stream("UPDATE", "interest")
    s.look(10)
    s.restart()
    s.look(10)
    s.consumer("A")
    s.work("A", 3)
    s.look(7, "A")
    s.restart()
    s.look(7, "A")
    s.consumer("B", filter_subject="s.a")
    s.work("A", 7)
    s.look(3, "A", "B")
    s.work("B", 2)
    s.delete("B")
    s.look(0)
    s.fill(2)
    s.look(2)
    s.delete("A")
    s.look(0)


def one_of_two_subjects(s: Story) -> None:
    s.stream("CREATE", "limits")
    s.fill(10)
    s.consumer("A", filter_subject="s.a")
    s.work("A", 2)
    s.look(10)
    s.stream("UPDATE", "interest")
    s.look(8)
    s.work("A", 1)
    s.look(7)
    s.restart()
    s.look(7, "A")
    s.consumer("N", deliver_policy="new")
    s.fill(2)
    s.look(9)
    s.delete("A")
    s.look(6)
    s.consumer("B")
    s.look(6, "B")
    s.delete("N")
    s.look(6)


def started_later(s: Story) -> None:
    s.stream("CREATE", "interest")
    s.consumer("A", deliver_policy="by_start_sequence", opt_start_seq=5)
    s.fill(8)
    s.look(8, "A")
    s.work("A", 2)
    s.look(6, "A")
    s.consumer("B")
    s.work("B", 4)
    s.look(2, "A", "B")
    s.work("A", 1)
    s.look(2, "A", "B")
    s.work("B", 2)
    s.look(1)
    s.restart()
    s.look(1, "A", "B")


def filters_change(s: Story) -> None:
    s.stream("CREATE", "limits")
    s.fill(10)
    s.consumer("A")
    s.consumer("B", filter_subject="s.b")
    s.work("A", 4)
    s.stream("UPDATE", "interest")
    s.look(8)
    s.consumer("A", filter_subject="s.a")
    s.look(8, "A", "B")
    s.consumer("B", filter_subject="s.x")
    s.look(3, "A", "B")


def back_and_forth(s: Story) -> None:
    s.stream("CREATE", "interest")
    s.consumer("A")
    s.fill(6)
    s.work("A", 2)
    s.look(4)
    s.stream("UPDATE", "limits")
    s.work("A", 2)
    s.look(4)
    s.stream("UPDATE", "interest")
    s.look(2)
    s.restart()
    s.look(2, "A")


def gaps(s: Story) -> None:
    s.stream("CREATE", "limits")
    s.fill(10)
    s.consumer("A")
    frames = s.pull("A", 6)
    for at in (2, 4):
        s.client.request(frames[at].reply)
    s.stream("UPDATE", "interest")
    s.look(8, "A")
    s.restart()
    s.look(8, "A")


def given_up(s: Story) -> None:
    s.stream("CREATE", "interest")
    s.consumer("A", max_deliver=1, ack_wait=100 * MS)
    s.consumer("B")
    s.fill(4)
    s.pull("A", 2)
    s.work("B", 4)
    s.look(4)
    s.restart()
    s.look(4, "B")


def rolled_up(s: Story) -> None:
    s.stream("CREATE", "interest")
    s.consumer("A", filter_subject="s.a")
    s.fill(6)
    s.pull("A", 1)
    s.roll_up("s.z", "all")
    s.look(0, "A")
    s.fill(2)
    s.roll_up("s.z", "sub")
    s.look(1, "A")
    s.roll_up("s.b", "all")
    s.look(0, "A")
    s.restart()
    s.look(0, "A")


STORIES: tuple[Callable[[Story], None], ...] = (
    nobody_at_first,
    one_of_two_subjects,
    started_later,
    filters_change,
    back_and_forth,
    gaps,
    given_up,
    rolled_up,
)


@pytest.fixture
def pair(servers: Servers) -> Iterator[tuple[Server, Server]]:
    yield servers.under_test(jetstream=True), servers.peer(jetstream=True)


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.__name__)
def test_as_nats_server(pair: tuple[Server, Server], story: Callable[[Story], None]) -> None:
    """Ours is killed where nats-server is stopped: it keeps the same."""

    def play(server: Server) -> list[object]:
        told = Story(server, kill=server is pair[0])
        try:
            story(told)
        finally:
            told.client.close()
        return told.seen

    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(play, pair)
    assert ours == theirs
