"""JetStream of one account: decides on each change, and carries it out or refuses it.

The event loop owns everything here. Work that waits for a disk runs in rounds (rounds.py) or worker
threads. A task that changes a stream or its consumers holds the stream's lock (locks.py): changes
of one stream run one after another, those of different consumers side by side, and different
streams do not wait for each other. Whatever concerns several streams (subjects, limits) is decided,
and claimed, before the first await.
"""

import asyncio
import errno
import logging
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from jsserver.assets import consumers
from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment
from jsserver.assets.assignments import Assignments, ConsumerDecision, StreamDecision
from jsserver.assets.changes import ConsumerChange, StreamChange
from jsserver.assets.limits import AccountLimits, RequestStats
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError, ErrorTemplate

from .backend import StoreError
from .intakes import Intakes
from .locks import Hold, StreamLock
from .order import Order, Place, Stage, unasked
from .rounds import Work
from .running import Consumer, Instances, Stream
from .shared import Shared

log = logging.getLogger(__name__)

R = TypeVar("R")

FEW_BYTES = 64 << 20
FEW_CONSUMERS = 100
FEW_MESSAGES = 50_000
"""A stream up to these sizes is quickly changed: it delays nobody in its round."""
AT_AN_END = ("all", "last", "new", "by_start_sequence")
"""Deliver policies whose start needs no search."""


