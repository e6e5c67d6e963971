"""Logins by token: servers in operator mode, and what they say to clients with one."""

import json
from typing import Any

from tests.client.raw import EOF, Frame, RawClient
from tests.jwts import Account, Operator, User
from tests.servers import Server


def configured(operator: Operator, accounts: list[Account], *more: str) -> str:
    preload = "\n".join(f"  {a.public}: {a.token}" for a in [operator.sys, *accounts])
    lines = [f"operator: {operator.token}", "resolver: MEMORY", *more]
    return "\n".join(["server_name: one", *lines, f"resolver_preload {{\n{preload}\n}}"])


class Client(RawClient):
    """One that logs in by a token; `said` is what came up to and with the first INFO behind."""

    def __init__(self, server: Server, user: User | None = None, /, **more: object) -> None:
        super().__init__(server.port)
        self.info = self.frame().json
        options: dict[str, object] = {"verbose": False, "protocol": 1, "headers": True}
        options |= {"no_responders": True}
        if user is not None:
            options["jwt"] = user.token
            options["sig"] = user.signature(str(self.info.get("nonce")))
        options |= more
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        self.said = self.until("INFO")

    def until(self, verb: str, timeout: float | None = None) -> list[Frame]:
        """Without PING, which comes when the server likes."""
        return [frame for frame in super().until(verb, timeout) if frame.verb != "PING"]

    def who_am_i(self, inbox: str) -> Frame:
        """What the server says of it, or what comes instead."""
        self.send(f"SUB {inbox} 1\r\nPUB $SYS.REQ.USER.INFO {inbox} 0\r\n\r\n".encode())
        answer = self.sync() or [self.message()]
        return answer[0]

    def shown(self) -> object:
        return [told(frame) for frame in self.said]


def told(frame: Frame) -> object:
    """Without what differs between any two servers."""
    if frame.verb != "INFO":
        return frame.shown()
    kept = {**frame.json}
    for name in ("server_id", "port", "client_id", "xkey", "nonce"):
        if name in kept:
            kept[name] = type(kept[name]).__name__
    return list(kept.items())


def both(pair: list[Server], user: User | None = None, /, **options: object) -> list[object]:
    """The same login is answered alike; what the answer was."""
    shown = []
    for server in pair:
        with Client(server, user, **options) as client:
            shown.append([told(Frame("INFO", json=client.info)), client.shown()])
    assert shown[0] == shown[1]
    return shown[0]


def is_in(answer: list[object]) -> bool:
    said: Any = answer[1]
    return bool(said[-1][0] != EOF)
