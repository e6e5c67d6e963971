"""Who is let in: users, tokens, single users, hashed passwords, and what they may do."""

from typing import Any

import bcrypt
import pytest

from jsserver.access.auth import (
    AUTH_REQUESTS,
    Authenticator,
    password_fits,
    permission_set,
    without_asking,
)
from jsserver.access.clients import Connect, decode_connect
from jsserver.access.proxies import Proxies
from jsserver.access.refusal import ProxyNotTrusted
from jsserver.config.options import (
    Account,
    Authorization,
    Options,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    Tls,
    User,
)
from tests.nkeys import Signer

HASHED = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()


def authenticator(authorization: Authorization | None = None, **options: Any) -> Authenticator:
    return Authenticator(Options(authorization=authorization or Authorization(), **options))


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2x$", "$2y$"])
def test_hashed_passwords_in_every_spelling(prefix):
    stored = prefix + HASHED[4:]
    assert password_fits(stored, "s3cret")
    assert not password_fits(stored, "other")
    assert not password_fits(stored, "s3cret" + "x" * 80)


def test_hashed_passwords_have_up_to_72_bytes():
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert password_fits(stored, "x" * 72)
    assert not password_fits(stored, "x" * 73)


def test_who_must_not_ask_keeps_its_permissions_otherwise():
    rules = Permissions(publish=SubjectPermission(allow=["a"], deny=["b"]))
    made = without_asking(rules).publish
    assert made is not None and made.allow == ["a"] and made.deny == ["b", AUTH_REQUESTS]
    for none in (None, Permissions(), Permissions(publish=SubjectPermission(allow=["a"]))):
        made = without_asking(none).publish
        assert made is not None and made.deny == [AUTH_REQUESTS]


def test_plain_passwords_and_what_only_looks_hashed():
    assert password_fits("p\u00e4ss", "p\u00e4ss")
    assert not password_fits("pass", "")
    assert password_fits("$2a$no hash", "$2a$no hash")
    assert not password_fits("$2a$04$broken", "$2a$04$broken")


def test_nobody_has_to_prove_anything_without_authorization():
    assert not authenticator(Authorization()).required


def test_users():
    users = [
        User(name="a", password="x"),
        User(
            name="b",
            password=HASHED,
            permissions=Permissions(publish=SubjectPermission(allow=["p"])),
        ),
    ]
    auth = authenticator(Authorization(users=users))
    assert auth.required
    assert auth.admit(Connect(user="a", password="y"), "") is None
    assert auth.admit(Connect(), "") is None
    a = auth.admit(Connect(user="a", password="x"), "")
    b = auth.admit(Connect(user="b", password="s3cret"), "")
    assert a is not None and a.permissions is None
    assert b is not None and b.permissions is not None
    assert auth.slow(Connect(user="b")) and not auth.slow(Connect(user="a"))


def test_no_auth_user_takes_only_those_without_credentials():
    auth = authenticator(
        Authorization(users=[User(name="guest", password="g")]), no_auth_user="guest"
    )
    admitted = auth.admit(Connect(), "")
    assert admitted is not None and admitted.user == "guest"
    assert auth.admit(Connect(user="guest", password="wrong"), "") is None


def test_token_and_single_user():
    token = authenticator(Authorization(token="t"))
    assert token.admit(Connect(auth_token="t"), "") is not None
    assert token.admit(Connect(auth_token="u"), "") is None
    single = authenticator(Authorization(username="me", password="pw"))
    assert single.admit(Connect(user="me", password="pw"), "") is not None
    assert single.admit(Connect(user="me", password=""), "") is None


@pytest.mark.parametrize("secret", ["token", "password"])
def test_a_single_hash_takes_long_too(secret):
    name = {"username": "me"} if secret == "password" else {}
    hashed = authenticator(Authorization(**name, **{secret: HASHED}))
    plain = authenticator(Authorization(**name, **{secret: "s3cret"}))
    connect = Connect(user="me", password="s3cret", auth_token="s3cret")
    assert hashed.slow(connect) and not plain.slow(connect)


def test_a_token_is_no_user_without_a_name():
    auth = authenticator(Authorization(token="t"))
    assert auth.user("", "password") is None
    for connect in (Connect(), Connect(user="", password=""), Connect(user="", password="t")):
        assert auth.admit(connect, "") is None


def test_a_single_user_is_no_nkey_of_that_name():
    auth = authenticator(Authorization(username="a", password="x"))
    assert auth.user("a", "password") is not None
    assert auth.user("a", "nkey") is None


def test_a_no_auth_user_has_no_hash_and_is_somebody():
    users = [User(name="a", password="x"), User(name="b", password=HASHED)]
    for name, let_in in (("a", True), ("b", False), ("nobody", False)):
        auth = authenticator(Authorization(users=users), no_auth_user=name)
        assert (auth.admit(Connect(), "") is not None) is let_in


