"""What options that a reload cannot change are called in the configuration file, and their values
as messages show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.options import Options
from jsserver.config.parser import parse_file
from jsserver.config.server import READERS
from jsserver.config.values import OptionError, Problems
from jsserver.text.goformat import duration, quote

_BLOCKS = ("cluster", "gateway", "jetstream", "leafnodes", "websocket")
_KEYS = {
    "http_host": "http",
    "jetstream.enabled": "jetstream",
    "jetstream.max_memory": "jetstream.max_memory_store",
    "jetstream.max_store": "jetstream.max_file_store",
}
"""Of options that a file no longer sets, where the key is another word."""
_SPANS = frozenset(
    (
        *("ping_interval", "lame_duck_duration", "lame_duck_grace_period"),
        *("jetstream.sync_interval", "websocket.handshake_timeout", "websocket.ping_interval"),
        *("leafnodes.reconnect", "leafnodes.dial_timeout"),
        *("leafnodes.ping_interval", "gateway.ping_interval"),
    )
)
_SECRET = frozenset(("gateway.password", "leafnodes.password"))
_SHOWN_WHOLE = frozenset(("server_tags", "websocket.allowed_origins"))


def unchangeable(names: list[str], path: str, old: Options, new: Options) -> Iterator[str]:
    """For each of these options how the file calls it, and its values unless they may be secrets or
    are more than a word."""
    keys = _keys_of(path)
    for name in names:
        key = keys.get(name) or _KEYS.get(name, name)
        values = [_shown(name, options) for options in (old, new)]
        yield f"{key}: old={values[0]}, new={values[1]}" if all(values) else key


def _shown(name: str, options: Options) -> str:
    """A value; "": it is not for a log."""
    if name in _SECRET:
        return ""
    value: Any = options
    for part in name.split("."):
        value = getattr(value, part, None)
    if name in _SHOWN_WHOLE:
        return "[" + " ".join(map(quote, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if name in _SPANS and (value is None or isinstance(value, int)):
        return duration(value or 0)
    if isinstance(value, int):
        return str(value)
    return quote(value) if isinstance(value, str) else ""


def _keys_of(path: str) -> dict[str, str]:
    """The key of each option that the file sets."""
    try:
        root = parse_file(path)
    except ConfigError:
        return {}
    found = {}
    for key, value in root.data.items():
        reader = READERS.get(key.lower())
        if reader is None:
            continue
        for inner, part in _parts(value):
            alone = Options()
            try:
                reader(alone, part, Problems())
            except OptionError:
                continue
            found.update(dict.fromkeys(_set_in(alone), key + inner))
    return found


def _parts(value: Value) -> Iterator[tuple[str, Value]]:
    """A value whole, and then each entry of a block by itself, which says more exactly what sets an
    option."""
    yield "", value
    if isinstance(value.data, dict):
        for inner, entry in value.data.items():
            yield f".{inner}", Value({inner: entry}, value.line, value.column, value.file)


def _set_in(options: Options) -> Iterator[str]:
    default = Options()
    for name in vars(default):
        mine, other = getattr(options, name), getattr(default, name)
        if mine != other and name in _BLOCKS:
            for part in vars(other):
                if part != "enabled" and getattr(mine, part) != getattr(other, part):
                    yield f"{name}.{part}"
        elif mine != other:
            yield name
