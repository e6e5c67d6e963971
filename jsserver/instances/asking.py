"""Requests that the server itself makes in an account, and their answers."""

from __future__ import annotations

import asyncio
import contextlib

from jsserver.text import nuid

from .backend import AccountHandle, PlaneClosed

PREFIX = b"$JSC.R."
TOKEN = 8


class Asking:
    """Those that wait for an answer."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def ask(
        self, account: AccountHandle, subject: str, headers: bytes, body: bytes, seconds: float
    ) -> bytes:
        """The first answer to a request on the account's behalf; TimeoutError."""
        reply = PREFIX + nuid.token(TOKEN).encode()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = answer
        account.serve_answers(reply)
        try:
            account.request(subject.encode(), reply, headers, body)
            async with asyncio.timeout(seconds):  # wait_for may pass over a cancellation
                return await answer
        finally:
            del self._waiting[reply]
            with contextlib.suppress(PlaneClosed):
                account.stop_requests(reply)

    def receive(self, subject: bytes, payload: bytes) -> bool:
        """Whether a message is meant as an answer; it is none where nobody waits for it."""
        if not subject.startswith(PREFIX):
            return False
        answer = self._waiting.get(subject)
        if answer is not None and not answer.done():
            answer.set_result(payload)
        return True
