"""Where a read starts or ends, as users write it: by words, sequences or times, for each stream."""

import datetime
import json
import re
from collections.abc import Mapping, Sequence

from jsserver_spark.errors import OptionError
from jsserver_spark.text.goformat import MILLISECOND, SECOND

EARLIEST = -2
LATEST = -1
"""As Kafka's connector writes them."""

_MAX = (1 << 63) - 1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS = (1_000_000_000, 100_000_000_000)
"""Milliseconds that are as good as certainly meant as seconds: those of 2001 and later."""
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})\d*")


def sequences(
    names: Sequence[str], option: str, text: str, refused: int | None = None
) -> dict[str, int]:
    """A sequence, EARLIEST or LATEST for each stream, but not what is `refused`. OptionError.

    A word stands for every stream, a number for the only one, JSON for each by its name.
    """
    text = text.strip()
    given: Mapping[str, object]
    word = _WORDS.get(text.lower())
    if word is not None:
        given = dict.fromkeys(names, word)
    elif len(names) == 1 and re.fullmatch(r"[0-9]{1,19}", text):
        given = {names[0]: int(text)}
    else:
        given = _by_stream(names, option, text, "earliest, latest, a single stream's sequence, or ")
    found = {name: _sequence(name, option, value) for name, value in given.items()}
    if refused is not None and refused in found.values():
        words = {number: word for word, number in _WORDS.items()}
        raise OptionError(f"option {option!r} must not be {words[refused]!r} in a batch read")
    return found


def _sequence(name: str, option: str, value: object) -> int:
    if isinstance(value, dict):
        raise OptionError(
            f"option {option!r} gives offsets of partitions for stream {name!r}, as Kafka has them:"
            f' a stream has one run of sequences, such as {{"{name}": 1400}}'
        )
    if isinstance(value, int) and not isinstance(value, bool) and EARLIEST <= value <= _MAX:
        return value
    raise OptionError(
        f"option {option!r} gives {json.dumps(value)} for stream {name!r}: must be a sequence,"
        " -2 (earliest) or -1 (latest)"
    )


def times(names: Sequence[str], option: str, text: str) -> dict[str, int]:
    """Nanoseconds since 1970 for each stream, out of JSON with their names. OptionError."""
    given = _by_stream(names, option, text.strip(), "")
    return {name: nanos_at(str(value), option) for name, value in given.items()}


def _by_stream(names: Sequence[str], option: str, text: str, or_else: str) -> Mapping[str, object]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise OptionError(
            f'option {option!r} is {text!r}: must be {or_else}JSON such as {{"{names[0]}": 1400}}'
        )
    if set(given) != set(names):
        odd = sorted(set(given) ^ set(names))[0]
        reason = "is not read" if odd in given else "is missing"
        raise OptionError(
            f"option {option!r} must name every stream that is read: {odd!r} {reason}"
        )
    return given


def nanos_at(text: str, option: str) -> int:
    """Nanoseconds since 1970 of milliseconds since 1970 or an ISO 8601 time; without zone, UTC.

    All nine digits of a fraction count. OptionError.
    """
    text = text.strip()
    try:
        nanos = int(text) * MILLISECOND if text.isascii() and text.isdigit() else _iso(text)
    except ValueError:
        raise OptionError(
            f"option {option!r} is {text!r}: must be milliseconds since 1970 or an ISO 8601 time"
            " such as 2026-11-21T10:00:00Z"
        ) from None
    if text.isdigit() and _SECONDS[0] * MILLISECOND <= nanos < _SECONDS[1] * MILLISECOND:
        raise OptionError(
            f"option {option!r} is {text!r}: as milliseconds that is a day of 1970 to 1973. Seconds"
            f" are {text}000 milliseconds; a time can also be written as 2026-11-21T10:00:00Z"
        )
    if not 0 <= nanos <= _MAX:
        raise OptionError(f"option {option!r} is {text!r}: must be a time from 1970 to 2262")
    return nanos


def _iso(text: str) -> int:
    fraction = _FRACTION.search(text)
    moment = datetime.datetime.fromisoformat(_FRACTION.sub("", text))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return nanos_of(moment) + (int(fraction[1].ljust(9, "0")) if fraction else 0)


def nanos_of(moment: datetime.datetime) -> int:
    """Nanoseconds since 1970 of a time with a zone."""
    elapsed = moment - _EPOCH
    return (elapsed.days * 86400 + elapsed.seconds) * SECOND + elapsed.microseconds * 1000
