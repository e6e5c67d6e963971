"""Tokens: what is read of them, whose signature is believed, and what is wrong with claims."""

import json
import time
from typing import Any

import pytest

from jsserver.jwt import claims as c
from jsserver.jwt.scopes import ScopeError, scoped
from jsserver.jwt.tokens import TOKEN_MAX, TokenError, decode, decode_as, encode, undecorated
from jsserver.jwt.validation import issues_of, refusal
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR, PREFIX_SERVER, PREFIX_USER
from tests import jwts
from tests.jwts import Account, Operator, User, chunk, sealed, token
from tests.nkeys import Signer

OPERATOR = Operator()
ACCOUNT = Account(OPERATOR)
USER = User(ACCOUNT)
NOW = int(time.time())


def read(kind: str, signer: Signer = OPERATOR, name: str = "", /, **nats: Any) -> c.Claims:
    return decode(token(signer, name or signer.public, kind, nats))


def test_each_type_is_read() -> None:
    operator = decode_as(OPERATOR.token, c.Operator)
    assert operator.nats.signing_keys == [OPERATOR.signing.public]
    account = decode_as(ACCOUNT.token, c.Account)
    assert account.nats.limits.conn == -1 and account.nats.limits.wildcards
    assert not account.jetstream
    user = decode_as(USER.token, c.User)
    assert (user.iss, user.sub, user.nats.subs) == (ACCOUNT.public, USER.public, -1)
    activation = read("activation", ACCOUNT, subject="a.>", kind="stream")
    assert isinstance(activation, c.Activation) and activation.nats.kind == "stream"
    other = decode_as(token(USER, USER.public, "else", {"accounts": ["x"]}), c.Other)
    assert other.nats["accounts"] == ["x"], "of another type anybody may sign"


def test_what_is_left_out_is_nothing() -> None:
    user = read("user", ACCOUNT)
    assert isinstance(user, c.User)
    assert (user.nats.subs, user.nats.payload, user.nats.bearer_token) == (0, 0, False)


def test_null_and_names_in_capitals_are_read_as_go_reads_them() -> None:
    user = read("user", ACCOUNT, Pub={"ALLOW": ["a"], "deny": None}, src=None, subs=None)
    assert isinstance(user, c.User)
    assert user.nats.pub == c.Permission(["a"]) and user.nats.sources == []
    account = read("account", revocations={"UABC": 5, "*": 6}, Mappings={"A.B": [{"subject": "x"}]})
    assert isinstance(account, c.Account)
    assert account.nats.revocations == {"UABC": 5, "*": 6}
    assert list(account.nats.mappings) == ["A.B"]


def test_sources_may_be_one_text() -> None:
    user = read("user", ACCOUNT, src="10.0.0.0/8, 192.168.0.0/16")
    assert isinstance(user, c.User) and user.nats.sources == ["10.0.0.0/8", "192.168.0.0/16"]


def test_tiers_take_the_place_of_limits() -> None:
    limits = {"mem_storage": 5, "disk_storage": 6, "tiered_limits": {"R1": {"disk_storage": 7}}}
    account = read("account", limits=limits)
    assert isinstance(account, c.Account) and account.jetstream
    assert (account.nats.limits.mem_storage, account.nats.limits.disk_storage) == (0, 0)
    assert account.nats.limits.tiered_limits["R1"].disk_storage == 7


def forged(**changes: Any) -> str:
    """A user's token of which parts are as they should not be."""
    made = jwts.claims(ACCOUNT, USER.public, "user", {})
    return sealed({**made, **changes.pop("claims", {})}, ACCOUNT.sign, **changes)


