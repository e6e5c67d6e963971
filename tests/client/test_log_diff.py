"""What both servers' logs say of the same connections: who a line is about, and what happened."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.client.raw import EOF, RawClient
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

LIMITS = "max_payload: 100\nmax_control_line: 300\nmax_subscriptions: 2\n"
USERS = """
authorization { timeout: 1, users = [
  { user: u, password: x, permissions: { publish: { deny: "no" }, subscribe: { deny: "no" } } }
] }
"""
CONFIGS = {"plain": LIMITS, "users": LIMITS + USERS}
HEADER = b"NATS/1.0\r\n\r\n"

#: What a client sends behind its CONNECT.
SAID = {
    "payload": b"PUB a 200\r\n",
    "line": b"PUB " + b"a" * 400 + b" 1\r\n",
    "verb": b"FOO\r\n",
    "sub": b"SUB a b c d\r\n",
    "unsub": b"UNSUB a b c d\r\n",
    "size": b"PUB a -1\r\nx\r\n",
    "pub": b"PUB a b c d\r\nx\r\n",
    "header_size": b"HPUB a 20 10\r\n",
    "hpub": b"HPUB a 10\r\n",
    "subs": b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n",
    "denied": b"SUB no 1\r\nSUB no q 2\r\nPUB no 0\r\n\r\nPUB x $JS.ACK.a 0\r\n\r\n",
    "error": b"-ERR 'nothing'\r\n",
    "trace": b"HPUB a 50 50\r\nNATS/1.0\r\nNats-Trace-Dest:*\r\nNats-Trace-Only:1\r\n\r\n\r\n",
}
#: CONNECT options that are refused, or make what follows refused.
CONNECTS: dict[str, dict[str, object]] = {
    "no_headers": {"headers": False, "no_responders": False},
    "no_responders": {"headers": False},
    "protocol": {"protocol": 9},
    "password": {"pass": "y"},
    "nobody": {"user": "", "pass": ""},
}
#: What comes instead of a CONNECT.
STRANGERS = {"http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "tls": b"\x16\x03\x01\0\xa5\x01\0\0\xa1"}
ACTIONS = ("json", *SAID, *CONNECTS, *STRANGERS)


@pytest.fixture(scope="module", params=CONFIGS)
def pair(request: pytest.FixtureRequest, module_servers: Servers) -> Iterator[list[Server]]:
    options = {"config": CONFIGS[request.param], "args": ["-D"]}
    yield [module_servers.under_test(**options), module_servers.peer(**options)]


def connect(**more: object) -> bytes:
    options: dict[str, object] = {"verbose": False, "headers": True, "no_responders": True}
    options |= {"user": "u", "pass": "x", "lang": "go", "version": "1.2", "name": 'a"b'} | more
    return b"CONNECT " + json.dumps(options, separators=(",", ":")).encode() + b"\r\n"


def said(action: str) -> bytes:
    if action in CONNECTS:
        return connect(**CONNECTS[action]) + b"HPUB a 12 12\r\n" + HEADER + b"\r\n"
    if action in SAID:
        return connect() + SAID[action]
    return {"silence": b"", "json": b"CONNECT {{{\r\n", **STRANGERS}[action]


def lines(log: str) -> list[str]:
    """Without what differs between any two runs, or between parsers; the order is theirs."""
    shown = []
    for line in log.splitlines():
        text = re.sub(r"^\[\d+\] \S+ \S+ ", "", line)
        text = re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", text)
        text = re.sub(r"Client parser ERROR.*", "Client parser ERROR", text)
        text = re.sub(r"processHeaderPub [^:]*", "processHeaderPub", text)
        text = re.sub(r"(CONNECT options|invalid character).*", "bad CONNECT", text)
        if not re.search(r"connection created|Client Ping Timer|->> \[PING\]", text):
            shown.append(text)
    return sorted(shown)


def logged(server: Server, action: str) -> Callable[[], list[str]]:
    """Talks to the server; what it has logged of that by the time it is asked."""
    before = len(server.log())
    with RawClient(server.port) as client:
        client.frame()
        client.send(said(action))
        if action != "silence":
            client.send(b"PING\r\n")
        client.until("PONG")
    wait_until(lambda: "closed:" in server.log()[before:], "the connection's end in the log")
    return lambda: lines(server.log()[before:])


def assert_same(ours: Callable[[], list[str]], theirs: Callable[[], list[str]]) -> None:
    """nats-server may write the reason of an end behind the end itself."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: ours() == theirs(), "the same lines", 5)
    assert ours() == theirs()


@pytest.mark.parametrize("action", ACTIONS)
def test_same_lines(pair: list[Server], action: str) -> None:
    ours, theirs = (logged(server, action) for server in pair)
    assert_same(ours, theirs)


