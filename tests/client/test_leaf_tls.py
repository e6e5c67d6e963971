"""Leaf nodes and hubs over TLS, of ours and of nats-server in any mixture."""

import socket
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from tests.certificates import Authority
from tests.client.aio import asynchronous, connected, until
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import page
from tests.client.tls import block
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")


def trusts(authority: Authority, more: str = "") -> str:
    """The block of a remote without a certificate."""
    return f'tls {{ ca_file: "{authority.cert}"\n{more} }}'


def leafs(server: Server) -> int:
    found: int = page(server, "leafz")["leafnodes"]
    return found


def joined(tree: Tree) -> None:
    wait_until(lambda: all(leafs(one) == 1 for one in tree.members), "the leaf node is there", 20)


def fails(server: Server, what: str) -> None:
    wait_until(lambda: what in server.log(), what, 30)


def start(servers: Servers, kinds: str, hub: str, remote: str, **options: str) -> Tree:
    tree = Tree(servers)
    tree.add_hub(kinds[0], block=hub, monitor=True)
    tree.add_leaf(kinds[1], remote=remote, monitor=True, **options)
    return tree


async def _echo(message: Msg) -> None:
    await message.respond(message.data)


async def speak(tree: Tree) -> None:
    """A request from either side, of some size."""
    async with connected(tree.hub) as hub, connected(tree.members[1]) as leaf:
        for here, there, subject in ((hub, leaf, "up"), (leaf, hub, "down")):
            await there.subscribe(subject, cb=_echo)
            await there.flush()
            sent = subject.encode() * 40_000

            assert await _answer(here, subject, sent) == sent


async def _answer(client: Client, subject: str, data: bytes) -> bytes:
    """Once the other side's interest has come."""
    found: list[bytes] = []

    async def answered() -> bool:
        try:
            found.append((await client.request(subject, data, timeout=1)).data)
        except Error:
            return False
        return True

    await until(answered)
    return found[0]


@pytest.mark.parametrize("way", ["plain", "first", "auto", "verify", "url", "uncompressed"])
@pytest.mark.parametrize("kinds", MIXED)
@asynchronous
async def test_messages_cross(servers: Servers, authority: Authority, kinds: str, way: str) -> None:
    own = authority.server()
    hub, remote, options = block(own, authority), trusts(authority), {}
    if way == "first":
        hub = block(own, authority, "handshake_first: true")
        remote = trusts(authority, "handshake_first: true")
    elif way == "auto":
        hub = block(own, authority, "handshake_first: 100ms")
    elif way == "verify":
        hub = block(own, authority, "verify: true")
        remote = block(authority.issue("CN=leaf"), authority)
    elif way == "uncompressed":
        hub, remote = f"{hub}\ncompression: off", f"{remote}\ncompression: off"
    tree = Tree(servers)
    tree.add_hub(kinds[0], block=hub, monitor=True)
    if way == "url":
        options["url"] = tree.url.replace("nats://", "tls://")
    tree.add_leaf(kinds[1], remote=remote, monitor=True, **options)
    joined(tree)
    await speak(tree)


@pytest.mark.parametrize("kinds", MIXED)
def test_a_stranger_is_not_believed(
    servers: Servers, authority: Authority, tmp_path: Path, kinds: str
) -> None:
    """Neither a hub of another authority, also where the remote says nothing of TLS, nor a leaf
    node of another one."""
    other = Authority(tmp_path / "theirs", "CN=somebody else")
    hub = block(authority.server(), authority, "verify: true")
    own = block(other.issue("CN=leaf"), authority)
    tree = start(servers, kinds, hub, own)
    fails(tree.hub, "TLS leafnode handshake error")
    for remote in (trusts(other), ""):
        tree.add_leaf(kinds[1], remote=remote, monitor=True)
        fails(tree.members[-1], "TLS leafnode handshake error: tls: failed to verify certificate")
    assert leafs(tree.hub) == 0


@pytest.mark.parametrize("kinds", MIXED)
def test_a_leaf_node_without_a_certificate(
    servers: Servers, authority: Authority, kinds: str
) -> None:
    hub = block(authority.server(), authority, "verify: true")
    tree = start(servers, kinds, hub, trusts(authority))
    fails(tree.hub, "TLS leafnode handshake error: tls: client didn't provide a certificate")
    assert leafs(tree.hub) == 0


