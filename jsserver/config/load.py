"""Options from a configuration file and the command line, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping

from jsserver import TYPE_CHECKING
from jsserver.config import ConfigError
from jsserver.config.block import Block, each
from jsserver.config.options import GLOBAL_ACCOUNT, Options, TlsFlags
from jsserver.text.goformat import duration, quote, split_address

if TYPE_CHECKING:
    from typing import Any

    from jsserver.cext.language import Value
    from jsserver.config.values import Problems

_MAX_PORT = 65535


class Loaded(Block):
    """Options, the warnings that came up while they were read, and what is set without effect."""

    options: Options = each(Options)
    warnings: list[str] = each(list)
    without_effect: list[str] = each(list)


def read_file(path: str) -> Loaded:
    """The options of a configuration file; ConfigError lists everything that is wrong, a line each.

    The error's text ends with a newline where it lists problems of options.
    """
    # A server without a configuration file starts without the language and its words.
    from jsserver.config.parser import digest, parse_file
    from jsserver.config.server import READERS
    from jsserver.config.values import Problems, read_block

    root = parse_file(path)
    problems = Problems()
    if not root.data:
        problems.warnings.append(f"{path}: config has no values or is empty")
    options = Options(config_file=path)
    read_block(options, root.data, READERS, problems)
    _warn_of_two_places(root.data, problems)
    if problems.errors:
        raise ConfigError("".join(f"{line}\n" for line in problems.warnings + problems.errors))
    options.config_digest = digest(root)
    return Loaded(
        options=options, warnings=problems.warnings, without_effect=problems.without_effect
    )


def _warn_of_two_places(entries: Mapping[str, Value], problems: Problems) -> None:
    """Of `listen` and `port` the one that comes later says where clients connect."""
    by_name = {key.lower(): value for key, value in entries.items()}
    if "listen" in by_name and "port" in by_name:
        later = max(by_name["listen"], by_name["port"], key=lambda value: value.line)
        problems.without_effect.append(
            f'{later.place}: "listen" and "port" both say where clients connect: this one counts'
        )


def check(path: str, flags: Mapping[str, Any]) -> Loaded:
    """What `load` gives for a start, which would not refuse it; ConfigError. What `load` warns of
    counts as an error, as with nats-server."""
    from jsserver.config.advice import refusal

    loaded = load(path, flags)
    if loaded.warnings:
        raise ConfigError("".join(f"{line}\n" for line in loaded.warnings))
    if reason := refusal(loaded.options):
        raise ConfigError(reason)
    return loaded


def load(path: str, flags: Mapping[str, Any]) -> Loaded:
    """The options of a file (if any) under those of the command line, validated.

    `flags` maps names of options to values; "a.b" is attribute b of option a.
    """
    loaded = read_file(path) if path else Loaded()
    options = loaded.options
    for name, value in flags.items():
        *parents, attribute = name.split(".")
        target: Any = options
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, attribute, value)
    options.flags = dict(flags)
    if " " in options.server_name:
        raise ConfigError("server name cannot contain spaces")
    js = options.jetstream
    js.info_queue_limit = js.info_queue_limit or js.request_queue_limit
    options.http_host = options.http_host or options.host
    if options.tls_flags != TlsFlags():
        from jsserver.config.tls import from_flags

        from_flags(options)
    if options.cluster.flag_listen or options.cluster.flag_routes:
        from jsserver.config.cluster import from_flags as cluster_from_flags

        cluster_from_flags(options)
    if options.default_domains:
        from jsserver.config.domains import apply_default_domains  # few servers have any

        apply_default_domains(options)
    validate(options)
    return loaded


def validate(options: Options) -> None:
    """Refuses, with ConfigError, what cannot be set together."""
    ports = {name: getattr(options, name) for name in ("port", "http_port", "https_port")}
    ports |= {"websocket port": options.websocket.port, "cluster port": options.cluster.port}
    ports["leafnodes port"] = options.leafnodes.port
    ports["gateway port"] = options.gateway.port
    for name, port in ports.items():
        if port < -1 or port > _MAX_PORT:
            raise ConfigError(f"{name} {port} is not between 0 and {_MAX_PORT}, nor -1")
    if options.max_payload > options.max_pending:
        raise ConfigError(
            f"max_payload ({options.max_payload}) cannot be higher than "
            f"max_pending ({options.max_pending})"
        )
    if options.lame_duck_grace_period >= options.lame_duck_duration:
        raise ConfigError(
            f"lame duck grace period ({duration(options.lame_duck_grace_period)}) should be "
            f"strictly lower than lame duck duration ({duration(options.lame_duck_duration)})"
        )
    if options.operators.enabled or options.operators.default_sentinel:
        from jsserver.config.operators import complete, validate_operators

        complete(options)
        validate_operators(options)
    _validate_advertise(options)
    _validate_users(options)
    _validate_accounts(options)
    if options.websocket.port:
        # Imported only here, as what reads files is: most servers start without both.
        from jsserver.config.websocket import validate_websocket

        validate_websocket(options)
        _validate_users(options.through_websocket)
    if options.gateway.name or options.gateway.port:
        from jsserver.config.gateway import validate_gateway

        validate_gateway(options)
    if options.cluster.port:
        from jsserver.config.cluster import validate_cluster

        validate_cluster(options)
    if options.leafnodes.enabled:
        from jsserver.config.leafnodes import validate_leafnodes

        validate_leafnodes(options)
    if options.trusted_proxies:
        from jsserver.config.proxies import validate_proxies

        validate_proxies(options)
    _validate_domain(options.jetstream.domain)


def _validate_advertise(options: Options) -> None:
    websocket = options.websocket.advertise if options.websocket.port else ""
    for key, address in (
        ("client_advertise", options.client_advertise),
        ("websocket advertise", websocket),
    ):
        if ":" not in address.rpartition("]")[2]:
            continue
        try:
            _, port = split_address(address)
            if port > _MAX_PORT:
                raise ValueError(f"port {port} is above {_MAX_PORT}")
        except ValueError as error:
            raise ConfigError(f"{key} {quote(address)}: {error}") from None


def _validate_users(options: Options) -> None:
    name = options.no_auth_user
    if not name:
        return
    users = options.users
    if not users:
        raise ConfigError(f'no_auth_user: "{name}" present, but users/nkeys are not defined')
    if all(name not in (user.name, user.nkey) for user in users):
        raise ConfigError(
            f'no_auth_user: "{name}" not present as user or nkey in authorization block or '
            "account configuration"
        )


def _validate_accounts(options: Options) -> None:
    names = {GLOBAL_ACCOUNT, *(account.name for account in options.accounts)}
    known = options.operators.enabled or options.system_account in names
    if options.system_account and not known:
        raise ConfigError("error resolving system account: account missing")


def _validate_domain(domain: str) -> None:
    if any(char in domain for char in ".*>"):
        raise ConfigError("invalid domain name: may not contain ., * or >")
    if any(char in domain for char in " \t\r\n\f"):
        raise ConfigError(
            f'invalid domain name: derived "$JS.{domain}.API.>" is not a valid subject'
        )
