"""Monitoring pages of the server under test beside nats-server's, after the same conversations."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

#: Values that differ from server to server or from run to run; their types are compared.
VOLATILE = frozenset(
    (
        *("server_id", "now", "start", "last_activity", "stop", "uptime", "idle", "rtt"),
        *("port", "http_port", "mem", "cpu", "cid", "config_load_time", "config_digest"),
        *("update_time", "created", "ts", "first_ts", "last_ts", "last_active"),
        *("store_dir", "max_storage", "pending_bytes", "num_subscriptions", "num_cache"),
        *("num_inserts", "num_removes", "num_matches", "cache_hit_rate", "max_fanout"),
        *("avg_fanout", "http_req_stats"),
    )
)
#: Of the whole server: its own subscriptions count, and so do answers with times in them.
VOLATILE_TOTALS = frozenset(
    ("subscriptions", "in_bytes", "in_client_bytes", "out_bytes", "out_client_bytes")
)
#: What one of the two does not have: here services are offered without imports, and acks wait for
#: the disk. The version of this program is its own.
ABSENT = frozenset(
    (
        *("imports", "exports", "sync_interval", "sync_always", "compress_ok", "strict"),
        *("jsserver", "git_commit"),
    )
)

CONFIG = """
http_base_path: "/base"
server_tags: ["a", "b"]
server_metadata: { region: "<x>" }
max_subscriptions: 100
max_payload: 2000
max_control_line: 2048
ping_interval: "30s"
authorization { users: [ {user: bob, password: "pw"}, {user: al, password: "pw"} ], timeout: 1.5 }
"""


def fetch(server: Server, target: str) -> tuple[int, str, bytes]:
    """Status, content type and body of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", server.monitor_port, timeout=20)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    finally:
        connection.close()


def page(server: Server, target: str) -> Any:
    status, kind, body = fetch(server, target)
    assert (status, kind) == (200, "application/json"), (target, status, body)
    return json.loads(body)


