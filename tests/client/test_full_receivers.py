"""Clients that ask for more than they take at once: they get it all, and others do not wait for
them."""

import json
import time

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

COUNT = 4000
SIZE = 2000
CONFIG = "max_pending: 1MB\nmax_payload: 64KB"
SECONDS = 20


@pytest.fixture
def server(servers: Servers) -> Server:
    server = servers.under_test(jetstream=True, config=CONFIG)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": -1}
        app.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
        for _ in range(COUNT):
            app.publish("s", b"x" * SIZE)
        app.sync()
    return server


def asking(server: Server, batch: int) -> RawApp:
    app = RawApp(server.port)
    body = json.dumps({"batch": batch, "expires": SECONDS * 10**9}).encode()
    app.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=app.inbox())
    return app


def settled(app: RawApp) -> int:
    """What is delivered when no more is."""
    end = time.monotonic() + SECONDS
    before = -1
    while (now := int(app.api("CONSUMER.INFO.S.c")["num_ack_pending"])) != before:
        assert time.monotonic() < end
        before = now
        time.sleep(0.2)
    return before


def test_much_that_is_asked_for_at_once(server: Server) -> None:
    with asking(server, COUNT) as slow, RawApp(server.port) as other:
        assert 0 < settled(other) < COUNT
        body = b'{"batch":100,"no_wait":true}'
        other.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=other.inbox())
        taken = {int(m.reply.split(".")[5]) for m in other.messages(100, SECONDS)}
        for _ in range(COUNT - 100):
            taken.add(int(slow.message(SECONDS).reply.split(".")[5]))
        assert len(taken) == COUNT


def test_why_it_waits(server: Server) -> None:
    with asking(server, COUNT), RawApp(server.port) as other:
        settled(other)
        told = other.api("JSSERVER.CONSUMER.WAITS.S.c")["waits"]
        assert told["reason"] == "room"
