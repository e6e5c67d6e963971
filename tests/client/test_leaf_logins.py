"""Leaf nodes that prove who they are by nkeys and by tokens, ours and nats-server's on either
side."""

import base64
import binascii
import signal
from pathlib import Path

import pytest

from jsserver.text.identity import PREFIX_USER
from tests.client.aio import asynchronous, connected
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import meet, page
from tests.client.tokens import configured
from tests.jwts import Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Servers
from tests.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.parametrize("kinds", MIXED)]


def seed_of(signer: Signer) -> str:
    """The text of a user's seed."""
    raw = bytes([18 << 3 | PREFIX_USER >> 5, (PREFIX_USER & 31) << 3]) + signer.secret
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw).decode().rstrip("=")


def credentials(folder: Path, user: User) -> Path:
    path = folder / "leaf.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user.token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed_of(user)}\n------END USER NKEY SEED------\n"
    )
    return path


async def joined(tree: Tree, **hub: str) -> None:
    async with connected(tree.hub, **hub) as one, connected(tree.members[1]) as other:
        await meet([one, other])


@asynchronous
async def test_by_an_nkey_of_the_accounts(servers: Servers, kinds: str) -> None:
    key = Signer()
    rest = f"""
        accounts {{ A {{ users: [{{nkey: {key.public}}}, {{user: a, password: a}}] }} }}
    """
    tree = Tree(servers)
    tree.start(kinds, rest=rest, remote=f"nkey: {seed_of(key)}")
    await joined(tree, user="a", password="a")


@asynchronous
async def test_by_the_nkey_of_leaf_nodes(servers: Servers, kinds: str) -> None:
    key = Signer()
    tree = Tree(servers)
    block = f"authorization {{ nkey: {key.public} }}"
    tree.start(kinds, block=block, remote=f"seed: {seed_of(key)}")
    await joined(tree)


@asynchronous
async def test_by_a_token(servers: Servers, kinds: str, tmp_path: Path) -> None:
    operator = Operator()
    account = Account(operator, name="MAIN")
    path = credentials(tmp_path, User(account))
    tree = Tree(servers)
    rest = configured(operator, [account]).replace("server_name: one\n", "")
    tree.start(kinds, rest=rest, remote=f'credentials: "{path}"')
    user = User(account)

    def signature(nonce: str) -> bytes:
        return base64.b64encode(user.sign(nonce.encode()))

    async with (
        connected(
            tree.hub,
            user_jwt_cb=lambda: user.token.encode(),
            signature_cb=signature,
        ) as one,
        connected(tree.members[1]) as other,
    ):
        await meet([one, other])


@asynchronous
async def test_as_a_user_of_several_accounts(servers: Servers, kinds: str) -> None:
    """Two accounts here are joined to two there, and their messages do not mix."""
    rest = """
        accounts {
            A { users: [{user: a, password: a}] }
            B { users: [{user: b, password: b}] }
        }
    """
    tree = Tree(servers)
    tree.add_hub(kinds[0], rest=rest)
    url = tree.url.replace("//", "//b:b@")
    remote = f"""account: A }}, {{ url: "{tree.url.replace("//", "//a:a@")}", account: B"""
    tree.add_leaf(kinds[1], url=url, remote=remote, rest=rest)
    async with (
        connected(tree.hub, user="b", password="b") as hub,
        connected(tree.members[1], user="a", password="a") as leaf,
        connected(tree.members[1], user="b", password="b") as stranger,
    ):
        await meet([hub, leaf])
        heard = await stranger.subscribe(">")
        await stranger.flush()
        await hub.publish("news", b"")
        await meet([hub, leaf])
        assert heard.pending_msgs == 0


@asynchronous
async def test_a_reload_ends_those_who_may_not_stay(servers: Servers, kinds: str) -> None:
    """The leaf node of a user who is another one now is cut, and not let in again; nats-server lets
    it stay until it comes anew."""
    if kinds[0] == "p":
        pytest.skip("of a hub of ours")
    users = "accounts {{ A {{ users: [{{user: a, password: {}}}, {{user: b, password: b}}] }} }}"
    tree = Tree(servers)
    tree.start(kinds, rest=users.format("a"), url=tree.url.replace("//", "//a:a@"))
    await joined(tree, user="b", password="b")
    tree.hub.config = tree.hub.config.replace("password: a}", "password: other}")
    (tree.hub.folder / "server.conf").write_text(tree.hub.config)
    assert tree.hub.process is not None
    tree.hub.process.send_signal(signal.SIGHUP)
    tree.hub.wait_log("Reloaded server configuration")
    tree.hub.wait_log("authentication error")


@asynchronous
async def test_no_more_leaf_nodes_than_an_account_may_have(servers: Servers, kinds: str) -> None:
    users = "users: [{user: a, password: a}], limits { max_leafnodes: 1 }"
    tree = Tree(servers)
    tree.add_hub(kinds[0], rest=f"accounts {{ A {{ {users} }} }}")
    url = tree.url.replace("//", "//a:a@")
    tree.add_leaf(kinds[1], url=url)
    await joined(tree, user="a", password="a")
    tree.add_leaf(kinds[1], url=url).wait_log("maximum account active connections exceeded")


def test_by_a_token_where_no_client_was_before(
    servers: Servers, kinds: str, tmp_path: Path
) -> None:
    """The account is fetched for the leaf node."""
    operator = Operator()
    account = Account(operator, name="MAIN")
    path = credentials(tmp_path, User(account))
    tree = Tree(servers)
    rest = configured(operator, [account]).replace("server_name: one\n", "")
    tree.add_hub(kinds[0], rest=rest)
    tree.add_leaf(kinds[1], remote=f'credentials: "{path}"', monitor=True)
    wait_until(lambda: page(tree.members[1], "/leafz")["leafnodes"] == 1, "the leaf node is in")


@pytest.mark.parametrize("most", [0, 1])
def test_no_more_leaf_nodes_than_a_token_says(
    servers: Servers, kinds: str, most: int, tmp_path: Path
) -> None:
    operator = Operator()
    account = Account(operator, name="MAIN")
    account.token = account.limited(leaf=most)
    path = credentials(tmp_path, User(account))
    tree = Tree(servers)
    rest = configured(operator, [account]).replace("server_name: one\n", "")
    tree.add_hub(kinds[0], rest=rest)
    leafs = [tree.add_leaf(kinds[1], remote=f'credentials: "{path}"') for _ in range(most + 1)]
    refused = "maximum account active connections exceeded"
    wait_until(lambda: any(refused in leaf.log() for leaf in leafs), "a leaf node is refused")
