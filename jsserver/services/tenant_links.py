"""What accounts of operator mode share: exports, imports and mappings of their tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping as Named
from typing import NamedTuple

from jsserver.access.accounts import Accounts
from jsserver.access.links import Imports, Links, keyed
from jsserver.access.operator import Tenant
from jsserver.cext.engine import MappingTable
from jsserver.config import options as o
from jsserver.config.links import LinkError, ServiceRoute, Sharing
from jsserver.config.mappings import MappingError, weighed
from jsserver.jwt import claims as c
from jsserver.jwt.tokens import TokenError, decode_as
from jsserver.jwt.validation import is_contained, issues_of, refusal
from jsserver.process.logs import Logger
from jsserver.text.goformat import quote

LONGEST = 86_400.0
"""Seconds at most until activations are checked again; a later end is found by a later check."""


def shares(tenant: Tenant | None) -> bool:
    """Whether the account imports or exports anything."""
    return tenant is not None and bool(tenant.claims.nats.imports or tenant.claims.nats.exports)


def exporters(tenant: Tenant) -> list[str]:
    """The accounts that this one imports from."""
    return list(dict.fromkeys(i.account for i in tenant.claims.nats.imports))


class Built(NamedTuple):
    """The imports of all accounts, as their tokens have them."""

    sharing: Sharing
    imports: dict[str, Imports]
    """By importing account."""
    told: dict[str, set[str]]
    """What is wrong with the exports and imports, by account."""
    time: float
    """When activations were checked, in seconds."""
    end: float | None
    """When the first of the activations ends; None: none does."""


class TenantLinks:
    """The links of all accounts; in the event loop's thread only."""

    def __init__(
        self,
        accounts: Accounts,
        log: Logger,
        api: ServiceRoute | None,
    ) -> None:
        """`api`: the import by which accounts with JetStream reach other servers; None: there are
        no other servers."""
        self._accounts = accounts
        self._api: Imports = {} if api is None else keyed([api])
        self._running: dict[str, Tenant] = {}
        """The accounts that run, or will once their links are taken."""
        self._log = log
        self._links = Links(accounts)
        self._told: dict[str, set[str]] = {}
        self._mapped: dict[str, object] = {}
        self.sharing = Sharing()
        """All exports and imports, as last built."""
        self.mappings: dict[str, list[o.Mapping]] = {}
        """Mappings by account."""
        self._timer: asyncio.TimerHandle | None = None
        self._changes = 0
        """Of what the links are built from; a thread may build them meanwhile."""
        self._building = asyncio.Lock()

    def close(self) -> None:
        """Stops checking activations."""
        if self._timer is not None:
            self._timer.cancel()

    # ---- mappings

    async def map(self, tenant: Tenant) -> None:
        """Takes an account's mappings from its token. Large tables are made and freed outside the
        event loop's thread."""
        name, wanted = tenant.name, tenant.claims.nats.mappings
        if self._mapped.get(name, {}) == wanted:
            return
        taken, table, wrong = await asyncio.to_thread(self._table, wanted)
        self._mapped[name], self.mappings[name] = wanted, taken
        for text in wrong:
            self._log.warn(f"Account [{name}]: {text}")
        left = [self._accounts[name].map_subjects(table)]
        await asyncio.to_thread(left.clear)

    @staticmethod
    def _table(
        wanted: Named[str, list[c.Weighted]],
    ) -> tuple[list[o.Mapping], MappingTable, list[str]]:
        """The valid mappings, a table of them, and what is wrong with the others."""
        mappings, taken, wrong = [], [], []
        for source, destinations in wanted.items():
            to = [
                o.Destination(subject=d.subject, weight=d.weight or 100, cluster=d.cluster)
                for d in destinations
            ]
            try:
                mapping = o.Mapping(source=source, destinations=to)
                made = weighed(mapping)
                taken.append(mapping)
                mappings.append((source.encode("utf-8", "surrogateescape"), made))
            except MappingError as error:
                wrong.append(f"mapping of {quote(source)}: {error}")
        return taken, MappingTable(mappings), wrong

    # ---- exports and imports

    async def follow(self, name: str, tenant: Tenant, before: Tenant | None) -> None:
        """An account has new claims; `before`: its former ones. Thousands of imports take tens of
        milliseconds to build, so a thread builds them."""
        self._running[name] = tenant
        self._changes += 1
        if not (shares(tenant) or shares(before)):
            self._links.follow_one(name, self._api_of(tenant))
            return
        async with self._building:
            while True:
                self._running[name] = tenant  # former claims may have ended meanwhile
                changes = self._changes
                built = await asyncio.to_thread(self._build, dict(self._running), time.time())
                if changes == self._changes:
                    break
            self._take(built)

    def forget(self, name: str, ended: Tenant | None) -> None:
        """An account does not run any more; its exports and imports end at once."""
        self._running.pop(name, None)
        self._changes += 1
        if shares(ended):
            self._relink()
        elif ended is not None:
            self._links.follow_one(name, {})

    def _api_of(self, tenant: Tenant) -> Imports:
        return self._api if tenant.claims.jetstream else {}

    def _relink(self) -> None:
        self._take(self._build(self._running, time.time()))

    def _build(self, running: Named[str, Tenant], now: float) -> Built:
        """All imports, from the tokens of importers and exporters. In any thread."""
        sharing = Sharing()
        ends: list[float] = []
        told: dict[str, set[str]] = {}
        tenants = [tenant for tenant in running.values() if shares(tenant)]
        for tenant in tenants:
            said = told.setdefault(tenant.name, set())
            for export in tenant.claims.nats.exports:
                self._export(sharing, tenant.name, export, said)
        for tenant in tenants:
            for wanted in tenant.claims.nats.imports:
                exporter = running.get(wanted.account)
                self._import(sharing, tenant.name, wanted, exporter, told[tenant.name], now, ends)
        imports = {name: self._api_of(tenant) for name, tenant in running.items()}
        for tenant in tenants:
            own = keyed(sharing.routes(tenant.name)) if tenant.claims.nats.imports else {}
            imports[tenant.name] = {**own, **imports[tenant.name]}
        return Built(sharing, imports, told, now, min(ends, default=None))

    def _take(self, built: Built) -> None:
        self.close()
        self.sharing = built.sharing
        self._links.follow(built.imports)
        for name, said in built.told.items():
            for text in sorted(said - self._told.get(name, set())):
                self._log.warn(f"Account [{name}]: {text}")
        self._told = built.told
        if built.end is not None:
            delay = min(max(built.end - built.time, 0), LONGEST)
            self._timer = asyncio.get_running_loop().call_later(delay, self._relink)

    @staticmethod
    def _export(sharing: Sharing, account: str, export: c.Export, said: set[str]) -> None:
        common = {
            "subject": export.subject,
            "token_position": export.account_token_position,
            "needs_token": export.token_req,
        }
        try:
            if export.type == "stream":
                sharing.export_stream(account, o.StreamExport(**common))
                return
            service = o.ServiceExport(once=export.response_type in ("", "Singleton"), **common)
            service.threshold = export.response_threshold or service.threshold
            latency = export.service_latency
            if latency is not None:
                share = latency.sampling if isinstance(latency.sampling, int) else 0
                service.latency = o.Latency(subject=latency.results, sampling=share)
            sharing.export_service(account, service)
            try:
                sharing.check_latency(account, service)
            except LinkError:
                service.latency = None
                raise
        except LinkError as error:
            said.add(f"export of {export.type} {quote(export.subject)}: {error}")

    def _import(
        self,
        sharing: Sharing,
        account: str,
        wanted: c.Import,
        exporter: Tenant | None,
        said: set[str],
        now: float,
        ends: list[float],
    ) -> None:
        what = f"import of {wanted.type} {quote(wanted.subject)} from {wanted.account}"
        if exporter is None:
            said.add(f"{what}: account missing")
            return
        activated = self._activated(account, wanted, exporter, now, ends)
        try:
            if wanted.type == "stream":
                stream = o.StreamImport(account=wanted.account, subject=wanted.subject)
                stream.to, stream.prefix = wanted.local_subject, wanted.to
                stream.activated = activated
                sharing.import_stream(account, stream)
            else:
                service = o.ServiceImport(account=wanted.account, share=wanted.share)
                if wanted.local_subject:
                    service.subject, service.to = wanted.subject, wanted.local_subject
                else:
                    service.subject, service.to = wanted.to or wanted.subject, wanted.subject
                service.activated = activated
                sharing.import_service(account, service)
        except LinkError as error:
            said.add(f"{what}: {error}")

    @staticmethod
    def _activated(
        account: str, wanted: c.Import, exporter: Tenant, now: float, ends: list[float]
    ) -> bool:
        """Whether the exporter has given the account a valid activation token for the import."""
        if not wanted.token:
            return False
        try:
            token = decode_as(wanted.token, c.Activation)
        except TokenError:
            return False
        if token.sub != account or refusal(issues_of(token, int(now))):
            return False
        if token.iss not in exporter.signers:
            return False
        if token.nats.issuer_account not in ("", exporter.name):
            return False
        if token.exp:
            if token.exp <= int(now):
                return False
            ends.append(float(token.exp))
        subject = wanted.to if wanted.type == "service" and wanted.to else wanted.subject
        return not any(
            max(export.revocations.get(key, -1) for key in (account, c.ALL)) >= token.iat
            for export in exporter.claims.nats.exports
            if export.token_req
            and export.type == wanted.type
            and is_contained(subject, export.subject)
        )
