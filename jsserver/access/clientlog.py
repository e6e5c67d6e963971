"""What the log says of connections: who it is about, and what happened, in nats-server's words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jsserver.access.accounts import Accounts
from jsserver.access.auth import Admission
from jsserver.access.clients import HIDDEN, THROTTLED, Connect, Connection, decode_connect
from jsserver.cext.engine import LINE_DEBUG, LINE_PROXY, LINE_QUOTED, Item
from jsserver.config.options import Options
from jsserver.process.logs import Logger
from jsserver.text import goformat

if TYPE_CHECKING:
    from jsserver.access.websocket import Websockets

#: CONNECT members that the trace must not show: these, and what begins like one.
SECRETS = ("sig", "proxy_sig", "nkey", "jwt")
SECRET_BEGINNINGS = ("pass", "auth_token")
REDACTED = "[REDACTED]"

#: Arrows of a traced line by its way: from the client, to the client, of a subscription that ended.
WAYS = ("<<-", "->>", "<->")

VIOLATIONS = {
    b"Publish to": "Publish Violation - Subject",
    b"Publish with Reply of": "Publish Violation - Reply",
    b"Subscription to": "Subscription Violation - Subject",
}

#: What the reason for a close says in a line of its own.
REASONS = {
    "No Responders Requires Headers": "no responders requires headers support",
    "Bad Client Protocol Version": "invalid client protocol",
    "Maximum Connections Exceeded": "maximum connections exceeded",
    "Maximum Account Connections Exceeded": "maximum account active connections exceeded",
    "Maximum Subscriptions Exceeded": "maximum subscriptions exceeded",
}
#: What clients can make happen as often as they like: lines that come seldom.
OFTEN = ("maximum account active connections exceeded", "maximum subscriptions exceeded")
DETAILS = {
    "Authentication Timeout": "Authentication Timeout",
    "Stale Connection": "Stale Client Connection - Closing",
}


SELDOM = 1.0
"""Seconds between two lines that clients could make the log full with."""
LOGINS_AT_ONCE = 10
"""Failed logins that are told of one by one before they come only every SELDOM seconds."""


class Seldom:
    """Which lines of one kind are due: the first few, and then one in SELDOM seconds."""

    def __init__(self, at_once: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = float(at_once)
        self._left = self._at_once
        self._clock = clock
        self._last = clock()

    def due(self) -> bool:
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._last) / SELDOM)
        self._last = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class ClientLog:
    """Writes the data plane's items about connections as lines; `admission` is what let one in."""

    def __init__(
        self,
        log: Logger,
        options: Options,
        accounts: Accounts,
        admission: Callable[[int], Admission | None],
        websockets: Websockets | None,
    ) -> None:
        self._log = log
        self._options = options
        self._accounts = accounts
        self._admission = admission
        self._seldom = {text: Seldom() for text in OFTEN}
        self._logins = Seldom(LOGINS_AT_ONCE)
        self._unlogged = 0
        """Failed logins since the last line about one."""
        self._failed_logins = 0
        self._throttled = 0
        """Connections since the last line about them."""
        self._websockets = websockets

    # ---- who it is about

    def _named(self, address: str, cid: int) -> str:
        if self._websockets is not None and cid in self._websockets:
            return self._websockets.named(cid, address)
        return f"{address} - cid:{cid}"

    def _who(self, address: str, cid: int, options: Connect | None, account: int) -> str:
        """`options` once they are accepted."""
        parts = [self._named(address, cid)]
        if options is not None:
            known = [f"v{options.version}" if options.version else "", options.lang, options.name]
            if any(known):
                parts.append(goformat.quote(":".join(k for k in known if k)))
            admission = self._admission(cid)
            user = options.user if admission is None else admission.user
            kind = "user" if admission is None else admission.kind
            label = "token" if not user or user == HIDDEN else f"{kind}:{user}"
            if user or options.auth_token:
                parts.append(goformat.quote(f"{self._accounts.label_of(account)}/{label}"))
        return " - ".join(parts)

    def _split(self, item: Item) -> tuple[str, int, tuple[bytes, ...]]:
        """Who an item is about, its number and its texts."""
        _, cid, (port, account, number, _), (address, options, *texts) = item
        accepted = decode_connect(options) if options else None
        who = self._who(f"{address.decode()}:{port}", cid, accepted, account)
        return who, number, tuple(texts)

    # ---- items

    def opened(self, item: Item) -> None:
        _, cid, (port, *_), (address, *_) = item
        who = self._named(f"{address.decode()}:{port}", cid)
        self._log.debug(f"{who} - Client connection created")

    def closed(self, c: Connection) -> None:
        options = Connect(c.user, name=c.name, lang=c.lang, version=c.version, nkey=c.nkey)
        refused = c.reason.startswith(("Authentication", "Maximum Account", "Proxy"))
        who = self._who(f"{c.ip}:{c.port}", c.cid, None if refused else options, c.account)
        if c.reason in REASONS:
            text = REASONS[c.reason]
            if text not in OFTEN or self._seldom[text].due():
                self._log.error(f"{who} - {text}")
        if c.reason == THROTTLED:
            self._count_throttled()
        if c.reason == "Maximum Account Connections Exceeded" and c.nkey:
            self._failed(f"{who} - authentication error{_claimed(options)}")
        if c.reason == "Slow Consumer (Pending Bytes)":
            limit = f"MaxPending of {self._options.max_pending} Exceeded"
            self._log.info(f"{who} - Slow Consumer Detected: {limit}")
        elif c.reason == "Slow Consumer (Write Deadline)":
            deadline = goformat.duration(self._options.write_deadline)
            total = f"{c.chunks} chunks of {c.pending} total bytes."
            text = f"WriteDeadline of {deadline} exceeded with {total}"
            self._log.info(f"{who} - Slow Consumer Detected: {text}")
        elif c.reason in DETAILS:
            self._log.debug(f"{who} - {DETAILS[c.reason]}")
        self._log.debug(f"{who} - Client connection closed: {c.shown_reason}")

    def _count_throttled(self) -> None:
        if not self._throttled:
            asyncio.get_running_loop().call_later(SELDOM, self._tell_of_throttled)
        self._throttled += 1

    def _tell_of_throttled(self) -> None:
        count, self._throttled = self._throttled, 0
        self._log.warn(f"Rejected {count} connections due to TLS rate limiting")

    def refused(self, item: Item, options: Connect) -> None:
        """A connection whose CONNECT was not accepted."""
        who, _, _ = self._split(item)
        self._failed(f"{who} - authentication error{_claimed(options)}")

    def why(self, item: Item, text: str) -> None:
        """Logs the reason of a line before, at the level for debugging."""
        who, _, _ = self._split(item)
        self._log.debug(f"{who} - {text}")

    def _failed(self, line: str) -> None:
        """Tells of one, or of those that are too many for a line each together after a while."""
        self._failed_logins += 1
        if self._logins.due():
            self._log.error(line)
            return
        if not self._unlogged:
            asyncio.get_running_loop().call_later(SELDOM, self._tell_of_others)
        self._unlogged += 1

    def _tell_of_others(self) -> None:
        more, self._unlogged = self._unlogged, 0
        total = f"{self._failed_logins} since the start"
        self._log.error(f"authentication error - {more} more failed logins, {total}")

    def violation(self, item: Item) -> None:
        who, _, (what, subject, queue, sid) = self._split(item)
        text = f"{VIOLATIONS[what]} {goformat.quote(subject)}"
        if queue:
            text += f", Queue: {goformat.quote(queue)}"
        if sid:
            text += f", SID {_shown(sid)}"
        self._log.error(f"{who} - {text}")

    def error(self, item: Item) -> None:
        who, form, texts = self._split(item)
        text = _shown(texts[0])
        if form == LINE_QUOTED:
            text += goformat.quote(texts[1]) + _shown(texts[2])
        if form == LINE_DEBUG:
            self._log.debug(f"{who} - {text}")
        elif form == LINE_PROXY:
            address = who.partition(" - ")[0]
            self._log.warn(f"Error reading PROXY protocol header from {address}: {text}")
        elif text == "authentication error":
            self._failed(f"{who} - {text}")
        elif text not in OFTEN or self._seldom[text].due():
            self._log.error(f"{who} - {text}")

    def trace(self, item: Item) -> None:
        if not self._log.trace_on:
            return
        who, way, (verb, rest, *message) = self._split(item)
        line = f"{verb.decode()} {_shown(_redacted(rest) if verb == b'CONNECT' else rest)}".strip()
        self._log.trace(f"{who} - {WAYS[way]} [{line}]")
        payload = b"".join(message)
        if payload:
            most = self._options.max_traced_msg_len
            cut = b"..." if most and len(payload) > most else b""
            shown = goformat.quote((payload[:most] if cut else payload) + cut)
            self._log.trace(f"{who} - {WAYS[way]} MSG_PAYLOAD: [{shown}]")


def _claimed(options: Connect) -> str:
    """Who a connection says it is."""
    if options.nkey:
        return f" - Nkey {goformat.quote(options.nkey)}"
    if options.user:
        return f" - User {goformat.quote(options.user)}"
    return f" - Token {goformat.quote(HIDDEN)}" if options.auth_token else ""


def _shown(text: bytes) -> str:
    """On one line, whatever bytes a client sent."""
    shown = text.decode("utf-8", "replace")
    return shown if shown.isprintable() else goformat.quote(text)[1:-1]


def _redacted(connect: bytes) -> bytes:
    """CONNECT as the trace may show it. What cannot be read is not shown: there is no telling which
    part of it is a password."""
    try:
        fields = msgspec.json.decode(connect)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return REDACTED.encode()
    if not isinstance(fields, dict):
        return REDACTED.encode()
    for key in fields:
        if key.lower() in SECRETS or key.lower().startswith(SECRET_BEGINNINGS):
            fields[key] = REDACTED
    return msgspec.json.encode(fields)
