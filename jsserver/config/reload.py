"""What differs between the configuration that runs and another one: what a reload may change, what
it may not, and what the log is told of it, in nats-server's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jsserver.config.jetstreams import JetStream
from jsserver.config.options import Authorization, Operators, Options, Tls, Websocket
from jsserver.config.reloadlinks import (
    differing,
    refused_of_gateway,
    refused_of_leafnodes,
    told_of_leafnodes,
)
from jsserver.text.goformat import byte_size, duration, quote


class Difference(NamedTuple):
    """`refused`: options that stay as they are until the server is started again. `told`: a line of
    the log for each change that there is."""

    refused: list[str]
    told: list[str]


def _bool(value: bool) -> str:
    return "true" if value else "false"


_PLAIN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "trace": ("trace = {}", _bool),
    "trace_verbose": ("trace_verbose = {}", _bool),
    "trace_headers": ("trace_headers = {}", _bool),
    "debug": ("debug = {}", _bool),
    "logtime": ("logtime = {}", _bool),
    "logtime_utc": ("logtime_utc = {}", _bool),
    "log_file": ("log_file = {}", str),
    "server_tags": ("tags", str),
    "server_metadata": ("metadata", str),
    "max_connections": ("max_connections = {}", str),
    "pid_file": ("pid_file = {}", str),
    "ports_file_dir": ("ports_file_dir = {}", str),
    "connect_error_reports": ("connect_error_reports = {}", str),
    "reconnect_error_reports": ("reconnect_error_reports = {}", str),
    "max_control_line": ("max_control_line = {}", str),
    "max_payload": ("max_payload = {}", str),
    "ping_interval": ("ping_interval = {}", duration),
    "ping_max": ("ping_max = {}", str),
    "write_deadline": ("write_deadline = {}", duration),
    "client_advertise": ("client_advertise = {}", str),
    "max_traced_msg_len": ("max_traced_msg_len = {}", str),
    "no_fast_producer_stall": (
        "fast producers will {}be stalled",
        lambda off: "not " if off else "",
    ),
}
"""Options that are only looked at where they are needed, and what the log says of each."""

_TAKEN = frozenset(
    {
        *_PLAIN,
        *("authorization", "accounts", "mappings", "no_auth_user", "operators", "system_account"),
        *("tls", "tls_flags", "allow_non_tls", "ocsp", "websocket", "jetstream", "config_digest"),
        *("trusted_proxies", "cluster", "leafnodes", "gateway"),
    }
)


_TAKEN_OF_CLUSTER = (
    *("username", "password", "auth_timeout", "routes", "flag_routes", "no_advertise"),
    *("connect_retries", "connect_backoff", "ping_interval", "ping_max", "write_deadline"),
    *("imports", "exports", "tls", "compression", "rtt_thresholds"),
    *("advertise", "pool_size", "accounts"),
)


def difference(old: Options, new: Options, *, memory: int = 0, store: int = 0) -> Difference:
    """What a reload from `old` to `new` would do. `memory` and `store` are the bytes that JetStream
    has now, which may only become more."""
    names = sorted(vars(old).keys() | vars(new).keys())
    refused = [n for n in names if n not in _TAKEN and getattr(old, n) != getattr(new, n)]
    refused += _of_authorization(old.authorization, new.authorization)
    refused += _no_auth_user(old, new)
    refused += _of_operators(old.operators, new.operators)
    refused += [f"cluster.{n}" for n in differing(old.cluster, new.cluster, _TAKEN_OF_CLUSTER)]
    refused += [f"leafnodes.{n}" for n in refused_of_leafnodes(old.leafnodes, new.leafnodes)]
    refused += [f"gateway.{n}" for n in refused_of_gateway(old.gateway, new.gateway)]
    refused += _of_websocket(old.websocket, new.websocket)
    refused += _of_jetstream(old.jetstream, new.jetstream, memory, store)
    if old.system != new.system:
        refused.append("system_account")
    return Difference(refused, list(_told(old, new)))


def take(options: Options, new: Options) -> None:
    """Has the options that a reload may change as they are now."""
    for name in _TAKEN:
        setattr(options, name, getattr(new, name))


# ---- what may not change


def _of_authorization(old: Authorization, new: Authorization) -> Iterator[str]:
    if old.callout != new.callout:
        yield "auth_callout"


def _no_auth_user(old: Options, new: Options) -> Iterator[str]:
    """It may go with its user."""
    if old.no_auth_user == new.no_auth_user:
        return
    names = {name for user in new.users for name in (user.name, user.nkey)}
    if new.no_auth_user or old.no_auth_user in names:
        yield "no_auth_user"


def _of_operators(old: Operators, new: Operators) -> Iterator[str]:
    if (old.tokens, old.trusted_keys) != (new.tokens, new.trusted_keys):
        yield "operator" if old.tokens or new.tokens else "trusted_keys"
    kinds = [resolver and resolver.kind for resolver in (old.resolver, new.resolver)]
    if old.resolver != new.resolver and kinds != ["url", "url"]:
        yield "resolver"


def _of_websocket(old: Websocket, new: Websocket) -> Iterator[str]:
    for name in differing(old, new, ("tls",)):
        yield f"websocket.{name}"
    if (old.tls is None) != (new.tls is None):
        yield "websocket.tls"


def _of_jetstream(old: JetStream, new: JetStream, memory: int, store: int) -> Iterator[str]:
    taken = ("max_memory", "max_store") if old.enabled else ()
    for name in differing(old, new, taken):
        yield f"jetstream.{name}"
    for name, now in (("max_memory", memory), ("max_store", store)):
        before, after = getattr(old, name), getattr(new, name)
        if taken and before != after and (before < 0 or after < now):
            yield f"jetstream.{name}"


# ---- what is told


def _told(old: Options, new: Options) -> Iterator[str]:
    for name, (text, form) in _PLAIN.items():
        value = getattr(new, name)
        if getattr(old, name) != value and not (name in ("pid_file",) and not value):
            yield "Reloaded: " + text.format(form(value))
    yield from _told_of_tls(old.tls, new.tls)
    yield from _told_of_cluster(vars(old.cluster), vars(new.cluster))
    yield from told_of_leafnodes(old.leafnodes, new.leafnodes)
    yield from _told_of_proxies(old.trusted_proxies, new.trusted_proxies)
    before, after = old.authorization, new.authorization
    for name, text in (("username", "username"), ("password", "password"), ("token", "token")):
        if getattr(before, name) != getattr(after, name):
            yield f"Reloaded: authorization {text}"
    if old.auth_timeout != new.auth_timeout:
        yield f"Reloaded: authorization timeout = {new.auth_timeout:g}"
    if any(user.name for user in [*old.users, *new.users]):
        yield "Reloaded: authorization users"
    if [u for u in old.users if u.nkey] != [u for u in new.users if u.nkey]:
        yield "Reloaded: authorization nkey users"
    operated = old.operators, new.operators
    if old.accounts or new.accounts or old.mappings != new.mappings or operated[0] != operated[1]:
        yield "Reloaded: accounts"
    if operated[0].default_sentinel != operated[1].default_sentinel:
        yield f"Reloaded: default_sentinel = {operated[1].default_sentinel}"
    for name, what in (("max_memory", "max_mem_store"), ("max_store", "max_file_store")):
        limit = getattr(new.jetstream, name)
        if getattr(old.jetstream, name) != limit:
            yield f"Reloaded: JetStream {what} = {byte_size(limit)}"


def _told_of_cluster(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    changed = {name for name, value in new.items() if old[name] != value}
    if changed - {"routes"}:
        yield "Reloaded: cluster"
    if "routes" in changed:
        yield "Reloaded: cluster routes"


def _told_of_proxies(old: list[str], new: list[str]) -> Iterator[str]:
    for keys, what in ((set(old) - set(new), "removed"), (set(new) - set(old), "added")):
        if keys:
            listed = " ".join(map(quote, sorted(keys)))
            yield f"Reloaded: proxies trusted keys [{listed}] were {what}"


def _told_of_tls(old: Tls | None, new: Tls | None) -> Iterator[str]:
    """Its files may have changed, whatever the block says."""
    if new is not None:
        yield "Reloaded: tls = enabled"
    elif old is not None:
        yield "Reloaded: tls = disabled"
    if old is None or new is None:
        return
    if old.timeout != new.timeout:
        yield f"Reloaded: tls timeout = {new.timeout:g}"
    if old.pinned_certs != new.pinned_certs:
        yield f"Reloaded: {len(new.pinned_certs or ())} pinned_certs"
    if old.first != new.first:
        yield f"Reloaded: Client TLS handshake first: {_bool(new.first)}"
    if old.fallback != new.fallback:
        delay = duration(new.fallback)
        yield f"Reloaded: Client TLS handshake first fallback delay: {delay}"