@pytest.mark.parametrize("kinds", MIXED)
def test_whose_name_is_another_one(servers: Servers, authority: Authority, kinds: str) -> None:
    """Unless who dials does not look, or another URL has a name."""
    issued = authority.issue("CN=hub", dns=("localhost",))
    tree = start(servers, kinds, block(issued, authority), trusts(authority))
    fails(tree.members[1], "TLS leafnode handshake error: tls: failed to verify certificate")
    assert leafs(tree.hub) == 0
    tree.add_leaf(kinds[1], remote=trusts(authority, "insecure: true"), monitor=True)
    wait_until(lambda: leafs(tree.hub) == 1, "one does not look", 20)
    by_name = tree.url.replace("127.0.0.1", "localhost")
    tree.add_leaf(kinds[1], remote=trusts(authority), url=by_name, monitor=True)
    wait_until(lambda: leafs(tree.hub) == 2, "one goes by the name", 20)


@pytest.mark.parametrize("way", ["hub", "leaf"])
@pytest.mark.parametrize("kinds", MIXED)
def test_only_keys_that_are_pinned(
    servers: Servers, authority: Authority, kinds: str, way: str
) -> None:
    """A leaf node has those in its own `leafnodes` block, as nats-server has."""
    own, leaf = authority.server(), authority.issue("CN=leaf")
    other = f'pinned_certs: ["{"ab" * 32}"]'
    if way == "hub":
        tree = start(
            servers,
            kinds,
            block(own, authority, f'verify: true\npinned_certs: ["{leaf.pin}"]'),
            block(leaf, authority),
        )
        joined(tree)
        tree.add_leaf(kinds[1], remote=block(own, authority), monitor=True)
        fails(tree.hub, "TLS leafnode handshake error: certificate not pinned")
        assert leafs(tree.hub) == 1
    else:
        tree = start(servers, kinds, block(own, authority), trusts(authority, other))
        joined(tree)
        tree.add_leaf(
            kinds[1], remote=trusts(authority), block=block(own, authority, other), monitor=True
        )
        fails(tree.members[-1], "TLS leafnode handshake error: certificate not pinned")


@pytest.mark.parametrize("kinds", MIXED)
def test_who_has_no_tls(servers: Servers, authority: Authority, kinds: str) -> None:
    """A hub without TLS is not spoken to by who wants it."""
    tree = start(servers, kinds, "", trusts(authority))
    fails(tree.hub, "Leafnode connection closed: Authentication Failure")
    assert leafs(tree.hub) == 0


@pytest.mark.parametrize("first", ["hub", "leaf"])
@pytest.mark.parametrize("kinds", MIXED)
def test_one_side_wants_the_handshake_first(
    servers: Servers, authority: Authority, kinds: str, first: str
) -> None:
    more = "handshake_first: true"
    hub = block(authority.server(), authority, more if first == "hub" else "")
    tree = start(servers, kinds, hub, trusts(authority, more if first == "leaf" else ""))
    fails(tree.hub, "Leafnode connection closed: TLS Handshake Failure")
    assert leafs(tree.hub) == 0


@pytest.mark.parametrize("where", ["own", "clients", "none", "single"])
@pytest.mark.parametrize("kinds", MIXED)
def test_a_certificate_says_who_it_is(
    servers: Servers, authority: Authority, kinds: str, where: str
) -> None:
    """By the users of the block, or by those of clients; a login of all leaf nodes is asked for."""
    name = "other@example.com" if where == "none" else "leaf@example.com"
    accounts = "accounts { A { users: [] } }"
    user = f'users: [ {{ user: "{name}", password: "", account: A }} ]'
    hub = block(authority.server(), authority, "verify_and_map: true")
    rest = accounts
    if where == "clients":
        rest = f'accounts {{ A {{ users: [ {{ user: "{name}" }} ] }} }}'
    elif where == "single":
        hub += f'\nauthorization {{ user: "{name}", password: secret }}'
    else:
        hub += f"\nauthorization {{ {user} }}"
    tree = Tree(servers)
    tree.add_hub(kinds[0], block=hub, rest=rest, monitor=True)
    issued = authority.issue("CN=somebody", emails=("leaf@example.com",))
    tree.add_leaf(kinds[1], remote=block(issued, authority), monitor=True)
    if where in ("none", "single"):
        fails(tree.hub, "authentication error")
        assert leafs(tree.hub) == 0
    else:
        joined(tree)
        assert page(tree.hub, "leafz")["leafs"][0]["account"] == "A"


@pytest.mark.parametrize("kinds", MIXED)
def test_a_silent_peer_is_cut_in_time(servers: Servers, authority: Authority, kinds: str) -> None:
    """The block's `timeout` holds for who connects and makes no handshake."""
    tree = Tree(servers)
    own = authority.server()
    hub = block(own, authority).replace("timeout: 5", "timeout: 1.5")
    tree.add_hub(kinds[0], block=hub)
    with socket.create_connection(("127.0.0.1", tree.port), 10) as silent:
        silent.settimeout(10)
        assert silent.recv(65536).startswith(b"INFO ")
        rest = b""
        while got := silent.recv(65536):
            rest += got
        assert rest == b""
