"""Decides on changes by all assets of an account in the whole cluster, including proposals that are
not agreed on yet.

Pure data, built from the meta group's state.
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


class Said(NamedTuple):
    """An asset in a proposed entry."""

    stream: str
    consumer: str
    said: Assignment
    """The assignment that the entry makes or removes."""
    removes: bool


class Judge:
    """Judges changes of one account's assets."""

    def __init__(
        self, account: str, state: MetaState, limits: AccountLimits, settings: ServerSettings
    ) -> None:
        self._account = account
        self._state = state
        self._limits = limits
        # The placement checks what a single server has room for.
        self._settings = msgspec.structs.replace(settings, max_memory=-1, max_storage=-1)
        self._assets: Assignments | None = None
        self._pending: dict[bytes, StreamChange | ConsumerChange] = {}
        """The changes by proposed entry, in the order of their proposals. What is proposed later
        takes effect later, so that it may take what these free."""
        self._said: dict[bytes, Said] = {}
        """The same, and also entries that change nothing but an asset's members."""

    def limit(self, limits: AccountLimits) -> None:
        """Sets the account's new limits."""
        self._limits = limits
        if self._assets is not None:
            self._assets.claims.limits = limits

    @property
    def assets(self) -> Assignments:
        """The account's assets, with proposals applied."""
        if self._assets is None:
            self._assets = self._made()
            for entry, change in [*self._pending.items()]:
                try:
                    _carry_out(self._assets, _propose(self._assets, change))
                except ApiError:
                    # an asset that the change needs is gone: the change fails
                    del self._pending[entry], self._said[entry]
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
        """What a change makes of an asset; ApiError. The caller calls `proposed` or `undo` next."""
        return _propose(self.assets, change)

    def undo(self, decision: Decision) -> None:
        """Forgets a decision that is not proposed."""
        self.assets.undo(decision)

    def proposed(
        self,
        entry: bytes,
        change: StreamChange | ConsumerChange,
        decision: Decision,
        said: Assignment,
    ) -> None:
        """Notes the entry that proposes a decision."""
        _carry_out(self.assets, decision)
        self._pending[entry] = change
        removes = decision.after is None
        self._said[entry] = Said(*_names(decision), said, removes)

    def regrouped(self, entry: bytes, said: Assignment) -> None:
        """Notes an entry that changes an asset's members, or removes a consumer that lost its only
        one."""
        consumer = str(said["name"]) if "consumer" in said else ""
        stream = said["stream"] if consumer else said["stream"]["name"]
        self._said[entry] = Said(stream, consumer, said, entry[0] == Op.REMOVE_CONSUMER)

    def refused(self, entry: bytes) -> None:
        """Forgets a proposal that the group did not accept."""
        self._said.pop(entry, None)
        if self._pending.pop(entry, None) is not None:
            self._assets = None

    def known(self, stream: str) -> meta.StreamAssignment | None:
        """A stream and its consumers, with proposals applied; None: there is none."""
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
        """An asset's assignment, the proposed one if there is one; None: there is none."""
        for one in reversed(self._said.values()):
            if one[:2] == (stream, consumer):
                return one.said
        there = self._state.streams.get(self._account, {}).get(stream)
        if there is None:
            return None
        return there.consumers.get(consumer) if consumer else there.said

    def applied(self, entry: bytes, change: Change) -> None:
        """Notes an entry that was agreed on and applied to the state."""
        pending = self._pending.pop(entry, None)
        self._said.pop(entry, None)
        if self._assets is None:
            return
        if pending is None and (self._pending or not self._removed(self._assets, change)):
            self._assets = None  # another leader's entry: build the assets again

    def _removed(self, assets: Assignments, change: Change) -> bool:
        """Takes over a removal; whether `change` was one."""
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


class Undone:
    """Undoes a judge's decision if a later step of the same proposal raises."""

    def __init__(self, judge: Judge, decision: Decision) -> None:
        self._judge = judge
        self._decision = decision

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, where: object) -> None:
        if error is not None:
            self._judge.undo(self._decision)


def _names(decision: Decision) -> tuple[str, str]:
    """The stream's and the consumer's name."""
    if isinstance(decision, StreamDecision):
        return decision.name, ""
    return decision.stream.config.name, decision.name


def _propose(assets: Assignments, change: StreamChange | ConsumerChange) -> Decision:
    if isinstance(change, StreamChange):
        return assets.propose(change)
    return assets.propose(change)


def _carry_out(assets: Assignments, decision: Decision) -> None:
    if decision.is_open:
        assets.settle(decision)


def _config(said: Any, kind: type[T]) -> T | None:
    """None: the configuration has something that this version does not know."""
    try:
        return decode.parse(msgspec.json.encode(said), kind, strict=True)
    except decode.Unreadable:
        return None
