"""Reads a `tls` block, and makes what connections are secured by of the files that it names."""

from __future__ import annotations

import os
import re
import stat

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.options import DEFAULT_TLS_TIMEOUT, TLS_12, TLS_13, Options, Tls, Websocket
from jsserver.config.suites import CURVES, DEFAULT_CURVES, DEFAULT_SUITES, INSECURE, SUITES
from jsserver.config.values import (
    OptionError,
    Problems,
    as_map,
    as_text,
    not_available,
    type_name,
)
from jsserver.text.goformat import MILLISECOND, SECOND, parse_duration, quote

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jsserver.cext.tls import SecurityContext
    from jsserver.config.clusters import Cluster
    from jsserver.config.gateways import Gateway, RemoteGateway
    from jsserver.config.leafs import Leafnodes, LeafRemote

_FALLBACK_DELAY = 50 * MILLISECOND
"""How long `handshake_first: auto` waits for a handshake."""
_CONFIG = "error parsing tls config"
_PEM = re.compile(rb"^-----BEGIN ([^-\n]+)-----", re.MULTILINE)
_PIN = re.compile(r"[0-9a-f]{64}")
_VERSIONS = {"1.0": 0x301, "1.1": 0x302, "1.2": TLS_12, "1.3": TLS_13}
_GROUP_OR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_STORE = "certificates from the system's store are only available on Windows"


class _Block:
    """What a block says, until all of it is read."""

    def __init__(self) -> None:
        self.tls = Tls()
        self.cert_file = ""
        self.key_file = ""
        self.insecure: list[str] = []
        self.allow_insecure = False
        self.known_urls: Value | None = None


def _set_text(attribute: str, key: str) -> _Reader:
    def read(block: _Block, value: Value, _: str) -> None:
        if not isinstance(value.data, str):
            raise OptionError(value, f"{_CONFIG}, expected '{key}' to be filename")
        setattr(block.tls if attribute == "ca_file" else block, attribute, value.data)

    return read


def _boolean(value: Value, key: str) -> bool:
    if not isinstance(value.data, bool):
        raise OptionError(value, f"{_CONFIG}, expected '{key}' to be a boolean")
    return value.data


def _read_insecure(block: _Block, value: Value, key: str) -> None:
    block.tls.insecure = _boolean(value, key)


def _read_verify(block: _Block, value: Value, key: str) -> None:
    block.tls.verify = _boolean(value, key)


def _read_verify_and_map(block: _Block, value: Value, key: str) -> None:
    block.tls.map = _boolean(value, key)
    block.tls.verify = block.tls.verify or block.tls.map


def _read_known_urls(block: _Block, value: Value, key: str) -> None:
    if _boolean(value, key):
        block.known_urls = value


def _read_allow_insecure(block: _Block, value: Value, key: str) -> None:
    block.allow_insecure = _boolean(value, key)


def _texts(value: Value) -> list[tuple[Value, str]]:
    if not isinstance(value.data, list):
        raise OptionError(
            value,
            f"interface conversion: interface {{}} is {type_name(value)}, not []interface {{}}",
        )
    return [(item, as_text(item)) for item in value.data]


def _read_cipher_suites(block: _Block, value: Value, key: str) -> None:
    names = _texts(value)
    if not names:
        raise OptionError(value, f"{_CONFIG}, 'cipher_suites' cannot be empty")
    block.tls.cipher_suites = []
    for item, name in names:
        if name in INSECURE:
            if not INSECURE[name]:
                raise OptionError(item, not_available(f"the cipher suite {name}"))
            block.insecure.append(name)
        elif name not in SUITES:
            raise OptionError(item, f"unrecognized cipher {name}")
        block.tls.cipher_suites.append(name)


def _read_curve_preferences(block: _Block, value: Value, key: str) -> None:
    names = _texts(value)
    if not names:
        raise OptionError(value, f"{_CONFIG}, 'curve_preferences' cannot be empty")
    for item, name in names:
        if name not in CURVES:
            raise OptionError(item, f"unrecognized curve preference {name}")
    block.tls.curves = [name for _, name in names]


def _read_timeout(block: _Block, value: Value, key: str) -> None:
    data = value.data
    if isinstance(data, str):
        try:
            seconds = parse_duration(data) / SECOND
        except ValueError as error:
            raise OptionError(value, f"{_CONFIG}, 'timeout' {error}") from None
    elif type(data) in (int, float):
        seconds = float(data)
    else:
        raise OptionError(value, f"{_CONFIG}, 'timeout' wrong type")
    block.tls.timeout = seconds or DEFAULT_TLS_TIMEOUT


