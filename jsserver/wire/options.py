"""What the fields of a configuration declare beside their types and defaults: the API level that a
server needs for them, how values below the least are read, what an update may change, and what the
data plane has of them.

A field's declaration in types.py carries an `Option`; the rules of streams and consumers look the
options up here. The order of an update's rules is nats-server's: clients compare which error comes
first.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, get_type_hints

import msgspec

from jsserver.text import goformat

from .errors import ApiError, ErrorTemplate

Allows = Callable[[Any, Any], bool]
"""Whether an update may put the second value in the place of the first one."""


def unchanged(old: object, new: object) -> bool:
    """It stays as it is."""
    return old == new


def stays_on(old: bool, new: bool) -> bool:
    """It can be switched on and not off."""
    return new or not old


class Rule(msgspec.Struct, frozen=True):
    """What an update may do to a field, and the error otherwise."""

    place: int
    """Among the rules of all fields, in the order in which they are looked at."""
    allows: Allows
    error: Callable[[], ApiError]


def rule(place: int, allows: Allows, error: ErrorTemplate, text: str = "") -> Rule:
    """A rule whose error has a text of its own."""
    return Rule(place, allows, partial(error, err=text) if text else error)


class Least(msgspec.Struct, frozen=True):
    """The least value of a number; a request's value below it stands for it."""

    value: int
    place: int
    """Among the fields that are corrected, in their order."""
    also_zero: bool = False
    """Whether 0 stands for it, too."""


class Made(msgspec.Struct, frozen=True):
    """What the data plane has in the place of a field, made of it beforehand
    (jsserver/instances/prepared.py)."""

    kind: str
    """Its type in C, `Span[]` of several texts, or `flag`."""
    name: str = ""
    """"": as the field's."""


class Option(msgspec.Struct, frozen=True):
    """A field's place in its table."""

    level: int = 0
    """The API level that a server needs where the field is used."""
    is_used: Callable[[Any], bool] = bool
    """Takes a value: whether the field is used."""
    rules: tuple[Rule, ...] = ()
    least: Least | None = None
    plane: tuple[Made, ...] | None = None
    """What the data plane has of it; None: the field as it is. tools/gen_options.py writes that."""


NOTHING = Option()
CONTROL = Option(plane=())
"""Of a field that the control plane alone acts on."""


@cache
def options_of(kind: type[msgspec.Struct]) -> dict[str, Option]:
    """The options of a configuration's fields, by name."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        given = getattr(hint, "__metadata__", ())
        found[name] = next((one for one in given if isinstance(one, Option)), NOTHING)
    return found


@cache
def _levels(kind: type[msgspec.Struct]) -> list[tuple[str, Option]]:
    return [(name, option) for name, option in options_of(kind).items() if option.level]


def level_of(config: msgspec.Struct, kind: type[msgspec.Struct]) -> int:
    """The API level that a server needs for a configuration."""
    return max(
        (o.level for name, o in _levels(kind) if o.is_used(getattr(config, name))), default=0
    )


@cache
def _rules(kind: type[msgspec.Struct]) -> list[tuple[str, Rule]]:
    found = [(name, one) for name, option in options_of(kind).items() for one in option.rules]
    return sorted(found, key=lambda pair: pair[1].place)


def check_rules(old: msgspec.Struct, new: msgspec.Struct, kind: type[msgspec.Struct]) -> None:
    """Raises the error of the first rule that an update breaks."""
    for name, one in _rules(kind):
        if not one.allows(getattr(old, name), getattr(new, name)):
            raise one.error()


@cache
def least_of(kind: type[msgspec.Struct]) -> list[tuple[str, Least]]:
    """The numbers with a least value, in the order in which they are corrected."""
    found = [(name, o.least) for name, o in options_of(kind).items() if o.least is not None]
    return sorted(found, key=lambda pair: pair[1].place)


# ---- rules of single fields ----------------------------------------------------------------------


def keeps_work_queue(old: str, new: str) -> bool:
    """A retention never becomes a work queue's or ceases to be one."""
    return old == new or "workqueue" not in (old, new)


def stays_pull(old: str, new: str) -> bool:
    """A consumer that is pulled is given no deliver subject."""
    return bool(old) or not new


def stays_push(old: str, new: str) -> bool:
    """One that has a deliver subject keeps one."""
    return bool(new) or not old


def keeps_or_ends(old: object, new: object) -> bool:
    """It can be taken away and not changed."""
    return new is None or new == old


def same_moment(old: str, new: str) -> bool:
    """Two texts of the same time."""
    return _moment(old) == _moment(new)


def _moment(text: str) -> int | None:
    return goformat.parse_rfc3339(text) if text else None


_ZERO_TIME = goformat.parse_rfc3339(goformat.ZERO_TIME)


def is_zero_time(text: str) -> bool:
    """Whether a time is the one that stands for none."""
    return goformat.parse_rfc3339(text) == _ZERO_TIME


def is_time(text: str) -> bool:
    """Whether a time is given."""
    return bool(text) and not is_zero_time(text)
