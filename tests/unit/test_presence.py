"""Servers of other clusters that are there, by what they tell of themselves."""

import pytest

from jsserver.config.gateways import Gateway, GatewayUrl, RemoteGateway
from jsserver.services import presence
from jsserver.services.presence import SILENT_MOST, Presence, elsewhere


class World:
    """Presence of A1, which has a route to A2, with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(presence, "monotonic", lambda: self.now)
        self.came = 0
        self.left: list[str] = []
        self.seen = Presence(lambda: ["A2"], "A1", lambda: "A", wide=True)
        self.seen.came, self.seen.left = self._count, self.left.append

    def _count(self) -> None:
        self.came += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_servers_of_other_clusters_are_there_while_they_are_heard(world: World) -> None:
    world.seen.heard("id", "B1", "B")
    world.seen.heard("id", "B1", "B")
    assert (world.seen.names(), world.came) == (["A2", "B1"], 1)
    world.now = SILENT_MOST + 1
    assert world.seen.names() == ["A2"]
    world.seen.heard("id", "B1", "B")
    assert world.seen.names() == ["A2", "B1"]


def test_servers_of_the_own_cluster_count_by_their_routes(world: World) -> None:
    world.seen.heard("id", "A3", "A")
    world.seen.heard("own", "A1", "A")
    world.seen.heard("", "B1", "B")
    assert world.seen.names() == ["A2"]


def test_who_says_goodbye_is_gone_until_its_next_start(world: World) -> None:
    world.seen.heard("id", "B1", "B")
    world.seen.gone("id")
    world.seen.gone("id")
    world.seen.gone("unknown")
    world.seen.heard("id", "B1", "B")  # it is a lame duck
    assert (world.seen.names(), world.left) == (["A2"], ["B1"])
    world.seen.heard("other", "B1", "B")
    assert world.seen.names() == ["A2", "B1"]


def test_addresses_of_other_clusters_are_counted() -> None:
    own = RemoteGateway(name="A", urls=[GatewayUrl(host="127.0.0.1", port=1)])
    other = RemoteGateway(
        name="B",
        urls=[
            GatewayUrl(host="127.0.0.2", port=1),
            GatewayUrl(host="127.0.0.3", port=1),
            GatewayUrl(host="no such host", port=1),
        ],
    )
    assert elsewhere(Gateway(name="A", gateways=[own, other])) == 2
