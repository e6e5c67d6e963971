"""Leaf nodes that connect over WebSocket, to hubs of ours and of nats-server in any mixture."""

import asyncio
import contextlib
import os
import random
import socket
from pathlib import Path

import pytest

from jsserver.text.http import read_head, websocket_accept
from tests.certificates import Authority
from tests.client.aio import asynchronous
from tests.client.exchanges import (
    plain_messages_reach_all_in_order,
    requests_are_answered_from_everywhere,
)
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import NEWEST, clients_of, page
from tests.client.raw import RawApp
from tests.client.tls import block
from tests.servers import Server, Servers, free_port
from tests.waiting import wait_until
from tests.websocket import FINAL, RSV1, frame, request

pytestmark = pytest.mark.usefixtures("peer_present")

NEWEST_KINDS = [pytest.param(kinds, marks=NEWEST) for kinds in ("on", "no")]
WAYS = {
    "masked": ("", ""),
    "unmasked": ("", "ws_no_masking: true"),
    "compressed": ("compression: true", "ws_compression: true"),
    "compressed here alone": ("", "ws_compression: true"),
    "compressed and unmasked": ("compression: true", "ws_compression: true, ws_no_masking: true"),
}
"""What the hub's `websocket` block says, and the leaf node's remote."""
ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
    b"client_no_context_takeover\r\nSec-WebSocket-Accept: %s\r\n\r\n"
)


def start(
    servers: Servers, kinds: str, hub: str = "", remote: str = "", **options: str
) -> tuple[Tree, int]:
    """A hub with a port for WebSocket, and a leaf node that connects there, behind a path."""
    tree, port = Tree(servers), free_port()
    rest = f'websocket {{ listen: "127.0.0.1:{port}"\n{hub or "no_tls: true"} }}'
    rest += options.pop("rest", "")
    block = options.pop("block", "")
    tree.add_hub(kinds[0], rest=rest, block=block, monitor=True)
    url = options.pop("url", "ws://127.0.0.1:{}/some/path").format(port)
    tree.add_leaf(kinds[1], url=url, remote=remote, monitor=True, **options)
    return tree, port


def leafs(server: Server) -> int:
    found: int = page(server, "leafz")["leafnodes"]
    return found


def joined(tree: Tree) -> None:
    wait_until(lambda: all(leafs(one) == 1 for one in tree.members), "the leaf node is there", 20)


