"""What a member makes of the assignments that name it: what it shall run, and why it cannot.

Plain data: nothing here runs.
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
    """An assignment that this version cannot run; the text says why, as nats-server begins it."""


class Step(NamedTuple):
    """What is to become of a stream, or of one of its consumers."""

    said: dict[str, Any] | None
    """The assignment; None: there is none any more."""
    consumer: str = ""
    change: Change | None = None
    """The entry that says so; None: it was found so in the whole state."""
    consumers: frozenset[str] = frozenset()
    """Of a stream: those that it has."""
    anew: bool = False
    """Whether it is opened anew, as a member of a group could not go on: if that fails, again."""
    empty: bool = False
    """Whether it begins then with nothing, and catches up."""


def stream(said: dict[str, Any]) -> StreamAssignment:
    """The stream that an assignment of this server asks for, without consumers; Unsupported."""
    config = _config(said, "stream", StreamConfig)
    return StreamAssignment(config, _created(said))


def consumer(said: dict[str, Any]) -> ConsumerAssignment:
    """As `stream`."""
    config = _config(said, "consumer", ConsumerConfig)
    return new_consumer(str(said.get("name", "")), config, _created(said))


def runs(said: dict[str, Any] | None) -> StreamAssignment | None:
    """The stream that is to run by an assignment; None: none, or it cannot."""
    try:
        return None if said is None else stream(said)
    except Unsupported:
        return None


def runs_consumer(said: dict[str, Any] | None) -> ConsumerAssignment | None:
    """As `runs`."""
    try:
        return None if said is None else consumer(said)
    except Unsupported:
        return None


def why_not(said: dict[str, Any]) -> str:
    """Why this version cannot run what an assignment asks for; "": it can."""
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
