"""Options of the `gateway` block."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.block import Block, each

if TYPE_CHECKING:
    from jsserver.config.options import Tls


class GatewayUrl(Block):
    """Where a server of another cluster is, and the login there, if the URL has one."""

    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    has_login: bool = False


class RemoteGateway(Block):
    """Another cluster. `tls` stands for that of the `gateway` block, where there is one."""

    name: str = ""
    urls: list[GatewayUrl] = each(list)
    tls: Tls | None = None


class Gateway(Block):
    """The `gateway` block. Port 0: the cluster is joined to no other. `name` is the cluster's."""

    name: str = ""
    host: str = "0.0.0.0"
    port: int = 0
    username: str = ""
    password: str = ""
    auth_timeout: float = 2.0
    advertise: str = ""
    connect_retries: int = 0
    connect_backoff: bool = False
    reject_unknown: bool = False
    ping_interval: int = 0
    """ns; 0, of `ping_max` too: as for all connections."""
    ping_max: int = 0
    write_deadline: int = 0
    write_timeout: str = ""
    gateways: list[RemoteGateway] = each(list)
    tls: Tls | None = None
