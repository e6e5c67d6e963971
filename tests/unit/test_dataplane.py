"""The data plane alone, driven through sockets: routing, limits, the control inbox, admission."""

import ast
import contextlib
import gc
import importlib
import json
import select
import socket
import threading
import time
from pathlib import Path

import pytest

from jsserver.cext import engine
from jsserver.cext.engine import (
    LISTEN_CLIENTS,
    AccountHandle,
    DataPlane,
    Item,
    ListenerConfig,
    PermissionSet,
    PlaneConfig,
)
from jsserver.process.sockets import bound_port, open_listener
from tests.cext.net import PyParser

CEXT = Path(__file__).resolve().parents[2] / "cext"
TESTS = CEXT.parent / "tests"
LIMITS = {
    "max_payload": 1024 * 1024,
    "max_control_line": 4096,
    "max_pending": 64 * 1024 * 1024,
    "max_subscriptions": 0,
    "max_sub_tokens": 0,
    "max_connections": 65536,
    "headers": True,
    "stall": True,
    "max_requests": 10000,
    "max_asking": 128,
    "ping_interval": 120 * 10**9,
    "ping_max": 2,
    "write_deadline": 10 * 10**9,
    "whole_writes": False,
    "debug": False,
    "trace": False,
}


@pytest.mark.parametrize("stub", sorted(CEXT.glob("*.pyi")), ids=lambda path: path.stem)
def test_records_have_the_fields_that_their_declarations_say(stub):
    module = importlib.import_module(f"jsserver.cext.{stub.stem}")
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            declared = [ast.unparse(field) for field in fields]
            assert list(getattr(module, node.name)._fields) == declared, node.name


@pytest.mark.parametrize("stub", sorted(TESTS.glob("*/*.pyi")), ids=lambda path: path.stem)
def test_what_drives_a_layer_has_the_methods_that_its_declarations_say(stub: Path) -> None:
    module = importlib.import_module(f"tests.{stub.parent.name}.{stub.stem}")
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef) and "TypedDict" not in map(ast.unparse, node.bases):
            declared = {line.name for line in node.body if isinstance(line, ast.FunctionDef)}
            there = set(vars(getattr(module, node.name)))
            public = ({name for name in names if name[0] != "_"} for names in (declared, there))
            assert next(public) == next(public), node.name
        elif isinstance(node, ast.FunctionDef):
            assert hasattr(module, node.name), node.name


def test_an_account_in_a_circle_is_let_go_of():
    plane = DataPlane()

    class Holder:
        account: AccountHandle
        itself: "Holder"

    for number in range(3):
        account = plane.account(f"A{number}", b"12345678")
        account.close()
        holder = Holder()
        holder.account, holder.itself = account, holder
    del account, holder
    gc.collect()
    plane.close()


class Plane:
    """A running data plane with a listener."""

    def __init__(self, auth_required=False, **limits):
        earliest = time.monotonic_ns()
        self.plane = DataPlane()
        self.made = earliest, time.monotonic_ns()  # between these
        self.plane.configure(PlaneConfig(**{**LIMITS, **limits}))
        self.clients = self.plane.listener(LISTEN_CLIENTS)
        self.clients.configure(
            ListenerConfig(
                handshake_timeout=0,
                ping_interval=0,
                auth_timeout=2 * 10**9,
                auth_required=auth_required,
                no_auth_user=False,
                nonce=False,
                info=(b'INFO {"max_payload":', b',"client_id":', b"} \r\n"),
                later_head=b"",
            )
        )
        self.listener = open_listener("127.0.0.1", 0)
        self.port = bound_port(self.listener)
        self.clients.listen(self.listener.fileno())
        self.thread = threading.Thread(target=self.plane.run)
        self.thread.start()

    def stop(self):
        self.plane.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.plane.close()
        self.listener.close()

    def account(self, name="$G"):
        return self.plane.account(name, b"01234567")

    def admit_next(self, account):
        """Lets the next connection in that waits."""
        ((_, cid, _, _),) = self.items(engine.INBOX_CONNECT)
        return self.plane.admit(cid, account, None)

    def items(self, kind, timeout=5.0):
        """Waits for inbox items of one kind."""
        end = time.monotonic() + timeout
        found: list[Item] = []
        inbox = select.poll()
        inbox.register(self.plane.inbox_fd, select.POLLIN)
        while not found and time.monotonic() < end:
            inbox.poll(max(0, end - time.monotonic()) * 1000)
            found = [i for i in self.plane.drain() if i[0] == kind]
        return found


