"""INFO of gateways, as on nats-server's wire. CONNECT is the same as a route's."""

from __future__ import annotations

import msgspec

from jsserver.text.identity import short_hash

from .words import Byte, Introduction

HASH_DIGITS = 6

GOSSIP, BEGIN, COMPLETE = 1, 2, 3
"""Commands: another cluster is told of; the interest of an account follows; that was all of it."""


class GatewayInfo(Introduction, omit_defaults=True, kw_only=True):
    """What a server says of itself to other clusters, of another cluster, or of an account."""

    nonce: str = ""
    gateway: str = ""
    """The cluster's name."""
    gateway_urls: list[str] = msgspec.field(default_factory=list)
    """Where servers of that cluster are reached."""
    gateway_url: str = ""
    """Where this one is."""
    gateway_cmd: Byte = 0
    gateway_cmd_payload: bytes = b""
    """The account's name, in base64 on the wire."""
    gateway_nrp: bool = False
    """Mapped replies begin with `_GR_.`."""
    gateway_iom: bool = False
    """It tells of all interest of each account, from the beginning on."""


def command_head(cluster: str) -> bytes:
    """INFO that tells of an account, up to the command's number; the data plane writes the rest."""
    line = msgspec.json.encode(GatewayInfo(gateway=cluster, gateway_cmd=BEGIN))
    return b"INFO " + line[: line.rindex(b"2}")]


def gateway_hash(name: str) -> bytes:
    """How mapped replies name a cluster, or a server by its id."""
    return short_hash(name, HASH_DIGITS).encode()
