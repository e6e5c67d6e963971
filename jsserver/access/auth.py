"""Who may connect and what they may do: decides CONNECT when authentication is configured."""

from __future__ import annotations

import re
from typing import NamedTuple

from jsserver.access.accounts import GLOBAL_ACCOUNT
from jsserver.access.clients import HIDDEN, Connect
from jsserver.cext.engine import PermissionSet
from jsserver.config.options import Authorization, Permissions, SubjectPermission, User

CLIENT_OVER_TCP = "STANDARD"
"""What users may be limited to: the type of connection that there is."""

_BCRYPT = re.compile(r"^\$2[abxy]\$\d{2}\$")


class Admission(NamedTuple):
    """A connection that is let in."""

    user: str
    account: str
    permissions: PermissionSet | None


def is_bcrypt(password: str) -> bool:
    return _BCRYPT.match(password) is not None


def password_fits(stored: str, given: str) -> bool:
    """Compares with a stored password: plain in constant time, or hashed by slow bcrypt."""
    if is_bcrypt(stored):
        import bcrypt  # loaded when the first hashed password is checked

        try:
            # Go's bcrypt knows 2x and 2y as spellings of 2b; passwords beyond 72 bytes never
            # match there.
            hashed = b"$2b$" + stored.encode()[4:]
            return len(given.encode()) <= 72 and bcrypt.checkpw(given.encode(), hashed)
        except ValueError:
            return False
    import hmac  # loads OpenSSL: only where there are passwords

    return hmac.compare_digest(stored.encode(), given.encode())


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
        responses=None if responses is None else (responses.max, responses.ttl / 1e9),
    )


class Authenticator:
    """The users, passwords and tokens of one configuration."""

    def __init__(self, authorization: Authorization, no_auth_user: str) -> None:
        self._single = authorization
        self._users = {u.name: u for u in authorization.users}
        self._sets = {u.name: permission_set(u.permissions) for u in authorization.users}
        self._no_auth_user = no_auth_user

    @property
    def required(self) -> bool:
        """Whether anybody must prove anything."""
        return self._single.required

    def permissions(self, name: str) -> Permissions | None:
        """A user's permissions; None where there are none."""
        user = self._users.get(name)
        return None if user is None else user.permissions

    def slow(self, connect: Connect) -> bool:
        """Whether admit() will compute a bcrypt hash, which takes tens of milliseconds."""
        stored = [self._single.password, self._single.token]
        user = self._users.get(connect.user or "")
        if user is not None:
            stored.append(user.password)
        return any(map(is_bcrypt, stored))

    def admit(self, connect: Connect) -> Admission | None:
        """Lets the connection in, or None. Users, then token, then single user."""
        name = connect.user or ""
        password = connect.password or ""
        if self._users:
            if not name and not password and not connect.auth_token and self._no_auth_user:
                return self._as(self._users[self._no_auth_user])
            user = self._users.get(name)
            if user is None or not password_fits(user.password, password):
                return None
            return self._as(user)
        if self._single.token:
            if password_fits(self._single.token, connect.auth_token or ""):
                return Admission(HIDDEN, GLOBAL_ACCOUNT, None)
            return None
        if name == self._single.username and password_fits(self._single.password, password):
            return Admission(name, GLOBAL_ACCOUNT, None)
        return None

    def _as(self, user: User) -> Admission | None:
        if user.connection_types and CLIENT_OVER_TCP not in user.connection_types:
            return None
        return Admission(user.name, GLOBAL_ACCOUNT, self._sets[user.name])
