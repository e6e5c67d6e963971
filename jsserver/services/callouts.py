"""Logins that an auth callout decides about: asks its service, without delaying other logins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from jsserver.access.accounts import Accounts
from jsserver.access.auth import AUTH_REQUESTS, Admission
from jsserver.access.callout import (
    About,
    Asked,
    Caller,
    answered,
    question,
    shown_user,
    title,
)
from jsserver.access.clients import Connect
from jsserver.access.operator import (
    Place,
    Tenant,
    admission_of,
    check_connection_type,
    check_source,
    in_role,
    unable_to_ask,
)
from jsserver.access.refusal import OutsideTimes, ProxyRequired, Refused, Told
from jsserver.cext.engine import Item
from jsserver.config.options import AuthCallout
from jsserver.jwt.claims import ALL, User
from jsserver.process.logs import Logger
from jsserver.process.tasks import Tasks
from jsserver.services.replies import Replies
from jsserver.services.tenants import Tenants
from jsserver.text.goformat import quote
from jsserver.text.identity import PREFIX_USER, public_key

T = TypeVar("T")
Admit = Callable[[Item, Connect, "Admission | Refused"], None]
"""Admits a connection, or refuses it."""


class Callouts:
    """Requests to callouts, in the event loop's thread; a thread of its own signs, seals and
    checks."""

    def __init__(
        self,
        caller: Caller,
        accounts: Accounts,
        replies: Replies,
        log: Logger,
        admit: Admit,
    ) -> None:
        self._caller = caller
        self.accounts = accounts
        self._replies = replies
        self._log = log
        self._admit = admit
        self._pool = ThreadPoolExecutor(1, "callouts")
        self._asking = Tasks()

    def close(self) -> None:
        """Stops asking."""
        self._asking.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(
        self,
        item: Item,
        about: About,
        asked: Asked,
        subject: str,
        settle: Callable[[User], Awaitable[Admission]],
    ) -> None:
        """Asks about a connection. `settle` turns the answer's user into an admission."""
        self._asking.begin(self._decide(item, about, asked, subject, settle))

    async def _decide(
        self,
        item: Item,
        about: About,
        asked: Asked,
        subject: str,
        settle: Callable[[User], Awaitable[Admission]],
    ) -> None:
        outcome: Admission | Refused
        why: str | None = None
        try:
            user = await self._answer(about, asked, subject)
            outcome = await settle(user)
        except TimeoutError:
            outcome = Refused(
                "Authorization callout response not received in time on account "
                f"{quote(asked.account)}"
            )
            why = ""  # nats-server gives no reason in this case
            self._log.debug(str(outcome))
        except Refused as refusal:
            outcome, why = refusal, title(str(refusal))
            self._log.warn(why)
        except Exception as error:  # any error: this connection is refused
            self._log.error(f"Internal error: {error!r} at an auth callout")
            outcome = Refused(repr(error))
        if isinstance(outcome, Refused):
            issuer = "" if asked.signers is None else asked.account
            outcome.told = Told(asked.account, why, about.user, issuer, about.tags)
        self._admit(item, about.options, outcome)

    async def _answer(self, about: About, asked: Asked, subject: str) -> User:
        if asked.account not in self.accounts:
            what = f"No valid account {quote(asked.account)} for auth callout request"
            raise Refused(f"{what}: account missing")
        ends = time.monotonic() + self._caller.timeout
        try:
            headers, payload = await self._in_thread(
                partial(question, self._caller, about, asked, subject)
            )
        except ValueError as error:
            raise Refused(f"Error encrypting auth request claim: {error}") from None
        _, answer = await self._replies.ask(
            asked.account, AUTH_REQUESTS, headers, payload, max(ends - time.monotonic(), 0)
        )
        return await self._in_thread(partial(answered, self._caller, asked, answer))

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)


def _told(item: Item, options: Connect, **more: object) -> About:
    address, _, _, nonce, secured = item.texts
    known = (item.cid, address.decode(), nonce.decode(), options)
    return About(*known, secured=secured, **more)  # type: ignore[arg-type]


