"""WebSocket: requests, frames, logins, monitoring and the log, the same said to both servers."""

import json
import re
import urllib.request
from functools import partial
from typing import Any

import pytest

from tests.client.raw import EOF, Frame, RawApp, RawClient
from tests.client.test_accounts_diff import SIGNER
from tests.client.tokens import told
from tests.client.websocket import WsClient, ask, websocket_port
from tests.servers import Server, ServerFailed, Servers
from tests.unit.test_websocket import WRONG
from tests.waiting import wait_until
from tests.websocket import CLOSE, CONTINUATION, FINAL, PING, RSV1, compressed, frame, request

pytestmark = pytest.mark.usefixtures("peer_present")

BLOCK = 'websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true\n%s }\n'
ORIGINS = 'allowed_origins: ["http://good.com", "https://ok.org:8443", "http://[::1]:80"]'


def start(servers: Servers, block: str = "", more: str = "", **options: Any) -> list[Server]:
    config = "server_name: one\n" + BLOCK % block + more
    options = {"config": config, "args": ["-D"], "monitor": True, **options}
    return [make(**options) for make in (servers.under_test, servers.peer)]


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    return start(module_servers, f'{ORIGINS}\nheaders {{ x-A: "b c" }}')


@pytest.fixture(scope="module")
def same_origin(module_servers: Servers) -> list[Server]:
    return start(module_servers, "same_origin: true")


# ---- requests


def with_line(line: bytes) -> bytes:
    return request().replace(b"Host: localhost", b"Host: localhost\r\n" + line)


def with_method(method: bytes, path: str = "/") -> bytes:
    return request(path).replace(b"GET", method, 1)


