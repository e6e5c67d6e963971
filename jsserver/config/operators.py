"""Reads the options of operator mode: operators, trusted keys, and where accounts are found."""

from __future__ import annotations

import os
import re

from jsserver import NATS_VERSION, TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config import ConfigError
from jsserver.config.authorization import is_public
from jsserver.config.options import Options, OutgoingTls, Resolver
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    as_bool,
    as_int,
    as_map,
    as_text,
    read_block,
    type_name,
    unavailable,
)
from jsserver.text.goformat import parse_duration, quote
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR

if TYPE_CHECKING:
    from typing import Any

_TOKEN = "eyJ"
"""What every token begins with."""
_URL = re.compile(r"""(?i:URL)\(\s*"?([^\s"]*)"?\s*\)""")
_RESOLVERS = (
    "error parsing account resolver, should be MEM or  "
    'URL("url") or a map containing dir and type state=[FULL|CACHE])'
)


def _texts(value: Value, what: str) -> list[str]:
    """A text, or a list of some."""
    if isinstance(value.data, str):
        return [value.data]
    if not isinstance(value.data, list):
        raise OptionError(value, f"error parsing {what}: unsupported type {type_name(value)}")
    for item in value.data:
        if not isinstance(item.data, str):
            kind = type_name(item)
            raise OptionError(item, f"error parsing {what}: unsupported type in array {kind}")
    return [item.data for item in value.data]


# ---- operators


def _read_operators(options: Options, value: Value, problems: Problems) -> None:
    # Not before there is an operator: a start without one needs neither msgspec nor Ed25519.
    from jsserver.jwt.claims import Operator
    from jsserver.jwt.tokens import TokenError, decode_as, undecorated

    found = options.operators
    found.tokens, found.claims = [], []
    for text in _texts(value, "operators"):
        try:
            with open(text, "rb") as file:
                contents = file.read()
        except (OSError, ValueError) as error:
            if not text.startswith(_TOKEN):
                reason = (getattr(error, "strerror", None) or str(error)).lower()
                problems.error(value, f"error parsing operator JWT: open {text}: {reason}")
                continue
            contents = text.encode("utf-8", "surrogateescape")
        try:
            token = undecorated(contents)
            claims = decode_as(token, Operator)
        except TokenError as error:
            problems.error(value, f"error parsing operator JWT: {error}")
            continue
        found.tokens.append(token)
        found.claims.append(claims)


def _read_trusted_keys(options: Options, value: Value, problems: Problems) -> None:
    keys = _texts(value, "trusted")
    options.operators.trusted_keys = keys
    place = value.data[-1] if isinstance(value.data, list) and value.data else value
    for key in keys:
        if not is_public(key, PREFIX_OPERATOR):
            what = "required to be a valid public operator nkey"
            problems.error(place, f"trust key {quote(key)} {what}")


def _read_default_sentinel(options: Options, value: Value, problems: Problems) -> None:
    options.operators.default_sentinel = as_text(value)


# ---- accounts


def _of_text(attribute: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_text(value))

    return read


def _of_flag(attribute: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_bool(value))

    return read


