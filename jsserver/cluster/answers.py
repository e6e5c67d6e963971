"""Who of a cluster's servers answers which request of the API: exactly one, and one always.

A table and plain functions. Every server gets every request, and decides for itself.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

PREFIX = "$JS.API."
DELAY = 0.5
"""Seconds before the answer that something is offline or not led: who knows better comes first."""


class By(Enum):
    """Who answers where all is well."""

    META = auto()
    """The leader of the meta group."""
    STREAM = auto()
    """The leader of the stream."""
    CONSUMER = auto()
    """The leader of the consumer."""
    INTEREST = auto()
    """Whoever subscribes to the subject in the account: pulls and direct gets."""


class Meta(Enum):
    """What this server is in the meta group."""

    LEADS = auto()
    BEGINS = auto()
    """It was elected, and leads in a moment."""
    LED = auto()
    """Another one leads."""
    LEADERLESS = auto()
    """Nobody has led for a while."""


class Asset(Enum):
    """What a stream or a consumer is on this server."""

    ABSENT = auto()
    """Nothing of that name is assigned."""
    LEADS = auto()
    """This server leads it; one replica always does."""
    HELD = auto()
    """It is held here, and led by another one."""
    LEADERLESS = auto()
    """It is held here, and nobody leads it."""
    ELSEWHERE = auto()
    """Others hold it, and one of them at least can be reached."""
    OFFLINE = auto()
    """Others hold it, and none of them can be reached."""


class Answer(Enum):
    """What this server says to a request."""

    META = auto()
    """It answers as the leader of the meta group, also that there is no such asset."""
    ASSET = auto()
    """It answers as the leader of what is asked about."""
    UNAVAILABLE = auto()
    """Error 10008: nobody leads."""
    OFFLINE = auto()
    """Error 10118, or 10119 for a consumer."""
    SILENT = auto()
    """Nothing: another one answers."""


class Verdict(NamedTuple):
    """What this server says. After a delay in seconds it is to be judged anew, and said at once."""

    answer: Answer
    delay: float = 0.0


class Api(NamedTuple):
    """A request by its subject."""

    name: str
    """As `STREAM.INFO`."""
    args: tuple[str, ...]
    """The tokens behind the name: stream and consumer first, where there are any."""
    by: By
    system: bool = False
    """Whether only users of the system account may ask."""


class Seen(NamedTuple):
    """What this server knows at the time of a request."""

    meta: Meta
    stream: Asset = Asset.ABSENT
    consumer: Asset = Asset.ABSENT


class _Row(NamedTuple):
    by: By
    least: int
    most: int
    system: bool = False


MANY = 1 << 20
"""Tokens of a filter that stands in a subject."""

TABLE: dict[str, _Row] = {
    "INFO": _Row(By.META, 0, 0),
    "STREAM.CREATE": _Row(By.META, 1, 1),
    "STREAM.UPDATE": _Row(By.META, 1, 1),
    "STREAM.DELETE": _Row(By.META, 1, 1),
    "STREAM.NAMES": _Row(By.META, 0, 0),
    "STREAM.LIST": _Row(By.META, 0, 0),
    "STREAM.RESTORE": _Row(By.META, 1, 1),
    "STREAM.PEER.REMOVE": _Row(By.META, 1, 1),
    "STREAM.INFO": _Row(By.STREAM, 1, 1),
    "STREAM.PURGE": _Row(By.STREAM, 1, 1),
    "STREAM.SNAPSHOT": _Row(By.STREAM, 1, 1),
    "STREAM.MSG.GET": _Row(By.STREAM, 1, 1),
    "STREAM.MSG.DELETE": _Row(By.STREAM, 1, 1),
    "STREAM.LEADER.STEPDOWN": _Row(By.STREAM, 1, 1),
    "CONSUMER.CREATE": _Row(By.META, 1, MANY),
    "CONSUMER.DURABLE.CREATE": _Row(By.META, 2, 2),
    "CONSUMER.DELETE": _Row(By.META, 2, 2),
    "CONSUMER.NAMES": _Row(By.META, 1, 1),
    "CONSUMER.LIST": _Row(By.META, 1, 1),
    "CONSUMER.PAUSE": _Row(By.META, 2, 2),
    "CONSUMER.INFO": _Row(By.CONSUMER, 2, 2),
    "CONSUMER.RESET": _Row(By.CONSUMER, 2, 2),
    "CONSUMER.UNPIN": _Row(By.CONSUMER, 2, 2),
    "CONSUMER.LEADER.STEPDOWN": _Row(By.CONSUMER, 2, 2),
    "CONSUMER.MSG.NEXT": _Row(By.INTEREST, 2, 2),
    "DIRECT.GET": _Row(By.INTEREST, 1, MANY),
    "META.LEADER.STEPDOWN": _Row(By.META, 0, 0, system=True),
    "SERVER.REMOVE": _Row(By.META, 0, 0, system=True),
    "ACCOUNT.PURGE": _Row(By.META, 1, 1, system=True),
    "ACCOUNT.STREAM.MOVE": _Row(By.META, 2, 2, system=True),
    "ACCOUNT.STREAM.CANCEL_MOVE": _Row(By.META, 2, 2, system=True),
}


def read(subject: str) -> Api | None:
    """The request that is asked on a subject; None: it is none of the API, and stays unanswered."""
    if not subject.startswith(PREFIX):
        return None
    tokens = subject[len(PREFIX) :].split(".")
    for length in range(min(len(tokens), 3), 0, -1):
        name = ".".join(tokens[:length])
        row = TABLE.get(name)
        if row is not None:
            args = tuple(tokens[length:])
            whole = row.least <= len(args) <= row.most and all(args[:2])
            return Api(name, args, row.by, row.system) if whole else None
    return None


def verdict(api: Api, seen: Seen) -> Verdict:
    """What this server says to a request."""
    if api.by is By.INTEREST:
        return Verdict(Answer.SILENT)
    if api.by is By.META:
        return _of_meta(seen.meta)
    if api.by is By.STREAM or seen.stream in (Asset.ABSENT, Asset.OFFLINE):
        return _of_asset(seen.stream, seen.meta)
    return _of_asset(seen.consumer, seen.meta)


def _of_meta(meta: Meta) -> Verdict:
    match meta:
        case Meta.LEADS:
            return Verdict(Answer.META)
        case Meta.LEADERLESS:
            return Verdict(Answer.UNAVAILABLE)
        case Meta.BEGINS:
            return Verdict(Answer.UNAVAILABLE, DELAY)
        case Meta.LED:
            return Verdict(Answer.SILENT)


def _of_asset(asset: Asset, meta: Meta) -> Verdict:
    match asset:
        case Asset.LEADS:
            return Verdict(Answer.ASSET)
        case Asset.LEADERLESS:
            return Verdict(Answer.UNAVAILABLE, DELAY)
        case Asset.ABSENT:
            return _of_meta(meta)
        case Asset.OFFLINE if meta is Meta.LEADS:
            return Verdict(Answer.OFFLINE, DELAY)
        case Asset.OFFLINE if meta is not Meta.LED:
            return Verdict(Answer.UNAVAILABLE, DELAY)
    return Verdict(Answer.SILENT)
