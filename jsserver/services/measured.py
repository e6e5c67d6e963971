"""Reports of a service's latency whose client is at another server: that server measures the
answer, too, and tells the one that reports.

Lives in the event loop. Loaded where there are other servers.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import Item, PlaneClosed
from jsserver.services.latency import Times, publish_with
from jsserver.text.goformat import ZERO_TIME, rfc3339_nano
from jsserver.text.identity import short_hash

MEASURED = "$SYS.LATENCY.M2."
"""And the hash of a server's name: where that server is told what others measured."""
PATIENCE_SECONDS = 2.0
"""Seconds between an answer and what the server says of it where it was given."""
WAITING_MAX = 10_000
"""Reports at most that wait; a further one replaces the oldest, which goes out as it is. Also the
most words of other servers that wait for their answers."""
HASH = slice(-10, -2)
"""Where the hash of the server that reports stands in a reply."""
MAPPED = "_GR_."
"""What a reply begins with that comes from another cluster, before its own and two hashes."""


class _Figures(msgspec.Struct):
    responder: msgspec.Raw = msgspec.Raw(b"")
    service: int = 0


class _Said(msgspec.Struct):
    m2: _Figures
    account: str = ""
    req_id: str = ""


class _Responder(msgspec.Struct):
    rtt: int = 0


class Word(NamedTuple):
    """What another server says of an answer: how long the service took, in ns, and who it is."""

    service: int
    rtt: int
    responder: bytes


class Measured:
    """What this server and others measure of the same answers."""

    def __init__(self, accounts: Accounts, system_account: str, name: str) -> None:
        """`name`: this server's."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._subject = f"{MEASURED}{short_hash(name)}".encode()
        self._reports: dict[tuple[str, bytes], tuple[Item, float]] = {}
        """By account and reply: reports that wait for a word, and until when."""
        self._words: dict[tuple[str, bytes], tuple[Word, float]] = {}
        """Likewise words that came before their answers."""
        self._timer: asyncio.TimerHandle | None = None
        self._system.serve_requests(self._subject)

    # ---- answers from here

    def tell(self, item: Item) -> None:
        """Tells the server that reports of an answer what was measured here, by an
        INBOX_MEASURED."""
        _, _, (account, start, service, total), (reply, responder) = item
        name = self._accounts.name_of(account)
        figures = {
            "type": "",
            "id": "",
            "timestamp": ZERO_TIME,
            "status": 200,
            "responder": msgspec.Raw(responder),
            "start": rfc3339_nano(start),
            "service": service,
            "system": 0,
            "total": total,
        }
        said = {"account": name, "req_id": reply.decode(), "m2": figures}
        subject = MEASURED.encode() + reply[HASH]
        self._system.publish(subject, b"", b"", msgspec.json.encode(said))

    # ---- answers from elsewhere

    def report(self, item: Item) -> bool:
        """Takes the report that an INBOX_LATENCY is about, if another server knows the responder;
        whether that is so."""
        reply = item.texts[4]
        if not reply:
            return False
        key = self._accounts.name_of(item.numbers[0]), reply
        known = self._words.pop(key, None)
        if known is not None:
            self._publish(item, known[0])
            return True
        if len(self._reports) >= WAITING_MAX:
            self._publish(self._reports.pop(next(iter(self._reports)))[0], None)
        self._reports[key] = item, time.monotonic() + PATIENCE_SECONDS
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._give_up)
        return True

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if another server says what it measured; whether it is
        that."""
        if item.texts[0] != self._subject or item.numbers[0] != self._system.id:
            return False
        try:
            said = msgspec.json.decode(item.texts[3], type=_Said)
            responder = msgspec.json.decode(said.m2.responder, type=_Responder)
        except msgspec.MsgspecError:
            return True
        reply = said.req_id.split(".", 3)[3] if said.req_id.startswith(MAPPED) else said.req_id
        key = said.account, reply.encode()
        word = Word(said.m2.service, responder.rtt, bytes(said.m2.responder))
        waiting = self._reports.pop(key, None)
        if waiting is not None:
            self._publish(waiting[0], word)
        else:
            self._note(key, word)
        return True

    def _note(self, key: tuple[str, bytes], word: Word) -> None:
        now = time.monotonic()
        while self._words:
            oldest = next(iter(self._words))
            if self._words[oldest][1] > now and len(self._words) < WAITING_MAX:
                break
            del self._words[oldest]
        self._words[key] = word, now + PATIENCE_SECONDS

    def _give_up(self) -> None:
        """Publishes what waited long enough."""
        self._timer = None
        now = time.monotonic()
        while self._reports:
            oldest = next(iter(self._reports))
            item, until = self._reports[oldest]
            if until > now:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(until - now, self._give_up)
                return
            del self._reports[oldest]
            self._publish(item, None)

    def _publish(self, item: Item, word: Word | None) -> None:
        """Publishes a report; `word`: what the other server says, None: nothing."""
        _, _, (_, _, start, service, total), _ = item
        system, responder = 0, b""
        if word is not None:
            system = max(service - word.service - word.rtt, 0)
            service, responder = max(word.service, 0), word.responder
        with suppress(PlaneClosed):  # the server ends while a report waits
            publish_with(self._accounts, item, Times(start, service, system, total), responder)
