"""What a reload may change, and who stays: without a server."""

from typing import Any, cast

import bcrypt
import pytest

from jsserver.access.auth import Authenticator
from jsserver.access.clients import Connect
from jsserver.access.staying import MOVED, REFUSED, Present, Slow, Staying, Stays
from jsserver.config.jetstreams import JetStream
from jsserver.config.options import (
    GLOBAL_ACCOUNT,
    Account,
    AuthCallout,
    Authorization,
    Operators,
    Options,
    Permissions,
    Resolver,
    SubjectPermission,
    Tls,
    User,
    Websocket,
)
from jsserver.config.reload import difference, take


def refused(old: Options, new: Options, **has: int) -> list[str]:
    return difference(old, new, **has).refused


def told(old: Options, new: Options) -> list[str]:
    return [line.removeprefix("Reloaded: ") for line in difference(old, new).told]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"debug": True}, "debug = true"),
        ({"max_payload": 5}, "max_payload = 5"),
        ({"ping_interval": 7_000_000_000}, "ping_interval = 7s"),
        ({"no_fast_producer_stall": True}, "fast producers will not be stalled"),
        ({"server_tags": ["a"]}, "tags"),
        ({"accounts": [Account(name="A")]}, "accounts"),
        ({"authorization": Authorization(users=[User(name="a")])}, "authorization users"),
        ({"authorization": Authorization(token="t")}, "authorization token"),
        ({"authorization": Authorization(timeout=3.5)}, "authorization timeout = 3.5"),
        ({"tls": Tls()}, "tls = enabled"),
    ],
)
def test_what_changes_is_told(change: dict[str, Any], line: str) -> None:
    assert not refused(Options(), Options(**change))
    assert line in told(Options(), Options(**change))


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({}, {"port": 1}, "port"),
        ({}, {"max_pending": 1}, "max_pending"),
        ({}, {"reactors": 2}, "reactors"),
        ({}, {"no_auth_user": "a"}, "no_auth_user"),
        ({}, {"system_account": "A"}, "system_account"),
        ({}, {"authorization": Authorization(callout=AuthCallout())}, "auth_callout"),
        ({}, {"operators": Operators(tokens=["x"])}, "operator"),
        ({}, {"operators": Operators(trusted_keys=["x"])}, "trusted_keys"),
        ({}, {"operators": Operators(resolver=Resolver(kind="memory"))}, "resolver"),
        (
            {"operators": Operators(resolver=Resolver(kind="url", url="a"))},
            {"operators": Operators(resolver=Resolver(kind="memory"))},
            "resolver",
        ),
        ({}, {"websocket": Websocket(same_origin=True)}, "websocket.same_origin"),
        ({}, {"websocket": Websocket(tls=Tls())}, "websocket.tls"),
        ({}, {"jetstream": JetStream(enabled=True)}, "jetstream.enabled"),
        (
            {"jetstream": JetStream(enabled=True)},
            {"jetstream": JetStream(enabled=True, domain="d")},
            "jetstream.domain",
        ),
    ],
)
def test_what_may_not_change_is_named(
    before: dict[str, Any], after: dict[str, Any], name: str
) -> None:
    assert refused(Options(**before), Options(**after)) == [name]


def test_every_option_may_change_or_is_named() -> None:
    """One that is added and forgotten here would be passed over in silence."""
    old, new = Options(), Options()
    take(new, old)
    for name in vars(Options()):
        if name in ("authorization", "accounts", "mappings", "operators", "websocket", "jetstream"):
            continue
        changed = Options(**{name: object()})
        taken = Options()
        take(taken, changed)
        if getattr(taken, name) is getattr(old, name) and name not in ("flags", "config_file"):
            assert name in refused(old, changed)


def test_guests_may_only_go_with_their_user() -> None:
    with_guest = Authorization(users=[User(name="g"), User(name="a")])
    old = Options(authorization=with_guest, no_auth_user="g")
    assert refused(old, Options(authorization=with_guest)) == ["no_auth_user"]
    assert not refused(old, Options(authorization=Authorization(users=[User(name="a")])))


def test_jetstream_gets_more_and_never_less() -> None:
    def options(store: int) -> Options:
        return Options(jetstream=JetStream(enabled=True, max_store=store))

    assert not refused(options(10), options(20), store=10)
    assert refused(options(10), options(5), store=10) == ["jetstream.max_store"]
    assert refused(options(-1), options(20), store=10) == ["jetstream.max_store"]


def test_the_address_of_a_resolver_may_change() -> None:
    old, new = (Operators(resolver=Resolver(kind="url", url=url)) for url in ("a", "b"))
    assert not refused(Options(operators=old), Options(operators=new))


