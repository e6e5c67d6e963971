"""Login by token: who signed it, for whom, and what that user may do (operator mode).

Everything here is computed from what it is handed: no account is fetched, nothing waits.
"""

from __future__ import annotations

import ipaddress
import time
from datetime import datetime, timedelta
from typing import NamedTuple

from jsserver.access.auth import Admission, Proof, permission_set, without_asking
from jsserver.access.clients import Connect
from jsserver.access.proxies import Proxies
from jsserver.access.refusal import OutsideTimes, ProxyRequired, Refused
from jsserver.cext.engine import PermissionSet
from jsserver.config.options import (
    DEFAULT_RESPONSE_TTL,
    Operators,
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from jsserver.jwt import claims as c
from jsserver.jwt.scopes import ScopeError, scoped
from jsserver.jwt.tokens import TokenError, decode_as
from jsserver.jwt.validation import issues_of, refusal, zone_of
from jsserver.text.goformat import quote
from jsserver.text.identity import decode_public
from jsserver.text.nkeys import decode_signature, verify

_MAPPED_BITS = 96
"""Before the bits of an address of IPv4 in one of IPv6 (RFC 4291, 2.5.5.2)."""
CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)


class Place(NamedTuple):
    """An account that a token lets somebody into, and what its users may do by default."""

    account: str
    rules: Permissions | None
    permissions: PermissionSet | None


class Tenant:
    """An account as its claims say. What changes is a new one."""

    def __init__(self, claims: c.Account, token: str, strict: bool) -> None:
        """`strict`: users are signed by signing keys alone."""
        self.name = claims.sub
        self.claims = claims
        self.token = token
        self.signers: dict[str, c.Scope | None] = {} if strict else {claims.sub: None}
        for key in claims.nats.signing_keys:
            self.signers.update({key.key: key} if isinstance(key, c.Scope) else {key: None})
        rules = permissions_of(claims.nats.default_permissions)
        if self.callout is not None:
            rules = without_asking(rules)
        self.place = Place(claims.sub, rules, permission_set(rules))

    @property
    def callout(self) -> c.Authorization | None:
        """Whom it lets decide about its users."""
        authorization = self.claims.nats.authorization
        return authorization if authorization.auth_users else None

    def revoked(self, user: str, issued: int) -> bool:
        """Whether a user's token of that time is none any more."""
        revocations = self.claims.nats.revocations
        return any(revocations.get(key, issued - 1) >= issued for key in (user, c.ALL))

    def expired(self, now: float) -> bool:
        return 0 < self.claims.exp <= int(now)


def permissions_of(rules: c.Permissions) -> Permissions | None:
    """Permissions of a token, as a configuration has them; None: none are said."""
    made = Permissions(publish=_subjects(rules.pub), subscribe=_subjects(rules.sub))
    if rules.resp is not None:
        made.responses = ResponsePermission(
            max=rules.resp.max or 1, ttl=rules.resp.ttl or DEFAULT_RESPONSE_TTL
        )
        # Leave to answer alone is no leave to publish anywhere else.
        made.publish = made.publish or SubjectPermission()
        made.publish.allow = made.publish.allow or []
    said = made.publish is not None or made.subscribe is not None
    return made if said else None


def _subjects(permission: c.Permission) -> SubjectPermission | None:
    if not permission.allow and not permission.deny:
        return None
    return SubjectPermission(allow=permission.allow or None, deny=permission.deny or None)


