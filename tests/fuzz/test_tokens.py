"""Whatever bytes a token is made of: claims come out, or a clear error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from jsserver.jwt.claims import Account, Claims, Scope, User
from jsserver.jwt.scopes import ScopeError, scoped
from jsserver.jwt.tokens import TokenError, decode, undecorated
from jsserver.jwt.validation import issues_of
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR
from tests.jwts import HEADER, chunk, sealed
from tests.nkeys import Signer

SIGNERS = [Signer(PREFIX_OPERATOR), Signer(PREFIX_ACCOUNT)]
HEAD = chunk(json.dumps(HEADER).encode())
#: Names of members, so that what is made is something that is read.
NAMES = st.sampled_from(
    [
        *(
            "aud",
            "exp",
            "iat",
            "iss",
            "name",
            "nbf",
            "sub",
            "nats",
            "type",
            "version",
            "tags",
            "pub",
        ),
        *("pub", "allow", "deny", "resp", "max", "ttl", "src", "times", "start", "end"),
        *(
            "times_location",
            "subs",
            "payload",
            "bearer_token",
            "allowed_connection_types",
            "limits",
        ),
        *(
            "tiered_limits",
            "signing_keys",
            "kind",
            "key",
            "role",
            "template",
            "revocations",
            "TYPE",
        ),
        *("mappings", "subject", "weight", "imports", "exports", "account", "token", "sampling"),
        *("local_subject", "service_latency", "results", "account_token_position", "auth_users"),
        *("authorization", "allowed_accounts", "trace", "dest", "issuer_account", "jwt", "error"),
        *("conn", "xkey", "TYPE", "R1", "*", "assert_server_version"),
    ]
)
TEXTS = st.sampled_from(
    [
        *("user", "account", "operator", "activation", "authorization_response", "generic"),
        *("stream", "service", "user_scope", "a.>", "*", "{{name()}}", "{{tag(a)}}", "a:b"),
        *("10.0.0.0/8", "1.2.3", "12:00:00", "Europe/Berlin", "../../etc/passwd", "\x00"),
        SIGNERS[1].public,
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)


def tried(text: str) -> Claims | None:
    try:
        found = decode(text)
    except TokenError as error:
        assert str(error)
        return None
    for issue in issues_of(found, 1):
        assert issue.text
    return found


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    tried(text)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=80))
def test_any_chunks(head: bytes, body: bytes, signature: bytes) -> None:
    tried(f"{chunk(head)}.{chunk(body)}.{chunk(signature)}")
    tried(f"{HEAD}.{chunk(body)}.{chunk(signature)}")
    undecorated_or_error(head)


def undecorated_or_error(contents: bytes) -> None:
    try:
        undecorated(contents)
    except TokenError as error:
        assert str(error)


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.sampled_from(SIGNERS), TEXTS, st.booleans())
def test_any_claims_of_somebody_who_signs(
    made: dict[str, object], signer: Signer, kind: str, old: bool
) -> None:
    nats = made.get("nats")
    body = {**(nats if isinstance(nats, dict) else {}), "type": kind, "version": 2}
    claims: dict[str, object] = {**made, "iss": signer.public}
    claims |= {"type": kind} if old else {"nats": body}
    found = tried(sealed(claims, signer.sign, old=old))
    if isinstance(found, Account):
        for key in found.nats.signing_keys:
            if isinstance(key, Scope):
                try:
                    scoped(User(), key, found)
                except ScopeError as error:
                    assert str(error)
