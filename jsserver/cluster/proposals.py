"""Assignments as entries of the meta group's log, in nats-server's form."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from jsserver.cluster.meta import Op
from jsserver.text.goformat import escape_json, rfc3339_nano
from jsserver.wire.types import ConsumerConfig, StreamConfig

Said = dict[str, Any]
"""What an assignment says."""

NOT_PROPOSED = ("jwt", "issuer_key")
"""What a client's description has that is nobody's business."""


class Asked(NamedTuple):
    """A request to the leader."""

    account: str
    """Whose assets it is about."""
    subject: str
    reply: str
    body: bytes
    client: dict[str, Any]
    """Who asks, as `Nats-Request-Info` has it."""
    args: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The cluster that it was asked in."""
        cluster = self.client.get("cluster", "")
        return cluster if isinstance(cluster, str) else ""

    @property
    def clusters(self) -> list[str]:
        """That cluster, and others that the server there knows, to be tried in this order."""
        others = self.client.get("alts", [])
        found = (
            [name for name in others if isinstance(name, str)] if isinstance(others, list) else []
        )
        return [self.cluster, *found]


def entry(op: Op, said: Said) -> bytes:
    """An entry of the log."""
    return bytes([op]) + escape_json(msgspec.json.encode(said)) + b"\n"


def client_of(asked: Asked) -> Said:
    """Who asks, as an assignment has it."""
    return {key: value for key, value in asked.client.items() if key not in NOT_PROPOSED}


def answered(said: Said, asked: Asked) -> Said:
    """The assignment, with the request that its members answer."""
    kept = {key: value for key, value in said.items() if key not in ("client", "subject", "reply")}
    return {"client": client_of(asked), **kept, "subject": asked.subject, "reply": asked.reply}


def group_name(kind: str, replicas: int, storage: str, token: str) -> str:
    """`kind`: S or C."""
    return f"{kind}-R{replicas}{'M' if storage == 'memory' else 'F'}-{token}"


def group(kind: str, peers: list[str], storage: str, cluster: str, token: str) -> Said:
    """A new group; `kind`: S or C. The first peer is to lead first."""
    return {
        "name": group_name(kind, len(peers), storage, token),
        "peers": peers,
        "store": storage,
        "cluster": cluster,
        "preferred": peers[0],
    }


def stream(config: StreamConfig, created: int, of: Said, sync: str) -> Said:
    """A stream's assignment, but for who asked."""
    return {
        "created": rfc3339_nano(created),
        "stream": plain(config),
        "group": of,
        "sync": f"$JSC.SYNC.{sync}",
    }


def consumer(name: str, stream: str, config: ConsumerConfig, created: int, of: Said) -> Said:
    """A consumer's assignment, but for who asked."""
    return {
        "created": rfc3339_nano(created),
        "name": name,
        "stream": stream,
        "consumer": plain(config),
        "group": of,
    }


def plain(config: StreamConfig | ConsumerConfig) -> Said:
    """A configuration as an assignment has it."""
    found: Said = msgspec.to_builtins(config)
    return found


def changed(said: Said, key: str, config: StreamConfig | ConsumerConfig) -> Said:
    """The assignment with another configuration; `key`: stream or consumer."""
    return {**said, key: plain(config)}


def unpreferred(said: Said) -> Said:
    """An assignment of a stream that is there: who leads it stays so."""
    of = {key: value for key, value in said["group"].items() if key != "preferred"}
    return {**said, "group": of}
