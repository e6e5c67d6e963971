"""Leaf nodes behind proxies: hubs that demand trusted ones, and remotes dialled through an HTTP
proxy; as with nats-server."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jsserver.text.identity import PREFIX_SERVER
from tests.certificates import Authority
from tests.client.aio import asynchronous, connected
from tests.client.leafs import Tree
from tests.client.mesh import meet
from tests.client.test_leaf_refusals_diff import Dialled, both
from tests.client.tls import block
from tests.nkeys import Signer
from tests.servers import ServerFailed, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

PROXY, STRANGER = Signer(PREFIX_SERVER), Signer(PREFIX_SERVER)
TRUSTED = f"proxies {{ trusted: [ {{ key: {PROXY.public} }} ] }}"
BLOCKS = {
    "a user": "authorization { user: a, password: a, proxy_required: true }",
    "all users": "authorization { users: [ {user: a, password: a} ], proxy_required: true }",
    "one of users": "authorization { users: [ {user: a, password: a, proxy_required: true} ] }",
    "without logins": "authorization { proxy_required: true }",
}
SIGNERS = {"nobody": None, "the proxy": PROXY, "a stranger": STRANGER}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_hub_wants_a_trusted_proxy(servers: Servers, block: str) -> None:
    """What each leaf node hears: its answer, or an error."""

    def run(tree: Tree) -> list[bytes]:
        found = []
        for signer in SIGNERS.values():
            dialled = Dialled(tree.port)
            sig = signer and signer.signature(dialled.info["nonce"])
            dialled.connect(user="a", proxy_sig=sig, **{"pass": "a"})
            found.append(dialled.heard(b"INFO")[-1][:40].partition(b"{")[0])
            dialled.socket.close()
        return found

    ours, peers = both(servers, run, block=BLOCKS[block], rest=TRUSTED)
    assert ours == peers


# ---- through an HTTP proxy


class HttpProxy:
    """Takes CONNECT, and connects; `login` of None: everybody may come."""

    def __init__(self, login: str | None = None) -> None:
        self.login = login
        self.asked: list[list[str]] = []
        """The heads of requests, as lines."""
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["HttpProxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        self.asked.append(lines)
        if self.login is not None and not any(self._fits(line) for line in lines):
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        host, _, port = lines[0].split()[1].rpartition(":")
        there, out = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        for source, sink in ((reader, out), (there, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def _fits(self, line: str) -> bool:
        name, _, value = line.partition(": ")
        word = base64.b64encode((self.login or "").encode()).decode()
        return name == "Proxy-Authorization" and value == f"Basic {word}"


def hub(servers: Servers, kind: str, tls: str = "no_tls: true") -> tuple[Tree, int]:
    """A hub with a port for WebSocket."""
    tree, port = Tree(servers), free_port()
    tree.add_hub(kind, rest=f'websocket {{ listen: "127.0.0.1:{port}"\n{tls} }}', monitor=True)
    return tree, port


def said(lines: list[str]) -> list[str]:
    """What a proxy was asked, without the name of the software."""
    return [line for line in lines if not line.startswith("User-Agent")]


@pytest.mark.parametrize("scheme", ["ws", "nats"])
@asynchronous
async def test_a_hub_is_reached_through_a_proxy(servers: Servers, scheme: str) -> None:
    """nats-server says that its proxies are for WebSocket, and dials all hubs through them."""
    found = []
    for kind in "op":
        tree, port = hub(servers, "p" if kind == "o" else "o")
        url = f"ws://127.0.0.1:{port}" if scheme == "ws" else tree.url
        async with HttpProxy("me:secret").listening() as proxy:
            remote = f'proxy {{ url: "http://127.0.0.1:{proxy.port}"'
            remote += ", username: me, password: secret, timeout: 5s }"
            leaf = tree.add_leaf(kind, url=url, remote=remote)
            async with connected(tree.hub) as one, connected(leaf) as other:
                await meet([one, other])
            where = url.partition("//")[2]
            found.append([line.replace(where, "HUB") for line in said(proxy.asked[0])])
    assert found[0] == found[1] and found[0][0] == "CONNECT HUB HTTP/1.1"


@asynchronous
async def test_a_proxy_passes_tls_on(servers: Servers, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    tree, port = hub(servers, "o", block(authority.server(), authority))
    async with HttpProxy().listening() as proxy:
        remote = f'proxy {{ url: "http://127.0.0.1:{proxy.port}" }}'
        remote += f'\ntls {{ ca_file: "{authority.cert}" }}'
        leaf = tree.add_leaf("o", url=f"wss://localhost:{port}", remote=remote)
        async with connected(tree.hub) as one, connected(leaf) as other:
            await meet([one, other])
        assert proxy.asked


LATE = b""
FAILURES = {
    "a wrong login": (
        b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
        "proxy CONNECT failed: 407 Proxy Authentication Required",
    ),
    "no answer": (LATE, "failed to read proxy response: "),
    "no HTTP": (b"SSH-2.0-x\r\n\r\n", "failed to read proxy response: "),
    "the end": (b"HTTP/1.1 200", "failed to read proxy response: unexpected EOF"),
}


@pytest.mark.parametrize("failure", FAILURES)
@asynchronous
async def test_why_a_proxy_does_not_connect(servers: Servers, failure: str) -> None:
    """The log says it, and the hub is dialled again; nobody waits longer than for the timeout."""
    says, expected = FAILURES[failure]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        if says is LATE:
            await reader.read()
        writer.close()

    proxy = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy:
        for kind in "op":
            remote = f'proxy {{ url: "http://127.0.0.1:{port}", timeout: 300ms }}'
            config = "connect_error_reports: 1"
            leaf = Tree(servers).add_leaf(kind, url="ws://127.0.0.1:9", remote=remote, rest=config)
            for attempt in (1, 2):
                where = f'remote server "127.0.0.1:9" (attempt {attempt}): {expected}'
                await asyncio.to_thread(leaf.wait_log, where)


@asynchronous
async def test_a_proxy_that_never_ends_its_answer(servers: Servers) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"a: b\r\n" * 1000)
                await writer.drain()

    proxy = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy:
        remote = f'proxy {{ url: "http://127.0.0.1:{port}" }}'
        leaf = Tree(servers).add_leaf("o", url="ws://127.0.0.1:9", remote=remote)
        await asyncio.to_thread(leaf.wait_log, "failed to read proxy response: it is too long")


@asynchronous
async def test_no_proxy_is_there(servers: Servers) -> None:
    for kind in "op":
        remote = f'proxy {{ url: "http://127.0.0.1:{free_port()}" }}'
        leaf = Tree(servers).add_leaf(kind, url="ws://127.0.0.1:80", remote=remote)
        await asyncio.to_thread(leaf.wait_log, "(attempt 1): failed to connect to proxy: ")


@pytest.mark.parametrize("more", ['url: "https://127.0.0.1:1"', "tls { insecure: true }"])
def test_tls_to_a_proxy_is_refused(servers: Servers, more: str) -> None:
    with pytest.raises(ServerFailed, match=r"TLS between a leaf node and its proxy .* available"):
        servers.under_test(
            config=f'leafnodes {{ remotes: [ {{ url: "ws://127.0.0.1:1", proxy {{ {more} }} }} ] }}'
        )
