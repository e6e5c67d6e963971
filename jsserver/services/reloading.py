"""Has a running server follow its configuration file: all of what has changed, or nothing.

A reload reads the file, tells what differs, checks everything that could fail, and only then
changes anything. What concerns logins, users, permissions and what accounts share then changes in
one turn of the event loop, so that nobody is let in meanwhile, and in this order: new logins are
those of the new configuration; what accounts shared and do not share any more ends; who may not
stay is cut, and who stays may what is allowed now; only then comes what is shared anew. So no
message goes where neither of both configurations would let it go. Whose password has to be compared
with a hash first, which takes long, waits for that as it was: nobody else's end waits for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jsserver.access.auth import Authenticator
from jsserver.access.certificates import read_secured
from jsserver.access.clients import CLOSE_CODES, Connect, decode_connect
from jsserver.access.configured import Coming
from jsserver.access.staying import MOVED, Present, Slow, Staying, Stays
from jsserver.access.websocket import CLIENT_OVER_WEBSOCKET
from jsserver.cext.engine import ConnNumbers, Item
from jsserver.config import ConfigError
from jsserver.config.load import load
from jsserver.config.naming import unchangeable
from jsserver.config.options import GLOBAL_ACCOUNT, Account, Options
from jsserver.config.reload import difference, take
from jsserver.process import garbage
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
    from jsserver.services.stapling import Stapled

TOO_MANY = CLOSE_CODES["Maximum Connections Exceeded"]
TOO_MANY_OF_ACCOUNT = CLOSE_CODES["Maximum Account Connections Exceeded"]
TOO_MANY_SUBSCRIPTIONS = CLOSE_CODES["Maximum Subscriptions Exceeded"]
NOT_TRUSTED = CLOSE_CODES["Proxy Not Trusted"]
HANDSHAKE = CLOSE_CODES["TLS Handshake Failure"]


TOGETHER = 64
"""Accounts, or other pieces of a configuration, between which others have their turn."""

Pending = dict[int, tuple[Staying, Slow]]
"""What has to be computed before it is known what becomes of some connections, by their ids."""


class ReloadError(Exception):
    """Why nothing has changed, in lines for the log."""


class Parts(NamedTuple):
    """The parts of a running server that a reload looks at or changes."""

    options: Options
    """Changed in place: all parts have these."""
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
    offer: Callable[[str], None]
    """Offers the server's services to a new account."""
    limit: Callable[[], None]
    """Holds clients to what the options say."""
    renew: Callable[[Secured | None], None]
    """Has clients told, held and secured as the options say."""
    write_files: Callable[[Options], None]
    """Writes the files for scripts that stood elsewhere by the options before."""
    watch_system: Callable[[], None]
    """Tells the system account of events, if it has users now."""
    loaded: Callable[[], None]
    """Notes that there is another configuration."""


class _Next(NamedTuple):
    """A configuration that was checked, and what was made of it in advance."""

    options: Options
    told: list[str]
    secured: Secured | None
    stapled: list[Stapled]
    sink: Sink | None
    """Where the log goes, if that is elsewhere."""
    logins: Authenticator
    websocket_logins: Authenticator | None
    accounts: Coming
    limited: dict[str, Account]
    """The accounts that have other limits, by name."""


class _Read(NamedTuple):
    """What a file says now, and what was made of it beside the event loop; nothing where options
    are refused."""

    options: Options
    notes: list[str]
    refused: list[str]
    told: list[str]
    logins: Authenticator | None = None
    websocket_logins: Authenticator | None = None
    accounts: Coming | None = None
    limited: dict[str, Account] | None = None


