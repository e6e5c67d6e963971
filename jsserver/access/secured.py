"""What clients' connections are secured by, made of the options and the files as they are now."""

from __future__ import annotations

from typing import Protocol

from jsserver.access.certificates import certificate_ends, has_to_be_stapled
from jsserver.cext.tls import SecurityContext
from jsserver.config import ConfigError
from jsserver.config.options import Options, Tls
from jsserver.config.tls import readable_by_others, security_context
from jsserver.config.websocket import patience_of
from jsserver.text.goformat import SECOND


class Warned(Protocol):
    """A log, or what stands for one."""

    def warn(self, text: str) -> None:
        """A line that warns."""


Staples = dict[bytes, tuple[bytes, int]]
"""OCSP responses in DER, and until when they hold (ns since the epoch), by the SHA-256 of their
certificates."""


class Certified:
    """What connections of a listener are secured by, and when its certificate ends, in RFC 3339."""

    def __init__(self, context: SecurityContext, ends: str) -> None:
        self.context = context
        self.ends = ends


class Secured:
    """What connections of clients are secured by, of those behind WebSocket, and of other servers
    of the cluster (None: nothing), and what certificates are shown with."""

    def __init__(
        self,
        clients: Certified | None,
        websocket: Certified | None,
        routes: Certified | None,
        staples: Staples,
    ) -> None:
        self.clients = clients
        self.websocket = websocket
        self.routes = routes
        self.staples = staples


def secured(options: Options, staples: Staples, log: Warned) -> Secured:
    """ConfigError where the files, or the options, do not go together."""
    own, through = options.tls, options.websocket.tls
    clients = websocket = None
    if own is not None:
        context = _context(options, own, staples, log, optional=options.allow_non_tls)
        clients = Certified(context, certificate_ends(own))
    if through is not None:
        # The handshake always comes first, in the time that requests for WebSocket have.
        patience = patience_of(options.websocket) / SECOND
        first = {"first": True, "fallback": 0, "rate_limit": 0, "timeout": patience}
        tls = Tls(**{**vars(through), **first})
        context = _context(options, tls, staples, log, optional=False)
        websocket = Certified(context, certificate_ends(through))
    return Secured(clients, websocket, _of_routes(options, log), staples)


def _of_routes(options: Options, log: Warned) -> Certified | None:
    tls = options.cluster.tls
    if tls is None:
        return None
    for path in readable_by_others(tls):
        log.warn(f"The private key in {path} can be read by others than its owner")
    return Certified(security_context(tls, optional=False, dials=True), certificate_ends(tls))


def _context(
    options: Options, tls: Tls, staples: Staples, log: Warned, *, optional: bool
) -> SecurityContext:
    if tls.inquires and not tls.verify:
        raise ConfigError(
            "OCSP peer verification for client connections requires TLS verify (mTLS) to be enabled"
        )
    for path in readable_by_others(tls):
        log.warn(f"The private key in {path} can be read by others than its owner")
    if options.ocsp.mode == "never":
        for file, _ in tls.certificates:
            if has_to_be_stapled(file):
                log.warn(f"Certificate at '{file}' has MustStaple but OCSP is disabled")
    context = security_context(tls, optional=optional)
    for digest, (response, until) in staples.items():
        context.staple(digest, response, until)
    return context