@pytest.fixture(scope="module")
def tracing(module_servers: Servers) -> list[Server]:
    options = {"config": LIMITS, "args": ["-DV"]}
    return [module_servers.under_test(**options), module_servers.peer(**options)]


@pytest.mark.parametrize(
    "action", [x for x in (*SAID, "no_headers") if x not in ("trace", "error")]
)
def test_same_traces(tracing: list[Server], action: str) -> None:
    """Of what is refused too: each line, and its payload where it was taken."""
    ours, theirs = (logged(server, action) for server in tracing)
    assert_same(ours, theirs)


@pytest.mark.parametrize("block", ["cluster", "gateway", ""])
def test_the_cluster_is_told_at_the_start(servers: Servers, block: str) -> None:
    config = "accounts { S { users: [{ user: s, password: s }] } }\nsystem_account: S\n"
    if block:
        config += f'{block} {{ name: REGION, listen: "127.0.0.1:-1" }}'

    def told(server: Server) -> list[str]:
        return re.findall(r"\[INF\] {3}(\w+):", server.log())

    ours, theirs = (told(start(config=config)) for start in (servers.under_test, servers.peer))
    assert [name for name in ours if name != "jsserver"] == theirs
    assert ("Cluster" in theirs) == bool(block)


def test_silence_is_told_when_it_must_end(servers: Servers) -> None:
    options = {"config": CONFIGS["users"], "args": ["-D"]}
    ours, theirs = (logged(s(**options), "silence") for s in (servers.under_test, servers.peer))
    assert_same(ours, theirs)


def test_slow_consumers(servers: Servers) -> None:
    config = 'max_payload: 150000\nmax_pending: 200000\nwrite_deadline: "5s"\n'
    said = []
    for start in servers.under_test, servers.peer:
        server = start(config=config)
        with RawClient(server.port, receive_buffer=2048) as slow, RawClient(server.port) as fast:
            slow.send(connect() + b"SUB a 1\r\nPING\r\n")
            slow.until("PONG")
            fast.send(connect(name="") + (b"PUB a 100000\r\n" + b"x" * 100000 + b"\r\n") * 200)
            server.wait_log("Slow Consumer")
        said += [x for x in lines(server.log()) if "Slow" in x]
    assert said[0] == said[1]
    assert said[0].endswith('"$G/user:u" - Slow Consumer Detected: MaxPending of 200000 Exceeded')


def test_write_deadline(servers: Servers) -> None:
    server = servers.under_test(config='write_deadline: "100ms"\n')
    with RawClient(server.port, receive_buffer=2048) as slow, RawClient(server.port) as fast:
        slow.send(connect() + b"SUB a 1\r\nPING\r\n")
        slow.until("PONG")
        fast.send(connect() + (b"PUB a 100000\r\n" + b"x" * 100000 + b"\r\n") * 100)
        server.wait_log("Slow Consumer")
    text = r"WriteDeadline of 100ms exceeded with \d+ chunks of \d{5,} total bytes\."
    assert re.search(text, server.log())


CONVERSATION = (
    b"SUB a 1\r\nSUB b q 2\r\n"
    b"PUB a rr 25\r\nhello world, this is long\r\nPUB a 0\r\n\r\n"
    b"HPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n"
    b"HPUB a r.1 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n"
    b'PUB b 5\r\n\x00\xff"q"\r\nPONG\r\nUNSUB 2 5\r\nUNSUB 1\r\nSUB x 5\r\nSUB y 6\r\nSUB z 7\r\n'
    b"PUB c 10\r\n0123456789\r\nPUB c 11\r\n0123456789a\r\n"
    b"PUB nobody r 0\r\n\r\nPUB x $JS.ACK.a 0\r\n\r\nPING\r\n"
)


@pytest.mark.parametrize("verbose", [True, False])
def test_traces(servers: Servers, verbose: bool) -> None:
    """What goes in and out; the password is hidden."""
    said = []
    for start in servers.under_test, servers.peer:
        server = start(config="max_subscriptions: 3\nmax_traced_msg_len: 10\n", args=["-DV"])
        with RawClient(server.port) as client:
            client.send(connect(verbose=verbose) + CONVERSATION)
            client.until("PONG")
            client.send(b"FOO\r\n")
            client.until(EOF)
        # nats-server may write of subscriptions behind the end of their connection.
        for end in "closed:", "[DELSUB 5]", "[DELSUB 6]":
            server.wait_log(end)
        text = server.log()
        assert '"x"' not in text
        said.append([x for x in lines(text) if "CLIENT" in x and "[CONNECT" not in x])
    assert said[0] == said[1]
