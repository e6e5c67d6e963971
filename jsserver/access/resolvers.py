"""Where the tokens of accounts are found: in memory, over HTTP, or in a directory.

A directory holds a file `<account>.jwt` for each account, as nats-server's do.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from jsserver.cext.bytes import sha256
from jsserver.config.options import OutgoingTls
from jsserver.jwt.claims import Account, Claims
from jsserver.jwt.tokens import TOKEN_MAX, TokenError, decode
from jsserver.jwt.validation import is_key
from jsserver.text.goformat import quote, reason
from jsserver.text.identity import PREFIX_ACCOUNT

if TYPE_CHECKING:
    from ssl import SSLContext

FETCH_SECONDS = 1.9
"""How long a token is waited for, unless the configuration says something else."""
CACHED_MAX = 1000
"""Tokens in a cache, likewise."""
_REDIRECTS_MAX = 10
_SUFFIX = ".jwt"
_DELETED = ".deleted"
_PART = ".tmp"


class NotFound(Exception):
    """There is no token of this account, or it could not be had."""


class NotStored(Exception):
    """Why a token is not kept, or not deleted."""


class Resolver(Protocol):
    """Where tokens are found; may be asked from several threads at once, and may wait."""

    def fetch(self, account: str) -> str:
        """The token of an account, or NotFound."""


class MemoryResolver:
    """The tokens that the configuration has."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    def fetch(self, account: str) -> str:
        try:
            return self._tokens[account]
        except KeyError:
            raise NotFound("account missing") from None


class UrlResolver:
    """Tokens by GET of a base URL and the account's name behind it; https is secured by `tls`."""

    def __init__(self, url: str, tls: OutgoingTls) -> None:
        self._url = url
        self._tls = tls
        self._is_secure = url.lower().startswith("https:")

    def fetch(self, account: str) -> str:
        url = self._url + account
        try:
            return self._get(url)
        except (OSError, ValueError) as error:
            raise NotFound(f"could not fetch <{quote(_redacted(url))}>: {error}") from None

    @cached_property
    def _context(self) -> SSLContext | None:
        """What connections are secured by; OSError or ValueError where its files are not usable."""
        if not self._is_secure:
            return None
        from jsserver.access.fetch import ssl_module

        ssl = ssl_module()
        tls = self._tls
        context: SSLContext = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _get(self, url: str) -> str:
        import asyncio
        from http.client import responses

        # Imported only here: most servers speak HTTP to nobody.
        from jsserver.access.fetch import fetch

        status, body = asyncio.run(
            fetch(url, FETCH_SECONDS, TOKEN_MAX, context=self._context, redirects=_REDIRECTS_MAX)
        )
        if status != 200:
            raise ValueError(f"{status} {responses.get(status, '')}")
        return body.decode("ascii").strip()


def _redacted(url: str) -> str:
    """Without what is secret of it."""
    scheme, slashes, rest = url.partition("//")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if ":" in user:
        user = user.partition(":")[0] + ":xxxxx"
    return scheme + slashes + user + at + host + slash + path


class _Kept:
    """What is known of a file: a digest of its contents, and when it is to be gone (0: never)."""

    __slots__ = ("digest", "ends")

    def __init__(self, digest: int, ends: float) -> None:
        self.digest = digest
        self.ends = ends


