"""Reads the `leafnodes` block: leaf nodes of this server, and hubs whose leaf node it is."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.authorization import is_public, valid_subject
from jsserver.config.compression import compression
from jsserver.config.leafs import Leafnodes, LeafProxy, LeafRemote, LeafUrl
from jsserver.config.options import GLOBAL_ACCOUNT, Authorization, Options, User
from jsserver.config.otherservers import (
    read_maps,
    read_urls,
    read_write_deadline,
    server_url,
)
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    address,
    as_duration,
    as_map,
    as_text,
    flag,
    integer,
    not_available,
    read_block,
    read_write_timeout,
    shown,
    text,
    type_name,
    unavailable_block,
)
from jsserver.text.goformat import SECOND, quote
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_USER

DEFAULT_PORT = 7422
TIMEOUT_HIGH = 60.0
"""Seconds; more than that is most likely a mistake."""
MIN_VERSION = (2, 8, 0)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def version_of(text: str) -> tuple[int, int, int] | None:
    """A version's three numbers; None where it has not these."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


# ---- remotes


def parse_remote(url: str) -> LeafUrl:
    """The address and login of a hub's URL; ValueError."""
    found = server_url(url, "leafnode", DEFAULT_PORT)
    user, password = found.user or "", found.password
    made = LeafUrl(host=found.host, port=found.port, user=user, password=password)
    made.secured = found.scheme in ("tls", "wss")
    made.websocket = found.scheme in ("ws", "wss")
    made.path = found.path if made.websocket else ""
    return made


def _read_urls(remote: LeafRemote, value: Value, problems: Problems) -> None:
    items = value.data if isinstance(value.data, list) else [value]
    remote.urls += read_urls(items, "leafnode", parse_remote, problems)
    if len({url.websocket for url in remote.urls}) > 1:
        raise OptionError(
            value,
            "remote leaf node configuration cannot have a mix of websocket and non-websocket urls:"
            f" [{' '.join(map(quote, remote.shown_urls))}]",
        )


_ONE_KEY = "Remote leafnode can not have both creds and nkey defined"


def _read_credentials(remote: LeafRemote, value: Value, problems: Problems) -> None:
    if remote.nkey:
        raise OptionError(value, _ONE_KEY)
    remote.credentials = os.path.expanduser(os.path.expandvars(as_text(value)))


def _read_seed(remote: LeafRemote, value: Value, problems: Problems) -> None:
    from jsserver.client.credentials import CredentialsError, public_key_of

    if remote.credentials:
        raise OptionError(value, _ONE_KEY)
    seed = as_text(value)
    try:
        public_key_of(seed)
    except CredentialsError:
        # The seed itself is not told, as it is a secret.
        raise OptionError(value, "Remote leafnode nkey is not a valid seed") from None
    remote.nkey = seed


def _subjects(attribute: str) -> Reader:
    def read(remote: LeafRemote, value: Value, problems: Problems) -> None:
        items = value.data if isinstance(value.data, list) else [value]
        subjects = [as_text(item) for item in items]
        for subject in subjects:
            if not valid_subject(subject):
                raise OptionError(value, f"subject {quote(subject)} is not a valid subject")
        setattr(remote, attribute, subjects)

    return read


def _duration(attribute: str) -> Reader:
    def read(target: Leafnodes | LeafRemote, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_duration(value, attribute, problems))

    return read


def _read_tls(block: Leafnodes, value: Value, problems: Problems) -> None:
    from jsserver.config.tls import read_leaf_tls  # a server without TLS goes without it

    read_leaf_tls(block, value, problems)


def _read_remote_tls(remote: LeafRemote, value: Value, problems: Problems) -> None:
    from jsserver.config.tls import read_remote_tls

    read_remote_tls(remote, value, problems)


class _Proxy:
    """What a block `proxy` says."""

    url = username = password = ""
    timeout = 0


_PROXY_TLS = "TLS between a leaf node and its proxy (https)"
_PROXY: dict[str, Reader] = {
    "url": text("url"),
    "tls": unavailable_block(_PROXY_TLS),
    "username": text("username"),
    "password": text("password"),
    "timeout": _duration("timeout"),
}


def _read_proxy(remote: LeafRemote, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, f"Expected proxy to be a map, got {type_name(value)}")
    said = _Proxy()
    read_block(said, value.data, _PROXY, problems)
    if not said.url:
        return
    url = urlsplit(said.url)
    if url.scheme not in ("http", "https"):
        raise OptionError(value, f"proxy URL scheme must be http or https, got: {url.scheme}")
    if url.scheme == "https":
        raise OptionError(value, not_available(_PROXY_TLS))
    try:
        host, port = url.hostname, url.port
    except ValueError as error:
        raise OptionError(value, f"invalid proxy URL: {error}") from None
    if not host:
        raise OptionError(value, "proxy URL must specify a host")
    if said.timeout < 0:
        raise OptionError(value, "proxy timeout must be >= 0")
    if bool(said.username) != bool(said.password):
        what = "proxy username and password must both be specified or both be empty"
        raise OptionError(value, what)
    remote.proxy = LeafProxy(
        host=host,
        port=port or 80,
        username=said.username,
        password=said.password,
        timeout=said.timeout,
    )


