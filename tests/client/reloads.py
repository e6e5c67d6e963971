"""Configurations that change while servers run, and what that means to who is connected."""

import json
import os
import signal
import time
from typing import Any, NamedTuple

from tests.client.raw import EOF, Frame, RawClient
from tests.nkeys import Signer
from tests.servers import Server
from tests.waiting import wait_until

Shown = tuple[str, bytes, bytes, bytes]
DONE = "Reloaded server configuration"
FAILED = "Failed to reload server configuration"


def password(user: str, secret: str = "x") -> dict[str, Any]:
    """Options of CONNECT: who logs in so."""
    return {"user": user, "pass": secret}


class Client(RawClient):
    """One that logs in as it is told; a PING of the server's is passed over."""

    def __init__(self, server: Server, signs: Signer | None = None, **options: object) -> None:
        super().__init__(server.port)
        self.info = self.frame().json
        connect: dict[str, object] = {"verbose": False, "protocol": 1, "headers": True}
        connect |= {"no_responders": True, **options}
        if signs is not None:
            sig = signs.signature(str(self.info.get("nonce")))
            connect |= {"nkey": signs.public, "sig": sig}
        self.send(b"CONNECT " + json.dumps(connect).encode() + b"\r\nPING\r\n")
        self.said = self.until("INFO")

    @property
    def is_in(self) -> bool:
        return self.said[-1].verb != EOF

    def until(self, verb: str, timeout: float | None = None) -> list[Frame]:
        return [frame for frame in super().until(verb, timeout) if frame.verb != "PING"]

    def heard(self) -> list[Frame]:
        """What came up to now, or up to the end."""
        self.send(b"PING\r\n")
        return self.until("PONG")


class Actor(NamedTuple):
    """Somebody who is connected over a reload: how it logs in, what it sends first, and what it
    sends afterwards."""

    login: dict[str, object]
    first: bytes = b""
    then: bytes = b""


def user(name: str, first: bytes = b"", then: bytes = b"", password: str = "x") -> Actor:
    return Actor({"user": name, "pass": password}, first, then)


def rewrite(server: Server, config: str) -> None:
    """Replaces the file as a whole: a server that reads it meanwhile has one or the other."""
    server.config = config
    coming = server.folder / "server.conf.next"
    coming.write_text(config)
    coming.rename(server.folder / "server.conf")


def reload(server: Server, config: str | None = None, says: str = DONE) -> None:
    """Has the server read its file, and waits for what its log says of it."""
    if config is not None:
        rewrite(server, config)
    before = server.log().count(says)
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.log().count(says) > before, f"{says} in {server.log_path}")


def in_order(frames: list[Shown]) -> list[Shown]:
    """What was said of several subscriptions has no order in nats-server."""
    errors = sorted((f for f in frames if b"Permissions Violation" in f[1]), key=str)
    return [*errors, *(f for f in frames if f not in errors)]


def watched(server: Server, after: str, actors: list[Actor]) -> list[list[object]]:
    """What actors hear over a reload: of what they sent before it, by it, of what all sent then;
    and whether others get in as they did."""
    clients = [Client(server, **actor.login) for actor in actors]  # type: ignore[arg-type]
    shown: list[list[object]] = [[client.is_in] for client in clients]

    def note() -> None:
        for said, client in zip(shown, clients, strict=True):
            frames = [] if client.closed else [frame.shown() for frame in client.heard()]
            said.append(in_order(frames))

    for client, actor in zip(clients, actors, strict=True):
        client.send(actor.first)
    note()
    reload(server, after)
    time.sleep(0.05)  # clients that are cut have heard of it
    note()
    for client, actor in zip(clients, actors, strict=True):
        client.send(actor.then)
        if not client.closed:
            client.send(b"PING\r\n")
            client.until("PONG")
    note()
    for client, said, actor in zip(clients, shown, actors, strict=True):
        client.close()
        with Client(server, **actor.login) as again:  # type: ignore[arg-type]
            said.append(again.is_in)
    return shown
