"""Reads the `websocket` block, and checks it against the other options."""

from __future__ import annotations

from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.options import Authorization, Options, Websocket
from jsserver.config.tls import read_tls
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    address,
    as_duration,
    as_int,
    as_map,
    flag,
    read_block,
    text,
    type_name,
)
from jsserver.text.goformat import SECOND, parse_duration, quote
from jsserver.text.urls import Url, host_and_port, parse_url

DEFAULT_HANDSHAKE = 10 * SECOND
RESERVED_HEADERS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")
"""What answers to requests for WebSocket say by themselves."""


def _read_origins(block: Websocket, value: Value, problems: Problems) -> None:
    if isinstance(value.data, str):
        block.allowed_origins = [value.data]
        return
    what = "error parsing allowed origins: unsupported type"
    if not isinstance(value.data, list):
        raise OptionError(value, f"{what} {type_name(value)}")
    origins = []
    for item in value.data:
        if isinstance(item.data, str):
            origins.append(item.data)
        else:
            problems.error(item, f"{what} in array {type_name(item)}")
    block.allowed_origins = origins


def _read_handshake_timeout(block: Websocket, value: Value, problems: Problems) -> None:
    if type(value.data) is int:
        block.handshake_timeout = value.data * SECOND
    elif isinstance(value.data, str):
        try:
            block.handshake_timeout = parse_duration(value.data)
        except ValueError as error:
            raise OptionError(value, str(error)) from None
    else:
        raise OptionError(
            value, f"error parsing handshake timeout: unsupported type {type_name(value)}"
        )


def _read_headers(block: Websocket, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, f"error parsing headers: unsupported type {type_name(value)}")
    headers = {}
    for name, entry in value.data.items():
        if not isinstance(entry.data, str):
            kind = type_name(entry)
            problems.error(entry, f"error parsing header key {name}: unsupported type {kind}")
        else:
            headers[name] = entry.data
    block.headers = headers


def _read_ping_interval(block: Websocket, value: Value, problems: Problems) -> None:
    block.ping_interval = as_duration(value, "ping_interval", problems)


def _read_port(block: Websocket, value: Value, problems: Problems) -> None:
    block.port = as_int(value)


def _read_timeout(single: Authorization, value: Value, problems: Problems) -> None:
    data = value.data
    single.timeout = float(data) if type(data) in (int, float) else 1.0


_SINGLE: dict[str, Reader] = {
    "user": text("username"),
    "username": text("username"),
    "pass": text("password"),
    "password": text("password"),
    "token": text("token"),
    "timeout": _read_timeout,
}


def _read_authorization(block: Websocket, value: Value, problems: Problems) -> None:
    single = Authorization(timeout=0.0)
    read_block(single, as_map(value), _SINGLE, problems)
    block.authorization = single


_BLOCK: dict[str, Reader] = {
    "listen": address("host", "port"),
    "port": _read_port,
    "host": text("host"),
    "net": text("host"),
    "advertise": text("advertise"),
    "no_tls": flag("no_tls"),
    "tls": read_tls,
    "same_origin": flag("same_origin"),
    **dict.fromkeys(
        ("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
        _read_origins,
    ),
    "handshake_timeout": _read_handshake_timeout,
    "compress": flag("compression"),
    "compression": flag("compression"),
    "authorization": _read_authorization,
    "authentication": _read_authorization,
    "jwt_cookie": text("jwt_cookie"),
    "user_cookie": text("user_cookie"),
    "pass_cookie": text("pass_cookie"),
    "token_cookie": text("token_cookie"),
    "no_auth_user": text("no_auth_user"),
    "headers": _read_headers,
    "ping_interval": _read_ping_interval,
}


def read_websocket(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block into `options.websocket`."""
    if not isinstance(value.data, dict):
        kind = type_name(value)
        raise OptionError(value, f"Expected websocket to be a map, got {kind}")
    read_block(options.websocket, value.data, _BLOCK, problems)


def patience_of(block: Websocket) -> int:
    """Ns from a connection to the end of its request for WebSocket."""
    return block.handshake_timeout if block.handshake_timeout > 0 else DEFAULT_HANDSHAKE


def validate_websocket(options: Options) -> None:
    """Refuses, with ConfigError, what the block cannot mean; without a port it means nothing."""
    block = options.websocket
    if block.port == 0:
        return
    if not block.no_tls and block.tls is None:
        raise ConfigError("websocket requires TLS configuration")
    for origin in block.allowed_origins:
        allowed_origin(origin)
    if options.users:
        if block.authorization.username:
            raise ConfigError(
                "websocket authentication username not compatible with presence of users/nkeys"
            )
        if block.authorization.token:
            raise ConfigError(
                "websocket authentication token not compatible with presence of users/nkeys"
            )
    if block.jwt_cookie and not options.operators.enabled:
        raise ConfigError(
            "trusted operators or trusted keys configuration is required for JWT authentication "
            f"via cookie {quote(block.jwt_cookie)}"
        )
    for name, header in block.headers.items():
        lower = name.lower()
        if lower in RESERVED_HEADERS:
            raise ConfigError(f"websocket: invalid header {quote(name)} not allowed")
        if lower.startswith("sec-websocket-"):
            raise ConfigError(
                f'websocket: invalid header {quote(name)}, "Sec-WebSocket-" prefix not allowed'
            )
        if any(char in name + header for char in "\r\n"):
            raise ConfigError(f"websocket: header {quote(name)} is more than a line")


def allowed_origin(origin: str) -> tuple[str, str, str]:
    """Scheme, host and port of an allowed origin; ConfigError where it is none."""
    url: Url
    try:
        url = parse_url(origin)
    except ValueError as error:
        raise ConfigError(f"unable to parse allowed origin: {error}") from None
    wrong = f"unable to parse allowed origin {quote(origin)}"
    if url.scheme not in ("http", "https"):
        raise ConfigError(
            f"{wrong}: allowed origins must be absolute URLs with http or https scheme"
        )
    if not url.host:
        raise ConfigError(f"{wrong}: host is required")
    return url.scheme, *host_and_port(url.host, url.scheme == "https")
