"""Reads the options of a configuration's top level."""

from jsserver.cext.language import Value
from jsserver.config import options as defaults
from jsserver.config.accounts import read_accounts, read_mappings
from jsserver.config.authorization import read_authorization
from jsserver.config.jetstream import read_jetstream, read_store_dir
from jsserver.config.options import Options
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    address,
    as_bool,
    as_int,
    as_text,
    flag,
    inert,
    integer,
    limit,
    not_available,
    only_off,
    positive_duration,
    read_write_timeout,
    text,
    type_name,
    unavailable,
    unavailable_block,
)
from jsserver.text.goformat import SECOND, duration, parse_duration, quote

_MAX_INT32 = (1 << 31) - 1
_ACK_FORMAT = "js_ack_fc_v2"
_FEATURES = {
    _ACK_FORMAT: "acks have the form that all clients know",
    "js_raft_delete_range": "there are no clusters",
}
"""nats-server's, which are all off unless they are set; and what they would be for."""


def _read_server_name(options: Options, value: Value, problems: Problems) -> None:
    if " " in as_text(value):
        raise OptionError(value, "server name cannot contain spaces")
    options.server_name = value.data


def _read_tags(options: Options, value: Value, problems: Problems) -> None:
    if isinstance(value.data, str):
        tags = [value.data]
    elif isinstance(value.data, list):
        tags = []
        for item in value.data:
            if not isinstance(item.data, str):
                raise OptionError(
                    item, f"error parsing tags: unsupported type {type_name(item)} "
                    "where string is expected"
                )  # fmt: skip
            tags.append(item.data)
    else:
        raise OptionError(value, f"error parsing tags: unsupported type {type_name(value)}")
    cleaned = (tag.strip().lower() for tag in tags)
    options.server_tags = [tag for tag in dict.fromkeys(cleaned) if tag]


def _read_metadata(options: Options, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, f"error parsing metadata: unsupported type {type_name(value)}")
    options.server_metadata = {key: as_text(entry) for key, entry in value.data.items()}


def _traced(attribute: str) -> Reader:
    """A kind of tracing: it turns tracing on."""

    def read(options: Options, value: Value, problems: Problems) -> None:
        setattr(options, attribute, as_bool(value))
        options.trace = options.trace or as_bool(value)

    return read


def _read_trace(options: Options, value: Value, problems: Problems) -> None:
    options.trace = as_bool(value) or options.trace_verbose or options.trace_headers


def _read_max_connections(options: Options, value: Value, problems: Problems) -> None:
    options.max_connections = as_int(value) or -1


def _read_max_sub_tokens(options: Options, value: Value, problems: Problems) -> None:
    number = as_int(value)
    if number <= 0:
        raise OptionError(value, "max_sub_tokens value can not be negative")
    if number > 255:
        raise OptionError(value, "max_sub_tokens value is too big")
    options.max_sub_tokens = number


def _span(value: Value, key: str) -> int:
    try:
        return parse_duration(as_text(value))
    except ValueError as error:
        raise OptionError(value, f"error parsing {key}: {error}") from None


def _read_lame_duck_duration(options: Options, value: Value, problems: Problems) -> None:
    ns = _span(value, "lame_duck_duration")
    if ns < 30 * SECOND:
        raise OptionError(
            value, f"invalid lame_duck_duration of {duration(ns)}, minimum is 30 seconds"
        )
    options.lame_duck_duration = ns


def _read_lame_duck_grace_period(options: Options, value: Value, problems: Problems) -> None:
    ns = _span(value, "lame_duck_grace_period")
    if ns < 0:
        raise OptionError(value, "invalid lame_duck_grace_period, needs to be positive")
    options.lame_duck_grace_period = ns


def _read_max_closed_clients(options: Options, value: Value, problems: Problems) -> None:
    number = as_int(value)
    if number < 0:
        raise OptionError(value, "max_closed_clients value can not be negative")
    options.max_closed_clients = number or defaults.DEFAULT_MAX_CLOSED_CLIENTS


