"""Whatever bytes a token is made of: claims come out, or a clear error."""

import base64
import json
import os
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsserver.jwt.claims import Account, Claims, Scope, User
from jsserver.jwt.scopes import ScopeError, scoped
from jsserver.jwt.tokens import TokenError, decode, undecorated
from jsserver.jwt.validation import issues_of
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR
from tests.jwts import HEADER, Operator, chunk, sealed
from tests.jwts import Account as AccountSigner
from tests.jwts import User as UserSigner
from tests.nkeys import Signer

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)
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


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few things wrong, such as are JSON still."""
    words = [
        b"null",
        b"[]",
        b"{}",
        b"-1",
        b"1e999",
        b"1e-9",
        b"18446744073709551616",
        b'""',
        b"true",
    ]
    words += [b'"a.>"', b'"\\ud800"', b'"*"', b'"\\u0000"', b"[[[[", b",", b'"', b"\xff"]
    broken = data
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(broken) + 1)
        match rng.randrange(4):
            case 0:
                broken = broken[:at] + rng.choice(words) + broken[at:]
            case 1:  # a value gives way to another
                begin = broken.find(b":", at) + 1
                end = begin + rng.choice([0, 1, 2, 5, 30])
                broken = broken[:begin] + rng.choice(words) + broken[end:]
            case 2:
                broken = broken[:at] + broken[at + rng.choice([1, 3, 30]) :]
            case 3:
                other = rng.randrange(len(broken) + 1)
                broken = broken[:at] + broken[other : other + 40] + broken[at:]
    return broken


def test_broken_tokens() -> None:
    """Also of those who may sign: what they say may be anything."""
    operator = Operator(account_server_url="http://x")
    scope = {"kind": "user_scope", "key": SIGNERS[1].public, "role": "r", "template": {"subs": 1}}
    account = AccountSigner(
        operator,
        signing_keys=[SIGNERS[1].public, scope],
        revocations={"*": 5},
        mappings={"a.*": [{"subject": "b.{{wildcard(1)}}", "weight": 50}]},
        exports=[{"name": "e", "subject": "s.*", "type": "service", "account_token_position": 2}],
        imports=[{"name": "i", "subject": "x", "account": SIGNERS[1].public, "type": "stream"}],
        authorization={"auth_users": ["*"], "allowed_accounts": ["*"]},
        default_permissions={"pub": {"allow": ["a"]}, "resp": {"max": 1, "ttl": 5}},
    )
    signers = [operator, operator, account]
    tokens = [operator.token, account.token, UserSigner(account).token]
    bodies = [chunked(token) for token in tokens]
    end = time.monotonic() + FUZZ_SECONDS
    seed = read = 0
    while time.monotonic() < end:
        seed += 1
        rng = random.Random(seed)
        number = rng.randrange(3)
        if rng.random() < 0.2:
            tried(spoilt(tokens[number].encode(), rng).decode("latin-1"))
            continue
        text = f"{HEAD}.{chunk(spoilt(bodies[number], rng))}"
        signed = signers[number].sign(text.encode())
        read += tried(f"{text}.{chunk(signed)}") is not None
    print(f"{seed} tokens, of which {read} are tokens still")
    assert read > seed / 1000


def chunked(token: str) -> bytes:
    body = token.split(".")[1]
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