BAD = {
    "nothing": ("", "expected 3 chunks"),
    "two chunks": ("a.b", "expected 3 chunks"),
    "four chunks": ("a.b.c.d", "expected 3 chunks"),
    "no base64": ("!!!!.e30.e30", "illegal base64 data"),
    "padding": ("eyJ9==.e30.e30", "illegal base64 data"),
    "other letters": ("\u00e9.e30.e30", "illegal base64 data"),
    "no JSON": (f"{chunk(b'{')}.e30.e30", "JSON"),
    "too large": ("a" * (TOKEN_MAX + 1), "token too large"),
    "no algorithm": (forged(header={"typ": "JWT", "alg": "none"}), 'unexpected "none" algorithm'),
    "no alg": (forged(header={"typ": "JWT"}), 'unexpected "" algorithm'),
    "another alg": (forged(header={"typ": "JWT", "alg": "HS256"}), "algorithm"),
    "almost that alg": (forged(header={"typ": "JWT", "alg": "ed25519-x"}), "algorithm"),
    "another type": (forged(header={"typ": "JWS", "alg": "ed25519-nkey"}), "not supported type"),
    "a number as header": (f"{chunk(b'1')}.e30.e30", "JSON"),
    "a newer version": (forged(claims={"nats": {"type": "user", "version": 3}}), "newer version"),
    "no version": (forged(claims={"nats": {"type": "user"}}), "received 0"),
    "a server": (forged(claims={"nats": {"type": "server"}}), "ServerClaims are not supported"),
    "signed by another": (sealed(jwts.claims(ACCOUNT, "x", "user", {}), OPERATOR.sign), "V2 sig"),
    "signed as version 1": (forged(old=True), "V2 signature"),
    "no issuer": (forged(claims={"iss": ""}), "V2 signature"),
    "a user signs a user": (token(USER, USER.public, "user"), r"prefixes - \[account\]"),
    "an operator signs a user": (token(OPERATOR, USER.public, "user"), r"prefixes - \[account\]"),
    "an account signs an operator": (token(ACCOUNT, "x", "operator"), r"prefixes - \[operator\]"),
    "a user signs an account": (token(USER, "x", "account"), r"\[account operator\]"),
    "a huge number": (forged(claims={"exp": 1 << 63}), "JSON"),
    "a text as number": (forged(claims={"exp": "1"}), "JSON"),
    "half a number": (forged(claims={"iat": 1.5}), "JSON"),
    "a list as body": (forged(claims={"nats": []}), "JSON"),
}  # fmt: skip


@pytest.mark.parametrize("which", BAD)
def test_a_bad_token_says_what_is_wrong(which: str) -> None:
    text, said = BAD[which]
    with pytest.raises(TokenError, match=said):
        decode(text)


