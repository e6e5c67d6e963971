"""Reads the `cluster` block: the routes of this server to others of its cluster."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.authorization import read_permissions
from jsserver.config.clusters import Cluster, RouteUrl
from jsserver.config.compression import compression
from jsserver.config.options import Options
from jsserver.config.otherservers import (
    ping_interval,
    read_timeout,
    read_urls,
    read_write_deadline,
    refused,
    server_url,
    validate_advertise,
)
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    address,
    as_map,
    as_text,
    flag,
    integer,
    read_block,
    read_write_timeout,
    text,
    type_name,
)
from jsserver.text.goformat import SECOND, quote


def parse_route(url: str) -> RouteUrl:
    """The address and login of a route's URL; ValueError."""
    found = server_url(url, "route")
    user, password = found.user or "", found.password or ""
    return RouteUrl(host=found.host, port=found.port, user=user, password=password)


def _read_name(block: Cluster, value: Value, problems: Problems) -> None:
    name = as_text(value)
    if " " in name:
        raise OptionError(value, "cluster name cannot contain spaces or reserved characters")
    block.name = name


def _read_permissions(block: Cluster, value: Value, problems: Problems) -> None:
    permissions = read_permissions(value, problems)
    if permissions.responses is not None:
        raise OptionError(value, "Cluster permissions do not support dynamic responses")
    subscribe = permissions.subscribe
    rules = [*(subscribe.allow or []), *(subscribe.deny or [])] if subscribe is not None else []
    for rule in rules:
        if " " in rule:
            raise OptionError(
                value, f"cluster export: subject {quote(rule)} is not a valid subject"
            )
    block.imports, block.exports = permissions.publish, subscribe


def _read_permissions_of_login(block: Cluster, value: Value, problems: Problems) -> None:
    """Those of the block itself go first, wherever they stand."""
    before = block.imports, block.exports
    _read_permissions(block, value, problems)
    problems.warn(
        value,
        "authorization",
        'setting "permissions" within cluster authorization block is deprecated',
    )
    if before != (None, None):
        block.imports, block.exports = before


_AUTHORIZATION: dict[str, Reader] = {
    "user": text("username"),
    "username": text("username"),
    **dict.fromkeys(("pass", "password"), text("password")),
    "timeout": read_timeout,
    "users": refused("Cluster authorization does not allow multiple users"),
    "token": refused("Cluster authorization does not support tokens"),
    "auth_callout": refused("Cluster authorization does not support callouts"),
    "permissions": _read_permissions_of_login,
    "default_permissions": _read_permissions_of_login,
}


def _read_authorization(block: Cluster, value: Value, problems: Problems) -> None:
    read_block(block, as_map(value), _AUTHORIZATION, problems)


def _read_routes(block: Cluster, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        raise OptionError(value, f"expected an array of routes, got {type_name(value)}")
    block.routes = read_urls(value.data, "route", parse_route, problems)


def _read_accounts(block: Cluster, value: Value, problems: Problems) -> None:
    items = value.data if isinstance(value.data, list) else [value]
    block.accounts = [as_text(item) for item in items]


def _read_tls(block: Cluster, value: Value, problems: Problems) -> None:
    from jsserver.config.tls import read_mutual_tls  # a server without TLS goes without it

    read_mutual_tls(block, value, problems)


_BLOCK: dict[str, Reader] = {
    "name": _read_name,
    "listen": address("host", "port"),
    "port": integer("port"),
    "host": text("host"),
    "net": text("host"),
    "authorization": _read_authorization,
    "routes": _read_routes,
    "tls": _read_tls,
    "cluster_advertise": text("advertise"),
    "advertise": text("advertise"),
    "no_advertise": flag("no_advertise"),
    "connect_retries": integer("connect_retries"),
    "connect_backoff": flag("connect_backoff"),
    "permissions": _read_permissions,
    "pool_size": integer("pool_size"),
    "accounts": _read_accounts,
    "compression": compression("s2_fast"),
    "ping_interval": ping_interval(
        30 * SECOND, "Cluster 'ping_interval' will reset to 30s which is the max for routes"
    ),
    "ping_max": integer("ping_max"),
    "write_deadline": read_write_deadline,
    "write_timeout": read_write_timeout,
}


def read_cluster(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block into `options.cluster`."""
    if not isinstance(value.data, dict):
        kind = type_name(value)
        raise OptionError(value, f"Expected map to define cluster, got {kind}")
    read_block(options.cluster, value.data, _BLOCK, problems)


# ---- the command line, and all together


def from_flags(options: Options) -> None:
    """Has the flags --cluster and --routes set the options that they say; ConfigError."""
    block = options.cluster
    try:
        if block.flag_listen:
            _listen_at(block, block.flag_listen)
        if block.flag_routes:
            block.routes = [parse_route(url) for url in block.flag_routes.split(",")]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if block.flag_routes and not block.port:
        raise ConfigError("solicited routes require cluster capabilities, e.g. --cluster")


def _listen_at(block: Cluster, url: str) -> None:
    """The port -1 is any free one. Without a login in the URL there is none."""
    any_port = url.endswith(":-1")
    try:
        parts = urlsplit(url.removesuffix("-1") + "0" if any_port else url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"--cluster {quote(url)}: {error}") from None
    if not parts.netloc or port is None:
        raise ValueError(f"--cluster {quote(url)}: expected nats://host:port")
    if parts.username and parts.password is None:
        raise ValueError("expected cluster password to be set")
    block.host, block.port = parts.hostname or block.host, -1 if any_port else port
    block.username, block.password = unquote(parts.username or ""), unquote(parts.password or "")


def validate_cluster(options: Options) -> None:
    """Refuses, with ConfigError, what cannot be set together."""
    block = options.cluster
    validate_advertise("Cluster", block.advertise, block.port)
    if options.operators.enabled:
        return  # which accounts there are is said by tokens
    known = {"$G", options.system, *(account.name for account in options.accounts)}
    for name in block.accounts:
        if name not in known:
            raise ConfigError(f"cluster accounts: there is no account {quote(name)}")
