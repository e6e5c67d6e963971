"""Fixtures that every test may use: servers under test and peers, ended whatever happens."""

from collections.abc import Iterator

import pytest

from tests.peer import find_peer
from tests.servers import Server, Servers, servers_in


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Starts servers for one test."""
    with servers_in(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture(scope="module")
def module_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Starts servers that the tests of one module share."""
    with servers_in(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture(scope="module")
def core_server(module_servers: Servers) -> Server:
    """A plain server without JetStream, shared by the tests of one module."""
    return module_servers.under_test()


@pytest.fixture(scope="module")
def js_server(module_servers: Servers) -> Server:
    """A server with JetStream, shared by the tests of one module."""
    return module_servers.under_test(jetstream=True)


@pytest.fixture(scope="session")
def peer_present() -> None:
    """Skips a test where there is no nats-server to compare with."""
    if find_peer() is None:
        pytest.skip("no nats-server 2.14 to compare with: set NATS_SERVER or run `make peer`")