def test_a_changed_byte_of_any_chunk_is_refused() -> None:
    chunks = USER.token.split(".")
    for at in range(3):
        for place in (0, len(chunks[at]) // 2):
            changed = list(chunks)
            letter = "A" if chunks[at][place] != "A" else "B"
            changed[at] = chunks[at][:place] + letter + chunks[at][place + 1 :]
            with pytest.raises(TokenError):
                decode(".".join(changed))


def test_deep_json_is_refused() -> None:
    for text in (
        b'{"nats":' + b"[" * 400_000,
        b'{"a":' * 100_000,
        b'{"nats":{"tags":' + b"[" * 9999,
    ):
        with pytest.raises(TokenError):
            decode(f"{chunk(json.dumps(jwts.HEADER).encode())}.{chunk(text)}.AAAA")


def test_many_names_in_capitals_take_no_longer_than_others() -> None:
    text = b'{"' + b"A" * 700_000 + b'":1}'
    before = time.process_time()
    with pytest.raises(TokenError):
        decode(f"{chunk(json.dumps(jwts.HEADER).encode())}.{chunk(text)}.AAAA")
    assert time.process_time() - before < 2


def test_claims_of_another_type_than_asked_for() -> None:
    with pytest.raises(TokenError, match="not user claim"):
        decode_as(ACCOUNT.token, c.User)
    with pytest.raises(TokenError, match="not account claim"):
        decode_as(USER.token, c.Account)


def test_version_1() -> None:
    header = {"typ": "jwt", "alg": "ed25519"}
    made: dict[str, object] = {
        **{"iss": ACCOUNT.public, "sub": USER.public, "type": "user", "tags": ["a:b"]},
        **{"issuer_account": "x", "nats": {"pub": {"allow": ["a"]}, "bearer_token": True}},
    }
    user = decode_as(sealed(made, ACCOUNT.sign, header, old=True), c.User)
    assert user.nats.pub.allow == ["a"] and user.nats.bearer_token
    assert (user.nats.subs, user.nats.issuer_account, user.nats.tags) == (-1, "x", ["a:b"])
    with pytest.raises(TokenError, match="V1 signature"):
        decode(sealed(made, ACCOUNT.sign, header))
    made = {
        **{"iss": OPERATOR.public, "sub": ACCOUNT.public, "type": "account"},
        "nats": {
            "limits": {"conn": 3, "disk_storage": 5},
            "signing_keys": ["k", {"kind": "user_scope"}],
            "authorization": {"auth_users": ["x"]},
        },
    }
    account = decode_as(sealed(made, OPERATOR.sign, header, old=True), c.Account)
    assert account.nats.limits.conn == 3 and not account.jetstream
    assert account.nats.signing_keys == ["k"] and not account.nats.authorization.auth_users


def test_written_tokens_are_read() -> None:
    server = Signer(PREFIX_SERVER)
    said = {
        "iss": server.public,
        "sub": "x",
        "nats": {"type": "authorization_request", "version": 2},
    }
    first, second = (decode_as(encode({**said, "iat": n}, server.sign), c.Other) for n in (1, 2))
    assert first.sub == "x" and len(first.jti) == 52 and first.jti != second.jti


@pytest.mark.parametrize("frame", ["{}", "-----BEGIN X-----\n{}\n------END X------\n", "{}\n"])
def test_a_file_may_frame_its_token(frame: str) -> None:
    assert undecorated(frame.format(OPERATOR.token).encode()) == OPERATOR.token


# ---- what is wrong with claims


def said_of(kind: str, signer: Signer = OPERATOR, name: str = "", /, **nats: Any) -> list[str]:
    return [issue.text for issue in issues_of(read(kind, signer, name, **nats), NOW)]


def test_nothing_is_wrong_with_what_nsc_makes() -> None:
    for text in (OPERATOR.token, ACCOUNT.token, USER.token):
        assert issues_of(decode(text), NOW) == []


def test_times() -> None:
    for times, said in (
        ({"exp": NOW - 1}, "claim is expired"),
        ({"nbf": NOW + 60}, "claim is not yet valid"),
        ({"exp": NOW, "nbf": NOW}, ""),
    ):
        user = decode(User(ACCOUNT, claims=times).token)
        assert refusal(issues_of(user, NOW)) == said
        assert refusal(issues_of(user, NOW), times=False) == ""


USERS_FAULTS: dict[str, dict[str, Any]] = {
    "invalid cidr": {"src": ["10.0.0.1"]},
    "time ranges start must": {"times": [{"end": "10:00:00"}]},
    "end in time range is invalid": {"times": [{"start": "10:00:00", "end": "25:00:00"}]},
    "could not parse iana time zone": {"times_location": "Atlantis/City"},
    "cannot have spaces|too many spaces": {"pub": {"allow": ["a b c"]}},
    "not allowed to contain queue": {"pub": {"allow": ["a q"]}},
    "consecutive": {"sub": {"deny": ["a..b"]}},
    "cannot start or end": {"sub": {"deny": [".a"]}},
    "subject cannot be empty": {"sub": {"deny": [""]}},
    "account_id is not": {"issuer_account": "A"},
}


@pytest.mark.parametrize("said", USERS_FAULTS)
def test_faults_of_users(said: str) -> None:
    (text,) = said_of("user", ACCOUNT, USER.public, **USERS_FAULTS[said])
    assert any(part in text for part in said.split("|"))


def imported(**changes: Any) -> dict[str, Any]:
    base = {"subject": "a", "account": ACCOUNT.public, "type": "stream"}
    return {"imports": [{**base, **changes}], "limits": jwts.ACCOUNT_LIMITS}


def exported(*exports: dict[str, Any], **limits: Any) -> dict[str, Any]:
    made = [{"subject": "a", "type": "service", **export} for export in exports]
    return {"exports": made, "limits": {**jwts.ACCOUNT_LIMITS, **limits}}


ACCOUNTS_FAULTS: dict[str, dict[str, Any]] = {
    "more imports": {**imported(), "limits": {}},
    "more exports": exported({}, exports=0),
    "wildcard exports": exported({"subject": "a.*"}, wildcards=False, exports=5),
    "invalid import type": imported(type=""),
    "account to import from": imported(account=""),
    "only valid for services": imported(share=True),
    "Local Subject replaces To": imported(local_subject="b", to="b"),
    "does not contain enough": imported(subject="a.*", local_subject="b"),
    "Reference $2": imported(subject="a.*", local_subject="b.$2"),
    "invalid activation token": imported(token="x"),
    "invalid export type": exported({"type": ""}),
    "invalid response type for service": exported({"response_type": "Many"}),
    "sampling percentage": exported({"service_latency": {"sampling": 101, "results": "r"}}),
    "negative response": exported({"response_threshold": -1}),
    "can only be used with wildcard": exported({"account_token_position": 1}),
    "must match a *": exported({"subject": "a.*", "account_token_position": 1}),
    "exceeds length": exported({"subject": "a.*", "account_token_position": 3}),
    "already exports": exported({"subject": "a.*"}, {"subject": "a.b"}),
    "without users": {"authorization": {"allowed_accounts": ["*"]}},
    "not a valid user public": {"authorization": {"auth_users": ["x"]}},
    "not a valid public xkey": {"authorization": {"auth_users": [USER.public], "xkey": "x"}},
    "not a valid account signing": {"signing_keys": ["x"]},
    "is not an account public key": {"signing_keys": [{"kind": "user_scope", "key": "x"}]},
    "exceeds 100%": {"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c"}]}},
    "has a weight": {"mappings": {"a": [{"subject": "b", "weight": 101}]}},
    "in cluster": {"mappings": {"a": [{"subject": "b", "cluster": "x"}] * 2}},
    "Trace.Sampling": {"trace": {"dest": "a", "sampling": 101}},
    "Trace.Destination subject": {"trace": {"dest": "*"}},
    "blank": {"limits": {**jwts.ACCOUNT_LIMITS, "tiered_limits": {"": {}}}},
    "cluster traffic": {"cluster_traffic": "x"},
    "Description is too long": {"description": "x" * 9000},
    "info url": {"info_url": "x"},
}


