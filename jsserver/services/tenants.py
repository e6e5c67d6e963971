"""The running accounts of operator mode: fetched when the first user comes, changed when their
tokens change, along with their connected users."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from jsserver.access.accounts import Accounts
from jsserver.access.auth import Admission
from jsserver.access.operator import OperatorMode, Tenant
from jsserver.access.refusal import Refused
from jsserver.access.resolvers import NotFound, Resolver
from jsserver.assets.limits import AccountLimits as AssetLimits
from jsserver.cext.engine import ConnNumbers, DataPlane
from jsserver.jwt.claims import NO_LIMIT, Account, Export, Import, JetStreamLimits, limit_of
from jsserver.jwt.tokens import decode_as
from jsserver.jwt.validation import is_key, issues_of, refusal
from jsserver.process.logs import Logger
from jsserver.services.door import EXPIRED, LONGEST_TIMER, REFUSED, REVOKED, TOO_MANY, Door
from jsserver.services.tenant_links import TenantLinks, exporters
from jsserver.text.goformat import quote
from jsserver.text.identity import PREFIX_ACCOUNT

if TYPE_CHECKING:
    from jsserver.config.links import ServiceRoute
    from jsserver.services.jetstream import JetStream

ONE_REPLICA = "R1"
FETCHES = 16
"""Tokens that are fetched at the same time, so that one slow resolver request blocks no other."""


class Tenants:
    """The running accounts. All methods run in the event loop's thread, and never block it."""

    def __init__(
        self,
        mode: OperatorMode,
        resolver: Resolver,
        plane: DataPlane,
        accounts: Accounts,
        admissions: dict[int, Admission],
        door: Door,
        log: Logger,
        *,
        jetstream: JetStream | None,
        serve: Callable[[str], None],
        elsewhere: Callable[[str], Awaitable[str]] | None,
        api: ServiceRoute | None,
    ) -> None:
        """`serve`: offers a new account the server's services; `elsewhere`: the token of an account
        that the resolver lacks, or NotFound; `api`: through which accounts others reach JetStream,
        None: none."""
        self._mode = mode
        self._resolver = resolver
        self._plane = plane
        self._accounts = accounts
        self._admissions = admissions
        self._door = door
        self._log = log
        self._jetstream = jetstream
        self._serve = serve
        self._elsewhere = elsewhere
        self._running: dict[str, Tenant] = {}
        self._coming: set[str] = set()
        """Accounts that are being started."""
        self.links = TenantLinks(accounts, log, api)
        self._fetching: dict[str, asyncio.Task[Tenant]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pool = ThreadPoolExecutor(FETCHES, "resolver")

    def get(self, name: str) -> Tenant | None:
        """The account, if it runs; from any thread."""
        return self._running.get(name)

    def judge_by(self, mode: OperatorMode, resolver: Resolver) -> None:
        """Takes another resolver and operator for accounts from now on."""
        self._mode = mode
        self._resolver = resolver

    def close(self) -> None:
        """Stops fetching."""
        self.links.close()
        for task in self._fetching.values():
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def warn_of(self, preloaded: Mapping[str, str]) -> None:
        """Logs what is wrong with tokens before their first users come."""
        for name, token in preloaded.items():
            found = issues_of(decode_as(token, Account), int(time.time()))
            if refusal(found):
                self._log.warn(f"Account [{name}] has validation issues:")
                for issue in found:
                    self._log.warn(f"  - {issue.text}")

    # ---- new accounts

    async def ensure(self, name: str) -> Tenant:
        """The account, fetched if it does not run; Refused."""
        running = self._running.get(name)
        if running is not None:
            return running
        task = self._fetching.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetched(name))
            self._fetching[name] = task
            task.add_done_callback(lambda _: self._fetching.pop(name, None))
        return await asyncio.shield(task)

    async def _fetched(self, name: str) -> Tenant:
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        try:
            token = await self._token(name)
        except NotFound as error:
            self._log.warn(f"Account fetch failed: {error}")
            raise Refused(f"Account JWT lookup error: {error}") from None
        if time.monotonic() - began > 1:
            took = time.monotonic() - began
            self._log.warn(f"Account [{name}] fetch took {took:.3f}s")
        tenant = await loop.run_in_executor(self._pool, self._mode.account, token)
        if tenant.name != name:
            raise Refused("Account JWT lookup error: it is another account's")
        await self.apply(tenant)
        return tenant

    async def _token(self, name: str) -> str:
        loop = asyncio.get_running_loop()
        if not is_key(name, PREFIX_ACCOUNT):
            raise NotFound("will only fetch valid account keys")
        try:
            return await loop.run_in_executor(self._pool, self._resolver.fetch, name)
        except NotFound:
            if self._elsewhere is None:
                raise
        return await self._elsewhere(name)

    async def apply(self, tenant: Tenant) -> None:
        """Brings the account, and its connected users, in line with a token."""
        name = tenant.name
        async with self._locks.setdefault(name, asyncio.Lock()):
            before = self._running.get(name)
            if before is not None and before.token == tenant.token:
                return
            if name not in self._accounts:
                self._accounts.open(name)
                self._serve(name)
            self._accounts.call(name, tenant.claims.name)
            limits = tenant.claims.nats.limits
            self._accounts.limit_clients(
                name, *(limit_of(n) for n in (limits.conn, limits.subs, limits.payload))
            )
            self._accounts.limit_leafs(name, limit_of(limits.leaf))
            self._tell_what_is_left_out(tenant.claims)
            await self.links.map(tenant)
            self._coming.add(name)
            try:
                await self._bring_exporters(tenant)
                if before is None:  # users are admitted once the streams run
                    await self._set_jetstream(tenant.claims)
            finally:
                self._coming.discard(name)
            await self.links.follow(name, tenant, before)
            self._running[name] = tenant
            self._watch(tenant)
            if before is not None:
                self._recheck(tenant, before)
                await self._set_jetstream(tenant.claims)

    async def _bring_exporters(self, tenant: Tenant) -> None:
        """Starts the accounts that this one imports from, except those that are being started."""
        for name in exporters(tenant):
            if name not in self._running and name not in self._coming:
                try:
                    await self.ensure(name)
                except Refused as error:
                    self._log.error(f"Can't locate account [{name}] for import: {error}")

    def _tell_what_is_left_out(self, claims: Account) -> None:
        """Warns of claims that are not built yet."""
        label = f"{claims.sub}/{claims.name}" if claims.name else claims.sub
        body = claims.nats
        shared: list[Import | Export] = [*body.imports, *body.exports]
        left_out = [f"allow_trace of {quote(x.subject)}" for x in shared if x.allow_trace]
        if body.trace is not None:
            left_out.append(f"trace to {quote(body.trace.dest)}")
        if body.cluster_traffic not in ("", "system"):
            left_out.append(f"cluster traffic {quote(body.cluster_traffic)}")
        for what in left_out:
            self._log.warn(
                f"Account [{label}] is served without its {what}, "
                "which is not available in this version of jsserver"
            )

    # ---- accounts that expire

    def _watch(self, tenant: Tenant) -> None:
        """Ends the account when its token expires."""
        timer = self._timers.pop(tenant.name, None)
        if timer is not None:
            timer.cancel()
        if tenant.claims.exp:
            left = min(tenant.claims.exp - int(time.time()), LONGEST_TIMER)
            loop = asyncio.get_running_loop()
            self._timers[tenant.name] = loop.call_later(max(left, 0), self._expire, tenant)

    def _expire(self, tenant: Tenant) -> None:
        if not tenant.expired(time.time()):
            self._watch(tenant)  # the token expires after the longest timer
        elif self._running.get(tenant.name) is tenant:
            self.end(tenant.name)

    def end(self, name: str) -> None:
        """Ends the account until it is fetched again, and closes its connections."""
        self._stop(name)
        for cid, _ in self._members(name):
            self._plane.close_connection(cid, EXPIRED, b"Account Authentication Expired")

    def _stop(self, name: str) -> None:
        ended = self._running.pop(name, None)
        self.links.forget(name, ended)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    async def remove(self, name: str) -> None:
        """Ends an account that was deleted. Its streams stay on disk."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self._running:
                self.end(name)
                await self._set_jetstream(Account(sub=name))

    # ---- accounts after a reload

    async def reread(self, system: str) -> None:
        """Reads the tokens of all running accounts again; ends accounts that the resolver lacks
        now, except `system`."""
        loop = asyncio.get_running_loop()
        for name in list(self._running):
            why = "removed"
            try:
                token = await loop.run_in_executor(self._pool, self._resolver.fetch, name)
                why = "bad claims"
                tenant = await loop.run_in_executor(self._pool, self._mode.account, token)
                if tenant.name != name:
                    raise Refused("it is another account's")
            except (NotFound, Refused):
                if name != system:
                    self._log.info(f"Reloaded: deleting account [{why}]: {quote(name)}")
                    await self._withdraw(name)
            else:
                await self.apply(tenant)

    async def _withdraw(self, name: str) -> None:
        """Ends an account and refuses its users. Its streams stay on disk."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._stop(name)
            for cid, _ in self._members(name):
                self._plane.refuse(cid)
            await self._set_jetstream(Account(sub=name))

    def cut_unpinned(self) -> None:
        """Closes connections to accounts that are not pinned any more."""
        for cid, admission in list(self._admissions.items()):
            if not self._mode.has_pinned(admission.account):
                self._plane.refuse(cid)

    # ---- connected users

    def _members(self, name: str) -> Iterator[tuple[int, Admission]]:
        """The connections of an account's users, the oldest first."""
        found = [(cid, a) for cid, a in self._admissions.items() if a.account == name]
        return iter(sorted(found, key=lambda one: one[0]))

    def _recheck(self, tenant: Tenant, before: Tenant) -> None:
        """Closes the connections that the new claims do not admit any more."""
        limits = tenant.claims.nats.limits
        most, most_subscriptions = limit_of(limits.conn), limit_of(limits.subs)
        stay: set[int] = set()
        for cid, admission in self._members(tenant.name):
            proof = admission.proof
            if proof is None:
                continue
            if 0 <= most <= len(stay):
                self._plane.close_connection(
                    cid, TOO_MANY, b"maximum account active connections exceeded"
                )
            elif proof.bearer and limits.disallow_bearer:
                self._plane.refuse(cid)
            elif tenant.revoked(proof.subject, proof.issued):
                self._plane.close_connection(cid, REVOKED, b"User Authentication Revoked")
            elif proof.signer and not _signs_alike(proof.signer, tenant, before):
                self._plane.close_connection(cid, REFUSED)
            else:
                stay.add(cid)
                if proof.has_default_permissions and tenant.place.rules != before.place.rules:
                    self._admissions[cid] = admission._replace(
                        rules=tenant.place.rules, permissions=tenant.place.permissions
                    )
                    self._plane.restrict(cid, tenant.place.permissions)
        if most_subscriptions >= 0 and limits.subs != before.claims.nats.limits.subs:
            self._prune_subscribers(most_subscriptions, stay)

    def _prune_subscribers(self, most: int, members: set[int]) -> None:
        """Closes connections with more subscriptions than are allowed now."""
        for item in self._plane.connections():
            if item.cid in members and ConnNumbers(*item.numbers).subscriptions > most:
                self._door.prune(item.cid)

    # ---- JetStream

    async def _set_jetstream(self, claims: Account) -> None:
        if self._jetstream is None:
            return
        label = f"{claims.sub}/{claims.name}" if claims.name else claims.sub
        try:
            await self._jetstream.configure(claims.sub, _asset_limits(claims))
        except Exception as error:  # the account runs without JetStream
            self._log.error(f"Error configuring jetstream for account [{label}]: {error}")


