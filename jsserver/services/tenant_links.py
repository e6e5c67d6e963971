"""What accounts of operator mode share: exports, imports and mappings of their tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping as Named

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


class TenantLinks:
    """The links of all accounts; in the event loop's thread only. `running`: the running
    accounts."""

    def __init__(
        self,
        accounts: Accounts,
        running: Named[str, Tenant],
        log: Logger,
        api: ServiceRoute | None,
    ) -> None:
        """`api`: the import by which accounts with JetStream reach other servers; None: there are
        no other servers."""
        self._accounts = accounts
        self._api: Imports = {} if api is None else keyed([api])
        self._running = running
        self._log = log
        self._links = Links(accounts)
        self._told: dict[str, set[str]] = {}
        self._mapped: dict[str, object] = {}
        self.sharing = Sharing()
        """All exports and imports, as last built."""
        self.mappings: dict[str, list[o.Mapping]] = {}
        """Mappings by account."""
        self._timer: asyncio.TimerHandle | None = None

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

    def follow(self, name: str, tenant: Tenant | None, before: Tenant | None) -> None:
        """An account has changed; `before`, `tenant`: None: not running."""
        if shares(tenant) or shares(before):
            self.relink()
        elif tenant is not None:
            self._links.follow_one(name, self._api_of(tenant))
        elif before is not None:
            self._links.follow_one(name, {})

    def _api_of(self, tenant: Tenant) -> Imports:
        return self._api if tenant.claims.jetstream else {}

    def relink(self) -> None:
        """Builds all imports anew from the tokens of importers and exporters."""
        self.close()
        now = time.time()
        sharing = Sharing()
        ends: list[float] = []
        told: dict[str, set[str]] = {}
        tenants = [tenant for tenant in self._running.values() if shares(tenant)]
        for tenant in tenants:
            said = told.setdefault(tenant.name, set())
            for export in tenant.claims.nats.exports:
                self._export(sharing, tenant.name, export, said)
        for tenant in tenants:
            for wanted in tenant.claims.nats.imports:
                self._import(sharing, tenant.name, wanted, told[tenant.name], now, ends)
        self.sharing = sharing
        imports = {name: self._api_of(tenant) for name, tenant in self._running.items()}
        for tenant in tenants:
            own = keyed(sharing.routes(tenant.name)) if tenant.claims.nats.imports else {}
            imports[tenant.name] = {**own, **imports[tenant.name]}
        self._links.follow(imports)
        for name, said in told.items():
            for text in sorted(said - self._told.get(name, set())):
                self._log.warn(f"Account [{name}]: {text}")
        self._told = told
        if ends:
            delay = min(max(min(ends) - now, 0), LONGEST)
            self._timer = asyncio.get_running_loop().call_later(delay, self.relink)

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
        said: set[str],
        now: float,
        ends: list[float],
    ) -> None:
        what = f"import of {wanted.type} {quote(wanted.subject)} from {wanted.account}"
        exporter = self._running.get(wanted.account)
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
