"""How many connections accounts have at other servers, as these publish it, so that the limits of
accounts hold for all servers together.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext.engine import PlaneClosed

if TYPE_CHECKING:
    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import Item

COUNTS = b"$SYS.ACCOUNT.*.SERVER.CONNS"
"""What servers publish of an account when its connections change, and each 30 seconds."""
HEARD_SECONDS = 75.0
"""Seconds for which a server's word counts."""
ACCOUNTS_MAX = 100_000
"""Accounts at most whose connections at other servers are counted."""
SERVERS_MAX = 10_000
"""Servers at most whose word counts for an account."""


class _Speaker(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Said(msgspec.Struct):
    server: _Speaker
    acc: str = ""
    conns: int = 0
    leafnodes: int = 0


class Elsewhere:
    """The connections of accounts at other servers."""

    def __init__(self, accounts: Accounts, system_account: str, own: str) -> None:
        """`own`: this server's id."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._own = own
        self._said: dict[str, dict[str, tuple[int, int, float]]] = {}
        """Clients, leaf nodes, and when the server said so, by account and the server's name."""
        self._timer: asyncio.TimerHandle | None = None
        self._system.serve_requests(COUNTS)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if a server says how many connections it has of an
        account; whether it was that."""
        subject = item.texts[0]
        if item.numbers[0] != self._system.id or not is_count(subject):
            return False
        try:
            said = msgspec.json.decode(item.texts[3], type=_Said)
        except msgspec.MsgspecError:
            return True
        is_known = said.acc in self._said or len(self._said) < ACCOUNTS_MAX
        if said.server.id != self._own and is_known:
            self._note(said)
        return True

    def _note(self, said: _Said) -> None:
        servers = self._said.setdefault(said.acc, {})
        servers.pop(said.server.name, None)
        if (said.conns > 0 or said.leafnodes > 0) and len(servers) < SERVERS_MAX:
            counts = max(said.conns, 0), max(said.leafnodes, 0)
            servers[said.server.name] = *counts, time.monotonic()
            if self._timer is None:
                self._wait()
        self._count(said.acc)

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARD_SECONDS / 2, self._forget)

    def _forget(self) -> None:
        """Forgets the words of servers that have fallen silent."""
        self._timer = None
        oldest = time.monotonic() - HEARD_SECONDS
        for account, servers in list(self._said.items()):
            silent = [name for name, (_, _, heard) in servers.items() if heard < oldest]
            for name in silent:
                del servers[name]
            if silent:
                with suppress(PlaneClosed):  # the server ends
                    self._count(account)
        if self._said:
            self._wait()

    def lost(self, server: str) -> None:
        """A server of this name is gone, and its clients may come here."""
        for account, servers in list(self._said.items()):
            if servers.pop(server, None) is not None:
                self._count(account)

    def _count(self, account: str) -> None:
        servers = self._said[account]
        if not servers:
            del self._said[account]
        clients = sum(said[0] for said in servers.values())
        leafs = sum(said[1] for said in servers.values())
        self._accounts.count_elsewhere(account, clients, leafs)


def is_count(subject: bytes) -> bool:
    """Whether a subject is one of `COUNTS`."""
    return subject.startswith(b"$SYS.ACCOUNT.") and subject.endswith(b".SERVER.CONNS")
