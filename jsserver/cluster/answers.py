"""Which server of a cluster answers an API request: always exactly one.

A table and pure functions. Every server gets every request and decides for itself whether it
answers. Where another one may have answered, as the lead has just changed, `Rights` has the last
word.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

PREFIX = "$JS.API."
DELAY = 0.5
"""Seconds before the answer that something is offline or not led: until then who leads next is
waited for."""


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
    BEGAN = auto()
    """This server leads, since shortly: who led before may have done what is asked for."""
    LED = auto()
    """Another one leads, or nobody, and another one is to answer."""
    LEFT = auto()
    """Another one leads, and this server did so shortly before."""
    LEADERLESS = auto()
    """Nobody leads yet, and this server is to answer."""


class Asset(Enum):
    """What this server knows of a stream or a consumer."""

    ABSENT = auto()
    """No asset of this name is assigned."""
    LEADS = auto()
    """This server leads the asset; an asset with one replica is always led."""
    BEGAN = auto()
    """Likewise since shortly: who led before may have done what is asked for."""
    HELD = auto()
    """It is held here, and led by another one, or by nobody, and another one is to answer."""
    LEFT = auto()
    """It is held here, and led by another one, and by this server shortly before."""
    LEADERLESS = auto()
    """It is held here, and nobody leads it yet, and this server is to answer."""
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
    """Error 10118, or 10119 for a consumer."""
    PASS = auto()
    """Nothing, but who leads now hears of it from here: when the request came there it may not have
    led yet."""
    SILENT = auto()
    """Not at all: another server answers."""


class Verdict(NamedTuple):
    """What this server says. Within a delay in seconds it is judged anew, again and again: who
    leads by then gets the request, and otherwise it is said at the end."""

    answer: Answer
    delay: float = 0.0
    sure: bool = False
    """Whether no other server can have answered: otherwise those are asked before."""


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
    "STREAM.CANCEL_MOVE": _Row(By.META, 1, 1),
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
    "CONSUMER.PEER.REMOVE": _Row(By.META, 2, 2),
    "CONSUMER.PEER.EVACUATE": _Row(By.META, 2, 2),
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


def decider(api: Api, seen: Seen) -> By:
    """Whose leader is to answer a request."""
    if api.by in (By.META, By.INTEREST):
        return api.by
    of_stream = api.by is By.STREAM or seen.stream in (Asset.ABSENT, Asset.OFFLINE)
    if (seen.stream if of_stream else seen.consumer) is Asset.ABSENT:
        return By.META
    return By.STREAM if of_stream else By.CONSUMER


def verdict(api: Api, seen: Seen) -> Verdict:
    """What this server says to a request."""
    match decider(api, seen):
        case By.INTEREST:
            return Verdict(Answer.SILENT)
        case By.META:
            return _of_meta(seen.meta)
        case By.STREAM:
            return _of_asset(seen.stream, seen.meta)
        case By.CONSUMER:
            return _of_asset(seen.consumer, seen.meta)


def _of_meta(meta: Meta) -> Verdict:
    match meta:
        case Meta.LEADS:
            return Verdict(Answer.META, sure=True)
        case Meta.BEGAN:
            return Verdict(Answer.META)
        case Meta.LEADERLESS:
            return Verdict(Answer.UNAVAILABLE, DELAY)
        case Meta.LEFT:
            return Verdict(Answer.PASS)
        case Meta.LED:
            return Verdict(Answer.SILENT)


def _of_asset(asset: Asset, meta: Meta) -> Verdict:
    match asset:
        case Asset.LEADS:
            return Verdict(Answer.ASSET, sure=True)
        case Asset.BEGAN:
            return Verdict(Answer.ASSET)
        case Asset.LEFT:
            return Verdict(Answer.PASS)
        case Asset.LEADERLESS:
            return Verdict(Answer.UNAVAILABLE, DELAY)
        case Asset.OFFLINE if meta in (Meta.LEADS, Meta.BEGAN):
            return Verdict(Answer.OFFLINE, DELAY)
        case Asset.OFFLINE if meta is Meta.LEADERLESS:
            return Verdict(Answer.UNAVAILABLE, DELAY)
    return Verdict(Answer.SILENT)
