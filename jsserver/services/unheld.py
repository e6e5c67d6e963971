"""Streams and consumers that are assigned to this server, which votes and holds none: told in the
log, and answered as offline where no other server holds them.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from jsserver.cluster.meta import account_of, peers_of
from jsserver.services.answers import encoded
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

REASON = "unsupported - this server votes in the meta group and holds no streams"
DELAY = 0.5
"""Seconds before an answer, as nats-server waits: a server that knows better comes first."""
WAITING_MAX = 1024
"""Requests that wait so long; more of them get no answer."""
NEVER = "0001-01-01T00:00:00Z"
Config = TypeVar("Config", StreamConfig, ConsumerConfig)
REQUESTER = re.compile(rb"^Nats-Request-Info:[ \t]*(.*?)\r$", re.IGNORECASE | re.MULTILINE)


class Asset(NamedTuple):
    """A stream, or a consumer of it."""

    account: str
    stream: str
    consumer: str = ""

    def __str__(self) -> str:
        return " > ".join(self if self.consumer else self[:2])

    @property
    def info_subject(self) -> str:
        """On which servers ask each other about it."""
        kind = "CI" if self.consumer else "SI"
        return ".".join((f"$JSC.{kind}", *self)).rstrip(".")

    @property
    def api_subject(self) -> str:
        """On which clients ask about it, by way of the system account."""
        kind = "CONSUMER" if self.consumer else "STREAM"
        return ".".join((f"$JS.API.{kind}.INFO", *self[1:])).rstrip(".")


class Unheld:
    """Those that name this server; follow() keeps up with the assignments."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        log: Logger,
        *,
        peer: str,
        held: Callable[[list[str]], bool],
    ) -> None:
        """`peer`: the id of this server; `held`: whether one of these other peers is there."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._system_account = system_account
        self._log = log
        self._peer = peer
        self._held = held
        self._assets: dict[Asset, dict[str, Any]] = {}
        """With what their assignments say."""
        self._by_stream: dict[tuple[str, str], set[Asset]] = {}
        self._subjects: Counter[str] = Counter()
        """Those that are heard; clients of several accounts may ask on one."""
        self._infos: dict[str, Asset] = {}
        """By the subjects on which servers ask."""
        self._waiting = 0

    # ---- what is assigned

    def replace(self, state: MetaState) -> None:
        """All assignments may have changed."""
        self._judge(state, {(account, name) for account, name, _ in state} | set(self._by_stream))

    def follow(self, state: MetaState, changes: Iterable[Change]) -> None:
        """These have changed; a removal that a client waits for is answered by the members."""
        for change in changes:
            asset = Asset(change.account, change.stream, change.consumer)
            if change.reply and asset in self._assets and not self._held(self._others(asset)):
                kind = "consumer_delete" if change.consumer else "stream_delete"
                done = SuccessResponse(type=f"{TYPE_PREFIX}{kind}_response", success=True)
                self._system.publish(change.reply.encode(), b"", b"", encoded(done))
        self._judge(state, {(change.account, change.stream) for change in changes})

    def _judge(self, state: MetaState, streams: set[tuple[str, str]]) -> None:
        for account, name in streams:
            found: dict[Asset, dict[str, Any]] = {}
            stream = state.streams.get(account, {}).get(name)
            if stream is not None:
                said = {"": stream.said, **stream.consumers}
                found = {
                    Asset(account, name, consumer): what
                    for consumer, what in said.items()
                    if self._peer in peers_of(what)
                }
            before = self._by_stream.pop((account, name), set())
            if found:
                self._by_stream[account, name] = set(found)
            for asset in before - found.keys():
                self._drop(asset)
            for asset in found.keys() - before:
                self._add(asset)
            self._assets |= found

    def _add(self, asset: Asset) -> None:
        kind = "consumer" if asset.consumer else "stream"
        self._log.warn(f"Detected unsupported {kind} '{asset}': {REASON}")
        self._infos[asset.info_subject] = asset
        for subject in (asset.info_subject, asset.api_subject):
            self._subjects[subject] += 1
            if self._subjects[subject] == 1 and is_plain_subject(subject):
                self._system.serve_requests(subject.encode())

    def _drop(self, asset: Asset) -> None:
        del self._assets[asset]
        del self._infos[asset.info_subject]
        for subject in (asset.info_subject, asset.api_subject):
            self._subjects[subject] -= 1
            if self._subjects[subject] == 0:
                del self._subjects[subject]
                if is_plain_subject(subject):
                    self._system.stop_requests(subject.encode())

    def _others(self, asset: Asset) -> list[str]:
        return [peer for peer in peers_of(self._assets[asset]) if peer != self._peer]

    # ---- what is asked

    def take(self, item: Item) -> bool:
        """Whether a request out of the inbox is about one of these; it is answered later."""
        subject, reply, headers, _ = item.texts
        text = subject.decode("utf-8", "replace")
        if text not in self._subjects or item.numbers[0] != self._system.id:
            return False
        asset = self._infos.get(text)
        answer = self._info
        if asset is None:
            asset, answer = self._asked(text, headers), self._refusal
        if asset is not None and reply and self._waiting < WAITING_MAX:
            self._waiting += 1
            loop = asyncio.get_running_loop()
            loop.call_later(DELAY, self._answer, asset, reply, answer)
        return True

    def _asked(self, subject: str, headers: bytes) -> Asset | None:
        """What a client asks about: its account is in the headers."""
        found = REQUESTER.search(headers)
        try:
            who = msgspec.json.decode(found[1] if found else b"", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return None
        asset = Asset(account_of({"client": who}), *subject.split(".")[4:])
        return asset if asset in self._assets else None

    def _answer(self, asset: Asset, reply: bytes, answer: Callable[[Asset], Response]) -> None:
        self._waiting -= 1
        known = asset in self._assets and self._system_account in self._accounts
        if known and not self._held(self._others(asset)):
            self._system.publish(reply, b"", b"", encoded(answer(asset)))

    def _refusal(self, asset: Asset) -> Response:
        if asset.consumer:
            error = errcodes.CONSUMER_OFFLINE_REASON(err=REASON).body
            return ConsumerInfo(type=f"{TYPE_PREFIX}consumer_info_response", error=error)
        error = errcodes.STREAM_OFFLINE_REASON(err=REASON).body
        kind = f"{TYPE_PREFIX}stream_info_response"
        return StreamInfo(type=kind, error=error, total=0, offset=0, limit=0)

    def _info(self, asset: Asset) -> Response:
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
                offline_reason=REASON,
            )
        return OfflineStream(
            config=_config(said.get("stream"), StreamConfig),
            created=created,
            state=StreamStateInfo(first_ts=NEVER, last_ts=NEVER),
            ts=now,
            offline_reason=REASON,
        )


class OfflineStream(StreamInfo):
    """What one server tells another of a stream that it does not run."""

    offline_reason: str = ""


class OfflineConsumer(ConsumerInfo):
    """The same of a consumer."""

    offline_reason: str = ""


def _config(said: Any, kind: type[Config]) -> Config:
    """What an assignment says, as this version knows it."""
    try:
        config = decode.parse(msgspec.json.encode(said), kind, strict=False)
    except decode.Unreadable:
        config = kind()
    return msgspec.structs.replace(config, metadata=dynamic_metadata(config.metadata or {}))
