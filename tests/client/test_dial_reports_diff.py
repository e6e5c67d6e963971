"""Which attempts to reach another server the log tells of as errors: as nats-server's does."""

import re
from functools import partial

import pytest

from tests.client.leafs import Tree
from tests.client.mesh import page
from tests.servers import Server, Servers, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

REPORTS = "debug: true\nconnect_error_reports: 3\nreconnect_error_reports: 2"


def told(server: Server) -> set[tuple[str, str, int]]:
    """What is said of attempts: the level, the first words, the number."""
    found = re.findall(r"\[(\w+)\] (?:.* - )?(\w+ \w+ ?\w+).*\(attempt (\d+)\)", server.log())
    return {(level, words, int(attempt)) for level, words, attempt in found}


def told_until(server: Server, last: int) -> set[tuple[str, str, int]]:
    wait_until(lambda: any(n == last + 1 for *_, n in told(server)), f"attempt {last + 1} is told")
    return {entry for entry in told(server) if entry[2] <= last}


def is_linked(leaf: Server) -> bool:
    return bool(page(leaf, "/leafz")["leafnodes"])


@pytest.mark.parametrize(
    "block",
    [
        'cluster {{ name: C, listen: "127.0.0.1:-1", routes: ["nats://127.0.0.1:{port}"] }}',
        'gateway {{ name: C, listen: "127.0.0.1:-1", '
        'gateways: [ {{ name: D, url: "nats://127.0.0.1:{port}" }} ] }}',
        'leafnodes {{ reconnect: 200ms, remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
    ],
    ids=["route", "gateway", "leaf"],
)
def test_a_server_that_was_never_there(servers: Servers, block: str) -> None:
    config = f"server_name: A\n{REPORTS}\n" + block.format(port=free_port())
    members = [make(config=config) for make in (servers.under_test, servers.peer)]
    ours, peers = (told_until(server, 3) for server in members)
    assert ours == peers


def test_a_server_that_was_there(servers: Servers) -> None:
    found = []
    for kind in "op":
        tree = Tree(servers)
        tree.add_hub("p")
        leaf = tree.add_leaf(kind, rest=REPORTS, monitor=True)
        wait_until(partial(is_linked, leaf), "the leaf node is there")
        tree.hub.kill()
        found.append(told_until(leaf, 4))
    assert found[0] == found[1]


def test_a_route_to_itself_is_no_error(servers: Servers) -> None:
    """Members may have the same list of routes, each its own among them."""
    for make in (servers.under_test, servers.peer):
        port = free_port()
        routes = f'listen: "127.0.0.1:{port}", routes: ["nats://127.0.0.1:{port}"]'
        server = make(config=f"debug: true\ncluster {{ name: C, {routes} }}", monitor=True)
        server.wait_log("Route connection created")
        server.wait_log("Router connection closed: Duplicate Route")
        wait_until(partial(has_no_route, server), "no route is left")
        assert "Error trying to connect" not in server.log()


def has_no_route(server: Server) -> bool:
    return bool(page(server, "/routez")["num_routes"] == 0)
