"""JetStream of one account: a change is decided and carried out at once, or it is refused.

The asyncio loop owns everything here; what waits for a disk runs in rounds (rounds.py) or worker
threads. A task that changes a stream or one of its consumers holds the stream's lock (locks.py), so
that changes to one stream happen one after another, those of different consumers side by side,
while different streams do not wait for each other. What must hold across streams
(subjects, limits) is decided, and claimed, before the first await.
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
"""A stream with no more of them keeps nobody waiting who is of the same round."""
AT_AN_END = ("all", "last", "new", "by_start_sequence")
"""Where a consumer starts without a search."""


class Account:
    """What an account shall have, what of it runs, and how the one follows the other."""

    def __init__(
        self, name: str, shared: Shared, directory: Path | None, limits: AccountLimits
    ) -> None:
        self.name = name
        self.handle = shared.accounts[name]
        self.shared = shared
        self.directory = directory / "streams" if directory is not None else None
        self.limits = limits
        self.stats = RequestStats()
        """Of the requests that the control plane works on."""
        self._answered = self.handle.requests()
        """What the data plane had answered before: an account may have JetStream again."""
        self.assignments = Assignments(limits, shared.settings, shared.reserved)
        self.reserved = self.assignments.claims.reserved
        self.offline = self.assignments.offline
        """Streams on disk that are not served, and why."""
        self.instances = Instances(self.handle, shared.files, self.directory, shared.erase_later)
        self.intakes = Intakes(name, self.handle, shared, self.lock)
        self.streams: dict[str, Stream] = {}
        """Those that run. One that is being made or removed is not among them."""
        self.names: list[str] = []
        """Theirs, in the order of their bytes."""
        self.on_no_room: Callable[[str], None] = lambda reason: None
        """Takes why something could not be made, where there is no room for it."""
        self.on_unwritten: Callable[[str, str], None] = lambda stream, reason: None
        """Takes a stream of which a start might find another configuration on disk, and why."""
        self.order = Order()
        self._elsewhere = 0, 0
        """Bytes of memory and of files that other members of a cluster hold."""
        self._locks: WeakValueDictionary[str, StreamLock] = WeakValueDictionary()

    def limit(self, limits: AccountLimits) -> None:
        """What the account may use from now on; what it has stays."""
        self.limits = self.assignments.claims.limits = limits
        self._limit()

    def hold_elsewhere(self, memory: int, storage: int) -> None:
        """Other members of a cluster hold so many bytes of what the account may use."""
        self._elsewhere = memory, storage
        self._limit()

    def _limit(self) -> None:
        memory, storage = self._elsewhere
        most = self.limits.max_memory, self.limits.max_storage
        if self.shared.member is not None:
            most = self.limits.most()
        self.handle.set_limits(_less(most[0], memory), _less(most[1], storage))

    def requests(self) -> RequestStats:
        """Of all its requests, whichever plane answers them."""
        now, before = self.handle.requests(), self._answered
        stats = RequestStats()
        stats.total = self.stats.total + now.total - before.total
        stats.errors = self.stats.errors + now.errors - before.errors
        stats.inflight = self.stats.inflight + now.inflight
        return stats

    def lock(self, stream: str) -> Hold:
        """For who changes a stream, whether it exists or not."""
        return Hold(self._lock(stream), None)

    def consumer_lock(self, stream: str, consumer: str) -> Hold:
        """For who changes this consumer of a stream and nothing else of it."""
        return Hold(self._lock(stream), consumer)

    def _lock(self, stream: str) -> StreamLock:
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = StreamLock()
        return lock

    def stream(self, name: str) -> Stream:
        """The stream of this name, or ApiError."""
        found = self.streams.get(name)
        if found is None:
            raise self.assignments.absent(name)
        return found

    async def change_stream(
        self, change: StreamChange, place: Place | None = None
    ) -> StreamDecision:
        """Decides a change and carries it out, or ApiError; the stream's lock is held. `place`: of
        the request for it."""
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
        """As `change_stream`."""
        place = place or unasked()
        decision = self.assignments.propose(change)
        place.reach(Stage.JUDGED)
        if decision.is_open:
            work = self._follow_consumer(self.streams[change.stream], decision, place)
            await self._settled(decision, change.stream, work)
        return decision

    async def assign_stream(self, name: str, wanted: StreamAssignment | None) -> None:
        """Carries out what a cluster has decided of a stream, or ApiError; its lock is held."""
        decision = self.assignments.assign_stream(name, wanted)
        if decision.is_open:
            await self._settled(decision, name, self.follow(name, wanted))

    async def leave_stream(self, running: Stream) -> None:
        """Serves a stream no more; what is on disk stays. The stream's lock is held."""
        name = running.name
        decision = self.assignments.assign_stream(name, None)
        self._hide(name)
        await self.intakes.remove(name)
        await self.shared.run(self.instances.close, running)
        self.assignments.settle(decision)

    async def assign_consumer(
        self, stream: Stream, name: str, wanted: ConsumerAssignment | None
    ) -> None:
        """Likewise of a consumer, which delivers nothing before its `begin`."""
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
        """Makes what runs under a name what shall be there; the stream's lock is held. Once that is
        so, nothing is done."""
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
            await self.intakes.remove(name)
        if wanted is not None:
            work = self.instances.converge(running, wanted)
            now = await self._carry_out(work, running is not None, place)
            self._show(now)
            if now.member is None or now.member.leads():
                await self.intakes.follow_many(now)

    def _show(self, stream: Stream) -> None:
        if stream.name not in self.streams:
            insort(self.names, stream.name)  # by code points: in UTF-8 that is the order of bytes
        self.streams[stream.name] = stream

    def _hide(self, name: str) -> None:
        del self.streams[name]
        del self.names[bisect_left(self.names, name)]

    def adopt(self, stream: Stream) -> None:
        """Takes a stream that was opened with what is on disk, and serves it."""
        self.assignments.adopt(stream.assignment)
        self._show(stream)
        if stream.member is not None:
            return  # its group has it serve
        stream.handle.activate(hold=bool(stream.offline))
        self.intakes.follow(stream)

    async def close(self) -> None:
        """Stops serving and flushes everything."""
        await self.intakes.close()
        found = list(self.streams.values())
        self.streams.clear()
        self.names.clear()
        await asyncio.gather(*(self.shared.run(self.instances.close, s) for s in found))

    async def _follow_consumer(
        self, stream: Stream, decision: ConsumerDecision, place: Place
    ) -> None:
        """As `follow`, of one consumer, which delivers nothing before the answer."""
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
        """In a round with others, or where it may take long in a thread of its own. Who waits for a
        round needs no thread, and lets others of its connection begin."""
        if long:
            return await self.shared.run(self.shared.rounds.alone, work)
        with place.aside():
            return await self.shared.rounds.together(work)

    async def _settled(
        self, decision: StreamDecision | ConsumerDecision, stream: str, work: Awaitable[None]
    ) -> None:
        """Carries a decision out, or undoes it."""
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
"""Errors of a disk, or a user's part of it, that is full."""


