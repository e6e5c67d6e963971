"""Which clients stay when the configuration changes: those that the new one lets in as the same
user, with what they showed at their login. Nothing is asked of clients again.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from jsserver.access.auth import Admission, Authenticator, password_fits
from jsserver.access.clients import CLOSE_CODES, HIDDEN, Connect
from jsserver.config.options import GLOBAL_ACCOUNT
from jsserver.text.passwords import is_bcrypt

MOVED = CLOSE_CODES["Client Closed"]
"""The reason to close connections whose user is gone or in another account now: without a word, as
nats-server does."""
REFUSED = CLOSE_CODES["Authentication Failure"]
NEEDS_PROXY = CLOSE_CODES["Proxy Required"]
"""It does not come by a proxy that is trusted."""


class Present(NamedTuple):
    """A connection: what it said of itself, what it came in by (None: everybody was let in), the
    account that it is in, and what is known of its TLS."""

    options: Connect
    admission: Admission | None
    account: str
    secured: bytes


class Stays(NamedTuple):
    """A connection that is still let in, as this admission says; None: as everybody is."""

    admission: Admission | None


class Slow(NamedTuple):
    """What has to be computed before there is a verdict: whether a stored hash is that of a
    password, which takes tens of milliseconds."""

    stored: str
    given: str


class _NotComputed(Exception):
    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self.slow = slow


class Staying:
    """Judges connections that the authenticator `before` let in by what `now` makes of them."""

    def __init__(self, before: Authenticator, now: Authenticator, accounts: Container[str]) -> None:
        """`accounts`: those that there are now."""
        self.before = before
        self._now = now
        self._accounts = accounts
        self._hashed: dict[Slow, bool] = {}
        self.matters = before.required or now.required
        """Whether anybody has to prove anything, before or now."""
        self._alike = before.by_certificate == now.by_certificate and _named_alike(before, now)

    def unchanged(self, admission: Admission) -> bool:
        """Whether nothing has changed for whom an admission lets in."""
        if not self._alike or admission.proof is not None:
            return False
        before = self.before.user(admission.user, admission.kind)
        return before is not None and before == self._now.user(admission.user, admission.kind)

    def judge(self, present: Present) -> Stays | Slow | int:
        """What becomes of a connection: it stays, or the reason to close it; or what `compute` has
        to find out before that is known."""
        try:
            return self._judge(present)
        except _NotComputed as missing:
            return missing.slow

    def compute(self, slow: Slow) -> None:
        """Takes tens of milliseconds; from any thread."""
        self._hashed[slow] = password_fits(*slow)

    def _judge(self, present: Present) -> Stays | int:
        now, admission = self._now, present.admission
        if admission is not None and admission.proof is not None:  # an auth callout let it in
            return Stays(admission) if present.account in self._accounts else MOVED
        name, kind = _identity(present)
        if not now.required:
            anonymous = admission is not None and not admission.user
            stays = Stays(admission if anonymous else None)
            return MOVED if name or present.account != GLOBAL_ACCOUNT else stays
        if not self._was_checked(admission) and not now.says_who(present.options):
            return self._guest(present)
        if not name:
            if not now.token or not self._has_token(present):
                return REFUSED
            if now.single_needs_proxy and not _proxy_of(present):
                return NEEDS_PROXY
            return _as_before(present, now.bearer())
        known = now.known(name, kind)
        if known is None or known.admission.account != present.account:
            return MOVED
        if not now.fits(known.user) or not self._proves(present, known.user.password):
            return MOVED if now.alone else REFUSED
        if known.user.proxy_required and not _proxy_of(present):
            return NEEDS_PROXY
        return _as_before(present, known.admission)

    def _was_checked(self, admission: Admission | None) -> bool:
        """Whether it has proven something: a password, a signature, a certificate that stands for
        somebody."""
        guest = self.before.guest
        unchecked = ("",) if guest is None else ("", guest.user)
        return admission is not None and admission.user not in unchecked

    def _guest(self, present: Present) -> Stays | int:
        guest = self._now.guest
        if guest is not None and guest.account == present.account:
            return Stays(guest)
        return REFUSED if present.admission is None and guest is None else MOVED

    # ---- what was shown

    def _proves(self, present: Present, stored: str) -> bool:
        name, kind = _identity(present)
        if self._now.maps(present.options) and not self.before.by_certificate:
            return self._now.mapped(present.secured) == name
        if kind == "nkey":
            return present.admission is not None  # its signature was of a nonce that is gone
        if self._now.certified(name) and not self._now.maps(present.options):
            return False  # an empty password is no password
        return self._fits(stored, self._password_before(present), present.options.password)

    def _has_token(self, present: Present) -> bool:
        return self._fits(self._now.token, self.before.token, present.options.auth_token)

    def _password_before(self, present: Present) -> str | None:
        """What the password fitted; None: nothing."""
        user = self.before.user(*_identity(present))
        return None if user is None or present.admission is None else user.password

    def _fits(self, stored: str, before: str | None, given: str | None) -> bool:
        if stored == before:
            return True
        slow = Slow(stored, given or "")
        if not is_bcrypt(stored):
            return password_fits(*slow)
        if slow not in self._hashed:
            raise _NotComputed(slow)
        return self._hashed[slow]


def _proxy_of(present: Present) -> str:
    return "" if present.admission is None else present.admission.proxy


def _as_before(present: Present, admission: Admission) -> Stays:
    """By the proxy that it came by."""
    return Stays(admission._replace(proxy=_proxy_of(present)))


def _named_alike(before: Authenticator, now: Authenticator) -> bool:
    guests = [authenticator.guest and authenticator.guest.user for authenticator in (before, now)]
    return guests[0] == guests[1]


def _identity(present: Present) -> tuple[str, str]:
    """By what it is known, and of which kind that is; "": a token, or nothing."""
    admission, options = present.admission, present.options
    if admission is None:
        return (options.nkey, "nkey") if options.nkey else (options.user or "", "user")
    return ("", "") if admission.user == HIDDEN else (admission.user, admission.kind)
