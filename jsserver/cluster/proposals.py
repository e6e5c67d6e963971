"""Builds assignments and the entries of the meta group's log that carry them, in nats-server's
form."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from jsserver.cluster.meta import Op
from jsserver.text.goformat import escape_json, rfc3339_nano
from jsserver.wire.types import ConsumerConfig, StreamConfig

Said = dict[str, Any]
"""An assignment as a JSON object."""

NOT_PROPOSED = ("jwt", "issuer_key")
"""Keys of a client's description that no entry may have: they are secrets."""


class Asked(NamedTuple):
    """A request to the meta leader."""

    account: str
    """The account whose assets the request is about."""
    subject: str
    reply: str
    body: bytes
    client: dict[str, Any]
    """The requester, as the header `Nats-Request-Info` describes it."""
    args: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The requester's cluster, "" where unknown."""
        cluster = self.client.get("cluster", "")
        return cluster if isinstance(cluster, str) else ""

    @property
    def clusters(self) -> list[str]:
        """The clusters to try in this order: the requester's, then others that its server knows."""
        others = self.client.get("alts", [])
        found = (
            [name for name in others if isinstance(name, str)] if isinstance(others, list) else []
        )
        return [self.cluster, *found]


def entry(op: Op, said: Said) -> bytes:
    """An entry of the log: the operation's byte, then the assignment as JSON."""
    return bytes([op]) + escape_json(msgspec.json.encode(said)) + b"\n"


def client_of(asked: Asked) -> Said:
    """The requester, as an assignment describes it."""
    return {key: value for key, value in asked.client.items() if key not in NOT_PROPOSED}


def answered(said: Said, asked: Asked) -> Said:
    """The assignment with the request that its members are to answer."""
    kept = {key: value for key, value in said.items() if key not in ("client", "subject", "reply")}
    return {"client": client_of(asked), **kept, "subject": asked.subject, "reply": asked.reply}


def group_name(kind: str, replicas: int, storage: str, token: str) -> str:
    """A new group's name; `kind`: S for a stream, C for a consumer."""
    return f"{kind}-R{replicas}{'M' if storage == 'memory' else 'F'}-{token}"


def group(kind: str, peers: list[str], storage: str, cluster: str, token: str) -> Said:
    """A new group; `kind`: S for a stream, C for a consumer. The first peer is to lead first."""
    return {
        "name": group_name(kind, len(peers), storage, token),
        "peers": peers,
        "store": storage,
        "cluster": cluster,
        "preferred": peers[0],
    }


def stream(config: StreamConfig, created: int, of: Said, sync: str) -> Said:
    """A new stream's assignment, without the requester."""
    return {
        "created": rfc3339_nano(created),
        "stream": plain(config),
        "group": of,
        "sync": f"$JSC.SYNC.{sync}",
    }


def consumer(name: str, stream: str, config: ConsumerConfig, created: int, of: Said) -> Said:
    """A new consumer's assignment, without the requester."""
    return {
        "created": rfc3339_nano(created),
        "name": name,
        "stream": stream,
        "consumer": plain(config),
        "group": of,
    }


def plain(config: StreamConfig | ConsumerConfig) -> Said:
    """A configuration as a JSON object."""
    found: Said = msgspec.to_builtins(config)
    return found


def changed(said: Said, key: str, config: StreamConfig | ConsumerConfig) -> Said:
    """The assignment with another configuration; `key`: stream or consumer."""
    return {**said, key: plain(config)}


def unpreferred(said: Said) -> Said:
    """The assignment of an existing stream, without the peer that was to lead first: the present
    leader goes on."""
    of = {key: value for key, value in said["group"].items() if key != "preferred"}
    return {**said, "group": of}
