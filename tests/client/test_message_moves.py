"""What limits removed stays gone when a cleanly stopped directory moves to the other server."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(120)]

SUBJECTS = 7
MESSAGES = 120

#: Streams by name: their limits, and to what these are changed when all is published.
STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "COUNT": ({"max_msgs": 20}, {"max_msgs": 1000}),
    "BYTES": ({"max_bytes": 3000}, {"max_bytes": -1}),
    "FULL": ({"max_msgs": 20}, {"max_msgs": 20}),
    "SUBJECT": ({"max_msgs_per_subject": 1}, {"max_msgs_per_subject": 5}),
    "BOTH": ({"max_msgs": 5, "max_msgs_per_subject": 1}, {"max_msgs": 1000}),
    "DELETED": ({"max_msgs": 20}, {"max_msgs": 20}),
    "BLOCKS": ({"max_msgs": 20, "max_bytes": 50_000}, {"max_msgs": -1, "max_bytes": -1}),
    "AGED": ({"max_age": 1_000_000_000}, {"max_age": 0}),
}


class Streams:
    """The streams above on one server, changed to their later limits."""

    def __init__(self, client: RawApp) -> None:
        self.client = client
        for name, (limits, _) in STREAMS.items():
            self.change("CREATE", name, limits)
            payload = bytes(10_000 if name == "BLOCKS" else 50)
            for i in range(MESSAGES):
                client.publish(f"{name}.{i % SUBJECTS}", payload)
        for seq in (103, 110, 111):
            assert client.api("STREAM.MSG.DELETE.DELETED", {"seq": seq})["success"]
        end = time.monotonic() + 10
        while self.state("AGED")["messages"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        for name, (limits, later) in STREAMS.items():
            self.change("UPDATE", name, limits | later)

    def change(self, how: str, name: str, limits: dict[str, Any]) -> None:
        body = {"name": name, "subjects": [f"{name}.*"], **limits}
        answer = self.client.api(f"STREAM.{how}.{name}", body)
        assert "error" not in answer, answer

    def state(self, name: str) -> Any:
        return self.client.api(f"STREAM.INFO.{name}")["state"]


def contents(client: RawApp) -> dict[str, Any]:
    """Every stream's figures and messages."""
    found = {}
    for name in STREAMS:
        state: Any = client.api(f"STREAM.INFO.{name}")["state"]
        messages, seq = [], 1
        while True:
            answer: Any = client.api(f"STREAM.MSG.GET.{name}", {"seq": seq, "next_by_subj": ">"})
            if "message" not in answer:
                break
            messages.append((answer["message"]["seq"], answer["message"]["subject"]))
            seq = messages[-1][0] + 1
        found[name] = (state["messages"], state["bytes"], state["last_seq"], messages)
    return found


def move(server: Server, start: Callable[..., Server]) -> Server:
    """Another server, on a copy of what the first one has when it was stopped."""
    server.stop()
    return start(jetstream=True).start_on_copy(server.store)


def look(server: Server) -> dict[str, Any]:
    with RawApp(server.port) as client:
        return contents(client)


def test_to_the_peer_and_back(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        Streams(client)
    before = look(server)
    assert [len(before[name][3]) for name in ("COUNT", "AGED", "FULL")] == [20, 0, 20]

    peer = move(server, servers.peer)
    assert look(peer) == before
    back = move(peer, servers.under_test)
    assert look(back) == before


def test_a_second_stop_adds_nothing(servers: Servers) -> None:
    """Tombstones that are there need not be written again."""
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        Streams(client)
    streams = server.store / "jetstream" / "$G" / "streams"
    sizes = []
    for _ in range(3):
        server.stop()
        sizes.append({file: file.stat().st_size for file in streams.glob("*/msgs/*.blk")})
        server.start()
    assert sizes[0] == sizes[1] == sizes[2]


def test_from_the_peer_and_back(servers: Servers) -> None:
    peer = servers.peer(jetstream=True)
    with RawApp(peer.port) as client:
        Streams(client)
    before = look(peer)
    assert [len(before[name][3]) for name in ("COUNT", "AGED", "FULL")] == [20, 0, 20]

    server = move(peer, servers.under_test)
    assert look(server) == before
    back = move(server, servers.peer)
    assert look(back) == before


def test_from_the_peer_and_killed(servers: Servers) -> None:
    """What was learned from index.db is written before that is removed."""
    peer = servers.peer(jetstream=True)
    with RawApp(peer.port) as client:
        Streams(client)
    before = look(peer)
    server = move(peer, servers.under_test)
    with RawApp(server.port) as client:
        for name in STREAMS:
            client.request(f"{name}.new")
    after = look(server)
    assert {name: after[name][3][:-1] for name in before if name not in ("FULL", "BYTES")} == {
        name: before[name][3] for name in before if name not in ("FULL", "BYTES")
    }
    server.kill()
    server.start()
    assert look(server) == after


@pytest.mark.parametrize(
    ("messages", "request_of_purge", "first"),
    [
        (10, {"filter": "P.0"}, 2),
        (10, {"seq": 6}, 6),
        (10, {"keep": 4}, 7),
        (3000, {"seq": 1000}, 1000),
        (3000, {"keep": 1500}, 1501),
        (10, None, 11),
    ],
)
def test_what_was_purged_stays_gone_after_a_kill(
    servers: Servers, messages: int, request_of_purge: dict[str, object] | None, first: int
) -> None:
    """At the stream's head, too: nats-server knows nothing but tombstones. None: a rollup."""
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        config = {"name": "P", "subjects": ["P.*"], "allow_rollup_hdrs": True}
        client.api("STREAM.CREATE.P", config)
        for i in range(messages):
            client.request(f"P.{i % 2}", b"%d" % i)
        if request_of_purge is None:
            client.request("P.0", b"all", header=header_block("Nats-Rollup: all"))
        else:
            client.api("STREAM.PURGE.P", request_of_purge)
        before = client.api("STREAM.INFO.P")["state"]
    assert before["first_seq"] == first
    server.kill()
    peer = servers.peer(jetstream=True).start_on_copy(server.store)
    with RawApp(peer.port) as client:
        state = client.api("STREAM.INFO.P")["state"]
    counts = ("messages", "bytes", "first_seq", "last_seq")
    assert [state[name] for name in counts] == [before[name] for name in counts]


def test_an_index_that_does_not_fit(servers: Servers) -> None:
    """One that is damaged, or of earlier blocks, removes nothing."""
    peer = servers.peer(jetstream=True)
    with RawApp(peer.port) as client:
        Streams(client)
    peer.stop()
    index = peer.store / "jetstream" / "$G" / "streams" / "COUNT" / "msgs" / "index.db"
    whole = index.read_bytes()
    peer.start()
    with RawApp(peer.port) as client:
        client.request("COUNT.new")
    peer.stop()
    shown = []
    for data in (whole, whole[:-9], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        index.write_bytes(data)
        server = servers.under_test(jetstream=True).start_on_copy(peer.store)
        shown.append(look(server)["COUNT"][0])
        server.stop()
    assert shown == [MESSAGES + 1] * 4
