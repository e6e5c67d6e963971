"""Reads what the configuration says of OCSP: the `ocsp` option."""

from __future__ import annotations

from jsserver.config.options import Ocsp, Options
from jsserver.config.value import Value
from jsserver.config.values import OptionError, Problems, type_name

_MODES = ("auto", "always", "must", "never")


def _text(block: Value, value: Value) -> str:
    """A text of a block; whatever else it is, nats-server's complaint is about the block."""
    if not isinstance(value.data, str):
        kind = type_name(value)
        raise OptionError(block, f"interface conversion: interface {{}} is {kind}, not string")
    return value.data


def read_ocsp(options: Options, value: Value, problems: Problems) -> None:
    """Whether the server's certificates are shown with OCSP responses: a boolean or a block."""
    what = "error parsing ocsp config: unsupported"
    if isinstance(value.data, bool):
        options.ocsp = Ocsp(mode="auto" if value.data else "never")
        return
    if not isinstance(value.data, dict):
        raise OptionError(value, f"{what} type {type_name(value)}")
    block = Ocsp()
    for key, entry in value.data.items():
        if key == "mode":
            mode = _text(value, entry).lower()
            if mode not in _MODES:
                raise OptionError(entry, f"{what} ocsp mode {type_name(entry)}")
            block.mode = mode
        elif key == "urls" and isinstance(entry.data, list):
            block.urls = [_text(value, item) for item in entry.data]
        elif key in ("url", "urls"):
            block.urls = [_text(value, entry)]
        else:
            raise OptionError(entry, f"{what} field string")
    options.ocsp = block