# ---- who stays

HASHED = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
RULES = Permissions(publish=SubjectPermission(allow=["a"]))


def by_users(*users: User, **options: Any) -> Authenticator:
    return Authenticator(Options(authorization=Authorization(users=list(users)), **options))


def judged(
    before: Authenticator, now: Authenticator, account: str = GLOBAL_ACCOUNT, **said: Any
) -> Stays | int:
    connect = Connect(**said)
    admission = before.admit(connect, "") if before.required else None
    assert admission is not None or not before.required
    staying = Staying(before, now, {GLOBAL_ACCOUNT})
    present = Present(connect, admission, account, b"")
    verdict = staying.judge(present)
    if isinstance(verdict, Slow):
        staying.compute(verdict)
        verdict = staying.judge(present)
    assert not isinstance(verdict, Slow)
    return verdict


A = User(name="a", password="x")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (by_users(A), True),
        (by_users(User(name="a", password=HASHED)), True),
        (by_users(User(name="a", password="y")), REFUSED),
        (by_users(User(name="b", password="x")), MOVED),
        (by_users(User(name="a", password="x", account="B")), MOVED),
        (by_users(User(name="a", password="x", connection_types=["MQTT"])), REFUSED),
        (by_users(User(name="a", password="x", permissions=RULES)), True),
        (by_users(), MOVED),
        (Authenticator(Options(authorization=Authorization(username="a", password="y"))), MOVED),
        (Authenticator(Options(authorization=Authorization(token="x"))), MOVED),
        (Authenticator(Options(authorization=Authorization(username="a", password="x"))), True),
    ],
)
def test_a_user(now: Authenticator, expected: int | bool) -> None:
    verdict = judged(by_users(A), now, user="a", password="x")
    assert isinstance(verdict, Stays) if expected is True else verdict == expected


def test_whoever_was_let_in_without_being_asked() -> None:
    everybody = by_users()
    guests = by_users(User(name="g", password="y"), no_auth_user="g")
    assert judged(everybody, everybody) == Stays(None)
    assert judged(everybody, by_users(A)) == REFUSED
    assert isinstance(judged(everybody, guests), Stays)
    assert isinstance(judged(everybody, by_users(A), user="a", password="x"), Stays)
    assert judged(everybody, by_users(A), user="a", password="y") == REFUSED
    assert judged(everybody, by_users(A), user="b", password="x") == MOVED
    assert judged(everybody, by_users(User(nkey="UABC")), nkey="UABC", sig="x") == REFUSED


def test_guests() -> None:
    guest = User(name="g", password="y")
    before = by_users(A, guest, no_auth_user="g")
    assert isinstance(judged(before, before), Stays)
    assert judged(before, by_users(A)) == MOVED
    moved = by_users(A, User(name="g", password="y", account="B"), no_auth_user="g")
    assert judged(before, moved) == MOVED


def test_hashes_are_computed_once_and_only_where_they_decide() -> None:
    before, now = by_users(A), by_users(User(name="a", password=HASHED))
    connect = Connect(user="a", password="x")
    present = Present(connect, before.admit(connect, ""), GLOBAL_ACCOUNT, b"")
    staying = Staying(before, now, {GLOBAL_ACCOUNT})
    slow = staying.judge(present)
    assert slow == Slow(HASHED, "x")
    staying.compute(slow)
    assert isinstance(staying.judge(present), Stays)
    assert isinstance(Staying(now, now, {GLOBAL_ACCOUNT}).judge(present), Stays)
    moved = by_users(User(name="a", password=HASHED, account="B"))
    assert Staying(before, moved, {GLOBAL_ACCOUNT}).judge(present) == MOVED


def test_who_has_not_changed_is_not_looked_at() -> None:
    before, now = by_users(A, User(name="b")), by_users(A, User(name="b", permissions=RULES))
    staying = Staying(before, now, {GLOBAL_ACCOUNT})
    admissions = [before.known(name, "user") for name in "ab"]
    assert [bool(staying.unchanged(known.admission)) for known in admissions if known] == [
        True,
        False,
    ]


def test_whoever_has_to_be_looked_at_although_the_user_stays() -> None:
    users = A, User(name="g", password="y")
    plain = by_users(*users)
    known = plain.known("a", "user")
    assert known is not None
    for other in by_users(*users, tls=Tls(map=True)), by_users(*users, no_auth_user="g"):
        for before, now in (plain, other), (other, plain):
            assert not Staying(before, now, {GLOBAL_ACCOUNT}).unchanged(known.admission)
    by_token = known.admission._replace(proof=cast(Any, object()))
    assert not Staying(plain, plain, {GLOBAL_ACCOUNT}).unchanged(by_token)
