"""INFO and CONNECT of leaf nodes, as on nats-server's wire."""

from __future__ import annotations

import msgspec

from .words import Introduction, SubjectPermission


class LeafInfo(Introduction, omit_defaults=True, kw_only=True):
    """What a hub says of itself, before and after a leaf node's CONNECT."""

    client_id: int = 0
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ws_connect_urls: list[str] = msgspec.field(default_factory=list)
    ldm: bool = False
    compression: str = ""
    connect_info: bool = False
    """It answers a CONNECT."""
    remote_account: str = ""
    """The account, there, that the leaf node is let into."""
    acc_is_sys: bool = False
    api_lvl: int = 0
    import_: SubjectPermission | None = msgspec.field(default=None, name="import")
    """Of what the leaf node may listen to."""
    export: SubjectPermission | None = None
    """And of what it may send."""
    info_on_connect: bool = False
    """It will answer a CONNECT with INFO."""
    leafnode_urls: list[str] | None = None


class LeafConnect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a leaf node says first."""

    version: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    server_id: str = ""
    domain: str = ""
    name: str = ""
    """Of the server."""
    is_hub: bool = False
    """The side that dials is the hub."""
    cluster: str = ""
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] = []
    """What is not to be sent there."""
    isolate: bool = False
    """It wants to hear nothing of other leaf nodes."""
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    """The account, there, that is joined."""
    protocol: int = 0
    lang: str = ""
    """Of clients alone, which have taken the wrong port."""