class Peer:
    """A raw client."""

    def __init__(self, port, options=None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.data = b""
        self.info = self.line()
        if options is not None:
            self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        got = self.sock.recv(65536)
        if not got:
            raise EOFError(self.data)
        self.data += got

    def line(self):
        while b"\n" not in self.data:
            self.more()
        line, self.data = self.data.split(b"\n", 1)
        return line + b"\n"

    def take(self, n):
        while len(self.data) < n:
            self.more()
        out, self.data = self.data[:n], self.data[n:]
        return out

    def until_pong(self):
        """Everything up to the PONG of a PING sent now."""
        self.send(b"PING\r\n")
        while b"PONG\r\n" not in self.data:
            self.more()
        out, self.data = self.data.split(b"PONG\r\n", 1)
        return out

    def rest(self):
        """What comes until the server closes."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self.more()
        return self.data


QUIET = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}


@pytest.fixture
def plane():
    p = Plane()
    yield p
    p.stop()


def test_info_names_the_connection(plane):
    a, b = Peer(plane.port), Peer(plane.port)
    first = json.loads(a.info[5:])
    second = json.loads(b.info[5:])
    assert first["client_ip"] == "127.0.0.1"
    assert second["client_id"] > first["client_id"] > 0


def test_messages_reach_plain_and_wildcard_subscribers(plane):
    sub, pub = Peer(plane.port, QUIET), Peer(plane.port, QUIET)
    sub.send(b"SUB foo.* 1\r\nSUB foo.bar 2\r\nSUB > 3\r\n")
    sub.until_pong()
    pub.send(b"PUB foo.bar reply 5\r\nhello\r\n")
    pub.until_pong()
    got = sub.until_pong()
    frames = sorted(got[i : i + 30] for i in range(0, len(got), 30))
    assert frames == [b"MSG foo.bar %d reply 5\r\nhello\r\n" % i for i in (1, 2, 3)]


def test_headers_are_stripped_for_clients_without_them(plane):
    old = Peer(plane.port, {**QUIET, "headers": False, "no_responders": False})
    new, pub = Peer(plane.port, QUIET), Peer(plane.port, QUIET)
    for c in (old, new):
        c.send(b"SUB h 1\r\n")
        c.until_pong()
    pub.send(b"HPUB h 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
    pub.until_pong()
    assert old.until_pong() == b"MSG h 1 2\r\nhi\r\n"
    assert new.until_pong() == b"HMSG h 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"


def test_queue_groups_get_each_message_once(plane):
    members = [Peer(plane.port, QUIET) for _ in range(4)]
    for i, m in enumerate(members):
        m.send(b"SUB %s workers 1\r\n" % (b"q.*" if i % 2 else b"q.a"))
        m.until_pong()
    pub = Peer(plane.port, QUIET)
    pub.send(b"PUB q.a 1\r\nx\r\n" * 400)
    pub.until_pong()
    counts = [m.until_pong().count(b"MSG q.a 1 1\r\nx\r\n") for m in members]
    assert sum(counts) == 400
    assert min(counts) > 40


def test_unsub_max_counts_from_the_subscription(plane):
    c = Peer(plane.port, QUIET)
    c.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 1 3\r\n" + b"PUB a 1\r\nx\r\n" * 5)
    assert c.until_pong() == b"MSG a 1 1\r\nx\r\n" * 3
    c.send(b"SUB a 2\r\nPUB a 1\r\nx\r\nPUB a 1\r\nx\r\nUNSUB 2 1\r\nPUB a 1\r\nx\r\n")
    assert c.until_pong() == b"MSG a 2 1\r\nx\r\n" * 2


def test_no_responders(plane):
    c = Peer(plane.port, QUIET)
    c.send(b"SUB _INBOX.x 1\r\nPUB nobody _INBOX.x 0\r\n\r\n")
    assert c.until_pong() == (
        b"HMSG _INBOX.x 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n"
    )


def test_a_large_payload_in_small_pieces(plane):
    c = Peer(plane.port, QUIET)
    payload = bytes(range(256)) * 4096
    c.send(b"SUB big 1\r\n")
    message = b"PUB big %d\r\n" % len(payload) + payload + b"\r\n"
    for i in range(0, len(message), 30011):
        c.send(message[i : i + 30011])
    assert c.line() == b"MSG big 1 %d\r\n" % len(payload)
    assert c.take(len(payload)) == payload


def test_errors_are_told_before_the_cut(plane):
    for bad, text in (
        (b"FOO\r\n", b"Unknown Protocol Operation"),
        (b"PUB a 3\r\nabcd\r\n", b"Unknown Protocol Operation"),
        (b"PUB a 1048577\r\n", b"Maximum Payload Violation"),
        (b"SUB " + b"a" * 5000, b"maximum control line exceeded"),
    ):
        c = Peer(plane.port, QUIET)
        c.send(bad)
        assert c.rest() == b"-ERR '" + text + b"'\r\n"
    c = Peer(plane.port, QUIET)
    c.send(b"PUB a\r\n")
    assert c.rest() == b""


def test_a_reader_that_stops_is_cut():
    p = Plane(max_pending=1024 * 1024, stall=False)
    try:
        slow, pub = Peer(p.port, QUIET), Peer(p.port, QUIET)
        slow.send(b"SUB s 1\r\n")
        slow.until_pong()
        block = b"PUB s 65536\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(400):
            pub.send(block)
        pub.until_pong()
        closed = p.items(engine.INBOX_CLOSED)
        assert engine.CLOSE_REASONS[closed[0][2][0]] == "Slow Consumer (Pending Bytes)"
        assert p.plane.stats()["slow_consumers"] == 1
    finally:
        p.stop()


def test_requests_reach_the_inbox_and_are_answered(plane):
    account = plane.account()
    account.serve_requests(b"$JS.API.>")
    c = Peer(plane.port, QUIET)
    c.send(b"SUB r 1\r\nPUB $JS.API.INFO r 2\r\n{}\r\n")
    ((_, cid, _, texts),) = plane.items(engine.INBOX_REQUEST)
    assert texts == (b"$JS.API.INFO", b"r", b"", b"{}")
    assert cid == json.loads(c.info[5:])["client_id"]
    account.publish(b"r", b"", b"", b"answer")
    assert c.line() == b"MSG r 1 6\r\n"
    assert c.take(8) == b"answer\r\n"
    # What streams and consumers answer themselves is no request of the API's.
    c.send(b"PUB $JS.API.DIRECT.GET.S r 0\r\n\r\n")
    assert c.line().startswith(b"HMSG r 1 ")


@pytest.fixture
def guarded():
    """A data plane whose clients are let in one by one."""
    p = Plane(auth_required=True)
    yield p
    p.stop()


def joined(plane, name):
    """A client in the account."""
    client = Peer(plane.port, QUIET)
    assert plane.admit_next(plane.account(name))
    return client


def test_accounts_hear_their_own_messages_alone(guarded):
    a, b = joined(guarded, "A"), joined(guarded, "B")
    for client in (a, b):
        client.send(b"SUB x 1\r\n")
        client.until_pong()
    a.send(b"PUB x 1\r\na\r\n")
    guarded.account("B").publish(b"x", b"", b"", b"own")
    assert a.until_pong() == b"MSG x 1 1\r\na\r\n"
    assert b.until_pong() == b"MSG x 1 3\r\nown\r\n"


def test_handles_of_a_name_are_one_account(guarded):
    first, again, other = (guarded.account(name) for name in ("A", "A", "B"))
    assert first.id == again.id != other.id
    with pytest.raises(ValueError, match="eight characters"):
        guarded.plane.account("C", b"short")


def test_a_closed_account_cuts_its_clients_and_its_name_is_free(guarded):
    a, b = joined(guarded, "A"), joined(guarded, "B")
    handle = guarded.account("A")
    handle.serve_requests(b"$JS.API.>")
    a.send(b"SUB x 1\r\n")
    a.until_pong()
    handle.close()
    assert a.rest() == b""
    ((_, _, numbers, _),) = guarded.items(engine.INBOX_CLOSED)
    assert engine.CLOSE_REASONS[numbers[0]] == "Missing Account"
    assert b.until_pong() == b""
    handle.close()
    handle.publish(b"x", b"", b"", b"nobody hears it")
    handle.serve_requests(b"more")
    assert not handle.subject_interest(b"x")
    waiting = Peer(guarded.port, QUIET)
    assert not guarded.admit_next(handle)
    waiting.sock.close()
    assert guarded.account("A").id not in (handle.id, guarded.account("B").id)


def test_accounts_come_and_go(guarded):
    """Each with a client; what they took is given back, and the sublists are empty."""
    before = guarded.plane.stats()["subscriptions"]
    seen = set()
    for turn in range(50):
        handles = [guarded.account(f"A{turn % 3}.{i}") for i in range(40)]
        for handle in handles:
            handle.serve_requests(b"$JS.API.>")
        client = joined(guarded, handles[0].name)
        client.send(b"SUB a 1\r\nSUB a.* q 2\r\nPUB a 0\r\n\r\n")
        assert client.until_pong() == b"MSG a 1 0\r\n\r\n"
        seen |= {handle.id for handle in handles}
        for handle in handles:
            handle.close()
        assert client.rest() == b""
    assert len(seen) == 50 * 40
    guarded.plane.drain()
    end = time.monotonic() + 5
    while guarded.plane.stats()["subscriptions"] != before and time.monotonic() < end:
        time.sleep(0.01)
    assert guarded.plane.stats()["subscriptions"] == before


def test_a_handle_outlives_its_data_plane():
    p = Plane()
    handle = p.account()
    p.stop()
    with pytest.raises(engine.PlaneClosed):
        handle.publish(b"x", b"", b"", b"")
    with pytest.raises(engine.PlaneClosed):
        p.account("B")


def test_admission_waits_for_the_control_plane():
    p = Plane(auth_required=True)
    try:
        c = Peer(p.port, {**QUIET, "user": "me"})
        c.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nSUB secret 2\r\nPUB no 0\r\n\r\n")
        ((_, cid, _, (_, _, connect, _, _)),) = p.items(engine.INBOX_CONNECT)
        assert json.loads(connect)["user"] == "me"
        permissions = PermissionSet(
            publish_allow=[(b"a", b"")], subscribe_deny=[(b"secret", b"")], subscribe_allow=None
        )
        assert p.plane.admit(cid, p.account(), permissions)
        assert c.line() == b"MSG a 1 1\r\n"
        assert c.take(3) == b"x\r\n"
        assert c.line() == b"-ERR 'Permissions Violation for Subscription to \"secret\"'\r\n"
        assert c.line() == b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n"
        d = Peer(p.port, QUIET)
        ((_, cid, _, _),) = p.items(engine.INBOX_CONNECT)
        p.plane.refuse(cid)
        assert d.rest() == b"-ERR 'Authorization Violation'\r\n"
        e = Peer(p.port)
        e.send(b"PUB a 0\r\n\r\n")
        assert e.rest() == b"-ERR 'Authorization Violation'\r\n"
    finally:
        p.stop()


def test_connections_leave_nothing_behind(plane):
    for _ in range(20):
        peers = [Peer(plane.port, QUIET) for _ in range(20)]
        for i, c in enumerate(peers):
            c.send(b"SUB a.%d 1\r\nSUB *.b.%d.> q 2\r\n" % (i, i))
            c.until_pong()
        for c in peers:
            c.sock.close()
    end = time.monotonic() + 5
    while plane.plane.stats()["connections"] and time.monotonic() < end:
        plane.items(engine.INBOX_CLOSED, 0.1)
    stats = plane.plane.stats()
    assert (stats["connections"], stats["subscriptions"]) == (0, 0)
    assert stats["total_connections"] == 400


def test_stale_connections_are_cut():
    p = Plane(ping_interval=50_000_000, ping_max=2)
    try:
        c = Peer(p.port, QUIET)
        assert c.rest() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
    finally:
        p.stop()


@pytest.mark.parametrize("step", [1, 2, 7])
def test_parser_gives_the_same_in_pieces(step):
    text = (
        b'CONNECT {"verbose":false}\r\nPING\r\nsub a.b  q 7\r\nPUB a.b r 3\r\nab\n\r\n'
        b"HPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\nUNSUB 7 5\r\n+OK\r\n"
    )
    whole = PyParser().feed(text)
    assert [op[0] for op in whole] == ["CONNECT", "PING", "SUB", "PUB", "PUB", "UNSUB", "+OK"]
    assert whole[2] == ("SUB", b"a.b", b"", b"q", b"7", b"", b"", 0)
    assert whole[4][5:7] == (b"NATS/1.0\r\n\r\n", b"hi")
    pieces = PyParser()
    assert [
        op for i in range(0, len(text), step) for op in pieces.feed(text[i : i + step])
    ] == whole


def test_the_longest_hold_of_the_engine_lock_is_told_once():
    plane = DataPlane()
    plane.longest_hold()
    # What is left is that call's own.
    assert 0 < plane.longest_hold() < 10**9
    plane.close()
    with pytest.raises(engine.PlaneClosed):
        plane.longest_hold()
