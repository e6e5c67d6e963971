"""One API request on its way through a handler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from jsserver import API_LEVEL, NATS_VERSION
from jsserver.instances.account import Account
from jsserver.instances.backend import ConsumerHandle, StoreError, StreamClosed, StreamHandle
from jsserver.instances.order import Place
from jsserver.instances.running import Consumer, Stream
from jsserver.instances.shared import Shared
from jsserver.wire import decode, errcodes
from jsserver.wire.types import ClusterInfo

from .advisories import Advisories, ClientInfo

if TYPE_CHECKING:
    from .transfers import Transfers

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LARGE = 16 * 1024
"""Bytes of a body that is read and checked beside the event loop."""
NAMES_LIMIT = 1024
LIST_LIMIT = 256
"""Assets of a page at most, by their names and with all that is known of them."""


class Call:
    """A decoded subject, a body, and what a handler works with."""

    __slots__ = (
        *("account", "advisories", "after", "args", "body", "client", "connection"),
        *("done", "made", "place", "shared", "shown", "transfers"),
    )

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        transfers: Transfers,
        args: list[str],
        body: bytes,
        client: Callable[[], ClientInfo | None],
        connection: int,
        place: Place,
    ) -> None:
        self.shared = shared
        self.advisories = advisories
        self.transfers = transfers
        self.account = account
        self.client = client
        """Tells the connection that asks."""
        self.connection = connection
        self.place = place
        """Among the requests of the connection."""
        self.args = args
        """The tokens after the endpoint's name."""
        self.body = body
        self.shown: tuple[StreamHandle, int] | None = None
        """What the answer shows and the ticket that it waits for."""
        self.done = False
        """Whether what it waits for is a change that the answer tells, which is never refused for
        want of room for answers that wait."""
        self.made: ConsumerHandle | None = None
        """A consumer, new or changed, that delivers nothing before the answer."""
        self.after: Callable[[], object] | None = None
        """What begins when the answer is on its way."""

    def shows(self, stream: Stream, seq: int = 0) -> None:
        """The answer shows this message or, with 0, the stream as it is now: it is held back until
        that is durable."""
        ticket = stream.handle.unsettled(seq)
        if ticket:
            self.shown = (stream.handle, ticket)

    def changed(self, stream: Stream) -> None:
        """The answer tells a change of the stream: it is held back until that is durable."""
        ticket = stream.handle.changed_ticket()
        if ticket:
            self.shown, self.done = (stream.handle, ticket), True

    async def settle(self, streams: Iterable[Stream]) -> dict[str, str]:
        """As `shows`, of many streams: returns when all that they hold is durable; why it is not,
        by the names of the others. Of streams that were removed meanwhile the reason is empty."""
        waits = {s.name: s.handle for s in streams if s.handle.unsettled()}
        return await self.shared.run(_settle, waits) if waits else {}

    async def work(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls what takes a time that grows with the body: of a large one beside the loop, so that
        nobody else waits for it."""
        if len(self.body) < LARGE:
            return function(*args, **kwargs)
        return await self.shared.compute(function, *args, **kwargs)

    async def request(self, kind: type[T]) -> T:
        """The body; an empty one is a request with nothing set."""
        return await self.work(decode.decode, self.body, kind, self.shared.settings.strict)

    async def loosely(self, kind: type[T]) -> T:
        """What the type knows of a body that holds more."""
        return await self.work(decode.decode, self.body, kind, strict=False)

    async def required(self, kind: type[T]) -> T:
        """A body that must not be empty."""
        if decode.is_empty(self.body):
            raise errcodes.BAD_REQUEST()
        return await self.request(kind)

    async def optional(self, kind: type[T]) -> T:
        """A body that counts only if it is an object."""
        return await self.request(kind) if decode.has_object(self.body) else kind()

    def no_body(self) -> None:
        """Raises if there is a body."""
        if not decode.is_empty(self.body):
            raise errcodes.NOT_EMPTY_REQUEST()


def _settle(handles: dict[str, StreamHandle]) -> dict[str, str]:
    failed = {}
    for name, handle in handles.items():
        try:
            handle.wait_durable()
        except StreamClosed:
            failed[name] = ""
        except StoreError as error:
            failed[name] = str(error)
    return failed


def dynamic_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Stored metadata with what responses add."""
    return dict(
        sorted({**metadata, "_nats.ver": NATS_VERSION, "_nats.level": str(API_LEVEL)}.items())
    )


def is_own(shared: Shared, consumer: Consumer) -> bool:
    """Whether this server has created the consumer by itself for a mirror or a source, so that the
    meta group does not know it."""
    return shared.member is not None and consumer.config.direct


def placed(shared: Shared, asset: Stream | Consumer) -> ClusterInfo | None:
    """Who serves what this server runs, where a cluster decides that."""
    if shared.member is None:
        return None
    if asset.member is not None:
        return shared.member.placed(asset)
    if isinstance(asset, Consumer) and is_own(shared, asset):
        return None
    return ClusterInfo(name=shared.member.cluster, leader=shared.settings.server_name)


class Page(msgspec.Struct):
    """A part of a sorted list."""

    total: int
    offset: int
    names: list[str]


def page(names: list[str], offset: int, limit: int) -> Page:
    """The names, which are in order, from `offset` on; offsets outside are moved inside."""
    start = min(max(offset, 0), len(names))
    return Page(len(names), start, names[start : start + limit])
