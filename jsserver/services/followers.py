"""The components of a running server that follow a reload, except logins. First every component
checks the new configuration, then every component takes it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from jsserver.access.certificates import read_secured
from jsserver.access.clients import CLOSE_CODES
from jsserver.access.refusal import Refused
from jsserver.cext.engine import ConnNumbers, Item
from jsserver.config import ConfigError
from jsserver.config.member import served_accounts
from jsserver.config.options import GLOBAL_ACCOUNT, Account, Options
from jsserver.process.logs import LogError, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.access.accounts import Accounts
    from jsserver.access.configured import Configured
    from jsserver.access.secured import Secured
    from jsserver.cext.engine import DataPlane
    from jsserver.disk.storage import Storage
    from jsserver.listeners.listeners import Listeners
    from jsserver.process.logs import Logger
    from jsserver.services.certificates import Certificates
    from jsserver.services.delegates import Delegates
    from jsserver.services.inbox import Inbox
    from jsserver.services.jetstream import JetStream
    from jsserver.services.leafs import LeafService
    from jsserver.services.routes import Routes
    from jsserver.services.stapling import Stapled

TOO_MANY = CLOSE_CODES["Maximum Connections Exceeded"]
TOO_MANY_OF_ACCOUNT = CLOSE_CODES["Maximum Account Connections Exceeded"]
TOO_MANY_SUBSCRIPTIONS = CLOSE_CODES["Maximum Subscriptions Exceeded"]
NOT_TRUSTED = CLOSE_CODES["Proxy Not Trusted"]
HANDSHAKE = CLOSE_CODES["TLS Handshake Failure"]

CLIENTS, WEBSOCKET, ROUTES, GATEWAYS = "clients", "websocket", "routes", "gateways"
Pins = dict[str, list[str] | None]
"""Digests of the certificates' keys that are accepted, by kind of connection; None: any."""

TOGETHER = 64
"""Pieces of a configuration, such as accounts, after which the event loop does other work."""


class ReloadError(Exception):
    """The reload failed, and nothing has changed; the text has lines for the log."""


class Parts(NamedTuple):
    """The parts of a running server that a reload reads or changes."""

    options: Options
    """All parts share these options; a reload changes them in place."""
    log: Logger
    plane: DataPlane
    accounts: Accounts
    configured: Configured
    inbox: Inbox
    listeners: Listeners
    certificates: Certificates
    jetstream: JetStream | None
    storage: Storage | None
    delegates: Delegates | None
    routes: Routes | None
    leafs: Callable[[], LeafService | None]
    """The service for leaf nodes and hubs, made when the options first configure any."""
    offer: Callable[[str], None]
    """Offers the server's services to a new account."""
    limit: Callable[[], None]
    """Applies the options' limits to clients."""
    renew: Callable[[Secured | None], None]
    """Applies the options to what clients are told, and to their TLS."""
    write_files: Callable[[Options], None]
    """Writes the files for scripts again, where their paths have changed."""
    watch_system: Callable[[], None]
    """Begins to publish events, once the system account has users."""
    loaded: Callable[[], None]
    """Notes that a new configuration is in force."""


class Component:
    """One reload, for one component of the server. Each step runs for all components before the
    next step begins. Nothing changes for anybody before `take`."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def read(self, old: Options, new: Options) -> None:
        """Prepares what takes long, in the thread that has read the file."""

    async def check(self, new: Options) -> None:
        """Checks `new` and makes what `take` will need; ReloadError: `new` is refused."""

    def drop(self) -> None:
        """Another component has refused: releases what was made."""

    async def prepare(self, new: Options) -> None:
        """No component has refused: does early what nobody notices."""

    def take(self, before: Options) -> None:
        """Takes the new options, which are the server's by now. Does not wait, and cannot fail."""

    async def follow(self) -> None:
        """All components have taken the options: does the slow rest."""


class Output(Component):
    """The log's level, form and target."""

    _sink: Sink | None = None
    """The log's new target; None: it stays."""

    async def check(self, new: Options) -> None:
        log, old = self.parts.log, self.parts.options
        if new.log_file == old.log_file:
            return
        try:
            self._sink = log.open(new.log_file)
        except LogError as error:
            raise ReloadError(str(error).strip()) from None

    def drop(self) -> None:
        if self._sink is not None:
            self._sink.close(0)

    def take(self, before: Options) -> None:
        log, options = self.parts.log, self.parts.options
        log.choose(
            debug=options.debug,
            trace=options.trace,
            timestamps=options.logtime,
            utc=options.logtime_utc,
        )
        if self._sink is not None:
            log.switch(self._sink)


