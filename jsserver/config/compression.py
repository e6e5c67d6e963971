"""Reads `compression` of links to other servers."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.values import OptionError, Problems, Reader, as_text, read_block, type_name
from jsserver.text.goformat import duration, parse_duration, quote

if TYPE_CHECKING:
    from typing import Any

    from jsserver.cext.language import Value

MODES = {
    **dict.fromkeys(("not supported", "not_supported"), "not supported"),
    **dict.fromkeys(("off", "disabled", "false"), "off"),
    "accept": "accept",
    **dict.fromkeys(("auto", "s2_auto"), "s2_auto"),
    **dict.fromkeys(("fast", "s2_fast"), "s2_fast"),
    **dict.fromkeys(("better", "s2_better"), "s2_better"),
    **dict.fromkeys(("best", "s2_best"), "s2_best"),
}
ON = ("on", "enabled", "true")
THRESHOLDS_MAX = 4


def compression(on: str) -> Reader:
    """`on` is the mode where the option only says that there is to be compression."""

    def read_mode(target: Any, value: Value, problems: Problems) -> None:
        said = as_text(value).lower()
        mode = MODES.get(on if said in ON else said)
        if mode is None:
            raise OptionError(value, f"unsupported compression mode {quote(as_text(value))}")
        target.compression = mode

    parts: dict[str, Reader] = {
        "mode": read_mode,
        **dict.fromkeys(("rtt_thresholds", "thresholds", "rtts", "rtt"), _read_thresholds),
    }

    def read(target: Any, value: Value, problems: Problems) -> None:
        data = value.data
        if isinstance(data, dict):
            read_block(target, data, parts, problems)
        elif isinstance(data, str):
            read_mode(target, value, problems)
        elif isinstance(data, bool):
            target.compression = on if data else "off"
        else:
            kind = type_name(value)
            what = f'field "compression" should be a boolean or a structure, got {kind}'
            raise OptionError(value, what)
        if target.compression == "s2_auto":
            target.rtt_thresholds = _checked(target.rtt_thresholds, value)

    return read


def _read_thresholds(target: Any, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        raise OptionError(value, f"expected an array of durations, got {type_name(value)}")
    thresholds = []
    for item in value.data:
        try:
            thresholds.append(parse_duration(as_text(item)))
        except ValueError as error:
            raise OptionError(item, str(error)) from None
    target.rtt_thresholds = thresholds


def _checked(given: list[int], value: Value) -> list[int]:
    """Thresholds as they count: a 0 stands for a level that is left out."""
    thresholds = [max(ns, 0) for ns in given]
    said = f"[{' '.join(map(duration, given))}]"
    used = [ns for ns in thresholds if ns]
    if used != sorted(used):
        raise OptionError(value, f"RTT threshold values {said} should be in ascending order")
    while thresholds and not thresholds[-1]:
        thresholds.pop()
    if len(thresholds) > THRESHOLDS_MAX:
        what = f"should have no more than {THRESHOLDS_MAX} RTT thresholds: {said}"
        raise OptionError(value, f'compression mode "s2_auto" {what}')
    if given and not thresholds:
        what = 'compression mode "s2_auto" requires at least one RTT threshold'
        raise OptionError(value, what)
    return thresholds
