"""Requests to `$SYS`: about the requester and its account, and those of the system account's users.

nats-server's system account offers a few services to every account; their answers concern only the
requester's account. All others are for its own users (`operators.py`).
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec

from jsserver.access.accounts import Accounts
from jsserver.access.auth import Admission
from jsserver.cext.bytes import subject_is_literal
from jsserver.cext.engine import ConnNumbers, DataPlane, Item
from jsserver.config.options import Permissions, SubjectPermission
from jsserver.config.values import MAX_INT64
from jsserver.process.tasks import Tasks
from jsserver.services.answers import Answer, Failure, Identity, ServerFilter, encoded
from jsserver.services.encodings import encoded_for
from jsserver.services.subjects import (
    OF_A_SERVER,
    OF_AN_ACCOUNT,
    SUBSCRIBERS,
    SUBSCRIBERS_OF,
    USER_INFO,
)
from jsserver.wire.decode import Unreadable, parse
from jsserver.wire.pieces import pieces
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.services.events import Events
    from jsserver.services.operators import Operators
    from jsserver.services.relay import Relay

OWN = (USER_INFO, SUBSCRIBERS)
"""Requests that the other servers do not answer."""
PENDING_MAX = 256
"""The most requests that wait for an answer; further ones are dropped, as by an overloaded server.
Those of the system account's users are counted separately."""


class SubjectRules(Wire):
    """Subjects that a user may publish or subscribe to."""

    allow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)


class ResponseRules(Wire):
    """The permission to answer: how many times, and for how long in ns."""

    max: int = always(0)
    ttl: int = always(0)


class PermissionRules(Wire):
    """The permissions of a user."""

    publish: SubjectRules
    subscribe: SubjectRules
    responses: ResponseRules | None = None


class UserInfo(Wire):
    """The requester."""

    user: str = always("")
    account: str = always("")
    account_name: str = always("")
    user_name: str = ""
    permissions: PermissionRules | None = None
    expires: int = 0
    """ns from now until the login expires; 0: never."""


class AskedSubscribers(msgspec.Struct, omit_defaults=True):
    """The subscriptions to count; the queue group is in base64, as Go writes bytes."""

    acc: str = ""
    subject: str = ""
    queue: str = ""


class Queue:
    """Requests that a thread answers one after another."""

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(1, name)
        self.pending = 0


