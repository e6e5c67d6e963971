"""What connections come to: ports that are opened, secured, given their terms, and closed."""

from __future__ import annotations

from collections.abc import Callable

from jsserver import TYPE_CHECKING, StartError
from jsserver.cext.engine import ListenerConfig, ListenerHandle
from jsserver.config.options import Options
from jsserver.process.sockets import bound_port, host_port, open_listener

if TYPE_CHECKING:
    import socket

    from jsserver.access.info import Pieces
    from jsserver.access.secured import Certified, Secured
    from jsserver.cext.tls import SecurityContext

Securing = Callable[[], "Secured | None"]
"""Makes what connections are secured by, once; ConfigError."""


class Listener:
    """One port. Each method follows the options as they are when it is called."""

    name = ""
    """In the ports file."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.port = 0
        """Where connections come to; 0: nowhere."""
        self.security: SecurityContext | None = None
        """What its connections are secured by."""
        self.certificate_ends = ""
        """When its certificate does, in RFC 3339; "" without TLS."""
        self._socket: socket.socket | None = None

    @property
    def host(self) -> str:
        """What it listens on."""
        raise NotImplementedError

    @property
    def scheme(self) -> str:
        """What its URLs begin with."""
        raise NotImplementedError

    def open(self, securing: Securing) -> None:
        """Lets connections come; StartError without the port, and what `securing` raises."""
        raise NotImplementedError

    def secure(self, secured: Secured | None) -> None:
        """Connections that come from now on are secured so."""

    def keep(self, by: Certified | None) -> None:
        """Remembers what connections are secured by."""
        self.security, self.certificate_ends = (by.context, by.ends) if by else (None, "")

    def terms(self) -> None:
        """Connections are told and held to what the options say."""

    def close(self) -> None:
        """Lets no more connections come."""
        if self._socket is not None:
            self._socket.close()

    def bind(self, refusal: str) -> socket.socket:
        """Takes the port. `refusal` says why not, with what it was and why."""
        try:
            self._socket = open_listener(self.host, self.asked_port)
        except OSError as error:
            where = host_port(self.host, max(self.asked_port, 0))
            raise StartError(refusal.format(where, error)) from error
        self.port = bound_port(self._socket)
        return self._socket

    @property
    def asked_port(self) -> int:
        """The port that the options ask for; below 0: any free one."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Host and port, for the log."""
        return host_port(self.host, self.port)


class PlaneListener(Listener):
    """One whose connections the data plane accepts and serves."""

    def __init__(self, options: Options, handle: ListenerHandle) -> None:
        super().__init__(options)
        self._handle = handle

    def accept(self) -> None:
        """From now on connections are served: the last step of open()."""
        assert self._socket is not None
        self._handle.listen(self._socket.fileno())

    def secure_by(self, by: Certified | None, *, proxied: bool = False) -> None:
        """Has the data plane secure connections so. `proxied`: a PROXY header may come first."""
        self.keep(by)
        self._handle.secure(by and by.context.security(), proxied)

    def tell(self) -> None:
        """Sends INFO to those of its clients that take such at any time."""
        self.terms()
        self._handle.tell()

    def close(self) -> None:
        """Those that are connected stay."""
        self._handle.listen(-1)
        super().close()


def terms_of(
    options: Options,
    info: Pieces | None,
    *,
    later_head: bytes = b"",
    ping_interval: int = 0,
    handshake_timeout: int = 0,
) -> ListenerConfig:
    """What holds for those who come by these options: whether they are looked at, whether one who
    has not said so much as CONNECT is let in (never by a key, as in nats-server), and whether INFO
    has a nonce. Times in ns.

    Where no login is needed, a client that says nothing may stay until it would not have answered
    the last PING.
    """
    guest = options.no_auth_user
    named = bool(guest) and any(user.name == guest for user in options.users)
    silence = options.ping_interval * (max(options.ping_max, 0) + 1)
    return ListenerConfig(
        handshake_timeout=handshake_timeout,
        ping_interval=ping_interval,
        auth_timeout=int(options.auth_timeout * 1e9) if options.auth_required else silence,
        auth_required=options.asks_everybody,
        no_auth_user=named or options.only_system_users or not options.auth_required,
        nonce=options.signs_nonces,
        info=info,
        later_head=later_head,
    )
