"""What changes of streams are refused for within an account, in the order in which clients see it.

Each kind of change has a list of rules, in nats-server's order; the first that is broken raises its
error. What is wrong with a configuration in itself stands in streams.py, in such a list as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from jsserver.wire import errcodes
from jsserver.wire.types import StreamConfig

from . import sources, streams
from .changes import Asked
from .limits import Claims
from .patterns import check_tokens


class Judged(NamedTuple):
    """A change of a stream, and what it is judged by."""

    config: StreamConfig
    old: StreamConfig | None
    """The configuration that it replaces."""
    is_known: bool
    """Whether the account has a stream of this name, served or offline."""
    claims: Claims
    asked: Asked | None = None
    limited: Iterable[tuple[str, int, int]] = ()
    """The stream's consumers as `streams.violating` takes them."""


Rule = Callable[[Judged], None]
T = TypeVar("T")


def check(rules: Iterable[Callable[[T], None]], judged: T) -> None:
    """Raises the ApiError of the first rule that is broken."""
    for rule in rules:
        rule(judged)


# ---- what a request says besides its configuration -----------------------------------------------


def _names_agree(judged: Judged) -> None:
    assert judged.asked is not None
    if judged.asked.name != judged.config.name:
        raise errcodes.STREAM_MISMATCH()


def _name_has_no_separators(judged: Judged) -> None:
    if "/" in judged.config.name or "\\" in judged.config.name:
        raise errcodes.STREAM_NAME_CONTAINS_PATH_SEPARATORS()


def _is_not_sealed(judged: Judged) -> None:
    if judged.config.sealed:
        text = "stream configuration for create can not be sealed"
        raise errcodes.STREAM_INVALID_CONFIG(err=text)


def _mirror_direct_has_a_mirror(judged: Judged) -> None:
    if judged.config.mirror is None and judged.config.mirror_direct:
        text = "stream has no mirror but does have mirror direct"
        raise errcodes.STREAM_INVALID_CONFIG(err=text)


def _is_valid_in_itself(judged: Judged) -> None:
    """Where a request names the storage, nats-server looks for room before."""
    assert judged.asked is not None
    if judged.asked.wrong is None:
        return
    if judged.asked.names_storage and not judged.is_known:
        _has_room(judged)
    raise judged.asked.wrong


# ---- what the account may have -------------------------------------------------------------------


def _tier_is_allowed(judged: Judged) -> None:
    judged.claims.limits.check_tier(judged.config.num_replicas)


def _one_more_is_allowed(judged: Judged) -> None:
    limits, reserved = judged.claims.tier(judged.config)
    if not judged.is_known and 0 < limits.max_streams <= reserved.streams:
        raise errcodes.MAXIMUM_STREAMS_LIMIT()


def _so_many_consumers_are_allowed(judged: Judged) -> None:
    limits, _ = judged.claims.tier(judged.config)
    if 0 < limits.max_consumers < judged.config.max_consumers:
        raise errcodes.MAXIMUM_CONSUMERS_LIMIT()


def _has_room(judged: Judged) -> None:
    judged.claims.check_room(judged.config, judged.old)


# ---- what the account has ------------------------------------------------------------------------


def _source_filters_are_subjects(judged: Judged) -> None:
    sources.check_filters(judged.config)


def _subjects_are_free(judged: Judged) -> None:
    check_tokens(judged.config.subjects)
    own = judged.old.subjects if judged.old is not None else ()
    if judged.claims.subjects.meets(judged.config.subjects, own):
        raise errcodes.STREAM_SUBJECT_OVERLAP()


def _consumers_keep_to_limits(judged: Judged) -> None:
    if violated := streams.violating(judged.config, judged.limited):
        names = ", ".join(violated)
        raise errcodes.STREAM_UPDATE(err=f"change to limits violates consumers: {names}")


# ---- the order -----------------------------------------------------------------------------------

COUNTED: tuple[Rule, ...] = (
    _tier_is_allowed,  # NO_LIMITS
    _one_more_is_allowed,  # MAXIMUM_STREAMS_LIMIT
    _so_many_consumers_are_allowed,  # MAXIMUM_CONSUMERS_LIMIT
)
"""Of every stream that shall be made or updated."""

NAMED: tuple[Rule, ...] = (
    _names_agree,  # STREAM_MISMATCH
    _name_has_no_separators,  # STREAM_NAME_CONTAINS_PATH_SEPARATORS
)
"""Of a request to make or restore a stream."""

REQUESTED: tuple[Rule, ...] = (
    *NAMED,
    _is_not_sealed,  # STREAM_INVALID_CONFIG
    _mirror_direct_has_a_mirror,  # STREAM_INVALID_CONFIG
    *COUNTED,
    _is_valid_in_itself,  # that of streams.VALID
)
"""Of a request to make a stream, which may be there already."""

NEW: tuple[Rule, ...] = (
    _has_room,  # MEMORY_RESOURCES_EXCEEDED, STORAGE_RESOURCES_EXCEEDED
    _source_filters_are_subjects,  # STREAM_CREATE
    _subjects_are_free,  # STREAM_SUBJECT_OVERLAP
)
"""Of a stream that is not there, after those before."""

UPDATED: tuple[Rule, ...] = (
    _consumers_keep_to_limits,  # STREAM_UPDATE
    *COUNTED,
    _has_room,  # MEMORY_RESOURCES_EXCEEDED, STORAGE_RESOURCES_EXCEEDED
    _subjects_are_free,  # STREAM_SUBJECT_OVERLAP
)
"""Of what an update makes of a stream, where `streams.check_update` allows it."""

RESTORED: tuple[Rule, ...] = (
    *COUNTED,
    _has_room,  # MEMORY_RESOURCES_EXCEEDED, STORAGE_RESOURCES_EXCEEDED
)
"""Of a stream that shall be restored, before its archive comes."""
