"""Hands what the data plane tells the control plane to whoever is in charge of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from jsserver import goformat
from jsserver.auth import Authenticator
from jsserver.cext import net
from jsserver.clients import Connect, Connection, decode_connect, read_connection
from jsserver.logs import Logger

Item = tuple[int, int, tuple[int, ...], tuple[bytes, ...]]

#: Verbs by the data plane's number of an operation, as traces name them.
VERBS = ("", "CONNECT", "INFO", "PING", "PONG", "PUB", "SUB", "UNSUB", "+OK", "-ERR")

#: CONNECT members that the trace must not show.
SECRETS = ("pass", "auth_token", "sig", "proxy_sig", "nkey")


class Inbox:
    """Drains the data plane's inbox from the event loop and dispatches its items.

    `on_request` gets JetStream API requests, `on_event` what streams and consumers report,
    `on_closed` every connection that ended.
    """

    def __init__(
        self,
        plane: net.DataPlane,
        log: Logger,
        authenticator: Authenticator,
        *,
        on_request: Callable[[Item], None],
        on_event: Callable[[Item], None],
        on_closed: Callable[[Connection], None],
        max_traced: int,
    ) -> None:
        self.plane = plane
        self.log = log
        self.authenticator = authenticator
        self.on_request = on_request
        self.on_event = on_event
        self.on_closed = on_closed
        self.max_traced = max_traced
        self.users: dict[int, str] = {}
        """Who is behind a connection, while authentication is configured."""
        self._dropped = 0
        self._checks: set[asyncio.Task[None]] = set()
        self._handlers: dict[int, Callable[[Item], None]] = {
            net.INBOX_REQUEST: on_request,
            net.INBOX_CONNECT: self._connect,
            net.INBOX_OPENED: self._opened,
            net.INBOX_CLOSED: self._closed,
            net.INBOX_VIOLATION: self._violation,
            net.INBOX_TRACE: self._trace,
            net.INBOX_ERROR: self._error,
            net.INBOX_LOG: self._log_line,
        }

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self.plane.inbox_fd, self.drain)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.plane.inbox_fd)
        for task in self._checks:
            task.cancel()

    def drain(self) -> None:
        for item in self.plane.drain():
            self._handlers.get(item[0], self.on_event)(item)
        dropped = self.plane.dropped()
        if dropped != self._dropped:
            count, self._dropped = dropped - self._dropped, dropped
            self.log.warn(f"JetStream API queue limit reached, dropping {count} requests")

    # ---- connections

    def _connect(self, item: Item) -> None:
        options = decode_connect(item[3][0])
        if self.authenticator.slow(options):
            task = asyncio.get_running_loop().create_task(self._connect_slowly(item[1], options))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
        else:
            self._decide(item[1], options, self.authenticator.admit(options))

    async def _connect_slowly(self, cid: int, options: Connect) -> None:
        self._decide(cid, options, await asyncio.to_thread(self.authenticator.admit, options))

    def _decide(self, cid: int, options: Connect, admission: object) -> None:
        from jsserver.auth import Admission

        if not isinstance(admission, Admission):
            who = options.user or ""
            self.log.error(f'cid:{cid} - authentication error - User "{who}"')
            self.plane.refuse(cid)
            return
        self.users[cid] = admission.user
        if not self.plane.admit(cid, admission.account, admission.permissions):
            self.users.pop(cid, None)

    def user(self, cid: int) -> str:
        return self.users.get(cid, "")

    def _opened(self, item: Item) -> None:
        address = f"{item[3][0].decode()}:{item[2][0]}"
        self.log.debug(f"{address} - cid:{item[1]} - Client connection created")

    def _closed(self, item: Item) -> None:
        connection = read_connection(item)
        connection.user = self.users.pop(item[1], "") or connection.user
        if connection.reason.startswith("Slow Consumer"):
            limit = connection.reason.removeprefix("Slow Consumer (").rstrip(")")
            self.log.info(f"{self._prefix(connection)} - Slow Consumer Detected: {limit} exceeded")
        if self.log.debug_on:
            prefix = self._prefix(connection)
            self.log.debug(f"{prefix} - Client connection closed: {connection.reason}")
        self.on_closed(connection)

    def _prefix(self, c: Connection) -> str:
        parts = [f"{c.ip}:{c.port}", f"cid:{c.cid}"]
        if c.lang or c.version or c.name:
            known = [f"v{c.version}" if c.version else "", c.lang, c.name]
            parts.append('"' + ":".join(k for k in known if k) + '"')
        return " - ".join(parts)

    def _who(self, cid: int) -> str:
        item = self.plane.connection(cid)
        return f"cid:{cid}" if item is None else self._prefix(read_connection(item))

    # ---- the log

    def _violation(self, item: Item) -> None:
        what, subject, queue = item[3]
        texts = {
            b"Publish to": "Publish Violation - Subject",
            b"Publish with Reply of": "Publish Violation - Reply",
            b"Subscription to": "Subscription Violation - Subject",
        }
        user = f", user {goformat.quote(self.user(item[1]))}" if self.users else ""
        tail = f", Queue: {goformat.quote(queue)}" if queue else ""
        self.log.error(
            f"{self._who(item[1])} - {texts[what]} {goformat.quote(subject)}{tail}{user}"
        )

    def _error(self, item: Item) -> None:
        text, sample = item[3]
        self.log.error(f"{self._who(item[1])} - {text.decode()}: {goformat.quote(sample)}")

    def _log_line(self, item: Item) -> None:
        self.log.warn(item[3][0].decode("utf-8", "replace"))

    def _trace(self, item: Item) -> None:
        if not self.log.trace_on:
            return
        verb = VERBS[item[2][0]]
        args = item[3][0]
        if verb == "CONNECT":
            args = _redacted(args)
        text = f"{verb} {args.decode('utf-8', 'replace')}".strip()
        who = self._who(item[1])
        self.log.trace(f"{who} - <<- [{text}]")
        if len(item[3]) > 1 and item[3][1]:
            data = item[3][1]
            cut = b"..." if self.max_traced and len(data) > self.max_traced else b""
            shown = goformat.quote((data[: self.max_traced] if cut else data) + cut)
            self.log.trace(f"{who} - <<- MSG_PAYLOAD: [{shown}]")


def _redacted(connect: bytes) -> bytes:
    try:
        fields = msgspec.json.decode(connect)
    except msgspec.DecodeError:
        return connect
    if not isinstance(fields, dict):
        return connect
    for key in fields:
        if key.lower() in SECRETS:
            fields[key] = "[REDACTED]"
    return msgspec.json.encode(fields)
