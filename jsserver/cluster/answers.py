"""Which server of a cluster answers an API request: always exactly one.

A table and pure functions. Every server gets every request and decides for itself whether it
answers.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

PREFIX = "$JS.API."
DELAY = 0.5
"""Seconds to wait before answering that an asset is offline or leaderless: a server that knows
better answers first."""


class By(Enum):
    """The role of the server that answers, while all is well."""

    META = auto()
    """The meta leader."""
    STREAM = auto()
    """The stream's leader."""
    CONSUMER = auto()
    """The consumer's leader."""
    INTEREST = auto()
    """Any subscriber to the subject in the account: pulls and direct gets."""


class Meta(Enum):
    """This server's role in the meta group."""

    LEADS = auto()
    BEGINS = auto()
    """Elected, but not ready to lead yet."""
    LED = auto()
    """Another server leads."""
    LEADERLESS = auto()
    """The group has had no leader for a while."""


class Asset(Enum):
    """What this server knows of a stream or a consumer."""

    ABSENT = auto()
    """No asset of this name is assigned."""
    LEADS = auto()
    """This server leads the asset; an asset with one replica is always led."""
    HELD = auto()
    """This server holds the asset, another server leads it."""
    LEADERLESS = auto()
    """This server holds the asset, no server leads it."""
    ELSEWHERE = auto()
    """Other servers hold the asset, and at least one of them is online."""
    OFFLINE = auto()
    """Other servers hold the asset, and none of them is online."""


class Answer(Enum):
    """How this server answers a request."""

    META = auto()
    """As the meta leader, also where the asset does not exist."""
    ASSET = auto()
    """As the leader of the asset."""
    UNAVAILABLE = auto()
    """With error 10008: there is no leader."""
    OFFLINE = auto()
    """With error 10118, for a consumer 10119."""
    SILENT = auto()
    """Not at all: another server answers."""


class Verdict(NamedTuple):
    """How this server answers. After `delay` seconds the request is judged again, and the new
    verdict is followed at once."""

    answer: Answer
    delay: float = 0.0


class Api(NamedTuple):
    """A request, read from its subject."""

    name: str
    """Such as `STREAM.INFO`."""
    args: tuple[str, ...]
    """The subject's tokens after the name: stream and consumer first, if the request has them."""
    by: By
    system: bool = False
    """Whether only users of the system account may send the request."""


class Seen(NamedTuple):
    """What this server knows when a request arrives."""

    meta: Meta
    stream: Asset = Asset.ABSENT
    consumer: Asset = Asset.ABSENT


class _Row(NamedTuple):
    by: By
    least: int
    most: int
    system: bool = False


MANY = 1 << 20
"""No bound on the tokens: a filter subject ends the request's subject."""

TABLE: dict[str, _Row] = {
    "INFO": _Row(By.META, 0, 0),
    "STREAM.CREATE": _Row(By.META, 1, 1),
    "STREAM.UPDATE": _Row(By.META, 1, 1),
    "STREAM.DELETE": _Row(By.META, 1, 1),
    "STREAM.NAMES": _Row(By.META, 0, 0),
    "STREAM.LIST": _Row(By.META, 0, 0),
    "STREAM.RESTORE": _Row(By.META, 1, 1),
    "STREAM.PEER.REMOVE": _Row(By.META, 1, 1),
    "STREAM.PEER.EVACUATE": _Row(By.META, 1, 1),
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
    "SERVER.EVACUATE": _Row(By.META, 0, 0, system=True),
    "ACCOUNT.PURGE": _Row(By.META, 1, 1, system=True),
    "ACCOUNT.STREAM.MOVE": _Row(By.META, 2, 2, system=True),
    "ACCOUNT.STREAM.CANCEL_MOVE": _Row(By.META, 2, 2, system=True),
}


def read(subject: str) -> Api | None:
    """The request that a subject stands for; None: not a request of the API, nobody answers."""
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
    """How this server answers a request."""
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
