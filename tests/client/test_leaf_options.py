"""What options and permissions let through a leaf link, with ours and nats-server on either
side."""

import socket
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import clients_of, meet, page
from tests.client.test_leaf_refusals_diff import Dialled, loop_of
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ALL_WAYS = pytest.mark.parametrize("kinds", MIXED)
USERS = """
    accounts { A { users: [
        {user: a, password: a, permissions {
            publish: {allow: ["p.>", "probe.>", "_INBOX.>"], deny: ["p.no"]}
            subscribe: {allow: ["s.>", "probe.>", "_INBOX.>"], deny: ["s.no"]}}}
        {user: b, password: b}
    ] } }
"""


class Ear:
    """What a client hears."""

    def __init__(self) -> None:
        self.subjects: set[str] = set()

    async def listen(self, client: Client, *subjects: str) -> None:
        async def take(message: Any) -> None:
            self.subjects.add(message.subject)

        for subject in subjects:
            await client.subscribe(subject, cb=take)
        await client.flush()


async def exchanged(members: list[Client], listening: list[str], subjects: list[str]) -> list[Any]:
    """What each hears of what the others publish."""
    ears = [Ear() for _ in members]
    for ear, client in zip(ears, members, strict=True):
        await ear.listen(client, *listening)
    await meet(members)
    for number, client in enumerate(members):
        for subject in subjects:
            await client.publish(f"{subject}.{number}", b"")
        await client.flush()
    await meet(members)
    found = []
    for number, ear in enumerate(ears):
        others = (n for n in range(len(members)) if n != number)
        possible = {f"{subject}.{n}" for n in others for subject in subjects}
        found.append(sorted(ear.subjects & possible))
    return found


@ALL_WAYS
@asynchronous
async def test_denied_subjects(servers: Servers, kinds: str) -> None:
    tree = Tree(servers)
    remote = 'deny_imports: ["no.in.>"], deny_exports: ["no.out.*", "more.>"]'
    tree.start(kinds, remote=remote)
    async with clients_of(tree.members) as members:
        subjects = ["no.in", "no.out", "more", "yes"]
        for listening in ([">"], [f"{subject}.*" for subject in subjects]):
            at_hub, at_leaf = await exchanged(members, listening, subjects)
            assert at_leaf == ["more.0", "no.out.0", "yes.0"]
            # Through a wildcard nats-server as a leaf node keeps what it does not import to itself.
            assert [s for s in at_hub if s != "no.in.1"] == ["yes.1"]


@ALL_WAYS
@asynchronous
async def test_permissions_of_the_hub(servers: Servers, kinds: str) -> None:
    tree = Tree(servers)
    tree.start(kinds, rest=USERS, url=tree.url.replace("//", "//a:a@"))
    async with (
        connected(tree.hub, user="b", password="b") as hub,
        connected(tree.members[1]) as leaf,
    ):
        await meet([hub, leaf])
        subjects = ["p.yes", "p.no", "s.yes", "s.no", "other"]
        for listening in ([">"], ["p.>", "s.>", "other.*", "s.no.*"]):
            found = await exchanged([hub, leaf], listening, subjects)
            # What is denied is `p.no` itself, and here a token stands behind.
            assert found == [["p.no.1", "p.yes.1"], ["s.no.0", "s.yes.0"]]
        ears = [Ear(), Ear()]
        for ear, client in zip(ears, (hub, leaf), strict=True):
            await ear.listen(client, "p.*", "s.*")
        await meet([hub, leaf])
        for client, start in ((leaf, "p"), (hub, "s")):
            await client.publish(f"{start}.no", b"")
            await client.publish(f"{start}.last", b"")
        await until(lambda: "p.last" in ears[0].subjects and "s.last" in ears[1].subjects)
        assert "p.no" not in ears[0].subjects and "s.no" not in ears[1].subjects


