"""Claims as they are shown: what says nothing is left out, as by Go."""

from __future__ import annotations

from typing import Any

import msgspec

from jsserver.jwt.claims import (
    AccountBody,
    Claims,
    Latency,
    Permissions,
    Scope,
)

_STAY: dict[type, tuple[str, ...]] = {
    Claims: ("nats",),
    AccountBody: ("limits", "default_permissions", "authorization"),
    Permissions: ("pub", "sub"),
    Latency: ("sampling", "results"),
    Scope: ("kind", "key", "role", "template", "description"),
}
"""Members that are shown even if they say nothing."""


def shown(value: Any) -> Any:
    """Maps and lists for JSON; a struct's members under their names."""
    if isinstance(value, msgspec.Struct):
        stay = {name for kind, names in _STAY.items() if isinstance(value, kind) for name in names}
        members = {}
        for field in msgspec.structs.fields(type(value)):
            member = shown(getattr(value, field.name))
            if member or field.name in stay:
                members[field.encode_name] = member
        if isinstance(value, Scope):
            members = {"kind": "user_scope", **members}
        return members
    if isinstance(value, dict):
        return {name: shown(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shown(member) for member in value]
    return value