class Proxies(Component):
    """Trusted proxies."""

    def take(self, before: Options) -> None:
        """Closes connections that came through a proxy that is trusted no more."""
        gone = set(before.trusted_proxies) - set(self.parts.options.trusted_proxies)
        for cid, admission in list(self.parts.inbox.admissions.items()):
            if admission.proxy in gone:
                self.parts.plane.close_connection(cid, NOT_TRUSTED, b"Authorization Violation")


class Ceilings(Component):
    """The limits on connections and subscriptions."""

    _limited: dict[str, Account]
    """The accounts with changed limits, by name."""

    def read(self, old: Options, new: Options) -> None:
        limits = {account.name: _limits(account) for account in old.accounts}
        self._limited = {a.name: a for a in new.accounts if limits.get(a.name) != _limits(a)}

    def take(self, before: Options) -> None:
        """Closes clients above lowered limits: the youngest of the server and of each account, and
        those with too many subscriptions."""
        parts, limited = self.parts, self._limited
        options, plane = parts.options, parts.plane
        if not limited and options.max_connections == before.max_connections:
            return
        items = sorted(plane.connections(), key=lambda item: item.cid)
        most = max(options.max_connections, 0)
        for item in items[most:]:
            plane.close_connection(item.cid, TOO_MANY, b"maximum connections exceeded")
        if len(items) > most:
            count = len(items) - most
            parts.log.info(f"Closed {count} connections to fall within max_connections")
        present: Counter[str] = Counter()
        for item in items[:most]:
            admission = parts.inbox.admissions.get(item.cid)
            account_of = limited.get(admission.account) if admission is not None else None
            if account_of is not None:
                present[account_of.name] += 1
                self._prune_one(item, account_of, present[account_of.name])

    def _prune_one(self, item: Item, account: Account, place: int) -> None:
        plane, subscriptions = self.parts.plane, ConnNumbers(*item.numbers).subscriptions
        if 0 <= account.max_connections < place:
            text = b"maximum account active connections exceeded"
            plane.close_connection(item.cid, TOO_MANY_OF_ACCOUNT, text)
        elif 0 <= account.max_subscriptions < subscriptions:
            text = b"maximum subscriptions exceeded"
            plane.close_connection(item.cid, TOO_MANY_SUBSCRIPTIONS, text)


class Securing(Component):
    """TLS of all listeners, and pinned certificates."""

    _secured: Secured | None = None
    _stapled: list[Stapled]
    _pins: Pins

    async def check(self, new: Options) -> None:
        try:
            self._stapled = await self.parts.certificates.learn_staples(new)
            staples = dict(one.staple for one in self._stapled)
            secured = self.parts.listeners.secured
            self._secured = await asyncio.to_thread(secured, new, staples)
        except ConfigError as error:
            raise ReloadError(str(error).strip()) from None

    async def prepare(self, new: Options) -> None:
        await self.parts.certificates.take_peers(new)

    def take(self, before: Options) -> None:
        self._pins = _pins_of(before)
        self.parts.renew(self._secured)
        self.parts.certificates.attend_staples(self._stapled)

    async def follow(self) -> None:
        pins = _pins_of(self.parts.options)
        plane = self.parts.plane
        closed = 0
        for way, items in (
            (CLIENTS, plane.connections),
            (WEBSOCKET, plane.connections),
            (ROUTES, plane.routes),
            (GATEWAYS, plane.gateways),
        ):
            pinned = pins[way]
            if pinned is not None and pinned != self._pins[way]:
                through = way == WEBSOCKET
                found = [i for i in items() if bool(ConnNumbers(*i.numbers).websocket) == through]
                closed += self._cut_unpinned(found, pinned)
        if closed:
            self.parts.log.info(f"Disconnect {closed} clients due to pinned certs reload")


    def _cut_unpinned(self, items: list[Item], pinned: list[str]) -> int:
        """Closes the connections whose certificates are not pinned any more; how many."""
        closed = 0
        for item in items:
            found = read_secured(item.texts[2])
            if found is None:
                continue
            known = found.certificates[:1]
            if not known or known[0].key_digest not in pinned:
                self.parts.plane.close_connection(item.cid, HANDSHAKE)
                closed += 1
        return closed


