"""Permissions, as nats-server 2.14 answers the same questions."""

import pytest

from tests.cext.core import PyPermissions


@pytest.mark.parametrize(
    ("lists", "allowed", "refused"),
    [
        ({}, ["foo", "a.b"], []),
        ({"pub_allow": []}, [], ["foo", "a.b"]),
        ({"pub_allow": ["foo"]}, ["foo"], ["foo.bar", "fo", "", "foo*"]),
        (
            {"pub_allow": ["foo.*"], "pub_deny": ["foo.x"]},
            ["foo.y", "foo.*", "foo.>"],
            ["foo.x", "foo", "foo..", "*.x", "foo.y.z"],
        ),
        ({"pub_deny": ["foo.x", "*.z"]}, ["foo.*", "*.x", ">", "z"], ["foo.x", "a.z"]),
        ({"pub_allow": [">"], "pub_deny": [">"]}, [], ["foo"]),
    ],
)
def test_publish(lists: dict[str, list[str]], allowed: list[str], refused: list[str]) -> None:
    perms = PyPermissions(**lists)
    assert [s for s in allowed if not perms.can_publish(s)] == []
    assert [s for s in refused if perms.can_publish(s)] == []


@pytest.mark.parametrize(
    ("lists", "allowed", "refused"),
    [
        ({}, ["foo", "foo v1"], []),
        ({"sub_allow": []}, [], ["foo", "foo v1", ">"]),
        ({"sub_allow": ["foo"]}, ["foo", "foo v1"], ["bar", "*"]),
        ({"sub_allow": ["foo v1"]}, ["foo v1"], ["foo", "foo v2"]),
        ({"sub_allow": ["foo", "foo v1"]}, ["foo", "foo v1"], ["foo v2"]),
        (
            {"sub_allow": ["foo v.*", "bar *", "baz >"]},
            ["foo v.1", "bar x", "baz x.y"],
            ["foo", "foo v", "bar x.y", "foo v.1.2"],
        ),
        ({"sub_deny": ["foo"]}, ["bar", "*", ">", "* v1"], ["foo", "foo v1"]),
        ({"sub_deny": ["foo v1"]}, ["foo", "foo v2", "* v1", "> v1"], ["foo v1"]),
        ({"sub_deny": ["foo", "foo v1"]}, [], ["foo", "foo v1", "foo v2"]),
        ({"sub_deny": ["a.* q"]}, ["a.>", "a.b", "a.b r"], ["a.> q", "a.* q", "a.b q"]),
        (
            {"sub_allow": ["foo.*"], "sub_deny": ["foo.secret"]},
            ["foo.*", "foo.x"],
            ["foo.secret", "bar", ">"],
        ),
        # A pattern is let in when an entry matches it as a subject; deliveries are filtered then.
        ({"sub_allow": ["*"]}, [">", "*", "foo"], ["foo.>", "foo.*"]),
    ],
)
def test_subscribe(lists: dict[str, list[str]], allowed: list[str], refused: list[str]) -> None:
    perms = PyPermissions(**lists)

    def can(entry: str) -> bool:
        subject, _, queue = entry.partition(" ")
        return perms.can_subscribe(subject, queue)

    assert [s for s in allowed if not can(s)] == []
    assert [s for s in refused if can(s)] == []


@pytest.mark.parametrize(
    ("lists", "sub", "received", "withheld"),
    [
        ({"sub_deny": ["foo.secret"]}, "foo.>", ["foo.x", "foo.secret.x"], ["foo.secret"]),
        ({"sub_deny": ["*.secret"]}, "foo.>", ["foo.x"], ["foo.secret"]),
        ({"sub_deny": ["*.secret"]}, "*.*", ["foo.x"], ["foo.secret"]),
        ({"sub_deny": ["a.>"]}, ">", ["b.c", "a"], ["a.b", "a.b.c"]),
        ({"sub_deny": ["foo.secret v1"]}, "foo.> v1", ["foo.x"], ["foo.secret"]),
        ({"sub_deny": ["foo.secret v1"]}, "foo.> v2", ["foo.x", "foo.secret"], []),
        ({"sub_deny": ["foo.secret v1"]}, "foo.>", ["foo.x", "foo.secret"], []),
        ({"sub_allow": ["*"]}, ">", ["foo"], ["foo.bar"]),
        ({"sub_allow": ["foo.*"]}, "foo.>", ["foo.bar"], ["foo.bar.baz"]),
    ],
)
def test_wildcard_subscriptions_are_filtered(
    lists: dict[str, list[str]], sub: str, received: list[str], withheld: list[str]
) -> None:
    perms = PyPermissions(**lists)
    subject, _, queue = sub.partition(" ")
    assert perms.can_subscribe(subject, queue)
    assert perms.must_filter(subject)
    assert [s for s in received if not perms.can_receive(s, queue)] == []
    assert [s for s in withheld if perms.can_receive(s, queue)] == []


@pytest.mark.parametrize(
    ("lists", "subject"),
    [
        ({}, ">"),
        ({"sub_deny": ["foo.secret"]}, "foo.x"),
        ({"sub_deny": ["foo.secret"]}, "bar.>"),
        ({"sub_deny": ["foo.secret"]}, "*"),
        ({"sub_deny": ["*.secret.*"]}, "foo.*"),
        ({"sub_allow": ["foo.>"]}, "foo.*"),
        ({"sub_allow": ["foo.*"]}, "foo.*"),
        ({"sub_allow": [">"]}, ">"),
        ({"pub_deny": [">"]}, ">"),
    ],
)
def test_no_filter_where_nothing_denied_lies_within(
    lists: dict[str, list[str]], subject: str
) -> None:
    assert not PyPermissions(**lists).must_filter(subject)


def test_many_literal_entries() -> None:
    names = [f"device.{i}" for i in range(20_000)]
    perms = PyPermissions(pub_allow=names, sub_deny=names)
    assert all(perms.can_publish(n) and not perms.can_subscribe(n) for n in names)
    assert not perms.can_publish("device.20000")
    assert perms.must_filter("device.*") and not perms.must_filter("other.*")


def test_what_is_allowed_to_a_queue_covers_no_other_subscription() -> None:
    """`*.*.>` is let in by the rule `*.*.*`, which does not allow all of it."""
    perms = PyPermissions(sub_allow=["a.> q", "*.*.*"])
    for queue, filtered in (("", True), ("r", True), ("q", False)):
        assert perms.must_filter("a.*.>", queue) == filtered
        assert perms.can_receive("a.b.c", queue)
        assert perms.can_receive("a.b.c.d", queue) != filtered
