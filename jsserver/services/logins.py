"""Logins by token: a thread beside the event loop checks them, so that signatures delay nothing.

The event loop decides: a login is checked again if its account's claims have changed since the
check.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import NamedTuple

from jsserver.access.auth import Admission
from jsserver.access.clients import Connect, gave_up
from jsserver.access.operator import OperatorMode, Tenant, account_of
from jsserver.access.refusal import Refused, Told
from jsserver.cext.engine import DataPlane, Item
from jsserver.jwt.claims import User
from jsserver.process.logs import Logger
from jsserver.process.tasks import Tasks
from jsserver.services.callouts import TenantCallouts
from jsserver.services.door import Door
from jsserver.services.tenants import Tenants

TOGETHER = 32
"""Logins that the thread reports to the loop at a time."""


class Login(NamedTuple):
    """A waiting connection, its CONNECT, and its user once the token is read."""

    item: Item
    options: Connect
    user: User | None = None


class _Outcome(NamedTuple):
    """The result of a check: an admission, a refusal, or that the account has to be fetched; and
    what was checked against."""

    mode: OperatorMode
    login: Login
    tenant: Tenant | None = None
    admission: Admission | None = None
    refusal: Refused | None = None


class Logins:
    """Logins by token. `door` admits clients that none of the `callouts` decides about."""

    def __init__(
        self,
        mode: OperatorMode,
        tenants: Tenants,
        callouts: TenantCallouts,
        plane: DataPlane,
        door: Door,
        log: Logger,
    ) -> None:
        self._mode = mode
        self._tenants = tenants
        self._plane = plane
        self._log = log
        self._callouts = callouts
        self._door = door
        self._waiting: queue.SimpleQueue[Login | None] = queue.SimpleQueue()
        self._fetches = Tasks()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._check_all, name="logins", daemon=True)
        self._thread.start()

    def ask(self, item: Item, options: Connect) -> None:
        """Takes a CONNECT; its connection is admitted or refused later."""
        self._waiting.put(Login(item, options))

    def judge_by(self, mode: OperatorMode) -> None:
        """Takes another operator for logins, also for those being checked."""
        self._mode = mode

    def close(self) -> None:
        """Stops deciding."""
        self._waiting.put(None)
        self._fetches.cancel()

    # ---- the thread

    def _check_all(self) -> None:
        found: list[_Outcome] = []
        while True:
            if found and (len(found) >= TOGETHER or self._waiting.empty()):
                outcomes, found = found, []
                try:
                    self._loop.call_soon_threadsafe(self._settle, outcomes)
                except RuntimeError:  # the event loop is closed
                    return
            login = self._waiting.get()
            if login is None:
                return
            found.append(self._check(login))

    def _check(self, login: Login) -> _Outcome:
        address, _, _, nonce, *_ = login.item.texts
        mode = self._mode
        tenant: Tenant | None = None
        try:
            user = login.user or mode.user(login.options, nonce.decode())
            login = login._replace(user=user)
            tenant = self._tenants.get(account_of(user))
            if tenant is None:
                return _Outcome(mode, login)
            admission = mode.admission(
                user, tenant, login.options, nonce.decode(), address.decode()
            )
            return _Outcome(mode, login, tenant, admission)
        except Refused as refusal:
            if tenant is not None and tenant.callout is not None:
                refusal.told = Told(tenant.name)
            return _Outcome(mode, login, refusal=refusal)
        except Exception as error:  # any error: this connection is refused
            self._log.error(f"Internal error: {error!r} at a login")
            return _Outcome(mode, login, refusal=Refused(repr(error)))

    # ---- the loop

    def _settle(self, outcomes: list[_Outcome]) -> None:
        for outcome in outcomes:
            login = outcome.login
            if outcome.mode is not self._mode:
                self._waiting.put(login._replace(user=None))
            elif outcome.refusal is not None:
                self._door.settle(login.item, login.options, outcome.refusal)
            elif outcome.tenant is None:
                self._fetches.begin(self._fetch(login))
            elif outcome.tenant is not self._tenants.get(outcome.tenant.name):
                self._waiting.put(login)
            elif outcome.admission is not None and login.user is not None:
                delegated = self._callouts.ask(
                    login.item, login.options, login.user, outcome.tenant
                )
                if not delegated:
                    self._door.settle(login.item, login.options, outcome.admission)

    async def _fetch(self, login: Login) -> None:
        """Fetches a user's account, and has the login checked again."""
        if login.user is None or gave_up(self._plane, login.item):
            return  # the client has given up
        try:
            await self._tenants.ensure(account_of(login.user))
        except Refused as refusal:
            self._door.settle(login.item, login.options, refusal)
        else:
            self._waiting.put(login)
