"""Monitoring pages of several accounts beside nats-server's, after the same conversations."""

import json
from collections.abc import Iterator

import pytest

from tests.client.raw import RawApp
from tests.client.test_monitor_diff import VOLATILE, VOLATILE_TOTALS, Pair, fetch, page, plain
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

SIGNER = Signer()
CONFIG = f"""
server_name: one
accounts {{
    A {{
        users: [{{ user: a, password: x }}, {{ nkey: {SIGNER.public} }}]
        jetstream: {{ max_mem: 1MB, max_file: 100000 }}
        limits {{ max_connections: 3 }}
    }}
    B {{ users: [{{ user: b, password: x }}], jetstream: enabled }}
    N {{ users: [{{ user: n, password: x }}] }}
    S {{ users: [{{ user: s, password: x }}] }}
}}
system_account: S
"""


def log_in(server: Server, user: str, password: str = "x") -> RawApp:
    options = {"verbose": False, "headers": True, "user": user, "pass": password, "name": user}
    return RawApp(server.port, options=json.dumps(options).encode())


def talk(server: Server) -> list[RawApp]:
    """The conversation that the pages are about; the connections that stay open."""
    apps = [log_in(server, user) for user in "abns"]
    for app in apps:
        app.subscribe("foo.*")
        app.subscribe("foo.x", "q")
        app.sync()
    for app in apps[:3]:
        app.publish("foo.x", b"12345")
        app.sync()
    for app in apps[:2]:
        app.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
        app.request("p", b"xx")
        config = {"durable_name": "c", "ack_policy": "explicit"}
        app.api("CONSUMER.CREATE.P.c", {"stream_name": "P", "config": config})
    gone = log_in(server, "a")
    gone.publish("foo.x", b"1")
    gone.sync()
    more = log_in(server, "a")
    for user, password in (("a", "x"), ("a", "y"), ("nobody", "x")):  # too many, and refused
        with pytest.raises(AssertionError, match="-ERR"):
            log_in(server, user, password)
    for app in (gone, more):
        app.close()
    wait_until(lambda: page(server, "/connz?state=closed")["total"] == 5, "all ended", 10)
    return apps


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[Pair]:
    starts = (module_servers.under_test, module_servers.peer)
    ours, theirs = (start(config=CONFIG, monitor=True, jetstream=True) for start in starts)
    apps = [app for server in (ours, theirs) for app in talk(server)]
    yield ours, theirs
    for app in apps:
        app.close()


#: How much each server's own subscriptions and answers add to an account.
OWN = frozenset(("subscriptions", "bytes"))


@pytest.mark.parametrize(
    "target",
    [
        *("/connz", "/connz?auth=1", "/connz?auth=1&subs=1", "/connz?auth=1&subs=detail"),
        *(f"/connz?acc={name}&auth=1" for name in ("A", "B", "N", "S", "$G", "NOPE")),
        *("/connz?acc=A", "/connz?acc=A&user=a&auth=1", "/connz?acc=B&user=a&auth=1"),
        *("/connz?acc=A&limit=1", "/connz?acc=A&offset=1"),
        *("/connz?state=closed&auth=1", "/connz?state=closed&acc=A&auth=1"),
        "/connz?state=any&acc=A&auth=1",
        "/connz?acc=A&filter_subject=foo.x",
        *(f"/accountz?acc={name}" for name in ("A", "B", "N", "S", "$G")),
        *("/accountz", "/accountz?acc="),
        *("/jsz", "/jsz?accounts=1", "/jsz?accounts=1&limit=1", "/jsz?accounts=1&offset=1"),
        *("/jsz?streams=1", "/jsz?acc=A&consumers=1&config=1", "/jsz?acc=B&streams=1"),
        *("/jsz?acc=N", "/jsz?acc=S", "/jsz?acc=NOPE"),
        *("/subsz?acc=N", "/subsz?acc=NOPE&subs=1", "/subsz?acc=A&subs=1&test=foo.x"),
        *("/subsz?acc=A&subs=1&test=foo.y", "/subsz?acc=$G&subs=1&test=foo.x"),
        *("/healthz?account=A", "/healthz?account=A&stream=P", "/healthz?account=B&stream=P"),
    ],
)
def test_same_page(pair: Pair, target: str) -> None:
    ours, theirs = (page(server, target) for server in pair)
    volatile = VOLATILE
    if target.startswith("/accountz"):
        volatile |= OWN
    if target.startswith("/connz"):
        volatile |= {"in_bytes", "out_bytes"}
    assert plain(ours, volatile) == plain(theirs, volatile)


@pytest.mark.parametrize("target", ["/accstatz", "/accstatz?unused=1"])
def test_same_figures_of_accounts(pair: Pair, target: str) -> None:
    """In any order."""
    shown = []
    for server in pair:
        rows = page(server, target)["account_statz"]
        shown.append({row["acc"]: plain(row, VOLATILE | OWN) for row in rows})
    assert shown[0] == shown[1]


def test_same_subscriptions_over_all_accounts(pair: Pair) -> None:
    shown = []
    for server in pair:
        found = page(server, "/subsz?subs=1&test=foo.x")
        for row in found["subscriptions_list"]:
            row["cid"] = 0
        shown.append([found["total"], sorted(map(str, found["subscriptions_list"]))])
    assert shown[0] == shown[1]


def test_same_varz(pair: Pair) -> None:
    ours, theirs = (page(server, "/varz") for server in pair)
    assert ours["system_account"] == theirs["system_account"] == "S"
    volatile = VOLATILE | VOLATILE_TOTALS
    assert plain(ours, volatile) == plain(theirs, volatile)


@pytest.mark.parametrize(
    "target",
    [
        *("/accountz?acc=NOPE", "/accountz?acc=%22", "/accountz?acc=a"),
        *("/healthz?account=N", "/healthz?account=NOPE", "/healthz?account=B&stream=NOPE"),
        *("/healthz?account=A&stream=P&consumer=d", "/healthz?account=A&stream=P&consumer=c"),
        "/healthz?details=1&account=N",
    ],
)
def test_same_answer_to_the_byte(pair: Pair, target: str) -> None:
    ours, theirs = (fetch(server, target) for server in pair)
    assert ours == theirs