REQUESTS = {
    "plain": request(),
    "another path": request("/any/thing?x=1"),
    "an absolute target": request("http://x.y/z"),
    "mqtt": request("/mqtt"),
    "mqtt, posted": with_method(b"POST", "/a/mqtt"),
    "mqtt, escaped": request("/%6dqtt"),
    "leafnode": request("/leafnode"),
    "leafnode, deeper": request("/a/leafnode"),
    "post": with_method(b"POST"),
    "head": with_method(b"HEAD"),
    "small letters": with_method(b"get"),
    "no host": request(drop="host"),
    "an empty host": request(host=""),
    "two hosts": with_line(b"Host: b"),
    "a host with a blank": request(host="a b"),
    "a host with a slash": request(host="a/b"),
    "no upgrade": request(drop="upgrade"),
    "upgrade in a list": request(upgrade="h2c, WebSocket"),
    "another upgrade": request(upgrade="web"),
    "no connection": request(drop="connection"),
    "connection in a list": request(connection="keep-alive, Upgrade"),
    "connection in two lines": request().replace(
        b"Connection: Upgrade", b"Connection: a\r\nConnection: upgrade"
    ),
    "close and upgrade": request(connection="close, Upgrade"),
    "close": request(connection="close"),
    "no key": request(drop="sec-websocket-key"),
    "a short key": request(sec_websocket_key="abc"),
    "a key of 15 bytes": request(sec_websocket_key="A" * 20),
    "a key without padding": request(sec_websocket_key="A" * 22),
    "a key that is none": request(sec_websocket_key="!" * 22 + "=="),
    "no version": request(drop="sec-websocket-version"),
    "version 12": request(sec_websocket_version="12"),
    "version in a list": request(sec_websocket_version="8, 13"),
    "HTTP/1.0": request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0, refused": request(upgrade="x").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0, kept": request(connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/2.0": request().replace(b"HTTP/1.1", b"HTTP/2.0"),
    "HTTP/1.2": request().replace(b"HTTP/1.1", b"HTTP/1.2"),
    "no HTTP": request().replace(b"HTTP/1.1", b"HTTP/x"),
    "two words": b"GET\r\n\r\n",
    "a NATS client": b'CONNECT {"verbose":false}\r\n\r\n',
    "an empty line first": b"\r\n" + request(),
    "ends of lines without CR": request().replace(b"\r\n", b"\n"),
    "a line without colon": with_line(b"nocolon"),
    "a name with a blank": with_line(b"A B: c"),
    "a blank before the colon": with_line(b"A : c"),
    "a control character": with_line(b"A: b\x01c"),
    "a broken escape": request("/%zz"),
    "a path without slash": request("a"),
    "a control character in the path": request("/a\x01"),
    "dots": request("/a/../b?x=y&z"),
    "slashes": request("//a//"),
    "dots, posted": with_method(b"POST", "/./x"),
    "a length that is none": request(content_length="x"),
    "bytes behind it": request() + b"more",
    "one that is refused first": request(upgrade="x") + request(),
    "an endless one": request(x="y" * 1_100_000),
    "no origin": request(origin=""),
    "an origin": request(origin="http://good.com"),
    "an origin with its port": request(origin="http://GOOD.com:80"),
    "an origin with a user": request(origin="http://u@good.com"),
    "an origin in capitals": request(origin="HTTP://good.com"),
    "an origin with an empty port": request(origin="http://good.com:"),
    "an origin with a port": request(origin="https://ok.org:8443/x"),
    "another port": request(origin="https://ok.org"),
    "another scheme": request(origin="https://good.com"),
    "another origin": request(origin="http://evil.com"),
    "another origin in the old header": request(sec_websocket_origin="http://evil.com"),
    "an IPv6 origin": request(origin="http://[::1]:80"),
    "an IPv6 origin without port": request(origin="http://[::1]"),
    "a null origin": request(origin="null"),
    "a relative origin": request(origin="/x"),
    "an origin without host": request(origin="http:///x"),
    "a broken IPv6 origin": request(origin="http://[::1"),
    "an origin of three parts": request(origin="http://a:b:c"),
    "compression": request(sec_websocket_extensions="permessage-deflate"),
    "compression with parameters": request(
        sec_websocket_extensions="foo, Permessage-Deflate; client_max_window_bits"
    ),
    "compression as a parameter": request(sec_websocket_extensions="foo;permessage-deflate"),
    "another extension": request(sec_websocket_extensions="deflate"),
    "no masking": request(nats_no_masking="true"),
    "no masking, in another form": request(nats_no_masking="True"),
    "all at once": request(nats_no_masking="true", sec_websocket_extensions="permessage-deflate"),
    "a protocol": request(sec_websocket_protocol="nats"),
    "forwarded": request(x_forwarded_for="1.2.3.4"),
    "forwarded twice": request(x_forwarded_for="1.2.3.4, 5.6.7.8"),
    "forwarded for IPv6": request(x_forwarded_for="::1"),
    "forwarded for a zone": request(x_forwarded_for="fe80::1%eth0"),
}


def same_log(server: Server, before: int) -> list[str]:
    """Without what differs between any two runs."""
    shown = []
    for line in server.log()[before:].splitlines():
        text = re.sub(r"^\[\d+\] \S+ \S+ ", "", line)
        text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
        text = re.sub(r"wid:\d+", "wid:N", text)
        # Go's HTTP server complains of an answer to a connection that is no longer its own.
        if "hijacked" not in text:
            shown.append(text)
    return shown


def answered(server: Server, raw: bytes) -> tuple[object, ...]:
    """The answer and the log, without what differs between any two servers."""
    before = len(server.log())
    answers, said, ended = ask(websocket_port(server), raw)
    info = told(Frame("INFO", json=json.loads(said[5:]))) if said else None
    answers = [re.sub(rb"\r\nDate: [^\r]*", b"\r\nDate: now", answer) for answer in answers]
    words = "connection closed" if said else "handshake error"
    if said or b"Sec-Websocket-Version" in answers[-1] or answers == [b""]:
        wait_until(lambda: words in server.log()[before:], words)
    return answers, info, ended, same_log(server, before)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(pair: list[Server], name: str) -> None:
    ours, theirs = (answered(server, REQUESTS[name]) for server in pair)
    assert ours == theirs


ORIGINS_ASKED = [
    ("localhost", "http://localhost"),
    ("localhost", "http://LOCALHOST:80"),
    ("localhost:80", "http://localhost"),
    ("localhost:81", "http://localhost"),
    ("localhost:81", "http://localhost:81"),
    ("localhost", "https://localhost"),
    ("localhost:443", "https://localhost"),
    ("other", "http://localhost"),
    ("[::1]:80", "http://[::1]:80"),
    ("[::1]", "http://[::1]"),
    ("[::1]:80", "http://[::1]"),
]


@pytest.mark.parametrize(("host", "origin"), ORIGINS_ASKED)
def test_the_same_origin(same_origin: list[Server], host: str, origin: str) -> None:
    raw = request(host=host, origin=origin)
    ours, theirs = (answered(server, raw) for server in same_origin)
    assert ours == theirs


# ---- frames


def conversation(server: Server, *pieces: bytes, **terms: Any) -> tuple[list[Any], list[str]]:
    """What a client hears that sends these bytes, and how it ends in the log."""
    before = len(server.log())
    with WsClient(server, **terms) as client:
        client.frame()
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        for piece in pieces:
            client.raw(piece)
        heard = [told(frame) for frame in client.until(EOF)]
        closes = [(s.first, s.payload) for s in client.seen if s.opcode >= CLOSE]
    wait_until(lambda: "connection closed" in server.log()[before:], "the end")
    return [heard, closes], [re.sub(r".* - wid:N", "", x) for x in same_log(server, before)]


CLOSING = frame(b"\x03\xe8bye", CLOSE)
TALKS: dict[str, list[bytes]] = {
    "close": [CLOSING],
    "close without a status": [frame(b"", CLOSE)],
    "close with a status": [frame(b"\x03\xe8", CLOSE)],
    "close with one's own status": [frame(b"\x0f\xa0why", CLOSE)],
    "close with what is no text": [frame(b"\x03\xe8\xff\xfe", CLOSE)],
    "pings": [frame(b"1", PING) + frame(b"", PING) + frame(b"x" * 125, PING) + CLOSING],
    "a ping between fragments": [
        frame(b"PI", first=0) + frame(b"1", PING) + frame(b"NG\r\n", CONTINUATION) + CLOSING
    ],
    "unasked pongs": [frame(b"", 10) + frame(b"x", 10) + CLOSING],
    "a text frame": [frame(b"PING\r\n", 1) + CLOSING],
    "an empty frame": [frame(b"") + frame(b"PING\r\n") + CLOSING],
    "byte by byte": [bytes([b]) for b in frame(b"PUB a 5\r\nhello\r\nPING\r\n") + CLOSING],
    "an echo": [frame(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n") + CLOSING],
    "an authority it has not": [frame(b"SUB a. 1\r\nPING\r\n") + CLOSING],
}


@pytest.mark.parametrize("name", TALKS)
def test_conversations(pair: list[Server], name: str) -> None:
    ours, theirs = (conversation(server, *TALKS[name]) for server in pair)
    assert ours[0] == theirs[0]
    assert sorted(ours[1]) == sorted(theirs[1])


@pytest.mark.parametrize(
    ("text", "error", "status", "reason"),
    [
        (b"WHAT\r\n", "Unknown Protocol Operation", 1002, "Protocol Violation"),
        (
            b"PUB %s 1\r\n" % (b"a" * 5000),
            "maximum control line exceeded",
            1008,
            "Maximum Control Line Exceeded",
        ),
        (
            b"PUB a 2000000\r\n",
            "Maximum Payload Violation",
            1009,
            "Maximum Message Payload Exceeded",
        ),
    ],
)
def test_what_the_protocol_refuses_is_said(
    pair: list[Server], text: bytes, error: str, status: int, reason: str
) -> None:
    """nats-server takes it for an error of reading, and may close before it has said why."""
    heard, log = conversation(pair[0], frame(text))
    assert heard[0] == [("-ERR", f"-ERR '{error}'".encode(), b"", b""), ("EOF", b"", b"", b"")]
    assert heard[1] == [(FINAL | CLOSE, status.to_bytes(2, "big") + reason.encode())]
    assert log[-1].endswith(f"Client connection closed: {reason}")
    assert conversation(pair[1], frame(text))[0][0][-1] == ("EOF", b"", b"", b"")


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_frames(pair: list[Server], text: str) -> None:
    """nats-server may close before it has said why; the log of both says it."""
    ours, theirs = (conversation(server, WRONG[text]) for server in pair)
    assert sorted(ours[1]) == sorted(theirs[1])
    assert ours[0][1] == [(FINAL | CLOSE, b"\x03\xea" + text.strip().encode())]
    assert theirs[0][1] in ([], ours[0][1])


DEFLATED: dict[str, list[bytes]] = {
    "whole": [compressed(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n") + CLOSING],
    "in pieces": [compressed(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n", 5) + CLOSING],
    "much": [compressed(b"SUB a 1\r\n" + b"PUB a 100\r\n%s\r\n" % (b"x" * 100) * 5000) + CLOSING],
    "mixed": [frame(b"PING\r\n") + compressed(b"PING\r\n") + frame(b"PING\r\n") + CLOSING],
    "beyond the limit": [compressed(b"PUB a 1048576\r\n" + b"\0" * 3_000_000)],
    "a compressed ping": [frame(b"x", PING, first=FINAL | RSV1)],
    "a compressed continuation": [
        frame(b"x", first=RSV1) + frame(b"x", CONTINUATION, first=FINAL | RSV1)
    ],
}


@pytest.mark.parametrize("name", DEFLATED)
def test_compressed_conversations(pair: list[Server], name: str) -> None:
    ours, theirs = (conversation(server, *DEFLATED[name], deflate=True) for server in pair)
    assert sorted(ours[1]) == sorted(theirs[1])
    assert ours[0][0] == theirs[0][0]
    assert theirs[0][1] in ([], ours[0][1])


# ---- logins

USERS = """
authorization { users = [
  { user: u, password: x }
  { user: tcp, password: x, allowed_connection_types: STANDARD }
  { user: ws, password: x, allowed_connection_types: [WEBSOCKET, MQTT] }
] }
"""
COOKIES = "user_cookie: u\npass_cookie: p\ntoken_cookie: t\n"
CONFIGS = {
    "nobody": ("", ""),
    "users": (COOKIES, USERS),
    "users and a guest": (COOKIES, USERS + "no_auth_user: u\n"),
    "a guest of its own": (COOKIES + "no_auth_user: ws\n", USERS),
    "a guest who may not": ("no_auth_user: tcp\n", USERS),
    "a single user": (COOKIES, "authorization { user: a, password: x }\n"),
    "a token": (COOKIES, "authorization { token: x }\n"),
    "a user of its own": (COOKIES + "authorization { user: a, password: x }\n", ""),
    "another user of its own": (
        COOKIES + "authorization { user: a, password: x }\n",
        "authorization { user: b, password: y }\n",
    ),
    "a token of its own": (COOKIES + "authorization { token: x }\n", ""),
}
LOGINS: dict[str, tuple[dict[str, object], str]] = {
    "nothing": ({}, ""),
    **{
        f"user {name}": ({"user": name, "pass": "x"}, "")
        for name in ("u", "tcp", "ws", "a", "nobody")
    },
    "wrong password": ({"user": "u", "pass": "y"}, ""),
    "token": ({"auth_token": "x"}, ""),
    "cookies": ({}, "u=ws; p=x"),
    "quoted cookies": ({}, 'u="ws"; p="x"'),
    "half in a cookie": ({"user": "u"}, "p=x"),
    "CONNECT before cookies": ({"user": "u", "pass": "x"}, "u=a; p=y"),
    "a cookie's token": ({}, "a=b; t=x"),
    "the last of two": ({}, "u=ws; u=u; p=x"),
    "a cookie that is none": ({}, "u=w,s; u=u; p=x; p=\x7f"),
    "a user in a cookie": ({}, "u=a; p=x"),
}


@pytest.mark.parametrize("config", CONFIGS)
def test_logins(servers: Servers, config: str) -> None:
    block, more = CONFIGS[config]
    both = start(servers, block, more)
    for name, (options, cookie) in LOGINS.items():
        shown = []
        for server in both:
            headers = {"cookie": cookie} if cookie else {}
            with WsClient(server, request(**headers)) as client:
                info = told(client.frame())
                fields = {"verbose": False, "protocol": 1, "headers": True, **options}
                client.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")
                said = [told(f) for f in client.until("INFO")]
                shown.append([info, said])
        assert shown[0] == shown[1], name


def test_who_says_nothing_is_cut_when_its_time_is_over(servers: Servers) -> None:
    both = start(servers, "authorization { user: a, password: x, timeout: 0.3 }")
    heard = []
    for server in both:
        with WsClient(server) as client:
            frames = client.until(EOF)
            heard.append([told(f) for f in frames] + [s.payload for s in client.seen[-1:]])
    assert heard[0] == heard[1]


def test_who_has_not_asked_in_time_is_cut(servers: Servers) -> None:
    for server in start(servers, "handshake_timeout: 1"):
        assert ask(websocket_port(server), request()[:-2]) == ([b""], b"", True)


# ---- monitoring


def page(server: Server, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(server.monitor_url + path, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def has_nobody(server: Server) -> bool:
    return bool(page(server, "/connz")["num_connections"] == 0)


def test_monitoring(servers: Servers) -> None:
    block = f"same_origin: true, handshake_timeout: 3, ping_interval: 1m\n{ORIGINS}\n{COOKIES}"
    shown = []
    for server in start(servers, block + "no_auth_user: u\n", USERS):
        with WsClient(server, request(x_forwarded_for="1.2.3.4")) as client:
            client.frame()
            client.send(b'CONNECT {"verbose":false,"name":"n"}\r\n')
            client.sync()
            (open_,) = page(server, "/connz?auth=1")["connections"]
        wait_until(partial(has_nobody, server), "its end")
        (closed,) = page(server, "/connz?state=closed")["connections"]
        varz = page(server, "/varz")
        assert varz["websocket"].pop("port") == websocket_port(server)
        shown.append(
            [
                varz["websocket"],
                varz["connections"],
                varz["total_connections"],
                list(open_),
                *({k: c[k] for k in ("kind", "type", "ip")} for c in (open_, closed)),
                open_["authorized_user"],
                closed["reason"],
            ]
        )
    assert shown[0] == shown[1]


def test_events_name_the_type_of_a_client(servers: Servers) -> None:
    more = """
    accounts { A { users: [{ user: a, password: x }] }, S { users: [{ user: s, password: x }] } }
    system_account: S
    """
    heard = []
    for server in start(servers, "", more):
        system = RawApp(server.port, options=b'{"verbose":false,"user":"s","pass":"x"}')
        with system, WsClient(server) as client:
            system.subscribe("$SYS.ACCOUNT.A.*")
            system.sync()
            client.frame()
            client.send(b'CONNECT {"verbose":false,"user":"a","pass":"x"}\r\n')
            client.sync()
            found = [json.loads(system.message().payload)["client"]]
            client.raw(CLOSING)
            found.append(json.loads(system.message().payload)["client"])
            heard.append([(c["kind"], c["client_type"], c["user"]) for c in found])
    assert heard[0] == heard[1]


def test_services_hear_the_type_of_a_client(servers: Servers) -> None:
    more = """
    accounts {
        A { users: [{ user: a, password: x }], exports: [{ service: svc }] }
        B {
            users: [{ user: b, password: x }]
            imports: [{ service: { account: A, subject: svc }, share: true }]
        }
    }
    """
    heard = []
    for server in start(servers, "", more):
        told_of = []
        options = b'{"verbose":false,"headers":true,"user":"a","pass":"x"}'
        service = RawApp(server.port, options=options)
        with service, WsClient(server) as client, RawClient(server.port) as plain:
            service.subscribe("svc")
            service.sync()
            for asker in (client, plain):
                asker.frame()
                asker.send(b'CONNECT {"verbose":false,"user":"b","pass":"x"}\r\n')
                asker.send(b"PUB svc in 0\r\n\r\n")
                asker.sync()
                who = json.loads(service.message().headers["Nats-Request-Info"])
                told_of.append((who["kind"], who["client_type"]))
        heard.append(told_of)
    assert heard[0] == heard[1]
    assert [kind for _, kind in heard[0]] == ["websocket", "nats"]


GUESTS = {
    "a user": ("no_auth_user: u", ""),
    "a user of all": ("", "no_auth_user: u"),
    "a key": (f"no_auth_user: {SIGNER.public}", ""),
    "a key of all": ("", f"no_auth_user: {SIGNER.public}"),
}


@pytest.mark.parametrize("guest", GUESTS)
@pytest.mark.parametrize("first", [b"PING\r\n", b'CONNECT {"verbose":false}\r\nPING\r\n'])
def test_guests_who_begin_without_connect(servers: Servers, guest: str, first: bytes) -> None:
    block, everybody = GUESTS[guest]
    people = "{ user: u, password: x }, { nkey: " + SIGNER.public + " }"
    more = "accounts { A { users: [" + people + "] } }\n" + everybody
    heard = []
    for server in start(servers, block, more):
        for client in (WsClient(server), RawClient(server.port)):
            with client:
                client.send(first)
                heard.append([told(f) for f in client.until("PONG")])
    assert heard[:2] == heard[2:]


# ---- what configurations say


BLOCKS = [
    "{port: 8080}",
    "{port: 8080, no_tls: false}",
    '{port: 8080, no_tls: true, allowed_origins: "ws://x"}',
    '{port: 8080, no_tls: true, allowed_origins: ["http://a", "x"]}',
    '{port: 8080, no_tls: true, allowed_origins: ["http://"]}',
    '{port: 8080, no_tls: true, allowed_origins: ["http://a:b"]}',
    '{port: 8080, no_tls: true, allowed_origins: ["http://[::1"]}',
    '{port: 8080, no_tls: true, allowed_origins: [""]}',
    "{port: 8080, no_tls: true, no_auth_user: x}",
    "{port: 8080, no_tls: true, jwt_cookie: x}",
    "{port: 8080, no_tls: true, headers {Host: x}}",
    "{port: 8080, no_tls: true, headers {nats-no-masking: x}}",
    "{port: 8080, no_tls: true, headers {Sec-WebSocket-X: x}}",
    "{port: 8080, no_tls: true, authorization {user: a}}\nauthorization {users: [{user: b}]}",
    "{port: 8080, no_tls: true, authorization {token: a}}\nauthorization {users: [{user: b}]}",
    "{port: 8080, no_tls: true, no_auth_user: a}\nauthorization {users: [{user: b}]}",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_that_are_refused(servers: Servers, block: str) -> None:
    said = []
    for make in servers.under_test, servers.peer:
        with pytest.raises(ServerFailed) as failed:
            make(config=f"websocket {block}\n")
        log = str(failed.value)
        said.append(re.findall(r"(?:nats-server: |\[FTL\] |error=)(.*)", log)[-1:] or log)
    assert said[0] == said[1]


def test_a_port_that_is_taken_is_fatal(servers: Servers, pair: list[Server]) -> None:
    taken = websocket_port(pair[0])
    for make in servers.under_test, servers.peer:
        with pytest.raises(ServerFailed, match="Unable to listen for websocket connections"):
            make(config=f"websocket {{listen: '127.0.0.1:{taken}', no_tls: true}}\n")
