"""What accounts use on all members of a JetStream cluster: publishes this server's part, and adds
up what the other members publish.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from jsserver.cluster.moves import Usage
from jsserver.services.subjects import is_plain_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import Item
    from jsserver.instances.account import Account

SUBJECT = b"$JSC.ARU."
"""Prefix of the subjects; the account and the member's id follow."""
_USED = struct.Struct("<qqQQ")
"""Bytes in memory and in files, API requests, and failed API requests."""
_FIRST = struct.Struct("<IQ")
"""Next: the number of further tiers, and the length of the first tier's name, which follows. The
bytes above are the first tier's. An account without tiers has one tier with an empty name."""
_FURTHER = struct.Struct("<qqQ")
"""For each further tier: bytes in memory and in files, and the length of its name, which
follows."""
PERIOD = 0.25
"""Seconds between two messages about changes, as with nats-server."""
AGAIN = 6
"""Periods after which unchanged usage is published again, for servers that joined meanwhile."""


class Usages:
    """Usage of accounts; begin() and close() frame the time in which it is published."""

    def __init__(
        self, accounts: Accounts, system_account: str, running: Mapping[str, Account], *, own: str
    ) -> None:
        """`running`: accounts with JetStream; `own`: this server's id."""
        self._accounts = accounts
        self._system_account = system_account
        self._system = accounts[system_account]
        self._running = running
        self._own = own
        self._used: dict[str, dict[str, Usage]] = {}
        """The other members' usage, by account and member."""
        self._told: dict[str, Usage] = {}
        self._tiers: dict[str, tuple[Usage, dict[str, tuple[int, int]]]] = {}
        """By account, its tiers on this server, and the usage at the time they were added up."""
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._system.serve_requests(SUBJECT + b"*.*")

    def begin(self) -> None:
        """Begins to publish."""
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._tick)

    def close(self) -> None:
        """Stops publishing."""
        if self._timer is not None:
            self._timer.cancel()

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is a member's usage; whether it was."""
        subject = item.texts[0]
        if item.numbers[0] != self._system.id or not subject.startswith(SUBJECT):
            return False
        account, _, peer = subject[len(SUBJECT) :].decode("utf-8", "replace").rpartition(".")
        said = read(item.texts[3])
        if said is not None and peer != self._own:
            self._used.setdefault(account, {})[peer] = said
            self._limit(account)
        return True

    def of(self, account: str) -> Usage:
        """An account's usage on all members, as far as they have published it; in any thread."""
        said = [self._here(account), *self._used.get(account, {}).values()]
        tiers: dict[str, tuple[int, int]] = {}
        for one in said:
            for name, (memory, storage) in one.tiers.items():
                had = tiers.get(name, (0, 0))
                tiers[name] = had[0] + memory, had[1] + storage
        return Usage(
            sum(one.memory for one in said),
            sum(one.storage for one in said),
            sum(one.requests for one in said),
            sum(one.errors for one in said),
            tiers,
        )

    def _here(self, account: str) -> Usage:
        running = self._running.get(account)
        if running is None:
            return Usage()
        used, requests = running.handle.usage(), running.requests()
        now = Usage(used.memory, used.storage, requests.total, requests.errors)
        if not running.limits.tiers:
            return now
        before, tiers = self._tiers.get(account, (Usage(), {}))
        if before[:2] != now[:2]:
            tiers = _tiers_of(running)
            self._tiers[account] = now, tiers
        return now._replace(tiers=tiers)

    def _limit(self, account: str) -> None:
        """Reserves what the other members use, so that the account's limits hold for the
        cluster."""
        running = self._running.get(account)
        if running is not None:
            said = self._used[account].values()
            running.hold_elsewhere(sum(u.memory for u in said), sum(u.storage for u in said))

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._tick)
        self._ticks += 1
        again = self._ticks % AGAIN == 0
        for account in list(self._running):
            now = self._here(account)
            if now != self._told.get(account, Usage()) or (again and now != Usage()):
                self._tell(account, now)

    def _tell(self, account: str, now: Usage) -> None:
        self._told[account] = now
        subject = SUBJECT + f"{account}.{self._own}".encode()
        if self._system_account in self._accounts and is_plain_subject(subject.decode()):
            self._system.publish(subject, b"", b"", packed(now))


def _tiers_of(running: Account) -> dict[str, tuple[int, int]]:
    tiers: dict[str, tuple[int, int]] = {}
    for stream in list(running.streams.values()):
        name = f"R{max(stream.config.num_replicas, 1)}"
        memory, storage = tiers.get(name, (0, 0))
        try:
            size = stream.handle.state().bytes
        except ValueError:
            continue  # just closed
        if stream.config.storage == "memory":
            tiers[name] = memory + size, storage
        else:
            tiers[name] = memory, storage + size
    return tiers


def packed(now: Usage) -> bytes:
    """A usage in the form that members publish."""
    first, *others = [*now.tiers.items()] or [("", (now.memory, now.storage))]
    name = first[0].encode()
    said = _USED.pack(*first[1], now.requests, now.errors)
    said += _FIRST.pack(len(others), len(name)) + name
    for tier, used in others:
        said += _FURTHER.pack(*used, len(tier.encode())) + tier.encode()
    return said


def read(said: bytes) -> Usage | None:
    """A usage that this server or nats-server published; None: the message is too short."""
    if len(said) < _USED.size:
        return None
    memory, storage, requests, errors = _USED.unpack_from(said)
    if len(said) < _USED.size + _FIRST.size:
        return Usage(memory, storage, requests, errors)
    count, length = _FIRST.unpack_from(said, _USED.size)
    at = _USED.size + _FIRST.size
    tiers = {said[at : at + length].decode("utf-8", "replace"): (memory, storage)}
    at += length
    for _ in range(count):
        if len(said) < at + _FURTHER.size:
            return None
        *used, length = _FURTHER.unpack_from(said, at)
        at += _FURTHER.size
        tiers[said[at : at + length].decode("utf-8", "replace")] = used[0], used[1]
        at += length
    memory, storage = (sum(used) for used in zip(*tiers.values(), strict=True))
    tiers.pop("", None)
    return Usage(memory, storage, requests, errors, tiers)
