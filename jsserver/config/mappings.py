"""Subject mappings: reads the `mappings` of an account, and weighs their destinations."""

from __future__ import annotations

import re

from jsserver import TYPE_CHECKING
from jsserver.cext.bytes import SubjectTransform, subject_is_valid
from jsserver.cext.language import Value
from jsserver.config.options import Destination, Mapping
from jsserver.config.values import OptionError, Problems, as_map, as_text
from jsserver.text.goformat import quote
from jsserver.text.transforms import (
    INVALID_SUBJECT,
    Transform,
    TransformError,
    parse_mapping,
    with_places,
)

if TYPE_CHECKING:
    from typing import Any

ALL = 100
"""The sum of weights by which every message goes somewhere."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class MappingError(Exception):
    """A mapping that is none; the text says why."""


def weighed(mapping: Mapping) -> list[tuple[SubjectTransform, int]]:
    """The transforms of a mapping, each with the draws from 0 to 99 below which it is chosen;
    MappingError. They are made once, for the check and for the account."""
    try:
        made: list[tuple[SubjectTransform, int]] = mapping.made
    except AttributeError:
        made = [(transform.compiled(), upto) for _, transform, upto in _drawn(mapping)]
        mapping.made = made
    return made


def draws(mapping: Mapping) -> list[tuple[str, int]]:
    """The destinations of a mapping, each with the draws from 0 to 99 below which it is chosen;
    MappingError."""
    return [(destination, upto) for destination, _, upto in _drawn(mapping)]


def _drawn(mapping: Mapping) -> list[tuple[str, Transform, int]]:
    """What the weights leave over stays where it is, unless the source is a destination itself:
    then it is lost. Destinations for a cluster are checked and not chosen, as there is none."""
    if not subject_is_valid(mapping.source):
        raise MappingError(INVALID_SUBJECT)
    if len(mapping.destinations) == 1:
        only = mapping.destinations[0]
        if only.weight == ALL and not only.cluster:
            return [(only.subject, _transform(mapping.source, only.subject), ALL)]
    seen: dict[str, Transform] = {}
    totals: dict[str, int] = {}
    chosen: list[tuple[int, str]] = []
    for d in mapping.destinations:
        if d.subject in seen:
            raise MappingError(f"duplicate entry for {quote(d.subject)}")
        if d.weight > ALL:
            raise MappingError("individual weights need to be <= 100")
        totals[d.cluster] = totals.get(d.cluster, 0) + d.weight
        if totals[d.cluster] > ALL:
            raise MappingError("total weight needs to be <= 100")
        seen[d.subject] = _transform(mapping.source, d.subject)
        if not d.cluster:
            chosen.append((d.weight, d.subject))
    total = totals.get("", 0)
    if total != ALL and mapping.source not in seen:
        rest = with_places(mapping.source)
        if rest not in seen:
            seen[rest] = _transform(mapping.source, rest)
        chosen.append((ALL - total, rest))
    upto = 0
    found = []
    for weight, destination in sorted(chosen):
        upto += weight
        found.append((destination, seen[destination], upto))
    return found


def _transform(source: str, destination: str) -> Transform:
    try:
        transform = parse_mapping(source, destination)
    except TransformError as error:
        raise MappingError(str(error)) from None
    if transform is None:
        raise MappingError(INVALID_SUBJECT)
    return transform


# ---- the configuration


def _weight(value: Value) -> int:
    data = value.data
    if isinstance(data, str):
        text = data.removesuffix("%")
        if not _NUMBER.fullmatch(text):
            raise OptionError(value, f"Invalid weight {quote(text)} for mapping destination")
        data = int(text)
    if type(data) is not int:
        raise OptionError(value, f"Unknown entry type for weight of {data}")
    if not 0 <= data <= ALL:
        raise OptionError(value, f"Invalid weight {data} for mapping destination")
    return data


def _read_destination(value: Value) -> Destination:
    if not isinstance(value.data, dict):
        raise OptionError(value, "Expected an entry for the mapping destination")
    weight: int | None = None
    destination = Destination()
    for key, entry in value.data.items():
        name = key.lower()
        if name in ("dest", "destination"):
            destination.subject = as_text(entry)
        elif name == "weight":
            weight = _weight(entry)
        elif name == "cluster":
            destination.cluster = as_text(entry)
        else:
            raise OptionError(entry, f"Unknown field {quote(key)} for mapping destination")
    if weight is None:
        subject = quote(destination.subject)
        raise OptionError(value, f"Missing weight for mapping destination {subject}")
    destination.weight = weight
    return destination


def _read_destinations(value: Value, problems: Problems) -> list[Destination]:
    if isinstance(value.data, str):
        return [Destination(subject=value.data)]
    found = []
    for entry in value.data if isinstance(value.data, list) else [value]:
        try:
            found.append(_read_destination(entry))
        except OptionError as error:
            problems.error(error.value, str(error))
    return found


def read_mappings(target: Any, value: Value, problems: Problems) -> None:
    """Reads the block into `target.mappings`."""
    mappings = []
    for source, entry in as_map(value).items():
        if not subject_is_valid(source):
            problems.error(value, f"Subject {quote(source)} is not a valid subject")
            continue
        mapping = Mapping(source=source, destinations=_read_destinations(entry, problems))
        try:
            weighed(mapping)
        except MappingError as error:
            to = f" to {quote(entry.data)}" if isinstance(entry.data, str) else ""
            problems.error(entry, f"Error adding mapping for {quote(source)}{to} : {error}")
        mappings.append(mapping)
    target.mappings = mappings