class System:
    """Answers requests in two threads, so that a page of many connections delays nothing else: one
    for the system account's users, one for all others. A connection with an unanswered request is
    not read further for a while."""

    def __init__(
        self,
        plane: DataPlane,
        accounts: Accounts,
        system_account: str,
        identity: Identity,
        admissions: Mapping[int, Admission],
        *,
        finished: Callable[[int, int], None],
        relay: Relay | None,
        events: Callable[[], Events | None],
        pages: Callable[[], Operators],
        reload: Callable[[], Awaitable[str]],
    ) -> None:
        """`admissions`: who is behind each connection; `finished`: is called for answered requests;
        `relay`: has the other servers of the cluster answer, too; `events`: returns the events,
        None without; `pages`: makes the answers for the system account's users; `reload`: reloads
        the configuration file, and returns why it failed, "" if it did not."""
        self._plane = plane
        self._accounts = accounts
        self._system_account = system_account
        self._identity = identity
        self._admissions = admissions
        self._finished = finished
        self._relay = relay
        self._events = events
        self._make_pages = pages
        self._reload_file = reload
        self._everybody = Queue("system")
        self._operators = Queue("operators")
        self._pages: Operators | None = None
        self._tasks = Tasks()
        self._closed = False

    def close(self) -> None:
        """Stops answering."""
        self._closed = True
        self._tasks.cancel()
        for queue in (self._everybody, self._operators):
            queue.pool.shutdown(wait=True, cancel_futures=True)

    def request(self, item: Item) -> None:
        """Takes a request from the inbox."""
        _, cid, (account_id, cost), (subject, reply, _, payload) = item
        account = self._accounts.name_of(account_id)
        asked = subject.decode("utf-8", "replace")
        within = account == self._system_account
        queue = self._operators if within else self._everybody
        if self._relay is not None and not within and asked not in OWN and reply:
            self._relay.ask(account, item)
        own = within and self._relay is not None and self._relay.is_own(item)
        own = own or (asked == SUBSCRIBERS and self._came_by_link(cid))
        told = within and asked != USER_INFO and self._at_once(asked, reply, payload)
        if told or own or not reply or queue.pending >= PENDING_MAX:
            self._finished(cid, cost)
        elif within and asked == f"{OF_A_SERVER}{self._identity.id}.RELOAD":
            queue.pending += 1
            task = self._tasks.begin(self._reload(payload))
            task.add_done_callback(lambda done: self._done(queue, item, account, done))
        else:
            queue.pending += 1
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(queue.pool, self._answer, asked, account, item)
            work.add_done_callback(lambda done: self._done(queue, item, account, done))

    def _came_by_link(self, cid: int) -> bool:
        """Whether a request is for the server that another server has it from."""
        return self._relay is not None and self._plane.connection(cid) is None

    def _at_once(self, subject: str, reply: bytes, payload: bytes) -> bool:
        """Answers requests that the events answer; whether this was one."""
        events = self._events()
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
            self._accounts[self._system_account].publish(reply, b"", b"", encoded(found))
        return True

    async def _reload(self, payload: bytes) -> tuple[bytes, bytes]:
        """Reloads the configuration file; headers and payload of the answer."""
        identity = self._identity
        answer = Answer(server=identity.info())
        try:
            if not identity.is_meant(parse(payload, ServerFilter, strict=False)):
                return b"", b""
        except Unreadable as error:
            answer.error = Failure(code=400, description=str(error))
            return b"", encoded(answer)
        if why := await asyncio.shield(self._reload_file()):
            answer.error = Failure(code=500, description=why)
        return b"", encoded(answer)

    def _done(
        self, queue: Queue, item: Item, account: str, done: asyncio.Future[tuple[bytes, bytes]]
    ) -> None:
        queue.pending -= 1
        if self._closed:
            return  # the requester is gone, too
        self._finished(item.cid, item.numbers[1])
        if done.cancelled() or not done.result()[1] or account not in self._accounts:
            return
        if self._relay is not None and item.texts[0] == SUBSCRIBERS.encode():
            self._tasks.begin(self._count(self._relay, item, account, int(done.result()[1])))
        else:
            self._accounts[account].publish(item.texts[1], b"", *done.result())

    async def _count(self, relay: Relay, item: Item, account: str, here: int) -> None:
        """Answers with the subscriptions here and on the other servers."""
        subject, queue = _counted(item.texts[3])
        asked = AskedSubscribers(
            acc=self._account_of(item.cid, account),
            subject=subject.decode("utf-8", "replace"),
            queue=base64.b64encode(queue or b"").decode(),
        )
        total = here + await relay.count(encoded(asked))
        if not self._closed and account in self._accounts:
            self._accounts[account].publish(item.texts[1], b"", b"", b"%d" % total)

    def waiting(self) -> dict[str, int]:
        """How many requests wait, by queue."""
        queues = (("requests", self._everybody), ("system account requests", self._operators))
        return {name: queue.pending for name, queue in queues}

    def _answer(self, subject: str, account: str, item: Item) -> tuple[bytes, bytes]:
        """Headers and payload of an answer; empty where the request is for other servers."""
        _, _, request, payload = item.texts
        if subject == USER_INFO:
            who = self._admissions.get(item.cid)
            user = _user(account, self._accounts.tag_of(account), who, time.time_ns())
            return b"", encoded(Answer(server=self._identity.info(), data=user))
        if subject == SUBSCRIBERS:
            return b"", b"%d" % self._subscribers(self._account_of(item.cid, account), payload)
        if subject == SUBSCRIBERS_OF:
            return b"", self._subscribers_of(payload)
        if self._pages is None:
            self._pages = self._make_pages()
        if account == self._system_account:
            answer = self._pages.answer(subject, payload)
        else:
            answer = self._pages.answer_within(account, subject, payload)
        if answer is None:
            return b"", b""
        page = BytesIO()
        page.writelines(pieces(answer))
        made = page.getvalue()  # avoids another copy
        is_page = isinstance(answer, Answer) and answer.error is msgspec.UNSET
        return encoded_for(request, made) if is_page else (b"", made)

    def _account_of(self, cid: int, otherwise: str) -> str:
        """The account of a connection, whose request may come through an import."""
        item = self._plane.connection(cid)
        if item is None:
            return otherwise
        return self._accounts.name_of(ConnNumbers(*item.numbers).account)

    def _subscribers_of(self, payload: bytes) -> bytes:
        """The count of an account's subscriptions to a subject; b"" where the account has no
        clients here, or the request is invalid."""
        try:
            asked = parse(payload, AskedSubscribers, strict=False)
            queue = base64.b64decode(asked.queue, validate=True)
        except (Unreadable, ValueError):
            return b""
        accounts = self._accounts
        if asked.acc not in accounts or not accounts[asked.acc].traffic().clients:
            return b""
        return b"%d" % self._subscribers(asked.acc, asked.subject.encode() + b" " + queue)

    def _subscribers(self, account: str, payload: bytes) -> int:
        """How many subscriptions the account's clients have to a subject, or within a pattern; only
        those of a queue group, if one is given."""
        subject, queue = _counted(payload)
        if account not in self._accounts or not subject:
            return 0
        literal = subject_is_literal(subject)
        search = self._plane.subscriptions(
            self._accounts[account],
            matching=subject if literal else None,
            within=None if literal else subject,
            queue=queue,
            clients=True,
            most=0,
        )
        return search.count()


def _counted(payload: bytes) -> tuple[bytes, bytes | None]:
    """The subject and the queue group whose subscriptions are to be counted; None: all."""
    subject, *queues = payload.strip(b" \t\r\n").split(b" ")
    return subject, queues[0] if queues else None


def _is_json(payload: bytes) -> bool:
    try:
        parse(payload, ServerFilter, strict=False)
    except Unreadable:
        return False
    return True


def _user(account: str, tag: str, who: Admission | None, now: int) -> UserInfo:
    info = UserInfo(account=account, account_name=tag)
    if who is not None:
        info.user = who.user
        info.user_name = who.name_tag
        if who.expires:
            info.expires = min(max(who.expires * 10**9 - now, 0), MAX_INT64)
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
