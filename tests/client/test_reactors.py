"""A server with four reactors: order, and that what one connection does concerns only itself.

The storm of connections lasts `REACTOR_SECONDS` (2).
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.client.raw import RawApp, RawClient
from tests.servers import Server, Servers
from tests.waiting import wait_until

SECONDS = float(os.environ.get("REACTOR_SECONDS", "2"))
REACTORS = 4
PUBLISHERS = 4
MESSAGES = 4000


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    return module_servers.under_test(config=f"reactors: {REACTORS}", jetstream=True)


@contextlib.contextmanager
def together(*bodies: Callable[[], object]) -> Iterator[None]:
    """Runs the bodies in threads of their own while the block runs."""
    failures: list[BaseException] = []

    def run(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60 + SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


def flood(server: Server, name: int, count: int, subject: str) -> None:
    """Numbers from one connection, some in each write."""
    with RawApp(server.port, timeout=60) as client:
        for start in range(0, count, 50):
            texts = (b"%d %d" % (name, n) for n in range(start, min(start + 50, count)))
            client.send(
                b"".join(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(t), t) for t in texts)
            )
        client.sync()


def numbers_in_order(client: RawClient, publishers: int, count: int) -> None:
    """Each publisher's numbers come all, and one after the other."""
    due = [0] * publishers
    for message in client.messages(publishers * count, 60):
        name, number = map(int, message.payload.split())
        assert number == due[name], (name, number, due[name])
        due[name] += 1


def test_order_holds_for_each_publisher_and_each_subscriber(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(RawApp(server.port, timeout=60)) for _ in range(5)]
        for receiver in receivers:
            receiver.subscribe("order.>")
            receiver.sync()
        bodies = [
            *(lambda n=n: flood(server, n, MESSAGES, f"order.{n}") for n in range(PUBLISHERS)),
            *(lambda r=r: numbers_in_order(r, PUBLISHERS, MESSAGES) for r in receivers),
        ]
        with together(*bodies):
            pass


def test_a_queue_group_over_all_reactors_takes_each_message_once(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(RawApp(server.port)) for _ in range(8)]
        for receiver in receivers:
            receiver.subscribe("work", "group")
            receiver.sync()
        with together(*(lambda n=n: flood(server, n, 1000, "work") for n in range(PUBLISHERS))):
            pass
        frames = [frame for receiver in receivers for frame in receiver.sync()]
        assert len({frame.payload for frame in frames}) == len(frames) == PUBLISHERS * 1000


def test_acks_of_a_stream_come_in_the_order_of_what_each_has_published(server: Server) -> None:
    with RawApp(server.port) as client:
        client.api("STREAM.CREATE.ACKS", {"name": "ACKS", "subjects": ["acks.*"]})

    def publish(name: int) -> None:
        with RawApp(server.port, timeout=60) as client:
            client.subscribe(f"ack.{name}")
            client.send(b"PUB acks.%d ack.%d 1\r\nx\r\n" % (name, name) * 500)
            numbers = [json.loads(m.payload)["seq"] for m in client.messages(500, 60)]
            assert numbers == sorted(numbers)
            assert len(set(numbers)) == 500

    with together(*(lambda n=n: publish(n) for n in range(PUBLISHERS))):
        pass
    with RawApp(server.port) as client:
        assert client.api("STREAM.INFO.ACKS")["state"]["messages"] == PUBLISHERS * 500


def test_who_stops_in_its_handshake_or_in_a_message_delays_nobody(servers: Servers) -> None:
    server = servers.under_test(config=f"reactors: {REACTORS}\nauthorization {{ timeout: 600 }}")
    with contextlib.ExitStack() as stack:
        for part in (b"", b"CONN", b'CONNECT {"verbose"', b"CONNECT {}\r\nPUB a 1000\r\nhalf"):
            for _ in range(REACTORS):
                slow = stack.enter_context(RawClient(server.port))
                slow.send(part)
        apps = [stack.enter_context(RawApp(server.port)) for _ in range(2 * REACTORS)]
        for app in apps:
            app.sync()


def test_a_slow_consumer_is_cut_and_the_others_get_everything(servers: Servers) -> None:
    server = servers.under_test(config=f"reactors: {REACTORS}\nmax_pending: 1mb", monitor=True)
    payload = b"x" * 8192
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(RawApp(server.port)) for _ in range(REACTORS)]
        for client in slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.subscribe("much")
            client.sync()
        fast = [stack.enter_context(RawApp(server.port, timeout=60)) for _ in range(REACTORS)]
        for client in fast:
            client.subscribe("much")
            client.sync()

        def publish() -> None:
            with RawApp(server.port, timeout=60) as client:
                for _ in range(60):
                    client.send(b"PUB much 8192\r\n%s\r\n" % payload * 20)
                    client.sync()

        bodies = [lambda c=c: c.messages(1200, 60) for c in fast]
        with together(publish, *bodies):
            pass
        wait_until(
            lambda: server.log().count("Slow Consumer Detected") >= REACTORS, "slow ones are cut"
        )
        for client in fast:
            client.sync()


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_connections_end_while_they_are_delivered_to(server: Server) -> None:
    end = time.monotonic() + SECONDS

    def come_and_go() -> None:
        while time.monotonic() < end:
            clients = [RawApp(server.port, timeout=30) for _ in range(5)]
            for client in clients:
                client.subscribe("storm.>")
                client.send(b"PUB storm.x 5\r\nhello\r\n" * 20)
            for client in clients:
                client.close()

    def publish(name: int) -> None:
        with RawApp(server.port, timeout=30) as client:
            while time.monotonic() < end:
                client.send(b"PUB storm.%d 5\r\nhello\r\n" % name * 100)
                client.sync()

    with together(come_and_go, come_and_go, *(lambda n=n: publish(n) for n in range(2))):
        pass
    with RawApp(server.port) as client:
        client.subscribe("after")
        client.publish("after", b"1")
        assert client.message().payload == b"1"
    assert server.running


def test_a_stop_ends_every_reactor(servers: Servers) -> None:
    server = servers.under_test(config=f"reactors: {REACTORS}")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawApp(server.port)) for _ in range(2 * REACTORS)]
        for client in clients:
            client.sync()
        assert server.stop() == 0
        for client in clients:
            assert client.until("EOF")
