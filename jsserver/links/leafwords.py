"""INFO and CONNECT of leaf nodes in nats-server's form."""

from __future__ import annotations

import msgspec

from .words import Introduction, SubjectPermission


class LeafInfo(Introduction, omit_defaults=True, kw_only=True):
    """A hub's INFO, before and after a leaf node's CONNECT."""

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
    """Whether this INFO answers a CONNECT."""
    remote_account: str = ""
    """The account at the hub that the leaf node is admitted to."""
    acc_is_sys: bool = False
    api_lvl: int = 0
    import_: SubjectPermission | None = msgspec.field(default=None, name="import")
    """Subjects that the leaf node may receive."""
    export: SubjectPermission | None = None
    """Subjects that the leaf node may send."""
    info_on_connect: bool = False
    """Whether the hub will answer CONNECT with another INFO."""
    leafnode_urls: list[str] | None = None


class LeafConnect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A leaf node's CONNECT."""

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
    """The server's name."""
    is_hub: bool = False
    """Whether the dialling side acts as the hub."""
    cluster: str = ""
    headers: bool = False
    jetstream: bool = False
    deny_pub: list[str] = []
    """Subjects that the receiver must not send to."""
    isolate: bool = False
    """Whether the leaf node wants no interest of other leaf nodes."""
    compress_mode: str = ""
    gateway: str = ""
    remote_account: str = ""
    """The account at the dialling side."""
    protocol: int = 0
    lang: str = ""
    """Only clients send it: they have connected to the wrong port."""