def _check_proxied(remote: LeafRemote, item: Value, problems: Problems) -> None:
    """What a remote with a proxy says of its hub."""
    for url in remote.urls:
        if url.websocket and url.secured and remote.tls is None:
            problems.error(
                item,
                f"proxy is configured but remote URL {url.shown} requires TLS and no TLS"
                " configuration is provided. When using proxy with TLS endpoints, ensure TLS is"
                " properly configured for the leafnode remote",
            )
            return
    if remote.urls and not any(url.websocket for url in remote.urls):
        problems.warn(item, "proxy", "it is meant for WebSocket URLs (ws:// or wss://)")


class _Migration:
    """What a block `jetstream_cluster_migrate` says."""

    delay = 0


_MIGRATION: dict[str, Reader] = {"leader_migrate_delay": _duration("delay")}


def _read_migrate(remote: LeafRemote, value: Value, problems: Problems) -> None:
    if isinstance(value.data, bool):
        remote.migrate, remote.migrate_delay = value.data, 0
        return
    if not isinstance(value.data, dict):
        what = "Expected boolean or map for jetstream_cluster_migrate"
        raise OptionError(value, f"{what}, got {type_name(value)}")
    said = _Migration()
    read_block(said, value.data, _MIGRATION, problems)
    if said.delay < 0:
        raise OptionError(value, "leader_migrate_delay must be >= 0")
    remote.migrate, remote.migrate_delay = True, said.delay


_REMOTE: dict[str, Reader] = {
    **dict.fromkeys(("no_randomize", "dont_randomize"), flag("no_randomize")),
    **dict.fromkeys(("url", "urls"), _read_urls),
    **dict.fromkeys(("account", "local"), text("account")),
    **dict.fromkeys(("creds", "credentials"), _read_credentials),
    **dict.fromkeys(("nkey", "seed"), _read_seed),
    **dict.fromkeys(("deny_imports", "deny_import"), _subjects("deny_imports")),
    **dict.fromkeys(("deny_exports", "deny_export"), _subjects("deny_exports")),
    **dict.fromkeys(("isolate_leafnode_interest", "isolate"), flag("isolate")),
    **dict.fromkeys(("jetstream_cluster_migrate", "js_cluster_migrate"), _read_migrate),
    **dict.fromkeys(
        ("ws_compress", "ws_compression", "websocket_compress", "websocket_compression"),
        flag("ws_compression"),
    ),
    **dict.fromkeys(("ws_no_masking", "websocket_no_masking"), flag("ws_no_masking")),
    "hub": flag("hub"),
    "request_isolation": flag("request_isolation"),
    "ignore_discovered_servers": flag("ignore_discovered_servers"),
    "disabled": flag("disabled"),
    "first_info_timeout": _duration("first_info_timeout"),
    "dial_timeout": _duration("dial_timeout"),
    "compression": compression("s2_auto"),
    "tls": _read_remote_tls,
    "proxy": _read_proxy,
}


def _read_remotes(block: Leafnodes, value: Value, problems: Problems) -> None:
    labels: set[str] = set()
    for item, given in read_maps(value, "remotes", "remote leafnode", problems):
        remote = LeafRemote()
        read_block(remote, given, _REMOTE, problems)
        if remote.proxy is not None:
            _check_proxied(remote, given.get("proxy", item), problems)
        if remote.label in labels:
            problems.error(item, f"duplicate remote {remote.label}")
            continue
        labels.add(remote.label)
        block.remotes.append(remote)


# ---- logins, and the rest


def _read_nkey(block: Leafnodes, value: Value, problems: Problems) -> None:
    block.nkey = as_text(value)
    if not is_public(block.nkey, PREFIX_USER):
        raise OptionError(value, "Not a valid public nkey for leafnode authorization")


def _read_timeout(block: Leafnodes, value: Value, problems: Problems) -> None:
    data = value.data
    if isinstance(data, str):
        block.auth_timeout = as_duration(value, "timeout", problems) / SECOND
    elif type(data) in (int, float):
        block.auth_timeout = float(data)
    else:
        reason = "error parsing leafnode authorization config, 'timeout' wrong type"
        raise OptionError(value, reason)
    if block.auth_timeout > TIMEOUT_HIGH:
        problems.warn(
            value,
            "timeout",
            f"timeout of {data} ({block.auth_timeout:f} seconds) is high, consider keeping it under"
            " 60 seconds. possibly caused by unquoted duration; use '1m' instead of 1m, for"
            " example",
        )


_USER: dict[str, Reader] = {
    **dict.fromkeys(("user", "username"), text("name")),
    **dict.fromkeys(("pass", "password"), text("password")),
    "account": text("account"),
    "proxy_required": flag("proxy_required"),
}


