"""Who is let in: users, tokens, single users, hashed passwords, and what they may do."""

import bcrypt
import pytest

from jsserver.access.auth import Authenticator, password_fits, permission_set
from jsserver.access.clients import Connect, decode_connect
from jsserver.config.options import (
    Authorization,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
)

HASHED = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2x$", "$2y$"])
def test_hashed_passwords_in_every_spelling(prefix):
    stored = prefix + HASHED[4:]
    assert password_fits(stored, "s3cret")
    assert not password_fits(stored, "other")
    assert not password_fits(stored, "s3cret" + "x" * 80)


def test_plain_passwords_and_what_only_looks_hashed():
    assert password_fits("p\u00e4ss", "p\u00e4ss")
    assert not password_fits("pass", "")
    assert password_fits("$2a$no hash", "$2a$no hash")
    assert not password_fits("$2a$04$broken", "$2a$04$broken")


def test_nobody_has_to_prove_anything_without_authorization():
    assert not Authenticator(Authorization(), "").required


def test_users():
    users = [
        User(name="a", password="x"),
        User(
            name="b",
            password=HASHED,
            permissions=Permissions(publish=SubjectPermission(allow=["p"])),
        ),
    ]
    auth = Authenticator(Authorization(users=users), "")
    assert auth.required
    assert auth.admit(Connect(user="a", password="y")) is None
    assert auth.admit(Connect()) is None
    a = auth.admit(Connect(user="a", password="x"))
    b = auth.admit(Connect(user="b", password="s3cret"))
    assert a is not None and a.permissions is None
    assert b is not None and b.permissions is not None
    assert auth.slow(Connect(user="b")) and not auth.slow(Connect(user="a"))


def test_no_auth_user_takes_only_those_without_credentials():
    auth = Authenticator(Authorization(users=[User(name="guest", password="g")]), "guest")
    admitted = auth.admit(Connect())
    assert admitted is not None and admitted.user == "guest"
    assert auth.admit(Connect(user="guest", password="wrong")) is None


def test_token_and_single_user():
    token = Authenticator(Authorization(token="t"), "")
    assert token.admit(Connect(auth_token="t")) is not None
    assert token.admit(Connect(auth_token="u")) is None
    single = Authenticator(Authorization(username="me", password="pw"), "")
    assert single.admit(Connect(user="me", password="pw")) is not None
    assert single.admit(Connect(user="me", password="")) is None


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
