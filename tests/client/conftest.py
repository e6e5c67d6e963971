"""Fixtures that tests of clients share."""

import pytest

from tests.client.tls import Site, Start
from tests.servers import Servers

pytest.register_assert_rewrite("tests.client.exchanges", "tests.client.interest")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["ours", "peer"])
def start(request: pytest.FixtureRequest, servers: Servers) -> Start:
    """Starts either server: what a test asserts holds for both."""
    if request.param == "peer":
        request.getfixturevalue("peer_present")
        return servers.peer
    return servers.under_test
