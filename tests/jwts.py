"""Tokens of tests: operators, accounts and users as nsc makes them, and such as nobody should."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR, PREFIX_USER
from tests.nkeys import Signer

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
UNLIMITED: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **UNLIMITED,
    **{"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1},
}


def chunk(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sealed(
    claims: Mapping[str, object],
    sign: Callable[[bytes], bytes],
    header: Mapping[str, object] | None = None,
    old: bool = False,
) -> str:
    """A token of these claims; `old`: signed as those of version 1 are."""
    head = chunk(json.dumps(header or HEADER).encode())
    body = chunk(json.dumps(claims).encode())
    signed = body if old else f"{head}.{body}"
    return f"{head}.{body}.{chunk(sign(signed.encode()))}"


def claims(
    signer: Signer, sub: str, kind: str, nats: Mapping[str, object], **more: object
) -> dict[str, object]:
    body = {"type": kind, "version": 2, **nats}
    made = {"iat": int(time.time()), "iss": signer.public, "sub": sub, "jti": f"{time.time_ns()}"}
    return {**made, **more, "nats": body}


def token(
    signer: Signer, sub: str, kind: str, nats: Mapping[str, object] | None = None, **more: object
) -> str:
    return sealed(claims(signer, sub, kind, nats or {}, **more), signer.sign)


class Operator(Signer):
    """An operator, whose account `sys` is the system's."""

    def __init__(self, **nats: object) -> None:
        super().__init__(PREFIX_OPERATOR)
        self.sys = Account(self, name="SYS")
        self.signing = Signer(PREFIX_OPERATOR)
        nats = {"system_account": self.sys.public, "signing_keys": [self.signing.public], **nats}
        self.token = token(self, self.public, "operator", nats, name="O")


class Account(Signer):
    """An account and its token, which `made` makes again with other claims."""

    def __init__(self, operator: Signer, *, name: str = "A", **nats: object) -> None:
        super().__init__(PREFIX_ACCOUNT)
        self.operator = operator
        self.name = name
        self.nats: dict[str, object] = {"limits": ACCOUNT_LIMITS, **nats}
        self.token = self.made()

    def made(self, by: Signer | None = None, **more: object) -> str:
        """A token with these members changed; those of Claims are the token's, the others the
        body's."""
        top = {k: more.pop(k) for k in ("iat", "exp", "nbf", "sub", "name", "iss") if k in more}
        nats = {**self.nats, **more}
        return token(by or self.operator, str(top.pop("sub", self.public)), "account", nats,
                     **{"name": self.name, **top})  # fmt: skip

    def limited(self, **limits: object) -> str:
        return self.made(limits={**ACCOUNT_LIMITS, **limits})


class User(Signer):
    """A user of an account. `by` signs, which is the account where it is not given; `nats` are
    members of the body, `claims` of the token."""

    def __init__(
        self,
        account: Account,
        by: Signer | None = None,
        claims: Mapping[str, object] | None = None,
        **nats: object,
    ) -> None:
        super().__init__(PREFIX_USER)
        if by is not None:
            nats = {"issuer_account": account.public, **nats}
        else:
            nats = {**UNLIMITED, **nats}
        self.token = token(by or account, self.public, "user", nats, **(claims or {}))
