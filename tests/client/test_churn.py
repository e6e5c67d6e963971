"""Streams, consumers and connections come and go while others ask for them: answers, never a crash.

Each test works for `CHURN_SECONDS` (2).
"""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable

import pytest

from tests.client.raw import RawApp, RawClient
from tests.servers import Server, Servers

SECONDS = float(os.environ.get("CHURN_SECONDS", "2"))
#: What an API answer may say of a stream or consumer that goes away: stream not found, consumer not
#: found, no message found, and consumer creation on an existing one.
EXPECTED = (10059, 10014, 10037, 10148)

Work = Callable[[Server], None]
WORKERS: list[Work] = []


def worker(function: Work) -> Work:
    WORKERS.append(function)
    return function


def api(client: RawApp, subject: str, body: object = None) -> dict[str, object]:
    answer = client.api(subject, body)
    error = answer.get("error")
    assert error is None or error["err_code"] in EXPECTED, (subject, error)
    return answer


def rounds(server: Server, turn: Callable[[RawApp], None]) -> None:
    """The same requests over one connection until the time is up or the server says goodbye."""
    end = time.monotonic() + SECONDS
    count = 0
    with RawApp(server.port, timeout=15) as client:
        while time.monotonic() < end:
            turn(client)
            count += 1
    assert count, "the server does not answer"


@worker
def makes_and_deletes(server: Server) -> None:
    def turn(client: RawApp) -> None:
        api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
        for n in range(5):
            client.publish(f"s.{n}", b"x" * 100)
        for name, more in ("pull", {}), ("push", {"deliver_subject": "out"}):
            config = {"durable_name": name, "ack_policy": "explicit", **more}
            api(
                client,
                f"CONSUMER.DURABLE.CREATE.S.{name}",
                {"stream_name": "S", "config": config},
            )
        api(client, "STREAM.PURGE.S", {"keep": 2})
        api(client, "CONSUMER.DELETE.S.push")
        api(client, "STREAM.DELETE.S")

    rounds(server, turn)


@worker
def reads_messages(server: Server) -> None:
    def turn(client: RawApp) -> None:
        api(client, "STREAM.MSG.GET.S", {"seq": 1})
        api(client, "STREAM.MSG.GET.S", {"last_by_subj": "s.>"})
        api(client, "STREAM.MSG.GET.S", {"next_by_subj": "s.*", "seq": 1})
        api(client, "STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})

    rounds(server, turn)


@worker
def reads_directly(server: Server) -> None:
    def turn(client: RawApp) -> None:
        client.request("$JS.API.DIRECT.GET.S", b'{"seq":1}')
        client.request("$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":10}')
        client.request("$JS.API.DIRECT.GET.S", b'{"multi_last":["s.*"]}')

    rounds(server, turn)


@worker
def asks_about_consumers(server: Server) -> None:
    def turn(client: RawApp) -> None:
        api(client, "CONSUMER.INFO.S.pull")
        api(client, "CONSUMER.LIST.S")
        api(client, "STREAM.LIST")
        inbox = client.inbox()
        client.publish(
            "$JS.API.CONSUMER.MSG.NEXT.S.pull", b'{"batch":2,"no_wait":true}', reply=inbox
        )
        client.subscribe("out")

    rounds(server, turn)


@worker
def comes_and_goes(server: Server) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        clients = [RawClient(server.port) for _ in range(20)]
        for n, client in enumerate(clients):
            client.send(b'CONNECT {"verbose":false}\r\nSUB s.> 1\r\nSUB out g%d 2\r\nPING\r\n' % n)
        for client in clients[::2]:
            client.until("PONG")
        for client in clients:
            client.close()


def watches(path: str) -> Work:
    def watch(server: Server) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with urllib.request.urlopen(server.monitor_url + path, timeout=15) as answer:
                assert answer.status == 200
                json.loads(answer.read())

    watch.__name__ = f"watches {path}"
    return watch


WORKERS += map(
    watches,
    (
        "/jsz?streams=1&consumers=1&config=1",
        "/connz?subs=detail&state=all",
        "/subsz?subs=1",
        "/accstatz?unused=1",
    ),
)


class Crowd:
    """All workers in threads of their own."""

    def __init__(self, server: Server) -> None:
        self.errors: list[str] = []
        self.threads = [
            threading.Thread(target=self.run, args=(work, server), daemon=True) for work in WORKERS
        ]
        for thread in self.threads:
            thread.start()

    def run(self, work: Work, server: Server) -> None:
        try:
            work(server)
        except Exception as e:
            self.errors.append(f"{work.__name__}: {e!r}")

    def join(self) -> None:
        for thread in self.threads:
            thread.join(SECONDS + 30)
        assert not any(thread.is_alive() for thread in self.threads)


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_streams_go_while_they_are_read(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    crowd = Crowd(server)
    crowd.join()
    assert crowd.errors == []
    assert server.running
    assert server.stop() == 0


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_a_stop_in_the_middle_is_clean(servers: Servers) -> None:
    """Requests may end with the connection then, and the next start finds everything in order."""
    server = servers.under_test(jetstream=True, monitor=True)
    for _ in range(3):
        crowd = Crowd(server)
        time.sleep(SECONDS / 4)  # how long they come and go
        assert server.stop() == 0
        crowd.join()
        server.start()
        with RawApp(server.port) as client:
            assert "error" not in client.api("INFO")
