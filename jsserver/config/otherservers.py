"""What the blocks `cluster`, `gateway` and `leafnodes` have in common: where other servers are, and
how they log in.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from jsserver import TYPE_CHECKING
from jsserver.config import ConfigError
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    as_duration,
    as_text,
    shown,
    type_name,
)
from jsserver.text.goformat import SECOND, quote, split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from jsserver.cext.language import Value

    T = TypeVar("T")

MAX_PORT = 65535


class ServerUrl(NamedTuple):
    """What a URL says of a server; a login's parts are None where the URL has none."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None
    path: str = ""


def server_url(url: str, kind: str, default_port: int = 0) -> ServerUrl:
    """A URL of a `kind` of servers; without a default it has to name the port. ValueError."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"error parsing {kind} url [{quote(url)}]: {error}") from None
    port = port or default_port
    if not host or not port:
        missing = "host" if default_port else "host or port"
        raise ValueError(f"error parsing {kind} url [{quote(url)}]: {missing} is missing")
    user, password = (
        None if part is None else unquote(part) for part in (parts.username, parts.password)
    )
    return ServerUrl(parts.scheme, host, port, user, password, parts.path)


def read_urls(
    items: list[Value], kind: str, parse: Callable[[str], T], problems: Problems
) -> list[T]:
    """URLs of a list, each once, as `parse` has them. What is none is a problem."""
    seen: set[str] = set()
    found = []
    for item in items:
        url = as_text(item)
        if url in seen:
            problems.warn(item, url, f"Duplicate {kind} entry detected")
            continue
        seen.add(url)
        try:
            found.append(parse(url))
        except ValueError as error:
            problems.error(item, str(error))
    return found


def read_maps(
    value: Value, field: str, entry: str, problems: Problems
) -> Iterator[tuple[Value, dict[str, Value]]]:
    """The maps of a list, each with its place. What is no map is a problem."""
    if not isinstance(value.data, list):
        kind = type_name(value)
        raise OptionError(value, f"Expected {field} field to be an array, got {kind}")
    for item in value.data:
        if isinstance(item.data, dict):
            yield item, item.data
        else:
            what = f"Expected {entry} entry to be a map/struct, got {shown(item)}"
            problems.error(item, what)


# ---- logins


def refused(why: str) -> Reader:
    """An option that a block does not have, where others of its kind do."""

    def read(block: Any, value: Value, problems: Problems) -> None:
        raise OptionError(value, why)

    return read


def read_timeout(block: Any, value: Value, problems: Problems) -> None:
    """Sets `auth_timeout`, in seconds."""
    data = value.data
    if isinstance(data, str):
        block.auth_timeout = as_duration(value, "timeout", problems) / SECOND
    elif type(data) in (int, float):
        block.auth_timeout = float(data)
    else:
        raise OptionError(value, f"error parsing timeout: unsupported type {type_name(value)}")


def read_write_deadline(block: Any, value: Value, problems: Problems) -> None:
    """Sets `write_deadline`, in ns."""
    block.write_deadline = as_duration(value, "write_deadline", problems)


def ping_interval(most: int, warning: str) -> Reader:
    """Sets `ping_interval`, in ns; a longer one than `most` is cut to that, and warned of."""

    def read(block: Any, value: Value, problems: Problems) -> None:
        block.ping_interval = as_duration(value, "ping_interval", problems)
        if block.ping_interval > most:
            problems.warnings.append(f"{value.place}: {warning}")
            block.ping_interval = most

    return read


# ---- where others are told to dial


def advertised(text: str, port: int) -> tuple[str, int]:
    """Host and port of what `advertise` says, the latter where it says none; ValueError."""
    if ":" not in text.rpartition("]")[2]:
        return text.strip("[]"), port
    host, own = split_address(text)
    if own > MAX_PORT:
        raise ValueError(f"port {own} is above {MAX_PORT}")
    return host, own if own > 0 else port


def validate_advertise(block: str, text: str, port: int) -> None:
    """Of a block that has `advertise`; ConfigError."""
    if not text:
        return
    try:
        advertised(text, port)
    except ValueError as error:
        raise ConfigError(f"invalid {block}.Advertise value of {quote(text)}: {error}") from None
