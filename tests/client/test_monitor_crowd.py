"""Monitoring while a crowd holds its connections: the health is told in time."""

import socket
import time
import urllib.request

import pytest

from tests.servers import Servers

IDLE = 1000
SLOW = 400


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_health_is_told_to_whoever_asks(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    crowd: list[socket.socket] = []
    try:
        for n in range(IDLE + SLOW):
            sock = socket.create_connection(("127.0.0.1", server.monitor_port), timeout=10)
            crowd.append(sock)
            if n >= IDLE:  # half a request, or a page that nobody reads
                sock.sendall(b"GET /connz?subs=1 HTTP/1.1\r\nHost: x\r\n" + b"\r\n" * (n % 2))
        for _ in range(20):
            started = time.monotonic()
            with urllib.request.urlopen(server.monitor_url + "/healthz", timeout=5) as answer:
                assert answer.status == 200
            assert time.monotonic() - started < 4
    finally:
        for sock in crowd:
            sock.close()
