"""How an asset comes to other members by a wish: the steps that its leader tells, and what the
leader of the meta group makes of them, as nats-servers 2.15 were seen to do it."""

import pytest

from jsserver.cluster import desired
from jsserver.cluster.desired import Report, Seen, Step, Terms, next_step, written
from jsserver.cluster.meta import Op, StreamAssignment, group_of

A, B, C, D = (f"holder-{letter}" for letter in "ABCD")



TERMS = Terms("2026-11-29T20:00:00Z", lambda length: "x" * length, list)
NEW = "x" * desired.ID_LENGTH


def asset(*peers, name="S-R3F-aaaaaaaa", wish=(), replicas=3, **more):
    group = {"name": name, "peers": list(peers), "store": "file", "cluster": "C"}
    if wish:
        more = {"id": "i", "term": 4, "peers": list(wish), "cluster": "C", **more}
        group["desired"] = more
    return {"stream": {"name": "S", "num_replicas": replicas}, "group": group}


def consumer(*peers, name="C-R3F-bbbbbbbb", **wish):
    group = {"name": name, "peers": list(peers), "store": "file", "cluster": "C"}
    if wish:
        group["desired"] = wish
    config = {"durable_name": "D", "name": "D"}
    return {"name": "D", "stream": "S", "consumer": config, "group": group}


def seen(own, *peers, term=4, whole=(), held_up=()):
    return Seen(own, term, list(peers), {own, *(whole or peers)}, {*held_up})


def told(**more):
    return {"id": "i", "term": 4, **more}


@pytest.mark.parametrize(
    ("said", "sees", "step"),
    [
        pytest.param(
            asset(A, wish=[A, B, C]),
            seen(A, A, term=5),
            Step({"id": "i", "term": 5}),
            id="another term",
        ),
        pytest.param(
            asset(A, wish=[A, B, C]),
            seen(A, A),
            Step(told(meta_peers=[A, B, C], members=[A])),
            id="grows",
        ),
        pytest.param(asset(A, B, C, wish=[A, B, C]), seen(A, A, B), Step(None), id="they join"),
        pytest.param(
            asset(A, B, C, wish=[A, B, C]),
            seen(A, A, B, C, whole=[B]),
            Step(told(meta_peers=[A, B, C], members=[A, B], match=True), have=[A, B, C]),
            id="is there",
        ),
        pytest.param(
            asset(A, B, C, wish=[A, B, C], scale_down=True),
            seen(B, A, B, C, whole=[C]),
            Step(told(scale_down_peers=[B])),
            id="says who stays",
        ),
        pytest.param(
            asset(A, B, C, wish=[B]),
            seen(B, A, B, C, held_up=[A]),
            Step(told()),
            id="waits for consumers",
        ),
        pytest.param(
            asset(A, B, C, wish=[B]), seen(B, A, B, C), Step(None, have=[B]), id="lets members go"
        ),
        pytest.param(
            asset(A, B, C, wish=[B]),
            seen(B, B, C),
            Step(told(meta_peers=[B, C], members=[B, C]), have=[B]),
            id="tells who went",
        ),
        pytest.param(
            asset(A, B, C, wish=[B, C, D]),
            seen(A, A, B, C),
            Step(told(meta_peers=[A, B, C, D], members=[A, B, C])),
            id="moves",
        ),
        pytest.param(
            asset(A, B, C, D, wish=[B, C, D]),
            seen(A, A, B, C, D, whole=[B]),
            Step(None),
            id="too few have all",
        ),
        pytest.param(
            asset(A, B, C, D, wish=[B, C, D]),
            seen(A, A, B, C, D, whole=[B, D]),
            Step(None, hands_over=True),
            id="goes itself",
        ),
    ],
)
def test_the_leader_of_an_asset_takes_a_step(said, sees, step):
    assert next_step(said, 1, sees) == step


def test_who_has_left_is_not_taken_in_again():
    said = asset(A, B, C, D, wish=[B, C, D])
    assert desired.members_now(said, [B, C]) == [B, C, D]
    assert desired.members_now(said, [A, B, C]) == [A, B, C, D]
    assert desired.members_now(asset(A, B, C), []) == [A, B, C]


def write(there, *consumers, **report):
    stream = StreamAssignment(there, {one["name"]: one for one in consumers})
    return written(stream, Report(account="ONE", stream="S", **report), TERMS)


