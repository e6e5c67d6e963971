"""Text forms that NATS clients and tools know from Go: durations, quoted strings, times, JSON.

All times and durations are integers in nanoseconds; times count from the Unix epoch, in UTC.
"""

import codecs
import os
import time

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
MAX_DURATION = (1 << 63) - 1
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1
"""The times that nanoseconds in 64 bits can tell: 1677-09-21 to 2262-04-11."""

ZERO_TIME = "0001-01-01T00:00:00Z"
"""What an unset time looks like on the wire."""

_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,
    "\u03bcs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_JSON_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), *b"<>&", 0x2028, 0x2029)},
    **{ord(char): f"\\{name}" for char, name in zip('\b\f\n\r\t"\\', 'bfnrt"\\', strict=True)},
}
_DIGITS = "0123456789"
_ANY_DIGIT = str.maketrans(_DIGITS, "9" * 10)
_FIRST_SECOND, _LAST_SECOND = -62_167_219_200, 253_402_300_799
"""The years 0 to 9999, which RFC 3339 can write."""
_CALENDAR_SECONDS = 146_097 * 24 * 3600
"""After 400 years the calendar repeats."""


def _fraction(value: int, unit: int) -> str:
    """`value` in units of `unit`, with as many decimals as it needs."""
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")


def duration(ns: int) -> str:
    """A duration as `1h2m3.5s`, `1.5ms`, `0s`."""
    sign = "-" if ns < 0 else ""
    ns = abs(ns)
    if ns < SECOND:
        if ns == 0:
            return "0s"
        if ns < MICROSECOND:
            return f"{sign}{ns}ns"
        if ns < MILLISECOND:
            return f"{sign}{_fraction(ns, MICROSECOND)}\u00b5s"
        return f"{sign}{_fraction(ns, MILLISECOND)}ms"
    minutes, rest = divmod(ns, MINUTE)
    text = _fraction(rest, SECOND) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _quote_plain(text: str) -> str:
    """Quoting of the duration parser's errors: every byte outside printable ASCII as \\xNN."""
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        if byte in (0x22, 0x5C):
            out.append("\\" + chr(byte))
        elif 0x20 <= byte < 0x7F:
            out.append(chr(byte))
        else:
            out.append(f"\\x{byte:02x}")
    return '"' + "".join(out) + '"'


def _span(text: str, start: int, members: str, inside: bool) -> int:
    """Index after the run, from `start`, of characters that are (or are not) in `members`."""
    while start < len(text) and (text[start] in members) == inside:
        start += 1
    return start


DIGITS_MAX = 40
"""More digits than any number has that a type of Go's can hold."""