class Account:
    """An account's assignments, its running assets, and how the assets follow the assignments."""

    def __init__(
        self, name: str, shared: Shared, directory: Path | None, limits: AccountLimits
    ) -> None:
        self.name = name
        self.handle = shared.accounts[name]
        self.shared = shared
        self.directory = directory / "streams" if directory is not None else None
        self.limits = limits
        self.stats = RequestStats()
        """Requests that the control plane answers."""
        self._answered = self.handle.requests()
        """Requests that the data plane had answered before JetStream was enabled this time."""
        self.assignments = Assignments(limits, shared.settings, shared.reserved)
        self.reserved = self.assignments.claims.reserved
        self.offline = self.assignments.offline
        """The reasons by stream, for streams on disk that do not run."""
        self.instances = Instances(self.handle, shared.files, self.directory, shared.erase_later)
        self.intakes = Intakes(name, self.handle, shared, self.lock)
        self.streams: dict[str, Stream] = {}
        """The running streams, without those that are being made or removed."""
        self.names: list[str] = []
        """The names of the running streams, in the order of their bytes."""
        self.on_no_room: Callable[[str], None] = lambda reason: None
        """Is called with the reason when an asset cannot be made for want of room."""
        self.on_unwritten: Callable[[str, str], None] = lambda stream, reason: None
        """Is called with the stream and the reason when the disk may hold another configuration."""
        self.order = Order()
        self._elsewhere = 0, 0
        """Bytes in memory and in files that other members of the cluster hold."""
        self._locks: WeakValueDictionary[str, StreamLock] = WeakValueDictionary()

    def limit(self, limits: AccountLimits) -> None:
        """Sets the account's limits. Existing assets stay."""
        self.limits = self.assignments.claims.limits = limits
        self._limit()

    def hold_elsewhere(self, memory: int, storage: int) -> None:
        """Takes how much other members of the cluster hold; in bytes."""
        self._elsewhere = memory, storage
        self._limit()

    def _limit(self) -> None:
        memory, storage = self._elsewhere
        most = self.limits.max_memory, self.limits.max_storage
        if self.shared.member is not None:
            most = self.limits.most()
        self.handle.set_limits(_less(most[0], memory), _less(most[1], storage))

    def requests(self) -> RequestStats:
        """Counts of all requests, of the control plane and the data plane."""
        now, before = self.handle.requests(), self._answered
        stats = RequestStats()
        stats.total = self.stats.total + now.total - before.total
        stats.errors = self.stats.errors + now.errors - before.errors
        stats.inflight = self.stats.inflight + now.inflight
        return stats

    def lock(self, stream: str) -> Hold:
        """The lock for changes of a stream, whether it exists or not."""
        return Hold(self._lock(stream), None)

    def consumer_lock(self, stream: str, consumer: str) -> Hold:
        """The lock for changes of one consumer that touch nothing else of its stream."""
        return Hold(self._lock(stream), consumer)

    def _lock(self, stream: str) -> StreamLock:
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = StreamLock()
        return lock

    def stream(self, name: str) -> Stream:
        """The stream of this name; ApiError."""
        found = self.streams.get(name)
        if found is None:
            raise self.assignments.absent(name)
        return found

    async def change_stream(
        self, change: StreamChange, place: Place | None = None
    ) -> StreamDecision:
        """Decides on a change and carries it out; ApiError. The caller holds the stream's lock.
        `place`: the request's place in its queue."""
        place = place or unasked()
        decision = self.assignments.propose(change)
        place.reach(Stage.JUDGED)
        if decision.is_open:
            work = self.follow(decision.name, decision.after, place)
            await self._settled(decision, decision.name, work)
        return decision

    async def change_consumer(
        self, change: ConsumerChange, place: Place | None = None
    ) -> ConsumerDecision:
        """As `change_stream`, for a consumer."""
        place = place or unasked()
        decision = self.assignments.propose(change)
        place.reach(Stage.JUDGED)
        if decision.is_open:
            work = self._follow_consumer(self.streams[change.stream], decision, place)
            await self._settled(decision, change.stream, work)
        return decision

    async def assign_stream(self, name: str, wanted: StreamAssignment | None) -> None:
        """Carries out a stream's assignment; ApiError. The caller holds the stream's lock."""
        decision = self.assignments.assign_stream(name, wanted)
        if decision.is_open:
            await self._settled(decision, name, self.follow(name, wanted))

    async def leave_stream(self, running: Stream) -> None:
        """Stops a stream and keeps its data on disk. The caller holds the stream's lock."""
        name = running.name
        decision = self.assignments.assign_stream(name, None)
        self._hide(name)
        await self.intakes.end_many(name, removed=False)
        await self.shared.run(self.instances.close, running)
        self.assignments.settle(decision)

    async def assign_consumer(
        self, stream: Stream, name: str, wanted: ConsumerAssignment | None
    ) -> None:
        """Carries out a consumer's assignment; a new one delivers nothing before its `begin`."""
        decision = self.assignments.assign_consumer(stream.assignment, name, wanted)
        if decision.is_open:
            work = self._follow_consumer(stream, decision, unasked())
            await self._settled(decision, stream.name, work)

    async def follow(
        self,
        name: str,
        wanted: StreamAssignment | None,
        place: Place | None = None,
    ) -> None:
        """Brings the stream of this name in line with its assignment; does nothing where it is. The
        caller holds the stream's lock."""
        place = place or unasked()
        running = self.streams.get(name)
        if running is not None and (wanted is None or wanted.created != running.created):
            self._hide(name)
            try:
                long = _is_long_to_remove(running)
                await self._carry_out(self.instances.remove(running), long, place)
            except BaseException:
                self._show(running)
                raise
            running = None
            await self.intakes.end_many(name, removed=True)
        if wanted is not None:
            work = self.instances.converge(running, wanted)
            now = await self._carry_out(work, running is not None, place)
            self._show(now)
            if now.member is None or now.member.leads():
                await self.intakes.follow_many(now)

    def _show(self, stream: Stream) -> None:
        if stream.name not in self.streams:
            insort(self.names, stream.name)  # by code points, which is the order of UTF-8 bytes
        self.streams[stream.name] = stream

    def _hide(self, name: str) -> None:
        del self.streams[name]
        del self.names[bisect_left(self.names, name)]

    def adopt(self, stream: Stream) -> None:
        """Takes and serves a stream that was opened from disk."""
        self.assignments.adopt(stream.assignment)
        self._show(stream)
        if stream.member is not None:
            return  # the group decides when it is served
        stream.handle.activate(hold=bool(stream.offline))
        self.intakes.follow(stream)

    async def close(self) -> None:
        """Stops all streams, with everything on disk."""
        await self.intakes.close()
        found = list(self.streams.values())
        self.streams.clear()
        self.names.clear()
        await asyncio.gather(*(self.shared.run(self.instances.close, s) for s in found))

    async def _follow_consumer(
        self, stream: Stream, decision: ConsumerDecision, place: Place
    ) -> None:
        """As `follow`, for one consumer, which delivers nothing before the answer."""
        name, wanted, instances = decision.name, decision.after, self.instances
        running = stream.consumers.get(name)
        if wanted is not None:
            making = instances.converge_consumer(stream, running, wanted, hold=True)
            long = _is_long_to_make(stream, running, wanted)
            now = await self._carry_out(making, long, place)
            stream.consumers[name] = now
        elif running is not None:
            del stream.consumers[name]
            try:
                removing = instances.remove_consumer(stream, running)
                await self._carry_out(removing, stream.config.retention != "limits", place)
            except BaseException:
                stream.consumers[name] = running
                raise

    async def _carry_out(self, work: Work[R], long: bool, place: Place) -> R:
        """Runs quick work in a round, and long work in a thread of its own. A request that waits
        for a round takes no thread, and other requests of its connection may begin."""
        if long:
            return await self.shared.run(self.shared.rounds.alone, work)
        with place.aside():
            return await self.shared.rounds.together(work)

    async def _settled(
        self, decision: StreamDecision | ConsumerDecision, stream: str, work: Awaitable[None]
    ) -> None:
        """Waits for the work of a decision; if it fails, undoes the decision."""
        try:
            await work
        except Exception as error:
            self.assignments.undo(decision)
            running = self.streams.get(stream)
            if running is not None and running.unwritten_assets():
                self.on_unwritten(stream, _reason(error))
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                self.on_no_room(_reason(error))
            raise _refusal(decision, error) from error
        self.assignments.settle(decision)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, or of a user's exhausted quota."""


