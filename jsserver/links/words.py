"""INFO and CONNECT between servers in nats-server's form: keys, their order, and which are left
out.

Unknown keys are ignored. Numbers out of range are an error.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Byte = Annotated[int, Meta(ge=0, le=255)]
T = TypeVar("T", bound=msgspec.Struct)
Plain = TypeVar("Plain", str, int, bool)


def always(value: Plain) -> Plain:
    """A default value that is written all the same."""
    field: Plain = msgspec.field(default_factory=lambda: value)
    return field


class SubjectPermission(msgspec.Struct, omit_defaults=True):
    """Subjects that may pass, and subjects that may not."""

    allow: list[str] = []
    deny: list[str] = []


class Introduction(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The keys that every INFO between servers begins with."""

    server_id: str = always("")
    server_name: str = always("")
    version: str = always("")
    proto: int = always(0)
    git_commit: str = ""
    go: str = always("")
    host: str = always("")
    port: int = always(0)
    headers: bool = always(False)
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: Int32 = always(0)
    jetstream: bool = False
    ip: str = ""


class Info(Introduction, omit_defaults=True, kw_only=True):
    """An INFO about the sender, or about a third server, whose address is `ip`."""

    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ws_connect_urls: list[str] = msgspec.field(default_factory=list)
    ldm: bool = False
    compression: str = ""
    import_: SubjectPermission | None = msgspec.field(default=None, name="import")
    export: SubjectPermission | None = None
    lnoc: bool = False
    """Whether the server understands `LS+` with an origin."""
    lnocu: bool = False
    """Whether it understands `LS-` with an origin."""
    ln: bool = False
    """Since 2.15: both of these, and `_` stands for no origin."""
    route_pool_size: int = 0
    route_pool_idx: int = 0
    route_account: str = ""
    route_acc_add_reqid: str = ""
    gossip_mode: Byte = 0
    gateway: str = ""
    """A remote cluster that the sender knows."""
    gateway_urls: list[str] = msgspec.field(default_factory=list)
    gateway_url: str = ""
    """The sender's URL for gateways."""
    gateway_cmd: Byte = 0
    leafnode_urls: list[str] = msgspec.field(default_factory=list)


class RouteConnect(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The CONNECT of a dialled route or gateway."""

    echo: bool = always(True)
    verbose: bool = always(False)
    pedantic: bool = always(False)
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    tls_required: bool = always(False)
    headers: bool = always(True)
    name: str = always("")
    """The server's id."""
    cluster: str = always("")
    cluster_dynamic: bool = False
    lnoc: bool = False
    lnocu: bool = False
    ln: bool = False
    gateway: str = ""
    lang: str = ""
    """Only clients send it: they have connected to the wrong port."""


def info_line(info: Introduction) -> bytes:
    """A server's INFO about itself."""
    return b"INFO " + msgspec.json.encode(info) + b" \r\n"


def gossip_line(info: Introduction) -> bytes:
    """An INFO about another server or cluster; like nats-server's, it does not end in a blank."""
    return b"INFO " + msgspec.json.encode(info) + b"\r\n"


def connect_line(connect: msgspec.Struct) -> bytes:
    """The CONNECT of a route, a gateway or a leaf node."""
    return b"CONNECT " + msgspec.json.encode(connect) + b"\r\n"


def read(args: bytes, kind: type[T]) -> T:
    """Reads the JSON object behind a verb; ValueError says what is wrong. A `null` leaves the
    field's default, as in Go."""
    try:
        found = msgspec.json.decode(args)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        present = {key: value for key, value in found.items() if value is not None}
        return msgspec.convert(present, kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
