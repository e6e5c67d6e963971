"""Streams and consumers that are assigned to this server but cannot run on it: warns in the log,
and answers that they are offline where no other server holds them.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jsserver.api.call import dynamic_metadata
from jsserver.api.responses import (
    TYPE_PREFIX,
    ConsumerInfo,
    Response,
    SequenceInfo,
    StreamInfo,
    SuccessResponse,
)
from jsserver.cluster import answers
from jsserver.cluster.answers import Api, By
from jsserver.cluster.meta import Name, peers_of
from jsserver.cluster.proposals import Asked
from jsserver.services.answers import encoded
from jsserver.services.clusterapi import failed
from jsserver.services.subjects import is_plain_subject
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire import decode, errcodes
from jsserver.wire.types import ConsumerConfig, StreamConfig, StreamStateInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import Change, MetaState
    from jsserver.process.logs import Logger

VOTES = "unsupported - this server votes in the meta group and holds no streams"
DELAY = 0.5
"""Seconds before an answer, as with nats-server: a server that knows better answers first."""
WAITING_MAX = 1024
"""The most requests that wait at a time; further ones get no answer."""
NEVER = "0001-01-01T00:00:00Z"
Config = TypeVar("Config", StreamConfig, ConsumerConfig)


class Unheld:
    """The assets that cannot run here; follow() applies changes of assignments."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        log: Logger,
        *,
        peer: str,
        held: Callable[[list[str]], bool],
        why: Callable[[dict[str, Any]], str],
        asked: bool,
    ) -> None:
        """`peer`: this server's id; `held`: whether one of these other peers is online; `why`: why
        an assignment cannot run here, "" where it can; `asked`: whether INFO requests of all assets
        arrive anyway, so that no asset needs a subscription of its own."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._system_account = system_account
        self._log = log
        self._peer = peer
        self._held = held
        self._why = why
        self._is_asked = asked
        self._assets: dict[Name, dict[str, Any]] = {}
        """Assignments by asset."""
        self._reasons: dict[Name, str] = {}
        self._by_stream: dict[tuple[str, str], set[Name]] = {}
        self._infos: dict[str, Name] = {}
        """Assets by the subject on which servers ask for their INFO."""
        self._waiting = 0

    # ---- assignments

    def replace(self, state: MetaState) -> None:
        """Checks all assignments: any may have changed."""
        self._judge(state, {(account, name) for account, name, _ in state} | set(self._by_stream))

    def follow(self, state: MetaState, changes: Iterable[Change]) -> None:
        """Checks changed assignments. Answers a removal if no other member can."""
        for change in changes:
            asset = Name(change.account, change.stream, change.consumer)
            if not change.removes or not change.reply:
                continue
            if asset in self._assets and not self._held(self._others(asset)):
                kind = "consumer_delete" if change.consumer else "stream_delete"
                done = SuccessResponse(type=f"{TYPE_PREFIX}{kind}_response", success=True)
                self._system.publish(change.reply.encode(), b"", b"", encoded(done))
        self._judge(state, {(change.account, change.stream) for change in changes})

    def _judge(self, state: MetaState, streams: set[tuple[str, str]]) -> None:
        for account, name in streams:
            found: dict[Name, dict[str, Any]] = {}
            stream = state.streams.get(account, {}).get(name)
            if stream is not None:
                said = {"": stream.said, **stream.consumers}
                whole = self._why(stream.said)
                for consumer, what in said.items():
                    if self._peer in peers_of(what) and (why := whole or self._why(what)):
                        asset = Name(account, name, consumer)
                        found[asset], self._reasons[asset] = what, why
            before = self._by_stream.pop((account, name), set())
            if found:
                self._by_stream[account, name] = set(found)
            for asset in before - found.keys():
                self._drop(asset)
            for asset in found.keys() - before:
                self._add(asset)
            self._assets |= found

    def _add(self, asset: Name) -> None:
        kind = "consumer" if asset.consumer else "stream"
        self._log.warn(f"Detected unsupported {kind} '{asset}': {self._reasons[asset]}")
        self._infos[asset.info_subject] = asset
        if not self._is_asked and is_plain_subject(asset.info_subject):
            self._system.serve_requests(asset.info_subject.encode())

    def _drop(self, asset: Name) -> None:
        del self._assets[asset], self._reasons[asset]
        del self._infos[asset.info_subject]
        if not self._is_asked and is_plain_subject(asset.info_subject):
            self._system.stop_requests(asset.info_subject.encode())

    def _others(self, asset: Name) -> list[str]:
        return [peer for peer in peers_of(self._assets[asset]) if peer != self._peer]

    def has(self, asset: Name) -> bool:
        """Whether the asset cannot run here; in any thread."""
        return asset in self._assets

    # ---- requests

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it asks about one of these assets; whether it did."""
        subject, reply, _, _ = item.texts
        text = subject.decode("utf-8", "replace")
        if text not in self._infos or item.numbers[0] != self._system.id:
            return False
        if reply:
            self._answer_later(self._infos[text], reply, self._info)
        return True

    def seen(self, account: str, stream: str, consumer: str) -> answers.Asset | None:
        """The asset's role on this server, which answers for it; None: another server holds it."""
        asset = Name(account, stream, consumer)
        if asset not in self._assets or self._held(self._others(asset)):
            return None
        return answers.Asset.LEADS

    def answer(self, api: Api, asked: Asked) -> None:
        """Answers a request about an asset that no other server holds."""
        asset = Name(asked.account, *api.args[: 2 if api.by is By.CONSUMER else 1])
        why = self._reasons[asset]
        of_consumer = errcodes.CONSUMER_OFFLINE_REASON(err=why)
        error = of_consumer if asset.consumer else errcodes.STREAM_OFFLINE_REASON(err=why)
        self._answer_later(asset, asked.reply.encode(), lambda _: failed(api, error))

    def _answer_later(
        self, asset: Name, reply: bytes, answer: Callable[[Name], Response]
    ) -> None:
        if self._waiting < WAITING_MAX:
            self._waiting += 1
            asyncio.get_running_loop().call_later(DELAY, self._answer, asset, reply, answer)

    def _answer(self, asset: Name, reply: bytes, answer: Callable[[Name], Response]) -> None:
        self._waiting -= 1
        known = asset in self._assets and self._system_account in self._accounts
        if known and not self._held(self._others(asset)):
            self._system.publish(reply, b"", b"", encoded(answer(asset)))

    def _info(self, asset: Name) -> Response:
        said = self._assets[asset]
        created, now = str(said.get("created", NEVER)), rfc3339_nano(time.time_ns())
        if asset.consumer:
            none = SequenceInfo()
            return OfflineConsumer(
                stream_name=asset.stream,
                name=asset.consumer,
                created=created,
                config=_config(said.get("consumer"), ConsumerConfig),
                delivered=none,
                ack_floor=none,
                num_ack_pending=0,
                num_redelivered=0,
                num_waiting=0,
                num_pending=0,
                ts=now,
                offline_reason=self._reasons[asset],
            )
        return OfflineStream(
            config=_config(said.get("stream"), StreamConfig),
            created=created,
            state=StreamStateInfo(first_ts=NEVER, last_ts=NEVER),
            ts=now,
            offline_reason=self._reasons[asset],
        )


class OfflineStream(StreamInfo):
    """A stream's INFO, with the reason why it does not run."""

    offline_reason: str = ""


class OfflineConsumer(ConsumerInfo):
    """A consumer's INFO, with the reason why it does not run."""

    offline_reason: str = ""


def _config(said: Any, kind: type[Config]) -> Config:
    """A configuration as far as this version understands it."""
    try:
        config = decode.parse(msgspec.json.encode(said), kind, strict=False)
    except decode.Unreadable:
        config = kind()
    return msgspec.structs.replace(config, metadata=dynamic_metadata(config.metadata or {}))
