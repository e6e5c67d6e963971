"""Clusters whose gateways show each other certificates, of ours and of nats-server in mixture."""

from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.client.aio import asynchronous
from tests.client.gateways import Supercluster
from tests.client.mesh import clients_of, page
from tests.client.tls import block
from tests.servers import Server, Servers, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

PAIRS = ("o-p", "p-o", "o-o")


def dials(server: Server) -> bool:
    """Whether it has a connection to another cluster."""
    return bool(page(server, "gatewayz")["outbound_gateways"])


def linked(server: Server) -> bool:
    """Whether it also has one from there."""
    return dials(server) and any(page(server, "gatewayz")["inbound_gateways"].values())


def fails(server: Server, what: str) -> None:
    wait_until(lambda: what in server.log(), what, 30)


def pair(servers: Servers, kinds: str, *blocks: str) -> Supercluster:
    """Two clusters of a server each, with these in their `gateway`."""
    both = Supercluster(servers)
    ports = [free_port(), free_port()]
    named = ", ".join(
        f'{{ name: {name}, urls: ["nats://127.0.0.1:{port}"] }}'
        for name, port in zip("AB", ports, strict=True)
    )
    for name, kind, port, own in zip("AB", kinds.split("-"), ports, blocks, strict=True):
        both.add(name, kind, port, f"gateways: [{named}]\n{own}", monitor=True)
    return both


@pytest.mark.parametrize("kinds", [*PAIRS, "op-o", "po-p"])
@asynchronous
async def test_messages_cross(servers: Servers, authority: Authority, kinds: str) -> None:
    """Also where servers are heard of, which have the names of those that are configured."""
    both = Supercluster(servers)
    own = authority.server()
    both.start(kinds, block=block(own, authority), monitor=True)
    wait_until(lambda: all(map(dials, both.members)), "all are joined", 30)
    first, last = both.clusters["A"].members[0], both.clusters["B"].members[-1]
    async with clients_of([first, last]) as (here, there):
        for asking, answering, subject in ((here, there, "there"), (there, here, "here")):
            heard = await answering.subscribe(subject)
            await answering.flush()
            data = subject.encode() * 30_000
            await asking.publish(subject, data)
            await asking.flush()
            assert (await heard.next_msg(10)).data == data


@pytest.mark.parametrize("kinds", PAIRS)
def test_a_stranger_stays_outside(
    servers: Servers, authority: Authority, tmp_path: Path, kinds: str
) -> None:
    """Neither side believes the other one's authority, and who has no TLS hears nothing."""
    other = Authority(tmp_path / "theirs", "CN=somebody else")
    own = block(authority.server(), authority)
    both = pair(servers, kinds, own, block(other.server(), other))
    for member in both.members:
        fails(member, "TLS gateway handshake error")
        assert not linked(member)
    both = pair(servers, kinds, own, "")
    fails(both.members[0], "TLS gateway handshake error")
    assert not any(linked(member) for member in both.members)


@pytest.mark.parametrize("kinds", PAIRS)
def test_only_keys_that_are_pinned(servers: Servers, authority: Authority, kinds: str) -> None:
    pinned, other = authority.server(), authority.server()
    more = f'pinned_certs: ["{pinned.pin}"]'
    own = block(pinned, authority, more)
    both = pair(servers, kinds, own, block(other, authority))
    fails(both.members[0], "TLS gateway handshake error: certificate not pinned")
    assert not linked(both.members[0])
    both = pair(servers, kinds, own, block(pinned, authority))
    wait_until(lambda: all(map(linked, both.members)), "the pinned one comes", 30)


@pytest.mark.parametrize("kinds", PAIRS)
def test_a_cluster_has_a_block_of_its_own(
    servers: Servers, authority: Authority, kinds: str
) -> None:
    """What stands at the other cluster's name holds for connections that are made to it."""
    issued = authority.issue("CN=gate", dns=("elsewhere.example",))
    own, ports = block(issued, authority), [free_port(), free_port()]
    both = Supercluster(servers)
    for name, kind, port, other in zip("AB", kinds.split("-"), ports, "BA", strict=True):
        trusting = block(issued, authority, "insecure: true")
        there = ports[1 - ports.index(port)]
        remote = f'{{ name: {other}, url: "nats://127.0.0.1:{there}"\n{trusting} }}'
        both.add(name, kind, port, f"{own}\ngateways: [{remote}]", monitor=True)
    wait_until(lambda: all(map(linked, both.members)), "they do not look at names", 30)
    both = pair(servers, kinds, own, own)
    for member in both.members:
        fails(member, "TLS gateway handshake error: tls: failed to verify certificate")
