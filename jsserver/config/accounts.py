"""Reads the `accounts` block: accounts, their users, their limits and their JetStream."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.config.authorization import (
    adopt,
    is_public,
    names_of,
    read_default_permissions,
    read_users,
)
from jsserver.config.options import GLOBAL_ACCOUNT, Account, AssetLimits
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    as_map,
    as_size,
    as_text,
    integer,
    read_block,
    shown,
    type_name,
    unavailable,
)
from jsserver.text.goformat import quote
from jsserver.text.identity import PREFIX_ACCOUNT

if TYPE_CHECKING:
    from typing import Any

NAME_MAX = 255
"""Bytes of a name, which is a folder's too."""


def is_account_name(name: str) -> bool:
    """Whether the name can stand for a folder, and in a line of the log."""
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and name.replace("\t", " ").isprintable()
        and len(name.encode("utf-8", "surrogatepass")) <= NAME_MAX
    )


# ---- JetStream


def _size(attribute: str, key: str) -> Reader:
    def read(limits: AssetLimits, value: Value, problems: Problems) -> None:
        try:
            setattr(limits, attribute, as_size(value, key))
        except OptionError:
            raise OptionError(
                value, f'Expected a parseable size for "{key}", got {shown(value)}'
            ) from None

    return read


def _required(key: str) -> Reader:
    def read(limits: AssetLimits, value: Value, problems: Problems) -> None:
        if not isinstance(value.data, bool):
            raise OptionError(value, f'Expected a parseable bool for "{key}", got {shown(value)}')
        limits.max_bytes_required = value.data

    return read


_SIZES = {
    "max_memory": ("max_memory", "max_mem", "mem", "memory"),
    "max_store": ("max_store", "max_file", "max_disk", "store", "disk"),
    "max_streams": ("max_streams", "streams"),
    "max_consumers": ("max_consumers", "consumers"),
    "memory_max_stream_bytes": ("memory_max_stream_bytes", "mem_max_stream_bytes"),
    "store_max_stream_bytes": ("store_max_stream_bytes", "disk_max_stream_bytes"),
    "max_ack_pending": ("max_ack_pending",),
}
_JETSTREAM: dict[str, Reader] = {
    **{key: _size(attribute, key) for attribute, keys in _SIZES.items() for key in keys},
    **{key: _required(key) for key in ("max_bytes_required", "max_stream_bytes", "max_bytes")},
    "cluster_traffic": unavailable("clustering (cluster_traffic)"),
}


def _read_jetstream(account: Account, value: Value, problems: Problems) -> None:
    data = value.data
    if isinstance(data, bool):
        enabled = data
    elif isinstance(data, str):
        if data.lower() not in ("enabled", "enable", "disabled", "disable"):
            raise OptionError(
                value, f"Expected 'enabled' or 'disabled' for string value, got '{data}'"
            )
        enabled = data.lower() in ("enabled", "enable")
    elif isinstance(data, dict):
        enabled = True
    else:
        raise OptionError(
            value, f"Expected map, bool or string to define JetStream, got {type_name(value)}"
        )
    account.jetstream = AssetLimits() if enabled else None
    if isinstance(data, dict):
        read_block(account.jetstream, data, _JETSTREAM, problems)


# ---- limits of connections


_CONNECTIONS = integer("max_connections")
_SUBSCRIPTIONS = integer("max_subscriptions")
_PAYLOAD = integer("max_payload")
_LEAFNODES = integer("max_leafnodes")
_LIMITS: dict[str, Reader] = {
    "max_connections": _CONNECTIONS,
    "max_conn": _CONNECTIONS,
    "max_subscriptions": _SUBSCRIPTIONS,
    "max_subs": _SUBSCRIPTIONS,
    "max_payload": _PAYLOAD,
    "max_pay": _PAYLOAD,
    "max_leafnodes": _LEAFNODES,
    "max_leafs": _LEAFNODES,
}