def test_connect_keys_are_matched_without_regard_to_case():
    options = decode_connect(b'{"USER":"a","Pass":"b","Name":null,"x":1}')
    assert (options.user, options.password, options.name) == ("a", "b", None)


def test_permission_sets_are_built_once_and_may_be_absent():
    assert permission_set(None) is None
    assert permission_set(
        Permissions(
            subscribe=SubjectPermission(allow=["a", "b q.*"], deny=["c"]),
            responses=ResponsePermission(max=2),
        )
    )


def test_users_of_accounts_are_let_into_their_own():
    accounts = [
        Account(name=name, users=[User(name=name.lower(), password="p", account=name)])
        for name in ("A", "B")
    ]
    auth = authenticator(Authorization(users=[User(name="g", password="p")]), accounts=accounts)
    for user, account in (("a", "A"), ("b", "B"), ("g", "$G")):
        admitted = auth.admit(Connect(user=user, password="p"), "")
        assert admitted is not None and (admitted.user, admitted.account) == (user, account)
    assert auth.admit(Connect(user="c", password="p"), "") is None
    assert auth.admit(Connect(), "") is None


@pytest.mark.parametrize("nkey", ["", "one"])
@pytest.mark.parametrize("users", ["names", "names and nkeys"])
def test_a_certificate_says_who_comes_without_an_nkey(users, nkey):
    listed = [User(name="a")] + [User(nkey="U") for _ in range("nkeys" in users)]
    auth = authenticator(Authorization(users=listed), tls=Tls(map=True))
    assert auth.maps(Connect(nkey=nkey)) is not ("nkeys" in users and nkey != "")


def test_nkeys_sign_the_nonce_of_their_connection():
    known, stranger = Signer(), Signer()
    account = Account(name="A", users=[User(nkey=known.public, account="A")])
    auth = authenticator(accounts=[account])

    def admit(signer: Signer, nonce: str, sent: str, **more: Any) -> str:
        sig = signer.signature(nonce)
        admitted = auth.admit(Connect(**{"nkey": signer.public, "sig": sig, **more}), sent)
        return "" if admitted is None else admitted.user

    assert admit(known, "n1", "n1") == known.public
    assert auth.slow(Connect(nkey=known.public))
    assert admit(known, "n1", "n2") == ""
    assert admit(known, "", "") == "", "without a nonce nothing is proven"
    assert admit(known, "n1", "n1", sig="") == ""
    assert admit(known, "n1", "n1", sig="x" * 86) == ""
    assert admit(stranger, "n1", "n1") == ""
    assert admit(stranger, "n1", "n1", nkey=known.public) == ""
    assert auth.admit(Connect(user=known.public, password=""), "n1") is None


def test_who_proves_nothing_goes_on_beside_users_of_the_system_account():
    system = Account(name="$SYS", users=[User(name="s", password="p", account="$SYS")])
    auth = authenticator(accounts=[system])
    guest = auth.admit(Connect(), "")
    assert guest is not None and guest.account == "$G" and guest.user.startswith("nats-")
    assert auth.admit(Connect(user="x"), "") is None
    assert auth.admit(Connect(auth_token="x"), "") is None
    other = Account(name="A", users=[User(name="a", password="p", account="A")])
    assert authenticator(accounts=[system, other]).admit(Connect(), "") is None


def test_an_unknown_user_takes_as_long_as_a_known_one():
    users = [User(name="plain", password="p"), User(name="hashed", password=HASHED)]
    auth = authenticator(Authorization(users=users))
    assert auth.slow(Connect(user="hashed")) and auth.slow(Connect(user="nobody"))
    assert not auth.slow(Connect(user="plain"))
    assert auth.admit(Connect(user="nobody", password="s3cret"), "") is None
    assert not authenticator(Authorization(users=users[:1])).slow(Connect(user="nobody"))


def test_a_proxy_has_to_sign_the_nonce():
    trusted, stranger = Signer(), Signer()
    proxies = Proxies([stranger.public, trusted.public])
    assert proxies.signer(trusted.signature("n"), "n") == trusted.public
    assert proxies.signer("", "n") == "" and Proxies([]).signer("x", "n") == ""
    good = trusted.signature("n")
    for sig in ("x", good[:-1], "!" * 86, "\u00e9" * 86, good + "x", Signer().signature("n")):
        with pytest.raises(ProxyNotTrusted):
            proxies.signer(sig, "n")
    for nonce in ("m", ""):
        with pytest.raises(ProxyNotTrusted):
            proxies.signer(trusted.signature(nonce or "n"), "" if not nonce else "n")