def _is_long_to_remove(stream: Stream) -> bool:
    """Whether removing a stream takes so long that others in the same round would wait."""
    try:
        state = stream.handle.state()
    except StoreError:  # the disk has failed: it is removed all the same
        return True
    return len(stream.consumers) > FEW_CONSUMERS or state.bytes > FEW_BYTES


def _is_long_to_make(stream: Stream, running: Consumer | None, wanted: ConsumerAssignment) -> bool:
    """Whether making a consumer may take long, because it searches many messages for its start."""
    config = wanted.config
    if running is None and not consumers.filters(config) and config.deliver_policy in AT_AN_END:
        return False
    return stream.handle.state().messages > FEW_MESSAGES


def _refusal(decision: StreamDecision | ConsumerDecision, error: Exception) -> ApiError:
    """The error of a change that was decided but failed."""
    match decision:
        case StreamDecision(before=None):
            return _not_created(errcodes.STREAM_CREATE, "stream", decision.name, error)
        case StreamDecision(after=None):
            return _failed(errcodes.STREAM_DELETE, error)
        case StreamDecision():
            return _failed(errcodes.STREAM_UPDATE, error)
        case ConsumerDecision(before=None):
            return _not_created(errcodes.CONSUMER_CREATE, "consumer", decision.name, error)
    return _failed(errcodes.CONSUMER_CREATE, error)


def _less(most: int, elsewhere: int) -> int:
    """The rest of a limit in bytes; -1: no limit."""
    return most if most < 0 else max(most - elsewhere, 0)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error)


def _failed(template: ErrorTemplate, error: Exception) -> ApiError:
    """The operation's own error for a failure of the store; raises any other failure."""
    if not isinstance(error, (OSError, StoreError)):
        raise error
    return template(err=_reason(error))


def _not_created(template: ErrorTemplate, asset: str, name: str, error: Exception) -> ApiError:
    """The error of a creation that the store failed to carry out, whose cause goes to the log.

    A name that no file can have (a NUL in it) fails like a failing disk.
    """
    if not isinstance(error, (OSError, StoreError, ValueError)):
        raise error
    reason = _reason(error)
    told = goformat.failure(error) if isinstance(error, OSError) else reason
    log.error("Error creating store for %s %s: %s", asset, goformat.quote(name), told)
    full = isinstance(error, OSError) and error.errno in NO_ROOM
    return template(err=f"error creating store for {asset}" + (f": {reason}" if full else ""))
