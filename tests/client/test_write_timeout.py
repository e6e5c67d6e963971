"""What becomes of clients and links that take what is sent to them, but slowly: `write_timeout`, at
both servers."""

import json
import socket
import threading
import time

import pytest

from tests.client.mesh import page
from tests.client.raw import RawClient
from tests.client.test_leaf_refusals_diff import CONNECT
from tests.servers import Server, Servers, free_port

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.slow]

SIZE = 500_000
COUNT = 40
RATE = 8_000_000
"""Bytes that the receiver takes in a second: much longer than a deadline for all."""


class Slow:
    """Takes what comes at a rate, once it is all on its way."""

    def __init__(self, port: int, first: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(first)
        self._until(b"\r\nLS+ $LDS." if b"server_id" in first else b"\r\n")
        self.socket.sendall(b"PING\r\n")
        self._until(b"PONG\r\n")  # what it listens to counts now

    def _until(self, word: bytes) -> None:
        heard = b""
        while word not in heard:
            heard += self.socket.recv(4096)

    def takes(self, count: int) -> bool:
        """Whether so many bytes come before the end."""
        got, begun = 0, time.monotonic()
        try:
            while got < count:
                data = self.socket.recv(100_000)
                if not data:
                    return False
                got += len(data)
                behind = got / RATE - (time.monotonic() - begun)
                time.sleep(max(behind, 0))
        except ConnectionResetError:
            return False
        finally:
            self.socket.close()
        return True


def as_client(server: Server, _: int) -> Slow:
    return Slow(server.port, b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')


def as_leaf(_: Server, port: int) -> Slow:
    said = json.dumps(CONNECT).encode()
    return Slow(port, b"CONNECT " + said + b"\r\nLS+ a\r\n")


@pytest.mark.parametrize(
    "policy", ["close", pytest.param("retry", marks=pytest.mark.soak), "default"]
)
@pytest.mark.parametrize("kind", ["client", "leaf"])
@pytest.mark.parametrize("server", ["o", pytest.param("p", marks=pytest.mark.soak)])
def test_who_takes_all_slowly(servers: Servers, server: str, kind: str, policy: str) -> None:
    """With `close` nobody stays who does not take in time what waits. By default a link stays."""
    port = free_port()
    held = f"write_deadline: 1s, write_timeout: {policy}"
    config = f'leafnodes {{ listen: "127.0.0.1:{port}"\n{held if kind == "leaf" else ""} }}\n'
    config += held if kind == "client" else ""
    running = servers.of_kind(server, config=config)
    slow = (as_client if kind == "client" else as_leaf)(running, port)
    with RawClient(running.port) as publisher:
        publisher.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        publisher.until("PONG")
        message = b"PUB a %d\r\n" % SIZE + bytes(SIZE) + b"\r\n"
        sender = threading.Thread(target=publisher.send, args=(message * COUNT,))
        sender.start()
        stays = slow.takes(SIZE * COUNT)
        sender.join()
    if (server, kind, policy) == ("p", "client", "default"):
        assert not stays
    else:
        assert stays is (policy != "close")


def test_the_page_shows_it(servers: Servers) -> None:
    found = []
    for kind in "op":
        config = "write_timeout: retry, write_deadline: 3s\n"
        config += 'cluster { listen: "127.0.0.1:-1", write_timeout: close, write_deadline: 5s }'
        varz = page(servers.of_kind(kind, config=config, monitor=True), "varz")
        names = ("write_deadline", "write_timeout")
        found.append([one.get(name) for one in (varz, varz["cluster"]) for name in names])
    assert found[0] == found[1] == [3 * 10**9, "retry", 5 * 10**9, "close"]
