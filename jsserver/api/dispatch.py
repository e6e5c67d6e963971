"""From an API subject to its handler, and from the handler's result to the answer.

Subjects that are no endpoint get silence: `$JS.API.>` is one service, and clients time out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from jsserver.assets.assignments import DeleteConsumer
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
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

from . import (
    account_api,
    buckets,
    consumer_admin,
    consumer_api,
    messages,
    objects,
    stream_api,
    transfers,
)
from .account_purge import AccountPurge
from .advisories import AUDIT, Advisories, ClientInfo
from .buckets import ObjectResponse
from .call import Call
from .invalid import InvalidRequests
from .levels import required_level
from .queue import RequestQueue
from .responses import (
    TYPE_PREFIX,
    AccountPurgeResponse,
    ConsumerList,
    ConsumerNames,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    PurgeResponse,
    Response,
    RestoreResponse,
    StreamList,
    StreamNames,
)
from .transfers import Transfers
from .uploads import Uploads

log = logging.getLogger(__name__)

PREFIX = "$JS.API."

IN_PROGRESS = 2 * WORKERS
"""Requests of all connections; who waits for WORKERS of its own does not keep others waiting."""

INFLIGHT_SECONDS = 0.005
"""How often is looked whether the requests of an account that goes are finished."""

Handler = Callable[[Call], Awaitable[Response]]


class Request(msgspec.Struct, frozen=True):
    """A message on `$JS.API.>` that the data plane does not answer itself."""

    account: str
    subject: bytes
    reply: bytes = b""
    headers: bytes = b""
    payload: bytes = b""
    connection: int = 0
    cost: int = 1
    """What it counts of what a connection may ask at once."""


class Endpoint(msgspec.Struct, frozen=True):
    """What serves a subject."""

    name: str
    answer: str
    """The type of the answer, after TYPE_PREFIX."""
    handler: Handler
    empty: Callable[[], Response] = Response
    """The body of an error."""
    least: int = 1
    """Tokens after the name."""
    most: int = 1
    info: bool = False
    """Whether it waits in the queue of lower priority."""
    audited: bool = True
    """Whether success counts and is told to listeners."""
    errors_audited: bool = True
    """Whether errors are."""


async def _not_clustered(call: Call) -> Response:
    raise errcodes.CLUSTER_REQUIRED()


async def _nothing_there(call: Call) -> Response:
    raise errcodes.NOT_ENABLED_FOR_ACCOUNT()


def _paged() -> Response:
    return Response(total=0, offset=0, limit=0)


def _not_paused() -> Response:
    return ConsumerPauseResponse(pause_until=goformat.ZERO_TIME)


ENDPOINTS: dict[str, Endpoint] = {
    endpoint.name: endpoint
    for endpoint in (
        Endpoint("INFO", "account_info_response", account_api.info, least=0, most=0, info=True),
        Endpoint("STREAM.CREATE", "stream_create_response", stream_api.create),
        Endpoint("STREAM.UPDATE", "stream_update_response", stream_api.update),
        Endpoint("STREAM.INFO", "stream_info_response", stream_api.info, _paged, info=True),
        Endpoint("STREAM.DELETE", "stream_delete_response", stream_api.delete),
        Endpoint("STREAM.PURGE", "stream_purge_response", stream_api.purge, PurgeResponse),
        Endpoint(
            "STREAM.NAMES",
            "stream_names_response",
            stream_api.names,
            StreamNames,
            least=0,
            most=0,
            info=True,
        ),
        Endpoint(
            "STREAM.LIST",
            "stream_list_response",
            stream_api.list_all,
            StreamList,
            least=0,
            most=0,
            info=True,
        ),
        Endpoint("STREAM.SNAPSHOT", "stream_snapshot_response", transfers.snapshot),
        Endpoint("STREAM.RESTORE", "stream_restore_response", transfers.restore, RestoreResponse),
        Endpoint("STREAM.MSG.GET", "stream_msg_get_response", messages.get, audited=False),
        Endpoint("STREAM.MSG.DELETE", "stream_msg_delete_response", messages.delete),
        Endpoint("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", _not_clustered),
        Endpoint("STREAM.PEER.REMOVE", "stream_remove_peer_response", _not_clustered),
        Endpoint("CONSUMER.CREATE", "consumer_create_response", consumer_api.create, most=1 << 20),
        Endpoint(
            "CONSUMER.DURABLE.CREATE",
            "consumer_create_response",
            consumer_api.create_durable,
            least=2,
            most=2,
        ),
        Endpoint(
            "CONSUMER.INFO",
            "consumer_info_response",
            consumer_api.info,
            least=2,
            most=2,
            info=True,
        ),
        Endpoint(
            "CONSUMER.DELETE", "consumer_delete_response", consumer_api.delete, least=2, most=2
        ),
        Endpoint(
            "CONSUMER.NAMES",
            "consumer_names_response",
            consumer_api.names,
            ConsumerNames,
            info=True,
        ),
        Endpoint(
            "CONSUMER.LIST",
            "consumer_list_response",
            consumer_api.list_all,
            ConsumerList,
            info=True,
        ),
        Endpoint(
            "CONSUMER.PAUSE",
            "consumer_pause_response",
            consumer_api.pause,
            _not_paused,
            least=2,
            most=2,
        ),
        Endpoint(
            "CONSUMER.RESET",
            "consumer_reset_response",
            consumer_api.reset,
            ConsumerResetResponse,
            least=2,
            most=2,
            audited=False,
            errors_audited=False,
        ),
        Endpoint("CONSUMER.UNPIN", "consumer_unpin_response", consumer_api.unpin, least=2, most=2),
        Endpoint(
            "CONSUMER.LEADER.STEPDOWN",
            "consumer_leader_stepdown_response",
            _not_clustered,
            least=2,
            most=2,
        ),
        *(
            Endpoint(
                f"JSSERVER.CONSUMER.{verb}",
                f"jsserver_consumer_{verb.lower()}_response",
                handler,
                least=2,
                most=2,
                info=verb in ("WAITS", "PENDING"),
            )
            for verb, handler in consumer_admin.HANDLERS.items()
        ),
    )
}


NOTHING_THERE = Endpoint("", "system_response", _nothing_there)
"""What answers in the system account, which has no JetStream; INFO aside."""
OBJECTS = Endpoint(
    *("$OBJ", "jsserver_object_response", objects.serve, ObjectResponse),
    audited=False,
    errors_audited=False,
)
"""What answers requests to buckets of objects."""
OF_THE_CLUSTER = ("META", "SERVER", "ACCOUNT")
"""First tokens of requests to a cluster's leader; where there is no cluster nobody answers."""
PURGE_ACCOUNT = Endpoint(
    "ACCOUNT.PURGE", "account_purge_response", _nothing_there, AccountPurgeResponse
)
"""The one that is also answered alone, in the system account, by `AccountPurge`."""


