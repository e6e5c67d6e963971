"""The accounts of a configuration as they run: opened at the start, changed by reloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jsserver import TYPE_CHECKING
from jsserver.access.accounts import Accounts
from jsserver.cext.engine import MappingTable
from jsserver.config.block import Block, each
from jsserver.config.options import GLOBAL_ACCOUNT, Mapping, Options

if TYPE_CHECKING:
    from jsserver.access.links import Links, Wanted
    from jsserver.config.links import ServiceRoute, Sharing, StreamRoute

UNLIMITED = -1, -1, -1
"""What clients of a new account are held to: connections, subscriptions, bytes of a message."""


class Coming(Block):
    """What accounts share (None: nothing), what they import, ready to be compared, what they map,
    the tables of those where that changes, and the limits of those where these change."""

    sharing: Sharing | None = None
    imports: Wanted = each(dict)
    mapped: dict[str, Sequence[Mapping]] = each(dict)
    tables: dict[str, MappingTable] = each(dict)
    limits: dict[str, tuple[int, int, int]] = each(dict)


class Configured:
    """What accounts may and share, put into the data plane; their JetStream is not its matter."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._links: Links | None = None
        self.sharing: Sharing | None = None
        """What accounts share; None: nothing."""
        self._mapped: dict[str, Sequence[Mapping]] = {}
        self._limits: dict[str, tuple[int, int, int]] = {}

    def coming(self, options: Options) -> Coming:
        """What follow() needs for these options. From any thread, as it takes long where there is
        much, while nothing follows."""
        found = _shared_by(options)
        for name, mappings in _mappings_of(options):
            if mappings:
                found.mapped[name] = mappings
            if mappings != self._mapped.get(name, []):
                found.tables[name] = _table(mappings)
        for account in options.accounts:
            limits = account.max_connections, account.max_subscriptions, account.max_payload
            if limits != self._limits.get(account.name, UNLIMITED):
                found.limits[account.name] = limits
        return found

    def narrow(self, coming: Coming) -> None:
        """No account imports any more what it does not import by this."""
        if self._links is not None:
            self._links.narrow(coming.imports)

    def follow(self, options: Options, coming: Coming) -> list[object]:
        """The accounts are from now on as these options have them, and share this. Those that are
        in them no more are open still. Returns what is left over, which takes long to let go."""
        self._accounts.open(GLOBAL_ACCOUNT)
        for account in options.accounts:
            self._accounts.open(account.name)
            self._accounts.limit_leafs(account.name, account.max_leafnodes)
        for name, limits in coming.limits.items():
            self._accounts.limit_clients(name, *limits)
            self._limits[name] = limits
        left: list[object] = [
            self._accounts[name].map_subjects(table) for name, table in coming.tables.items()
        ]
        left.append(self._mapped)
        self._mapped = coming.mapped
        if options.system:
            self._accounts.open(options.system)
        left.append(self.sharing)
        self.sharing = coming.sharing
        if coming.imports and self._links is None:
            from jsserver.access.links import Links  # a server without them starts without it

            self._links = Links(self._accounts)
        if self._links is not None:
            self._links.follow(coming.imports)
        return left

    def mapped(self, name: str) -> list[str]:
        """The subjects that an account maps."""
        return [mapping.source for mapping in self._mapped.get(name, ())]

    def close(self, name: str) -> None:
        """Ends an account, whose streams were closed before."""
        self._limits.pop(name, None)
        self._accounts.close(name)


def _mappings_of(options: Options) -> Iterator[tuple[str, Sequence[Mapping]]]:
    yield GLOBAL_ACCOUNT, options.mappings
    for account in options.accounts:
        yield account.name, account.mappings


def _table(mappings: Sequence[Mapping]) -> MappingTable:
    from jsserver.config.mappings import weighed  # a server without them starts without it

    return MappingTable([(m.source.encode(), weighed(m)) for m in mappings])


def _shared_by(options: Options) -> Coming:
    linked = options.cluster.port or options.gateway.port
    alone = not linked or not options.system
    elsewhere = {} if alone else options.jetstream_accounts  # whose JetStream is on other servers
    shares = any(account.imports or account.exports for account in options.accounts)
    if not shares and not elsewhere:
        return Coming()
    from jsserver.access.links import keyed  # a server without it starts without it
    from jsserver.config.links import api_elsewhere, share

    coming = Coming()
    routes: dict[str, list[ServiceRoute | StreamRoute]] = {}
    if shares:
        coming.sharing, _ = share(options.accounts)
        for account in options.accounts:
            if account.imports:
                routes[account.name] = coming.sharing.routes(account.name)
    for name in elsewhere:
        routes.setdefault(name, []).append(api_elsewhere(options.system))
    coming.imports = {name: keyed(found) for name, found in routes.items()}
    return coming