def test_a_step_of_another_wish_is_void():
    assert write(asset(A, wish=[A, B, C]), id="other", term=4) == []
    assert write(asset(A, B, C, wish=[A, B, C]), id="", term=4) == []


def test_each_step_makes_another_wish():
    (made,) = write(asset(A, wish=[A, B, C], members=[A]), id="i", term=5)
    assert made[0] is Op.UPDATE_STREAM
    wish = group_of(made[1])["desired"]
    assert (wish["id"], wish["term"], wish["members"]) == (NEW, 5, [A])
    (made,) = write(
        asset(A, wish=[A, B, C], members=[A]), id="i", term=4, meta_peers=[A, B], members=[B]
    )
    of = group_of(made[1])
    assert (of["peers"], of["scale_up"]) == ([A, B], True)
    assert of["desired"]["members"] == [A, B]


def test_who_stays_is_written_down():
    said = asset(A, B, C, wish=[A, B, C], scale_down=True)
    (made,) = write(said, id="i", term=4, scale_down_peers=[B])
    wish = group_of(made[1])["desired"]
    assert (wish["peers"], "scale_down" in wish) == ([B], False)


def test_a_wish_ends_when_the_consumers_have_followed():
    origin = {"peers": [A], "cluster": "C", "replicas": 1}
    said = asset(A, B, C, wish=[A, B, C], origin=origin)
    there = consumer(A, name="C-R1F-bbbbbbbb")
    (made,) = write(said, there, id="i", term=4, match=True)
    assert made[0] is Op.ASSIGN_CONSUMER
    of = group_of(made[1])
    assert (of["name"], of["peers"], of["preferred"]) == ("C-R3F-xxxxxxxx", [A], A)
    assert (of["desired"]["peers"], of["desired"]["members"]) == ([A, B, C], [A])
    assert write(said, made[1], id="i", term=4, match=True) == []
    (made,) = write(said, consumer(A, B, C), id="i", term=4, match=True)
    expected = {"name": "S-R3F-aaaaaaaa", "peers": [A, B, C], "store": "file", "cluster": "C"}
    assert group_of(made[1]) == expected


def test_consumers_of_a_stream_that_moves_go_first():
    said = asset(A, B, C, D, wish=[B, C, D], move=True, origin={"peers": [A, B, C]})
    (made,) = write(said, consumer(A, B, C), id="i", term=4)
    assert sorted(group_of(made[1])["desired"]["peers"]) == [B, C, D]
    assert write(said, consumer(B, C, D), id="i", term=4) == []


def test_a_group_of_one_gets_another_name():
    wish = {"id": "j", "term": 2, "peers": [B], "cluster": "C"}
    said = asset(B, wish=[B])
    (made,) = write(said, consumer(B, **wish), consumer="D", id="j", term=2, match=True)
    assert made[0] is Op.ASSIGN_CONSUMER
    assert group_of(made[1])["name"] == "C-R1F-xxxxxxxx"
    assert write(said, consumer(B, **wish), id="i", term=4, match=True) == []


def test_who_moves_by_wishes_alone_gets_one():
    (made,) = write(asset(A, B, C, D), id="", term=4)
    assert group_of(made[1])["desired"] == {
        **{"created": TERMS.now, "id": NEW, "term": 4, "peers": [B, C, D], "cluster": "C"},
        **{"members": [A], "move": True},
        "origin": {"peers": [A, B, C], "cluster": "C", "replicas": 3},
    }
    (made,) = write(asset(A, B, D), id="", term=4)
    assert group_of(made[1])["desired"]["peers"] == [A, B, D]
    (made,) = write(asset(A, B, C, D), consumer(A, B, C, D), consumer="D", id="", term=7)
    assert group_of(made[1])["desired"]["peers"] == [B, C, D]


def test_a_move_is_taken_back():
    said = asset(A, B, C, D, wish=[B, C, D], move=True, origin={"peers": [A, B, C]})
    assert desired.is_moving(said)
    assert not desired.is_moving(asset(A, wish=[A, B, C], origin={"peers": [A]}))
    back = desired.taken_back(said, TERMS)
    wish = group_of(back)["desired"]
    assert (wish["id"], wish["peers"], wish["move"]) == (NEW, [A, B, C], True)
    assert wish["cancel_move"]
    away = consumer(A, B, C, D, id="j", term=1, peers=[B, C, D], members=[A, B, C])
    (made,) = write(back, away, id=NEW, term=4)
    assert sorted(group_of(made[1])["desired"]["peers"]) == [A, B, C]