def _of_system(subject: str) -> tuple[Endpoint, list[str]] | None:
    """As find(), of a request in the system account."""
    if subject == "INFO":
        return find(subject)
    if subject.startswith(f"{PURGE_ACCOUNT.name}."):
        args = subject.split(".")[2:]
        return (PURGE_ACCOUNT, args) if len(args) == 1 and args[0] else None
    return None if subject.split(".")[0] in OF_THE_CLUSTER else (NOTHING_THERE, [])


def find(subject: str) -> tuple[Endpoint, list[str]] | None:
    """The endpoint of a subject after the prefix, and the tokens that follow its name."""
    tokens = subject.split(".")
    for length in (3, 2, 1):
        endpoint = ENDPOINTS.get(".".join(tokens[:length]))
        if endpoint is not None:
            args = tokens[length:]
            if endpoint.least <= len(args) <= endpoint.most and all(args[:2]):
                return endpoint, args
            return None
    return None


def _encoded(response: Response) -> bytes:
    return goformat.escape_json(msgspec.json.encode(response))


class _Served(msgspec.Struct, frozen=True):
    """An answer, and whether it counts and is told to listeners."""

    response: bytes
    counted: bool
    type: str
    shown: tuple[StreamHandle, int] | None = None
    """What the answer shows and the ticket that it waits for."""
    made: ConsumerHandle | None = None
    """A consumer, new or changed, that delivers nothing before the answer."""
    after: Callable[[], None] | None = None
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
        self._invalid = InvalidRequests()
        self._client_info = client_info or (lambda connection: None)
        self.transfers = Transfers(shared, self.advisories)
        self._account_purge = AccountPurge(shared, self.advisories, self.accounts, directory)
        self._finished = finished or (lambda connection, cost: None)
        """Takes connection and cost of every request that is answered, dropped or none."""
        with_objects = shared.settings.object_requests
        self.objects = Uploads(shared, self.accounts, self._finished) if with_objects else None
        limits = shared.settings
        self._queue: RequestQueue[Request] = RequestQueue(
            limits.request_queue_limit, limits.info_queue_limit, WORKERS
        )
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._closed = False

    # ---- accounts --------------------------------------------------------------------------------

    async def add_account(self, account: Account) -> None:
        """Gives an account JetStream, with what it has on disk."""
        account.limit(account.limits)
        await recover(account)
        if self.objects is not None:
            await self.objects.recover(account)
        self.accounts[account.name] = account

    async def remove_account(self, name: str) -> None:
        """Takes JetStream from an account; what it has on disk stays. Requests under way are
        finished, those that come are refused, and what is sent or comes in by parts ends."""
        account = self.accounts.pop(name)
        while account.stats.inflight:
            await asyncio.sleep(INFLIGHT_SECONDS)
        if self.objects is not None:
            await self.objects.forget_account(account)
        await self.transfers.forget_account(account)
        await account.close()

    async def close(self) -> None:
        """Finishes the requests in progress, then stops all streams.

        Other requests are refused meanwhile: streams that are not served any more still exist, and
        a client that heard otherwise might make them anew.
        """
        self._closing = True
        await self.transfers.close()
        if self.objects is not None:
            await self.objects.close()
        await self._finish()
        for account in self.accounts.values():
            await account.close()
        self._closed = True
        await self._finish()
        await self.shared.close()

    async def _finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

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
        if self.transfers.receive(request.account, subject, request.reply, request.payload):
            self._finished(request.connection, request.cost)
            return
        if self.objects is not None and self.objects.receive(request, subject):
            return
        found = self._route(request)
        if found is None or self._closed:
            self._finished(request.connection, request.cost)
            return
        dropped = self._queue.put(request.connection, request, found[0].info)
        if dropped:
            log.warning("JetStream API queue limit reached, dropping %d requests", len(dropped))
            self.advisories.limit_reached(len(dropped))
            for one in dropped:
                self._finished(one.connection, one.cost)
        if self._queue and self._running < IN_PROGRESS:
            self._running += 1
            self._start(self._work())

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        """Works on requests until none waits."""
        try:
            while self._queue:
                connection, request = self._queue.take()
                try:
                    served = await self._serve(request)
                    if served is not None:
                        if request.reply:
                            self._reply(request, served)
                        served.begin()
                        self._audit(request, served)
                finally:
                    self._queue.done(connection)
                    self._finished(connection, request.cost)
                await asyncio.sleep(0)  # others have their turn
        finally:
            self._running -= 1

    def _reply(self, request: Request, served: _Served) -> None:
        """Answers, at once or when what the answer shows is durable."""
        if request.account not in self.shared.accounts:
            return  # it was removed meanwhile
        response = served.response
        if served.shown is not None:
            handle, ticket = served.shown
            try:
                if handle.answer(ticket, request.reply, response, served.type.encode()):
                    return
            except StoreError:
                pass  # closed meanwhile
            response = _encoded(Response(type=served.type, error=errcodes.CLUSTER_NOT_AVAIL().body))
        self.shared.accounts[request.account].publish(request.reply, b"", b"", response)

    def _route(self, request: Request) -> tuple[Endpoint, list[str]] | None:
        # What is no UTF-8 stays as it is: it is no other name.
        subject = request.subject.decode("utf-8", "surrogateescape")
        if self.objects is not None and subject.startswith(buckets.PREFIX):
            return OBJECTS, [subject[len(buckets.PREFIX) :]]
        if not subject.startswith(PREFIX):
            return None
        if request.account == self._system_account:
            return _of_system(subject[len(PREFIX) :])
        return find(subject[len(PREFIX) :])

    async def handle(self, request: Request) -> bytes | None:
        """The answer to a request; None where the API is silent."""
        served = await self._serve(request)
        if served is None:
            return None
        served.begin()
        self._audit(request, served)
        return served.response

    async def _serve(self, request: Request) -> _Served | None:
        found = self._route(request)
        if found is None:
            return None
        endpoint, args = found
        account = self.accounts.get(request.account)
        if account is not None:
            account.stats.inflight += 1
        call = None
        if account is not None:
            call = Call(
                self.shared,
                self.advisories,
                account,
                self.transfers,
                self.objects,
                args,
                request.payload,
                partial(self._asker, request),
                request.connection,
            )
        try:
            answer = await self._answer(endpoint, args, call, request)
        finally:
            if account is not None:
                account.stats.inflight -= 1
        failed = answer.error is not None
        counted = endpoint.errors_audited if failed else endpoint.audited
        if counted and account is not None:
            account.stats.total += 1
            account.stats.errors += failed
        answer.type = TYPE_PREFIX + endpoint.answer
        served = _Served(_encoded(answer), counted, answer.type)
        if call is None:
            return served
        return structs.replace(served, shown=call.shown, made=call.made, after=call.after)

    def _audit(self, request: Request, served: _Served) -> None:
        """Tells listeners of a request and its answer."""
        if served.counted and self.advisories.wanted(request.account, AUDIT):
            self.advisories.audit(
                request.account,
                request.subject.decode("utf-8", "replace"),
                self._asker(request),
                request.payload,
                served.response,
            )

    def _asker(self, request: Request) -> ClientInfo | None:
        """Who asks: a client, or a stream for its mirror or source."""
        if request.connection == 0 and request.reply.startswith(ASKED):
            server = self.shared.settings.server_name
            return ClientInfo(acc=request.account, server=server, kind="JetStream")
        return self._client_info(request.connection)

    async def _answer(
        self, endpoint: Endpoint, args: list[str], call: Call | None, request: Request
    ) -> Response:
        try:
            if self._closing:
                raise errcodes.CLUSTER_NOT_AVAIL()
            if not required_level(request.headers):
                raise errcodes.REQUIRED_API_LEVEL()
            if endpoint is PURGE_ACCOUNT:
                return await self._account_purge.purge(args[0])
            if call is None:
                raise errcodes.NOT_ENABLED_FOR_ACCOUNT()
            return await endpoint.handler(call)
        except ApiError as error:
            refused = self._invalid.seen(request.account, request.subject, error)
        except StreamClosed:
            refused = errcodes.STREAM_NOT_FOUND()
        except ConsumerClosed:
            refused = errcodes.CONSUMER_NOT_FOUND()
        except StoreError as error:
            refused = errcodes.STREAM_STORE_FAILED(err=str(error))
        except Exception:
            log.exception("JetStream API request on %r failed", request.subject)
            refused = errcodes.STREAM_GENERAL(err="internal error, see the server's log")
        answer = endpoint.empty()
        answer.error = refused.body
        return answer

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
                self._start(self._remove_inactive(event))

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
        async with account.lock(event.stream):
            stream = account.streams.get(event.stream)
            consumer = stream.consumers.get(event.consumer) if stream is not None else None
            if stream is None or consumer is None or consumer.handle.id != event.id:
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
            self.advisories.consumer(event.account, event.stream, event.consumer, "delete")
