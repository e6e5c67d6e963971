"""Reads the `authorization` block: the single user or token, users and their permissions."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value, plain_subjects
from jsserver.config.options import (
    GLOBAL_ACCOUNT,
    AuthCallout,
    Authorization,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
)
from jsserver.config.values import (
    OptionError,
    Problems,
    Reader,
    as_int,
    as_map,
    as_text,
    flag,
    read_block,
    shown,
    text,
    type_name,
)
from jsserver.text.goformat import SECOND, parse_duration, quote
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_CURVE, PREFIX_USER, decode_public

if TYPE_CHECKING:
    from typing import Any

_SLOW_TIMEOUT = 60.0
_CONNECTION_TYPES = (
    "STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS",
)  # fmt: skip


def valid_subject(subject: str) -> bool:
    """Whether the text is a subject or a pattern of subjects."""
    tokens = subject.split(".")
    if not all(tokens) or any(char in subject for char in "\t\n\f\r "):
        return False
    return ">" not in tokens[:-1]


def _check_rule(rule: str, value: Value, queues: bool) -> None:
    words = rule.split()
    if queues and len(words) == 2:
        subject, queue = words
        if not valid_subject(queue):
            raise OptionError(value, f"queue {quote(queue)} is not a valid queue")
    else:
        subject = rule
    if not valid_subject(subject):
        raise OptionError(value, f"subject {quote(subject)} is not a valid subject")


def _rules(value: Value, queues: bool) -> list[str] | None:
    """The subjects of a rule list; None for an empty list, which does not restrict."""
    if isinstance(value.data, str):
        rules = [value.data]
    elif isinstance(value.data, list):
        plain = plain_subjects(value.data)
        if plain is not None:
            return plain or None
        rules = []
        for item in value.data:
            if not isinstance(item.data, str):
                raise OptionError(item, "Subject in permissions array cannot be cast to string")
            rules.append(item.data)
    else:
        raise OptionError(
            value,
            "Expected subject permissions to be a subject, or array of subjects, "
            f"got {type_name(value)}",
        )
    for rule in rules:
        _check_rule(rule, value, queues)
    return [" ".join(rule.split()) for rule in rules] or None


def _subject_permission(value: Value, queues: bool, problems: Problems) -> SubjectPermission | None:
    if not isinstance(value.data, dict):
        return SubjectPermission(allow=_rules(value, queues))
    permission = SubjectPermission()
    for key, entry in value.data.items():
        try:
            match key.lower():
                case "allow":
                    permission.allow = _rules(entry, queues)
                case "deny":
                    permission.deny = _rules(entry, queues)
                case _ if not entry.used:
                    raise OptionError(
                        entry,
                        f'Unknown field name "{key}" parsing subject permissions, '
                        "only 'allow' or 'deny' are permitted",
                    )
        except OptionError as error:
            problems.error(error.value, str(error))
    return permission if value.data else None


def _responses(value: Value, problems: Problems) -> ResponsePermission | None:
    if isinstance(value.data, bool):
        return ResponsePermission() if value.data else None
    if not isinstance(value.data, dict):
        raise OptionError(value, "error parsing response permissions, expected a boolean or a map")
    permission = ResponsePermission()
    for key, entry in value.data.items():
        match key.lower():
            case "max" | "max_msgs" | "max_messages" | "max_responses":
                permission.max = as_int(entry) or permission.max
            case "expires" | "expiration" | "ttl":
                if not isinstance(entry.data, str):
                    raise OptionError(entry, "error parsing expires, not a duration string")
                try:
                    permission.ttl = parse_duration(entry.data) or permission.ttl
                except ValueError as error:
                    raise OptionError(entry, f"error parsing expires: {error}") from None
            case _ if not entry.used:
                problems.error(entry, f'Unknown field "{key}" parsing permissions')
    return permission


def read_permissions(value: Value, problems: Problems) -> Permissions:
    """A `permissions` block; OptionError."""
    if not isinstance(value.data, dict):
        raise OptionError(value, f"Expected permissions to be a map/struct, got {shown(value)}")
    permissions = Permissions()
    for key, entry in value.data.items():
        try:
            match key.lower():
                case "pub" | "publish" | "import":
                    permissions.publish = _subject_permission(entry, False, problems)
                case "sub" | "subscribe" | "export":
                    permissions.subscribe = _subject_permission(entry, True, problems)
                case "allow_responses" | "publish_allow_responses":
                    permissions.responses = _responses(entry, problems)
                case _ if not entry.used:
                    problems.error(entry, f'Unknown field "{key}" parsing permissions')
        except OptionError as error:
            problems.error(error.value, str(error))
    # Leave to answer alone is no leave to publish anywhere else.
    if permissions.responses is not None and permissions.publish is None:
        permissions.publish = SubjectPermission(allow=[])
    return permissions


def _read_permissions(user: User, value: Value, problems: Problems) -> None:
    user.permissions = read_permissions(value, problems)


def _read_connection_types(user: User, value: Value, problems: Problems) -> None:
    what = "error parsing allowed connection types: unsupported type"
    if isinstance(value.data, str):
        names = [value.data.upper()]
    elif isinstance(value.data, list):
        names = []
        for item in value.data:
            if not isinstance(item.data, str):
                raise OptionError(item, f"{what} in array {type_name(item)}")
            names.append(item.data.upper())
    else:
        raise OptionError(value, f"{what} {type_name(value)}")
    unknown = [name for name in names if name not in _CONNECTION_TYPES]
    if unknown:
        raise OptionError(
            value, f"invalid connection types [{' '.join(quote(name) for name in unknown)}]"
        )
    user.connection_types = names


def _read_nkey(user: User, value: Value, problems: Problems) -> None:
    text = as_text(value)
    if not is_public(text, PREFIX_USER):
        raise OptionError(value, "Not a valid public nkey for a user")
    user.nkey = text


def is_public(text: str, prefix: int) -> bool:
    """Whether the text is a public nkey of this kind."""
    try:
        return decode_public(text)[0] == prefix
    except ValueError:
        return False


_USER: dict[str, Reader] = {
    "user": text("name"),
    "username": text("name"),
    "pass": text("password"),
    "password": text("password"),
    "permission": _read_permissions,
    "permissions": _read_permissions,
    "authorization": _read_permissions,
    "allowed_connection_types": _read_connection_types,
    "connection_types": _read_connection_types,
    "clients": _read_connection_types,
    "nkey": _read_nkey,
    "proxy_required": flag("proxy_required"),
}


class _Block:
    """What an `authorization` block says, before its parts are checked against each other."""

    def __init__(self) -> None:
        self.username = ""
        self.password = ""
        self.token = ""
        self.timeout = 0.0
        self.users: list[User] = []
        self.permissions: Permissions | None = None
        self.callout: AuthCallout | None = None
        self.proxy_required = False


def read_users(target: Any, value: Value, problems: Problems) -> None:
    """Reads users into `target.users`."""
    if not isinstance(value.data, list):
        raise OptionError(value, f"Expected users field to be an array, got {shown(value)}")
    for item in value.data:
        if not isinstance(item.data, dict):
            problems.error(item, f"Expected user entry to be a map/struct, got {shown(item)}")
            continue
        user = User()
        before = len(problems.errors)
        read_block(user, item.data, _USER, problems)
        if user.nkey and (user.name or user.password):
            place = next(iter(item.data.values()))
            problems.error(place, "Nkey users do not take usernames or passwords")
        elif user.name or user.nkey:
            target.users.append(user)
        elif len(problems.errors) == before:
            place = next(iter(item.data.values()), item)
            problems.error(place, "User entry requires a user")


def _read_timeout(block: _Block, value: Value, problems: Problems) -> None:
    data = value.data
    if isinstance(data, str):
        try:
            block.timeout = parse_duration(data) / SECOND
        except ValueError as error:
            raise OptionError(
                value, f"error parsing authorization config, 'timeout' {error}"
            ) from None
    elif type(data) in (int, float):
        block.timeout = float(data)
    else:
        raise OptionError(value, "error parsing authorization config, 'timeout' wrong type")
    if block.timeout > _SLOW_TIMEOUT:
        problems.warn(
            value,
            "timeout",
            f"timeout of {shown(value)} ({block.timeout:f} seconds) is high, consider keeping it "
            "under 60 seconds. possibly caused by unquoted duration; use '1m' instead of 1m, "
            "for example",
        )


def read_default_permissions(target: Any, value: Value, problems: Problems) -> None:
    """Reads what users without permissions of their own may do into `target.permissions`."""
    target.permissions = read_permissions(value, problems)


def names_of(users: list[User]) -> set[str]:
    """What users are known by."""
    return {user.name or user.nkey for user in users}


def adopt(users: list[User], place: Value, taken: set[str], default: Permissions | None) -> None:
    """Takes the users' names, OptionError where one is taken, and gives them the permissions that
    they have by default."""
    for user in users:
        name = user.name or user.nkey
        if name in taken:
            kind = "user" if user.name else "nkey"
            raise OptionError(place, f'Duplicate {kind} "{name}" detected')
        taken.add(name)
        if user.permissions is None:
            user.permissions = default


def _key(attribute: str, prefix: int, kind: str) -> Reader:
    def read(callout: AuthCallout, value: Value, problems: Problems) -> None:
        key = as_text(value)
        if not is_public(key, prefix):
            raise OptionError(value, f"Expected callout {kind}, got {quote(key)}")
        setattr(callout, attribute, key)

    return read


def _names(attribute: str, field: str) -> Reader:
    def read(callout: AuthCallout, value: Value, problems: Problems) -> None:
        if not isinstance(value.data, list):
            kind = type_name(value)
            raise OptionError(value, f"Expected {field} field to be an array, got {kind}")
        setattr(callout, attribute, [as_text(item) for item in value.data])

    return read


_ISSUER = _key("issuer", PREFIX_ACCOUNT, "user to be a valid public account nkey")
_XKEY = _key("xkey", PREFIX_CURVE, "xkey to be a valid public xkey")
_AUTH_USERS = _names("auth_users", "auth_users")
_CALLOUT: dict[str, Reader] = {
    "issuer": _ISSUER,
    "account": text("account"),
    "acc": text("account"),
    "auth_users": _AUTH_USERS,
    "users": _AUTH_USERS,
    "xkey": _XKEY,
    "key": _XKEY,
    "allowed_accounts": _names("accounts", "allowed accounts"),
}


def _read_callout(block: _Block, value: Value, problems: Problems) -> None:
    if not isinstance(value.data, dict):
        what = "Expected authorization callout to be a map/struct"
        raise OptionError(value, f"{what}, got {shown(value)}")
    callout = AuthCallout()
    for key, entry in value.data.items():
        reader = _CALLOUT.get(key.lower())
        if reader is not None:
            reader(callout, entry, problems)
        elif not entry.used:
            problems.error(entry, f"Unknown field {quote(key)} parsing authorization callout")
    place = next(reversed(value.data.values()), value)
    callout.account = callout.account or GLOBAL_ACCOUNT
    if not callout.issuer:
        raise OptionError(place, "Authorization callouts require an issuer to be specified")
    if not callout.auth_users:
        what = "Authorization callouts require authorized users to be specified"
        raise OptionError(place, what)
    block.callout = callout


_BLOCK: dict[str, Reader] = {
    "user": text("username"),
    "username": text("username"),
    "pass": text("password"),
    "password": text("password"),
    "token": text("token"),
    "timeout": _read_timeout,
    "users": read_users,
    "default_permission": read_default_permissions,
    "default_permissions": read_default_permissions,
    "permissions": read_default_permissions,
    "auth_callout": _read_callout,
    "auth_hook": _read_callout,
    "proxy_required": flag("proxy_required"),
}


def read_authorization(options: Any, value: Value, problems: Problems) -> None:
    """Reads the block into `options.authorization`."""
    block = _Block()
    read_block(block, as_map(value), _BLOCK, problems)
    others = options.users
    if (block.users or others) and (block.username or block.password):
        raise OptionError(value, "Can not have a single user/pass and a users array")
    if others and block.token:
        raise OptionError(value, "Can not have a token and accounts")
    if block.users and block.token:
        raise OptionError(value, "Can not have a token and a users array")
    if block.token and (block.username or block.password):
        raise OptionError(value, "Cannot have a user/pass and token")
    adopt(block.users, value, names_of(others), block.permissions)
    options.authorization = Authorization(
        username=block.username,
        password=block.password,
        token=block.token,
        timeout=block.timeout,
        users=block.users,
        callout=block.callout,
        proxy_required=block.proxy_required,
    )