def _read_rate_limit(block: _Block, value: Value, key: str) -> None:
    if type(value.data) is not int:
        raise OptionError(value, f"{_CONFIG}, 'connection_rate_limit' wrong type")
    block.tls.rate_limit = max(value.data, 0)


def _read_pinned_certs(block: _Block, value: Value, key: str) -> None:
    what = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    if not isinstance(value.data, list):
        raise OptionError(value, f"{_CONFIG}, expected 'pinned_certs' to be a list of {what}")
    pins = []
    for item, text in _texts(value):
        pin = text.lower()
        if not _PIN.fullmatch(pin):
            raise OptionError(
                item, f"{_CONFIG}, 'pinned_certs' key {pin} does not look like {what}"
            )
        pins.append(pin)
    block.tls.pinned_certs = pins or None


def _read_handshake_first(block: _Block, value: Value, key: str) -> None:
    tls, data = block.tls, value.data
    if isinstance(data, bool):
        tls.first = data
        return
    if not isinstance(data, str):
        raise OptionError(
            value, f"field {quote(key)} should be a boolean or a string, got {type_name(value)}"
        )
    word = data.lower()
    if word in ("true", "on", "false", "off"):
        tls.first = word in ("true", "on")
    elif word in ("auto", "auto_fallback"):
        tls.first, tls.fallback = True, _FALLBACK_DELAY
    else:
        try:
            tls.first, tls.fallback = True, max(parse_duration(data), 0)
        except ValueError:
            raise OptionError(
                value, f"field {quote(key)}'s value {quote(data)} is invalid"
            ) from None


def _read_certs(block: _Block, value: Value, key: str) -> None:
    what = "error parsing certificates config"
    if not isinstance(value.data, list):
        raise OptionError(value, f"{what}: unsupported type map[string]interface {{}}")
    pairs = []
    for item in value.data:
        if not isinstance(item.data, dict):
            raise OptionError(item, f"{what}: unsupported type {type_name(item)}")
        files = {"cert_file": "", "key_file": ""}
        for name, entry in item.data.items():
            if not isinstance(entry.data, str):
                raise OptionError(entry, f"{what}: unsupported type {type_name(entry)}")
            if name not in files:
                raise OptionError(
                    entry, f"error parsing tls certs config, unknown field {quote(name)}"
                )
            files[name] = entry.data
        if not all(files.values()):
            last = next(reversed(item.data.values()), item)
            raise OptionError(last, f"{what}: both 'cert_file' and 'cert_key' options are required")
        pairs.append((files["cert_file"], files["key_file"]))
    block.tls.certificates = pairs


def _read_min_version(block: _Block, value: Value, key: str) -> None:
    if not isinstance(value.data, str):
        raise OptionError(value, f"{_CONFIG}: 'min_version' wrong type: {value.data}")
    version = _VERSIONS.get(value.data)
    if version is None:
        raise OptionError(value, f"{_CONFIG}: unknown version: {value.data}")
    if version < TLS_12:
        raise OptionError(value, f"{_CONFIG}: unsupported TLS version: TLS {value.data}")
    block.tls.min_version = version


def _read_ocsp_peer(block: _Block, value: Value, key: str) -> None:
    from jsserver.config.ocsp import read_ocsp_peer  # most blocks have none

    read_ocsp_peer(block.tls, value)


def _read_store(block: _Block, value: Value, key: str) -> None:
    raise OptionError(value, f"{key}: {_STORE}")


if TYPE_CHECKING:
    _Reader = Callable[["_Block", Value, str], None]

_READERS: dict[str, Any] = {
    "cert_file": _set_text("cert_file", "cert_file"),
    "key_file": _set_text("key_file", "key_file"),
    "ca_file": _set_text("ca_file", "ca_file"),
    "insecure": _read_insecure,
    "verify": _read_verify,
    "verify_and_map": _read_verify_and_map,
    "verify_cert_and_check_known_urls": _read_known_urls,
    "allow_insecure_cipher_suites": _read_allow_insecure,
    "cipher_suites": _read_cipher_suites,
    "curve_preferences": _read_curve_preferences,
    "timeout": _read_timeout,
    "connection_rate_limit": _read_rate_limit,
    "pinned_certs": _read_pinned_certs,
    "handshake_first": _read_handshake_first,
    "first": _read_handshake_first,
    "immediate": _read_handshake_first,
    "certs": _read_certs,
    "certificates": _read_certs,
    "min_version": _read_min_version,
    "ocsp_peer": _read_ocsp_peer,
    "cert_store": _read_store,
    "cert_match_by": _read_store,
    "cert_match": _read_store,
    "ca_certs_match": _read_store,
    "cert_match_skip_invalid": _read_store,
}