def kind_of(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def plain(value: Any, volatile: frozenset[str] = VOLATILE) -> Any:
    """A page as a comparison sees it: items in order, volatile values as the names of their types,
    lists whose order means nothing sorted."""
    if isinstance(value, dict):
        return [
            (k, kind_of(v) if k in volatile else plain(v, volatile))
            for k, v in value.items()
            if k not in ABSENT
        ]
    if isinstance(value, list):
        return [plain(v, volatile) for v in sorted(value, key=order)]
    return value


def order(item: Any) -> str:
    """Connections stay in their order; streams, consumers and subscriptions come in any."""
    if isinstance(item, dict):
        return "" if "kind" in item else str(item.get("name", "")) + str(item.get("subject", ""))
    return str(item)


Pair = tuple[Server, Server]


def talk(server: Server) -> list[RawApp]:
    """The conversation that the pages are about; the connections that stay open."""
    options = b'{"verbose":false,"name":"%s","lang":"raw","version":"7","headers":true,'
    options += b'"no_responders":true,"user":"bob","pass":"pw"}'
    one, two, gone = (
        RawApp(server.port, options=options % name) for name in (b"one", b"two", b"gone")
    )
    one.subscribe("foo.*")
    one.subscribe("foo.bar", "q")
    two.subscribe("foo.>")
    for app in (one, two):
        app.sync()
    for _ in range(3):
        gone.publish("foo.bar", b"hello")
    gone.sync()
    one.messages(6)
    two.messages(3)
    gone.close()
    if server.jetstream:
        build_streams(two)
    wait_for_closed(server, "/base" if server.config else "")
    return [one, two]


def build_streams(app: RawApp) -> None:
    app.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a.*"], "description": "<&>"})
    memory = {"name": "B", "subjects": ["b.*"], "storage": "memory", "max_bytes": 100000}
    app.api("STREAM.CREATE.B", memory)
    for i in range(5):
        app.request(f"a.{i}", b"x" * 10)
        app.request(f"b.{i}", b"y" * 10)
    app.api("STREAM.MSG.DELETE.A", {"seq": 3})
    for name, config in (
        ("C1", {"ack_policy": "explicit"}),
        ("C2", {"deliver_subject": "nobody", "ack_policy": "none"}),
    ):
        settings = {"stream_name": "A", "config": {"durable_name": name, **config}}
        app.api(f"CONSUMER.DURABLE.CREATE.A.{name}", settings)
    delivered = app.request("$JS.API.CONSUMER.MSG.NEXT.A.C1", b'{"batch":1}')
    app.request(delivered.reply, b"+ACK")
    app.api("STREAM.INFO.NOPE")


def wait_for_closed(server: Server, base: str) -> None:
    closed = f"{base}/connz?state=closed"
    wait_until(lambda: page(server, closed)["total"] == 1, "the closed connection shows", 10)


def talking(servers: Servers, **options: Any) -> Iterator[Pair]:
    options = {"monitor": True, "args": ["-n", "one"], **options}
    pair = (servers.under_test(**options), servers.peer(**options))
    apps = [app for server in pair for app in talk(server)]
    yield pair
    for app in apps:
        app.close()


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[Pair]:
    yield from talking(module_servers, jetstream=True)


@pytest.fixture(scope="module")
def configured(module_servers: Servers) -> Iterator[Pair]:
    yield from talking(module_servers, config=CONFIG)


@pytest.mark.parametrize(
    "target",
    [
        "/connz",
        "/connz?subs=1",
        "/connz?subs=detail",
        "/connz?auth=1",
        "/connz?limit=1&offset=1",
        "/connz?offset=9",
        "/connz?cid=999999",
        "/connz?acc=$G&limit=1",
        "/connz?acc=NOPE",
        "/connz?user=bob",
        "/connz?user=bob&auth=1",
        "/connz?mqtt_client=x",
        "/connz?state=closed",
        "/connz?state=closed&auth=1",
        "/connz?state=any",
        "/connz?state=ALL&sort=subs",
        "/connz?sort=msgs_to",
        "/connz?sort=msgs_from",
        "/connz?sort=start",
        "/connz?sort=uptime",
        "/connz?sort=subs",
        "/connz?state=closed&sort=stop",
        "/connz?state=closed&sort=reason",
        "/connz?auth=&subs=&limit=&offset=&cid=&state=&sort=",
        "/jsz",
        "/jsz?accounts=1",
        "/jsz?accounts=1&offset=1",
        "/jsz?streams=1",
        "/jsz?consumers=1&config=1",
        "/jsz?acc=$G&consumers=1&raft=1&leader-only=1",
        "/jsz?acc=$G&config=1&direct-consumers=1&stream-leader-only=1",
        "/jsz?acc=NOPE&streams=1",
        "/subsz",
        "/subscriptionsz?limit=3&offset=2",
        "/subsz?acc=NOPE&subs=1",
        "/subsz?acc=$G&subs=1&test=foo.bar",
        "/subsz?test=foo.zzz",
        "/routez",
        "/routez?subs=detail",
        "/gatewayz",
        "/leafz",
        "/accountz?acc=$G",
        "/accstatz",
        "/healthz",
    ],
)
def test_same_page(pair: Pair, target: str) -> None:
    ours, theirs = (page(server, target) for server in pair)
    volatile = VOLATILE
    if target.startswith(("/acc", "/connz")):
        volatile |= {"bytes", "in_bytes", "out_bytes"}
    if target.startswith("/accountz"):
        volatile |= {"subscriptions"}
    assert plain(ours, volatile) == plain(theirs, volatile)


def test_same_counts_of_bytes(pair: Pair) -> None:
    """Those of the connections that talked to nobody but each other."""
    for target in ("/connz?limit=1", "/connz?state=closed"):
        ours, theirs = (page(server, target)["connections"][0] for server in pair)
        for key in ("in_msgs", "in_bytes", "out_msgs", "out_bytes"):
            assert ours[key] == theirs[key], (ours["name"], key)


@pytest.mark.parametrize("chosen", ["pair", "configured"])
def test_same_varz(chosen: str, request: pytest.FixtureRequest) -> None:
    servers: Pair = request.getfixturevalue(chosen)
    base = "/base" if servers[0].config else ""
    ours, theirs = (page(server, f"{base}/varz") for server in servers)
    volatile = VOLATILE | VOLATILE_TOTALS
    assert plain(ours, volatile) == plain(theirs, volatile)
    for found in (ours, theirs):
        assert found["http_req_stats"]["/varz"] >= 1


def test_same_pages_with_users_and_without_jetstream(configured: Pair) -> None:
    for target in (
        "/connz?auth=1&subs=detail",
        "/connz?user=bob",
        "/connz?user=al",
        "/connz?state=closed&auth=1",
        "/connz?state=closed&user=bob",
        "/jsz?accounts=1&streams=1&config=1",
        "/healthz?account=ZZ&js-enabled-only=1",
    ):
        ours, theirs = (page(server, "/base" + target) for server in configured)
        assert plain(ours) == plain(theirs), target


@pytest.mark.parametrize(
    "target",
    [
        "/connz?auth=xyz",
        "/connz?subs=xyz",
        "/connz?offset=a",
        "/connz?limit=1_0",
        "/connz?limit=0x10",
        "/connz?limit=%205",
        "/connz?limit=99999999999999999999",
        "/connz?cid=-1",
        "/connz?cid=99999999999999999999",
        "/connz?state=foo",
        "/connz?sort=bad",
        "/connz?sort=stop",
        "/connz?sort=reason&state=any",
        "/connz?sort=bad&limit=x&auth=y",
        "/connz?auth=%e9%00%0a%22%c3%a9%3C",
        "/subsz?subs=detail",
        "/subsz?limit=x",
        "/subsz?test=foo.*",
        "/subsz?test=foo..bar",
        "/subsz?test=%3E",
        "/jsz?accounts=x",
        "/jsz?streams=x",
        "/jsz?consumers=x",
        "/jsz?direct-consumers=x",
        "/jsz?config=x",
        "/jsz?offset=x",
        "/jsz?leader-only=x",
        "/jsz?raft=x",
        "/jsz?stream-leader-only=x",
        "/healthz?js-enabled-only=x",
        "/healthz?js-enabled=x",
        "/healthz?js-server-only=x",
        "/healthz?js-meta-only=x",
        "/healthz?details=x",
        "/healthz?account=ZZ",
        "/healthz?account=%22%3C%ff",
        "/healthz?stream=S",
        "/healthz?consumer=C&account=$G",
        "/healthz?account=$G&stream=S",
        "/healthz?account=$G&stream=A",
        "/healthz?account=$G&stream=A&consumer=C",
        "/healthz?account=$G&stream=A&consumer=C1",
        "/healthz?details=1&account=ZZ",
        "/healthz?details=1&stream=S",
        "/healthz?details=1&account=$G&stream=S",
        "/healthz?details=1&account=$G&stream=A&consumer=C",
        "/healthz?js-server-only=1&account=ZZ",
        "/healthz?js-enabled=1",
        "/routez?subs=x",
        "/gatewayz?accs=x",
        "/leafz?subs=x",
        "/accountz?acc=NOPE",
        "/accstatz?unused=x",
        "/raftz",
        "/nope",
        "/varz/",
        "//varz?a=1",
        "/x/../varz",
    ],
)
def test_same_answer_to_the_byte(pair: Pair, target: str) -> None:
    ours, theirs = (fetch(server, target) for server in pair)
    assert ours == theirs


def test_base_path(configured: Pair) -> None:
    for target in ("/", "/base/", "/varz", "/base/base/varz", "/base//varz"):
        ours, theirs = (fetch(server, target) for server in configured)
        assert ours == theirs, target
    one, other = (fetch(server, "/base")[:2] for server in configured)
    assert one == other


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET nope HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nbad\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
def test_same_status_and_body_length(pair: Pair, request_bytes: bytes) -> None:
    """To requests as no HTTP library sends them; refusals may explain themselves further."""
    found = []
    for server in pair:
        with socket.create_connection(("127.0.0.1", server.monitor_port), timeout=10) as sock:
            sock.sendall(request_bytes)
            sock.shutdown(socket.SHUT_WR)
            data = b""
            while more := sock.recv(65536):
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        found.append((status, len(body) if status == 200 else None))
    assert found[0] == found[1]


BATCH_LIMITS = """
jetstream {
    limits { batch {
        max_inflight_per_stream: 7, max_inflight_total: 70, max_msgs: 77, timeout: 7s
    } }
}
"""


def test_same_jsz_of_mirrors_and_sources_and_of_limits_of_batches(
    servers: Servers,
) -> None:
    """What mirrors and sources read with is none of a stream's consumers."""
    both = [
        start(config=BATCH_LIMITS, jetstream=True, monitor=True)
        for start in (servers.under_test, servers.peer)
    ]
    for server in both:
        with RawApp(server.port) as app:
            app.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a"]})
            app.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "A"}})
            app.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "A"}]})
            app.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": {"durable_name": "c"}})
            app.request("a", b"x")

            def read(app: RawApp = app) -> bool:
                found = [app.api(f"STREAM.INFO.{name}")["state"] for name in "AMT"]
                return all(isinstance(s, dict) and s["messages"] == 1 for s in found)

            wait_until(read, "the mirror and the source have read the message")
    for target in ("/jsz", "/jsz?raft=1"):
        ours, theirs = (page(server, target) for server in both)
        for key in ("streams", "streams_leader", "consumers", "consumers_leader", "limits"):
            assert ours.get(key) == theirs.get(key), (target, key)
        assert ours["consumers"] == 1
        assert ours["limits"]["max_batch_timeout"] == 7 * 10**9
    ours, theirs = (page(server, "/varz")["jetstream"]["limits"] for server in both)
    assert ours == theirs
