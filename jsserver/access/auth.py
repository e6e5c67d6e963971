"""Who may connect and what they may do: decides CONNECT when authentication is configured."""

from __future__ import annotations

# That of hmac, without hmac: it loads all of OpenSSL, which the first login would wait for.
from _operator import _compare_digest
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jsserver.access.clients import CLIENT_OVER_TCP, HIDDEN, Connect
from jsserver.access.proxies import Proxies
from jsserver.access.refusal import ProxyRequired
from jsserver.cext.bytes import sha256
from jsserver.cext.engine import PermissionSet
from jsserver.config.options import (
    GLOBAL_ACCOUNT,
    Authorization,
    Options,
    Permissions,
    SubjectPermission,
    User,
)
from jsserver.text.nuid import token
from jsserver.text.passwords import is_bcrypt

AUTH_REQUESTS = "$SYS.REQ.USER.AUTH"
"""What an auth callout is asked on, in its account."""

_MOST = (1 << 31) - 1
"""Answers that may be allowed to one question; more are as many as one likes."""
_LONGEST = 1e9
"""Seconds that an answer may take; more is as long as one likes."""


class Proof(NamedTuple):
    """What a token said that let a connection in, for when its account's claims change.

    Times are in seconds since the epoch; `signer` is "" where the account itself signed.
    """

    subject: str
    issued: int
    signer: str
    bearer: bool
    has_default_permissions: bool


class Admission(NamedTuple):
    """Who is behind connections that are let in, and what they may do: `permissions` for the data
    plane, `rules` as they were configured; limits of -1 are none. It is for `lasts` seconds from
    when it is made, None: for good."""

    user: str
    account: str
    permissions: PermissionSet | None
    rules: Permissions | None
    max_subscriptions: int = -1
    max_payload: int = -1
    lasts: float | None = None
    expires: int = 0
    """When its token does, or the time of day ends in which it may be there, seconds since 1970;
    0: never."""
    proof: Proof | None = None
    kind: str = "user"
    """By what the user is known: user, nkey or jwt."""
    proxy: str = ""
    """The key of the trusted proxy that it came by."""
    issuer: str = ""
    """Whose word is taken for the user: the key that signed its token, or its account."""
    tags: tuple[str, ...] = ()
    name_tag: str = ""
    """What people call the user."""
    shows_token: bool = False
    """Whether it brought a token that is no secret, as it lets nobody in without a signature."""


def password_fits(stored: str, given: str) -> bool:
    """Compares with a stored password: plain in constant time, or hashed by slow bcrypt."""
    if is_bcrypt(stored):
        import bcrypt  # which is loaded by then

        try:
            # Go's bcrypt knows 2x and 2y as spellings of 2b; passwords beyond 72 bytes never
            # match there.
            hashed = b"$2b$" + stored.encode()[4:]
            return len(given.encode()) <= 72 and bcrypt.checkpw(given.encode(), hashed)
        except ValueError:
            return False
    # Of digests: how long it takes must not tell how long the password is.
    digests = (sha256(text.encode("utf-8", "surrogatepass")) for text in (stored, given))
    return _compare_digest(*digests)


def without_asking(rules: Permissions | None) -> Permissions:
    """The permissions without leave to ask what the server asks an auth callout."""
    made = Permissions() if rules is None else Permissions(**vars(rules))
    publish = made.publish or SubjectPermission()
    deny = [*dict.fromkeys([*(publish.deny or []), AUTH_REQUESTS])]
    made.publish = SubjectPermission(allow=publish.allow, deny=deny)
    return made


def _pairs(rules: list[str] | None) -> list[tuple[bytes, bytes]] | None:
    if rules is None:
        return None
    return [(r.split()[0].encode(), b"".join(r.encode().split()[1:])) for r in rules]


def permission_set(permissions: Permissions | None) -> PermissionSet | None:
    """The data plane's form of a user's permissions; None when there are none."""
    if permissions is None:
        return None
    publish = permissions.publish or SubjectPermission()
    subscribe = permissions.subscribe or SubjectPermission()
    responses = permissions.responses
    return PermissionSet(
        publish_allow=_pairs(publish.allow),
        publish_deny=_pairs(publish.deny),
        subscribe_allow=_pairs(subscribe.allow),
        subscribe_deny=_pairs(subscribe.deny),
        responses=None
        if responses is None
        else (max(min(responses.max, _MOST), -1), max(min(responses.ttl / 1e9, _LONGEST), -1)),
    )


class Known(NamedTuple):
    """A user, and what lets connections of that user in."""

    user: User
    admission: Admission


