"""Fixtures that tests of clients share."""

from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.client.tls import Site, Start
from tests.servers import Servers

pytest.register_assert_rewrite("tests.client.exchanges", "tests.client.interest")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Makes certificates of links between servers."""
    return Authority(tmp_path / "ours")


@pytest.fixture(params=["ours", "peer"])
def start(request: pytest.FixtureRequest, servers: Servers) -> Start:
    """Starts either server: what a test asserts holds for both."""
    if request.param == "peer":
        request.getfixturevalue("peer_present")
        return servers.peer
    return servers.under_test
