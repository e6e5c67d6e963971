"""A server by hand, which dials the port of a cluster or of a gateway."""

import json
import socket
from dataclasses import dataclass
from typing import Any

from tests.waiting import wait_until


class Dialled:
    """A connection to the port of a cluster or of a gateway."""

    def __init__(self, port: int) -> None:
        wait_until(lambda: self._is_open(port), f"port {port} is open")  # after that of clients
        self.file = self.socket.makefile("rb")
        self.info = json.loads(self.file.readline().removeprefix(b"INFO "))

    def _is_open(self, port: int) -> bool:
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            return False
        return True

    def say(self, verb: str, body: object) -> None:
        self.socket.sendall(f"{verb} {json.dumps(body)}\r\n".encode())

    def errors(self) -> list[str]:
        """What it says of errors until the other side closes."""
        found = []
        try:
            for line in self.file:
                if line.startswith(b"-ERR"):
                    found.append(line.decode().strip())
        except ConnectionResetError:
            pass
        self.socket.close()
        return found


@dataclass(frozen=True)
class Greeting:
    """What a server that dials says of itself: the bodies of its CONNECT and of its INFO."""

    connect: dict[str, Any]
    info: dict[str, Any]

    def refusal(
        self, port: int, connect: dict[str, Any] | None, info: dict[str, Any] | None
    ) -> list[str]:
        """What the port says of errors to a server that greets so. `connect`, `info`: what is
        other than in the greeting; None: that line is not said."""
        dialled = Dialled(port)
        if connect is not None:
            dialled.say("CONNECT", self.connect | connect)
        if info is not None:
            dialled.say("INFO", self.info | info)
        return dialled.errors()

    def refused_logins(self, port: int) -> list[list[str]]:
        """What the port says of errors to a wrong password, to no password, and to no login."""
        wrong: list[dict[str, Any]] = [{"user": "u", "pass": "x"}, {"user": "u"}, {}]
        return [self.refusal(port, connect, {}) for connect in wrong]


ROUTE = Greeting(
    connect={
        "echo": True,
        "verbose": False,
        "pedantic": False,
        "tls_required": False,
        "headers": True,
        "name": "NX",
        "cluster": "C",
        "lnoc": True,
    },
    info={
        "server_id": "NX",
        "server_name": "X",
        "version": "2.14.5",
        "proto": 3,
        "go": "go1.25",
        "host": "127.0.0.1",
        "port": 6222,
        "headers": True,
        "max_payload": 1048576,
        "cluster": "C",
        "lnoc": True,
        "lnocu": True,
        "route_pool_size": 3,
    },
)
"""Of a member of a cluster C."""
GATEWAY = Greeting(
    connect={
        "echo": False,
        "verbose": False,
        "pedantic": False,
        "tls_required": False,
        "headers": False,
        "name": "NX",
        "cluster": "",
        "gateway": "X",
    },
    info={
        "server_id": "NX",
        "server_name": "X1",
        "version": "2.14.5",
        "proto": 3,
        "go": "",
        "host": "127.0.0.1",
        "port": 7222,
        "headers": True,
        "max_payload": 1048576,
        "gateway": "X",
        "gateway_nrp": True,
        "gateway_iom": True,
    },
)
"""Of a server of a cluster X."""
