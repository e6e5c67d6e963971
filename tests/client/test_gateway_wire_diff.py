"""What servers say to each other over gateways, line by line, ours beside nats-server: interest,
and messages with their replies."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected
from tests.client.dialled import GATEWAY, Dialled
from tests.client.gateways import Supercluster
from tests.servers import Server, Servers, free_port

HASH_OF_X = "Dglu96"
"""How replies name the cluster."""

pytestmark = pytest.mark.usefixtures("peer_present")


class Other:
    """A cluster X of one server, which is this test: it dials the server, and is dialled by it."""

    def __init__(self, servers: Servers, kind: str) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.url = f"127.0.0.1:{self._listening.getsockname()[1]}"
        port = free_port()
        self.server: Server = Supercluster(servers).add("A", kind, port, "")
        self.to = Dialled(port)
        own = {"gateway_url": self.url, "gateway_urls": [self.url]}
        self.to.say("CONNECT", GATEWAY.connect)
        self.to.say("INFO", GATEWAY.info | own)
        self.back, _ = self._listening.accept()
        self.back.settimeout(20)
        self.back.sendall(f"INFO {json.dumps(GATEWAY.info | own)} \r\n".encode())
        self.back_file = self.back.makefile("rb")
        self.told: list[str] = []

    def until(self, wanted: str) -> list[str]:
        """What the server tells of its interest, up to a line."""
        found: list[str] = []
        for line in self.to.file:
            text = line.decode().strip()
            if text == "PING":
                self.to.socket.sendall(b"PONG\r\n")
            elif text.startswith("INFO"):
                info = json.loads(text.removeprefix("INFO "))
                if info.get("gateway_cmd", 1) > 1 and info["gateway_cmd_payload"] == "JEc=":
                    found.append(f"{info['gateway_cmd']} {info['gateway_cmd_payload']}")
            elif text != "PONG" and " $SYS " not in text:
                found.append(text)
            if found and found[-1] == wanted:
                return found
        raise AssertionError(f"closed: {found}")

    def listens(self, *lines: str) -> None:
        """Tells the server of interest, and that this is all of $G."""
        text = "".join(f"{line}\r\n" for line in lines)
        begin, end = (
            json.dumps(GATEWAY.info | {"gateway_cmd": n, "gateway_cmd_payload": "JEc="})
            for n in (2, 3)
        )
        self.back.sendall(f"INFO {begin} \r\n{text}INFO {end} \r\nPING\r\n".encode())
        for line in self.back_file:
            if line == b"PONG\r\n":
                return

    def messages(self) -> Iterator[bytes]:
        """What comes over the server's own connection: messages, each with its line."""
        for line in self.back_file:
            if line.startswith((b"RMSG", b"HMSG")):
                size = int(line.split()[-1])
                yield line + self.back_file.read(size + 2)


async def of_both(servers: Servers, run: Any) -> list[Any]:
    found = []
    for kind in "po":
        other = Other(servers, kind)
        async with connected(other.server) as client:
            found.append(await run(other, client))
    return found


@asynchronous
async def test_interest_from_the_first_to_the_last(servers: Servers) -> None:
    async def run(other: Other, client: Client) -> list[str]:
        found = other.until("3 JEc=")[-2:]
        one = await client.subscribe("foo.*")
        two = await client.subscribe("foo.*")
        group = [await client.subscribe("bar", "q") for _ in range(3)]
        await client.flush()
        await one.unsubscribe()
        for subscription in group:
            await subscription.unsubscribe()
        await two.unsubscribe()
        await client.flush()
        return found + other.until("RS- $G foo.*")

    peers, ours = await of_both(servers, run)
    assert ours == peers
    assert [line for line in ours if line.startswith("RS")] == [
        "RS+ $G foo.*",
        "RS+ $G bar q 1",
        "RS- $G bar q",
        "RS- $G foo.*",
    ]


@asynchronous
async def test_messages_that_somebody_wants_alone(servers: Servers) -> None:
    async def run(other: Other, client: Client) -> list[bytes]:
        other.until("3 JEc=")
        other.listens("RS+ $G plain.*", "RS+ $G both", "RS+ $G both q1 1", "RS+ $G both q2 1")
        await client.publish("nobody", b"0")
        await client.publish("plain.1", b"1")
        await client.publish("both", b"22", headers={"A": "b"})
        await client.publish("both", b"3", reply="answers.go.here")
        await client.publish("plain.1", b"4", reply="answers.go.here")
        await client.subscribe("both", "q1")
        await client.publish("both", b"5")
        await client.flush()
        found = other.messages()
        return [b" ".join(sorted(next(found).split(b" "))) for _ in range(5)]

    peers, ours = await of_both(servers, run)
    assert ours == peers


@asynchronous
async def test_a_reply_that_is_new_is_mapped(servers: Servers) -> None:
    async def run(other: Other, client: Client) -> tuple[bool, bytes, bytes]:
        other.until("3 JEc=")
        other.listens("RS+ $G ask")
        answers: list[Any] = []
        await client.subscribe("my.answer")
        await client.publish("ask", b"1", reply="my.answer")
        subscription = await client.subscribe("second")
        await client.flush()
        line = next(other.messages()).split()
        reply = line[3].decode()
        prefix, cluster, server, rest = reply.split(".", 3)
        assert prefix == "_GR_"
        body = f"RMSG $G _GR_.{cluster}.{server}.second 2\r\nhi\r\n"
        other.to.socket.sendall(body.encode())
        answers.append(await subscription.next_msg(20))
        return rest == "my.answer", answers[0].subject.encode(), answers[0].data

    peers, ours = await of_both(servers, run)
    assert ours == peers == (True, b"second", b"hi")


@asynchronous
async def test_an_answer_goes_straight_back(servers: Servers) -> None:
    async def run(other: Other, client: Client) -> list[bytes]:
        other.until("3 JEc=")
        other.listens()
        seen: list[str] = []

        async def answer(message: Any) -> None:
            seen.append(message.reply)
            await message.respond(b"answer")

        await client.subscribe("service", "q", cb=answer)
        await client.flush()
        other.until("RS+ $G service q 1")
        asked = "RMSG $G service | q 2\r\nhi\r\n"
        reply = f"_GR_.{HASH_OF_X}.abcdef.my.inbox"
        asked += f"RMSG $G service + {reply} q 2\r\nhi\r\n"
        other.to.socket.sendall(asked.encode())
        found = await asyncio.to_thread(next, other.messages())
        await client.flush()
        return [found, *(s.encode() for s in seen)]

    peers, ours = await of_both(servers, run)
    assert ours == peers
    assert ours[0] == f"RMSG $G _GR_.{HASH_OF_X}.abcdef.my.inbox 6\r\nanswer\r\n".encode()
    assert ours[1:] == [b"", b"my.inbox"]


@asynchronous
async def test_a_message_for_an_account_that_is_not_there(servers: Servers) -> None:
    async def run(other: Other, client: Client) -> list[str]:
        other.until("3 JEc=")
        other.to.socket.sendall(b"RMSG NONE foo 2\r\nhi\r\n")
        return other.until("A- NONE")

    peers, ours = await of_both(servers, run)
    assert ours[-1:] == peers[-1:]
