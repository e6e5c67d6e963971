"""Operator mode of a server: makes, starts and ends the parts that its configuration asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from jsserver.access.accounts import Accounts
from jsserver.access.operator import OperatorMode, Tenant
from jsserver.access.proxies import Proxies
from jsserver.access.refusal import Refused
from jsserver.access.resolvers import (
    FETCH_SECONDS,
    Directory,
    MemoryResolver,
    NotFound,
    NotStored,
    Resolver,
    UrlResolver,
    preload,
)
from jsserver.cext.engine import DataPlane, Item
from jsserver.config.links import api_elsewhere
from jsserver.config.options import Options
from jsserver.jwt.claims import NO_LIMIT, Account, AccountBody, AccountLimits
from jsserver.process.logs import Logger
from jsserver.services.callouts import Callouts, TenantCallouts
from jsserver.services.claims import LOOKUP, ClaimRequests
from jsserver.services.door import Door
from jsserver.services.inbox import Inbox
from jsserver.services.logins import Logins
from jsserver.services.replies import Replies
from jsserver.services.tenants import Tenants
from jsserver.text.goformat import SECOND

if TYPE_CHECKING:
    from jsserver.services.answers import ServerInfo
    from jsserver.services.jetstream import JetStream
    from jsserver.services.packs import Packs

AGAIN_SECONDS = 1.0
"""Seconds between attempts to fetch the system account, if it was not found at the start."""


class Operated:
    """The parts of operator mode; hands each request to the part in charge."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        accounts: Accounts,
        inbox: Inbox,
        log: Logger,
        *,
        jetstream: JetStream | None,
        serve: Callable[[str], None],
        info: Callable[[], ServerInfo],
        door: Door,
        replies: Replies,
        callouts: Callouts,
    ) -> None:
        self._options = options
        self._plane = plane
        self._accounts = accounts
        self._log = log
        self._info = info
        self._system = options.system
        proxies = Proxies(options.trusted_proxies)
        self.mode = OperatorMode(options.operators, self._system, proxies)
        self._directory: Directory | None = None
        self._replies = replies
        self._claims: ClaimRequests | None = None
        self._packs: Packs | None = None
        self._again: asyncio.Task[None] | None = None
        self._resolver = self._open_resolver()
        self.tenants = Tenants(
            self.mode,
            self._resolver,
            plane,
            accounts,
            inbox.admissions,
            door,
            log,
            jetstream=jetstream,
            serve=serve,
            elsewhere=None if self._directory is None else self._look_elsewhere,
            api=api_elsewhere(self._system) if self._is_linked and self._system else None,
        )
        delegating = TenantCallouts(callouts, self.tenants)
        self._logins = Logins(self.mode, self.tenants, delegating, plane, door, log)
        inbox.on_connect = self._logins.ask

    def _open_resolver(self) -> Resolver:
        operators = self._options.operators
        wanted = operators.resolver
        if wanted is None or wanted.kind == "memory":
            return MemoryResolver(operators.preload)
        if wanted.kind == "url":
            return UrlResolver(wanted.url, operators.resolver_tls)
        if self._directory is None:
            self._directory = Directory(
                wanted.directory,
                cache=wanted.kind == "cache",
                limit=wanted.limit,
                ttl=wanted.ttl / SECOND,
                hard=wanted.hard_delete,
            )
        return self._directory

    @property
    def _is_linked(self) -> bool:
        """Whether a cluster or gateways bring other servers of the system account."""
        return bool(self._options.cluster.port or self._options.gateway.port)

    # ---- start and end

    async def start(self, with_streams: Iterable[str]) -> None:
        """Fetches the accounts that the server needs: the system account, and those with streams.
        ValueError: the server cannot run with these."""
        operators, directory = self._options.operators, self._directory
        self.tenants.warn_of(operators.preload)
        loop = asyncio.get_running_loop()
        if isinstance(self._resolver, UrlResolver):
            try:
                await loop.run_in_executor(None, self._resolver.fetch, "")
            except NotFound as error:
                raise ValueError(str(error)) from None
        if directory is not None:
            try:
                await loop.run_in_executor(None, preload, directory, operators.preload)
            except NotStored as error:
                raise ValueError(f"a preloaded account cannot be kept: {error}") from None
            kind = "some" if self._is_cache else "all"
            self._log.info(f"Managing {kind} jwt in exclusive directory {directory.path}")
        await self._start_system()
        for name in with_streams:
            try:
                await self.tenants.ensure(name)
            except Refused as error:
                self._log.warn(f"Streams of account {name} are not served: {error}")

    @property
    def _is_cache(self) -> bool:
        wanted = self._options.operators.resolver
        return wanted is not None and wanted.kind == "cache"

    async def _start_system(self) -> None:
        if not self._system:
            return
        if self._options.system_account:
            try:
                await self.tenants.ensure(self._system)
            except Refused as error:
                if isinstance(self._resolver, MemoryResolver):
                    raise ValueError(f"error resolving system account: {error}") from None
                await self._bootstrap()
        wanted = self._options.operators.resolver
        self._claims = ClaimRequests(
            self.mode,
            self.tenants,
            self._accounts,
            self._system,
            self._directory,
            self._log,
            cache=self._is_cache,
            deletes=wanted is not None and wanted.allow_delete,
            info=self._info,
        )
        if self._directory is not None and self._is_linked and not self._is_cache:
            # Imported late: a server without other servers never loads it.
            from jsserver.services.packs import Packs

            period = 0.0 if wanted is None else wanted.interval / SECOND
            self._packs = Packs(
                self._accounts, self._system, self._directory, period, self._claims.merge
            )

    async def _bootstrap(self) -> None:
        """Signs the system account's users with its own key until its token is there, so that
        somebody can bring the token."""
        limits = AccountLimits(
            subs=NO_LIMIT, payload=NO_LIMIT, conn=NO_LIMIT, leaf=NO_LIMIT, data=NO_LIMIT
        )
        claims = Account(sub=self._system, nats=AccountBody(limits=limits))
        await self.tenants.apply(Tenant(claims, "", strict=False))
        self._log.info("Using bootstrapping system account")
        if self._directory is None:
            self._again = asyncio.create_task(self._fetch_system())

    async def _fetch_system(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            try:
                token = await loop.run_in_executor(None, self._resolver.fetch, self._system)
                tenant = await loop.run_in_executor(None, self.mode.account, token)
            except (NotFound, Refused):
                continue
            if tenant.name == self._system:
                await self.tenants.apply(tenant)
                self._log.info("System account fetched and updated")
                return

    async def reload(self) -> None:
        """Takes new options: reads all accounts' tokens again, and closes the connections of users
        whose accounts are gone or not pinned."""
        operators, before = self._options.operators, self.mode
        proxies = Proxies(self._options.trusted_proxies)
        self.mode = OperatorMode(operators, self._system, proxies)
        self.mode.pinned_fails = before.pinned_fails
        self._resolver = self._open_resolver()
        self.tenants.warn_of(operators.preload)
        self.tenants.judge_by(self.mode, self._resolver)
        self._logins.judge_by(self.mode)
        if self._claims is not None:
            self._claims.judge_by(self.mode)
        if self._directory is not None:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(None, self._directory.rescan)
                await loop.run_in_executor(None, preload, self._directory, operators.preload)
            except (NotStored, OSError) as error:
                self._log.error(f"Tokens of accounts cannot be kept: {error}")
        if not isinstance(self._resolver, UrlResolver):
            await self.tenants.reread(self._system)
        if self.mode.pinned != before.pinned:
            self.tenants.cut_unpinned()

    def close(self) -> None:
        """Admits and answers nobody any more."""
        self._logins.close()
        self.tenants.close()
        if self._claims is not None:
            self._claims.close()
        if self._packs is not None:
            self._packs.close()
        if self._again is not None:
            self._again.cancel()

    # ---- requests

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is a request for one of the parts; whether it
        was."""
        takers = (self._packs, self._claims)
        return any(taker.take(item) for taker in takers if taker is not None)

    # ---- tokens on other servers

    async def _look_elsewhere(self, name: str) -> str:
        """The token of an account, from anybody in the system account; NotFound."""
        subject = LOOKUP.format(name)
        system = self._options.system_account
        if not system or not self._accounts[system].subject_interest(subject.encode()):
            raise NotFound("account jwt not found")
        wanted = self._options.operators.resolver
        seconds = FETCH_SECONDS
        if wanted is not None and wanted.timeout:
            seconds = wanted.timeout / SECOND
        try:
            _, payload = await self._replies.ask(
                system, subject, b"", b"", seconds, empty=not self._is_linked
            )
        except TimeoutError:
            raise NotFound("fetching jwt timed out") from None
        token = payload.decode("utf-8", "replace")
        if not token:
            raise NotFound("account jwt not found")
        if self._directory is not None:
            loop = asyncio.get_running_loop()
            try:
                tenant = await loop.run_in_executor(None, self.mode.account, token)
                if tenant.name != name:
                    raise NotFound("account jwt not found")
                await loop.run_in_executor(None, partial(self._directory.store, name, token))
            except (Refused, NotStored) as error:
                raise NotFound(str(error)) from None
        return token
