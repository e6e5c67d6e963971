"""Lines of the log about the whole server, beside nats-server's."""

import re
import signal

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LINE = re.compile(r"^\[\d+\] \S+ \S+ \[(\w+)\] (.*)$", re.MULTILINE)


def lines(server: Server, words: str) -> list[tuple[str, str]]:
    """Level and text of the lines with these words, without the client that they name."""
    found = [(level, text) for level, text in LINE.findall(server.log()) if words in text]
    return [(level, re.sub(r"^127\.0\.0\.1:\d+ - cid:\d+ - ", "", text)) for level, text in found]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_log_says_why_the_server_stops(servers: Servers, number: signal.Signals) -> None:
    found = []
    for start in (servers.under_test, servers.peer):
        server = start()
        assert server.process is not None
        server.process.send_signal(number)
        server.process.wait(20)
        found.append(lines(server, "Trapped"))
    assert found[0] == found[1] and len(found[0]) == 1


def test_requests_that_cannot_be_read_are_in_the_log(servers: Servers) -> None:
    found = []
    for start in (servers.under_test, servers.peer):
        server = start(jetstream=True)
        with RawApp(server.port) as app:
            for _ in range(3):
                app.request("$JS.API.STREAM.CREATE.S", b'{"name": "S", "nope": 1}')
            app.request("$JS.API.STREAM.CREATE.S", b"{")
            app.request("$JS.API.STREAM.INFO.S", b"")
        told = lines(server, "Invalid JetStream request")
        found.append([(level, text.rpartition(": ")[0]) for level, text in told])
    assert found[0] == found[1]
    assert len(found[0]) == 2 and "'$G > $JS.API.STREAM.CREATE.S'" in found[0][0][1]


def test_many_requests_that_cannot_be_read_are_counted(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as app:
        for number in range(200):
            app.request(f"$JS.API.STREAM.CREATE.S{number}", b"x")
    assert 20 <= len(lines(server, "Invalid JetStream request")) < 200
