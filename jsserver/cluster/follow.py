"""Reads assignments as a member: the stream or consumer to run, and why it cannot run.

Pure functions: nothing is started here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from jsserver import API_LEVEL
from jsserver.assets import streams
from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment, new_consumer
from jsserver.text.goformat import parse_rfc3339
from jsserver.wire import decode
from jsserver.wire.types import ConsumerConfig, StreamConfig

if TYPE_CHECKING:
    from jsserver.cluster.meta import Change

T = TypeVar("T", StreamConfig, ConsumerConfig)


class Unsupported(Exception):
    """This version cannot run an assignment; the text says why, in nats-server's words."""


class Step(NamedTuple):
    """What a member has to do about a stream or one of its consumers."""

    said: dict[str, Any] | None
    """The assignment to carry out; None: the asset is to be removed."""
    consumer: str = ""
    change: Change | None = None
    """The entry behind this step; None: the step follows from comparing with the whole state."""
    consumers: frozenset[str] = frozenset()
    """For a stream: the names of its assigned consumers."""
    anew: bool = False
    """Whether to reopen the asset, because its member of a group failed; repeated until it
    works."""
    empty: bool = False
    """Whether the reopened asset starts empty and catches up from the leader."""


def stream(said: dict[str, Any]) -> StreamAssignment:
    """The stream that an assignment asks for, without its consumers; Unsupported."""
    config = _config(said, "stream", StreamConfig)
    return StreamAssignment(config, _created(said))


def consumer(said: dict[str, Any]) -> ConsumerAssignment:
    """The consumer that an assignment asks for; Unsupported."""
    config = _config(said, "consumer", ConsumerConfig)
    return new_consumer(str(said.get("name", "")), config, _created(said))


def runs(said: dict[str, Any] | None) -> StreamAssignment | None:
    """The stream that an assignment asks for; None: no assignment, or unsupported."""
    try:
        return None if said is None else stream(said)
    except Unsupported:
        return None


def runs_consumer(said: dict[str, Any] | None) -> ConsumerAssignment | None:
    """The consumer that an assignment asks for; None: no assignment, or unsupported."""
    try:
        return None if said is None else consumer(said)
    except Unsupported:
        return None


def why_not(said: dict[str, Any]) -> str:
    """Why this version cannot run an assignment; "": it can."""
    try:
        (consumer if "consumer" in said else stream)(said)
    except Unsupported as error:
        return str(error)
    return ""


def _config(said: dict[str, Any], key: str, kind: type[T]) -> T:
    try:
        config = decode.parse(msgspec.json.encode(said.get(key)), kind, strict=True)
    except decode.Unreadable as error:
        raise Unsupported(f"unsupported - config error: {error}") from None
    level = config.metadata.get(streams.REQUIRED_LEVEL, "0")
    if not level.isdecimal() or int(level) > API_LEVEL:
        raise Unsupported(
            f"unsupported - required API level: {level}, current API level: {API_LEVEL}"
        )
    return config


def _created(said: dict[str, Any]) -> int:
    try:
        return parse_rfc3339(str(said.get("created", "")))
    except ValueError:
        raise Unsupported("unsupported - its assignment does not say when it was created") from None
