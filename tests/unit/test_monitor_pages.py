"""The monitoring pages over a made-up server: keys in their order, filters, sorting, omission."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver import NATS_VERSION, __version__, commit
from jsserver.config.options import Options
from jsserver.instances.backend import StoreError

from .api_server import ApiServer
from .fake_monitored import NOW, SECOND, FakeServer, connection, words

CONN = words(
    "cid kind type ip port start last_activity rtt uptime idle pending_bytes in_msgs out_msgs "
    "in_bytes out_bytes subscriptions name lang version"
)
VARZ = words(
    "server_id server_name version proto jsserver go host port max_connections ping_interval "
    "ping_max http_host http_port http_base_path https_port auth_timeout max_control_line "
    "max_payload max_pending cluster gateway leaf mqtt websocket jetstream tls_timeout "
    "write_deadline start now uptime mem cores gomaxprocs cpu connections total_connections "
    "routes remotes leafnodes in_msgs in_bytes in_client_msgs in_client_bytes out_msgs "
    "out_bytes out_client_msgs out_client_bytes slow_consumers stale_connections "
    "stalled_clients subscriptions http_req_stats config_load_time config_digest feature_flags "
    "system_account slow_consumer_stats stale_connection_stats disk_io_wait_stats"
)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as running:
        yield running


def cids(page: Any) -> list[int]:
    return [c["cid"] for c in page["connections"]]


# ---- what all pages share


def test_pages_are_indented_by_two_and_escaped_as_go_does(server: FakeServer) -> None:
    server.plane.open = [connection(1, name="a<b>&\u2028c")]
    answer = server.get("/connz")
    assert answer.headers == (("Access-Control-Allow-Origin", "*"),)
    assert answer.body.startswith(b'{\n  "server_id": "NSERVER",\n  "now": "')
    assert answer.body.endswith(b"\n    }\n  ]\n}")
    assert b'"name": "a\\u003cb\\u003e\\u0026\\u2028c"' in answer.body


def test_unknown_paths(server: FakeServer) -> None:
    for path in ("/nope", "/varz/", "/Varz", "/varz\udce9"):
        answer = server.get(path)
        assert (answer.status, answer.body) == (404, b"404 page not found\n")
        assert answer.headers == (("X-Content-Type-Options", "nosniff"),)
    assert server.get("/raftz").body == b"No Raft nodes registered"


def test_unclean_paths_are_redirected(server: FakeServer) -> None:
    for path in ("//varz", "/./varz", "/x/../varz", "/../varz"):
        answer = server.get(path + "?a=1")
        assert answer.status == 307
        assert answer.headers == (("Location", "/varz?a=1"),)


def test_base_path() -> None:
    server = FakeServer(Options(http_base_path="/nats"))
    assert server.get("/nats").content_type.startswith("text/html")
    assert server.page("/nats/varz")["http_base_path"] == "/nats"
    assert server.page("/nats/varz")["http_req_stats"] == {"/": 1, "/varz": 2}
    for path in ("/", "/nats/", "/varz", "/natsvarz", "/nats/nats/varz"):
        assert server.get(path).status == 404


def test_index_links_every_page(server: FakeServer) -> None:
    index = server.get("/").body.decode()
    links = [part.partition('"')[0] for part in index.split('href="')[1:]]
    assert "/varz" in links and "/healthz" in links
    for link in links:
        assert server.get(link).status == (404 if link == "/raftz" else 200)


def test_pages_of_absent_peers(server: FakeServer) -> None:
    assert list(server.page("/routez")) == words("server_id server_name now num_routes routes")
    assert server.page("/gatewayz")["outbound_gateways"] == {}
    assert server.page("/leafz")["leafs"] == []
    assert "'subs'" in server.refused("/routez?subs=x")
    assert "'accs'" in server.refused("/gatewayz?accs=x")
    assert "'subs'" in server.refused("/leafz?subs=x")


def test_stacks_of_the_threads(server: FakeServer) -> None:
    page = server.get("/stacksz")
    assert page.status == 200
    assert b"thread MainThread:\n" in page.body
    assert b"test_stacks_of_the_threads" in page.body


# ---- varz


def test_varz_keys_and_values(server: FakeServer) -> None:
    server.plane.counters.update(in_msgs=5, out_bytes=70, slow_clients=2, stale_clients=3)
    page = server.page("/varz")
    assert [key for key in page if key != "git_commit"] == VARZ
    assert (page["version"], page["jsserver"]) == (NATS_VERSION, __version__)
    assert page.get("git_commit", "") == commit()
    assert f"jsserver v{__version__}" in server.get("/").body.decode()
    assert page["in_msgs"] == page["in_client_msgs"] == 5
    assert page["out_client_bytes"] == 70
    assert page["slow_consumer_stats"]["clients"] == 2
    assert page["stale_connection_stats"]["clients"] == page["stale_connections"] == 3
    assert page["mem"] > 1 << 20
    assert page["cpu"] >= 0
    assert page["jetstream"] == page["cluster"] == {}
    assert b'"auth_timeout": 2,' in server.get("/varz").body


def test_varz_shows_what_is_configured() -> None:
    options = Options(
        max_subscriptions=7,
        http_port=-1,
        server_tags=["a", "b"],
        server_metadata={"k": "v"},
        config_digest="sha256:00",
    )
    server = FakeServer(options)
    server.auth_required = True
    page = server.page("/varz")
    assert page["auth_required"] is True
    assert page["http_port"] == -1
    assert page["http_host"] == "0.0.0.0"
    assert (page["max_subscriptions"], page["tags"], page["metadata"]) == (
        7,
        ["a", "b"],
        {"k": "v"},
    )
    keys = list(page)
    assert keys.index("auth_required") == keys.index("port") + 1
    assert keys[keys.index("config_digest") :][:4] == [
        "config_digest",
        "tags",
        "metadata",
        "feature_flags",
    ]


# ---- connz


def test_connz_keys_and_texts(server: FakeServer) -> None:
    server.plane.open = [connection(3723, rtt=819_958_203), connection(2, rtt=280_900)]
    page = server.page("/connz")
    assert list(page) == words("server_id now num_connections total offset limit connections")
    second, first = page["connections"]
    assert list(first) == CONN
    assert (first["rtt"], second["rtt"]) == ("819.958203ms", "280\u00b5s")
    assert (first["uptime"], first["idle"]) == ("1h2m3s", "0s")
    assert first["start"] == "2023-11-14T21:11:17Z"


def test_connz_auth_adds_who_it_is(server: FakeServer) -> None:
    server.plane.open = [connection(1), connection(2, account=1)]
    server.users = {1: "bob"}
    first, second = server.page("/connz?auth=1")["connections"]
    assert list(first) == [*CONN, "authorized_user", "name_tag"]
    assert (first["authorized_user"], first["name_tag"]) == ("bob", "$G")
    assert list(second) == [*CONN, "account", "name_tag"]
    assert cids(server.page("/connz?user=bob&auth=1")) == [1]
    assert server.page("/connz?user=bob&auth=1")["total"] == 2


def test_connz_subscriptions(server: FakeServer) -> None:
    server.plane.open = [connection(1, subscriptions=2), connection(2)]
    server.plane.add_sub(1, "foo.>", sid="7", msgs=4)
    server.plane.add_sub(1, "bar", "q", sid="8", most=9)
    server.plane.add_sub(0, "internal")
    first, second = server.page("/connz?subs=1")["connections"]
    assert first["subscriptions_list"] == ["foo.>", "bar"]
    assert "subscriptions_list" not in second
    detail = server.page("/connz?subs=detail&cid=1")["connections"][0]["subscriptions_list_detail"]
    assert detail == [
        {"subject": "foo.>", "sid": "7", "msgs": 4, "cid": 1},
        {"subject": "bar", "qgroup": "q", "sid": "8", "msgs": 0, "max": 9, "cid": 1},
    ]


def test_connz_paging_and_single_connection(server: FakeServer) -> None:
    server.plane.open = [connection(c) for c in range(1, 8)]
    page = server.page("/connz?limit=2&offset=3")
    assert (cids(page), page["total"], page["num_connections"]) == ([4, 5], 7, 2)
    page = server.page("/connz?cid=6&offset=4")
    assert (cids(page), page["total"], page["limit"], page["offset"]) == ([6], 7, 1, 0)
    page = server.page("/connz?cid=99")
    assert (page["connections"], page["total"]) == ([], 7)
    page = server.page("/connz?acc=NOPE")
    assert (page["connections"], page["total"]) == (None, 0)
    assert server.page("/connz?acc=$SYS")["connections"] == []
    assert server.page("/connz?mqtt_client=x")["connections"] == []


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("cid", [1, 2, 3]),
        ("start", [3, 2, 1]),
        ("uptime", [1, 2, 3]),
        ("subs", [2, 3, 1]),
        ("pending", [2, 3, 1]),
        ("msgs_to", [2, 3, 1]),
        ("msgs_from", [2, 3, 1]),
        ("bytes_to", [2, 3, 1]),
        ("bytes_from", [2, 3, 1]),
        ("rtt", [2, 3, 1]),
        ("last", [2, 3, 1]),
        ("idle", [1, 3, 2]),
    ],
)
def test_connz_sorting(server: FakeServer, sort: str, order: list[int]) -> None:
    names = words("subscriptions pending out_msgs in_msgs out_bytes in_bytes rtt")
    server.plane.open = [
        connection(c, last_activity=NOW - (9 - n) * SECOND, **dict.fromkeys(names, n))
        for c, n in ((1, 1), (2, 5), (3, 3))
    ]
    assert cids(server.page(f"/connz?sort={sort}")) == order


def test_connz_closed_connections(server: FakeServer) -> None:
    server.plane.open = [connection(1)]
    server.closed.add(connection(8, reason="Stale Connection", user="al"), NOW - SECOND)
    server.closed.add(connection(9, reason="Client Closed"))
    page = server.page("/connz?state=closed&auth=1")
    first, second = page["connections"]
    assert (page["total"], first["reason"], first["authorized_user"]) == (
        2,
        "Stale Connection",
        "al",
    )
    assert list(first)[7:9] == ["stop", "reason"]
    assert (first["stop"], first["uptime"]) == ("2023-11-14T22:13:19Z", "7s")
    assert second["stop"] == "2023-11-14T22:13:20Z"
    assert cids(server.page("/connz?state=closed&sort=stop")) == [9, 8]
    assert cids(server.page("/connz?state=closed&sort=reason")) == [9, 8]
    assert cids(server.page("/connz?state=all")) == [1, 8, 9]
    assert server.page("/connz?state=any")["total"] == 3
    assert cids(server.page("/connz?state=closed&cid=8")) == [8]
    assert cids(server.page("/connz?state=closed&user=al")) == [8]


def test_closed_connections_are_bounded() -> None:
    server = FakeServer(Options(max_closed_clients=3))
    for cid in range(1, 10):
        server.closed.add(connection(cid, reason="Client Closed", in_msgs=1))
    assert cids(server.page("/connz?state=closed")) == [7, 8, 9]
    stat = server.page("/accstatz?unused=1")["account_statz"][0]
    assert stat["received"]["msgs"] == 9


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sort=bad", "invalid sorting option: bad"),
        ("sort=stop", "sort by stop only valid on closed connections"),
        ("sort=reason&state=any", "sort by reason only valid on closed connections"),
        ("state=foo", "Error decoding state for foo"),
        (
            "auth=xyz",
            "Error decoding boolean for 'auth': strconv.ParseBool: parsing \"xyz\": invalid syntax",
        ),
        (
            "limit=a",
            "Error decoding int for 'limit': strconv.Atoi: parsing \"a\": invalid syntax",
        ),
    ],
)
def test_connz_refuses_bad_parameters(server: FakeServer, query: str, text: str) -> None:
    assert server.refused(f"/connz?{query}") == text


# ---- subsz


def test_subsz(server: FakeServer) -> None:
    server.accounts["$G"].counters = dict(
        subs=3, cache=2, inserts=4, removes=1, matches=8, cache_hits=2, avg_fanout=1.5
    )
    server.accounts["$SYS"].counters = dict(
        subs=1, cache=2, inserts=1, max_fanout=2, avg_fanout=0.5
    )
    server.plane.add_sub(5, "foo.*", "q", sid="3", msgs=6)
    server.plane.add_sub(0, "$SYS.>", account=1)
    server.plane.add_sub(6, "foo.bar")
    page = server.page("/subsz")
    assert list(page.items())[2:] == [
        ("num_subscriptions", 4),
        ("num_cache", 4),
        ("num_inserts", 5),
        ("num_removes", 1),
        ("num_matches", 8),
        ("cache_hit_rate", 0.25),
        ("max_fanout", 2),
        ("avg_fanout", 1),
        ("total", 0),
        ("offset", 0),
        ("limit", 1024),
    ]
    page = server.page("/subscriptionsz?subs=1&test=foo.bar")
    assert page["total"] == 2
    assert page["subscriptions_list"][0] == {
        "account": "$G",
        "account_tag": "$G",
        "subject": "foo.*",
        "qgroup": "q",
        "sid": "3",
        "msgs": 6,
        "cid": 5,
    }
    assert len(server.page("/subsz?subs=1&acc=$SYS")["subscriptions_list"]) == 1
    page = server.page("/subsz?subs=1&offset=2&limit=1")
    assert (page["total"], [s["subject"] for s in page["subscriptions_list"]]) == (3, ["foo.bar"])
    assert "subscriptions_list" not in server.page("/subsz?subs=1&offset=3")
    assert server.page("/subsz?acc=NOPE&subs=1")["num_subscriptions"] == 0
    for test in ("foo.*", "foo..bar", ">", "foo."):
        text = f"invalid test subject, must be valid publish subject: {test}"
        assert server.refused(f"/subsz?test={test}") == text


# ---- jsz


def test_jsz_without_jetstream(server: FakeServer) -> None:
    page = server.page("/jsz?streams=1&acc=$G")
    assert page["disabled"] is True
    assert page["config"] == {"max_memory": 0, "max_storage": 0}
    assert "limits" not in page and "account_details" not in page


def test_jsz(api: ApiServer) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    api.stream("ORDERS", subjects=["orders.*"], description="<x>")
    api.stream("MEM", subjects=["mem.*"], storage="memory", max_bytes=1000)
    api.consumer("ORDERS", "C1", durable_name="C1", ack_policy="explicit")
    api.engine.store("orders.1", b"x" * 10)
    page = server.page("/jsz")
    assert list(page) == words(
        "memory storage reserved_memory reserved_storage accounts ha_assets api server_id now "
        "config limits streams consumers messages bytes total"
    )
    assert (page["streams"], page["consumers"], page["messages"]) == (2, 1, 1)
    assert (page["reserved_memory"], page["accounts"], page["total"]) == (1000, 1, 1)
    assert page["api"] == {"level": 4, "total": 3, "errors": 0}
    assert page["config"]["store_dir"] == "/data/jetstream"
    assert page["bytes"] == page["storage"] > 0

    account = server.page("/jsz?accounts=1")["account_details"][0]
    assert list(account)[:3] == ["name", "id", "memory"] and "stream_detail" not in account
    assert account["reserved_storage"] == 18446744073709551615
    assert account["api"] == {"level": 0, "total": 3, "errors": 0}

    streams = server.page("/jsz?streams=1")["account_details"][0]["stream_detail"]
    assert [s["name"] for s in streams] == ["ORDERS", "MEM"]
    assert list(streams[0]) == ["name", "created", "cluster", "state"]
    assert streams[0]["cluster"] == {"leader": "srv"}
    assert streams[0]["state"]["consumer_count"] == 1

    page = server.page("/jsz?acc=$G&consumers=1&config=1&raft=1")
    assert (page["streams_leader"], page["consumers_leader"]) == (2, 1)
    stream = page["account_details"][0]["stream_detail"][0]
    assert stream["config"]["description"] == "<x>"
    consumer = stream["consumer_detail"][0]
    assert consumer["config"]["durable_name"] == "C1"
    assert "type" not in consumer and consumer["num_pending"] == 1
    plain = server.page("/jsz?consumers=1")["account_details"][0]["stream_detail"][0]
    assert "config" not in plain and "config" not in plain["consumer_detail"][0]


def test_jsz_pages_accounts(api: ApiServer) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    assert "account_details" not in server.page("/jsz?accounts=1&offset=1")
    assert "account_details" not in server.page("/jsz?acc=NOPE&streams=1")
    assert len(server.page("/jsz?acc=$G&offset=5")["account_details"]) == 1
    for name in ("accounts", "streams", "consumers", "config", "raft", "leader-only"):
        assert f"'{name}'" in server.refused(f"/jsz?{name}=x")


def test_jsz_leaves_out_a_stream_that_is_just_being_deleted(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    api.stream("A", subjects=["a"])
    api.stream("B", subjects=["b"])

    class Gone:
        def state(self) -> None:
            raise StoreError("closed")

    monkeypatch.setattr(api.account.streams["A"], "handle", Gone())
    page = server.page("/jsz?streams=1")
    assert page["streams"] == 1
    assert [s["name"] for s in page["account_details"][0]["stream_detail"]] == ["B"]


def test_jetstream_on_varz(api: ApiServer) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    server.options.jetstream.limits.duplicate_window = 5
    server.options.jetstream.sync_interval = 120 * SECOND
    part = server.page("/varz")["jetstream"]
    assert list(part) == ["config", "stats", "limits"]
    assert part["config"]["sync_interval"] == 120 * SECOND and "sync_always" not in part["config"]
    assert part["limits"] == {"max_duplicate_window": 5}
    server.options.jetstream.sync_interval = None
    assert server.page("/varz")["jetstream"]["config"]["sync_always"] is True


# ---- healthz


def test_healthz_is_compact(server: FakeServer) -> None:
    assert server.get("/healthz").body == b'{"status":"ok"}'
    assert server.get("/healthz?account=ZZ").status == 200


def test_healthz_before_and_after_service(server: FakeServer) -> None:
    server.accepting = False
    answer = server.get("/healthz")
    text = "failed to be ready for connections after 1ms: server"
    assert answer.status == 500
    assert answer.body == f'{{"status":"error","error":"{text}"}}'.encode()
    server.accepting = True
    server.options.jetstream.enabled = True
    answer = server.get("/healthz")
    assert answer.status == 503
    assert answer.body == b'{"status":"unavailable","error":"JetStream not enabled (10076)"}'
    assert server.get("/healthz?js-server-only=1").status == 200


@pytest.mark.parametrize(
    ("query", "status", "kind", "text"),
    [
        (
            "stream=S",
            400,
            "BAD_REQUEST",
            '"account" must not be empty when checking stream health',
        ),
        (
            "account=$G&consumer=C",
            400,
            "BAD_REQUEST",
            '"stream" must not be empty when checking consumer health',
        ),
        ("account=ZZ", 404, "ACCOUNT", 'JetStream account "ZZ" not found'),
        (
            "account=$G&stream=Z%3C",
            404,
            "STREAM",
            'JetStream stream "Z<" not found on account "$G"',
        ),
        (
            "account=$G&stream=S&consumer=Z",
            404,
            "CONSUMER",
            'JetStream consumer "Z" not found for stream "S" on account "$G"',
        ),
        (
            "account=$G&stream=GONE",
            503,
            "STREAM",
            "JetStream stream '$G > GONE' could not be recovered: damaged",
        ),
        ("", 503, "STREAM", "JetStream stream '$G > GONE' could not be recovered: damaged"),
    ],
)
def test_healthz_failures(api: ApiServer, query: str, status: int, kind: str, text: str) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    api.stream("S", subjects=["s"])
    api.account.offline["GONE"] = "damaged"
    answer = server.get(f"/healthz?{query}")
    page = json.loads(answer.body)
    assert answer.status == status
    assert page == {"status": "error" if status == 400 else "unavailable", "error": text}
    answer = server.get(f"/healthz?details=1&{query}")
    page = json.loads(answer.body)
    assert answer.status == status and page["status"] == "error" and "error" not in page
    assert (page["errors"][0]["type"], page["errors"][0]["error"]) == (kind, text)


def test_healthz_of_what_is_well(api: ApiServer) -> None:
    server = FakeServer(dispatcher=api.dispatcher)
    api.stream("S", subjects=["s"])
    api.consumer("S", "C", durable_name="C")
    for query in (
        "account=$G",
        "account=$G&stream=S",
        "account=$G&stream=S&consumer=C",
        "js-enabled-only=1&account=ZZ",
        "js-enabled=1",
        "js-server-only=1&account=ZZ",
        "js-meta-only=1",
        "details=1",
    ):
        assert server.get(f"/healthz?{query}").body == b'{"status":"ok"}'
    for name in ("js-enabled-only", "js-enabled", "js-server-only", "js-meta-only", "details"):
        assert f"'{name}'" in server.refused(f"/healthz?{name}=x")
    page = json.loads(server.get("/healthz?account=%ff&details=1").body)
    text = 'JetStream account "\\xff" not found'
    assert page["errors"] == [{"type": "ACCOUNT", "account": "\ufffd", "error": text}]


# ---- accounts


def test_accountz(server: FakeServer) -> None:
    server.plane.open = [connection(1), connection(2)]
    server.accounts["$G"].counters = {"subs": 4, "inserts": 4}
    page = server.page("/accountz")
    assert (page["system_account"], page["accounts"]) == ("$SYS", ["$G", "$SYS"])
    detail = server.page("/accountz?acc=$G")["account_detail"]
    assert list(detail) == words(
        "account_name update_time expired complete jetstream_enabled leafnode_connections "
        "client_connections subscriptions name_tag sublist_stats"
    )
    assert (detail["client_connections"], detail["subscriptions"]) == (2, 4)
    assert server.page("/accountz?acc=$SYS")["account_detail"]["is_system"] is True
    assert server.refused("/accountz?acc=NOPE") == "Account NOPE does not exist"


def test_accstatz(server: FakeServer) -> None:
    server.plane.open = [connection(1, in_msgs=2, in_bytes=20, out_msgs=3, out_bytes=30)]
    server.closed.add(connection(2, reason="Slow Consumer (Pending Bytes)", out_msgs=5))
    stats = server.page("/accstatz")["account_statz"]
    assert [s["acc"] for s in stats] == ["$G"]
    assert list(stats[0]) == words(
        "acc name conns leafnodes total_conns num_subscriptions sent received slow_consumers"
    )
    assert stats[0]["sent"]["msgs"] == 8 and stats[0]["received"]["bytes"] == 20
    assert stats[0]["sent"]["routes"] == {"msgs": 0, "bytes": 0}
    assert (stats[0]["conns"], stats[0]["slow_consumers"]) == (1, 1)
    unused = server.page("/accstatz?unused=1")["account_statz"]
    assert [s["acc"] for s in unused] == ["$G", "$SYS"]
    assert "'unused'" in server.refused("/accstatz?unused=x")
