"""Reads the `proxies` block: which proxies are trusted to say for whom they connect."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.values import OptionError, Problems, Reader, as_text, read_block, type_name
from jsserver.text.goformat import quote
from jsserver.text.identity import decode_public

if TYPE_CHECKING:
    from typing import Any

    from jsserver.config.options import Options


def _is_key(text: str) -> bool:
    try:
        decode_public(text)
    except ValueError:
        return False
    return True


class _Proxy:
    """One of those that are trusted."""

    key = ""


def _read_key(proxy: _Proxy, value: Value, problems: Problems) -> None:
    proxy.key = as_text(value)
    if not _is_key(proxy.key):
        raise OptionError(value, f"invalid proxy key {quote(proxy.key)}")


_PROXY: dict[str, Reader] = {"key": _read_key, "public_key": _read_key}


def _read_trusted(options: Any, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        what = "expected proxies' trusted field to be an array"
        raise OptionError(value, f"{what}, got {type_name(value)}")
    options.trusted_proxies = []
    for item in value.data:
        if not isinstance(item.data, dict):
            what = "expected proxies' trusted entry to be a map/struct"
            problems.error(item, f"{what}, got {type_name(item)}")
            continue
        proxy = _Proxy()
        read_block(proxy, item.data, _PROXY, problems)
        options.trusted_proxies.append(proxy.key)


def read_proxies(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block into `options.trusted_proxies`."""
    if not isinstance(value.data, dict):
        raise OptionError(value, f"expected proxies to be a map/struct, got {type_name(value)}")
    read_block(options, value.data, {"trusted": _read_trusted}, problems)


def validate_proxies(options: Options) -> None:
    """Refuses, with ConfigError, a proxy without a key."""
    for key in options.trusted_proxies:
        if not _is_key(key):
            raise ConfigError(f"proxy trusted key {quote(key)} is invalid")