def _read_limits(account: Account, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, f"Expected account limits to be a map/struct, got {shown(value)}")
    for key, entry in value.data.items():
        reader = _LIMITS.get(key.lower())
        if reader is not None:
            try:
                reader(account, entry, problems)
            except OptionError as error:
                problems.error(error.value, str(error))
        elif not entry.used:
            problems.error(entry, f'Unknown field "{key}" parsing account limits')


# ---- accounts


def _read_nkey(account: Account, value: Value, problems: Problems) -> None:
    account.nkey = as_text(value)
    if not is_public(account.nkey, PREFIX_ACCOUNT):
        raise OptionError(value, f"Not a valid public nkey for an account: {quote(account.nkey)}")


def read_mappings(target: Any, value: Value, problems: Problems) -> None:
    """Reads the block into `target.mappings`."""
    from jsserver.config.mappings import read_mappings as read  # most do without

    read(target, value, problems)


def _read_exports(account: Account, value: Value, problems: Problems) -> None:
    from jsserver.config.sharing import read_exports  # most do without

    read_exports(account, value, problems)


def _read_imports(account: Account, value: Value, problems: Problems) -> None:
    from jsserver.config.sharing import read_imports

    read_imports(account, value, problems)


_TRACE = unavailable("message tracing to a subject")
_ACCOUNT: dict[str, Reader] = {
    "nkey": _read_nkey,
    "users": read_users,
    "default_permissions": read_default_permissions,
    "jetstream": _read_jetstream,
    "limits": _read_limits,
    "mappings": read_mappings,
    "maps": read_mappings,
    "exports": _read_exports,
    "imports": _read_imports,
    # What nats-server has and this server has not yet.
    "msg_trace": _TRACE,
    "trace_dest": _TRACE,
}


class _Names:
    """What is taken already."""

    def __init__(self, options: Any) -> None:
        self.accounts = {account.name for account in options.accounts}
        self.users = names_of(options.users)


def _new(options: Any, name: str, value: Value, taken: _Names) -> Account:
    if name == GLOBAL_ACCOUNT:
        raise OptionError(value, f'"{name}" is a Reserved Account')
    if not is_account_name(name):
        raise OptionError(
            value,
            f"the name of account {quote(name[:NAME_MAX])} cannot be used, as its streams have a "
            f"folder of that name: no slashes, no control characters, at most {NAME_MAX} bytes, "
            'and neither "", "." nor ".."',
        )
    if name in taken.accounts:
        raise OptionError(value, f"Duplicate Account Entry: {name}")
    taken.accounts.add(name)
    account = Account(name=name)
    options.accounts.append(account)
    return account


def _read_account(options: Any, name: str, value: Value, taken: _Names, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        raise OptionError(value, "Expected map entries for accounts")
    account = _new(options, name, value, taken)
    read_block(account, value.data, _ACCOUNT, problems)
    for user in account.users:
        user.account = name
    place = next((v for k, v in value.data.items() if k.lower() == "users"), value)
    adopt(account.users, place, taken.users, account.permissions)


def read_accounts(options: Any, value: Value, problems: Problems) -> None:
    """Reads the block into `options.accounts`."""
    taken = _Names(options)
    if isinstance(value.data, list):
        for item in value.data:
            _new(options, as_text(item), item, taken)
        return
    for name, entry in as_map(value).items():
        try:
            _read_account(options, name, entry, taken, problems)
        except OptionError as error:
            problems.error(error.value, str(error))
    if any(account.users for account in options.accounts):
        single = options.authorization
        if single.username or single.password:
            raise OptionError(value, "Can not have a single user/pass and accounts")
        if single.token:
            raise OptionError(value, "Can not have a token and accounts")
    if not problems.errors and any(a.imports or a.exports for a in options.accounts):
        _check_shared(options, value, problems)


def _check_shared(options: Any, value: Value, problems: Problems) -> None:
    from jsserver.config.links import share  # a configuration without imports goes without it

    _, errors = share(options.accounts, has_system=not options.no_system_account)
    for error in errors:
        problems.error(value, error)
