"""A raw client over TLS, which sees what a server says before the handshake and behind it, and the
certificates that tests of it share."""

import json
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.certificates import Authority, Issued
from tests.client.raw import RawClient
from tests.servers import Server

Start = Callable[..., Server]
"""Starts a server."""


class Site:
    """An authority with a server's certificate and a client's."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        self.stranger = Authority(folder / "theirs", "CN=somebody else")
        self.server = self.authority.server()
        self.client = self.authority.issue("CN=client,O=Acme", emails=("a@example.com",))
        self.other = self.authority.issue("CN=other")
        self.forged = self.stranger.issue("CN=client,O=Acme")

    def config(self, extra: str = "", more: str = "", issued: Issued | None = None) -> str:
        issued = issued or self.server
        return f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}"\n{extra} }}\n{more}'

    @property
    def verifying(self) -> str:
        return f'ca_file: "{self.authority.cert}", verify: true'


def block(issued: Issued, authority: Authority, more: str = "") -> str:
    """Of links between servers, whose certificates the authority has made."""
    return f"""tls {{
        cert_file: "{issued.cert}", key_file: "{issued.key}"
        ca_file: "{authority.cert}", timeout: 5
        {more}
    }}"""


def page(server: Server, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(server.monitor_url + path, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


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
        verbs: list[str] = []
        while not verbs or verbs[-1] not in ("PONG", "EOF"):
            frame = self.frame()
            verbs.append(frame.line.decode() if frame.verb == "-ERR" else frame.verb)
        return verbs
