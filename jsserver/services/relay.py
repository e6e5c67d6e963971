"""Requests of an account about itself, which all servers of a cluster answer: passed on to the
others, and their answers to the asker.

Lives in the event loop. Loaded where the server is in a cluster.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import Item
from jsserver.services.subjects import OF_AN_ACCOUNT
from jsserver.text.nuid import token

ANSWERS = "$SYS._ANSWERS."
WAITING_MAX = 1024
"""Requests whose answers are passed on; the oldest gives way to one more."""
WAITING_SECONDS = 30.0
"""How long answers are passed on."""


class Asked(NamedTuple):
    """Whose answers are waited for: the asker's account and reply, until when."""

    account: str
    reply: bytes
    until: float


class Relay:
    """Between the accounts of a server and the system account of its cluster."""

    def __init__(self, accounts: Accounts, system_account: str) -> None:
        self._accounts = accounts
        self._system = accounts[system_account]
        self._inbox = f"{ANSWERS}{token(8)}.".encode()
        self._served = False
        self._waiting: dict[bytes, Asked] = {}

    def ask(self, account: str, item: Item) -> None:
        """Passes an account's request on to the other servers, about this account alone."""
        if not self._served:
            self._served = True
            self._system.serve_requests(self._inbox + b"*")
        subject, reply, headers, payload = item.texts
        page = subject.decode().rpartition(".")[2]
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        inbox = self._inbox + token(8).encode()
        self._waiting[inbox] = Asked(account, reply, time.monotonic() + WAITING_SECONDS)
        self._system.publish(f"{OF_AN_ACCOUNT}{account}.{page}".encode(), inbox, headers, payload)

    def is_own(self, item: Item) -> bool:
        """Whether this server has passed the request on itself, and has answered it already."""
        return item.texts[1].startswith(self._inbox)

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is an answer, which goes to the asker."""
        subject, _, headers, payload = item.texts
        if not subject.startswith(self._inbox):
            return False
        asked = self._waiting.get(subject)
        if asked is None:
            return True
        if asked.until < time.monotonic():
            del self._waiting[subject]
        elif asked.account in self._accounts:
            self._accounts[asked.account].publish(asked.reply, b"", headers, payload)
        return True
