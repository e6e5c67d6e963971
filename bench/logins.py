"""Users of operator mode that come all at once: what that costs the server, and those who are in.

`--users` connections with JWTs of their own are opened together; each signs its nonce. Beside them
two who are in send each other messages, before and meanwhile.
"""

import argparse
import base64
import json
import multiprocessing
import selectors
import socket
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from bench.servers import OWN_NAME, PEER_NAME, MissingServer, Server, machine, version_of
from jsserver.bench.wire import BenchError
from jsserver.jwt.tokens import encode
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR, PREFIX_USER
from jsserver.text.nkeys import SigningPair

OPEN_AT_ONCE = 512
"""Connections on their way: what a listener's backlog takes."""
IDLE_SECONDS = 3.0
PROBE_PAUSE = 0.002
LOGIN_SECONDS = 120.0


UNLIMITED = {"subs": -1, "data": -1, "payload": -1}


class User(SigningPair):
    """A user and its token, which an account has signed."""

    def __init__(self, account: SigningPair) -> None:
        super().__init__(PREFIX_USER)
        self.token = token(account, self.public, "user", UNLIMITED)

    def options(self, nonce: str) -> bytes:
        """CONNECT on a connection with this nonce."""
        sig = base64.urlsafe_b64encode(self.sign(nonce.encode())).decode().rstrip("=")
        options = {"jwt": self.token, "sig": sig, "verbose": False}
        return b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n"


def token(signer: SigningPair, sub: str, kind: str, body: dict[str, Any]) -> str:
    claims = {"iat": int(time.time()), "iss": signer.public, "sub": sub}
    return encode({**claims, "nats": {"type": kind, "version": 2, **body}}, signer.sign)


def configured(operator: SigningPair, account: SigningPair) -> str:
    limits = {**UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    system = SigningPair(PREFIX_ACCOUNT)
    tokens = [
        f"{one.public}: {token(operator, one.public, 'account', {'limits': limits})}"
        for one in (system, account)
    ]
    own = token(operator, operator.public, "operator", {"system_account": system.public})
    preload = "\n".join(tokens)
    return f"operator: {own}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}"


class Guarded(Server):
    """One that lets nobody in without a token: it is ready when it says INFO."""

    def _wait_ready(self, end: float) -> None:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as sock:
                    if sock.recv(4) == b"INFO":
                        return
            except OSError:
                pass
            if time.monotonic() > end:
                raise BenchError("it says nothing")
            time.sleep(0.02)


class Member:
    """A connection on its way in."""

    def __init__(self, sock: socket.socket, user: User) -> None:
        self.sock = sock
        self.user = user
        self.said = b""
        self.asked = False

    def advance(self) -> bool:
        """Reads what came, and says CONNECT once INFO is there; whether it is in."""
        data = self.sock.recv(65536)
        if not data:
            raise BenchError(f"a login was refused: {self.said[-200:]!r}")
        self.said += data
        if not self.asked and self.said.endswith(b"\r\n"):
            options = self.user.options(json.loads(self.said[5:])["nonce"])
            self.said, self.asked = b"", True
            self.sock.sendall(options)
        return b"PONG\r\n" in self.said


def log_in(port: int, users: list[User]) -> list[socket.socket]:
    """Opens a connection for each user; all of them are in at the end."""
    waiting, inside = list(reversed(users)), []
    end = time.monotonic() + LOGIN_SECONDS
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < OPEN_AT_ONCE:
                sock = socket.create_connection(("127.0.0.1", port))
                selector.register(sock, selectors.EVENT_READ, Member(sock, waiting.pop()))
            if time.monotonic() > end:
                raise BenchError(f"{len(waiting)} users are not in after {LOGIN_SECONDS} s")
            for key, _ in selector.select(1.0):
                if key.data.advance():
                    selector.unregister(key.data.sock)
                    inside.append(key.data.sock)
    return inside


def probe(port: int, users: tuple[User, User], pipe: Pipe) -> None:
    """Sends messages from one client to another until it is told to stop; tells how long each
    took, in seconds, with when it was sent."""
    hears, says = log_in(port, list(users))
    hears.sendall(b"SUB probe 1\r\nPING\r\n")
    _read_to(hears, b"PONG\r\n")
    pipe.send("ready")
    spans = []
    while not pipe.poll():
        began = time.monotonic()
        says.sendall(b"PUB probe 1\r\nx\r\n")
        _read_to(hears, b"\r\nx\r\n")
        spans.append((began, time.monotonic() - began))
        time.sleep(PROBE_PAUSE)
    pipe.send(spans)


def _read_to(sock: socket.socket, end: bytes) -> None:
    """PINGs are left unanswered: the server asks twice, minutes apart, before it minds."""
    data = b""
    while end not in data:
        more = sock.recv(65536)
        if not more:
            raise BenchError("the server has closed a connection that was in")
        data += more


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def measure(name: str, count: int) -> dict[str, Any]:
    operator, account = SigningPair(PREFIX_OPERATOR), SigningPair(PREFIX_ACCOUNT)
    users = [User(account) for _ in range(count)]
    config = configured(operator, account)
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Guarded(name, Path(folder), config=config)
        server.start()
        ours, theirs = multiprocessing.Pipe()
        pair = (User(account), User(account))
        prober = multiprocessing.get_context("fork").Process(
            target=probe, args=(server.port, pair, theirs), daemon=True
        )
        try:
            prober.start()
            ours.recv()
            time.sleep(IDLE_SECONDS)
            cpu, began = server.cpu_seconds(), time.monotonic()
            inside = log_in(server.port, users)
            ended = time.monotonic()
            cpu = server.cpu_seconds() - cpu
            ours.send("stop")
            spans = ours.recv()
            for sock in inside:
                sock.close()
        finally:
            prober.kill()
            server.kill()
    idle = [span for at, span in spans if at < began]
    busy = [span for at, span in spans if began <= at < ended]
    return {
        "server": name,
        "in": len(inside),
        "seconds": round(ended - began, 2),
        "logins per second": round(count / (ended - began)),
        "logins per processor second": round(count / cpu),
        "idle ms, half": round(1000 * percentile(idle, 0.5), 3),
        "idle ms, P99.9": round(1000 * percentile(idle, 0.999), 3),
        "meanwhile ms, half": round(1000 * percentile(busy, 0.5), 3),
        "meanwhile ms, P99.9": round(1000 * percentile(busy, 0.999), 3),
        "messages meanwhile": len(busy),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1, help="of both servers in turn")
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    try:
        found = [measure(name, given.users) for _ in range(given.rounds) for name in names]
    except (BenchError, MissingServer) as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    print(machine(), *(version_of(name) for name in names), sep="\n")
    for row in found:
        print(", ".join(f"{key}: {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
