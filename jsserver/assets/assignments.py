"""The streams and consumers that an account shall have, what they claim, and how they may change.

The same changes (changes.py) give the same assignments wherever they are replayed. `propose`
decides a change by the rules (rules.py) or refuses it. The caller, who runs streams, carries the
decision out, and `settle` says that this is done, or `undo` that it could not be. In between what
was and what shall be are both claimed: no other stream can take what an undo brings back.
"""

from collections.abc import Iterator
from typing import overload

import msgspec

from jsserver.wire import errcodes
from jsserver.wire.types import ConsumerConfig, StreamConfig

from . import consumer_rules, consumers, rules, streams
from .assigned import ConsumerAssignment, StreamAssignment, new_consumer
from .changes import (
    Asked,
    ConsumerChange,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PutConsumer,
    StreamChange,
    UpdateStream,
)
from .limits import AccountLimits, Claims, Reservations, ServerSettings


class StreamDecision(msgspec.Struct, frozen=True):
    """What a change makes of a stream; None is no stream."""

    name: str
    before: StreamAssignment | None
    after: StreamAssignment | None

    @property
    def is_open(self) -> bool:
        """Whether there is something to carry out."""
        return self.after is not self.before


class ConsumerDecision(msgspec.Struct, frozen=True):
    """What a change makes of a consumer."""

    stream: StreamAssignment
    name: str
    before: ConsumerAssignment | None
    after: ConsumerAssignment | None

    @property
    def is_open(self) -> bool:
        """As of streams."""
        return self.after is not self.before


_Some = tuple[StreamAssignment | None, ...]