def _placed(user: User, place: Place, about: About, asked: str) -> Admission:
    """The admission of an answer's user; `asked`: the callout's account. As with nats-server, the
    admission has no limits on subscriptions and payloads."""
    who = f"Authorized user on account {quote(asked)}"
    if user.nats.proxy_required and not about.options.proxy:
        raise ProxyRequired
    try:
        why = "Authorized user may not connect this way"
        check_connection_type(user.nats, about.options, why)
        check_source(user.nats, about.host)
        admission = admission_of(user, place, time.time())
    except OutsideTimes:
        raise Refused(f"{who} outside of valid connect times") from None
    except Refused as refusal:
        raise Refused(f"{who}: {refusal}") from None
    admission = admission._replace(max_subscriptions=-1, max_payload=-1, tags=about.tags)
    return admission._replace(user=user.name, kind="user") if user.name else admission


class ConfiguredCallout:
    """The auth callout of the configuration."""

    def __init__(self, callouts: Callouts, callout: AuthCallout) -> None:
        self._callouts = callouts
        self._callout = callout
        self._accounts = callouts.accounts

    def ask(self, item: Item, options: Connect, admission: Admission | None) -> None:
        """Asks the callout about a connection."""
        own = self._callout
        options.jwt = ""  # ignored without an operator
        about = _told(item, options, user=shown_user(options))
        asked = Asked(own.account, public_key(PREFIX_USER), own.xkey, None)

        async def settle(user: User) -> Admission:
            return self._settled(user, about)

        self._callouts.ask(item, about, asked, own.issuer, settle)

    def _settled(self, user: User, about: About) -> Admission:
        own = self._callout
        where = quote(own.account)
        if user.nats.issuer_account:
            raise Refused(
                f"Error non operator mode account {where}: attempted to use issuer_account"
            )
        if user.iss != own.issuer:
            raise Refused(
                f"Wrong issuer for auth callout response on account {where}, "
                f"expected {quote(own.issuer)} got {quote(user.iss)}"
            )
        if user.aud not in self._accounts:
            what = f"No valid account {quote(user.aud)} for auth callout response"
            raise Refused(f"{what} on account {where}: account missing")
        # Default permissions are only for users of the configuration.
        admission = _placed(user, Place(user.aud, None, None), about, own.account)
        if not user.name:
            kind = "nkey" if about.options.nkey else "user"
            admission = admission._replace(user=about.user, kind=kind)
        return unable_to_ask(admission) if user.aud == own.account else admission


class TenantCallouts:
    """The auth callouts of accounts in operator mode."""

    def __init__(self, callouts: Callouts, tenants: Tenants) -> None:
        self._callouts = callouts
        self._tenants = tenants

    def ask(self, item: Item, options: Connect, user: User, tenant: Tenant) -> bool:
        """Asks the callout of a user's account about a connection. False: the account has no
        callout, or the user's token is enough for it."""
        own = tenant.callout
        if own is None or user.sub in own.auth_users:
            return False
        name = options.nkey or options.user or user.sub
        about = _told(item, options, user=name, tags=tuple(user.nats.tags), name_tag=user.name)
        signers = frozenset((tenant.name, *tenant.signers))
        asked = Asked(tenant.name, public_key(PREFIX_USER), own.xkey, signers)
        settle = partial(self._settled, tenant, about)
        self._callouts.ask(item, about, asked, tenant.name, settle)
        return True

    async def _settled(self, tenant: Tenant, about: About, user: User) -> Admission:
        own = tenant.callout
        name = user.nats.issuer_account or user.iss
        allowed = [] if own is None else own.allowed_accounts
        if name != tenant.name and name not in allowed and ALL not in allowed:
            raise Refused(
                f"Account {quote(user.iss)} not permitted as valid account option for auth "
                f"callout for account {quote(tenant.name)}"
            )
        try:
            target = await self._tenants.ensure(name)
            user = in_role(user, target)
        except Refused as refusal:
            raise Refused(f"Auth callout response on account {tenant.name}: {refusal}") from None
        if target.revoked(user.sub, user.iat):
            raise Refused("User authentication revoked")
        if target.expired(time.time()):
            raise Refused("Account JWT has expired")
        admission = _placed(user, target.place, about, tenant.name)
        return unable_to_ask(admission) if name == tenant.name else admission
