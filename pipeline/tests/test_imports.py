"""JetStream of another account, and of another domain behind a leaf node, at nats-server."""

import socket
from collections.abc import Callable

import pytest

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import ConnectionOptions
from jsserver_spark.write.fence import Fence
from pipeline.tests.jobs_world import connected
from pipeline.tests.sink_world import ROWS, Query, create, payloads
from pipeline.tests.site import Site
from tests.servers import Server, Servers
from tests.waiting import wait_until

BUCKET = "jsserver_spark_fence"

ACCOUNTS = """
accounts {
  OWNER: {
    users: [ { user: owner, password: o } ]
    jetstream: enabled
    exports: [ { service: "$JS.API.>"RESPONSE }, { service: "S.>" }, { service: "$KV.>" } ]
  }
  READER: {
    users: [ { user: reader, password: r } ]
    imports: [
      { service: { account: OWNER, subject: "$JS.API.>" } }
      { service: { account: OWNER, subject: "S.>" } }
      { service: { account: OWNER, subject: "$KV.>" } }
    ]
  }
}
"""

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture
def start(servers: Servers) -> Callable[[str], Server]:
    return lambda config: servers.peer(jetstream=True, config=config)


def filled(server: Server, name: str, direct: bool) -> Site:
    """The owner's stream, with fifty messages, and a reader of another account."""
    owner = Site.__new__(Site)
    owner.server = server
    options = ConnectionOptions(servers=(server.url,), user="owner", password="o")
    owner.js = JetStream(options)
    owner.create(name, allow_direct=direct)
    owner.fill(name, 50)
    return owner


@pytest.mark.parametrize("direct", [True, False])
def test_an_imported_api_is_read(start: Callable[[str], Server], direct: bool) -> None:
    response = ", response: stream"
    server = start(ACCOUNTS.replace("RESPONSE", response))
    site = filled(server, "far", direct)
    reader = {"user": "reader", "password": "r", "stream": "far"}
    assert site.read(**reader)["seq"].to_pylist() == list(range(1, 51))
    assert site.read(**reader, filterSubjects="far.1").num_rows == 17


def test_a_stream_of_another_account_is_written_to(start: Callable[[str], Server]) -> None:
    server = start(ACCOUNTS.replace("RESPONSE", ", response: stream"))
    js = JetStream(ConnectionOptions(servers=(server.url,), user="owner", password="o"))
    create(js, "S")
    query = Query(server, user="reader", password="r")
    assert query.run_batch(0, ROWS).rows == 10
    assert query.run_batch(0, ROWS).skipped
    assert payloads(js) == [str(i) for i in range(10)]


@pytest.mark.parametrize("direct", [True, False])
def test_an_import_of_one_answer_is_told(start: Callable[[str], Server], direct: bool) -> None:
    server = start(ACCOUNTS.replace("RESPONSE", ""))
    site = filled(server, "far", direct)
    reader = {"user": "reader", "password": "r", "stream": "far", "requestTimeout": "500ms"}
    with pytest.raises(NatsError, match=r"one answer came of several.*`response: stream`"):
        site.read(**reader)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_fence_is_in_the_domain_that_is_written_to(start: Callable[[str], Server]) -> None:
    """Through the hub, into the stream of a leaf."""
    port = free_port()
    hub = start(f"jetstream {{ domain: hub }}\nleafnodes {{ listen: 127.0.0.1:{port} }}")
    remote = f"leafnodes {{ remotes: [ {{ url: nats://127.0.0.1:{port} }} ] }}"
    leaf = start(f"server_name: leaf\njetstream {{ domain: leaf }}\n{remote}")
    create(connected(leaf), "S")
    there = JetStream(ConnectionOptions(servers=(hub.url,), js_domain="leaf"))
    wait_until(lambda: reached(there), "the leaf is reached through the hub")
    for name in ("first", "second"):
        query = Query(hub, jsDomain="leaf", sinkId=name, stream="S")
        assert query.run_batch(0, ROWS).rows == 10
        assert query.run_batch(0, ROWS).skipped
        mark = Fence(connected(leaf), BUCKET, name).read().mark
        assert mark is not None and mark.batch == 0
        assert Fence(connected(hub), BUCKET, name).read().mark is None
        if name == "first":  # a bucket of that name in the hub: the writes are not for it
            connected(hub).bucket_ensure(BUCKET, 1)
    assert payloads(connected(leaf)) == [str(i) for i in range(10)] * 2


def reached(js: JetStream) -> bool:
    try:
        return js.stream_info("S").name == "S"
    except NatsError:
        return False