@pytest.mark.parametrize("said", ACCOUNTS_FAULTS)
def test_faults_of_accounts(said: str) -> None:
    texts = said_of("account", OPERATOR, ACCOUNT.public, **ACCOUNTS_FAULTS[said])
    assert any(said in text for text in texts), texts


def test_activation_tokens_are_for_one_import() -> None:
    exporter, stranger = Account(OPERATOR), Account(OPERATOR)

    def said(signer: Signer, sub: str, **changes: Any) -> list[str]:
        nats = {"subject": "a.>", "kind": "stream", **changes}
        activation = token(signer, sub, "activation", nats, exp=1)
        more = imported(token=activation, account=exporter.public, subject="a.b")
        return said_of("account", OPERATOR, ACCOUNT.public, **more)

    assert said(exporter, ACCOUNT.public) == [], "its time is looked at where it is used"
    assert "doesn't match account for import" in said(stranger, ACCOUNT.public)[0]
    assert "being included in" in said(exporter, stranger.public)[0]
    assert "mismatch between" in said(exporter, ACCOUNT.public, kind="service")[0]
    assert "doesn't match import" in said(exporter, ACCOUNT.public, subject="b")[0]


@pytest.mark.parametrize(
    "version", ["1.2", "a.b.c", "-1.2.3", "1.2.3.4", "1.2." + "9" * 30, "1.2.\u0663"]
)
def test_faults_of_operators(version: str) -> None:
    said = said_of(
        "operator", assert_server_version=version, system_account="x", signing_keys=["y"]
    )
    assert len(said) == 3 and "asserted server version" in said[2]


# ---- roles

SCOPED = Signer(PREFIX_ACCOUNT)


def role(template: dict[str, Any]) -> c.Scope:
    keys = [{"kind": "user_scope", "key": SCOPED.public, "role": "r", "template": template}]
    account = decode_as(Account(OPERATOR, signing_keys=keys).token, c.Account)
    (scope,) = account.nats.signing_keys
    assert isinstance(scope, c.Scope)
    return scope


