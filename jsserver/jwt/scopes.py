"""Scoped signing keys: what their users may do, with what a user is put into the role's subjects.

A template has placeholders such as `{{name()}}` or `{{tag(region)}}` in its allow and deny lists.
"""

from __future__ import annotations

import itertools
import re

import msgspec

from jsserver.jwt.claims import Account, Permission, Scope, User, UserBody, UserLimits
from jsserver.text.goformat import quote

EXPANSIONS_MAX = 4096
"""Subjects that the placeholders of one list may become."""

_PLACEHOLDER = re.compile(r"\{\{([^}]+)\}\}")
_NOTHING = UserLimits()


class ScopeError(ValueError):
    """Why a user cannot have the role."""


def scoped(user: User, scope: Scope, account: Account) -> User:
    """The user with the limits of the role that its signer makes users of; ScopeError. A user of a
    role brings none of its own."""
    own = user.nats
    if not has_no_limits(own):
        raise ScopeError("scoped users require no permissions or limits set")
    limits = scope.template
    body = UserBody(
        tags=own.tags,
        type=own.type,
        version=own.version,
        issuer_account=own.issuer_account,
        **{name: getattr(limits, name) for name in UserLimits.__struct_fields__},
    )
    fill = _Filler(user, account)
    body.sub = fill.permission(limits.sub)
    body.pub = fill.permission(limits.pub)
    return msgspec.structs.replace(user, nats=body)


def has_no_limits(body: UserLimits) -> bool:
    """Whether nothing is said of what the user may do."""
    fields = UserLimits.__struct_fields__
    return all(getattr(body, name) == getattr(_NOTHING, name) for name in fields)


def _is_valid(subject: str) -> bool:
    tokens = subject.split(".")
    return (
        all(tokens) and ">" not in tokens[:-1] and not any(char in subject for char in " \t\n\f\r")
    )


class _Filler:
    """Puts what is known of one user into subjects."""

    def __init__(self, user: User, account: Account) -> None:
        self._user = user
        self._account = account
        self._plain = {
            "name()": user.name,
            "subject()": user.sub,
            "account-name()": account.name,
            "account-subject()": user.nats.issuer_account,
        }

    def permission(self, rules: Permission) -> Permission:
        """Subjects without a value are left out of what is allowed; of what is denied they are not:
        ScopeError. Of an allow list nothing is left: nothing is allowed."""
        allow = self._subjects(rules.allow, must=False)
        deny = self._subjects(rules.deny, must=True)
        if rules.allow and not allow and ">" not in deny:
            deny = [*deny, ">"]
        return Permission(allow, deny)

    def _subjects(self, templates: list[str], must: bool) -> list[str]:
        if not any(_PLACEHOLDER.search(template) for template in templates):
            return templates
        found: list[str] = []
        for template in templates:
            places = list(_PLACEHOLDER.finditer(template))
            values = [self._values(template, place[1].strip(), must) for place in places]
            count = 1
            for choice in values:
                count *= len(choice)
            if len(found) + count > EXPANSIONS_MAX:
                raise ScopeError(f"template expansion exceeds limit: {EXPANSIONS_MAX}")
            for chosen in itertools.product(*values):
                subject = template
                for place, value in zip(places, chosen, strict=True):
                    subject = subject.replace(place[0], value)
                if _is_valid(subject):
                    found.append(subject)
                elif must:
                    raise ScopeError("generated invalid subject")
        return found

    def _values(self, template: str, what: str, must: bool) -> list[str]:
        """What can stand in a placeholder; a blank, which no subject has, where nothing can."""
        lowered = what.lower()
        if lowered in self._plain:
            return [self._plain[lowered]]
        for begin, tags in (
            ("tag(", self._user.nats.tags),
            ("account-tag(", self._account.nats.tags),
        ):
            if lowered.startswith(begin) and what.endswith(")"):
                key = what[len(begin) : -1]
                values = [t[len(key) + 1 :] for t in tags if t.startswith(f"{key.lower()}:")]
                if not values and must:
                    raise ScopeError(
                        f"generated invalid subject {quote(template)}: {quote(key)} is not defined"
                    )
                return values or [" "]
        raise ScopeError(f"template operation in {quote(template)}: {quote(what)} is not defined")
