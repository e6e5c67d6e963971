"""The reactor without sockets or thread: transports, protocols, kinds, listeners, dialling."""

import contextlib
import errno
import itertools
import os
import socket
from typing import TYPE_CHECKING

import pytest

from jsserver.cext.engine import CLOSE_REASONS, INBOX_CLOSED
from jsserver.process.sockets import bound_port, open_listener
from tests.cext.net import PyReactor

if TYPE_CHECKING:
    from tests.cext.net import Kind

KICKED = next(n for n, text in CLOSE_REASONS.items() if text == "Kicked")
MUCH = 512 << 10  # bytes that wait for one receiver
QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def open_client(r: PyReactor, kind: "Kind" = "client") -> int:
    cid = r.open("client", kind)
    r.send(cid, QUIET)
    r.turn()
    r.received(cid)
    return cid


def open_echo(r: PyReactor, kind: "Kind" = "client", origin: int = 0) -> int:
    cid = r.open("echo", kind, origin)
    r.turn()
    assert r.received(cid) == b"hello\n"
    return cid


def say(r: PyReactor, cid: int, text: bytes) -> None:
    r.send(cid, text)
    r.turn()


def reasons(r: PyReactor) -> dict[int, str]:
    return {item[1]: CLOSE_REASONS[item[2][0]] for item in r.items() if item[0] == INBOX_CLOSED}


def poll_until(r: PyReactor, done) -> None:
    for _ in range(500):
        if done():
            return
        r.poll(10)
    raise AssertionError("it never happened")


def test_each_receiver_gets_a_message_in_its_own_protocol() -> None:
    r = PyReactor()
    client, echo, other = open_client(r), open_echo(r), open_echo(r)
    say(r, client, b"SUB a.* 7\r\n")
    say(r, echo, b"<a.b\n")
    say(r, other, b"a.b from a line\n")
    assert r.received(client) == b"MSG a.b 7 11\r\nfrom a line\r\n"
    assert r.received(echo) == b"a.b from a line\n"
    say(r, client, b"PUB a.b 2\r\nhi\r\n")
    assert r.received(echo) == b"a.b hi\n"
    assert r.received(client) == b"MSG a.b 7 2\r\nhi\r\n"
    assert r.received(other) == b""


def test_keepalive_and_bad_input_are_the_protocols() -> None:
    r = PyReactor()
    client, echo = open_client(r), open_echo(r)
    for cid in (client, echo):
        r.keepalive(cid)
    r.turn()
    assert (r.received(client), r.received(echo)) == (b"PING\r\n", b".\n")
    say(r, echo, b"nonsense\n")
    say(r, client, b"nonsense\r\n")
    r.turn()
    assert r.received(client) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert reasons(r) == {client: "Protocol Violation", echo: "Parse Error"}
    assert r.wants(echo)[2]


KINDS: "tuple[Kind, ...]" = ("client", "router", "gateway", "leaf")
NOT_HEARD = {("router", "router"), ("router", "gateway"), ("gateway", "gateway")}


@pytest.mark.parametrize(("source", "receiver"), list(itertools.product(KINDS, KINDS)))
def test_who_hears_whom(source: "Kind", receiver: "Kind") -> None:
    r = PyReactor()
    a, b = open_echo(r, source), open_echo(r, receiver)
    say(r, b, b"<x\n")
    say(r, a, b"x 1\n")
    assert r.received(b) == (b"" if (source, receiver) in NOT_HEARD else b"x 1\n")
    assert r.publish(b"x", b"2") == 1
    r.turn()
    assert r.received(b) == b"x 2\n"


@pytest.mark.parametrize("weights", [(1, 1), (1, 9), (300, 100, 100), (2**32 - 1, 2**32 - 1)])
def test_a_queue_group_is_shared_by_weight(weights: tuple[int, ...]) -> None:
    r = PyReactor()
    sends = open_client(r)
    members = [open_echo(r, "router") for _ in weights]
    for member, weight in zip(members, weights, strict=True):
        say(r, member, b"<x q %d\n" % weight)
    for _ in range(40):
        say(r, sends, b"PUB x 1\r\n1\r\n" * 100)
    shares = [r.received(member).count(b"x 1\n") / 4000 for member in members]
    assert sum(shares) == 1
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - weight / sum(weights)) < 0.03