def whole_number(digits: str) -> int:
    """The number of decimal digits with or without a sign. Of one that is out of every range only
    that: Python refuses to convert some thousands of digits."""
    if len(digits.lstrip("+-0")) > DIGITS_MAX:
        beyond: int = 10**DIGITS_MAX
        return -beyond if digits[0] == "-" else beyond
    return int(digits)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[ipv6]:port`; ValueError says what is wrong."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or not colon:
        raise ValueError(f"could not parse address string {quote(address)}")
    digits = port[1:] if port[:1] in ("+", "-") and port else port
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"could not parse port {quote(port)}")
    return host, whole_number(port)


def parse_duration(text: str) -> int:
    """Nanoseconds of `300ms`, `-1.5h` or `2h45m`; ValueError with Go's message otherwise."""
    invalid = f"time: invalid duration {_quote_plain(text)}"
    rest = text[1:] if text[:1] in ("+", "-") and text else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(invalid)
    total = 0
    at = 0
    while at < len(rest):
        end = _span(rest, at, _DIGITS, True)
        whole, at = rest[at:end], end
        decimals = ""
        if at < len(rest) and rest[at] == ".":
            end = _span(rest, at + 1, _DIGITS, True)
            decimals, at = rest[at + 1 : end], end
        if not whole and not decimals:
            raise ValueError(invalid)
        end = _span(rest, at, _DIGITS + ".", False)
        name, at = rest[at:end], end
        if not name:
            raise ValueError(f"time: missing unit in duration {_quote_plain(text)}")
        unit = _UNITS.get(name)
        if unit is None:
            raise ValueError(
                f"time: unknown unit {_quote_plain(name)} in duration {_quote_plain(text)}"
            )
        total += whole_number(whole or "0") * unit
        if decimals:
            decimals = decimals[:DIGITS_MAX]  # far below a nanosecond
            total += int(decimals) * unit // 10 ** len(decimals)
        if total > MAX_DURATION + (text[0] == "-"):
            raise ValueError(invalid)
    return -total if text[0] == "-" else total


def reason(error: OSError) -> str:
    """What the system said, without the number that Python puts before it."""
    return error.strerror or str(error)


def failure(error: OSError) -> str:
    """What the system said, and of which file."""
    said = reason(error)
    return f"{os.fsdecode(error.filename)}: {said}" if error.filename else said


def quote(text: str | bytes) -> str:
    """The text in double quotes with Go's escapes (`%q`); bytes that are no UTF-8 as \\xNN."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for char in text:
        code = ord(char)
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        elif 0xD800 <= code <= 0xDFFF:
            out.append("\\ufffd")
        elif code < 0x10000:
            out.append(f"\\u{code:04x}")
        else:
            out.append(f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each_byte", _each_byte)


def json_text(raw: bytes) -> str:
    """Bytes as a JSON text shows them: in the place of each that is no part of UTF-8, U+FFFD."""
    return raw.decode("utf-8", "each_byte")


def rfc3339_nano(ns: int) -> str:
    """A time as `2024-05-04T18:53:41.1234Z`: UTC, no trailing zeros in the fraction."""
    seconds, rest = divmod(ns, SECOND)
    text = _shown.get(seconds) or _second(seconds)
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else text + "Z"


_shown: dict[int, str] = {}
"""Whole seconds that were asked for: a list of streams has few, again and again."""
_SHOWN_MOST = 1024


def _second(seconds: int) -> str:
    t = time.gmtime(min(max(seconds, _FIRST_SECOND), _LAST_SECOND))
    text = (
        f"{t.tm_year:04d}-{t.tm_mon:02d}-{t.tm_mday:02d}"
        f"T{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d}"
    )
    if len(_shown) >= _SHOWN_MOST:
        _shown.clear()
    _shown[seconds] = text
    return text


def _no_time(text: str) -> ValueError:
    return ValueError(f"{quote(text)} is not a time in RFC 3339 form")


def parse_rfc3339(text: str) -> int:
    """Nanoseconds of an RFC 3339 time with any offset and fraction; ValueError if it is none."""
    if len(text) < 20 or not text.isascii():
        raise _no_time(text)
    clock, zone = text[:19], text[19:]
    nanos = 0
    if zone[0] in ".,":
        end = _span(zone, 1, _DIGITS, True)
        digits, zone = zone[1:end], zone[end:]
        if not digits:
            raise _no_time(text)
        nanos = int(digits[:9].ljust(9, "0"))
    offset = 0
    if zone != "Z":
        if len(zone) != 6 or zone[0] not in "+-" or zone[3] != ":":
            raise _no_time(text)
        hours, minutes = zone[1:3], zone[4:6]
        if not (hours + minutes).isdigit() or int(hours) > 23 or int(minutes) > 59:
            raise _no_time(text)
        offset = (int(hours) * 60 + int(minutes)) * (60 if zone[0] == "+" else -60)
    if clock.translate(_ANY_DIGIT) != "9999-99-99T99:99:99":
        raise _no_time(text)
    cycles = 0
    if clock.startswith("0000"):  # which datetime does not know
        clock, cycles = "0400" + clock[4:], 1
    from datetime import datetime, timedelta  # a start without JetStream reads no time

    try:
        parsed = datetime.fromisoformat(clock)
    except ValueError:
        raise _no_time(text) from None
    seconds = (parsed - datetime(1970, 1, 1)) // timedelta(seconds=1) - cycles * _CALENDAR_SECONDS
    return (seconds - offset) * SECOND + nanos


def instant(text: str) -> int:
    """As `parse_rfc3339`, but a time that 64 bits cannot tell becomes the nearest that they can."""
    return min(max(parse_rfc3339(text), EARLIEST), LATEST)


def escape_json(raw: bytes) -> bytes:
    """Encoded JSON with `< > &` and the two Unicode line separators as \\uXXXX, as Go writes it.

    These characters occur in JSON only inside strings, so that a plain replacement is right.
    """
    if b"<" in raw:
        raw = raw.replace(b"<", b"\\u003c")
    if b">" in raw:
        raw = raw.replace(b">", b"\\u003e")
    if b"&" in raw:
        raw = raw.replace(b"&", b"\\u0026")
    if b"\xe2\x80" in raw:
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


def json_string(text: str) -> str:
    """A JSON string in its quotes, escaped as `escape_json` does, for what is written before
    msgspec is loaded."""
    return f'"{text.translate(_JSON_ESCAPES)}"'


def uptime(ns: int) -> str:
    """A span in the monitoring pages' form: `5s`, `2m5s`, `3h2m5s`, `1d3h2m5s`, `1y2d3h2m5s`."""
    minutes, seconds = divmod(ns // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    if years:
        return f"{years}y{days}d{hours}h{minutes}m{seconds}s"
    if days:
        return f"{days}d{hours}h{minutes}m{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    if minutes:
        return f"{minutes}m{seconds}s"
    return f"{seconds}s"


def byte_size(size: int) -> str:
    """A number of bytes as the log shows it: `512 B`, `1.00 KB`, `17.66 GB` (powers of 1024)."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**power:.2f} {'KMGTPE'[power - 1]}B"
