"""A raw client over TLS, which sees what a server says before the handshake and behind it."""

import json
import ssl
from typing import Any

from tests.client.raw import RawClient


class TlsClient(RawClient):
    """Connects; with `first` it makes the handshake at once, otherwise when it has read INFO."""

    def __init__(
        self,
        port: int,
        context: ssl.SSLContext,
        *,
        first: bool = False,
        before: bytes = b"",
        session: ssl.SSLSession | None = None,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(port, timeout=timeout)
        self.info: dict[str, Any] = {}
        self.socket.sendall(before)
        if not first:
            self.info = self.frame().json
        self.socket.settimeout(timeout)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost", session=session)
        if first:
            self.info = self.frame().json

    @property
    def tls(self) -> ssl.SSLSocket:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket

    def login(self, **options: object) -> list[str]:
        """Sends CONNECT and PING; the verbs of what comes, up to the answer."""
        told = {"verbose": False, "protocol": 1, **options}
        self.send(b"CONNECT " + json.dumps(told).encode() + b"\r\nPING\r\n")
        verbs = []
        while not verbs or verbs[-1] not in ("PONG", "EOF"):
            frame = self.frame()
            verbs.append(frame.line.decode() if frame.verb == "-ERR" else frame.verb)
        return verbs
