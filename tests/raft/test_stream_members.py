"""A stream whose Raft group drives it, on a server of ours beside real nats-servers: it has what
they have, message by message, whoever leads, and after every kind of start."""

import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error

from jsserver.text.identity import short_hash
from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import page
from tests.servers import Server, command_of_peer, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
    server_name: {name}
    accounts {{
        SYS {{ users: [{{ user: sys, password: sys }}] }}
        ONE {{ jetstream: enabled, users: [{{ user: one, password: x }}] }}
    }}
    system_account: SYS
    no_auth_user: one
    {rest}
    cluster {{ name: C, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""
HOLDER = [sys.executable, "-m", "tests.raft.holder"]
FIELDS = ("messages", "bytes", "first_seq", "last_seq", "num_subjects")


class Members:
    """Three servers by their kinds, p nats-server and o ours: A, B and C. Each dials all."""

    def __init__(self, base: Path, kinds: str) -> None:
        self.servers: list[Server] = []
        self.asked: dict[Server, int] = {}
        ports = [free_port() for _ in kinds]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        for number, kind in enumerate(kinds):
            ours = kind == "o"
            rest = 'server_tags: ["!jetstream"]' if ours else ""
            name = "ABC"[number]
            config = CONFIG.format(name=name, rest=rest, port=ports[number], routes=routes)
            asked = free_port()
            command = HOLDER if ours else command_of_peer()
            assert command is not None
            server = Server(
                command,
                base / name,
                config=config,
                jetstream=True,
                monitor=True,
                env={"HOLDER_PORT": str(asked)},
            )
            if ours:
                self.asked[server] = asked
            self.servers.append(server)
            server.port, server.monitor_port = free_port(), free_port()
            server.start()

    @property
    def ours(self) -> list[Server]:
        return list(self.asked)

    @property
    def real(self) -> list[Server]:
        return [one for one in self.servers if one not in self.asked]

    def ask(self, server: Server, do: str, **what: Any) -> Any:
        """What the holder says; None while it has no such stream."""
        with socket.create_connection(("127.0.0.1", self.asked[server]), 10) as connection:
            file = connection.makefile("rw")
            file.write(json.dumps({"stream": "S", "do": do, **what}) + "\n")
            file.flush()
            said = json.loads(file.readline())
        assert "found" in said, said
        return said["found"]

    def state(self, server: Server) -> dict[str, Any]:
        """Of the stream, on a server of any kind; empty where it is not there."""
        if server in self.asked:
            return self.ask(server, "state") or {}
        for account in page(server, "jsz?streams=1&accounts=1").get("account_details", []):
            for stream in account.get("stream_detail", []):
                return dict(stream["state"])
        return {}

    def same(self) -> bool:
        """Whether all that run have the same state."""
        states = [self.state(one) for one in self.servers if one.running]
        found = [tuple(state.get(field, 0) for field in FIELDS) for state in states]
        return len(set(found)) == 1 and all(states)

    async def leads(self, server: Server) -> None:
        await until(lambda: bool(self.state(server).get("leads")), 30)


@asynccontextmanager
async def stream(members: Members, **config: Any) -> AsyncIterator[Client]:
    """A client of the first nats-server, by which the stream S was made on all three."""
    first = members.real[0]
    async with connected(first) as client:
        await until(lambda: bool(page(first, "jsz").get("meta_cluster", {}).get("leader")), 60)
        wanted = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": "file"}

        async def made() -> bool:
            # Where ours leads first nobody answers: it has no API.
            body = json.dumps(wanted | config).encode()
            with contextlib.suppress(Error):
                await client.request("$JS.API.STREAM.CREATE.S", body, timeout=1)
            return all(members.state(one) for one in members.servers)

        await until(made, 60)
        await led_by_real(members)
        yield client


async def led_by_real(members: Members) -> None:
    """A nats-server leads: it has an API."""
    real = {short_hash("ABC"[members.servers.index(one)]) for one in members.real}
    to = short_hash("A")

    def leads() -> bool:
        for server in members.ours:
            if server.running and members.state(server).get("leads"):
                members.ask(server, "hand_over", to=to)
        leaders = {members.state(one).get("leader") for one in members.ours if one.running}
        return len(leaders) == 1 and leaders <= real

    await until(leads, 30)


async def acked(send: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await send()
    except Error:
        return False
    return True


async def publish(client: Client, count: int, text: str) -> None:
    """One after another, until each is acked."""
    js = client.jetstream(timeout=2)
    for number in range(count):
        message = f"{text} {number}".encode()
        headers = {"Nats-Msg-Id": f"{text} {number}", "X": "y" * (number % 5)}

        send = partial(js.publish, f"s.{number % 7}", message, headers=headers)
        await until(partial(acked, send), 30)


async def messages(client: Client, first: int, last: int) -> list[list[Any]]:
    """As the API of nats-server shows them."""
    found = []
    for seq in range(first, last + 1):
        answer = await api(client, "STREAM.MSG.GET.S", {"seq": seq})
        if "message" in answer:
            one = answer["message"]
            found.append([seq, one["subject"], one.get("hdrs", ""), one.get("data", "")])
    return found


async def compare(members: Members, client: Client) -> int:
    """Asserts that ours has the messages that nats-server shows; how many."""
    await until(members.same, 30)
    await led_by_real(members)
    real = members.state(members.real[0])
    theirs = await messages(client, real["first_seq"], real["last_seq"])
    for server in members.ours:
        ours = [[one[0], *one[2:]] for one in members.ask(server, "messages")]
        assert ours == theirs
    return len(theirs)


async def handed(client: Client, name: str) -> None:
    """This one leads the stream."""
    body = {"placement": {"preferred": name}}
    answer = await api(client, "STREAM.LEADER.STEPDOWN.S", body)
    assert answer.get("success"), answer


def end(members: Members) -> None:
    for server in members.servers:
        if server.running:
            server.stop()


@pytest.mark.parametrize("storage", ["file", "memory"])
@asynchronous
async def test_ours_follows_a_stream_of_nats_servers(tmp_path: Path, storage: str) -> None:
    members = Members(tmp_path, "ppo")
    try:
        async with stream(members, storage=storage) as client:
            await publish(client, 40, "one")
            assert await compare(members, client) == 40
            assert (await api(client, "STREAM.MSG.DELETE.S", {"seq": 7}))["success"]
            assert (await api(client, "STREAM.PURGE.S", {"filter": "s.3"}))["purged"] == 6
            assert (await api(client, "STREAM.PURGE.S", {"seq": 5}))["purged"] > 0
            await publish(client, 10, "two")
            assert await compare(members, client) > 30
    finally:
        end(members)


@asynchronous
async def test_ours_answers_direct_gets_as_a_follower(tmp_path: Path) -> None:
    """Also when nobody leads."""
    members = Members(tmp_path, "ppo")
    try:
        ours = members.ours[0]
        async with stream(members, allow_direct=True) as client:
            await publish(client, 10, "one")
            await until(members.same, 30)
        for real in members.real:
            real.stop()
        async with connected(ours) as client:
            answer = await client.request("$JS.API.DIRECT.GET.S", b'{"seq": 4}', timeout=10)
            assert answer.data == b"one 3"
            answer = await client.request("$JS.API.DIRECT.GET.S.s.6", b"", timeout=10)
            assert (answer.headers or {})["Nats-Sequence"] == "7"
    finally:
        end(members)


@asynchronous
async def test_ours_leads_and_nats_servers_follow(tmp_path: Path) -> None:
    members = Members(tmp_path, "ppo")
    try:
        ours = members.ours[0]
        async with stream(members) as client:
            await publish(client, 10, "one")
            await until(members.same, 30)
            await handed(client, "C")
            await members.leads(ours)
            await publish(client, 40, "two")
            # The window of ids is the group's, not the leader's.
            ack = await client.jetstream().publish("s.1", b"", headers={"Nats-Msg-Id": "one 3"})
            assert ack.duplicate and ack.seq == 4
            assert members.ask(ours, "delete", how={"seq": 12, "erase": True})
            assert members.ask(ours, "purge", how={"keep": 30})
            await until(lambda: members.state(ours)["messages"] == 30, 10)
            await publish(client, 10, "three")
            assert members.ask(ours, "hand_over")
            await until(lambda: not members.state(ours)["leads"], 30)
            await publish(client, 10, "four")
            assert await compare(members, client) == 50
    finally:
        end(members)


@asynchronous
async def test_ours_leads_after_the_leader_is_killed(tmp_path: Path) -> None:
    """Nothing that was acked is lost, and the killed one has all when it is back."""
    members = Members(tmp_path, "poo")
    try:
        real = members.real[0]
        async with stream(members) as client:
            await publish(client, 20, "one")
            await until(members.same, 30)
            await led_by_real(members)
        real.kill()

        def leader() -> Server | None:
            return next((one for one in members.ours if members.state(one)["leads"]), None)

        await until(lambda: leader() is not None, 30)
        found = leader()
        assert found is not None
        async with connected(found) as client:
            await publish(client, 30, "two")
        await until(members.same, 30)
        assert members.state(found)["messages"] == 50
        real.start()
        async with connected(real) as client:
            await until(members.same, 60)
            assert await compare(members, client) == 50
    finally:
        end(members)


@asynchronous
async def test_ours_has_the_same_after_every_start(tmp_path: Path) -> None:
    """After a kill and after a stop, with the log from its beginning, and what came meanwhile."""
    members = Members(tmp_path, "ppo")
    try:
        ours = members.ours[0]
        async with stream(members, max_msgs=60) as client:
            for kill in (True, False):
                await publish(client, 30, f"up {kill}")
                await until(members.same, 30)
                (ours.kill if kill else ours.stop)()
                await publish(client, 20, f"down {kill}")
                ours.start()
                await until(lambda: bool(members.state(ours).get("current")), 60)
                await publish(client, 5, f"again {kill}")
                assert await compare(members, client) > 50
    finally:
        end(members)
