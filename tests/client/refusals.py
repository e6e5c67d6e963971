"""Logins that two servers have to refuse alike: the words, and the reason that monitoring tells."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from tests.client.raw import EOF, Frame, RawClient
from tests.client.websocket import WsClient
from tests.jwts import User
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

VIOLATION = b"-ERR 'Authorization Violation'"
FAILURE = "Authentication Failure"
Pair = list[Server]
"""The server under test, and nats-server."""
Say = Mapping[str, object] | Callable[[str], Mapping[str, object]] | bytes
"""The options of CONNECT, or what makes them of the nonce; or what is said instead of it."""


def closed_reason(server: Server, cid: int) -> str:
    """Why a connection ended, as soon as monitoring knows it."""
    found: list[dict[str, Any]] = []

    def known() -> bool:
        url = f"{server.monitor_url}/connz?state=closed&cid={cid}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found[:] = json.load(answer)["connections"]
        return bool(found)

    wait_until(known, f"the end of connection {cid}")
    return str(found[0]["reason"])


def said_to(client: RawClient, say: Say, info: Mapping[str, Any]) -> list[Frame]:
    """What a client hears of what it says, up to its INFO or PONG, or its end."""
    if isinstance(say, bytes):
        client.send(say)
    else:
        options = say(str(info.get("nonce"))) if callable(say) else say
        told = {"verbose": False, "protocol": 1, "headers": True, **options}
        client.send(b"CONNECT " + json.dumps(told).encode() + b"\r\nPING\r\n")
    frames: list[Frame] = []
    while not frames or frames[-1].verb not in ("PONG", EOF):
        frame = client.frame()
        if frame.verb not in ("PING", "INFO"):
            frames.append(frame)
    return frames


def outcome(server: Server, say: Say, *, websocket: bool = False, before: bytes = b"") -> list[Any]:
    """What a client hears, and if it is cut, why."""
    with WsClient(server) if websocket else RawClient(server.port) as client:
        client.send(before)
        info = client.frame().json
        heard = said_to(client, say, info)
    cid = int(info["client_id"])
    shown: list[Any] = [frame.shown() for frame in heard]
    return [*shown, closed_reason(server, cid)] if heard[-1].verb == EOF else shown


def started(servers: Servers, config: str, **options: Any) -> Pair:
    return [
        start(config=config, monitor=True, **options)
        for start in (servers.under_test, servers.peer)
    ]


def both(pair: Pair, say: Say, **how: Any) -> list[Any]:
    """What both say alike to the same client."""
    ours, theirs = (outcome(server, say, **how) for server in pair)
    assert ours == theirs
    return ours


def is_refused(found: list[Any], reason: str = FAILURE) -> bool:
    """Whether that is a violation and the end, for this reason."""
    return bool(
        len(found) == 3 and found[0][1] == VIOLATION and found[1][0] == EOF and found[2] == reason
    )


def by_token(user: User | str, signer: Signer | None = None, **more: object) -> Say:
    """A login by a user's token, signed by its key or another."""
    if isinstance(user, str):
        return lambda nonce: {"jwt": user, "sig": signer.signature(nonce) if signer else "", **more}
    by = signer or user
    return lambda nonce: {"jwt": user.token, "sig": by.signature(nonce), **more}


def by_key(signer: Signer, **more: object) -> Say:
    """A login by an nkey."""
    return lambda nonce: {"nkey": signer.public, "sig": signer.signature(nonce), **more}
