"""Passwords of other servers where the configuration has a hash: bcrypt is slow, and is computed
beside the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import TYPE_CHECKING

from jsserver.access.auth import password_fits
from jsserver.links.words import RouteConnect, read
from jsserver.text.passwords import is_bcrypt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.services.linked import Pace

PROVEN_MAX = 8
"""Passwords that are remembered; there is one, and more only after reloads."""


def _digest(stored: str, given: str) -> bytes:
    return sha256(f"{stored}\0{given}".encode("utf-8", "surrogatepass")).digest()


def password_sent(stored: str, user: str, urls: Iterable[tuple[str, str]]) -> str:
    """The password for servers whose URL has no login: the configured one, or where that is a hash,
    the password of the first of the `urls` with the same user."""
    if not is_bcrypt(stored):
        return stored
    return next((password for name, password in urls if name == user and password), "")


class Passwords:
    """The passwords of one block of the configuration."""

    def __init__(self) -> None:
        self._proven: list[bytes] = []
        """Digests of hashes with passwords that fit these."""
        self._thread: ThreadPoolExecutor | None = None

    def fits(self, stored: str, given: str) -> bool:
        """Whether a password is the stored one; of a hash: as far as `prove` has found out."""
        if is_bcrypt(stored):
            return _digest(stored, given) in self._proven
        return password_fits(stored, given)

    def connect(
        self,
        pace: Pace,
        login: tuple[str, str],
        text: bytes,
        *,
        is_there: Callable[[], bool],
        then: Callable[[], None],
    ) -> None:
        """Does what is to be done with a CONNECT, its `text`: at once, or when `fits` knows about
        its password, if the connection is there by then. `login`: the configured user and
        password."""
        given = self._slow(*login, text)
        if given:
            pace.begin(self._prove(pace, login[1], given, is_there, then))
        else:
            then()

    def _slow(self, user: str, stored: str, text: bytes) -> str:
        """The password of a CONNECT that has to be hashed before `fits` knows; "": none has."""
        if not is_bcrypt(stored):
            return ""
        try:
            said = read(text, RouteConnect)
        except ValueError:
            return ""
        if said.user != user or self.fits(stored, said.password):
            return ""
        return said.password

    async def _prove(
        self,
        pace: Pace,
        stored: str,
        given: str,
        is_there: Callable[[], bool],
        then: Callable[[], None],
    ) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "password")

        def check() -> None:
            # The connections of a pool come together, with one password.
            if is_there() and not self.fits(stored, given) and password_fits(stored, given):
                self._proven = [_digest(stored, given), *self._proven][:PROVEN_MAX]

        await asyncio.get_running_loop().run_in_executor(self._thread, check)
        if is_there():
            then()
            pace.go_on()

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