class OperatorMode:
    """The keys that are trusted, and what users have to prove."""

    def __init__(self, options: Operators, system_account: str, proxies: Proxies) -> None:
        self._proxies = proxies
        self._trusted = frozenset(options.keys)
        self._strict = frozenset(options.strict_keys)
        self._strict_operators = frozenset(
            claims.sub for claims in options.claims if claims.nats.strict_signing_key_usage
        )
        self._sentinel = options.default_sentinel
        self.pinned: frozenset[str] | None = None
        """The accounts whose users may come; None: all."""
        self.pinned_fails = 0
        """Logins to accounts that are none of those that are pinned."""
        if options.pinned is not None:
            self.pinned = frozenset((*options.pinned, system_account))

    # ---- accounts

    def account(self, token: str) -> Tenant:
        """The account that a token is of; Refused, unless it is one of a trusted operator."""
        try:
            claims = decode_as(token, c.Account)
        except TokenError as error:
            raise Refused(str(error)) from None
        tenant = self.believed(claims, token)
        wrong = refusal(issues_of(claims, int(time.time())))
        if wrong:
            raise Refused(f"account validation failed: {wrong}")
        return tenant

    def believed(self, claims: c.Account, token: str) -> Tenant:
        """The account of these claims, whatever is wrong with them; Refused, unless a trusted
        operator signed the token."""
        if claims.iss in self._strict_operators:
            raise Refused("operator requires issuer to be a signing key")
        if claims.iss not in self._trusted:
            raise Refused("not signed by a trusted operator")
        return Tenant(claims, token, claims.iss in self._strict)

    def trusts(self, key: str) -> bool:
        """Whether it is a key of an operator that may sign accounts."""
        return key in self._trusted

    def has_pinned(self, account: str) -> bool:
        """Whether the account is one of those whose users may come."""
        return self.pinned is None or account in self.pinned

    # ---- users

    def user(self, connect: Connect, nonce: str) -> c.User:
        """The user whose token a client brings; Refused. Nothing of it is trusted yet. `nonce` is
        what a proxy was to sign."""
        connect.proxy = self._proxies.signer(connect.proxy_sig, nonce)
        user = self._token(connect.jwt or "")
        if user.nats.proxy_required and not connect.proxy:
            raise ProxyRequired
        wrong = refusal(issues_of(user, int(time.time())))
        if wrong:
            raise Refused(f"User JWT no longer valid: {wrong}")
        name = account_of(user)
        if not self.has_pinned(name):
            self.pinned_fails += 1
            raise Refused(f"Account {name} not listed as operator pinned account")
        return user

    def _token(self, token: str) -> c.User:
        try:
            return decode_as(token, c.User)
        except TokenError as error:
            if not self._sentinel:
                what = f"User JWT not valid: {error}" if token else ""
                raise Refused(what or "Authentication requires a user JWT") from None
        return decode_as(self._sentinel, c.User)

    def admission(
        self, user: c.User, tenant: Tenant, connect: Connect, nonce: str, host: str
    ) -> Admission:
        """Lets the user of a token into the account that it names, or Refused. `nonce` is what the
        connection was to sign, `host` its address."""
        now = time.time()
        user = in_role(user, tenant)
        body = user.nats
        if body.proxy_required and not connect.proxy:
            raise ProxyRequired  # as the role says
        if tenant.expired(now):
            raise Refused("Account JWT has expired")
        if body.bearer_token and tenant.claims.nats.limits.disallow_bearer:
            raise Refused("Account does not allow bearer tokens")
        check_connection_type(body, connect, "Connection type not allowed")
        if not body.bearer_token:
            _check_signature(user.sub, connect.sig or "", nonce)
        if tenant.revoked(user.sub, user.iat):
            raise Refused("User authentication revoked")
        check_source(body, host)
        admission = admission_of(user, tenant.place, now)
        admission = admission._replace(
            tags=tuple(user.nats.tags), name_tag=user.name, shows_token=not body.bearer_token
        )
        name = connect.nkey or connect.user
        if name:
            kind = "nkey" if connect.nkey else "user"
            admission = admission._replace(user=name, kind=kind)
        if tenant.callout is None or admission.rules is tenant.place.rules:
            return admission
        return unable_to_ask(admission)


def unable_to_ask(admission: Admission) -> Admission:
    """Somebody in the account of an auth callout, who is not to ask it."""
    rules = without_asking(admission.rules)
    return admission._replace(rules=rules, permissions=permission_set(rules))


def account_of(user: c.User) -> str:
    """The name of the account that a user is one of."""
    return user.nats.issuer_account or user.iss