class _Users:
    """Users by what they are known by. What lets one in is made when it is first asked for, once:
    a start does not wait for the permissions of those who never come."""

    def __init__(self, users: dict[str, User], know: Callable[[User], Known]) -> None:
        self._users = users
        self._know = know
        self._known: dict[str, Known] = {}

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> Known | None:
        known = self._known.get(name)
        if known is None and (user := self._users.get(name)) is not None:
            known = self._known.setdefault(name, self._know(user))
        return known

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def items(self) -> Iterable[tuple[str, User]]:
        return self._users.items()


def _check_proxy(of: User | Authorization, connect: Connect) -> None:
    if of.proxy_required and not connect.proxy:
        raise ProxyRequired


class Authenticator:
    """The users, passwords, nkeys and tokens of one configuration."""

    def __init__(
        self,
        options: Options,
        connections: str = CLIENT_OVER_TCP,
        certified: frozenset[str] | None = None,
    ) -> None:
        """`connections`: the type of those that it decides about; `certified`: the users whom only
        certificates stand for, if other listeners than that of the options have some."""
        self._connections = connections
        self._certified = options.certified_users if certified is None else certified
        self._proxies = Proxies(options.trusted_proxies)
        self.required = options.auth_required
        """Whether anybody must prove anything."""
        self._single = options.authorization
        self._callout = options.authorization.callout
        users = options.users
        self._users = _Users({u.name: u for u in users if u.name}, self._known)
        self._nkeys = _Users({u.nkey: u for u in users if u.nkey}, self._known)
        self.by_certificate = options.tls is not None and options.tls.map and bool(self._users)
        """Whether a certificate says who somebody is."""
        self._guest = self._guest_of(options)
        hashes = (u.password for u in users if is_bcrypt(u.password))
        self._dummy = next(hashes, "")
        """What an unknown user's password is compared with: that takes as long as a known one's."""
        single = self._single.password, self._single.token
        self.has_hashes = bool(self._dummy) or any(map(is_bcrypt, single))
        """Whether something stored is a hash."""
        self._load()

    def _load(self) -> None:
        """Brings what logins need, so that the first one does not wait for it."""
        if self.has_hashes:
            import bcrypt  # noqa: F401
        if self._nkeys:
            from jsserver.text import nkeys

            nkeys.prepare()
        if self.by_certificate:
            import jsserver.access.certificates
            import jsserver.access.mapping  # noqa: F401

    def _guest_of(self, options: Options) -> Known | None:
        """As whom those come in who prove nothing."""
        name = options.no_auth_user
        if name:
            known = self._users.get(name) or self._nkeys.get(name)
            # To be nobody is to know no password, and of a hash nobody knows the password.
            if known is None or is_bcrypt(known.user.password):
                return None
            return known if self.fits(known.user) else None
        if options.only_system_users:
            return Known(User(), self._admission(f"nats-{token(8)}", GLOBAL_ACCOUNT, None))
        if not options.auth_required:
            return Known(User(), self._admission("", GLOBAL_ACCOUNT, None))
        return None

    def slow(self, connect: Connect) -> bool:
        """Whether admit() will compute what takes long: a hash of bcrypt tens of milliseconds."""
        if self._proxies.looks_at(connect.proxy_sig) or (self._nkeys and connect.nkey):
            return True
        if not self._users:
            return is_bcrypt(self._single.password) or is_bcrypt(self._single.token)
        user = self._users.user(connect.user or "")
        return is_bcrypt(self._dummy if user is None else user.password)

    def admit(self, connect: Connect, nonce: str) -> Admission | None:
        """Lets the connection in, or None; Refused where it is wrong who has passed it on. `nonce`
        is what it was to sign."""
        connect.proxy = self._proxies.signer(connect.proxy_sig, nonce)
        if self._guest is not None and not (self.says_who(connect) and self.required):
            _check_proxy(self._guest.user, connect)
            return self._guest.admission
        if self._nkeys and connect.nkey:
            return self._by_nkey(connect, nonce)
        name, password = connect.user or "", connect.password or ""
        if self._users:
            return self._by_password(name, password, connect)
        _check_proxy(self._single, connect)
        if self._single.token:
            if password_fits(self._single.token, connect.auth_token or ""):
                return self.bearer()
            return None
        if not self._single.username:
            return None
        if password_fits(self._single.password, password) and name == self._single.username:
            return self._admission(name, GLOBAL_ACCOUNT, None)
        return None

    @property
    def guest(self) -> Admission | None:
        """How those come in who prove nothing; None: they do not."""
        return None if self._guest is None else self._guest.admission

    def says_who(self, connect: Connect) -> bool:
        """Whether the connection says anything of who it is."""
        said = connect.user or connect.password or connect.auth_token
        return bool(said or (self._nkeys and connect.nkey))

    def known(self, name: str, kind: str) -> Known | None:
        """The user of a name, or of an nkey (`kind`), and what lets it in."""
        if not self.alone:
            return (self._nkeys if kind == "nkey" else self._users).get(name)
        user = self.user(name, kind)
        return None if user is None else self._known(user)

    def user(self, name: str, kind: str) -> User | None:
        """The user of a name, or of an nkey (`kind`)."""
        if not self.alone:
            return (self._nkeys if kind == "nkey" else self._users).user(name)
        single = self._single
        if kind == "nkey" or not name or name != single.username:
            return None
        needs = single.proxy_required
        return User(name=name, password=single.password, proxy_required=needs)

    @property
    def token(self) -> str:
        """That of everybody who has one, as it is stored; "": there is none."""
        return self._single.token if self.alone else ""

    @property
    def alone(self) -> bool:
        """Whether there is one user or token and no list of users."""
        return not self._users and not self._nkeys

    @property
    def single_needs_proxy(self) -> bool:
        """Whether a client with the token has to come by a trusted proxy."""
        return self._single.proxy_required

    def bearer(self) -> Admission:
        """The admission of a client that shows the token."""
        return self._admission(HIDDEN, GLOBAL_ACCOUNT, None)

    def certified(self, name: str) -> bool:
        """Whether only a certificate stands for the user."""
        return name in self._certified and (self._guest is None or self._guest.user.name != name)

    def maps(self, connect: Connect) -> bool:
        """Whether it is the certificate that says who it is."""
        return self.by_certificate and not (self._nkeys and connect.nkey)

    def mapped(self, secured: bytes) -> str | None:
        """The user whom a connection's certificate stands for, of what the data plane says of its
        security; None: nobody."""
        from jsserver.access.certificates import read_secured
        from jsserver.access.mapping import mapped_user

        found = read_secured(secured)
        if found is None or not found.certificates:
            return None
        names = (name for name, user in self._users.items() if self.fits(user))
        return mapped_user(found.certificates[0], names)

    def delegates(self, connect: Connect, admission: Admission | None) -> bool:
        """Whether an auth callout is to decide, whatever admit() has."""
        callout = self._callout
        if callout is None:
            return False
        token = HIDDEN if connect.auth_token else ""
        if (connect.nkey or connect.user or token) in callout.auth_users:
            return False
        if admission is None or admission.account == GLOBAL_ACCOUNT:
            return True
        return not callout.accounts or admission.account in callout.accounts

    def _admission(
        self, name: str, account: str, rules: Permissions | None, kind: str = "user"
    ) -> Admission:
        if self._callout is not None and account == self._callout.account:
            rules = without_asking(rules)
        return Admission(name, account, permission_set(rules), rules, kind=kind)

    def _known(self, user: User) -> Known:
        name, kind = (user.name, "user") if user.name else (user.nkey, "nkey")
        admission = self._admission(name, user.account, user.permissions, kind)
        issuer = user.account if user.nkey else ""
        return Known(user, admission._replace(issuer=issuer))

    def _by_nkey(self, connect: Connect, nonce: str) -> Admission | None:
        from jsserver.text.nkeys import decode_public, decode_signature, verify

        known, sig = self._nkeys.get(connect.nkey or ""), connect.sig or ""
        if known is None:
            return None
        _check_proxy(known.user, connect)
        if known is self._guest:
            return known.admission  # which anybody may be
        if not sig or not nonce:
            return None
        _, public = decode_public(known.user.nkey)
        if not verify(public, nonce.encode(), decode_signature(sig)):
            return None
        return known.admission if self.fits(known.user) else None

    def _by_password(self, name: str, password: str, connect: Connect) -> Admission | None:
        known = self._users.get(name)
        if known is None:
            password_fits(self._dummy, password)
            return None
        fits = password_fits(known.user.password, password)
        if not self.fits(known.user):
            return None
        _check_proxy(known.user, connect)  # it takes as long as with a wrong password
        if name in self._certified and known is not self._guest and not self.maps(connect):
            return None  # an empty password is no password
        return known.admission if fits else None

    def fits(self, user: User) -> bool:
        """Whether the user may come over these connections."""
        return not user.connection_types or self._connections in user.connection_types
