"""INFO of gateways in nats-server's form. Their CONNECT is that of routes."""

from __future__ import annotations

import msgspec

from jsserver.text.identity import short_hash

from .words import Byte, Introduction

HASH_DIGITS = 6

GOSSIP, BEGIN, COMPLETE = 1, 2, 3
"""Commands: an INFO about a remote cluster; an account's interest begins; it is complete."""


class GatewayInfo(Introduction, omit_defaults=True, kw_only=True):
    """An INFO about the sender, about a remote cluster, or about an account's interest."""

    nonce: str = ""
    gateway: str = ""
    """The name of the cluster."""
    gateway_urls: list[str] = msgspec.field(default_factory=list)
    """The URLs of the cluster's servers for gateways."""
    gateway_url: str = ""
    """The sender's URL for gateways."""
    gateway_cmd: Byte = 0
    gateway_cmd_payload: bytes = b""
    """The account's name; JSON has it in base64."""
    gateway_nrp: bool = False
    """Whether mapped replies begin with `_GR_.`."""
    gateway_iom: bool = False
    """Whether the sender announces all interest of each account from the beginning."""


def command_head(cluster: str) -> bytes:
    """The start of an INFO about an account, up to the command's number; the data plane adds the
    rest."""
    line = msgspec.json.encode(GatewayInfo(gateway=cluster, gateway_cmd=BEGIN))
    return b"INFO " + line[: line.rindex(b"2}")]


def gateway_hash(name: str) -> bytes:
    """The short name in mapped replies of a cluster, or of a server by its id."""
    return short_hash(name, HASH_DIGITS).encode()
