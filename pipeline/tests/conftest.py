"""One Spark session a module, on two cores of this machine."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jsserver_spark.jetstream import JetStream
from pipeline.tests.paths import PYTHONPATH
from pipeline.tests.sink_world import emptied
from pipeline.tests.site import Site
from tests.conftest import (  # noqa: F401  what tests of the server may use, those here may too
    core_server,
    js_server,
    module_servers,
    peer_present,
    pytest_runtest_protocol,
    servers,
)
from tests.servers import Server, Servers
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that knows the formats; its tasks are tried up to three times."""
    folder = tmp_path_factory.mktemp("spark")
    paths = [PYTHONPATH, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        session = (
            SparkSession.builder.master("local[2,3]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.sql.streaming.stopTimeout", "30s")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(autouse=True)
def at_rest(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tasks outlive a query that failed: they must not write to the next test's streams."""
    if "spark" not in request.fixturenames:
        yield
        return
    session: SparkSession = request.getfixturevalue("spark")
    context = session.sparkContext._jsc.sc()
    yield

    def tasks() -> int:
        context.listenerBus().waitUntilEmpty()
        executors = context.statusTracker().getExecutorInfos()
        return sum(executor.numRunningTasks() for executor in executors)

    wait_until(lambda: tasks() == 0, "Spark's tasks end")


@pytest.fixture(scope="module", params=["jsserver", "nats-server"])
def site(request: pytest.FixtureRequest) -> Site:
    """A server with JetStream: each test runs with ours and with its peer."""
    started: Servers = request.getfixturevalue("module_servers")
    if request.param == "jsserver":
        return Site(started.under_test(jetstream=True))
    request.getfixturevalue("peer_present")
    return Site(started.peer(jetstream=True))


@pytest.fixture(scope="module", params=["jsserver", "peer"])
def server(request: pytest.FixtureRequest) -> Server:
    """A server with JetStream to write to: each test runs with ours and with its peer."""
    started: Servers = request.getfixturevalue("module_servers")
    start = started.under_test if request.param == "jsserver" else started.peer
    return start(jetstream=True)


@pytest.fixture
def js(server: Server) -> Iterator[JetStream]:
    """That server with the stream S alone."""
    js = emptied(server)
    yield js
    js.close()