def _read_users(block: Leafnodes, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, list):
        raise OptionError(value, f"Expected users field to be an array, got {shown(value)}")
    for item in value.data:
        if not isinstance(item.data, dict):
            what = f"Expected user entry to be a map/struct, got {shown(item)}"
            problems.error(item, what)
            continue
        user = User()
        read_block(user, item.data, _USER, problems)
        block.users.append(user)


_AUTHORIZATION: dict[str, Reader] = {
    **dict.fromkeys(("user", "username"), text("username")),
    **dict.fromkeys(("pass", "password"), text("password")),
    "nkey": _read_nkey,
    "timeout": _read_timeout,
    "users": _read_users,
    "account": text("account"),
    "proxy_required": flag("proxy_required"),
}


def _read_authorization(block: Leafnodes, value: Value, problems: Problems) -> None:
    read_block(block, as_map(value), _AUTHORIZATION, problems)
    if block.proxy_required and not block.has_own_users:
        problems.without_effect.append(
            f'{value.place}: "proxy_required" of leafnodes has no effect: the block has no logins'
        )
    if not block.users:
        return
    if block.username:
        raise OptionError(value, "can not have a single user/pass and a users array")
    if block.nkey:
        raise OptionError(value, "can not have a single nkey and a users array")
    names: set[str] = set()
    for user in block.users:
        if user.name in names:
            what = f"duplicate user {quote(user.name)} detected in leafnode authorization"
            raise OptionError(value, what)
        names.add(user.name)


def _read_min_version(block: Leafnodes, value: Value, problems: Problems) -> None:
    block.min_version = as_text(value)
    found = version_of(block.min_version)
    if found is None:
        raise OptionError(value, "invalid leafnode's minimum version: invalid semver")
    if found < MIN_VERSION:
        raise OptionError(value, "the minimum version should be at least 2.8.0")


_BLOCK: dict[str, Reader] = {
    **dict.fromkeys(("host", "net"), text("host")),
    **dict.fromkeys(("reconnect", "reconnect_delay", "reconnect_interval"), _duration("reconnect")),
    **dict.fromkeys(("leafnode_advertise", "advertise"), text("advertise")),
    **dict.fromkeys(("min_version", "minimum_version"), _read_min_version),
    **dict.fromkeys(("isolate_leafnode_interest", "isolate"), flag("isolate")),
    "listen": address("host", "port"),
    "port": integer("port"),
    "authorization": _read_authorization,
    "remotes": _read_remotes,
    "dial_timeout": _duration("dial_timeout"),
    "no_advertise": flag("no_advertise"),
    "compression": compression("s2_auto"),
    "tls": _read_tls,
    "ping_interval": _duration("ping_interval"),
    "ping_max": integer("ping_max"),
    "write_deadline": read_write_deadline,
    "write_timeout": read_write_timeout,
}


def read_leafnodes(options: Options, value: Value, problems: Problems) -> None:
    """Reads the block into `options.leafnodes`."""
    if not isinstance(value.data, dict):
        kind = type_name(value)
        raise OptionError(value, f"Expected map to define a leafnode, got {kind}")
    read_block(options.leafnodes, value.data, _BLOCK, problems)


def validate_leafnodes(options: Options) -> None:
    """Refuses, with ConfigError, what cannot be set together."""
    block = options.leafnodes
    if options.operators.enabled:
        _validate_operated(block)
        return
    known = {"", GLOBAL_ACCOUNT, options.system, *(one.name for one in options.accounts)}
    named = [(block.account, "authorization")]
    named += [(user.account, "authorization") for user in block.users]
    named += [(remote.account, "remote") for remote in block.remotes]
    for name, where in named:
        if name not in known:
            what = f"cannot find local account {quote(name)} specified in leafnode {where}"
            raise ConfigError(what)


def _validate_operated(block: Leafnodes) -> None:
    if block.users:
        raise ConfigError("operator mode does not allow specifying users in leafnode config")
    for remote in block.remotes:
        if not is_public(remote.account, PREFIX_ACCOUNT):
            raise ConfigError(
                "operator mode requires account nkeys in remotes. Please add an `account` key to"
                " each remote in your `leafnodes` section, to assign it to an account. Each account"
                " value should be a 56 character public key, starting with the letter 'A'"
            )
    if block.port and block.account and not is_public(block.account, PREFIX_ACCOUNT):
        raise ConfigError("operator mode and non account nkeys are incompatible")


def options_for_leafs(options: Options) -> Options:
    """The options that hold for leaf nodes that log in."""
    own = options.leafnodes
    if not own.has_own_users:
        return Options(**{**vars(options), "tls": own.tls})
    account, users = own.account or GLOBAL_ACCOUNT, own.users
    if own.username:
        users = [User(name=own.username, password=own.password, account=account)]
    elif own.nkey:
        users = [User(nkey=own.nkey, account=account)]
    if own.proxy_required:
        users = [User(**{**vars(user), "proxy_required": True}) for user in users]
    changed: dict[str, object] = {
        "authorization": Authorization(users=users, timeout=own.auth_timeout),
        "accounts": [],
        "no_auth_user": "",
        "tls": own.tls if own.users else None,
    }
    return Options(**{**vars(options), **changed})