def _signs_alike(key: str, tenant: Tenant, before: Tenant) -> bool:
    """Whether a signing key grants its users the same as before."""
    return key in tenant.signers and tenant.signers[key] == before.signers.get(key)


def _asset_limits(claims: Account) -> AssetLimits | None:
    """The account's limits; None: it has no JetStream."""
    if not claims.jetstream:
        return None
    tiered = claims.nats.limits.tiered_limits
    if not tiered:
        return _limits_of(claims.nats.limits)
    tiers = {name: _limits_of(tier) for name, tier in tiered.items()}
    return msgspec.structs.replace(tiers.get(ONE_REPLICA) or AssetLimits(), tiers=tiers)


def _limits_of(own: JetStreamLimits) -> AssetLimits:
    def unless_none(limit: int) -> int:
        return limit if limit > 0 else NO_LIMIT

    return AssetLimits(
        max_memory=own.mem_storage,
        max_storage=own.disk_storage,
        max_streams=own.streams,
        max_consumers=own.consumer,
        max_ack_pending=unless_none(own.max_ack_pending),
        memory_max_stream_bytes=unless_none(own.mem_max_stream_bytes),
        storage_max_stream_bytes=unless_none(own.disk_max_stream_bytes),
        max_bytes_required=own.max_bytes_required,
    )