def _is_long_to_remove(stream: Stream) -> bool:
    """Whether a stream has so much that other works of the same round would feel it."""
    try:
        state = stream.handle.state()
    except StoreError:  # its disk has failed: it can be removed all the same
        return True
    return len(stream.consumers) > FEW_CONSUMERS or state.bytes > FEW_BYTES


def _is_long_to_make(stream: Stream, running: Consumer | None, wanted: ConsumerAssignment) -> bool:
    """Whether it may take long until a consumer stands where it begins: only so where it looks for
    that in many messages."""
    config = wanted.config
    if running is None and not consumers.filters(config) and config.deliver_policy in AT_AN_END:
        return False
    return stream.handle.state().messages > FEW_MESSAGES


def _refusal(decision: StreamDecision | ConsumerDecision, error: Exception) -> ApiError:
    """The error of a change that was decided and could not be carried out."""
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
    """What of a limit in bytes is left; -1: there is none."""
    return most if most < 0 else max(most - elsewhere, 0)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error)


def _failed(template: ErrorTemplate, error: Exception) -> ApiError:
    """An operation's own error for a failure below the API; any other failure goes on as it is."""
    if not isinstance(error, (OSError, StoreError)):
        raise error
    return template(err=_reason(error))


def _not_created(template: ErrorTemplate, asset: str, name: str, error: Exception) -> ApiError:
    """The error of a creation that failed below the API; why it failed is for the log.

    A name that no file can have (a NUL in it) fails like a disk that takes none."""
    if not isinstance(error, (OSError, StoreError, ValueError)):
        raise error
    reason = _reason(error)
    told = goformat.failure(error) if isinstance(error, OSError) else reason
    log.error("Error creating store for %s %s: %s", asset, goformat.quote(name), told)
    full = isinstance(error, OSError) and error.errno in NO_ROOM
    return template(err=f"error creating store for {asset}" + (f": {reason}" if full else ""))
