"""Which members a stream gets, and why there are none."""

import pytest

from jsserver.cluster.placement import Load, Member, Reasons, Room, Rules, Wanted, place

GIB = 1 << 30
NO_RULES = Rules()


def member(peer, *tags, cluster="C1", online=True, memory=GIB, files=GIB, assets=1):
    room = Room(memory=memory, files=files, assets=assets)
    return Member(peer, cluster=cluster, tags=tags, online=online, room=room)


def placed(wanted, members, loads=None, rules=NO_RULES, **more):
    found = place(wanted, members, loads or {}, rules, **more)
    assert not isinstance(found, Reasons), str(found)
    return found


def refused(wanted, members, rules=NO_RULES, **more):
    found = place(wanted, members, {}, rules, **more)
    assert isinstance(found, Reasons), found
    prefix = "no suitable peers for placement"
    assert str(found).startswith(prefix)
    return str(found)[len(prefix) :].removeprefix(", ")


def test_room_comes_before_load_of_a_single_replica():
    members = [member("A", files=10), member("B", files=30), member("C", files=20)]
    assert placed(Wanted(1, "C1"), members, {"B": Load(streams=9)}) == ["B"]
    assert placed(Wanted(1, "C1", in_memory=True), members, {"A": Load(1), "B": Load(1)}) == ["C"]


def test_replicated_streams_are_spread_by_their_number():
    members = [member("A", files=30), member("B", files=20), member("C", files=10)]
    loads = {"A": Load(streams=1, replicated=1), "B": Load(streams=5)}
    assert placed(Wanted(2, "C1"), members, loads) == ["B", "C"]


def test_members_that_are_offline_come_last_and_make_no_quorum():
    members = [member("A", online=False, files=9 * GIB), member("B"), member("C")]
    assert placed(Wanted(2, "C1"), members) == ["B", "C"]
    assert placed(Wanted(3, "C1"), members)[-1] == "A"
    gone = [member("A"), member("B", online=False), member("C", online=False)]
    assert refused(Wanted(3, "C1"), gone) == "peer offline"


def test_only_the_cluster_that_was_asked_for_counts():
    members = [member("A"), member("B", cluster="C2")]
    assert placed(Wanted(1, "C2"), members) == ["B"]
    assert refused(Wanted(2, "C1"), members) == ""
    assert refused(Wanted(1, ""), members) == "miscellaneous issue"


def test_tags_are_wanted_and_unwanted():
    members = [member("A", "ssd", "eu"), member("B", "hdd", "eu"), member("C", "ssd", "us")]
    assert placed(Wanted(1, "C1", tags=["SSD", "eu"]), members) == ["A"]
    assert placed(Wanted(1, "C1", tags=["!ssd"]), members) == ["B"]
    assert refused(Wanted(2, "C1", tags=["eu", "!hdd"]), members) == (
        "tags not matched ['eu'], tags excluded ['hdd']"
    )


def test_a_server_may_keep_streams_away():
    assert refused(Wanted(1, "C1"), [member("A", "!jetstream")]) == "exclude tag set"


def test_reserved_bytes_have_to_fit():
    members = [member("A", files=100, memory=10), member("B", files=99, memory=200)]
    assert placed(Wanted(1, "C1", max_bytes=100), members) == ["A"]
    assert placed(Wanted(1, "C1", in_memory=True, max_bytes=100), members) == ["B"]
    assert refused(Wanted(1, "C1", max_bytes=101), members) == "insufficient storage"


def test_a_unique_tag_is_not_taken_twice():
    members = [member("A", "az:1"), member("B", "az:1"), member("C", "az:2"), member("D")]
    rules = Rules(unique_tag="az:")
    found = placed(Wanted(2, "C1"), members, rules=rules)
    assert sorted(found) == ["A", "C"]
    assert refused(Wanted(3, "C1"), members, rules) == "server tag not unique"
    assert len(placed(Wanted(2, "C1", tags=["az:1"]), members, rules=rules)) == 2


def test_a_member_that_goes_gives_its_tag_away():
    members = [member("A", "az:1"), member("B", "az:1")]
    rules = Rules(unique_tag="az:")
    wanted = Wanted(2, "C1")
    assert refused(wanted, members, rules, existing=["A"]) == "server tag not unique"
    assert placed(wanted, members, rules=rules, existing=["A"], leaving=1) == ["A", "B"]


def test_too_many_replicated_assets_keep_a_member_out():
    members = [member("A", assets=4), member("B", assets=3)]
    assert placed(Wanted(1, "C1"), members, rules=Rules(max_ha_assets=3)) == ["B"]
    assert refused(Wanted(2, "C1"), members, Rules(max_ha_assets=3)) == "miscellaneous issue"


def test_what_holds_the_stream_stays_in_front():
    members = [member("A", files=1), member("B", files=2), member("C", files=3)]
    assert placed(Wanted(2, "C1"), members, existing=["A"]) == ["A", "C"]
    assert placed(Wanted(1, "C1"), members, existing=["B", "A"]) == ["B"]
    assert placed(Wanted(2, "C1"), members, existing=["A"], ignored={"C"}) == ["A", "B"]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Member("A", known=False), "miscellaneous issue"),
        (Member("A", cluster="C1", online=True), "peer offline"),
    ],
)
def test_a_member_that_said_nothing_is_not_taken(wrong, why):
    assert refused(Wanted(1, "C1"), [wrong]) == why


def test_nobody_is_there():
    assert refused(Wanted(1, "C1"), []) == "jetstream not enabled in cluster"


def test_reasons_of_several_clusters_are_told_together():
    both = Reasons()
    for wanted in Wanted(1, "C1", tags=["x"]), Wanted(1, "C1", max_bytes=2 * GIB):
        why = place(wanted, [member("A")], {}, NO_RULES)
        assert isinstance(why, Reasons)
        both.add(why)
    assert str(both) == (
        "no suitable peers for placement, insufficient storage, tags not matched ['x']"
    )
