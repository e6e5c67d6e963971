"""Requests that the server itself makes of clients, and their answers."""

from __future__ import annotations

import asyncio

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import Item
from jsserver.text.nuid import token

INBOX = "$SYS._INBOX."


class Replies:
    """Requests under way; in the event loop's thread only."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._inbox = f"{INBOX}{token(8)}."
        self._served: set[str] = set()
        self._waiting: dict[str, tuple[asyncio.Future[tuple[bytes, bytes]], bool]] = {}
        """By reply subject: the waiting future, and whether an empty answer is taken."""

    async def ask(
        self,
        account: str,
        subject: str,
        headers: bytes,
        payload: bytes,
        seconds: float,
        *,
        empty: bool = True,
    ) -> tuple[bytes, bytes]:
        """The headers and payload of the first answer to a request in an account; TimeoutError.
        `empty`: whether an answer without payload counts."""
        if account not in self._served:
            self._served.add(account)
            self._accounts[account].serve_answers(f"{self._inbox}*".encode())
        reply = self._inbox + token(8)
        future: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = future, empty
        try:
            self._accounts[account].publish(subject.encode(), reply.encode(), headers, payload)
            async with asyncio.timeout(seconds):  # wait_for may pass over a cancellation
                return await future
        finally:
            del self._waiting[reply]

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is an answer, and wakes its requester; whether it
        was."""
        subject, _, headers, payload = item.texts
        if not subject.startswith(self._inbox.encode()):
            return False
        future, empty = self._waiting.get(subject.decode("utf-8", "replace"), (None, False))
        if future is not None and not future.done() and (payload or empty):
            future.set_result((headers, payload))
        return True
