"""Requests to the system: who am I, what does my account do here, and all that the users of the
system account may ask.

nats-server's system account offers few services to every account; what these tell concerns the
asker's account alone. The others are for its own users (`operators.py`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from jsserver.access.auth import Admission
from jsserver.cext.engine import Item
from jsserver.config.options import Permissions, SubjectPermission
from jsserver.services.answers import Answer, ServerFilter, encoded
from jsserver.services.subjects import OF_AN_ACCOUNT, USER_INFO
from jsserver.wire.decode import Unreadable, parse
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.server import Server
    from jsserver.services.operators import Operators

ACCEPT_ENCODING = b"\r\naccept-encoding:"
PLAIN = b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n"
"""Says to whoever takes compressed answers too that this one is not."""

PENDING_MAX = 256
"""Requests that wait for an answer; more are dropped, as by a server that is too busy. Those of the
system account's users are counted by themselves."""


class SubjectRules(Wire):
    """What may be published or subscribed to."""

    allow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)


class ResponseRules(Wire):
    """Leave to answer: how often, and for how long in ns."""

    max: int = always(0)
    ttl: int = always(0)


class PermissionRules(Wire):
    """The permissions of a user."""

    publish: SubjectRules
    subscribe: SubjectRules
    responses: ResponseRules | None = None


class UserInfo(Wire):
    """Who the asker is."""

    user: str = always("")
    account: str = always("")
    account_name: str = always("")
    permissions: PermissionRules | None = None


class Queue:
    """Requests that one thread answers, one after another."""

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(1, name)
        self.pending = 0


class System:
    """Answers in threads of its own, so that a page of many connections holds nothing up: one for
    the system account's users, one for all others. A connection whose request is not answered yet
    is not read for long (`Server.finished`)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._everybody = Queue("system")
        self._operators = Queue("operators")
        self._pages: Operators | None = None

    def close(self) -> None:
        """Answers nothing more."""
        for queue in (self._everybody, self._operators):
            queue.pool.shutdown(wait=True, cancel_futures=True)

    def request(self, item: Item) -> None:
        """One request, as it comes out of the inbox."""
        _, cid, (account_id,), (subject, reply, _, payload) = item
        account = self._server.accounts.name_of(account_id)
        asked = subject.decode("utf-8", "replace")
        within = account == self._server.system_account
        queue = self._operators if within else self._everybody
        told = within and asked != USER_INFO and self._at_once(asked, reply, payload)
        if told or not reply or queue.pending >= PENDING_MAX:
            self._server.finished(cid)
        else:
            queue.pending += 1
            loop = asyncio.get_running_loop()
            who = self._server.inbox.admissions.get(cid)
            work = loop.run_in_executor(queue.pool, self._answer, asked, account, who, payload)
            work.add_done_callback(lambda done: self._done(queue, item, account, done))

    def _at_once(self, subject: str, reply: bytes, payload: bytes) -> bool:
        """What is told by the events, if that is asked for."""
        events = self._server.events
        if events is None:
            return False
        if not reply and subject.endswith((".PING", ".STATSZ")):
            events.tell_figures()
            return True
        if not subject.endswith(".CONNS"):
            return False
        account = subject.removeprefix(OF_AN_ACCOUNT).removesuffix(".CONNS")
        found = events.connections_of(account) if reply and _is_json(payload) else None
        if found is not None and found.conns:
            self._server.accounts[self._server.system_account].publish(
                reply, b"", b"", encoded(found)
            )
        return True

    def _done(self, queue: Queue, item: Item, account: str, done: asyncio.Future[bytes]) -> None:
        queue.pending -= 1
        self._server.finished(item.cid)
        _, reply, headers, _ = item.texts
        if not done.cancelled() and done.result() and account in self._server.accounts:
            told = PLAIN if ACCEPT_ENCODING in headers.lower() else b""
            self._server.accounts[account].publish(reply, b"", told, done.result())

    def _answer(self, subject: str, account: str, who: Admission | None, payload: bytes) -> bytes:
        """The bytes of an answer; none where the request is for other servers."""
        if subject == USER_INFO:
            user = _user(account, self._server.accounts.tag_of(account), who)
            return encoded(Answer(server=self._server.identity.info(), data=user))
        if self._pages is None:
            from jsserver.services.operators import Operators  # with it comes monitoring

            self._pages = Operators(self._server)
        if account == self._server.system_account:
            answer = self._pages.answer(subject, payload)
        else:
            answer = self._pages.answer_within(account, subject, payload)
        return b"" if answer is None else encoded(answer)


def _is_json(payload: bytes) -> bool:
    try:
        parse(payload, ServerFilter, strict=False)
    except Unreadable:
        return False
    return True


def _user(account: str, tag: str, who: Admission | None) -> UserInfo:
    info = UserInfo(account=account, account_name=tag)
    if who is not None:
        info.user = who.user
        info.permissions = None if who.rules is None else _rules(who.rules)
    return info


def _rules(permissions: Permissions) -> PermissionRules:
    def rules(of: SubjectPermission | None) -> SubjectRules:
        of = of or SubjectPermission()
        return SubjectRules(allow=of.allow or [], deny=of.deny or [])

    responses = permissions.responses
    return PermissionRules(
        publish=rules(permissions.publish),
        subscribe=rules(permissions.subscribe),
        responses=None
        if responses is None
        else ResponseRules(max=responses.max, ttl=responses.ttl),
    )