async def exchange(tree: Tree) -> None:
    async with clients_of(tree.members) as members:
        await plain_messages_reach_all_in_order(members, 300)
        await requests_are_answered_from_everywhere(members, 50)
        # Of many sizes, some of which can be compressed.
        sizes = [1, 100, 125, 126, 5000, 65_535, 65_536, 1_000_000]
        for here, there in (members, members[::-1]):
            got: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(message: object, got: asyncio.Queue[bytes] = got) -> None:
                got.put_nowait(message.data)  # type: ignore[attr-defined]

            subject = f"sizes.{id(got)}"
            subscription = await there.subscribe(subject, cb=take)
            await plain_interest(here, there, subject)
            for size in sizes:
                for data in (os.urandom(size), b"abc" * (size // 3 + 1)):
                    await here.publish(subject, data)
                    assert await asyncio.wait_for(got.get(), 20) == data
            await subscription.unsubscribe()


async def plain_interest(here: object, there: object, subject: str) -> None:
    """Waits until the server of `here` knows of what was subscribed at the server of `there`."""
    inbox = await there.subscribe("met." + subject)  # type: ignore[attr-defined]
    while True:
        await here.publish("met." + subject, b"")  # type: ignore[attr-defined]
        try:
            await inbox.next_msg(timeout=0.2)
            break
        except Exception:  # not yet
            continue
    await inbox.unsubscribe()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kinds", [*MIXED, *NEWEST_KINDS])
@asynchronous
async def test_messages_cross_frames(servers: Servers, kinds: str, way: str) -> None:
    hub, remote = WAYS[way]
    tree, _ = start(servers, kinds, f"no_tls: true\n{hub}", remote)
    joined(tree)
    await exchange(tree)


@pytest.mark.parametrize("kinds", MIXED)
@asynchronous
async def test_frames_are_encrypted(servers: Servers, kinds: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    remote = f'tls {{ ca_file: "{authority.cert}" }}'
    hub = block(authority.server(), authority)
    tree, _ = start(servers, kinds, hub, remote, url="wss://localhost:{}")
    joined(tree)
    await exchange(tree)


@pytest.mark.parametrize("kinds", MIXED)
def test_a_leaf_node_comes_back(servers: Servers, kinds: str) -> None:
    tree, _ = start(servers, kinds)
    joined(tree)
    tree.hub.stop()
    tree.hub.start()
    joined(tree)


@pytest.mark.parametrize("kinds", MIXED)
@pytest.mark.parametrize("allowed", ["LEAFNODE_WS", "LEAFNODE"])
def test_users_may_be_limited_to_websocket(servers: Servers, kinds: str, allowed: str) -> None:
    user = f'{{ user: u, password: p, allowed_connection_types: ["{allowed}"] }}'
    rest = f"\nauthorization {{ users: [ {user} ] }}"
    tree = Tree(servers)
    port = free_port()
    listen = f'websocket {{ listen: "127.0.0.1:{port}"\nno_tls: true }}'
    tree.add_hub(kinds[0], rest=listen + rest, monitor=True)
    tree.add_leaf(kinds[1], url=f"ws://u:p@127.0.0.1:{port}", monitor=True)
    if allowed == "LEAFNODE_WS":
        joined(tree)
    else:
        wait_until(lambda: "uthorization Violation" in tree.members[1].log(), "a refusal", 20)


@pytest.mark.parametrize("kind", "op")
def test_a_hub_without_leafnodes_refuses(servers: Servers, kind: str) -> None:
    port = free_port()
    config = f'websocket {{ listen: "127.0.0.1:{port}"\nno_tls: true }}'
    hub = servers.of_kind(kind, config=config)
    Tree(servers).add_leaf("o", url=f"ws://127.0.0.1:{port}")
    said = "Not configured to accept leaf node connections"
    wait_until(lambda: said in hub.log(), said, 20)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "the answer has status 404"),
        (b"garbage\r\n\r\n", "malformed status line"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: wrong\r\n\r\n",
            "invalid websocket connection",
        ),
        (b"x" * 70_000, "invalid websocket connection"),
    ],
)
def test_answers_that_are_none_are_refused(servers: Servers, answer: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(30)
        leaf = Tree(servers).add_leaf("o", url=f"ws://127.0.0.1:{hub.getsockname()[1]}")
        for _ in range(2):  # and dials again
            peer, _ = hub.accept()
            with peer:
                peer.settimeout(30)
                assert peer.recv(4096).startswith(b"GET /leafnode HTTP/1.1\r\n")
                peer.sendall(answer)
                while peer.recv(4096):
                    pass
        said = "Error soliciting websocket connection: invalid websocket connection"
        wait_until(lambda: said in leaf.log() and why in leaf.log(), why, 20)


CONNECT = b'CONNECT {"name":"L","version":"2.14.5","headers":true,"cluster":"L"}\r\n'
INFO = b'INFO {"server_id":"X","client_id":3,"leafnode_urls":[],"info_on_connect":true}\r\n'


def noise(rnd: random.Random, masked: bool) -> bytes:
    """Bytes that are no frames, frames without sense, and lines that are not allowed."""
    return rnd.choice([
        rnd.randbytes(rnd.randrange(1, 500)),
        frame(rnd.randbytes(200), masked=masked),
        frame(b"broken", first=FINAL | RSV1, masked=masked),
        frame(b"LMSG a 5\r\nhello\r\n" * 500, masked=masked),
        frame(b"LS+ " + b"a" * 100_000 + b"\r\n", masked=masked),
    ])  # fmt: skip


def serves(server: Server) -> None:
    with RawApp(server.port) as client:
        client.sync()
    assert "Internal error" not in server.log()
    assert leafs(server) == 0


def test_a_hub_outlives_noise(servers: Servers) -> None:
    tree, port = start(servers, "oo", "no_tls: true\ncompression: true")
    tree.members[1].stop()
    rnd = random.Random(1)
    asked = request("/leafnode", sec_websocket_extensions="permessage-deflate")
    for number in range(60):
        with socket.create_connection(("127.0.0.1", port)) as peer, contextlib.suppress(OSError):
            peer.settimeout(30)
            peer.sendall(asked)
            peer.recv(4096)
            peer.sendall(frame(CONNECT) if number % 3 else b"")
            for _ in range(3):
                peer.sendall(noise(rnd, masked=True))
    wait_until(lambda: leafs(tree.hub) == 0, "all are cut", 20)
    serves(tree.hub)


def test_a_leaf_node_outlives_noise(servers: Servers) -> None:
    rnd = random.Random(1)
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(30)
        url = f"ws://127.0.0.1:{hub.getsockname()[1]}"
        tree = Tree(servers)
        leaf = tree.add_leaf("o", url=url, remote="ws_compression: true", monitor=True)
        for _ in range(12):
            peer, _ = hub.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(30)
                head = read_head(peer.recv(4096).rstrip(b"\r\n"))
                accept = websocket_accept(head.get(b"sec-websocket-key"))
                peer.sendall(ANSWER % accept + rnd.choice([b"", frame(INFO, masked=False)]))
                peer.sendall(noise(rnd, masked=False))
        serves(leaf)