def read_tls(options: Options | Websocket, value: Value, problems: Problems) -> None:
    """Reads the block into the `tls` of what it stands in; its files must be usable."""
    block = _read_block(value)
    if block.known_urls is not None:
        raise OptionError(
            block.known_urls, "verify_cert_and_check_known_urls not supported in this context"
        )
    _check_files(block.tls, value)
    options.tls = block.tls


def read_mutual_tls(
    target: Cluster | Gateway | RemoteGateway, value: Value, problems: Problems
) -> None:
    """Likewise of `cluster` and `gateway`, where both sides show each other certificates."""
    tls = _read_of_links(value)
    if tls.map:
        raise OptionError(value, not_available("tls between servers (verify_and_map)"))
    tls.verify, tls.first, tls.fallback, tls.rate_limit = True, True, 0, 0
    _check_files(tls, value)
    target.tls = tls


def read_leaf_tls(block: Leafnodes, value: Value, problems: Problems) -> None:
    """Likewise of `leafnodes`, for leaf nodes that come."""
    tls = _read_of_links(value)
    tls.rate_limit = 0
    _check_files(tls, value)
    block.tls = tls


def read_remote_tls(remote: LeafRemote, value: Value, problems: Problems) -> None:
    """Likewise of a hub that is dialled; there may be no certificate."""
    tls = _read_of_links(value, accepts=False)
    tls.verify, tls.map, tls.fallback, tls.rate_limit, tls.pinned_certs = False, False, 0, 0, None
    _check_files(tls, value, dials=True)
    remote.tls = tls


def _read_of_links(value: Value, *, accepts: bool = True) -> Tls:
    block = _read_block(value, accepts=accepts)
    if block.known_urls is not None:
        what = not_available("tls between servers (verify_cert_and_check_known_urls)")
        raise OptionError(block.known_urls, what)
    if block.tls.ocsp_peer is not None:
        raise OptionError(value, not_available("tls between servers (ocsp_peer)"))
    return block.tls


def _read_block(value: Value, *, accepts: bool = True) -> _Block:
    """`accepts`: who accepts connections has a certificate."""
    block = _Block()
    for key, entry in as_map(value).items():
        reader = _READERS.get(key.lower())
        if reader is None:
            raise OptionError(entry, f"{_CONFIG}, unknown field {quote(key)}")
        reader(block, entry, key)
    tls = block.tls
    if tls.certificates and block.cert_file:
        raise OptionError(
            value, f"{_CONFIG}, cannot combine 'cert_file' option with 'certs' option"
        )
    if block.insecure and not block.allow_insecure:
        raise OptionError(
            value,
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            + ", ".join(block.insecure),
        )
    if block.cert_file or block.key_file:
        if not block.key_file:
            raise OptionError(value, "missing 'key_file' in TLS configuration")
        if not block.cert_file:
            raise OptionError(value, "missing 'cert_file' in TLS configuration")
        tls.certificates = [(block.cert_file, block.key_file)]
    if accepts and not tls.certificates:
        raise OptionError(value, "a tls block needs 'cert_file' and 'key_file'")
    return block


def _check_files(tls: Tls, value: Value, *, dials: bool = False) -> None:
    try:
        security_context(tls, optional=False, dials=dials)
    except ConfigError as error:
        raise OptionError(value, str(error)) from None


def from_flags(options: Options) -> None:
    """What the flags `--tls...` say stands instead of the files that a block names; ConfigError."""
    flags = options.tls_flags
    if flags.enabled is False:
        options.tls = None
        return
    if flags.enabled is None and not any((flags.verify, flags.cert, flags.key, flags.ca)):
        return
    if not flags.cert:
        raise ConfigError("TLS Server certificate must be present and valid")
    if not flags.key:
        raise ConfigError("TLS Server private key must be present and valid")
    tls = options.tls or Tls()
    tls.certificates = [(flags.cert, flags.key)]
    tls.ca_file, tls.verify = flags.ca, flags.verify
    tls.cipher_suites, tls.curves, tls.min_version = [], [], TLS_12
    security_context(tls, optional=False)
    options.tls = tls