def test_the_rest_of_a_queue_group_has_what_the_heaviest_leaves() -> None:
    r = PyReactor()
    sends, heavy, light = open_echo(r, "router"), open_echo(r, "router"), open_client(r)
    say(r, heavy, b"<x q 1000\n")  # what comes from a route is not for it
    say(r, light, b"SUB x q 1\r\n")
    say(r, sends, b"x 1\n" * 50)
    assert r.received(light).count(b"MSG") == 50
    assert r.received(heavy) == b""


def test_a_cluster_hears_nothing_of_its_own_again() -> None:
    r = PyReactor()
    leaf, other = open_echo(r, "leaf", origin=7), open_echo(r, "leaf", origin=8)
    route, local = open_echo(r, "router"), open_echo(r)
    say(r, route, b"<x - 1 7\n")  # somebody of the leaf's cluster asks by way of another server
    say(r, local, b"<x\n")
    say(r, leaf, b"x 1\n")
    say(r, other, b"x 2\n")
    assert r.publish(b"x", b"3") == 2
    r.turn()
    assert r.received(route) == b"x 2\nx 3\n"
    assert r.received(local) == b"x 1\nx 2\nx 3\n"
    say(r, route, b"<y q 1000 7\n")
    say(r, local, b"<y q\n")
    say(r, leaf, b"y 1\n" * 50)
    assert (r.received(route), r.received(local)) == (b"", b"y 1\n" * 50)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_a_transport_that_takes_and_gives_little_at_a_time(piece: int) -> None:
    r = PyReactor()
    client, echo = open_client(r), open_echo(r)
    say(r, client, b"SUB x 1\r\n")
    r.pieces(client, piece)
    r.pieces(echo, piece)
    text = b"x " + b"0123456789" * 20 + b"\n"
    r.send(echo, text)
    for _ in range(3 * len(text) // piece + 3):
        r.writable(client)
        r.writable(echo)
        r.send(echo, b"")
        r.turn()
    assert r.received(client) == b"MSG x 1 200\r\n" + b"0123456789" * 20 + b"\r\n"


def test_what_cannot_be_written_waits_and_order_holds() -> None:
    r = PyReactor()
    client, echo = open_client(r), open_echo(r)
    say(r, client, b"SUB x 1\r\n")
    r.hold(client)
    want = b""
    for i in range(1000):
        say(r, echo, b"x %d\n" % i)
        want += b"MSG x 1 %d\r\n%d\r\n" % (len(str(i)), i)
    assert r.pending(client) == len(want)
    assert r.wants(client) == (True, True, False)
    got = b""
    for _ in range(len(want) // 777 + 1):
        r.writable(client, 777)
        r.turn()
        got += r.received(client)
        if len(got) < len(want):
            assert r.pending(client) == len(want) - len(got)
    assert got == want
    assert r.pending(client) == 0
    assert r.wants(client) == (True, False, False)


def test_an_answer_goes_out_that_came_while_the_rest_was_written() -> None:
    r = PyReactor()
    client, echo = open_client(r), open_echo(r)
    say(r, client, b"SUB x 1\r\n")
    r.hold(client)
    say(r, echo, b"x 1\n")
    r.writable(client)
    r.send(client, b"PING\r\n")
    r.turn()
    r.turn()
    assert r.received(client) == b"MSG x 1 1\r\n1\r\nPONG\r\n"


def test_nothing_is_read_written_or_ended_under_the_engine_lock() -> None:
    r = PyReactor()
    client, echo = open_client(r), open_echo(r)
    say(r, client, b"SUB x 1\r\n")
    r.hold(client)
    say(r, echo, b"x 1\n" * 100)
    r.writable(client)
    r.turn()
    say(r, client, b"nonsense\r\n")
    r.end(echo)
    r.turn()
    assert len(r.received(client)) > 1000
    assert [(r.wants(c)[2], r.under_lock(c)) for c in (client, echo)] == [(True, 0)] * 2


def test_much_input_at_once_is_worked_through_in_order() -> None:
    r = PyReactor()
    taker = open_echo(r)
    say(r, taker, b"<*\n")
    givers = [open_echo(r) for _ in range(20)]
    for giver in givers:
        r.send(giver, b"".join(b"%d %d\n" % (giver, i) for i in range(20000)))
    for _ in range(5):
        for giver in givers:
            r.send(giver, b"")
        r.turn()
    seen = dict.fromkeys(givers, 0)
    for line in r.received(taker).splitlines():
        giver, i = map(int, line.split())
        assert seen[giver] == i
        seen[giver] += 1
    assert set(seen.values()) == {20000}


def test_one_of_many_events_closes_those_that_come_later() -> None:
    r = PyReactor(max_pending=100_000)
    clients = [open_client(r) for _ in range(50)]
    for client in clients:
        say(r, client, b"SUB x 1\r\n")
        r.hold(client)
    for client in clients:
        r.send(client, b"PUB x 60000\r\n" + b"." * 60000 + b"\r\n")
        r.writable(client, 0)
    r.turn()
    assert reasons(r) == dict.fromkeys(clients, "Slow Consumer (Pending Bytes)")
    assert all(r.pending(client) is None for client in clients)


def test_a_large_message_comes_in_pieces_beside_others() -> None:
    r = PyReactor()
    taker, a, b = open_echo(r), open_client(r), open_client(r)
    say(r, taker, b"<x\n")
    body = os.urandom(300_000).replace(b"\n", b".")
    text = b"PUB x 300000\r\n" + body + b"\r\n"
    for i in range(0, len(text), 40_000):
        for cid in (a, b):
            r.send(cid, text[i : i + 40_000])
        r.turn()
    assert r.received(taker) == (b"x " + body + b"\n") * 2


SHARED_MIN = 16_384


def frame(number: int, body: bytes) -> bytes:
    return b"MSG x %d %d\r\n" % (number, len(body)) + body + b"\r\n"


@pytest.mark.parametrize("size", [16_383, 16_384, 20_000, 70_000])
@pytest.mark.parametrize("piece", [1 << 30, 1000, 1999])
def test_a_payload_for_several_is_shared_and_whole_for_each(size: int, piece: int) -> None:
    r = PyReactor()
    giver = open_client(r)
    takers = [open_client(r) for _ in range(4)]
    for number, taker in enumerate(takers):
        say(r, taker, b"SUB x %d\r\n" % number)
        r.pieces(taker, piece)
    bodies = [os.urandom(size), b"small", os.urandom(size), os.urandom(size + 1)]
    want = [b"".join(frame(number, body) for body in bodies) for number in range(4)]
    r.hold(takers[3])
    for body in bodies:
        say(r, giver, b"PUB x %d\r\n" % len(body) + body + b"\r\n")
    for _ in range(4):
        say(r, giver, b"")
    assert r.shared() == (3 if size >= SHARED_MIN else 1)
    for _ in range(len(want[0]) // piece + 2):
        for taker in takers:
            r.writable(taker)
        r.turn()
    assert [r.received(taker) for taker in takers] == want
    assert r.shared() == 0
    assert [r.pending(taker) for taker in takers] == [0] * 4


def test_what_is_shared_is_let_go_when_its_connections_end() -> None:
    r = PyReactor(max_pending=1_000_000)
    giver = open_client(r)
    slow, gone = open_client(r), open_client(r)
    for taker in (slow, gone):
        say(r, taker, b"SUB x 1\r\n")
        r.hold(taker)
    for _ in range(5):
        say(r, giver, b"PUB x 20000\r\n" + b"." * 20000 + b"\r\n")
    assert r.shared() == 5
    r.end(gone)
    r.turn()
    assert r.shared() == 5
    for _ in range(60):
        r.publish(b"x", b"." * 20000)
        r.turn()
    assert reasons(r) == {gone: "Client Closed", slow: "Slow Consumer (Pending Bytes)"}
    assert r.shared() == 0


def test_one_receiver_has_its_payload_to_itself() -> None:
    r = PyReactor()
    giver, plain = open_client(r), open_client(r)
    say(r, plain, b"SUB x 1\r\n")
    r.hold(plain)
    say(r, giver, b"PUB x 20000\r\n" + b"." * 20000 + b"\r\n")
    assert r.shared() == 0
    grouped = open_client(r)
    say(r, grouped, b"SUB x q 2\r\n")
    r.hold(grouped)
    say(r, giver, b"PUB x 20000\r\n" + b"," * 20000 + b"\r\n")
    assert r.shared() == 1
    for taker in (plain, grouped):
        r.writable(taker)
    r.turn()
    assert r.received(plain) == frame(1, b"." * 20000) + frame(1, b"," * 20000)
    assert r.received(grouped) == frame(2, b"," * 20000)


def test_headers_go_only_to_those_who_take_them_beside_a_shared_payload() -> None:
    r = PyReactor()
    giver, with_headers = open_client(r), open_client(r)
    without = r.open("client")
    say(r, without, b'CONNECT {"verbose":false,"headers":false}\r\n')
    r.received(without)
    for taker in (with_headers, without):
        say(r, taker, b"SUB x 1\r\n")
    head, body = b"NATS/1.0\r\nA: " + b"b" * 300 + b"\r\n\r\n", b"." * 20000
    say(r, giver, b"HPUB x %d %d\r\n" % (len(head), len(head) + 20000) + head + body + b"\r\n")
    assert r.received(without) == frame(1, body)
    size = (len(head), len(head) + 20000)
    assert r.received(with_headers) == b"HMSG x 1 %d %d\r\n" % size + head + body + b"\r\n"


def test_errors_of_a_transport_close_the_connection() -> None:
    r = PyReactor()
    ended, reset, broken = open_client(r), open_client(r), open_client(r)
    r.end(ended)
    r.end(reset, errno.ECONNRESET)
    r.end(broken, errno.EIO)
    r.turn()
    r.turn()
    assert reasons(r) == {ended: "Client Closed", reset: "Client Closed", broken: "Read Error"}
    assert all(r.wants(cid)[2] for cid in (ended, reset, broken))
    assert r.pending(ended) is None


def test_last_words_are_written_before_the_end() -> None:
    r = PyReactor()
    client = open_client(r)
    say(r, client, b"PING\r\nPUB a b c d 1\r\n")
    r.turn()
    assert r.received(client) == b"PONG\r\n"
    assert r.wants(client)[2]
    assert reasons(r) == {client: "Protocol Violation"}


def test_a_slow_receiver_is_cut_at_its_limit() -> None:
    r = PyReactor(max_pending=1000)
    client = open_client(r)
    say(r, client, b"SUB x 1\r\n")
    r.hold(client)
    for _ in range(20):
        r.publish(b"x", b"." * 100)
        r.turn()
    r.turn()
    assert reasons(r) == {client: "Slow Consumer (Pending Bytes)"}
    assert r.received(client) == b""


def test_whoever_sends_to_one_with_much_to_take_rests_until_it_has_taken_some() -> None:
    r = PyReactor()
    giver, taker = open_client(r), open_client(r)
    say(r, taker, b"SUB x 1\r\n")
    r.hold(taker)
    body = b"PUB x 20000\r\n" + b"." * 20000 + b"\r\n"
    sent = 0
    while r.wants(giver)[0]:
        say(r, giver, body)
        sent += 1
    assert MUCH < (r.pending(taker) or 0) < MUCH + len(body)
    r.writable(taker)
    r.turn()
    r.turn()
    assert r.wants(giver)[0]
    assert r.received(taker) == body.replace(b"PUB x", b"MSG x 1") * sent


def test_nobody_rests_for_long() -> None:
    r = PyReactor()
    giver, taker, gone = (open_client(r) for _ in range(3))
    for receiver in (taker, gone):
        say(r, receiver, b"SUB x 1\r\n")
        r.hold(receiver)
    body = b"PUB x 60000\r\n" + b"." * 60000 + b"\r\n"
    for count in range(20):
        poll_until(r, lambda: r.wants(giver)[0])
        say(r, giver, body)
        if count == 15:
            r.end(gone)  # the slow one that was waited for
    assert not r.wants(giver)[0]
    assert r.pending(taker) == 20 * len(body.replace(b"PUB x", b"MSG x 1"))
    assert reasons(r) == {gone: "Client Closed"}
    r.kill(giver, KICKED)  # while it rests
    r.turn()
    r.writable(taker)
    r.turn()
    r.turn()
    assert reasons(r) == {giver: "Kicked"}


def test_listeners_have_their_own_protocols_and_kinds() -> None:
    r = PyReactor()
    sockets = [open_listener("127.0.0.1", 0) for _ in range(2)]
    first = r.listen(sockets[0].fileno(), "client", "client")
    r.listen(sockets[1].fileno(), "echo", "router")
    with (
        socket.create_connection(("127.0.0.1", bound_port(sockets[0])), timeout=5) as a,
        socket.create_connection(("127.0.0.1", bound_port(sockets[1])), timeout=5) as b,
    ):
        texts = {a: b"", b: b""}

        def read() -> bool:
            for s in texts:
                s.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    texts[s] += s.recv(1000)
            return all(texts.values())

        poll_until(r, read)
        assert texts[b] == b"hello\n"
        assert b"client_ip" not in texts[b]
        r.unlisten(first)
        b.sendall(b"<x\n")
        poll_until(r, lambda: r.publish(b"x", b"1") == 1)
        texts[b] = b""
        poll_until(r, read)
        assert texts[b] == b"x 1\n"
    with socket.socket() as c:
        c.setblocking(False)
        c.connect_ex(("127.0.0.1", bound_port(sockets[0])))
        r.poll(20)
        with pytest.raises(BlockingIOError):
            c.recv(100)
    for s in sockets:
        s.close()


def dialling(port: int) -> int:
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
    return s.detach()


def test_a_connection_of_ours_opens_once_it_is_established() -> None:
    r = PyReactor()
    with open_listener("127.0.0.1", 0) as listener:
        cid = r.dial(dialling(bound_port(listener)), "echo", "leaf")
        assert r.pending(cid) == 0
        listener.settimeout(5)
        peer, _ = listener.accept()
        with peer:
            peer.setblocking(False)
            got = b""

            def greeted() -> bool:
                nonlocal got
                try:
                    got += peer.recv(100)
                except BlockingIOError:
                    return False
                return True

            poll_until(r, greeted)
            assert got == b"hello\n"
            peer.sendall(b"<x\n")
            poll_until(r, lambda: r.publish(b"x", b"1") == 1)
        poll_until(r, lambda: reasons(r) == {cid: "Client Closed"})


def test_a_connection_of_ours_that_is_refused_says_so() -> None:
    r = PyReactor()
    with open_listener("127.0.0.1", 0) as listener:
        port = bound_port(listener)
    cid = r.dial(dialling(port), "echo", "leaf")
    poll_until(r, lambda: reasons(r) == {cid: "Connect Failed"})
    assert r.pending(cid) is None


def test_a_connection_of_ours_that_nobody_answers_is_given_up() -> None:
    r = PyReactor()
    with socket.socket() as full:
        # A backlog of none, and taken: further ones are not answered.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        taken = [dialling(port) for _ in range(3)]
        cid = r.dial(dialling(port), "echo", "leaf", timeout=50_000_000)
        poll_until(r, lambda: reasons(r) == {cid: "Connect Failed"})
        for fd in taken:
            os.close(fd)


# ---- several reactors


def test_a_connection_goes_to_whoever_serves_the_fewest() -> None:
    r = PyReactor(4)
    cids = [open_client(r) for _ in range(8)]
    assert sorted(map(r.reactor_of, cids)) == [0, 0, 1, 1, 2, 2, 3, 3]
    ended = [cid for cid in cids if r.reactor_of(cid) == 2]
    for cid in ended:
        r.end(cid)
    r.turn()
    r.turn()
    assert [r.reactor_of(open_client(r)) for _ in range(2)] == [2, 2]


def test_messages_between_reactors_keep_their_order() -> None:
    r = PyReactor(3)
    source, *receivers = [open_echo(r) for _ in range(7)]
    for cid in receivers:
        say(r, cid, b"<x\n")
    want = b""
    for i in range(50):
        say(r, source, b"x %d\n" % i * 3)
        want += b"x %d\n" % i * 3
    assert [r.received(cid) for cid in receivers] == [want] * 6


def test_an_end_by_others_is_carried_out_where_the_connection_is_served() -> None:
    r = PyReactor(2, max_pending=10000)
    source, slow, killed = open_client(r), open_client(r), open_client(r)
    assert r.reactor_of(source) != r.reactor_of(slow)
    for cid in (slow, killed):
        say(r, cid, b"SUB x 1\r\n")
        r.hold(cid)
    say(r, source, b"PUB x 6000\r\n%s\r\n" % (b"x" * 6000))
    r.kill(killed, KICKED)
    say(r, source, b"PUB x 6000\r\n%s\r\n" % (b"x" * 6000))
    r.turn()
    assert reasons(r) == {slow: "Slow Consumer (Pending Bytes)", killed: "Kicked"}
    assert [r.pending(cid) for cid in (slow, killed)] == [None, None]
    assert all(r.under_lock(cid) == 0 for cid in (slow, killed))