class Reloading:
    """The way of one server from one configuration to another."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> None:
        """The server is as its file says; ReloadError, and nothing has changed."""
        parts, options = self._parts, self._parts.options
        coming = await self._checked()
        pins_before = _pins(options)
        await parts.certificates.take_peers(coming.options)
        left = await self._change(coming)
        del coming
        await asyncio.to_thread(_let_go, left)
        await self._follow()
        pins = _pins(options)
        changed = {way: pins[way] if pins[way] != pins_before[way] else None for way in pins}
        if any(changed.values()):
            self._cut_unpinned(changed)
        parts.loaded()
        parts.log.info(f"Reloaded server configuration ({options.config_digest})")

    async def _change(self, coming: _Next) -> list[object]:
        """Logins, users and accounts are as the file says. Returns what the configuration before
        consisted of."""
        parts, options = self._parts, self._parts.options
        left = await asyncio.to_thread(_left_of, options)
        stayings = self._stayings(coming)
        if not options.operators.enabled:
            await self._open_accounts(coming.options)
        await asyncio.sleep(0)
        pending = self._switch(coming, stayings, left)
        parts.certificates.attend_staples(coming.stapled)
        while pending:
            await self._compute(pending)
            pending = self._judge(stayings, pending)
        return left

    async def _open_accounts(self, coming: Options) -> None:
        """Opens those that are new, in which nobody is yet."""
        parts = self._parts
        new = [account.name for account in coming.accounts if account.name not in parts.accounts]
        for number, name in enumerate(new):
            parts.accounts.open(name)
            parts.offer(name)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)

    # ---- before anything changes

    async def _checked(self) -> _Next:
        """What the file says now, which can be had; ReloadError."""
        parts, old = self._parts, self._parts.options
        if not old.config_file:
            raise ReloadError("can only reload config when a file is provided using -c or --config")
        jetstream = parts.jetstream
        has = (jetstream.max_memory, jetstream.max_store) if jetstream else (0, 0)
        try:
            read = await asyncio.to_thread(self._read, has)
        except ConfigError as error:
            raise ReloadError(str(error).strip()) from None
        new = read.options
        if read.logins is None or read.accounts is None or read.limited is None:
            raise ReloadError("\n".join(read.refused))
        self._check_jetstream(new)
        try:
            stapled = await parts.certificates.learn_staples(new)
            staples = dict(one.staple for one in stapled)
            secured = await asyncio.to_thread(parts.listeners.secured, new, staples)
            sink = parts.log.open(new.log_file) if new.log_file != old.log_file else None
        except (ConfigError, LogError) as error:
            raise ReloadError(str(error).strip()) from None
        for line in read.notes:
            parts.log.warn(line)
        return _Next(
            options=new,
            told=read.told,
            secured=secured,
            stapled=stapled,
            sink=sink,
            logins=read.logins,
            websocket_logins=read.websocket_logins,
            accounts=read.accounts,
            limited=read.limited,
        )

    def _read(self, has: tuple[int, int]) -> _Read:
        """In a thread, as it takes long where there are many users; ConfigError. `has`: bytes of
        memory and of store that JetStream has now."""
        parts, old = self._parts, self._parts.options
        with garbage.paused(stays=True):
            loaded = load(old.config_file, old.flags)
            new, notes = loaded.options, [*loaded.warnings, *loaded.without_effect]
            differs = difference(old, new, memory=has[0], store=has[1])
            if differs.refused:
                found = unchangeable(differs.refused, old.config_file, old, new)
                lines = [f"config reload not supported for {option}" for option in found]
                return _Read(new, notes, lines, [])
            through = None
            if parts.inbox.websockets is not None:
                through = Authenticator(new.through_websocket, CLIENT_OVER_WEBSOCKET)
            logins, accounts = Authenticator(new), parts.configured.coming(new)
            limited = _limited(old, new)
            return _Read(new, notes, [], differs.told, logins, through, accounts, limited)

    def _check_jetstream(self, new: Options) -> None:
        storage, jetstream = self._parts.storage, self._parts.jetstream
        if storage is None or jetstream is None:
            return
        accounts = new.jetstream_accounts
        if new.system in accounts:
            raise ReloadError("Not allowed to enable JetStream on the system account")
        own = new.jetstream
        lacks = storage.lacks(
            accounts.values(),
            max(own.max_memory, jetstream.max_memory),
            max(own.max_store, jetstream.max_store),
        )
        if lacks:
            raise ReloadError(f"Error enabling jetstream on configured accounts: {lacks}")

    # ---- who stays

    def _stayings(self, coming: _Next) -> dict[bool, Staying]:
        """By whether a connection comes through WebSocket."""
        inbox, options = self._parts.inbox, coming.options
        accounts = _accounts(options)
        found = {False: Staying(inbox.authenticator, coming.logins, accounts)}
        if inbox.websockets is not None and coming.websocket_logins is not None:
            before, now = inbox.websockets.authenticator, coming.websocket_logins
            found[True] = Staying(before, now, accounts)
        return found

    def _present(self, stayings: dict[bool, Staying]) -> Iterator[tuple[int, Staying, Present]]:
        """The connections that are in, and for which something changes, perhaps."""
        inbox, accounts = self._parts.inbox, self._parts.accounts
        if not any(staying.matters for staying in stayings.values()):
            return
        for item in self._parts.plane.connections():
            cid, numbers = item.cid, ConnNumbers(*item.numbers)
            admission = inbox.admissions.get(cid)
            staying = stayings[bool(numbers.websocket)]
            if admission is None and staying.before.required:
                continue  # it is not in yet
            if admission is not None and staying.unchanged(admission):
                continue
            _, raw, secured = item.texts
            options = decode_connect(raw) if raw else Connect()
            if inbox.websockets is not None and cid in inbox.websockets:
                inbox.websockets.complete(cid, options)
            account = accounts.name_of(numbers.account)
            yield cid, staying, Present(options, admission, account, secured)

    async def _compute(self, pending: Pending) -> None:
        """Compares passwords with hashes that are stored since the switch."""
        works = [partial(staying.compute, slow) for staying, slow in set(pending.values())]
        await asyncio.gather(*map(self._parts.inbox.compute, works))

    def _judge(self, stayings: dict[bool, Staying], among: Container[int] | None = None) -> Pending:
        """Cuts who may not stay, and lets the others do what is allowed now. `among`: looks at
        these connections alone. What has to be computed first, by connection: until then it may
        do what it could."""
        plane, admissions = self._parts.plane, self._parts.inbox.admissions
        gone = 0
        pending: Pending = {}
        for cid, staying, present in self._present(stayings):
            if among is not None and cid not in among:
                continue
            verdict = staying.judge(present)
            if isinstance(verdict, Slow):
                pending[cid] = (staying, verdict)
                continue
            if isinstance(verdict, Stays):
                had, has = present.admission, verdict.admission
                if (had and had.rules) != (has and has.rules):
                    plane.restrict(cid, has and has.permissions)
                if has is None:
                    admissions.pop(cid, None)
                else:
                    admissions[cid] = has
                continue
            gone += 1
            if verdict == MOVED:
                plane.close_connection(cid, MOVED)
            else:
                plane.close_connection(cid, verdict, b"Authorization Violation")
        if gone:
            self._parts.log.info(f"Disconnect {gone} clients that are not authorized any more")
        return pending

    def _prune(self, before: Options, limited: dict[str, Account]) -> None:
        """Cuts whoever is too many where there may be less than before: the youngest of the server,
        and of each account, and who has more subscriptions than there may be."""
        parts = self._parts
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
        plane, subscriptions = self._parts.plane, ConnNumbers(*item.numbers).subscriptions
        if 0 <= account.max_connections < place:
            text = b"maximum account active connections exceeded"
            plane.close_connection(item.cid, TOO_MANY_OF_ACCOUNT, text)
        elif 0 <= account.max_subscriptions < subscriptions:
            text = b"maximum subscriptions exceeded"
            plane.close_connection(item.cid, TOO_MANY_SUBSCRIPTIONS, text)

    def _cut_proxied(self, gone: set[str]) -> None:
        """Cuts who came by a proxy that is trusted no more."""
        for cid, admission in list(self._parts.inbox.admissions.items()):
            if admission.proxy in gone:
                self._parts.plane.close_connection(cid, NOT_TRUSTED, b"Authorization Violation")

    def _cut_unpinned(self, pins: dict[bool, list[str] | None]) -> None:
        """Cuts whose certificates are no longer those that may come; None: any may."""
        closed = 0
        for item in self._parts.plane.connections():
            pinned = pins[bool(ConnNumbers(*item.numbers).websocket)]
            found = read_secured(item.texts[2])
            if pinned is None or found is None:
                continue
            known = found.certificates[:1]
            if not known or known[0].key_digest not in pinned:
                self._parts.plane.close_connection(item.cid, HANDSHAKE)
                closed += 1
        if closed:
            self._parts.log.info(f"Disconnect {closed} clients due to pinned certs reload")

    # ---- the change

    def _switch(self, coming: _Next, stayings: dict[bool, Staying], left: list[object]) -> Pending:
        """Clients, users and accounts are held to what the file says. Nothing here waits: whose
        password has to be compared with a hash is returned, by connection. `left` gets what is
        left over."""
        pending: Pending = {}
        parts, options = self._parts, self._parts.options
        before = Options(**vars(options))
        for line in coming.told:
            parts.log.info(line)
        take(options, coming.options)
        self._choose_log(coming.sink)
        if options.asks_everybody:
            parts.limit()  # from here on nobody is let in without being asked
        if not options.operators.enabled:
            pending = self._change_users(coming, stayings, left)
        self._cut_proxied(set(before.trusted_proxies) - set(options.trusted_proxies))
        self._prune(before, coming.limited)
        parts.renew(coming.secured)
        parts.write_files(before)
        parts.watch_system()
        return pending

    def _choose_log(self, sink: Sink | None) -> None:
        log, options = self._parts.log, self._parts.options
        log.choose(
            debug=options.debug,
            trace=options.trace,
            timestamps=options.logtime,
            utc=options.logtime_utc,
        )
        if sink is not None:
            log.switch(sink)

    def _change_users(
        self, coming: _Next, stayings: dict[bool, Staying], left: list[object]
    ) -> Pending:
        parts, inbox, options = self._parts, self._parts.inbox, self._parts.options
        inbox.authenticator = coming.logins
        if inbox.websockets is not None and coming.websocket_logins is not None:
            inbox.websockets.take(options.websocket, coming.websocket_logins)
        parts.configured.narrow(coming.accounts)
        pending = self._judge(stayings)
        left += parts.configured.follow(options, coming.accounts)
        return pending

    async def _follow(self) -> None:
        """What takes its time: streams, and accounts of operator mode."""
        parts, options = self._parts, self._parts.options
        jetstream, storage = parts.jetstream, parts.storage
        if jetstream is not None and storage is not None:
            own = options.jetstream
            maxima = max(own.max_memory, storage.max_memory), max(own.max_store, storage.max_store)
            storage.limit(*maxima)
            jetstream.limit(*maxima)
        if parts.delegates is not None:
            await parts.delegates.reload()
        if options.operators.enabled:
            return
        if jetstream is not None:
            await jetstream.follow(options.jetstream_accounts)
        configured = _accounts(options)
        gone = [name for name in parts.accounts if name not in configured]
        for number, name in enumerate(gone):
            parts.configured.close(name)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)


def _left_of(options: Options) -> list[object]:
    """What a configuration leaves behind. In a thread, as it takes long where there is much."""
    return [*_pieces(options), options.mappings, options.users]


def _pieces(options: Options) -> Iterator[object]:
    """What a configuration has many of."""
    yield from options.users
    yield from options.mappings
    for account in options.accounts:
        yield account
        yield from account.mappings
        yield from account.imports
        yield from account.exports


def _let_go(left: list[object]) -> None:
    """Frees what nothing else holds, a few at a time: others have Python's lock in between."""
    while left:  # from the end, where what holds the others is
        del left[-TOGETHER:]


def _accounts(options: Options) -> set[str]:
    return {GLOBAL_ACCOUNT, options.system, *(account.name for account in options.accounts)}


def _limited(before: Options, now: Options) -> dict[str, Account]:
    """The accounts of `now` that have other limits than before, by name."""
    limits = {account.name: _limits(account) for account in before.accounts}
    return {a.name: a for a in now.accounts if limits.get(a.name) != _limits(a)}


def _limits(account: Account) -> tuple[int, int]:
    return account.max_connections, account.max_subscriptions


def _pins(options: Options) -> dict[bool, list[str] | None]:
    """The certificates that may come, by whether it is through WebSocket."""
    blocks = {False: options.tls, True: options.websocket.tls}
    return {way: block.pinned_certs if block is not None else None for way, block in blocks.items()}
