"""What a reload may change: so far, what connections are secured by."""

from __future__ import annotations

from typing import Any

from jsserver.config.options import Options

_RELOADABLE = ("tls", "tls_flags", "allow_non_tls", "ocsp", "config_digest")


def refused_changes(old: Options, new: Options) -> list[str]:
    """The options that differ and stay as they are until the server is started again."""
    names = sorted(vars(old).keys() | vars(new).keys())
    return [n for n in names if n not in _RELOADABLE and getattr(old, n) != getattr(new, n)]


def take(options: Options, new: Options) -> dict[str, Any]:
    """Has the reloadable ones as they are now; what they were."""
    before = {name: getattr(options, name) for name in _RELOADABLE}
    for name in _RELOADABLE:
        setattr(options, name, getattr(new, name))
    return before