class Directory:
    """A directory of tokens, which no other server uses. From any thread.

    A full one has all of them and refuses more than `limit`; a cache drops the one that was not
    used for longest, and what was not used for `ttl` seconds. Deleted files are renamed, or gone
    where deletes are `hard`.
    """

    def __init__(
        self, path: str, *, cache: bool = False, limit: int = 0, ttl: float = 0, hard: bool = False
    ) -> None:
        """OSError where the directory cannot be made or read."""
        os.makedirs(path, exist_ok=True)
        self.path = os.path.abspath(path)
        self._cache = cache
        self._limit = limit or (CACHED_MAX if cache else 0)
        self._ttl = ttl
        self._hard = hard
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        """In the order in which they were used."""
        self._digest = 0
        self.rescan()

    def rescan(self) -> None:
        """Reads the directory again: another process may have changed it."""
        with self._lock:
            self._kept.clear()
            self._digest = 0
            for name in sorted(os.listdir(self.path)):
                if name.endswith(_PART):
                    os.unlink(os.path.join(self.path, name))  # a write that was cut short
                elif name.endswith(_SUFFIX):
                    with contextlib.suppress(OSError, UnicodeDecodeError):
                        self._track(name.removesuffix(_SUFFIX), self._read(name))

    # ---- reading

    def fetch(self, account: str) -> str:
        try:
            token = self._read(self._file(account))
        except (NotStored, OSError, UnicodeDecodeError):
            raise NotFound("account jwt not found") from None
        with self._lock:
            kept = self._kept.pop(account, None)
            if kept is not None:
                kept.ends = time.time() + self._ttl if self._ttl else kept.ends
                self._kept[account] = kept
        return token

    def names(self) -> list[str]:
        """The accounts whose tokens are here."""
        with self._lock:
            return sorted(self._kept)

    def pack(self) -> list[tuple[str, str]]:
        """The accounts whose tokens are valid still, and these."""
        now = time.time()
        found = []
        for name in self.names():
            try:
                token = self._read(self._file(name))
                expires = decode(token).exp
            except (NotStored, OSError, UnicodeDecodeError):
                continue
            except TokenError:
                expires = 0
            if token and not 0 < expires < now:
                found.append((name, token))
        return found

    @property
    def digest(self) -> bytes:
        """The XOR of the SHA-256 of all tokens."""
        with self._lock:
            return self._digest.to_bytes(32, "big")

    def _file(self, account: str) -> str:
        if not is_key(account, PREFIX_ACCOUNT):
            raise NotStored("invalid public key")
        return account + _SUFFIX

    def _read(self, file: str) -> str:
        with open(os.path.join(self.path, file), "rb") as opened:
            return opened.read(TOKEN_MAX + 1).decode("ascii")

    # ---- writing

    def store(self, account: str, token: str) -> bool:
        """Keeps the token of an account; whether it is another one than before. NotStored, where an
        older one would take the place of a newer one too."""
        file = self._file(account)
        with self._lock:
            kept = self._kept.get(account)
            if kept is not None:
                if kept.digest == _digest(token):
                    return False
                self._refuse_older(file, token)
            elif self._limit and len(self._kept) >= self._limit:
                if not self._cache:
                    raise NotStored("jwt store is full")
                self._drop(next(iter(self._kept)))
            try:
                self._write(file, token)
            except OSError as error:
                raise NotStored(reason(error).lower()) from None
            self._track(account, token)
        return True

    def _refuse_older(self, file: str, token: str) -> None:
        try:
            before: Claims = decode(self._read(file))
        except (OSError, TokenError, UnicodeDecodeError):
            return  # whatever it is, it is worth nothing
        if before.iat > decode(token).iat:
            raise NotStored("a newer jwt is stored")

    def _write(self, file: str, token: str) -> None:
        """The file has the whole of one token, also after a power cut."""
        path = os.path.join(self.path, file)
        part = path + _PART
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            data = token.encode()
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(part, path)
        self._sync()

    def _sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _track(self, account: str, token: str) -> None:
        digest = _digest(token)
        self._untrack(account)
        ends = time.time() + self._ttl if self._ttl else 0.0
        if not self._ttl:
            with contextlib.suppress(TokenError):
                ends = float(decode(token).exp)
        self._kept[account] = _Kept(digest, ends)
        self._digest ^= digest

    def _untrack(self, account: str) -> None:
        kept = self._kept.pop(account, None)
        if kept is not None:
            self._digest ^= kept.digest

    def _drop(self, account: str) -> None:
        """The file is gone; that of a cache comes again when it is asked for."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, account + _SUFFIX))
        self._untrack(account)

    def delete(self, account: str) -> bool:
        """Whether there was a token of the account; NotStored."""
        file = self._file(account)
        path = os.path.join(self.path, file)
        with self._lock:
            try:
                if self._hard:
                    os.unlink(path)
                else:
                    os.replace(path, path + _DELETED)
                self._sync()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise NotStored(reason(error).lower()) from None
            self._untrack(account)
        return True

    def expire(self) -> None:
        """Drops tokens whose time is over; to be called now and then."""
        now = time.time()
        with self._lock:
            over = [name for name, kept in self._kept.items() if 0 < kept.ends <= now]
            for name in over:
                with contextlib.suppress(OSError):
                    self._drop(name)


def _digest(token: str) -> int:
    return int.from_bytes(sha256(token.encode()), "big")


def preload(directory: Directory, tokens: Mapping[str, str]) -> None:
    """Keeps tokens of the configuration, unless there are newer ones; NotStored where one cannot be
    kept."""
    for account, token in tokens.items():
        try:
            before = decode(directory.fetch(account))
        except (NotFound, TokenError):
            before = Account()
        if before.iat <= decode(token).iat:
            directory.store(account, token)
