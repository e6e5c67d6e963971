"""Which members a stream and its consumers get when they change: as nats-servers that led a meta
group were seen to decide."""

import pytest

from jsserver.cluster import regroup

ONE, TWO, THREE, FOUR, FIVE = (f"holder-{number}" for number in range(1, 6))


def token(length):
    return "x" * length


def unmixed(peers):
    return list(peers)


def stream(*peers, name="S-R3F-aaaaaaaa", **more):
    return {"group": {"name": name, "peers": list(peers), "store": "file", **more}}


def consumer(*peers, replicas=0, durable="D", name="C-R3F-bbbbbbbb", **more):
    config = {"durable_name": durable, "name": durable or "E", "num_replicas": replicas}
    group = {"name": name, "peers": list(peers), "store": "file", **more}
    return {"name": config["name"], "consumer": config, "group": group}


def scaled(said, *peers, grows):
    return regroup.scaled_stream(said, regroup.Scaled(list(peers), grows, False), token)["group"]


def followed(consumers, *peers, grows, parity=False):
    now = regroup.Scaled(list(peers), grows, parity)
    return regroup.scaled_consumers(consumers, now, unmixed, token)


def test_a_stream_that_grows_from_one_member_has_a_new_group_that_the_old_one_leads():
    found = scaled(stream(ONE, name="S-R1F-aaaaaaaa"), ONE, FIVE, TWO, grows=True)
    assert found == {
        "name": "S-R3F-xxxxxxxx",
        "peers": [ONE, FIVE, TWO],
        "store": "file",
        "preferred": ONE,
        "scale_up": True,
    }


def test_a_stream_that_grows_further_keeps_its_group():
    found = scaled(stream(ONE, FIVE, TWO), ONE, FIVE, TWO, FOUR, THREE, grows=True)
    assert (found["name"], found["scale_up"]) == ("S-R3F-aaaaaaaa", True)


def test_a_stream_that_shrinks_prefers_nobody_and_may_lose_its_group():
    grown = stream(ONE, FIVE, TWO, preferred=ONE, scale_up=True)
    found = scaled(grown, ONE, FIVE, grows=False)
    assert found == {"name": "S-R3F-aaaaaaaa", "peers": [ONE, FIVE], "store": "file"}
    assert scaled(grown, ONE, grows=False)["name"] == "S-R1F-xxxxxxxx"


def test_who_leads_stays_in_a_group_that_shrinks():
    assert regroup.kept_peers([ONE, TWO, THREE], THREE, [ONE, TWO, THREE], 2) == [THREE, ONE]
    assert regroup.kept_peers([ONE, TWO, THREE], "", [TWO, THREE], 1) == [TWO]


def test_consumers_follow_but_for_those_of_as_many_members_as_they_ask_for():
    inherits, own = consumer(ONE, name="C-R1F-bbbbbbbb"), consumer(ONE, replicas=1)
    (found,) = followed([inherits, own], ONE, FIVE, TWO, grows=True)
    assert found["group"]["name"] == "C-R3F-xxxxxxxx"
    assert found["group"]["peers"] == [ONE, FIVE, TWO]
    assert found["group"]["preferred"] == ONE
    assert len(followed([inherits, own], ONE, FIVE, TWO, grows=True, parity=True)) == 2


def test_a_consumer_of_a_member_that_the_stream_loses_goes_to_another_one():
    (found,) = followed([consumer(TWO, replicas=1)], ONE, THREE, grows=False)
    assert found["group"]["peers"] == [ONE]
    assert not followed([consumer(ONE, replicas=1)], ONE, THREE, grows=False)
    (found,) = followed([consumer(ONE, TWO, THREE, replicas=3)], ONE, THREE, grows=False)
    assert found["group"]["peers"] == [ONE, THREE]
    assert found["consumer"]["num_replicas"] == 2


@pytest.mark.parametrize(
    ("before", "replicas", "leader", "after", "grows"),
    [
        ([ONE], 3, ONE, [ONE, TWO, THREE], True),
        ([ONE, TWO, THREE], 1, THREE, [THREE], False),
        ([ONE, THREE], 3, ONE, [ONE, THREE, TWO], True),
        ([ONE, TWO, THREE], 2, "", [ONE, TWO], False),
    ],
)
def test_a_consumer_gets_more_or_fewer_members(before, replicas, leader, after, grows):
    found = regroup.scaled_consumer(
        consumer(*before), [ONE, TWO, THREE], replicas, leader, unmixed, token
    )
    assert found["group"]["peers"] == after
    assert found["group"]["preferred"] == leader or after[0]
    assert found["group"].get("scale_up", False) == grows
    assert (found["group"]["name"] != "C-R3F-bbbbbbbb") == (1 in (len(before), replicas))


def test_a_stream_that_moves_has_those_that_go_in_front():
    assert regroup.moved_peers([ONE, TWO, THREE], [FOUR, TWO]) == [ONE, THREE, FOUR, TWO]
    found = regroup.moved(stream(ONE, preferred=ONE), [ONE, FIVE])["group"]
    assert (found["peers"], found["preferred"]) == ([ONE, FIVE], ONE)


def test_consumers_move_with_as_many_members_as_they_have():
    three, one = consumer(TWO, ONE, THREE), consumer(ONE, replicas=1, preferred=ONE)
    peers = [ONE, THREE, TWO, FOUR]
    moved = regroup.moved_consumers([three, one], peers, 3, unmixed)
    assert moved[0]["group"]["peers"] == [ONE, FOUR, THREE, TWO]
    assert moved[1]["group"]["peers"] == [ONE, FOUR]
    assert moved[1]["group"]["preferred"] == ONE
    back = regroup.moved_consumers(moved, [ONE, THREE, TWO], 3, unmixed)
    assert [found["group"]["peers"] for found in back] == [[ONE, THREE, TWO], [ONE]]


def test_a_consumer_that_only_the_removed_member_had_is_no_more():
    durable = consumer(ONE, TWO, THREE, preferred=ONE)
    there, gone = consumer(TWO, durable=""), consumer(ONE, durable="")
    follow, end = regroup.replaced_consumers([durable, there, gone], [TWO, THREE, FOUR], ONE)
    assert [found["group"]["peers"] for found in follow] == [[TWO, THREE, FOUR]]
    assert "preferred" not in follow[0]["group"]
    assert end == [gone]


def test_what_a_stream_says_of_its_move():
    replicas = [{"current": True}, {"current": False, "lag": 3}]
    info = {"cluster": {"leader": "A", "replicas": replicas}}
    assert regroup.progress([ONE, TWO, THREE], info) == (
        "total peers: 3, current peers: 2, combined lag: 3"
    )
    assert "timeout" in regroup.progress([ONE], None)


def test_how_many_replicas_a_request_asks_for():
    assert regroup.replicas_in(b'{"num_replicas":3}') == 3
    assert regroup.replicas_in(b'{"config":{"num_replicas":2}}') == 2
    assert regroup.replicas_in(b"{") == 0
