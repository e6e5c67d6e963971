"""Fixtures that every test may use: servers under test and peers, ended whatever happens."""

import faulthandler
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import longest
from tests.peer import find_peer
from tests.servers import Server, Servers, servers_in

if os.environ.get("CHECKED"):  # the build with checks counts what is allocated
    from tests.allocated import nothing_left  # noqa: F401

# The suite's runs are the same every time; `HYPOTHESIS_PROFILE=random` looks for something new.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest.order(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Where a test hangs and no signal ends it, in the data plane, it fails with its process."""
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker and marker.args else float(item.config.getini("timeout"))
    faulthandler.dump_traceback_later(limit + 60, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


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
