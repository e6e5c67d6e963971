"""What clients' connections are secured by, made of the options and the files as they are now."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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
    """What connections of clients are secured by, of those behind WebSocket (None: nothing), and
    those to other servers, and what certificates are shown with."""

    def __init__(
        self,
        clients: Certified | None,
        websocket: Certified | None,
        links: Links,
        staples: Staples,
    ) -> None:
        self.clients = clients
        self.websocket = websocket
        self.links = links
        self.staples = staples


class Links(NamedTuple):
    """What connections to other servers are secured by, that come (None: nothing): routes, leaf
    nodes, gateways. `hubs`: those that this server makes, by the labels of remotes; `clusters`: by
    the clusters' names, where that is not as with `gateways`."""

    routes: Certified | None
    leafs: Certified | None
    gateways: Certified | None
    hubs: dict[str, SecurityContext]
    clusters: dict[str, SecurityContext]


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
    return Secured(clients, websocket, _of_links(options, log), staples)


def _of_links(options: Options, log: Warned) -> Links:
    leafs, gateway = options.leafnodes, options.gateway
    pins = None if leafs.tls is None else leafs.tls.pinned_certs
    hubs = {}
    for remote in leafs.remotes:
        tls = Tls(**{**vars(remote.tls or Tls()), "pinned_certs": pins})
        if remote.tls is not None or pins is not None:
            hubs[remote.label] = _of_link(tls, log).context
    clusters = {
        remote.name: _of_link(remote.tls, log).context
        for remote in gateway.gateways
        if remote.tls is not None
    }
    accepted = (options.cluster.tls, leafs.tls, gateway.tls)
    routes, of_leafs, gateways = (None if tls is None else _of_link(tls, log) for tls in accepted)
    return Links(routes, of_leafs, gateways, hubs, clusters)


def _of_link(tls: Tls, log: Warned) -> Certified:
    for path in readable_by_others(tls):
        log.warn(f"The private key in {path} can be read by others than its owner")
    ends = certificate_ends(tls) if tls.certificates else ""
    return Certified(security_context(tls, optional=False, dials=True), ends)


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
