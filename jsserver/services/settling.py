"""Answers to changes of streams and consumers that the meta group has agreed on: given by who
leads, and told to the account.

Lives in the event loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from jsserver.api.consumer_api import consumer_info
from jsserver.api.responses import TYPE_PREFIX, Response, SuccessResponse
from jsserver.api.stream_api import described
from jsserver.cext import replicas as NEWS
from jsserver.cluster.desired import wish_of
from jsserver.cluster.meta import Change, Name, Op
from jsserver.cluster.proposals import Asked
from jsserver.instances.backend import StoreError
from jsserver.services.changes import agreed, tell_gone, tell_put, when_counted
from jsserver.services.membership import Duty, Member, Owes, owes
from jsserver.services.owed import Owed

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


class Waiting(NamedTuple):
    """A change of an asset that nobody leads."""

    change: Change
    before: str | None
    """Until when a consumer was to pause before it; None: it was made."""


class Settling:
    """Of one server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        shared: Shared,
        answering: Answering,
        owed: Owed,
        *,
        look: Callable[[Name], None],
        tasks: Tasks,
    ) -> None:
        """`look`: sees who leads an asset, and calls settle_waiting()."""
        self._advisories = dispatcher.advisories
        self._shared = shared
        self._answering = answering
        self._owed = owed
        self._look = look
        self._tasks = tasks
        self._waiting: dict[Name, list[Waiting]] = {}

    # ---- changes of what nobody leads, or another server

    def waits(self, asset: Name) -> bool:
        """Whether who asked for a change of it is to be answered when somebody leads."""
        return asset in self._waiting

    def settle(self, owed: Owes, asset: Name, change: Change, before: str | None = None) -> None:
        """A change is answered by who leads its asset next, or by another server."""
        if not change.reply:
            return
        if owed.duty is Duty.WAIT or not owed.led_before:
            self._waiting.setdefault(asset, []).append(Waiting(change, before))
        else:
            self._owed.settle(owed, change.reply, partial(self._wait, asset, change, before))

    def _wait(self, asset: Name, change: Change, before: str | None) -> None:
        self._waiting.setdefault(asset, []).append(Waiting(change, before))
        self._look(asset)

    def settle_waiting(self, account: Account, stream: Stream, asset: Name, *, leads: bool) -> None:
        """Somebody leads the asset: this server, or another one."""
        now = stream.consumers.get(asset.consumer) if asset.consumer else stream
        for change, before in self._waiting.pop(asset, []):
            if leads and now is stream:
                made = change.before is None
                self._tasks.begin(self.tell_stream(account, stream, change, made=made))
            elif leads and now is not None:
                consumer: Any = now
                tell = partial(self.tell_consumer, account, stream, consumer, change, before)
                self._tasks.begin(when_counted(self._shared, consumer, tell))
            else:
                self.settle(owes(now), asset, change, before)

    # ---- what is told

    async def tell_stream(
        self, account: Account, stream: Stream, change: Change | None, *, made: bool
    ) -> None:
        """A stream was made or changed."""
        if change is None:
            return
        updated = change.op is Op.UPDATE_STREAM
        if made or updated:
            action = "modify" if updated else "create"
            self._advisories.stream(account.name, stream.name, action)
        if not change.reply:
            return
        info = await described(account, stream)
        what = "cancel_move" if _cancels(change) else "update" if updated else "create"
        info.type = f"{TYPE_PREFIX}stream_{what}_response"
        info.domain = ""
        info.did_create = made and not updated
        self.answer(change, info)

    def tell_consumer(
        self,
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
        tell_put(self._advisories, asset, now, before, self._shared.clock())
        if now.config.sourcing and before is not None:
            self._tasks.begin(self._reset(account, stream, now, change, before))
        elif change.reply:
            info = consumer_info(self._shared, stream, now, changed=True)
            info.type = f"{TYPE_PREFIX}consumer_create_response"
            self.answer(change, info)

    async def _reset(
        self, account: Account, stream: Stream, now: Consumer, change: Change, before: str
    ) -> None:
        """Has the consumer of a mirror or a source begin anew behind what was confirmed, because
        deliveries that were on their way may be lost. Its group answers when it has agreed."""
        asset = Name(account.name, stream.name, now.name)
        try:
            if isinstance(now.member, Member):
                replica = cast("ConsumerReplica", now.member.replica)
                if not replica.propose_reset(0, change.reply.encode()):
                    self._waiting.setdefault(asset, []).append(Waiting(change, before))
                return
            seq = await self._shared.run(now.handle.reset, 0)
            await self._shared.run(stream.handle.wait_durable)
        except (StoreError, ValueError):  # closed meanwhile, or its disk has failed
            return
        self.answer(change, agreed(self._shared, stream, now, NEWS.NEWS_RESET, seq))

    def tell_gone(self, assets: list[Name]) -> None:
        """These are no more."""
        tell_gone(self._advisories, assets)

    def settle_removal(self, owed: Owes, change: Change, *, told: bool) -> None:
        """An asset is no more. `told`: whether the account hears of it."""
        asset = Name(change.account, change.stream, change.consumer)
        self._owed.settle(owed, change.reply, partial(self._removed, asset, change, told))

    def _removed(self, asset: Name, change: Change, told: bool) -> None:
        if told:
            self.tell_gone([asset])
        kind = "consumer_delete" if asset.consumer else "stream_delete"
        self.answer(change, SuccessResponse(type=f"{TYPE_PREFIX}{kind}_response", success=True))

    def answer(self, change: Change, answer: Response) -> None:
        """To who asked for the change, if anybody waits for that."""
        said = change.said or {}
        subject, client = str(said.get("subject", "")), said.get("client")
        who = client if isinstance(client, dict) else {}
        asked = Asked(change.account, subject, change.reply, b"", who)
        self._answering.send("", asked, answer)


def _cancels(change: Change) -> bool:
    """Whether a change of a stream cancels another one of its members, as nats-server 2.15 knows
    it."""
    said = change.said or {}
    by_request = str(said.get("subject", "")).startswith("$JS.API.STREAM.CANCEL_MOVE.")
    return by_request or bool(wish_of(said).get("cancel_move"))