def _of_duration(attribute: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        try:
            setattr(target, attribute, parse_duration(as_text(value)))
        except ValueError as error:
            raise OptionError(value, str(error)) from None

    return read


def _read_limit(target: Any, value: Value, problems: Problems) -> None:
    target.limit = as_int(value)


_RESOLVER: dict[str, Reader] = {
    "type": _of_text("kind"),
    "dir": _of_text("directory"),
    "allow_delete": _of_flag("allow_delete"),
    "hard_delete": _of_flag("hard_delete"),
    "limit": _read_limit,
    "ttl": _of_duration("ttl"),
    "interval": _of_duration("interval"),
    "timeout": _of_duration("timeout"),
}
_KINDS = {"MEM": "memory", "MEMORY": "memory", "FULL": "full", "CACHE": "cache"}


def _read_resolver(options: Options, value: Value, problems: Problems) -> None:
    options.operators.resolver = None
    if isinstance(value.data, str):
        resolver = _resolver_of_text(value, value.data.strip())
    elif isinstance(value.data, dict):
        resolver = _resolver_of_map(value, problems)
    else:
        kind = type_name(value)
        raise OptionError(value, f"error parsing operator resolver, wrong type {kind}")
    if resolver is None:
        raise OptionError(value, _RESOLVERS)
    options.operators.resolver = resolver


def _resolver_of_text(value: Value, text: str) -> Resolver | None:
    if text.upper() in ("MEM", "MEMORY"):
        return Resolver(kind="memory")
    found = _URL.search(text)
    if found is None:
        return None
    return _resolver_of_url(value, found[1])


def _resolver_of_url(value: Value, url: str) -> Resolver:
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https") or "//" not in url:
        raise OptionError(value, f"error parsing account resolver url [{quote(url)}]")
    return Resolver(kind="url", url=url if url.endswith("/") else url + "/")


def _resolver_of_map(value: Value, problems: Problems) -> Resolver | None:
    resolver = Resolver()
    given = {key: entry for key, entry in value.data.items() if key in _RESOLVER}
    read_block(resolver, given, _RESOLVER, problems)
    kind = _KINDS.get(resolver.kind.upper(), "")
    resolver.kind = kind
    if not kind:
        return None
    if kind in ("full", "cache"):
        if not resolver.directory:
            problems.error(value, "dir has no value and needs to point to a directory")
        elif os.path.exists(resolver.directory) and not (
            os.path.isdir(resolver.directory) and os.access(resolver.directory, os.W_OK)
        ):
            problems.error(value, "dir needs to point to an accessible directory")
    if "timeout" in given and resolver.timeout <= 0:
        problems.error(value, f"Fetch timeout {resolver.timeout} is too smal")
    if kind == "cache":
        if resolver.interval:
            problems.error(value, "CACHE does not accept sync")
        if resolver.allow_delete:
            problems.error(value, "CACHE does not accept allow_delete")
        if "hard_delete" in given:
            problems.error(value, "CACHE does not accept hard_delete")
    elif kind == "full":
        if resolver.ttl:
            problems.error(value, "FULL does not accept ttl")
        if "hard_delete" in given and not resolver.allow_delete:
            problems.error(value, "hard_delete has no effect without delete")
    return resolver


_OUTGOING: dict[str, Reader] = {
    "ca_file": _of_text("ca_file"),
    "cert_file": _of_text("cert_file"),
    "key_file": _of_text("key_file"),
    "insecure": _of_flag("insecure"),
    # These are options of the side that is connected to.
    **dict.fromkeys(("verify", "timeout"), lambda *_: None),
    **{
        name: unavailable(f"the option {name} of resolver_tls")
        for name in ("cipher_suites", "curve_preferences", "min_version", "pinned_certs", "certs")
    },
}


def _read_resolver_tls(options: Options, value: Value, problems: Problems) -> None:
    tls = OutgoingTls()
    read_block(tls, as_map(value), _OUTGOING, problems)
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "key_file" if tls.cert_file else "cert_file"
        raise OptionError(value, f"missing '{missing}' in TLS configuration")
    options.operators.resolver_tls = tls


def _read_preload(options: Options, value: Value, problems: Problems) -> None:
    from jsserver.jwt.claims import Account
    from jsserver.jwt.tokens import TokenError, decode_as

    if not isinstance(value.data, dict):
        raise OptionError(value, "preload should be a map of account_public_key:account_jwt")
    options.operators.preload = {}
    for name, entry in value.data.items():
        if not isinstance(entry.data, str):
            problems.error(entry, "preload map value should be a string JWT")
            continue
        try:
            decode_as(entry.data, Account)
        except TokenError:
            problems.error(entry, "invalid account JWT")
            continue
        options.operators.preload[name] = entry.data


def _read_pinned(options: Options, value: Value, problems: Problems) -> None:
    options.operators.pinned = _texts(value, "resolver_pinned_accounts")


READERS: dict[str, Reader] = {
    **dict.fromkeys(
        ("operator", "operators", "root", "roots", "root_operator", "root_operators"),
        _read_operators,
    ),
    **dict.fromkeys(("trusted", "trusted_keys"), _read_trusted_keys),
    **dict.fromkeys(("resolver", "account_resolver", "accounts_resolver"), _read_resolver),
    "resolver_tls": _read_resolver_tls,
    "resolver_preload": _read_preload,
    "resolver_pinned_accounts": _read_pinned,
    "default_sentinel": _read_default_sentinel,
}


# ---- what goes together


def complete(options: Options) -> None:
    """Takes from the only operator what the configuration does not say."""
    operators = options.operators
    if len(operators.claims) != 1:
        return
    body = operators.claims[0].nats
    if operators.resolver is None and body.account_server_url:
        url = body.account_server_url.rstrip("/") + "/accounts/"
        operators.resolver = Resolver(kind="url", url=url)
    options.system_account = options.system_account or body.system_account


def validate_operators(options: Options) -> None:
    """Refuses, with ConfigError, what operator mode cannot be set together with."""
    operators = options.operators
    if not operators.claims:
        if operators.default_sentinel:
            raise ConfigError("default sentinel requires operators and accounts")
        return
    _validate_sentinel(operators.default_sentinel)
    if operators.resolver is None:
        raise ConfigError("operators require an account resolver to be configured")
    if options.accounts:
        raise ConfigError("operators do not allow Accounts to be configured directly")
    if options.authorization.users:
        raise ConfigError("operators do not allow users to be configured directly")
    if operators.trusted_keys:
        raise ConfigError("conflicting options for 'TrustedKeys' and 'TrustedOperators'")
    if options.no_auth_user:
        raise ConfigError("no_auth_user not compatible with Trusted Operator")
    named = [claims.nats.system_account for claims in operators.claims]
    if options.system_account:
        if any(named) and options.system_account not in named:
            raise ConfigError("system_account in config and operator JWT must be identical")
    elif not named[0] and operators.resolver.kind in ("full", "cache"):
        raise ConfigError(
            "using nats based account resolver - the system account needs to be specified in "
            "configuration or the operator jwt"
        )
    _validate_versions(operators.claims)
    for key in operators.keys:
        if not is_public(key, PREFIX_OPERATOR):
            raise ConfigError(
                f"trusted Keys {quote(key)} are required to be a valid public operator nkey"
            )
    for key in operators.pinned or []:
        if not is_public(key, PREFIX_ACCOUNT):
            raise ConfigError(f"pinned account key {quote(key)} is not a valid public account nkey")
    if options.authorization.callout is not None:
        raise ConfigError("operators do not allow authorization callouts to be configured directly")
    if operators.preload and operators.resolver.kind == "url":
        raise ConfigError(
            "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
        )
    in_memory = operators.resolver.kind == "memory"
    if in_memory and options.system_account and options.system_account not in operators.preload:
        raise ConfigError("error resolving system account: account missing")


def _validate_sentinel(token: str) -> None:
    """A client without a token is taken to have this one. So the token has to do without a
    signature of the client: it says so itself, or its role does, which is looked up later."""
    if not token:
        return
    from jsserver.jwt.claims import User
    from jsserver.jwt.scopes import has_no_limits
    from jsserver.jwt.tokens import TokenError, decode_as

    try:
        body = decode_as(token, User).nats
    except TokenError:
        raise ConfigError("default sentinel JWT not valid") from None
    if not body.bearer_token and not (body.issuer_account and has_no_limits(body)):
        raise ConfigError("default sentinel must be a bearer token")


def _validate_versions(operators: list[Any]) -> None:
    from jsserver.jwt.validation import server_version

    own = server_version(NATS_VERSION)
    for claims in operators:
        asserted = claims.nats.assert_server_version
        try:
            wanted = server_version(asserted)
        except ValueError as error:
            raise ConfigError(
                f"operator {claims.sub} expects version {asserted} got error instead: {error}"
            ) from None
        for at, part in enumerate(("major", "minor", "update")):
            if wanted[at] > own[at]:
                raise ConfigError(
                    f"operator {claims.sub} expected {part} version {wanted[at]} > "
                    f"server {part} version {own[at]}"
                )
            if wanted[at] < own[at]:
                break
