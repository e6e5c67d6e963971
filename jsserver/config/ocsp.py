"""Reads what the configuration says of OCSP: `ocsp`, `ocsp_cache`, `ocsp_peer` of `tls` blocks."""

from __future__ import annotations

from jsserver.cext.language import Value
from jsserver.config.options import Ocsp, OcspCache, OcspPeer, Options, Tls
from jsserver.config.values import OptionError, Problems, type_name
from jsserver.text.goformat import SECOND, parse_duration, quote

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


_PEER = "error parsing tls peer config"


def _seconds(value: Value, what: str) -> float:
    data = value.data
    if type(data) in (int, float):
        return float(data)
    if isinstance(data, str):
        try:
            return parse_duration(data) / SECOND
        except ValueError as error:
            raise OptionError(value, f"{_PEER}, conversion error: {error}") from None
    raise OptionError(value, f"{what}, conversion error: unexpected type")


def read_ocsp_peer(tls: Tls, value: Value) -> None:
    """Whether responders are asked about clients' certificates: a boolean or a block."""
    if isinstance(value.data, bool):
        tls.ocsp_peer = OcspPeer(verify=value.data)
        return
    if not isinstance(value.data, dict):
        what = "error parsing ocsp peer config: unsupported type map[string]interface {}"
        raise OptionError(value, what)  # the type of what it stands in, as nats-server says
    try:
        tls.ocsp_peer = _peer_block(value.data)
    except OptionError as error:
        raise OptionError(value, f"{error.value.place}: {error}") from None


def _peer_block(entries: dict[str, Value]) -> OcspPeer:
    block = OcspPeer()
    for key, entry in entries.items():
        name = key.lower()
        default = vars(block).get(name)
        if isinstance(default, bool) and isinstance(entry.data, bool):
            setattr(block, name, entry.data)
        elif isinstance(default, float):
            seconds = _seconds(entry, _PEER)
            if seconds >= 0:
                setattr(block, name, seconds)
        else:
            raise OptionError(entry, f"{_PEER}, unknown field [{quote(key)}]")
    return block


def read_ocsp_cache(options: Options, value: Value, problems: Problems) -> None:
    """Whether, and where, answers about clients' certificates are kept: a boolean or a block."""
    what = "error parsing OCSP peer cache config"
    if isinstance(value.data, bool):
        options.ocsp_cache = OcspCache(kind="local" if value.data else "none")
        return
    if not isinstance(value.data, dict):
        raise OptionError(value, f"error parsing tags: unsupported type {type_name(value)}")
    block = OcspCache()
    for key, entry in value.data.items():
        name, data = key.lower(), entry.data
        if name == "type" and isinstance(data, str):
            block.kind = data.lower()
            if block.kind not in ("none", "local"):
                raise OptionError(entry, f"{what}, unknown type [{data}]")
        elif name == "local_store" and isinstance(data, str):
            block.local_store = data
        elif name == "preserve_revoked" and isinstance(data, bool):
            block.preserve_revoked = data
        elif name == "save_interval":
            block.save_interval = float(max(int(_seconds(entry, what)), 1))
        else:
            raise OptionError(entry, f"{what}, unknown field [{quote(key)}]")
    options.ocsp_cache = block
