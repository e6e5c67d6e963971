"""What users of the system account may ask and hear, of both servers."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

from tests.client.raw import Frame, RawApp, RawClient, TimedOut
from tests.client.test_monitor_accounts_diff import CONFIG, log_in, talk
from tests.client.test_monitor_diff import ABSENT, kind_of, page
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

#: What differs from server to server or from run to run, or counts each server's own doings.
VOLATILE = frozenset(
    (
        *("server_id", "id", "now", "time", "timestamp", "seq", "start", "stop", "uptime", "idle"),
        *("last_activity", "rtt", "port", "mem", "cpu", "cid", "config_load_time", "total"),
        *("config_digest", "update_time", "created", "ts", "first_ts", "last_ts", "last_active"),
        *("store_dir", "max_storage", "pending_bytes", "http_req_stats", "subscriptions_list"),
        *("num_subscriptions", "subscriptions", "num_cache", "num_inserts", "num_removes"),
        *("num_matches", "cache_hit_rate", "max_fanout", "avg_fanout", "in_msgs", "out_msgs"),
        *("in_bytes", "out_bytes", "in_client_msgs", "out_client_msgs", "in_client_bytes"),
        *("out_client_bytes", "msgs", "bytes", "http_port", "go"),
    )
)


def shape(value: Any) -> Any:
    """Fields in their order, those that vary by the kind of their value."""
    if isinstance(value, dict):
        return [
            (key, kind_of(entry) if key in VOLATILE else shape(entry))
            for key, entry in value.items()
            if key not in ABSENT
        ]
    if isinstance(value, list):
        return sorted((shape(entry) for entry in value), key=str)
    return value


@pytest.fixture(scope="module")
def asked(module_servers: Servers) -> Iterator[list[tuple[Server, RawApp]]]:
    """The servers after the same conversations, and a user of each system account."""
    starts = (module_servers.under_test, module_servers.peer)
    pair = [start(config=CONFIG, monitor=True, jetstream=True) for start in starts]
    apps = [talk(server) for server in pair]
    yield [(server, found[3]) for server, found in zip(pair, apps, strict=True)]
    for app in (app for found in apps for app in found):
        app.close()


Both = list[tuple[Server, RawApp]]


def ask_both(asked: Both, subject: str, body: bytes, header: bytes = b"") -> list[list[object]]:
    """Their answers; where only one answers in time, the other may be late."""
    for seconds in (0.6, 20.0):
        with ThreadPoolExecutor(2) as pool:
            asks = [pool.submit(ask, app, subject, body, header, seconds) for _, app in asked]
            found = [one.result() for one in asks]
        if bool(found[0]) == bool(found[1]):
            break
    return found


def ask(
    app: RawApp, subject: str, body: bytes, header: bytes = b"", seconds: float = 20.0
) -> list[object]:
    """The answer as a comparison sees it; nothing where none comes in time."""
    name = str(app.info["server_id"])
    try:
        answer = app.request(subject.replace("<id>", name), body, header=header, timeout=seconds)
    except TimedOut:
        return []
    told = json.loads(answer.payload) if answer.payload else None
    if isinstance(told, dict) and told.get("error", {}).get("code") == 400:
        told["error"]["description"] = ""  # each parser of JSON has words of its own
    return [answer.header.replace(name.encode(), b"<id>"), shape(told)]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"x", b"{}", b'{"acc":"NOPE","subject":"foo.x"}', b'{"acc":"A"}'),
        *(b'{"acc":"A","subject":"foo.x"}', b'{"acc":"A","subject":"foo.>"}'),
        *(b'{"acc":"B","subject":"foo.y"}', b'{"acc":"A","subject":">"}'),
        *(b'{"acc":"A","subject":"foo.x","queue":"cQ=="}', b'{"acc":"A","subject":"bar"}'),
        b'{"acc":"A","subject":"foo.x","queue":"eA=="}',
        b'{"acc":"A","subject":"foo.x","queue":5}',
    ],
)
def test_subscribers_of_an_account(asked: list[tuple[Server, RawApp]], body: bytes) -> None:
    found = []
    for _, app in asked:
        try:
            found.append(app.request("$SYS.REQ.ACCOUNT.NSUBS", body, timeout=0.6).payload)
        except TimedOut:
            found.append(b"nothing")
    assert found[0] == found[1]


SERVER_PAGES = (
    *("", ".VARZ", ".CONNZ", ".ROUTEZ", ".GATEWAYZ", ".LEAFZ", ".SUBSZ", ".ACCOUNTZ", ".JSZ"),
    *(".HEALTHZ", ".STATSZ", ".IDZ", ".RAFTZ", ".NOPEZ", ".KICK"),
)
ACCOUNT_PAGES = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS", "NOPE")
PING = "$SYS.REQ.SERVER.PING"
BODIES = (
    *(b"{}", b"x", b"[]", b"null", b'"a"', b'{"nope":1}', b'{"name":5}', b'{"limit":"x"}'),
    *(b'{"server_name":"one"}', b'{"server_name":"on"}', b'{"server_name":"nope"}'),
    *(b'{"server_name":"on","exact_match":true}', b'{"cluster":"x"}', b'{"tags":["x"]}'),
    *(b'{"host":"127"}', b'{"host":"127","exact_match":true}', b'{"domain":"x"}'),
    *(b'{"account":"A"}', b'{"acc":"A"}'),
)
REQUESTS: list[tuple[str, bytes]] = [
    *((PING + name, b"") for name in SERVER_PAGES),
    *(("$SYS.REQ.SERVER.<id>" + name, b"") for name in SERVER_PAGES if name),
    *(
        (f"$SYS.REQ.ACCOUNT.{account}.{name}", b"")
        for account in ("A", "N", "S", "PING", "NOPE", "$G")
        for name in ACCOUNT_PAGES
    ),
    ("$SYS.REQ.USER.INFO", b""),
    ("$SYS.REQ.SERVER.NOPE.VARZ", b""),
    ("$SYS.REQ.SERVER", b""),
    *(("$SYS.REQ.ACCOUNT.\xff." + name, b"") for name in ACCOUNT_PAGES),
    *(('$SYS.REQ.ACCOUNT.a"b.' + name, b"") for name in ACCOUNT_PAGES),
    ("$SYS.REQ.ACCOUNT.A", b""),
    *((f"{PING}.{name}", body) for name in ("CONNZ", "STATSZ", "JSZ", "IDZ") for body in BODIES),
    *(
        (f"{PING}.CONNZ", body)
        for body in (
            *(b'{"filter_subject":"foo.x"}', b'{"acc":"A","filter_subject":"foo.y"}'),
            *(b'{"acc":"A","filter_subject":"bar"}', b'{"acc":"A","filter_subject":">"}'),
            *(b'{"acc":"NOPE"}', b'{"sort":"x"}', b'{"state":7}', b'{"state":1,"auth":true}'),
            *(b'{"acc":"A","subscriptions":true}', b'{"acc":"A","subscriptions_detail":true}'),
            *(b'{"user":"a","auth":true}', b'{"limit":1,"offset":1}', b'{"cid":999999}'),
        )
    ),
    *(
        (f"{PING}.HEALTHZ", body)
        for body in (
            *(b'{"account":"A"}', b'{"account":"NOPE"}', b'{"account":"A","stream":"P"}'),
            *(b'{"account":"A","stream":"X"}', b'{"stream":"X"}', b'{"JS-server-only":true}'),
            *(b'{"stream":"X","details":true}', b'{"js-enabled-only":true}'),
            b'{"account":"A","stream":"P","consumer":"x"}',
        )
    ),
    *((f"{PING}.ACCOUNTZ", b'{"account":"%b"}' % name) for name in (b"A", b"NOPE", b"S")),
    (f"{PING}.SUBSZ", b'{"account":"A","subscriptions":true,"test":"foo.x"}'),
    (f"{PING}.SUBSZ", b'{"test":"foo.*"}'),
    (f"{PING}.JSZ", b'{"accounts":true,"consumer":true,"config":true}'),
    (f"{PING}.JSZ", b'{"account":"NOPE"}'),
    (f"{PING}.RAFTZ", b'{"account":"A","group":"x"}'),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", b'{"accounts":["A","NOPE"]}'),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", b'{"accounts":["$G"],"include_unused":true}'),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", b'{"include_unused":true}'),
    ("$SYS.REQ.ACCOUNT.$G.STATZ", b'{"include_unused":true}'),
    ("$SYS.REQ.ACCOUNT.A.STATZ", b'{"accounts":["B"]}'),
    ("$SYS.REQ.ACCOUNT.A.JSZ", b'{"streams":true}'),
    ("$SYS.REQ.ACCOUNT.A.CONNZ", b'{"acc":"B"}'),
    ("$SYS.REQ.ACCOUNT.A.CONNS", b'{"account":"B"}'),
    *((f"$SYS.REQ.ACCOUNT.A.{name}", b"x") for name in ACCOUNT_PAGES),
    *(
        (f"$SYS.REQ.SERVER.<id>.{name}", body)
        for name, body in (("KICK", b"{}"), ("KICK", b"x"), ("KICK", b'{"cid":999999}'))
    ),
    ("$SYS.REQ.SERVER.<id>.KICK", b'{"cid":"x"}'),
    ("$SYS.REQ.SERVER.<id>.LDM", b'{"cid":999999}'),
    ("$SYS.REQ.SERVER.<id>.LDM", b""),
]


@pytest.mark.parametrize("subject", sorted({subject for subject, _ in REQUESTS}))
def test_same_answers(asked: list[tuple[Server, RawApp]], subject: str) -> None:
    for body in (body for found, body in REQUESTS if found == subject):
        ours, theirs = ask_both(asked, subject, body)
        assert ours == theirs, body


def test_an_answer_says_that_it_is_not_compressed(asked: list[tuple[Server, RawApp]]) -> None:
    header = b"NATS/1.0\r\nAccept-Encoding: x\r\n\r\n"
    ours, theirs = ask_both(asked, f"{PING}.LEAFZ", b"", header)
    assert ours == theirs
    assert b"identity" in bytes(str(ours[0]), "ascii")


def test_a_client_is_asked_to_connect_elsewhere(asked: list[tuple[Server, RawApp]]) -> None:
    """One that takes INFO at any time hears of it; what it does then is its own affair."""
    found = []
    for server, app in asked:
        options = json.dumps({"user": "n", "pass": "x", "protocol": 1, "verbose": False}).encode()
        with log_in(server, "n") as deaf, RawApp(server.port, options=options) as client:
            said = []
            for one in (deaf, client):
                body = json.dumps({"cid": one.info["client_id"]}).encode()
                subject = f"$SYS.REQ.SERVER.{app.info['server_id']}.LDM"
                answer = json.loads(app.request(subject, body).payload)
                said.append(answer.get("error"))
            info: dict[str, object] = {}
            while "ldm" not in info:  # behind the INFO that answers the first PING
                info = client.until("INFO")[-1].json
            said.append((info["ldm"], sorted(info)))
            found.append(said)
    assert found[0] == found[1]


def test_other_accounts_hear_nothing_of_it(asked: list[tuple[Server, RawApp]]) -> None:
    """What is not offered to them nobody answers, and what is offered is of their own."""
    for server, _ in asked:
        with log_in(server, "n") as app:
            kick = f"$SYS.REQ.SERVER.{app.info['server_id']}.KICK"
            for subject in (f"{PING}.VARZ", "$SYS.REQ.ACCOUNT.A.CONNZ", PING, kick):
                app.publish(subject, b"", reply=app.inbox())
                assert app.quiet(0.2) == []
            for subject in ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"):
                body = b'{"acc":"A","auth":true}'
                found = json.loads(app.request(subject, body).payload)["data"]["connections"]
                assert {row["account"] for row in found} == {"N"}, subject


def test_bytes_that_are_no_text_and_floods_are_answered(servers: Servers) -> None:
    """Nobody's requests keep those of the system account's users waiting, or fill the server."""
    server = servers.under_test(config=CONFIG)
    with log_in(server, "s") as app, log_in(server, "n") as other:
        for name in ACCOUNT_PAGES:
            inbox = app.inbox().encode()
            app.send(
                b"PUB $SYS.REQ.ACCOUNT.\xff\xfe." + name.encode() + b" " + inbox + b" 0\r\n\r\n"
            )
        flood = b"".join(b"PUB $SYS.REQ.SERVER.PING.CONNZ r 0\r\n\r\n" for _ in range(20_000))
        other.send(b"SUB r 1\r\n" + flood)
        for _ in range(20):
            assert app.request(f"{PING}.IDZ", timeout=30).payload
        assert other.message().payload
    server.stop()  # which looks for what the log must not have


def test_a_user_is_kicked(asked: list[tuple[Server, RawApp]]) -> None:
    shown = []
    for server, app in asked:
        with log_in(server, "b") as victim:
            body = json.dumps({"cid": victim.info["client_id"]}).encode()
            said = ask(app, "$SYS.REQ.SERVER.<id>.KICK", body)
            shown.append([said, [frame.verb for frame in victim.until("EOF")]])
        reasons = [c["reason"] for c in page(server, "/connz?state=closed")["connections"]]
        shown[-1].append(reasons[-1:])
    assert shown[0] == shown[1]


# ---- events


@pytest.fixture
def heard(servers: Servers) -> Iterator[list[tuple[Server, RawApp]]]:
    starts = (servers.under_test, servers.peer)
    pair = [start(config=CONFIG, monitor=True, jetstream=True) for start in starts]
    yield [(server, listener(server)) for server in pair]


def listener(server: Server, user: str = "s") -> RawApp:
    app = log_in(server, user)
    app.subscribe("$SYS.>")
    app.sync()
    return app


def events(app: RawApp, last: str) -> list[object]:
    """What is heard up to the event on the subject `last`, figures of the server aside."""
    name = str(app.info["server_id"])
    told: list[object] = []
    while True:
        frame = app.message()
        subject = frame.subject.replace(name, "<id>")
        if subject.endswith((".STATSZ", ".ACCOUNT.S.CONNECT")) or ".S." in subject:
            continue  # of the listener itself; the one server tells of it before it listens
        told.append([subject, frame.header, event(frame)])
        if subject == last:
            return told


def event(frame: Frame) -> Any:
    data = json.loads(frame.payload)
    if "sent" in data:  # of the conversation alone
        data["sent_msgs"], data["received_msgs"] = data["sent"]["msgs"], data["received"]["msgs"]
    return shape(data)


def act(server: Server, app: RawApp) -> list[list[object]]:
    """Clients come, talk, are refused and go; what is told of it."""
    told: list[list[object]] = []
    client = log_in(server, "b")
    told.append(events(app, "$SYS.ACCOUNT.B.CONNECT"))
    client.subscribe("x")
    client.publish("x", b"abc")
    client.sync()
    client.close()
    told.append(events(app, "$SYS.ACCOUNT.B.DISCONNECT"))
    for user, password in (("a", "wrong"), ("nobody", "x"), ("", "")):
        with pytest.raises(AssertionError, match="-ERR"):
            log_in(server, user, password)
        told.append(events(app, "$SYS.ACCOUNT.$G.DISCONNECT"))
    with RawClient(server.port) as silent:
        silent.frame()
        silent.send(b"PING\r\n")
        told.append(events(app, "$SYS.ACCOUNT.$G.DISCONNECT"))
    clients = []
    for _ in range(3):
        clients.append(log_in(server, "a"))
        told.append(events(app, "$SYS.ACCOUNT.A.CONNECT"))
    with pytest.raises(AssertionError, match="-ERR"):
        log_in(server, "a")
    told.append(events(app, "$SYS.ACCOUNT.A.DISCONNECT"))
    clients[0].send(b'CONNECT {"user":"a","pass":"wrong","name":"a"}\r\n')
    told.append(events(app, "$SYS.ACCOUNT.$G.DISCONNECT"))
    for client in clients[1:]:  # one by one: an event tells how many there are when it is made
        client.close()
        told.append(events(app, "$SYS.ACCOUNT.A.DISCONNECT"))
    clients[0].close()
    return told


def test_same_events(heard: list[tuple[Server, RawApp]]) -> None:
    """In any order: what nats-server tells of a client and of its account may change places."""
    ours, theirs = ([*map(repr, chain(*act(server, app)))] for server, app in heard)
    assert sorted(ours) == sorted(theirs)


def test_figures_of_the_server_come_by_themselves(heard: list[tuple[Server, RawApp]]) -> None:
    """More and more seldom, and also for a request without a reply."""
    shown = []
    for _, app in heard:
        subject = f"$SYS.SERVER.{app.info['server_id']}.STATSZ"
        found = []
        for _ in range(2):
            while (frame := app.message()).subject != subject:
                pass
            found.append(event(frame))
        app.publish("$SYS.REQ.SERVER.PING.STATSZ")
        while (frame := app.message(2)).subject != subject:
            pass
        shown.append([*found, event(frame)])
    assert shown[0] == shown[1]


def test_the_end_is_told(heard: list[tuple[Server, RawApp]]) -> None:
    shown = []
    for server, app in heard:
        server.stop()
        name = str(app.info["server_id"])
        told = [
            [frame.subject.replace(name, "<id>"), event(frame)]
            for frame in app.until("EOF")
            if frame.subject.endswith(".SHUTDOWN")
        ]
        shown.append(told)
    assert shown[0] == shown[1] and len(shown[0]) == 1


def test_only_the_system_account_hears(heard: list[tuple[Server, RawApp]]) -> None:
    for server, app in heard:
        with listener(server, "n") as other:
            log_in(server, "b").close()
            events(app, "$SYS.ACCOUNT.B.DISCONNECT")
            with pytest.raises(AssertionError, match="-ERR"):
                log_in(server, "n", "wrong")
            events(app, "$SYS.ACCOUNT.$G.DISCONNECT")
            assert other.sync() == []


def test_nobody_is_told_where_nobody_listens(servers: Servers) -> None:
    """And a server without users of the system account has no events at all."""
    server = servers.under_test(monitor=True)
    with RawApp(server.port) as app:
        app.subscribe("$SYS.>")
        app.sync()
        RawApp(server.port).close()
        wait_until(lambda: page(server, "/varz")["connections"] == 1, "the other one is gone")
        assert app.sync() == []
