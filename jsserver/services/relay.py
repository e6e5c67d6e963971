"""Passes an account's requests about itself on to the other servers of a cluster, and their answers
back to the requester; has these servers count subscriptions and connections, and tell what they
measured.

Lives in the event loop. Loaded where the server is in a cluster.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import Item
from jsserver.services.elsewhere import Elsewhere
from jsserver.services.measured import Measured
from jsserver.services.subjects import OF_AN_ACCOUNT, SUBSCRIBERS_OF
from jsserver.text.nuid import token

ANSWERS = "$SYS._ANSWERS."
WAITING_MAX = 1024
"""The most requests whose answers are passed on; a further one replaces the oldest."""
WAITING_SECONDS = 30.0
"""Seconds after a request for which its answers are passed on."""
COUNTING_SECONDS = 0.5
"""Seconds that other servers may take to count, as nats-server gives them: servers without clients
of the account do not answer."""


class Asked(NamedTuple):
    """A request under way: the requester's account and reply subject, and when it is given up."""

    account: str
    reply: bytes
    until: float


class Relay:
    """Connects the accounts of a server with the system account of its cluster."""

    def __init__(self, accounts: Accounts, system_account: str, own: str, name: str) -> None:
        """`own`: this server's id."""
        self.elsewhere = Elsewhere(accounts, system_account, own)
        """The connections of accounts at other servers."""
        self.measured = Measured(accounts, system_account, name)
        """What this server and others measure of one answer."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._inbox = f"{ANSWERS}{token(8)}.".encode()
        self._served = False
        self._waiting: dict[bytes, Asked] = {}
        self._counts: dict[bytes, int] = {}
        """What other servers have counted so far, by the inbox for their answers."""

    def ask(self, account: str, item: Item) -> None:
        """Passes an account's request on to the other servers, restricted to this account."""
        self._serve()
        subject, reply, headers, payload = item.texts
        page = subject.decode().rpartition(".")[2]
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        inbox = self._inbox + token(8).encode()
        self._waiting[inbox] = Asked(account, reply, time.monotonic() + WAITING_SECONDS)
        self._system.publish(f"{OF_AN_ACCOUNT}{account}.{page}".encode(), inbox, headers, payload)

    def _serve(self) -> None:
        if not self._served:
            self._served = True
            self._system.serve_requests(self._inbox + b"*")

    async def count(self, asked: bytes) -> int:
        """How many subscriptions the other servers have counted; `asked`: the request to them."""
        if len(self._counts) >= WAITING_MAX:
            return 0
        self._serve()
        inbox = self._inbox + token(8).encode()
        self._counts[inbox] = 0
        self._system.publish(SUBSCRIBERS_OF.encode(), inbox, b"", asked)
        await asyncio.sleep(COUNTING_SECONDS)
        return self._counts.pop(inbox)

    def lost(self, server: str) -> None:
        """A server of this name is gone."""
        self.elsewhere.lost(server)

    def is_own(self, item: Item) -> bool:
        """Whether this server itself passed the request on, and so has answered it already."""
        return item.texts[1].startswith(self._inbox)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is an answer, and passes it on; whether it was."""
        subject, _, headers, payload = item.texts
        if not subject.startswith(self._inbox):
            return self.elsewhere.take(item) or self.measured.take(item)
        if subject in self._counts:
            self._counts[subject] += int(payload) if payload.isdigit() else 0
            return True
        asked = self._waiting.get(subject)
        if asked is None:
            return True
        if asked.until < time.monotonic():
            del self._waiting[subject]
        elif asked.account in self._accounts:
            self._accounts[asked.account].publish(asked.reply, b"", headers, payload)
        return True
