"""Has a server build its replica of a stream anew from what the other replicas hold."""

import time
from typing import Any

from jsserver.admin.session import CommandFailed
from jsserver.admin.survey import views
from jsserver.admin.system import System
from jsserver.client.connection import ConnectionFailed, TimedOut

PAUSE = 0.5
"""Seconds between two looks at a replica that is being built."""
PATIENCE = 60.0
"""Seconds without another message after which the building has failed."""


def rebuild(system: System, key: tuple[str, str], server: str) -> None:
    """Returns once the replica of the stream `key` (account, name) is current; CommandFailed."""
    name = "/".join(key)
    about = _info(system, key)
    leader = about.get("leader", "")
    others = [one for one in about.get("replicas") or () if one["name"] != server]
    if not leader:
        raise CommandFailed(f"{name} has no leader")
    if leader == server:
        step = f"nats stream cluster step-down {key[1]} --preferred {_first(others)}"
        raise CommandFailed(f"{server} leads {name}: have another server lead it first ({step})")
    behind = [one["name"] for one in others if not one.get("current")]
    if behind:
        text = "is not current, and the stream would have too few replicas meanwhile"
        raise CommandFailed(f"{name}: the replica on {', '.join(behind)} {text}")
    ids = {view.server: view.id for view in views(system, system.statistics())}
    try:
        body = {"account": key[0], "stream": key[1]}
        system.server(ids[server], "JSSERVER.REBUILD", body)
    except TimedOut:
        raise
    except (ConnectionFailed, KeyError):
        raise CommandFailed(
            f"{server} builds no replica anew on request: it is down, or a nats-server. Start it on"
            " an empty directory"
        ) from None
    _wait(system, key, server)


def _first(others: list[dict[str, Any]]) -> str:
    return next((one["name"] for one in others if one.get("current")), "SERVER")


def _info(system: System, key: tuple[str, str]) -> dict[str, Any]:
    answer = system.api(f"STREAM.INFO.{key[1]}", None, key[0])
    if "error" in answer:
        raise CommandFailed(f"{'/'.join(key)}: {answer['error']['description']}")
    return answer.get("cluster") or {}


def _wait(system: System, key: tuple[str, str], server: str) -> None:
    time.sleep(PAUSE)  # the replica is closed first
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < PATIENCE:
        for view in views(system, system.statistics()):
            there = view.streams.get(key) if view.server == server else None
            messages = -1 if there is None else int(there["state"]["messages"])
            if messages != seen and view.server == server:
                seen, since = messages, time.monotonic()
        replicas = _info(system, key).get("replicas") or ()
        if seen >= 0 and any(one["name"] == server and one.get("current") for one in replicas):
            return
        time.sleep(PAUSE)
    raise CommandFailed(f"the replica of {'/'.join(key)} on {server} gets nothing more")
