"""Answers to changes of streams and consumers that the meta group has agreed on: given by who
leads, and told to the account.

Lives in the event loop.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from jsserver.api.consumer_api import consumer_info
from jsserver.api.responses import TYPE_PREFIX, Response, SuccessResponse
from jsserver.api.stream_api import described
from jsserver.cext import replicas as NEWS
from jsserver.cluster.desired import wish_of
from jsserver.cluster.meta import Change, Name, Op
from jsserver.cluster.proposals import Asked
from jsserver.cluster.succession import LATELY
from jsserver.instances.backend import StoreError
from jsserver.services.changes import agreed, tell_gone, tell_put, when_counted
from jsserver.services.membership import Duty, Member, Owes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jsserver.api.dispatch import Dispatcher
    from jsserver.cext.replicas import ConsumerReplica
    from jsserver.instances.account import Account
    from jsserver.instances.running import Consumer, Stream
    from jsserver.instances.shared import Shared
    from jsserver.process.tasks import Tasks
    from jsserver.services.answering import Answering
    from jsserver.services.asking import Asking


KEPT_MAX = 1024
"""The most changes that are kept."""


class Waiting(NamedTuple):
    """A change of an asset that this server does not lead."""

    change: Change
    before: str | None
    """Until when a consumer was to pause before it; None: it was made."""
    leader: str
    """The id of the server that led the asset as the change came, or first since; "": nobody."""
    at: float
    """Since when, by a clock that only goes on."""


class Settling:
    """Of one server. Each change is kept until this server leads its asset: then it asks the others
    whether the change is answered, and answers itself if not."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        shared: Shared,
        answering: Answering,
        asking: Asking,
        *,
        tasks: Tasks,
    ) -> None:
        self._advisories = dispatcher.advisories
        self._shared = shared
        self._answering = answering
        self._asking = asking
        self._tasks = tasks
        self._waiting: dict[Name, deque[Waiting]] = {}
        self._order: deque[tuple[Name, Change]] = deque()
        """The latest changes, oldest first; some of them wait no more."""

    # ---- changes of what another server leads, or nobody

    def waits(self, asset: Name) -> bool:
        """Whether changes of an asset wait for who leads the asset next."""
        return asset in self._waiting

    def wait(self, owed: Owes, asset: Name, change: Change, before: str | None = None) -> None:
        """A change is answered by who leads its asset, or leads it next."""
        if not change.reply:
            return
        leader = "" if owed.leads else owed.leader
        one = Waiting(change, before, leader, time.monotonic())
        self._waiting.setdefault(asset, deque()).append(one)
        self._order.append((asset, change))
        if len(self._order) > KEPT_MAX:
            asset, oldest = self._order.popleft()
            kept = self._waiting.get(asset)
            if kept is not None and kept[0].change is oldest:
                kept.popleft()
                if not kept:
                    del self._waiting[asset]

    def led_by(self, asset: Name, leader: str) -> None:
        """Another server begins to lead the asset, and answers what nobody has."""
        now, kept = time.monotonic(), self._waiting.get(asset)
        if kept is not None:
            led = (one if one.leader else one._replace(leader=leader, at=now) for one in kept)
            self._waiting[asset] = deque(led)

    async def settle_waiting(
        self, account: Account, stream: Stream, asset: Name, owed: Owes
    ) -> None:
        """This server begins to lead the asset, or the asset goes before anybody leads it."""
        now = stream.consumers.get(asset.consumer) if asset.consumer else stream
        waiting, others, clock = self._waiting.pop(asset, ()), owed.others(), time.monotonic()
        for change, before, leader, at in waiting:
            if leader and (leader not in others or clock - at > LATELY):
                continue  # who led then has answered, or cannot be asked
            if now is stream:
                made = change.before is None
                await self.tell_stream(owed, account, stream, change, made=made)
            elif now is not None:
                consumer: Any = now
                tell = partial(self.tell_consumer, owed, account, stream, consumer, change, before)
                await when_counted(self._shared, consumer, tell)

    async def settle_last(self, account: Account, stream: Stream, asset: Name, owed: Owes) -> None:
        """An asset goes, and a stream's consumers with it."""
        gone = [asset]
        if not asset.consumer:
            gone += [asset._replace(consumer=consumer) for consumer in stream.consumers]
        for one in filter(self.waits, gone):
            if owed.answers:
                await self.settle_waiting(account, stream, one, owed)
            self._waiting.pop(one, None)

    def _once(self, owed: Owes, change: Change, answer: Callable[[], None]) -> None:
        """Answers a change unless another server has."""
        self._asking.want(_key(change), owed.others, answer, sure=owed.duty is Duty.ANSWER)

    # ---- what is told

    async def tell_stream(
        self, owed: Owes, account: Account, stream: Stream, change: Change | None, *, made: bool
    ) -> None:
        """A stream that this server leads was made or changed."""
        if change is None:
            return
        updated = change.op is Op.UPDATE_STREAM
        if not change.reply:
            self._tell_put(account, stream, made=made, updated=updated)
            return
        info = await described(account, stream)
        what = "cancel_move" if _cancels(change) else "update" if updated else "create"
        info.type = f"{TYPE_PREFIX}stream_{what}_response"
        info.domain = ""
        info.did_create = made and not updated

        def tell() -> None:
            self._tell_put(account, stream, made=made, updated=updated)
            self.answer(change, info)

        self._once(owed, change, tell)

    def _tell_put(self, account: Account, stream: Stream, *, made: bool, updated: bool) -> None:
        if made or updated:
            action = "modify" if updated else "create"
            self._advisories.stream(account.name, stream.name, action)

    def tell_consumer(
        self,
        owed: Owes,
        account: Account,
        stream: Stream,
        now: Consumer,
        change: Change | None,
        before: str | None = None,
    ) -> None:
        """Likewise a consumer. `before`: until when it was to pause, None: it was made."""
        if change is None:
            return
        asset = Name(account.name, stream.name, now.name)
        info = None
        if change.reply:
            info = consumer_info(self._shared, stream, now, changed=True)
            info.type = f"{TYPE_PREFIX}consumer_create_response"

        def tell() -> None:
            tell_put(self._advisories, asset, now, before, self._shared.clock())
            if now.config.sourcing and before is not None:
                self._tasks.begin(self._reset(owed, account, stream, now, change, before))
            elif info is not None:
                self.answer(change, info)

        if change.reply:
            self._once(owed, change, tell)
        else:
            tell()

    async def _reset(
        self,
        owed: Owes,
        account: Account,
        stream: Stream,
        now: Consumer,
        change: Change,
        before: str,
    ) -> None:
        """Has the consumer of a mirror or a source begin anew behind what was confirmed, because
        deliveries that were on their way may be lost. Its group answers when it has agreed."""
        asset = Name(account.name, stream.name, now.name)
        try:
            if isinstance(now.member, Member):
                replica = cast("ConsumerReplica", now.member.replica)
                if not replica.propose_reset(0, change.reply.encode()):
                    self._asking.give_up(_key(change))
                    self.wait(owed, asset, change, before)
                return
            seq = await self._shared.run(now.handle.reset, 0)
            await self._shared.run(stream.handle.wait_durable)
        except (StoreError, ValueError):  # closed meanwhile, or its disk has failed
            return
        self.answer(change, agreed(self._shared, stream, now, NEWS.NEWS_RESET, seq))

    def tell_gone(self, asset: Name, owed: Owes, change: Change | None) -> None:
        """A consumer is no more, as its stream is removed, or another one has its name."""
        tell = partial(tell_gone, self._advisories, asset)
        if owed.answers and change is not None:
            key = f"{_key(change)} {asset.consumer}"
            self._asking.want(key, owed.others, tell, sure=owed.duty is Duty.ANSWER)
        elif owed.leads:
            tell()

    def settle_removal(self, owed: Owes, change: Change, *, told: bool) -> None:
        """An asset is no more. `told`: whether the account hears of it."""
        asset = Name(change.account, change.stream, change.consumer)
        if owed.answers:
            self._once(owed, change, partial(self._removed, asset, change, told))

    def _removed(self, asset: Name, change: Change, told: bool) -> None:
        if told:
            tell_gone(self._advisories, asset)
        kind = "consumer_delete" if asset.consumer else "stream_delete"
        self.answer(change, SuccessResponse(type=f"{TYPE_PREFIX}{kind}_response", success=True))

    def answer(self, change: Change, answer: Response) -> None:
        """To who asked for the change, if anybody waits for that."""
        said = change.said or {}
        subject, client = str(said.get("subject", "")), said.get("client")
        who = client if isinstance(client, dict) else {}
        asked = Asked(change.account, subject, change.reply, b"", who)
        self._answering.send("", asked, answer)


def _key(change: Change) -> str:
    """Of the right to answer a change."""
    return f"{change.number} {change.reply}"


def _cancels(change: Change) -> bool:
    """Whether a change of a stream cancels another one of its members, as nats-server 2.15 knows
    it."""
    said = change.said or {}
    by_request = str(said.get("subject", "")).startswith("$JS.API.STREAM.CANCEL_MOVE.")
    return by_request or bool(wish_of(said).get("cancel_move"))
