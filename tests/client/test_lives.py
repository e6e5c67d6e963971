"""Lives of messages across restarts, kills and moves between the two servers, and in buckets."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, unique
from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers, command_under_test

SECOND = 10**9


def make(client: RawApp, name: str, **config: object) -> None:
    wanted = {"name": name, "subjects": [f"{name}.>"], **config}
    answer = client.api(f"STREAM.CREATE.{name}", wanted)
    assert "error" not in answer, answer


def put(client: RawApp, subject: str, *lines: str) -> int:
    frame = client.request(subject, subject.encode(), header=header_block(*lines) if lines else b"")
    return int(frame.payload.split(b'"seq":')[1].rstrip(b"}"))


def state(client: RawApp, name: str) -> dict[str, Any]:
    body = {"subjects_filter": ">", "deleted_details": True}
    found: Any = client.api(f"STREAM.INFO.{name}", body)
    return {k: v for k, v in found["state"].items() if k not in ("first_ts", "last_ts")}


def wait(good: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end
        time.sleep(0.05)


def lively(client: RawApp) -> None:
    """Streams with messages that leave while a server is down, and others."""
    make(client, "T", allow_msg_ttl=True)
    make(client, "M", subject_delete_marker_ttl=3600 * SECOND, max_msgs_per_subject=1)
    make(client, "A", allow_msg_ttl=True, max_age=2 * SECOND)
    for n in range(40):
        put(client, f"T.{n}", f"Nats-TTL: {('1', '1h', 'never')[n % 3]}")
        put(client, f"T.{n}")
    put(client, "M.a", "Nats-TTL: 1")
    put(client, "M.b", "Nats-TTL: 1h")
    put(client, "A.a", "Nats-TTL: never")
    put(client, "A.b", "Nats-TTL: 1h")
    put(client, "A.c")


def ended(client: RawApp) -> bool:
    t, m, a = (state(client, name) for name in "TMA")
    return (t["messages"], m["last_seq"], a["messages"]) == (80 - 14, 3, 1)


def check(client: RawApp) -> list[dict[str, Any]]:
    marker: Any = client.api("STREAM.MSG.GET.M", {"seq": 3})
    assert marker["message"]["subject"] == "M.a"
    only: Any = client.api("STREAM.MSG.GET.A", {"seq": state(client, "A")["first_seq"]})
    assert only["message"]["subject"] == "A.a"
    return [state(client, name) for name in "TMA"]


def test_a_directory_of_the_peer_and_back(servers: Servers, peer_present: None) -> None:
    """What is due while it moves leaves at the other, and stays away."""
    server = servers.peer(jetstream=True)
    with RawApp(server.port) as client:
        lively(client)
    server.stop()
    theirs, server.command = server.command, command_under_test()
    server.start()
    with RawApp(server.port) as client:
        wait(lambda: ended(client))
        ours = check(client)
        put(client, "T.more", "Nats-TTL: 1")
        put(client, "T.more", "Nats-TTL: 1h")
    server.stop()
    time.sleep(1.1)  # what has a second to live ends while no server runs
    server.command = theirs
    server.start()
    with RawApp(server.port) as client:
        # Of A nothing is left: nats-server ages what never ends at its start.
        wait(lambda: state(client, "T")["messages"] == 67)
        assert state(client, "M") == ours[1]
    server.stop()
    server.command = command_under_test()
    server.start()
    with RawApp(server.port) as client:
        wait(lambda: state(client, "T")["messages"] == 67)
        assert state(client, "M") == ours[1]


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_what_is_due_while_the_server_is_down(servers: Servers, kill: bool) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        lively(client)
    server.kill() if kill else server.stop()
    time.sleep(2)  # what has a second to live ends meanwhile
    server.start()
    with RawApp(server.port) as client:
        wait(lambda: ended(client))
        before = check(client)
        before_t = client.api("STREAM.MSG.GET.T", {"seq": 3})
    server.restart(kill=True)
    with RawApp(server.port) as client:
        assert check(client) == before
        assert client.api("STREAM.MSG.GET.T", {"seq": 3}) == before_t


def test_kills_while_messages_and_markers_come_and_go(servers: Servers) -> None:
    """What has a long life is there, what ended stays away, and its subject has a marker."""
    server = servers.under_test(jetstream=True)
    chance = random.Random(7)
    stays: dict[str, int] = {}
    ends: set[str] = set()
    with RawApp(server.port) as client:
        make(client, "K", subject_delete_marker_ttl=3600 * SECOND, max_msgs_per_subject=1)
    for turn in range(4):
        with RawApp(server.port) as client:
            for n in range(150):
                subject = f"K.{turn}.{n}"
                if chance.random() < 0.5:
                    put(client, subject, "Nats-TTL: 1")
                    ends.add(subject)
                else:
                    stays[subject] = put(client, subject, "Nats-TTL: 2h")
            time.sleep(chance.random() * 1.2)  # when it is killed
        server.kill()
        server.start()
    with RawApp(server.port) as client:
        wait(lambda: state(client, "K")["last_seq"] >= 600 + len(ends), 15)
        subjects = state(client, "K")["subjects"]
        assert subjects == {s: 1 for s in (*stays, *ends)}
        for subject, seq in stays.items():
            answer: Any = client.api("STREAM.MSG.GET.K", {"last_by_subj": subject})
            assert answer["message"]["seq"] == seq
        for subject in ends:
            answer = client.api("STREAM.MSG.GET.K", {"last_by_subj": subject})
            assert "data" not in answer["message"]


# key-value buckets


@asynchronous
async def test_a_key_with_a_life_leaves_a_marker(js_server: Server) -> None:
    async with connected(js_server) as client:
        kv = await client.jetstream().create_key_value(bucket=unique("KV"), limit_marker_ttl=100.0)
        assert (await kv.status()).stream_info.config.allow_msg_ttl
        watcher = await kv.watchall()
        assert await watcher.updates(timeout=30) is None
        await kv.put("long", b"2")
        await kv.create("short", b"1", msg_ttl=1.0)
        seen = [await watcher.updates(timeout=8) for _ in range(3)]
        assert [(e.key, e.operation) for e in seen if e] == [
            *(("long", None), ("short", None), ("short", "PURGE")),
        ]
        assert await kv.keys() == ["long"]


@asynchronous
async def test_a_purge_with_a_life_leaves_nothing(js_server: Server) -> None:
    async with connected(js_server) as client:
        kv = await client.jetstream().create_key_value(bucket=unique("KV"), limit_marker_ttl=1.0)
        await kv.put("a", b"1")
        await kv.purge("a", msg_ttl=1.0)
        state = (await kv.status()).stream_info.state
        assert state.last_seq == 2 and state.messages <= 1

        async def empty() -> bool:
            return (await kv.status()).values == 0

        end = time.monotonic() + 10
        while not await empty():
            assert time.monotonic() < end


@asynchronous
async def test_ages_of_a_bucket(js_server: Server) -> None:
    async with connected(js_server) as client:
        kv = await client.jetstream().create_key_value(bucket=unique("KV"), ttl=2.0)
        await kv.put("a", b"1")
        assert (await kv.get("a")).value == b"1"
        end = time.monotonic() + 10
        while (await kv.status()).values:
            assert time.monotonic() < end