def filled(template: dict[str, Any], /, **user: Any) -> c.UserBody:
    account = decode_as(Account(OPERATOR, name="ACC", tags=["at:x", "at:y"]).token, c.Account)
    claims = {"name": user.pop("name", "me")}
    made = decode_as(User(ACCOUNT, SCOPED, claims, **user).token, c.User)
    return scoped(made, role({"pub": template, "payload": 100}), account).nats


def test_a_role_gives_its_limits() -> None:
    body = filled({"allow": ["a"]})
    assert (body.payload, body.subs, body.pub.allow) == (100, -1, ["a"])
    assert body.issuer_account == ACCOUNT.public


def test_a_user_of_a_role_has_nothing_of_its_own() -> None:
    for own in (
        {"subs": 1},
        {"pub": {"allow": ["x"]}},
        {"bearer_token": True},
        {"resp": {"max": 1}},
    ):
        with pytest.raises(ScopeError, match="no permissions or limits"):
            filled({}, **own)


PLACES = {
    "{{name()}}": ["me"],
    "{{ Name() }}": ["me"],
    "{{account-name()}}.x": ["ACC.x"],
    "{{account-subject()}}": [ACCOUNT.public],
    "{{tag(t)}}.{{account-tag(at)}}": ["1.x", "1.y", "2.x", "2.y"],
    "{{TAG(T)}}": ["1", "2"],
    "{{tag(none)}}": [],
    "plain": ["plain"],
}


@pytest.mark.parametrize("template", PLACES)
def test_placeholders(template: str) -> None:
    body = filled({"allow": [template]}, tags=["t:1", "t:2", "other:3"])
    assert body.pub.allow == PLACES[template]
    assert body.pub.deny == ([] if PLACES[template] else [">"])


def test_what_is_denied_is_never_left_out() -> None:
    for template in ("{{tag(none)}}", "{{name()}}", "{{what()}}"):
        with pytest.raises(ScopeError):
            filled({"deny": [template]}, name="a b")
    with pytest.raises(ScopeError, match="not defined"):
        filled({"allow": ["{{what()}}"]})


def test_placeholders_become_a_bounded_number_of_subjects() -> None:
    tags = [f"t:{n}" for n in range(17)]
    with pytest.raises(ScopeError, match="exceeds limit"):
        filled({"allow": ["{{tag(t)}}.{{tag(t)}}.{{tag(t)}}"]}, tags=tags)
    with pytest.raises(ScopeError, match="exceeds limit"):
        filled({"allow": [".".join(["{{tag(t)}}"] * 500)]}, tags=tags)


def test_issuers_have_the_right_prefix() -> None:
    assert {k[0] for k in (OPERATOR.public, ACCOUNT.public, USER.public)} == {"O", "A", "U"}
    assert Signer(PREFIX_OPERATOR).public[0] == "O" and Signer(PREFIX_USER).public[0] == "U"


def test_many_exports_are_looked_at_in_time_of_their_number() -> None:
    def exported(*subjects: str) -> list[dict[str, object]]:
        return [{"name": "e", "type": "stream", "subject": subject} for subject in subjects]

    limits = jwts.ACCOUNT_LIMITS
    many = [f"a.{n}.>" if n % 2 else f"a.{n}.*.b" for n in range(5000)]
    began = time.process_time()
    assert not issues_of(read("account", limits=limits, exports=exported(*many)), NOW)
    more = read("account", limits=limits, exports=exported(*many, "a.7.x"))
    told = [i.text for i in issues_of(more, NOW)]
    assert told == ['stream export subject "a.7.>" already exports "a.7.x"']
    assert time.process_time() - began < 5
    twice = read("account", limits=limits, exports=exported("a.b", "a.b", "c.>", "c.*"))
    assert sorted(issue.text for issue in issues_of(twice, NOW)) == [
        'stream export subject "a.b" already exports "a.b"',
        'stream export subject "c.*" already exports "c.>"',
        'stream export subject "c.>" already exports "c.*"',
    ]