class Cluster(Component):
    """Routes to the other servers of the cluster."""

    def take(self, before: Options) -> None:
        if self.parts.routes is not None and before.cluster != self.parts.options.cluster:
            self.parts.routes.follow(before.cluster)


class Leafnodes(Component):
    """Leaf nodes and hubs."""

    async def prepare(self, new: Options) -> None:
        """Fetches the accounts of operator mode that hubs are connected to."""
        delegates = self.parts.delegates
        tenants = delegates.tenants if delegates is not None else None
        if tenants is None:
            return
        for name in {remote.account for remote in new.leafnodes.remotes}:
            try:
                await tenants.ensure(name)
            except Refused as error:
                self.parts.log.warn(f"Account {name} of a leafnode remote is not there: {error}")

    def take(self, before: Options) -> None:
        if before.leafnodes != self.parts.options.leafnodes:
            leafs = self.parts.leafs()
            if leafs is not None:
                leafs.follow_block()


class RunFiles(Component):
    """The files that the server writes for scripts."""

    def take(self, before: Options) -> None:
        self.parts.write_files(before)


class SystemEvents(Component):
    """Events of the system account."""

    def take(self, before: Options) -> None:
        self.parts.watch_system()


class Tokens(Component):
    """Accounts of operator mode."""

    async def follow(self) -> None:
        if self.parts.delegates is not None:
            await self.parts.delegates.reload()


class Streams(Component):
    """JetStream, and the accounts that have it."""

    async def check(self, new: Options) -> None:
        storage, jetstream = self.parts.storage, self.parts.jetstream
        if storage is None or jetstream is None:
            return
        accounts, own = served_accounts(new), new.jetstream
        if new.system in accounts:
            raise ReloadError("Not allowed to enable JetStream on the system account")
        lacks = storage.lacks(
            accounts.values(),
            max(own.max_memory, jetstream.max_memory),
            max(own.max_store, jetstream.max_store),
        )
        if lacks:
            raise ReloadError(f"Error enabling jetstream on configured accounts: {lacks}")

    def take(self, before: Options) -> None:
        storage, jetstream, own = (
            self.parts.storage,
            self.parts.jetstream,
            self.parts.options.jetstream,
        )
        if jetstream is not None and storage is not None:
            maxima = max(own.max_memory, storage.max_memory), max(own.max_store, storage.max_store)
            storage.limit(*maxima)
            jetstream.limit(*maxima)

    async def follow(self) -> None:
        options = self.parts.options
        if self.parts.jetstream is not None and not options.operators.enabled:
            await self.parts.jetstream.follow(served_accounts(options))


class ConfiguredAccounts(Component):
    """The accounts of the configuration; in operator mode tokens define the accounts."""

    async def prepare(self, new: Options) -> None:
        """Opens the new accounts, while they have no users."""
        parts = self.parts
        if new.operators.enabled:
            return
        opened = [account.name for account in new.accounts if account.name not in parts.accounts]
        for number, name in enumerate(opened):
            parts.accounts.open(name)
            parts.offer(name)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)

    async def follow(self) -> None:
        parts, options = self.parts, self.parts.options
        if options.operators.enabled:
            return
        configured = account_names(options)
        gone = [name for name in parts.accounts if name not in configured]
        for number, name in enumerate(gone):
            parts.configured.close(name)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)


def account_names(options: Options) -> set[str]:
    """The names of all accounts in a configuration."""
    return {GLOBAL_ACCOUNT, options.system, *(account.name for account in options.accounts)}


def _limits(account: Account) -> tuple[int, int]:
    return account.max_connections, account.max_subscriptions


def _pins_of(options: Options) -> Pins:
    """The pinned certificates, by kind of connection."""
    blocks = {
        CLIENTS: options.tls,
        WEBSOCKET: options.websocket.tls,
        ROUTES: options.cluster.tls,
        GATEWAYS: options.gateway.tls,
    }
    return {way: block.pinned_certs if block is not None else None for way, block in blocks.items()}
