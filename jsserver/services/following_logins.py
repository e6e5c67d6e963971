"""Users, permissions, and what accounts share, follow a reload.

All of it changes in one turn of the event loop, so that nobody is admitted in between, and in this
order: new logins use the new configuration; shares that are gone end; connections that may not stay
are closed, and the others get their new permissions; only then new shares begin. So no message
takes a way that neither the old nor the new configuration allows. A connection whose password has
to be hashed first, which is slow, stays as it was until then, and delays no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from functools import partial

from jsserver.access.auth import Authenticator
from jsserver.access.clients import Connect, decode_connect
from jsserver.access.configured import Coming
from jsserver.access.staying import MOVED, Present, Slow, Staying, Stays
from jsserver.access.websocket import CLIENT_OVER_WEBSOCKET
from jsserver.cext.engine import ConnNumbers
from jsserver.config.options import Options

from .followers import TOGETHER, Component, account_names

Pending = dict[int, tuple[Staying, Slow]]
"""Connections that wait for a password's hash, by connection id."""


class Logins(Component):
    """Logins and permissions."""

    _authenticator: Authenticator
    _websocket: Authenticator | None = None
    _accounts: Coming | None
    _stayings: dict[bool, Staying]
    """By whether a connection uses WebSocket."""
    _pending: Pending
    _left: list[object]
    """The pieces of the old configuration, to be freed."""

    def read(self, old: Options, new: Options) -> None:
        if self.parts.inbox.websockets is not None:
            self._websocket = Authenticator(new.through_websocket, CLIENT_OVER_WEBSOCKET)
        self._authenticator = Authenticator(new)
        self._accounts = self.parts.configured.coming(new)

    async def prepare(self, new: Options) -> None:
        inbox = self.parts.inbox
        self._left = await asyncio.to_thread(_left_of, self.parts.options)
        names = account_names(new)
        self._stayings = {False: Staying(inbox.authenticator, self._authenticator, names)}
        if inbox.websockets is not None and self._websocket is not None:
            before = inbox.websockets.authenticator
            self._stayings[True] = Staying(before, self._websocket, names)

    def take(self, before: Options) -> None:
        parts, inbox, options = self.parts, self.parts.inbox, self.parts.options
        self._pending = {}
        coming, self._accounts = self._accounts, None
        if options.asks_everybody:
            parts.limit()  # from here on every new connection has to log in
        if options.operators.enabled or coming is None:
            self._follow_leafs(options)
            return
        inbox.authenticator = self._authenticator
        if inbox.websockets is not None and self._websocket is not None:
            inbox.websockets.take(options.websocket, self._websocket)
        parts.configured.narrow(coming)
        self._pending = self._judge()
        self._left += parts.configured.follow(options, coming)
        self._follow_leafs(options)

    def _follow_leafs(self, options: Options) -> None:
        """Takes new logins for leaf nodes."""
        if self.parts.inbox.leafs is not None:
            self.parts.inbox.leafs.follow(options)

    async def follow(self) -> None:
        while self._pending:
            await self._compute(self._pending)
            self._pending = self._judge(self._pending)
        await asyncio.to_thread(_let_go, self._left)

    def _present(self) -> Iterator[tuple[int, Staying, Present]]:
        """The open connections that the reload may concern."""
        inbox, accounts, stayings = self.parts.inbox, self.parts.accounts, self._stayings
        if not any(staying.matters for staying in stayings.values()):
            return
        for item in self.parts.plane.connections():
            cid, numbers = item.cid, ConnNumbers(*item.numbers)
            admission = inbox.admissions.get(cid)
            staying = stayings[bool(numbers.websocket)]
            if admission is None and staying.before.required:
                continue  # not admitted yet
            if admission is not None and staying.unchanged(admission):
                continue
            _, raw, secured = item.texts
            options = decode_connect(raw) if raw else Connect()
            if inbox.websockets is not None and cid in inbox.websockets:
                inbox.websockets.complete(cid, options)
            account = accounts.name_of(numbers.account)
            yield cid, staying, Present(options, admission, account, secured)

    async def _compute(self, pending: Pending) -> None:
        """Hashes the passwords of pending connections."""
        works = [partial(staying.compute, slow) for staying, slow in set(pending.values())]
        await asyncio.gather(*map(self.parts.inbox.compute, works))

    def _judge(self, among: Container[int] | None = None) -> Pending:
        """Closes connections that may not stay, and changes the permissions of the others. `among`:
        only these connections. Returns connections that wait for a password's hash; they keep their
        permissions until then."""
        plane, admissions = self.parts.plane, self.parts.inbox.admissions
        gone = 0
        pending: Pending = {}
        for cid, staying, present in self._present():
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
            self.parts.log.info(f"Disconnect {gone} clients that are not authorized any more")
        return pending


def _left_of(options: Options) -> list[object]:
    """The pieces of a configuration to be freed. In a thread, because there may be many."""
    return [*_pieces(options), options.mappings, options.users]


def _pieces(options: Options) -> Iterator[object]:
    """The pieces that a configuration may have many of."""
    yield from options.users
    yield from options.mappings
    for account in options.accounts:
        yield account
        yield from account.mappings
        yield from account.imports
        yield from account.exports


def _let_go(left: list[object]) -> None:
    """Frees pieces a few at a time: other threads get Python's lock in between."""
    while left:  # from the end: the containers of the other pieces come last in the list
        del left[-TOGETHER:]
