"""The ways to a cluster: pools of any size, accounts with connections of their own, logins, names
that are made, members that come back."""

from typing import Any

import bcrypt
import pytest

from tests.client.aio import asynchronous, until
from tests.client.mesh import Cluster, clients, meet, page
from tests.servers import Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

ACCOUNTS = """
    accounts {
        ONE { users: [{ user: one, password: x }] }
        TWO { users: [{ user: two, password: x }] }
    }
"""
PAIRS = ("op", "po", "oo")


async def speak(cluster: Cluster, **options: Any) -> None:
    """Each member's clients get what the others send, once."""
    async with clients(cluster, **options) as members:
        got: list[tuple[int, bytes]] = []
        for number, client in enumerate(members):

            async def take(message: Any, number: int = number) -> None:
                got.append((number, message.data))

            await client.subscribe("news", cb=take)
        await meet(members)
        for number, client in enumerate(members):
            await client.publish("news", b"%d" % number)
            await client.flush()
        n = len(members)
        await until(lambda: len(got) >= n * n)
        await meet(members)
        assert sorted(got) == [(at, b"%d" % by) for at in range(n) for by in range(n)]


@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("sizes", [(-1, -1), (-1, 3), (3, -1), (1, 1), (1, 4), (5, 2)])
@asynchronous
async def test_pools_of_any_two_sizes(servers: Servers, kinds: str, sizes: tuple[int, int]) -> None:
    cluster = Cluster(servers)
    for kind, size in zip(kinds, sizes, strict=True):
        cluster.add(kind, block=f"pool_size: {size}", rest=ACCOUNTS)
    for user in ("one", "two"):
        await speak(cluster, user=user, password="x")


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_accounts_with_connections_of_their_own(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds, block="accounts: [ONE]", rest=ACCOUNTS)
    for user in ("one", "two"):
        await speak(cluster, user=user, password="x")


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_what_one_account_sends_no_other_hears(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds, rest=ACCOUNTS)
    async with (
        clients(cluster, user="one", password="x") as ones,
        clients(cluster, user="two", password="x") as twos,
    ):
        got: list[str] = []

        async def take(message: Any) -> None:
            got.append(message.data.decode())

        await ones[0].subscribe("news", cb=take)
        await meet(ones)
        await twos[1].publish("news", b"two")
        await twos[1].flush()
        await meet(twos)
        await ones[1].publish("news", b"one")
        await until(lambda: bool(got))
        assert got == ["one"]


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_a_login_of_members(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    block = "authorization { user: u, password: secret }"
    port = free_port()
    cluster.add(kinds[0], block=block, port=port, routes=[])
    url = f'"nats://u:secret@127.0.0.1:{port}"'
    cluster.add(kinds[1], block=f"{block}\nroutes: [{url}]", routes=[])
    await speak(cluster)


@pytest.mark.parametrize("kinds", [*PAIRS, "ooo"])
@asynchronous
async def test_a_login_of_members_with_a_hash(servers: Servers, kinds: str) -> None:
    """Members that hear of each other use the password in the URL of a route."""
    cluster = Cluster(servers)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(8, b"2a")).decode()
    block = f'authorization {{ user: u, password: "{hashed}", timeout: 10 }}'
    port = free_port()
    cluster.add(kinds[0], block=block, port=port, routes=[], monitor=True)
    url = f'"nats://u:secret@127.0.0.1:{port}"'
    for kind in kinds[1:]:
        cluster.add(kind, block=f"{block}\nroutes: [{url}]", routes=[], monitor=True)
    await speak(cluster)
    wrong = f'"nats://u:wrong@127.0.0.1:{port}"'
    stranger = cluster.add("o", block=f"{block}\nroutes: [{wrong}]", routes=[], monitor=True)
    await until(lambda: "Authorization Violation" in stranger.log(), 20)
    assert page(stranger, "routez")["num_routes"] == 0


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_names_that_are_made(servers: Servers, kinds: str) -> None:
    """All members take one of the names; a name that is configured wins. nats-server says of
    that one still that it was made, so it has to be larger than theirs."""
    cluster = Cluster(servers, name="")
    cluster.start(kinds)
    await speak(cluster)
    cluster.add("o", name="zzz")
    await speak(cluster)


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_a_member_comes_back(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds)
    await speak(cluster)
    for member in cluster.members:
        member.restart(kill=True)
        await speak(cluster)