# ---- the files


def _file(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or str(error)).lower()}") from None


def _check_pem(cert: bytes, key: bytes) -> None:
    """That each has the kind of block that it should; ConfigError."""
    found = [kind.decode("latin-1") for kind in _PEM.findall(cert)]
    if not found:
        raise ConfigError("tls: failed to find any PEM data in certificate input")
    if "CERTIFICATE" not in found:
        if len(found) == 1 and found[0].endswith("PRIVATE KEY"):
            raise ConfigError(
                "tls: failed to find certificate PEM data in certificate input, but did find a "
                "private key; PEM inputs may have been switched"
            )
        raise ConfigError(
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM '
            f"blocks of the following types: [{' '.join(found)}]"
        )
    found = [kind.decode("latin-1") for kind in _PEM.findall(key)]
    if not found:
        raise ConfigError("tls: failed to find any PEM data in key input")
    if not any(kind.endswith("PRIVATE KEY") for kind in found):
        if found == ["CERTIFICATE"]:
            raise ConfigError(
                "tls: found a certificate rather than a key in the PEM for the private key"
            )
        raise ConfigError(
            'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after '
            f"skipping PEM blocks of the following types: [{' '.join(found)}]"
        )


def _openssl_suites(tls: Tls) -> str:
    """What OpenSSL calls the suites of TLS 1.2; those of 1.3 are not chosen, as in nats-server."""
    chosen = [name for name in DEFAULT_SUITES if not tls.cipher_suites or name in tls.cipher_suites]
    chosen += [name for name in INSECURE if name in tls.cipher_suites]
    known = {**SUITES, **INSECURE}
    return ":".join(known[name] for name in chosen if known[name])


def _openssl_curves(tls: Tls) -> str:
    from jsserver.cext.tls import has_group

    wanted = tls.curves or DEFAULT_CURVES
    known = [CURVES[name] for name in wanted if has_group(CURVES[name])]
    if not known:
        raise ConfigError(f"OpenSSL has none of the curves: {', '.join(wanted)}")
    return ":".join(known)


def security_context(tls: Tls, *, optional: bool, dials: bool = False) -> SecurityContext:
    """What connections are secured by, of the files as they are now; ConfigError. `optional`: who
    makes no handshake is served without. `dials`: connections that the server makes are, too."""
    # Only here: it loads OpenSSL.
    from jsserver.cext.tls import ContextError, SecurityContext

    pairs = []
    count = len(tls.certificates)
    what = "error parsing X509 certificate/key pair"
    for number, (cert, key) in enumerate(tls.certificates, 1):
        where = f"{what}: " if count == 1 else f"{what} {number}/{count}: "
        try:
            pair = (_file(cert), _file(key))
            _check_pem(*pair)
            SecurityContext([pair], ciphers="DEFAULT", groups="P-256", timeout=0)
        except (ConfigError, ContextError) as error:
            raise ConfigError(where + str(error)) from None
        pairs.append(pair)
    suites = _openssl_suites(tls)
    try:
        return SecurityContext(
            pairs,
            authorities=_file(tls.ca_file) if tls.ca_file else b"",
            verify=tls.verify,
            min_version=tls.min_version if suites else TLS_13,
            ciphers=suites or "DEFAULT",
            groups=_openssl_curves(tls),
            pins=None if tls.pinned_certs is None else list(map(bytes.fromhex, tls.pinned_certs)),
            first=tls.first,
            optional=optional and not tls.first_only,
            fallback=tls.fallback if tls.first else 0,
            timeout=int(tls.timeout * SECOND),
            rate=tls.rate_limit,
            inquires=tls.inquires,
            dials=dials,
            trusting=dials and tls.insecure,
        )
    except ContextError as error:
        raise ConfigError(str(error)) from None


def readable_by_others(tls: Tls) -> list[str]:
    """The files with private keys that not only their owner may read."""
    found = []
    for _, key in tls.certificates:
        try:
            if os.stat(key).st_mode & _GROUP_OR_OTHERS & (stat.S_IRGRP | stat.S_IROTH):
                found.append(key)
        except OSError:
            continue
    return found