def in_role(user: c.User, tenant: Tenant) -> c.User:
    """The user with the limits of the role that its signer stands for; Refused where the account
    does not know the signer."""
    if user.iss not in tenant.signers:
        raise Refused("User JWT issuer is not known")
    scope = tenant.signers[user.iss]
    if scope is None:
        return user
    try:
        user = scoped(user, scope, tenant.claims)
    except ScopeError as error:
        raise Refused(f"User JWT is not valid: {error}") from None
    wrong = refusal(issues_of(user, int(time.time())))
    if wrong:
        raise Refused(f"User JWT generated invalid permissions: {wrong}")
    return user


def check_connection_type(body: c.UserLimits, connect: Connect, why: str) -> None:
    """Refuses, for that reason, who may only come another way. Unknown ways are passed over, unless
    no other is allowed."""
    types = {name.upper() for name in body.allowed_connection_types}
    if types and connect.connection_type not in types & CONNECTION_TYPES:
        raise Refused(why)


def _check_signature(user: str, sig: str, nonce: str) -> None:
    if not sig:
        raise Refused("Signature missing")
    try:
        _, public = decode_public(user)
    except ValueError as error:
        raise Refused(f"User nkey not valid: {error}") from None
    if not nonce or not verify(public, nonce.encode(), decode_signature(sig)):
        raise Refused("Signature not verified")


def check_source(body: c.UserLimits, host: str) -> None:
    """Refuses who comes from elsewhere than it may."""
    if not _comes_from(body.sources, host):
        raise Refused(f"Bad src Ip {host}")


def _comes_from(networks: list[str], host: str) -> bool:
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in _network(net) for net in networks)
    except ValueError:
        return False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """ValueError where it is none. One of IPv4 in IPv6's clothes is one of IPv4."""
    network = ipaddress.ip_network(text, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))


def admission_of(user: c.User, place: Place, now: float) -> Admission:
    """What lets this user in, unless it is outside of its times: Refused."""
    body = user.nats
    window = _window(body, now)
    rules = permissions_of(body)
    by_default = rules is None
    # Timers of whole seconds, as nats-server's: they start when the user comes.
    ends = [float(user.exp - int(now))] if user.exp else []
    ends += [] if window is None else [window]
    lasts = min(ends, default=None)
    return Admission(
        user=user.sub,
        kind="jwt",
        account=place.account,
        permissions=place.permissions if by_default else permission_set(rules),
        rules=place.rules if by_default else rules,
        max_subscriptions=c.limit_of(body.subs),
        max_payload=c.limit_of(body.payload),
        lasts=lasts,
        expires=0 if lasts is None else int(now + lasts),
        issuer=user.iss if body.issuer_account else place.account,
        proof=Proof(
            subject=user.sub,
            issued=user.iat,
            signer=user.iss if body.issuer_account else "",
            bearer=body.bearer_token,
            has_default_permissions=by_default,
        ),
    )


def _window(body: c.UserLimits, now: float) -> float | None:
    """For how many seconds the user may stay by the times of day that it may be there; None where
    these are all. Refused outside of them."""
    if not body.times:
        return None
    zone = zone_of(body.times_location) if body.times_location else None
    if body.times_location and zone is None:
        raise OutsideTimes(f"Outside connect times: no zone {quote(body.times_location)}")
    here = datetime.fromtimestamp(now, zone)  # without a zone: the machine's
    left: float | None = None
    for span in body.times:
        start, end = (_at(here, clock) for clock in (span.start, span.end))
        if start > end:  # over midnight
            if end <= here:
                end += timedelta(days=1)
            else:
                start = here - timedelta(seconds=1)
        if start < here < end:
            stays = end.timestamp() - now
            left = stays if left is None else max(left, stays)
    if left is None:
        raise OutsideTimes("Outside connect times")
    return left


def _at(day: datetime, clock: str) -> datetime:
    hour, minute, second = clock.split(":")
    whole = int(second.partition(".")[0].partition(",")[0])
    return day.replace(hour=int(hour), minute=int(minute), second=whole, microsecond=0)