@pytest.mark.parametrize("kinds", ["opp", "ppo", "ooo"])
@pytest.mark.parametrize("by", ["hub", "leaf"])
@asynchronous
async def test_leaf_nodes_apart(servers: Servers, kinds: str, by: str) -> None:
    """They hear the hub, and the hub hears them; of each other they hear nothing."""
    tree = Tree(servers)
    tree.add_hub(kinds[0], block="isolate_leafnode_interest: true" if by == "hub" else "")
    for kind in kinds[1:]:
        tree.add_leaf(kind, remote="request_isolation: true" if by == "leaf" else "")
    async with (
        connected(tree.hub) as hub,
        connected(tree.members[1]) as one,
        connected(tree.members[2]) as two,
    ):
        await meet([hub, one])
        await meet([hub, two])
        ears = [Ear(), Ear(), Ear()]
        for ear, client in zip(ears, (hub, one, two), strict=True):
            await ear.listen(client, f"to.{ears.index(ear)}.*")
        await meet([hub, one])
        await meet([hub, two])
        for number, client in enumerate((hub, one, two)):
            for other in range(3):
                await client.publish(f"to.{other}.{number}", b"")
            await client.flush()
        await meet([hub, one])
        await meet([hub, two])
        assert ears[0].subjects == {"to.0.0", "to.0.1", "to.0.2"}
        assert ears[1].subjects == {"to.1.0", "to.1.1"}
        assert ears[2].subjects == {"to.2.0", "to.2.2"}


@ALL_WAYS
@asynchronous
async def test_a_hub_that_dials(servers: Servers, kinds: str) -> None:
    tree = Tree(servers)
    tree.add_hub(kinds[0], monitor=True)
    tree.add_leaf(kinds[1], remote="hub: true", monitor=True)
    async with clients_of(tree.members) as members:
        assert await exchanged(members, ["x.*"], ["x"]) == [["x.1"], ["x.0"]]
    roles = [page(member, "leafz")["leafs"][0]["is_spoke"] for member in tree.members]
    assert roles == [True, False]


@pytest.mark.parametrize("kind", ["o", "p"])
def test_a_disabled_remote(servers: Servers, kind: str) -> None:
    tree = Tree(servers)
    leaf = tree.add_leaf(kind, remote="disabled: true", monitor=True)
    assert page(leaf, "leafz")["leafnodes"] == 0
    assert "Error trying to connect" not in leaf.log()


@pytest.mark.parametrize("kinds", ["ooo", "opo", "poo", "oop", "ppo"])
@asynchronous
async def test_a_circle_is_found(servers: Servers, kinds: str) -> None:
    """A is the hub of B and of C, and B is the hub of C. Which of the three hears of its own first
    is not said, nor on which of its connections."""
    first, second = Tree(servers), Tree(servers)
    around = [first.add_hub(kinds[0])]
    listen = f'listen: "127.0.0.1:{second.port}"'
    config = f'url: "{first.url}"'
    block = f"leafnodes {{ {listen}, remotes: [ {{ {config} }} ] }}"
    make = servers.under_test if kinds[1] == "o" else servers.peer
    around.append(make(config=f"server_name: B\n{block}"))
    around.append(second.add_leaf(kinds[2], remote=f'}}, {{ url: "{first.url}"'))
    found = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
    await until(lambda: any(found in member.log() for member in around))


@asynchronous
async def test_a_leaf_node_that_takes_nothing_is_cut(servers: Servers) -> None:
    """And harms nobody else."""
    tree = Tree(servers)
    tree.add_hub("o", rest="max_pending: 4MB, max_payload: 1MB")
    dialled = Dialled(tree.port)
    dialled.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    dialled.connect()
    loop_of(dialled)
    dialled.say(b"LS+ flood")
    async with connected(tree.hub) as one, connected(tree.hub) as other:
        heard = 0

        async def take(message: Any) -> None:
            nonlocal heard
            heard += len(message.data)

        await other.subscribe("flood", cb=take)
        await other.flush()
        payload = bytes(256 * 1024)
        for _ in range(200):
            await one.publish("flood", payload)
            await one.flush()
        await until(lambda: heard == 200 * len(payload))
        tree.hub.wait_log("Slow Consumer Detected")
        tree.hub.wait_log("Leafnode connection closed: Slow Consumer")
