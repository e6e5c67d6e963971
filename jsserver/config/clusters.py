"""Options of the `cluster` block."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.block import Block, each

if TYPE_CHECKING:
    from jsserver.config.options import SubjectPermission, Tls


class RouteUrl(Block):
    """Where a server of the cluster is, and the login there."""

    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""


class Cluster(Block):
    """The `cluster` block. Port 0: the server is in no cluster. A `pool_size` below 0 is no pool,
    and 0 of `ping_interval`, `ping_max` and `write_deadline` (ns) what all connections have.
    `rtt_thresholds`: round trips, in ns, by which the compression s2_auto goes; [] the usual ones.
    `imports`: what interest of its own a server tells others of; `exports`: what interest of theirs
    counts."""

    flag_listen: str = ""
    flag_routes: str = ""
    """What the command line says, in which `listen` and `routes` stand."""
    name: str = ""
    host: str = "0.0.0.0"
    port: int = 0
    username: str = ""
    password: str = ""
    auth_timeout: float = 2.0
    routes: list[RouteUrl] = each(list)
    advertise: str = ""
    no_advertise: bool = False
    connect_retries: int = 0
    connect_backoff: bool = False
    pool_size: int = 3
    accounts: list[str] = each(list)
    ping_interval: int = 0
    compression: str = "accept"
    rtt_thresholds: list[int] = each(list)
    ping_max: int = 0
    write_deadline: int = 0
    write_timeout: str = ""
    imports: SubjectPermission | None = None
    exports: SubjectPermission | None = None
    tls: Tls | None = None
