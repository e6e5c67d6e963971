"""Clusters whose members show each other certificates, of ours and of nats-server in mixture."""

from pathlib import Path

import pytest

from tests.certificates import Authority, Issued
from tests.client.aio import asynchronous, until
from tests.client.mesh import Cluster, page
from tests.client.reloads import reload
from tests.client.test_route_ways import PAIRS, speak
from tests.client.tls import block
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

ROUTES_OF_A_PEER = 4


def here(authority: Authority) -> Issued:
    """For a server at 127.0.0.1."""
    return authority.issue("CN=member", ips=("127.0.0.1",))


def routes(server: Server) -> int:
    found: int = page(server, "routez")["num_routes"]
    return found


def fails(server: Server, what: str) -> None:
    wait_until(lambda: what in server.log(), what, 30)


@pytest.mark.parametrize("more", ["", "compression: s2_better"])
@pytest.mark.parametrize("kinds", [*PAIRS, "opo"])
@asynchronous
async def test_messages_cross(
    servers: Servers, authority: Authority, kinds: str, more: str
) -> None:
    """The last member is dialled by nobody, and dials by gossip, too."""
    cluster = Cluster(servers)
    for kind in kinds:
        secured = block(here(authority), authority)
        cluster.add(kind, block=f"{secured}\n{more}", monitor=True)
    await speak(cluster)
    wanted = (len(kinds) - 1) * ROUTES_OF_A_PEER
    await until(lambda: all(routes(one) == wanted for one in cluster.members), 20)


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_a_stranger_stays_outside(
    servers: Servers, authority: Authority, tmp_path: Path, kinds: str
) -> None:
    """Neither side believes the other one's authority."""
    other = Authority(tmp_path / "theirs", "CN=somebody else")
    cluster = Cluster(servers)
    cluster.add(kinds[0], block=block(here(authority), authority), monitor=True)
    cluster.add(kinds[1], block=block(here(other), other), monitor=True)
    for member in cluster.members:
        fails(member, "TLS route handshake error")
        assert routes(member) == 0


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_whose_name_is_another_one_is_not_dialled(
    servers: Servers, authority: Authority, kinds: str
) -> None:
    """Unless who dials does not look."""
    issued = authority.issue("CN=member", dns=("elsewhere.example",))
    cluster = Cluster(servers)
    cluster.add(kinds[0], block=block(issued, authority), monitor=True)
    cluster.add(kinds[1], block=block(issued, authority), monitor=True)
    fails(cluster.members[1], "TLS route handshake error")
    assert routes(cluster.members[0]) == routes(cluster.members[1]) == 0
    cluster.add(kinds[1], block=block(issued, authority, "insecure: true"), monitor=True)
    await until(lambda: routes(cluster.members[2]) >= ROUTES_OF_A_PEER, 20)


@asynchronous
async def test_a_name_of_a_url_is_the_certificate_s(servers: Servers, authority: Authority) -> None:
    """A member that is dialled by its name needs no address in its certificate."""
    issued = authority.issue("CN=member", dns=("localhost",))
    for kinds in PAIRS:
        cluster = Cluster(servers, kinds)
        cluster.add(kinds[0], block=block(issued, authority))
        block_by_name = (
            f'{block(issued, authority)}\nroutes: ["nats://localhost:{cluster.ports[0]}"]'
        )
        cluster.add(kinds[1], block=block_by_name, routes=[], monitor=True)
        await until(lambda m=cluster.members[1]: routes(m) == ROUTES_OF_A_PEER, 20)  # type: ignore[misc]


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_who_has_no_tls_stays_outside(
    servers: Servers, authority: Authority, kinds: str
) -> None:
    cluster = Cluster(servers)
    cluster.add(kinds[0], block=block(here(authority), authority), monitor=True)
    cluster.add(kinds[1], monitor=True)
    fails(cluster.members[0], "TLS route handshake error")
    assert routes(cluster.members[0]) == routes(cluster.members[1]) == 0


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_only_keys_that_are_pinned(
    servers: Servers, authority: Authority, kinds: str
) -> None:
    pinned, other = here(authority), here(authority)
    more = f'pinned_certs: ["{pinned.pin}"]'
    cluster = Cluster(servers)
    cluster.add(kinds[0], block=block(pinned, authority, more), monitor=True)
    cluster.add(kinds[1], block=block(other, authority), monitor=True)
    fails(cluster.members[0], "certificate not pinned")
    cluster.add(kinds[1], block=block(pinned, authority), monitor=True)
    await until(lambda: routes(cluster.members[2]) >= ROUTES_OF_A_PEER, 20)


@asynchronous
async def test_a_reload_takes_other_certificates(
    servers: Servers, authority: Authority, tmp_path: Path
) -> None:
    """They hold for connections that are made afterwards; those that are there stay."""
    other = Authority(tmp_path / "theirs", "CN=somebody else")
    before, after = block(here(authority), authority), block(here(other), other)
    cluster = Cluster(servers)
    for kind in "op":
        cluster.add(kind, block=before, monitor=True)
    member = cluster.members[0]
    await until(lambda: routes(member) == ROUTES_OF_A_PEER, 20)
    reload(member, member.config.replace(before, after))
    cluster.add("p", block=after, monitor=True)
    await until(lambda: routes(member) == 2 * ROUTES_OF_A_PEER, 20)