class Assignments:
    """Those of one account; `server` is what all accounts have reserved together."""

    def __init__(
        self, limits: AccountLimits, settings: ServerSettings, server: Reservations
    ) -> None:
        self.streams: dict[str, StreamAssignment] = {}
        self.offline: dict[str, str] = {}
        """Streams on disk that are not served, and why. They claim no more than their names."""
        self.claims = Claims(limits, settings, server)

    def stream(self, name: str) -> StreamAssignment:
        """The stream of this name, or ApiError."""
        found = self.streams.get(name)
        if found is None:
            raise self.absent(name)
        return found

    def config_of(self, name: str) -> StreamConfig | None:
        """The configuration of a stream, if there is one."""
        found = self.streams.get(name)
        return found.config if found is not None else None

    def absent(self, name: str) -> Exception:
        """The error of who asks for a stream that is not served."""
        if name in self.offline:
            return errcodes.STREAM_OFFLINE_REASON(err=self.offline[name])
        return errcodes.STREAM_NOT_FOUND()

    @overload
    def propose(self, change: StreamChange) -> StreamDecision: ...
    @overload
    def propose(self, change: ConsumerChange) -> ConsumerDecision: ...
    def propose(self, change: StreamChange | ConsumerChange) -> StreamDecision | ConsumerDecision:
        """Decides a change, or ApiError: then nothing is other than it was."""
        if isinstance(change, StreamChange):
            return self._propose_stream(change)
        return self._propose_consumer(change)

    def settle(self, decision: StreamDecision | ConsumerDecision) -> None:
        """A decision was carried out: what was before is claimed no longer."""
        if isinstance(decision, StreamDecision):
            self._settle_stream(decision)
        else:
            self._settle_consumer(decision)

    def undo(self, decision: StreamDecision | ConsumerDecision) -> None:
        """A decision could not be carried out: all is as it was before."""
        if isinstance(decision, StreamDecision):
            self._undo_stream(decision)
        else:
            self._undo_consumer(decision)

    def adopt(self, stream: StreamAssignment) -> None:
        """Takes a stream that was decided in an earlier life, whatever the rules say today."""
        self._place(stream.config.name, stream)
        self._claim(stream)
        self._reserve((), (stream,))
        for consumer in stream.consumers.values():
            stream.claim(consumer)
        self._count_consumers(len(stream.consumers))

    def assign_stream(self, name: str, after: StreamAssignment | None) -> StreamDecision:
        """What a cluster has decided of a stream, whatever the rules say here."""
        decision = StreamDecision(name, self.streams.get(name), after)
        self._take_stream(decision)
        return decision

    def assign_consumer(
        self, stream: StreamAssignment, name: str, after: ConsumerAssignment | None
    ) -> ConsumerDecision:
        """Likewise of a consumer."""
        decision = ConsumerDecision(stream, name, stream.consumers.get(name), after)
        self._take_consumer(decision)
        return decision

    def check_names(self, name: str, config: StreamConfig) -> None:
        """Raises if a request that names a stream in its subject may not restore it so."""
        rules.check(rules.NAMED, self._judged(config, Asked(name)))

    def check_restore(self, config: StreamConfig) -> None:
        """Raises if a stream with this configuration could not be restored now."""
        rules.check(rules.RESTORED, self._judged(config))

    def _judged(self, config: StreamConfig, asked: Asked | None = None) -> rules.Judged:
        is_known = config.name in self.streams or config.name in self.offline
        return rules.Judged(config, None, is_known, self.claims, asked)

    # ---- streams ---------------------------------------------------------------------------------

    def _propose_stream(self, change: StreamChange) -> StreamDecision:
        match change:
            case CreateStream():
                decision = self._create(change)
            case UpdateStream():
                decision = self._update(change)
            case DeleteStream():
                decision = StreamDecision(change.name, self.stream(change.name), None)
        self._take_stream(decision)
        return decision

    def _take_stream(self, decision: StreamDecision) -> None:
        """From now on what was before and what shall be are both claimed."""
        if decision.is_open:
            self._place(decision.name, decision.after)
            self._claim(decision.after)
            self._reserve((decision.before,), (decision.before, decision.after))

    def _settle_stream(self, decision: StreamDecision) -> None:
        before, after = decision.before, decision.after
        self._release(before)
        self._reserve((before, after), (after,))
        if before is not None and after is None:
            self._count_consumers(-len(before.consumers))

    def _undo_stream(self, decision: StreamDecision) -> None:
        before, after = decision.before, decision.after
        self._place(decision.name, before)
        self._release(after)
        self._reserve((before, after), (before,))

    def _create(self, change: CreateStream) -> StreamDecision:
        config, name = change.config, change.config.name
        judged = self._judged(config, change.asked)
        rules.check(rules.COUNTED if change.asked is None else rules.REQUESTED, judged)
        if judged.is_known:
            there = self.stream(name)
            if not streams.same(there.config, config):
                raise errcodes.STREAM_NAME_EXIST()
            return StreamDecision(name, there, there)
        rules.check(rules.NEW, judged)
        return StreamDecision(name, None, StreamAssignment(config, change.created))

    def _update(self, change: UpdateStream) -> StreamDecision:
        name = change.config.name
        old = self.stream(name)
        config = streams.check_update(old.config, change.config)
        judged = rules.Judged(config, old.config, True, self.claims, limited=_limited(old))
        rules.check(rules.UPDATED, judged)
        return StreamDecision(name, old, old.updated(config))

    def _place(self, name: str, stream: StreamAssignment | None) -> None:
        if stream is None:
            del self.streams[name]
        else:
            self.streams[name] = stream

    def _claim(self, stream: StreamAssignment | None) -> None:
        if stream is not None:
            self.claims.subjects.add(stream.config.subjects)

    def _release(self, stream: StreamAssignment | None) -> None:
        if stream is not None:
            self.claims.subjects.remove(stream.config.subjects)

    def _reserve(self, was: _Some, now: _Some) -> None:
        self.claims.reserve(_configs(was), _configs(now))

    # ---- consumers -------------------------------------------------------------------------------

    def _propose_consumer(self, change: ConsumerChange) -> ConsumerDecision:
        if isinstance(change, PutConsumer) and change.asked is not None:
            rules.check(consumer_rules.REQUESTED, change.asked)
        stream = self.stream(change.stream)
        before: ConsumerAssignment | None
        after: ConsumerAssignment | None
        match change:
            case PutConsumer():
                before = stream.consumers.get(change.name)
                after = self.judge(stream, change, before)
            case PauseConsumer():
                before = stream.consumer(change.name)
                after = _paused(before, change.until)
            case DeleteConsumer():
                before, after = stream.consumer(change.name), None
        decision = ConsumerDecision(stream, change.name, before, after)
        self._take_consumer(decision)
        return decision

    def _take_consumer(self, decision: ConsumerDecision) -> None:
        """As of streams."""
        if decision.is_open:
            _place_consumer(decision, decision.after)
            if decision.after is not None:
                decision.stream.claim(decision.after)
            if decision.before is None:
                self._count_consumers(1)

    def _settle_consumer(self, decision: ConsumerDecision) -> None:
        if decision.before is not None:
            decision.stream.release(decision.before)
        if decision.after is None:
            self._count_consumers(-1)

    def _undo_consumer(self, decision: ConsumerDecision) -> None:
        _place_consumer(decision, decision.before)
        if decision.after is not None:
            decision.stream.release(decision.after)
        if decision.before is None:
            self._count_consumers(-1)

    def judge(
        self, stream: StreamAssignment, change: PutConsumer, before: ConsumerAssignment | None
    ) -> ConsumerAssignment:
        """The consumer that a stream would have, instead of the one before, or ApiError."""
        judged = consumer_rules.Judged(change, stream, self.claims.limits)
        rules.check(consumer_rules.WANTED, judged)
        if before is None:
            rules.check(consumer_rules.NEW, judged)
            return new_consumer(change.name, change.config, change.created)
        if _asks_same(change, before.config):
            return before
        rules.check(consumer_rules.UPDATED, judged)
        return _updated(change, before)

    def _count_consumers(self, change: int) -> None:
        self.claims.reserved.consumers += change
        self.claims.server.consumers += change


def _configs(some: _Some) -> list[StreamConfig]:
    return [stream.config for stream in some if stream is not None]


def _limited(stream: StreamAssignment) -> Iterator[tuple[str, int, int]]:
    """The stream's consumers as `streams.violating` takes them."""
    for consumer in stream.consumers.values():
        config = consumer.config
        yield consumer.name, config.inactive_threshold, config.max_ack_pending


def _place_consumer(decision: ConsumerDecision, consumer: ConsumerAssignment | None) -> None:
    if consumer is None:
        del decision.stream.consumers[decision.name]
    else:
        decision.stream.consumers[decision.name] = consumer


def _asks_same(change: PutConsumer, old: ConsumerConfig) -> bool:
    """Whether a consumer is asked for just as it is; a creation passes over what servers note."""
    if not consumers.same(old, change.config):
        return False
    return change.action == "create" or old.metadata == change.config.metadata


def _updated(change: PutConsumer, before: ConsumerAssignment) -> ConsumerAssignment:
    old, config = before.config, change.config
    if not old.durable_name and config.inactive_threshold != old.inactive_threshold:
        config = consumers.with_threshold(config)
    return ConsumerAssignment(change.name, config, before.created, config)


def _paused(before: ConsumerAssignment, until: str) -> ConsumerAssignment:
    config = msgspec.structs.replace(before.config, pause_until=until)
    consumers.note_level(config)
    return ConsumerAssignment(before.name, config, before.created, config)
