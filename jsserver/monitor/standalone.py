"""`/gatewayz`: what a server without peers shows there."""

from jsserver.monitor.sources import Server
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always


class Gatewayz(Wire):
    """The page `/gatewayz`."""

    server_id: str
    now: str
    outbound_gateways: dict[str, str] = always({})
    inbound_gateways: dict[str, str] = always({})


def gatewayz(server: Server, now: int) -> Gatewayz:
    """No gateways."""
    return Gatewayz(server_id=server.id, now=rfc3339_nano(now))
