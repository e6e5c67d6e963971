"""What the streams and consumers of a whole cluster claim, with what is proposed and not agreed on
yet: by this a leader judges what it is asked for.

Plain data, made of the meta group's state.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from jsserver.assets.assigned import StreamAssignment, new_consumer
from jsserver.assets.assignments import Assignments, ConsumerDecision, StreamDecision
from jsserver.assets.changes import ConsumerChange, DeleteConsumer, DeleteStream, StreamChange
from jsserver.assets.limits import AccountLimits, Reservations, ServerSettings
from jsserver.cluster import meta
from jsserver.cluster.meta import Change, MetaState, Op
from jsserver.cluster.proposals import Said as Assignment
from jsserver.wire import decode
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerConfig, StreamConfig

Decision = StreamDecision | ConsumerDecision
T = TypeVar("T", StreamConfig, ConsumerConfig)


class Pending(NamedTuple):
    """A change that was proposed."""

    change: StreamChange | ConsumerChange
    decision: Decision


class Said(NamedTuple):
    """What a proposed entry says of an asset."""

    stream: str
    consumer: str
    said: Assignment
    """The assignment that it makes, or takes away."""
    removes: bool


class Judge:
    """The assets of one account over the whole cluster."""

    def __init__(
        self, account: str, state: MetaState, limits: AccountLimits, settings: ServerSettings
    ) -> None:
        self._account = account
        self._state = state
        self._limits = limits
        # What one server has room for is for the placement to find out.
        self._settings = msgspec.structs.replace(settings, max_memory=-1, max_storage=-1)
        self._assets: Assignments | None = None
        self._pending: dict[bytes, Pending] = {}
        """By the entries that were proposed, in their order."""
        self._said: dict[bytes, Said] = {}
        """Likewise, also of entries by which assets have other members and are no others."""

    def limit(self, limits: AccountLimits) -> None:
        """What the account may have from now on."""
        self._limits = limits
        if self._assets is not None:
            self._assets.claims.limits = limits

    @property
    def assets(self) -> Assignments:
        """What is there, and what is proposed."""
        if self._assets is None:
            self._assets = self._made()
            for entry, pending in [*self._pending.items()]:
                try:
                    decision = _propose(self._assets, pending.change)
                except ApiError:
                    # what it was about is gone: nothing comes of it
                    del self._pending[entry], self._said[entry]
                else:
                    self._pending[entry] = pending._replace(decision=decision)
        return self._assets

    def _made(self) -> Assignments:
        made = Assignments(self._limits, self._settings, Reservations())
        for name, assigned in self._state.streams.get(self._account, {}).items():
            config = _config(assigned.said.get("stream"), StreamConfig)
            if config is None:
                made.offline[name] = "unsupported"
                continue
            stream = StreamAssignment(config, meta.created_at(assigned.said))
            for consumer, said in assigned.consumers.items():
                wanted = _config(said.get("consumer"), ConsumerConfig)
                if wanted is None:
                    stream.offline[consumer] = "unsupported"
                else:
                    created = meta.created_at(said)
                    stream.consumers[consumer] = new_consumer(consumer, wanted, created)
            made.adopt(stream)
        return made

    @overload
    def decide(self, change: StreamChange) -> StreamDecision: ...
    @overload
    def decide(self, change: ConsumerChange) -> ConsumerDecision: ...
    @overload
    def decide(self, change: StreamChange | ConsumerChange) -> Decision: ...
    def decide(self, change: StreamChange | ConsumerChange) -> Decision:
        """What a change makes of an asset, or ApiError. Then `proposed` or `undo`."""
        return _propose(self.assets, change)

    def undo(self, decision: Decision) -> None:
        """What was decided is not proposed."""
        self.assets.undo(decision)

    def proposed(
        self,
        entry: bytes,
        change: StreamChange | ConsumerChange,
        decision: Decision,
        said: Assignment,
    ) -> None:
        """An entry stands for what was decided."""
        self._pending[entry] = Pending(change, decision)
        removes = decision.after is None
        self._said[entry] = Said(*_names(decision), said, removes)

    def regrouped(self, entry: bytes, said: Assignment) -> None:
        """An entry has other members hold an asset, or none."""
        consumer = str(said["name"]) if "consumer" in said else ""
        stream = said["stream"] if consumer else said["stream"]["name"]
        self._said[entry] = Said(stream, consumer, said, entry[0] == Op.REMOVE_CONSUMER)

    def refused(self, entry: bytes) -> None:
        """It is not proposed after all; what else is counts as before."""
        self._said.pop(entry, None)
        if self._pending.pop(entry, None) is not None:
            self._assets = None

    def known(self, stream: str) -> meta.StreamAssignment | None:
        """A stream and its consumers, with what is proposed of them."""
        there = self._state.streams.get(self._account, {}).get(stream)
        said = None if there is None else there.said
        consumers = {} if there is None else dict(there.consumers)
        for one in self._said.values():
            if one.stream != stream:
                continue
            if not one.consumer:
                said = None if one.removes else one.said
                consumers = {} if one.removes else consumers
            elif one.removes:
                consumers.pop(one.consumer, None)
            else:
                consumers[one.consumer] = one.said
        return None if said is None else meta.StreamAssignment(said, consumers)

    def said(self, stream: str, consumer: str = "") -> Assignment | None:
        """The assignment of an asset, also of one that is only proposed."""
        for one in reversed(self._said.values()):
            if one[:2] == (stream, consumer):
                return one.said
        there = self._state.streams.get(self._account, {}).get(stream)
        if there is None:
            return None
        return there.consumers.get(consumer) if consumer else there.said

    def applied(self, entry: bytes, change: Change) -> None:
        """The group has agreed on this; `state` has it."""
        pending = self._pending.pop(entry, None)
        self._said.pop(entry, None)
        if self._assets is None:
            return
        if pending is not None:
            if pending.decision.is_open:
                self._assets.settle(pending.decision)
        elif self._pending or not self._removed(self._assets, change):
            self._assets = None  # somebody else's: all is to be looked at anew

    def _removed(self, assets: Assignments, change: Change) -> bool:
        """Whether it was a removal, which is taken over."""
        stream = self._state.streams.get(change.account, {}).get(change.stream)
        gone: StreamChange | ConsumerChange = DeleteStream(change.stream)
        if change.consumer:
            if stream is None or change.consumer in stream.consumers:
                return False
            gone = DeleteConsumer(change.stream, change.consumer)
        elif stream is not None:
            return False
        try:
            assets.settle(_propose(assets, gone))
        except ApiError:
            return False
        return True


def _names(decision: Decision) -> tuple[str, str]:
    """Of the stream, and of the consumer."""
    if isinstance(decision, StreamDecision):
        return decision.name, ""
    return decision.stream.config.name, decision.name


def _propose(assets: Assignments, change: StreamChange | ConsumerChange) -> Decision:
    if isinstance(change, StreamChange):
        return assets.propose(change)
    return assets.propose(change)


def _config(said: Any, kind: type[T]) -> T | None:
    """None: it has what no version here knows."""
    try:
        return decode.parse(msgspec.json.encode(said), kind, strict=True)
    except decode.Unreadable:
        return None