def _read_reactors(options: Options, value: Value, problems: Problems) -> None:
    number = as_int(value)
    if not 1 <= number <= defaults.MAX_REACTORS:
        raise OptionError(value, f"reactors must be between 1 and {defaults.MAX_REACTORS}")
    options.reactors = number


def _read_feature_flags(options: Options, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        kind = type_name(value)
        raise OptionError(value, f"error parsing feature flags: unsupported type {kind}")
    for name, entry in value.data.items():
        if not isinstance(entry.data, bool):
            what = f"error parsing feature flag {quote(name)}: expected bool"
            raise OptionError(entry, f"{what}, got {type_name(entry)}")
        why = _FEATURES.get(name, "there is no such flag")
        if entry.data and name == _ACK_FORMAT:
            raise OptionError(entry, not_available(f"feature_flags ({name})"))
        if entry.data or name not in _FEATURES:
            problems.without_effect.append(
                f"{entry.place}: feature flag {quote(name)} has no effect: {why}"
            )


def _read_default_domains(options: Options, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        kind = type_name(value)
        raise OptionError(value, f"error default_js_domain config: unsupported type {kind}")
    options.default_domains = {name: as_text(entry) for name, entry in value.data.items()}


def _read_system_account(options: Options, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, str):
        raise OptionError(value, "system account name must be a string")
    options.system_account = value.data


def _read_tls(options: Options, value: Value, problems: Problems) -> None:
    # Only here: who has no such block starts without it.
    from jsserver.config.tls import read_tls

    read_tls(options, value, problems)


def _read_ocsp(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.ocsp import read_ocsp  # likewise

    read_ocsp(options, value, problems)


def _read_ocsp_cache(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.ocsp import read_ocsp_cache  # likewise

    read_ocsp_cache(options, value, problems)


def _read_websocket(options: Options, value: Value, problems: Problems) -> None:
    # Imported only here: most servers start without it.
    from jsserver.config.websocket import read_websocket

    read_websocket(options, value, problems)


def _read_cluster(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.cluster import read_cluster

    read_cluster(options, value, problems)


def _read_leafnodes(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.leafnodes import read_leafnodes

    read_leafnodes(options, value, problems)


def _read_gateway(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.gateway import read_gateway

    read_gateway(options, value, problems)


def _read_proxies(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.config.proxies import read_proxies

    read_proxies(options, value, problems)


_MAX_CONNECTIONS = _read_max_connections
_MAX_SUB_TOKENS = _read_max_sub_tokens
_SYSTEM = _read_system_account
_NO_SYSTEM_TRAFFIC = "the server's own traffic in the system account is not traced"
_WHOLE_TRACE = "the log shows whole messages"
_NO_SYSTEM = flag("no_system_account")
_SUBLIST_CACHE = inert(
    "disable_sublist_cache",
    flag("disable_sublist_cache"),
    "the cache of the subject index is part of it",
)

_OPERATORS = (
    *("operator", "operators", "root", "roots", "root_operator", "root_operators", "trusted"),
    *("trusted_keys", "resolver", "account_resolver", "accounts_resolver", "resolver_tls"),
    *("resolver_preload", "resolver_pinned_accounts", "default_sentinel"),
)


def _of_operators(name: str) -> Reader:
    """An option of operator mode, which a server without it starts without."""

    def read(options: Options, value: Value, problems: Problems) -> None:
        from jsserver.config.operators import READERS as readers

        readers[name](options, value, problems)

    return read


READERS: dict[str, Reader] = {
    "listen": address("host", "port"),
    "host": text("host"),
    "net": text("host"),
    "port": limit("port", defaults.DEFAULT_PORT),
    "client_advertise": text("client_advertise"),
    "server_name": _read_server_name,
    "server_tags": _read_tags,
    "server_metadata": _read_metadata,
    "debug": flag("debug"),
    "trace": _read_trace,
    "trace_verbose": inert("trace_verbose", _traced("trace_verbose"), _NO_SYSTEM_TRAFFIC),
    "trace_headers": inert("trace_headers", _traced("trace_headers"), _WHOLE_TRACE),
    "logtime": flag("logtime"),
    "logtime_utc": flag("logtime_utc"),
    "log_file": text("log_file"),
    "logfile": text("log_file"),
    "log_size_limit": integer("log_size_limit"),
    "logfile_size_limit": integer("log_size_limit"),
    "log_max_num": integer("log_max_num"),
    "logfile_max_num": integer("log_max_num"),
    "max_traced_msg_len": integer("max_traced_msg_len"),
    "pid_file": text("pid_file"),
    "pidfile": text("pid_file"),
    "ports_file_dir": text("ports_file_dir"),
    "http": address("http_host", "http_port"),
    "http_port": integer("http_port"),
    "https": address("http_host", "https_port"),
    "https_port": integer("https_port"),
    "monitor_port": integer("http_port"),
    "http_base_path": text("http_base_path"),
    "max_connections": _MAX_CONNECTIONS,
    "max_conn": _MAX_CONNECTIONS,
    "max_subscriptions": integer("max_subscriptions"),
    "max_subs": integer("max_subscriptions"),
    "max_sub_tokens": _MAX_SUB_TOKENS,
    "max_subscription_tokens": _MAX_SUB_TOKENS,
    "max_control_line": limit("max_control_line", defaults.DEFAULT_MAX_CONTROL_LINE, _MAX_INT32),
    "max_payload": limit("max_payload", defaults.DEFAULT_MAX_PAYLOAD, _MAX_INT32),
    "max_pending": limit("max_pending", defaults.DEFAULT_MAX_PENDING),
    "max_closed_clients": _read_max_closed_clients,
    "ping_interval": positive_duration("ping_interval", defaults.DEFAULT_PING_INTERVAL),
    "ping_max": limit("ping_max", defaults.DEFAULT_PING_MAX),
    "write_deadline": positive_duration("write_deadline", defaults.DEFAULT_WRITE_DEADLINE),
    "write_timeout": read_write_timeout,
    "no_fast_producer_stall": flag("no_fast_producer_stall"),
    "lame_duck_duration": _read_lame_duck_duration,
    "lame_duck_grace_period": _read_lame_duck_grace_period,
    "connect_error_reports": limit(
        "connect_error_reports", Options.connect_error_reports
    ),
    "reconnect_error_reports": limit(
        "reconnect_error_reports", Options.reconnect_error_reports
    ),
    "no_header_support": flag("no_header_support"),
    "reactors": _read_reactors,
    "disable_sublist_cache": _SUBLIST_CACHE,
    "no_sublist_cache": _SUBLIST_CACHE,
    "allow_non_tls": flag("allow_non_tls"),
    "proxy_protocol": flag("proxy_protocol"),
    "proxies": _read_proxies,
    "tls": _read_tls,
    "authorization": read_authorization,
    "accounts": read_accounts,
    "no_auth_user": text("no_auth_user"),
    "system_account": _SYSTEM,
    "system": _SYSTEM,
    "no_system_account": _NO_SYSTEM,
    "no_system": _NO_SYSTEM,
    "no_sys_acc": _NO_SYSTEM,
    **{name: _of_operators(name) for name in _OPERATORS},
    "store_dir": read_store_dir,
    "storedir": read_store_dir,
    "jetstream": read_jetstream,
    # What nats-server has and this server has not yet.
    "syslog": only_off("logging to syslog"),
    "remote_syslog": unavailable("logging to syslog"),
    "prof_port": unavailable("the profiling port"),
    "prof_block_rate": unavailable("the profiling port"),
    "feature_flags": _read_feature_flags,
    "default_js_domain": _read_default_domains,
    "ocsp": _read_ocsp,
    "ocsp_cache": _read_ocsp_cache,
    "mappings": read_mappings,
    "maps": read_mappings,
    "cluster": _read_cluster,
    "gateway": _read_gateway,
    "leafnodes": _read_leafnodes,
    "leaf": _read_leafnodes,
    "websocket": _read_websocket,
    "ws": _read_websocket,
    "mqtt": unavailable_block("the mqtt listener"),
}
