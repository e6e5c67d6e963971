"""From an API subject to its handler, and from the handler's result to the answer.

Subjects that are no endpoint get silence: `$JS.API.>` is one service, and clients time out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path

import msgspec

from jsserver.assets.changes import DeleteConsumer
from jsserver.instances.account import Account
from jsserver.instances.asking import PREFIX as ASKED
from jsserver.instances.backend import (
    BatchAbandoned,
    ConsumerAdvisory,
    ConsumerClosed,
    ConsumerGone,
    ConsumerHandle,
    Event,
    PauseOver,
    SourceBroken,
    StoreError,
    StreamClosed,
    StreamHandle,
)
from jsserver.instances.recovery import recover
from jsserver.instances.shared import WORKERS, Shared
from jsserver.process.tasks import Tasks
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.pieces import pieces

from .account_purge import AccountPurge
from .advisories import AUDIT, Advisories, ClientInfo
from .call import Call, is_own
from .endpoints import PURGE_ACCOUNT, Endpoint, find, of_system
from .levels import required_level
from .queue import RequestQueue
from .refused import RefusedRequests
from .requester import requester
from .responder import Request, Responder
from .responses import TYPE_PREFIX, ConsumerList, Response, StreamList
from .transfers import Transfers

log = logging.getLogger(__name__)

PREFIX = "$JS.API."

IN_PROGRESS = 2 * WORKERS
"""Requests of all connections; who waits for WORKERS of its own does not keep others waiting."""

ASIDE = 256
"""Requests that wait for a round, beside those IN_PROGRESS."""

INFLIGHT_SECONDS = 0.005
"""How often is looked whether the requests of an account that goes are finished."""


def _encoded(response: Response) -> bytes:
    return goformat.escape_json(msgspec.json.encode(response))


async def _text_of(answer: Response) -> bytes:
    """The text of an answer; others have their turn while that of a long list is made."""
    if not isinstance(answer, ConsumerList | StreamList):
        return _encoded(answer)
    made = BytesIO()
    for piece in pieces(answer):
        if made.tell():
            await asyncio.sleep(0)
        made.write(piece)
    return made.getvalue()  # not copied once more


def _refusal(error: ApiError | StoreError) -> ApiError:
    """What is answered where the data plane could not do its work."""
    match error:
        case ApiError():
            return error
        case StreamClosed():
            return errcodes.STREAM_NOT_FOUND()
        case ConsumerClosed():
            return errcodes.CONSUMER_NOT_FOUND()
    return errcodes.STREAM_STORE_FAILED(err=str(error))


_Route = tuple[Endpoint, list[str]]
"""Whose a request is, and what its subject says besides."""


class _Room:
    """For requests that wait aside."""

    def __init__(self, most: int) -> None:
        self.left = most


class _Served(msgspec.Struct, frozen=True):
    """An answer, and whether it counts and is told to listeners."""

    response: bytes
    counted: bool
    type: str
    shown: tuple[StreamHandle, int] | None = None
    """What the answer shows and the ticket that it waits for."""
    done: bool = False
    """Whether that is a change, which the answer tells."""
    made: ConsumerHandle | None = None
    """A consumer, new or changed, that delivers nothing before the answer."""
    after: Callable[[], object] | None = None
    """What begins then."""

    def begin(self) -> None:
        """The answer is on its way."""
        if self.after is not None:
            self.after()
        if self.made is not None:
            self.made.begin(0 if self.shown is None else self.shown[1])


class Dispatcher:
    """JetStream's API of all accounts."""

    def __init__(
        self,
        shared: Shared,
        client_info: Callable[[int], ClientInfo | None] | None = None,
        finished: Callable[[int, int], None] | None = None,
        system_account: str = "",
        directory: Path | None = None,
    ) -> None:
        """`directory`: where the accounts' files are."""
        self.shared = shared
        self._system_account = system_account
        self.accounts: dict[str, Account] = {}
        self.advisories = Advisories(shared, system_account)
        self._refused = RefusedRequests()
        self._client_info = client_info or (lambda connection: None)
        self._account_purge = AccountPurge(shared, self.advisories, self.accounts, directory)
        self._finished = finished or (lambda connection, cost: None)
        """Takes connection and cost of every request that is answered, dropped or none."""
        self.transfers = Transfers(shared, self.advisories, self._finished)
        self._responders: list[Responder] = [self.transfers]
        limits = shared.settings
        self._queue: RequestQueue[tuple[Request, _Route]] = RequestQueue(
            limits.request_queue_limit, limits.info_queue_limit, WORKERS
        )
        self._running = 0
        self._rounds = _Room(ASIDE)
        self._behind = _Room(limits.request_queue_limit)
        """For those that wait for others of their connection."""
        self._answers: list[tuple[str, bytes, bytes]] = []
        """Those that go out at the end of the loop's turn: account, subject, text."""
        self._tasks = Tasks()
        self._closing = False
        self._closed = False

    def add(self, responder: Responder) -> None:
        """Has requests on further subjects answered, before the first account is added."""
        self._responders.append(responder)

    # ---- accounts --------------------------------------------------------------------------------

    async def add_account(self, account: Account) -> None:
        """Gives an account JetStream, with what it has on disk."""
        account.limit(account.limits)
        if self.shared.member is None:
            await recover(account)
        for responder in self._responders:
            await responder.recover(account)
        self.accounts[account.name] = account
        if self.shared.member is not None:
            self.shared.member.serve(account.name)

    async def remove_account(self, name: str) -> None:
        """Takes JetStream from an account; what it has on disk stays. Requests under way are
        finished, those that come are refused, and what is sent or comes in by parts ends."""
        account = self.accounts.pop(name)
        while account.stats.inflight:
            await asyncio.sleep(INFLIGHT_SECONDS)
        for responder in reversed(self._responders):
            await responder.forget_account(account)
        await account.close()

    def connection_gone(self, connection: int) -> None:
        """A connection has ended."""
        for responder in self._responders:
            responder.connection_gone(connection)

    async def close(self) -> None:
        """Finishes the requests in progress, then stops all streams.

        Other requests are refused meanwhile: streams that are not served any more still exist, and
        a client that heard otherwise might make them anew.
        """
        self._closing = True
        for responder in reversed(self._responders):
            await responder.close()
        await self._tasks.under_way()
        self._publish()
        for account in self.accounts.values():
            await account.close()
        self._closed = True
        await self._tasks.under_way()
        self._publish()
        await self.shared.close()

    # ---- requests --------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._queue.waiting

    def submit(self, request: Request) -> None:
        """Takes a request; its answer is published.

        At most IN_PROGRESS are worked on at the same time, WORKERS of one connection."""
        if self.shared.asking.receive(request.subject, request.payload):
            self._finished(request.connection, request.cost)
            return
        subject = request.subject.decode("utf-8", "surrogateescape")
        for responder in self._responders:
            if responder.receive(request, subject):
                return
        found = self._route(request, subject)
        if found is None or self._closed:
            self._finished(request.connection, request.cost)
            return
        dropped = self._queue.put(request.connection, (request, found), found[0].info)
        if dropped:
            log.warning("JetStream API queue limit reached, dropping %d requests", len(dropped))
            self.advisories.limit_reached(len(dropped))
            for one, _ in dropped:
                self._finished(one.connection, one.cost)
        self._go_on()

    def _go_on(self) -> None:
        if self._queue and self._running < IN_PROGRESS:
            self._running += 1
            self._tasks.begin(self._work())

    @contextmanager
    def _aside(self, room: _Room, connection: int) -> Iterator[None]:
        """A request of this connection waits, and needs no thread meanwhile: others begin."""
        if not room.left:
            yield
            return
        room.left -= 1
        self._running -= 1
        self._queue.done(connection)
        self._go_on()
        try:
            yield
        finally:
            room.left += 1
            self._running += 1
            self._queue.again(connection)

    async def _work(self) -> None:
        """Works on requests until none waits."""
        try:
            while self._queue:
                connection, (request, found) = self._queue.take()
                try:
                    served = await self._serve(request, found)
                    if request.reply:
                        await self._reply(request, served)
                    served.begin()
                    self._audit(request, served)
                finally:
                    self._queue.done(connection)
                    self._finished(connection, request.cost)
                await asyncio.sleep(0)  # others have their turn
        finally:
            self._running -= 1

    async def _reply(self, request: Request, served: _Served) -> None:
        """Answers, at once or when what the answer shows or tells is durable."""
        if request.account not in self.shared.accounts:
            return  # it was removed meanwhile
        response = served.response
        if served.shown is not None:
            handle, ticket = served.shown
            try:
                if not request.through and handle.answer(
                    ticket, request.reply, response, served.type.encode()
                ):
                    return
                if not request.through and not served.done:
                    raise errcodes.CLUSTER_NOT_AVAIL()
                await self.shared.run(handle.wait_durable)
            except (ApiError, StoreError) as error:
                # A stream that was closed meanwhile still exists where the server stops.
                closed = isinstance(error, StreamClosed)
                refused = errcodes.CLUSTER_NOT_AVAIL() if closed else _refusal(error)
                response = _encoded(Response(type=served.type, error=refused.body))
        self._answers.append((request.through or request.account, request.reply, response))
        if len(self._answers) == 1:
            asyncio.get_running_loop().call_soon(self._publish)
        if served.made is not None or served.after is not None or self._is_alone():
            self._publish()

    def _is_alone(self) -> bool:
        """Whether no other request is worked on, which could share a write with the answer."""
        return self._running == 1 and not self._queue

    def _publish(self) -> None:
        """Sends the answers that were given in this turn of the loop, together: the reactor is
        woken, and writes to a connection, once for all."""
        answers, self._answers = self._answers, []
        for account, reply, response in answers:
            if account in self.shared.accounts:  # else it was removed meanwhile
                self.shared.accounts[account].publish(reply, b"", b"", response)

    def _route(self, request: Request, subject: str) -> _Route | None:
        if not subject.startswith(PREFIX):
            found = (responder.route(subject) for responder in self._responders)
            return next(filter(None, found), None)
        if request.account == self._system_account:
            return of_system(subject[len(PREFIX) :])
        return find(subject[len(PREFIX) :])

    async def handle(self, request: Request) -> bytes | None:
        """The answer to a request; None where the API is silent."""
        # What is no UTF-8 stays as it is: it is no other name.
        found = self._route(request, request.subject.decode("utf-8", "surrogateescape"))
        if found is None:
            return None
        served = await self._serve(request, found)
        served.begin()
        self._audit(request, served)
        return served.response

    async def _serve(self, request: Request, found: _Route) -> _Served:
        endpoint, args = found
        account = self.accounts.get(request.account)
        if account is not None:
            account.stats.inflight += 1
        call = None
        connection = request.connection
        if account is not None:
            place = endpoint.place(args, partial(self._aside, self._rounds, connection))
            if connection:
                account.order.enter(connection, place)
            call = Call(
                self.shared,
                self.advisories,
                account,
                self.transfers,
                args,
                request.payload,
                partial(self._asker, request),
                connection,
                place,
            )
        try:
            answer, failed = await self._answer(endpoint, args, call, request)
        finally:
            if account is not None:
                account.stats.inflight -= 1
                if connection:
                    account.order.leave(connection, place)
        counted = endpoint.errors_audited if failed else endpoint.audited
        if counted and account is not None:
            account.stats.total += 1
            account.stats.errors += failed
        answer.type = TYPE_PREFIX + endpoint.answer
        text = await _text_of(answer)
        if call is None:
            return _Served(text, counted, answer.type)
        return _Served(text, counted, answer.type, call.shown, call.done, call.made, call.after)

    def _audit(self, request: Request, served: _Served) -> None:
        """Tells listeners of a request and its answer."""
        if served.counted and self.advisories.wanted(request.account, AUDIT):
            self._publish()
            self.advisories.audit(
                request.account,
                request.subject.decode("utf-8", "replace"),
                self._asker(request),
                request.payload,
                served.response,
            )

    def _asker(self, request: Request) -> ClientInfo | None:
        """Who asks: a client, or a stream for its mirror or source."""
        if request.through:
            return requester(request.headers, ClientInfo)
        if request.connection == 0 and request.reply.startswith(ASKED):
            server = self.shared.settings.server_name
            return ClientInfo(acc=request.account, server=server, kind="JetStream")
        return self._client_info(request.connection)

    async def _answer(
        self, endpoint: Endpoint, args: list[str], call: Call | None, request: Request
    ) -> tuple[Response, bool]:
        """The answer, and whether the request counts as one that failed."""
        try:
            if self._closing:
                raise errcodes.CLUSTER_NOT_AVAIL()
            if not required_level(request.headers):
                raise errcodes.REQUIRED_API_LEVEL()
            if endpoint is PURGE_ACCOUNT:
                return await self._account_purge.purge(args[0]), False
            if call is None:
                raise errcodes.NOT_ENABLED_FOR_ACCOUNT()
            return await self._handled(endpoint, call), False
        except ApiError as error:
            refused = self._refused.seen(request.account, request.subject, error)
        except StoreError as error:
            refused = _refusal(error)
        except Exception:
            log.exception("JetStream API request on %r failed", request.subject)
            refused = errcodes.STREAM_GENERAL(err="internal error, see the server's log")
        answer = endpoint.empty()
        answer.error = refused.body
        return answer, True

    async def _handled(self, endpoint: Endpoint, call: Call) -> Response:
        """The answer, or ApiError, when what the connection asked before is so far."""
        place = call.place
        if place.waits:
            await self._turn(call)
        try:
            return await endpoint.handler(call)
        except ApiError:
            if not place.refused():
                raise
        await self._turn(call)
        return await endpoint.handler(call)

    async def _turn(self, call: Call) -> None:
        with self._aside(self._behind, call.connection):
            await call.place.turn()

    # ---- events of the data plane ----------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Takes what the data plane tells through its inbox."""
        match event:
            case ConsumerAdvisory():
                self.advisories.delivery(event)
            case BatchAbandoned():
                self.advisories.batch_abandoned(event)
            case PauseOver():
                self._pause_over(event)
            case SourceBroken():
                account = self.accounts.get(event.account)
                if account is not None:
                    account.intakes.broken(event.stream, event.id)
            case ConsumerGone() if not self._closing:  # else after the next start
                self._tasks.begin(self._remove_inactive(event))

    def _pause_over(self, event: PauseOver) -> None:
        account = self.accounts.get(event.account)
        stream = account.streams.get(event.stream) if account is not None else None
        consumer = stream.consumers.get(event.consumer) if stream is not None else None
        if consumer is not None:
            until = consumer.config.pause_until
            self.advisories.pause(event.account, event.stream, event.consumer, False, until)

    async def _remove_inactive(self, event: ConsumerGone) -> None:
        account = self.accounts.get(event.account)
        if account is None:
            return
        async with account.consumer_lock(event.stream, event.consumer):
            stream = account.streams.get(event.stream)
            consumer = stream.consumers.get(event.consumer) if stream is not None else None
            if consumer is None or consumer.handle.id != event.id:
                return
            own = is_own(self.shared, consumer)
            if self.shared.member is not None and not own:
                self.shared.member.remove_consumer(account.name, event.stream, event.consumer)
                return
            try:
                await account.change_consumer(DeleteConsumer(event.stream, event.consumer))
            except ApiError as error:
                log.error(
                    "Inactive consumer '%s > %s > %s' was not removed: %s",
                    event.account,
                    event.stream,
                    event.consumer,
                    error,
                )
                return
            if not own:
                self.advisories.consumer(event.account, event.stream, event.consumer, "delete")
