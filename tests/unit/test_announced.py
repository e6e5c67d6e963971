"""Servers that other servers announce: how many of them are dialled at most, whatever comes."""

import asyncio
import random
from typing import Any

import pytest

from jsserver.links.gatewaymodel import GatewaySettings
from jsserver.links.gateways import ANNOUNCED_MAX as CLUSTERS_MAX
from jsserver.links.gateways import PLACES_MAX, Gateways
from jsserver.links.gatewaywords import GOSSIP, GatewayInfo
from jsserver.links.leafmodel import Address, LeafSettings, Remote
from jsserver.links.leafs import FOUND_MAX, Leafs
from jsserver.links.leafwords import LeafConnect, LeafInfo
from jsserver.links.mesh import ANNOUNCED_MAX, Mesh
from jsserver.links.model import Settings, Target
from jsserver.links.words import Info, connect_line, info_line
from jsserver.services.linked import begin_to_dial


class Driver:
    """Notes what it is asked for, and does nothing."""

    def __init__(self, **answers: Any) -> None:
        """`answers`: by the name of what is asked for; None elsewhere."""
        vars(self).update(answers)
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def note(*args: Any, **options: Any) -> None:
            self.asked.append((name, args))

        return note

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.asked)

    def warned(self) -> list[str]:
        return [args[1] for called, args in self.asked if called == "log" and args[0] == "warn"]


def body(line: bytes) -> bytes:
    return line.partition(b" ")[2].strip()


def text(info: Any) -> bytes:
    return body(info_line(info))


def test_servers_of_a_cluster() -> None:
    """A member that is broken or evil announces one server after another."""
    driver = Driver()
    settings = Settings(
        server_id="N", server_name="A", version="2.14.5", cluster="C", host="h", port=6222
    )
    mesh = Mesh(settings, [], driver, lambda: "", random.Random(1))
    target = Target(host="there", port=6222)
    mesh.targets.append(target)
    mesh.dialled(1, target, "", "there:6222")
    mesh.opened(1, "there:6222")
    known = Info(server_id="P", server_name="B", cluster="C", route_pool_size=3)
    mesh.info(1, text(known))
    for number in range(ANNOUNCED_MAX + 20):
        one = Info(server_id=f"X{number}", ip=f"nats-route://x{number}:6222/")
        mesh.info(1, text(one))
    assert len(mesh.targets) == ANNOUNCED_MAX + 1
    assert driver.count("dial") == ANNOUNCED_MAX
    assert f"{ANNOUNCED_MAX} announced servers are dialled already" in driver.warned()[0]
    assert driver.count("cut") == 0  # the link lives on


def outbound() -> tuple[Gateways, Driver]:
    """Gateways with a link to a cluster B."""
    driver = Driver(is_member=lambda name: False)
    settings = GatewaySettings(
        server_id="N", server_name="A", version="2.14.5", name="A", host="h", port=7222
    )
    gateways = Gateways(settings, [], driver, random.Random(1))
    gateways.heard(GatewayInfo(gateway="B", gateway_urls=["b:7222"], gateway_cmd=GOSSIP), 0.0)
    remote = gateways.remotes["B"]
    gateways.dialled(1, remote, remote.places[0], "b:7222")
    gateways.opened(1, "b:7222")
    first = GatewayInfo(server_id="P", server_name="P", gateway="B", gateway_iom=True)
    gateways.info(1, text(first), 0.0)
    return gateways, driver


def test_clusters() -> None:
    gateways, driver = outbound()
    for number in range(CLUSTERS_MAX + 20):
        one = GatewayInfo(gateway=f"X{number}", gateway_urls=["x:1"], gateway_cmd=GOSSIP)
        gateways.info(1, text(one), 0.0)
    assert len(gateways.remotes) == CLUSTERS_MAX
    assert f"{CLUSTERS_MAX} announced clusters are dialled already" in driver.warned()[0]


def test_addresses_of_a_cluster() -> None:
    gateways, _ = outbound()
    for start in range(0, 2 * PLACES_MAX, 300):
        urls = [f"x{number}:7222" for number in range(start, start + 300)]
        gateways.heard(GatewayInfo(gateway="B", gateway_urls=urls, gateway_cmd=GOSSIP), 0.0)
    assert len(gateways.remotes["B"].places) == PLACES_MAX


def leafs() -> tuple[Leafs, Remote, Driver]:
    driver = Driver(sign=lambda remote, nonce: {}, most_leafs=lambda account: -1)
    settings = LeafSettings(server_id="N", server_name="A", version="2.14.5", host="h", port=7422)
    remote = Remote(addresses=[Address("there", 7422)], account="$G", compression="off")
    return Leafs(settings, [remote], driver, lambda: "nonce", random.Random(1)), remote, driver


def test_servers_of_a_hub() -> None:
    found, remote, _ = leafs()
    found.dialled(1, remote, "there:7422")
    found.opened(1, "there:7422", 0.0)
    urls = [f"x{number}:7422" for number in range(FOUND_MAX + 500)]
    urls[:0] = ["x\r\nProxy-Authorization: none:7422", "a b:7422", "x:port", "there:7422"]
    found.info(1, text(LeafInfo(server_id="P", client_id=1, leafnode_urls=urls)), 0.0)
    assert len(remote.found) == FOUND_MAX
    assert all(address.host.startswith("x") and len(address.host) < 9 for address in remote.found)


def test_the_name_of_a_leaf_nodes_cluster() -> None:
    """Each name is kept as long as the server runs."""
    found, _, driver = leafs()
    for number, name in ((1, "C" * 255), (2, "C" * 256)):
        found.opened(number, "there:7422", 0.0)
        found.connect(number, body(connect_line(LeafConnect(cluster=name))), 0.0)
        found.admitted(number, "$G", found._links[number].rules)
    assert driver.count("open_link") == 1
    assert driver.count("cut") == 1


@pytest.mark.parametrize(
    "where", [("127.0.0.1", 0), ("127.0.0.1", 65536), ("a\0b", 1), ("\udcff", 1), ("", 10**30)]
)
def test_addresses_that_are_none(where: tuple[str, int]) -> None:
    """Whoever dials such an address hears of it as of one that nobody answers at."""
    with pytest.raises(OSError):
        asyncio.run(begin_to_dial(*where))
