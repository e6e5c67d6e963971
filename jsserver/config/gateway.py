"""Reads the `gateway` block: the other clusters that this one is joined to."""

from __future__ import annotations

from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.gateways import Gateway, GatewayUrl, RemoteGateway
from jsserver.config.options import Options
from jsserver.config.otherservers import (
    ping_interval,
    read_maps,
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


def parse_gateway(url: str) -> GatewayUrl:
    """The address and login of a URL; ValueError."""
    found = server_url(url, "gateway")
    made = GatewayUrl(host=found.host, port=found.port, has_login=found.user is not None)
    made.user, made.password = found.user or "", found.password or ""
    return made


def _read_name(block: Gateway, value: Value, problems: Problems) -> None:
    name = as_text(value)
    if " " in name:
        raise OptionError(value, "gateway name cannot contain spaces")
    block.name = name


_AUTHORIZATION: dict[str, Reader] = {
    **dict.fromkeys(("user", "username"), text("username")),
    **dict.fromkeys(("pass", "password"), text("password")),
    "timeout": read_timeout,
    "users": refused("Gateway authorization does not allow multiple users"),
    "token": refused("Gateway authorization does not support tokens"),
    "auth_callout": refused("Gateway authorization does not support callouts"),
}


def _read_authorization(block: Gateway, value: Value, problems: Problems) -> None:
    read_block(block, as_map(value), _AUTHORIZATION, problems)


def _read_url(remote: RemoteGateway, value: Value, problems: Problems) -> None:
    try:
        remote.urls.append(parse_gateway(as_text(value)))
    except ValueError as error:
        raise OptionError(value, str(error)) from None


def _read_urls(remote: RemoteGateway, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        raise OptionError(value, f"expected an array of URLs, got {type_name(value)}")
    remote.urls = read_urls(value.data, "gateway", parse_gateway, problems)


def _read_tls(target: Gateway | RemoteGateway, value: Value, problems: Problems) -> None:
    from jsserver.config.tls import read_mutual_tls  # a server without TLS goes without it

    read_mutual_tls(target, value, problems)


_REMOTE: dict[str, Reader] = {
    "name": text("name"),
    "url": _read_url,
    "urls": _read_urls,
    "tls": _read_tls,
}


def _read_gateways(block: Gateway, value: Value, problems: Problems) -> None:
    for _, given in read_maps(value, "gateways", "gateway", problems):
        remote = RemoteGateway()
        read_block(remote, given, _REMOTE, problems)
        block.gateways.append(remote)


_BLOCK: dict[str, Reader] = {
    "name": _read_name,
    "listen": address("host", "port"),
    "port": integer("port"),
    **dict.fromkeys(("host", "net"), text("host")),
    "authorization": _read_authorization,
    "advertise": text("advertise"),
    "connect_retries": integer("connect_retries"),
    "connect_backoff": flag("connect_backoff"),
    "gateways": _read_gateways,
    **dict.fromkeys(("reject_unknown", "reject_unknown_cluster"), flag("reject_unknown")),
    "tls": _read_tls,
    "ping_interval": ping_interval(
        15 * SECOND, "Gateway 'ping_interval' will reset to 15s which is the max for gateways"
    ),
    "ping_max": integer("ping_max"),
    "write_deadline": read_write_deadline,
    "write_timeout": read_write_timeout,
}


def read_gateway(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block into `options.gateway`."""
    if not isinstance(value.data, dict):
        raise OptionError(value, f"Expected gateway to be a map, got {type_name(value)}")
    read_block(options.gateway, value.data, _BLOCK, problems)


def validate_gateway(options: Options) -> None:
    """Refuses, with ConfigError, what cannot be set together. The cluster is called as the gateway
    is."""
    block, cluster = options.gateway, options.cluster
    if not block.name:
        raise ConfigError("gateway has no name")
    if not block.port:
        name = quote(block.name)
        raise ConfigError(f"gateway {name} has no port specified (select -1 for random port)")
    if options.leafnodes.port and not options.system_account:
        what = "leaf nodes and gateways (both being defined) require a system account to also be"
        raise ConfigError(f"{what} configured")
    for number, remote in enumerate(block.gateways):
        if not remote.name:
            raise ConfigError(f"gateway in the list {number} has no name")
        if not remote.urls:
            raise ConfigError(f"gateway {quote(remote.name)} has no URL")
    if cluster.name and cluster.name != block.name:
        raise ConfigError("cluster name conflicts between cluster and gateway definitions")
    cluster.name = block.name
    validate_advertise("Gateway", block.advertise, block.port)
