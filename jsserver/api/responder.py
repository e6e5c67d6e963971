"""Requests as they come out of the inbox, and what answers those on other subjects than the API's.

A responder is made and added where JetStream is put together (`services/jetstream.py`). The
dispatcher knows no single one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jsserver.instances.account import Account

if TYPE_CHECKING:
    from .endpoints import Endpoint


class Request(msgspec.Struct, frozen=True):
    """A message to the control plane that the data plane does not answer itself."""

    account: str
    subject: bytes
    reply: bytes = b""
    headers: bytes = b""
    payload: bytes = b""
    connection: int = 0
    cost: int = 1
    """What it counts of what a connection may ask at once."""
    through: str = ""
    """The account by which it came from another server, and the answer goes back; "": none."""


class Responder:
    """Answers requests on subjects of its own. The base class answers none."""

    def receive(self, request: Request, subject: str) -> bool:
        """Takes a message at once, whose `subject` is given as text, too; whether it did. What is
        taken is reported as finished by the responder."""
        return False

    def route(self, subject: str) -> tuple[Endpoint, list[str]] | None:
        """What serves a request in its turn, among those to the API, and its arguments."""
        return None

    async def recover(self, account: Account) -> None:
        """An account has JetStream, with what it has on disk."""

    async def forget_account(self, account: Account) -> None:
        """JetStream is taken from an account: returns when its streams may be closed."""

    def connection_gone(self, connection: int) -> None:
        """A connection has ended."""

    async def close(self) -> None:
        """Ends what is under way."""
