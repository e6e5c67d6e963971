"""How the leader of the meta group changes members by wishes, among nats-servers 2.15."""

import contextlib
import json
import random
from typing import Any

import msgspec
import pytest

from jsserver.assets.limits import AccountLimits
from jsserver.cext.bytes import s2_encode
from jsserver.cluster import unassigned
from jsserver.cluster.desired import Report, written
from jsserver.cluster.leader import Leader
from jsserver.cluster.meta import MetaState
from jsserver.cluster.moves import Usage
from jsserver.cluster.proposals import Asked
from jsserver.wire import decode
from jsserver.wire.errors import ApiError
from tests.unit.test_cluster_leader import SETTINGS

ACCOUNT = "ONE"
PEERS = [f"holder-{letter}" for letter in "ABCDE"]
A, B, C, D, E = PEERS
ON_THREE: dict[str, Any] = {"name": "S", "subjects": ["s"], "num_replicas": 3}
CONFIG = {"durable_name": "D", "ack_policy": "explicit"}
DURABLE = {"stream_name": "S", "config": CONFIG}


class Known:
    """Members that can all be reached; the first ones are taken first."""

    def place(self, config, clusters, *, existing=(), leaving=0, ignored=frozenset()):
        free = [peer for peer in PEERS if peer not in existing and peer not in ignored]
        if config.placement is not None and "late" in config.placement.tags:
            free.reverse()
        return "C", [*existing, *free][: max(config.num_replicas, 1)]

    def online(self, peers):
        return list(peers)

    def clusters(self):
        return ["C"]

    def cluster_of(self, peer):
        return "C"

    def tags_of(self, peer):
        return ["late"]

    def heard(self, account, subject):
        return False

    def by_wishes(self):
        return True

    def limits(self, account):
        return AccountLimits()

    def usage(self, account):
        return Usage()


class World:
    """A leader whose proposals are agreed on at once."""

    def __init__(self):
        self.state, rng = MetaState(), random.Random(1)

        def token(length):
            return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=length))

        self.leader = Leader(self.state, Known(), SETTINGS, now=lambda: 10**18, token=token)

    def ask(self, name, body=None):
        """The error code of the answer; 0: the request was carried out."""
        name, _, args = name.partition(" ")
        client = {"acc": ACCOUNT, "cluster": "C"}
        said = json.dumps(body).encode() if body else b""
        asked = Asked(ACCOUNT, f"$JS.API.{name}", "reply", said, client, tuple(args.split()))
        try:
            self.agree(self.leader.handle(name, asked))
        except ApiError as error:
            return error.err_code
        return 0

    def agree(self, entries):
        for entry in entries:
            [*self.leader.applied(entry, self.state.apply(entry))]

    def stream(self):
        return self.state.streams[ACCOUNT]["S"]

    def group(self, consumer=""):
        there = self.stream()
        return (there.consumers[consumer] if consumer else there.said)["group"]

    def wish(self, consumer=""):
        return self.group(consumer).get("desired", {})

    def report(self, **more):
        """The leader of the stream takes a step."""
        told = Report(account=ACCOUNT, stream="S", term=1, id=self.wish().get("id", ""), **more)
        judge = self.leader.judge(ACCOUNT)
        there = judge.known("S")
        assert there is not None
        made = written(there, told, self.leader.moves.terms)
        self.agree(self.leader.regrouped(judge, made))


@pytest.fixture
def world():
    made = World()
    assert made.ask("STREAM.CREATE S", ON_THREE) == 0
    return made


def scaled(count):
    return ON_THREE | {"num_replicas": count}


LATE = ON_THREE | {"placement": {"tags": ["late"]}}


def test_a_stream_grows_and_shrinks_by_a_wish(world):
    assert world.ask("STREAM.UPDATE S", scaled(1)) == 0
    assert world.group()["peers"] == [A, B, C]
    assert world.wish()["peers"] == [A, B, C]
    assert world.wish()["scale_down"]
    assert world.wish()["origin"] == {"peers": [A, B, C], "cluster": "C", "replicas": 3}
    assert world.ask("STREAM.UPDATE S", scaled(5)) == 0
    assert world.wish()["peers"] == PEERS
    assert "scale_down" not in world.wish()
    assert world.wish()["origin"]["replicas"] == 3
    assert world.wish()["members"] == [A, B, C]


def test_a_stream_of_one_gets_another_group(world):
    assert world.ask("STREAM.CREATE T", {"name": "T", "subjects": ["t"]}) == 0
    before = world.state.streams[ACCOUNT]["T"].group
    body = {"name": "T", "subjects": ["t"], "num_replicas": 3}
    assert world.ask("STREAM.UPDATE T", body) == 0
    after = world.state.streams[ACCOUNT]["T"].said["group"]
    assert after["name"] != before
    assert after["name"].startswith("S-R3F-")
    assert after["desired"]["preferred"] == A == after["desired"]["members"][0]


def test_another_update_goes_through_while_members_change(world):
    assert world.ask("STREAM.UPDATE S", LATE) == 0
    assert world.wish()["peers"] == [E, D, C]
    assert world.wish()["move"]
    wish = world.wish()
    assert world.ask("STREAM.UPDATE S", LATE | {"max_msgs": 7}) == 0
    assert world.stream().said["stream"]["max_msgs"] == 7
    assert world.wish() == wish


def test_moves_and_other_changes_of_members_wait_for_each_other(world):
    assert world.ask("STREAM.UPDATE S", LATE | {"num_replicas": 5}) == 10123
    assert world.ask("STREAM.UPDATE S", scaled(5)) == 0
    assert world.ask("STREAM.UPDATE S", LATE | {"num_replicas": 5}) == 10226
    assert world.ask("STREAM.CANCEL_MOVE S") == 0
    assert world.stream().said["stream"]["num_replicas"] == 3
    assert (world.wish()["peers"], world.wish()["cancel_move"]) == ([A, B, C], True)
    world.report()
    world.report(meta_peers=[A, B, C], members=[A, B, C], match=True)
    assert world.wish() == {}
    assert world.ask("STREAM.UPDATE S", LATE) == 0
    elsewhere = LATE | {"placement": {"tags": ["early"]}}
    assert world.ask("STREAM.UPDATE S", elsewhere) == 10124
    assert world.ask("STREAM.UPDATE S", LATE | {"num_replicas": 1}) == 10124
    assert world.ask(f"ACCOUNT.STREAM.MOVE {ACCOUNT} S", {"server": "X"}) == 10040


@pytest.mark.parametrize(
    "cancel", ["STREAM.CANCEL_MOVE S", f"ACCOUNT.STREAM.CANCEL_MOVE {ACCOUNT} S"]
)
def test_a_move_is_cancelled_with_its_placement(world, cancel):
    assert world.ask(cancel) == 10129
    assert world.ask("STREAM.UPDATE S", LATE) == 0
    assert world.ask(cancel) == 0
    assert world.stream().said["stream"].get("placement") is None
    assert world.wish()["peers"] == [A, B, C]
    assert world.ask("STREAM.UPDATE S", LATE) == 10124  # going back is a move, too


def test_a_consumer_grows_and_shrinks_by_a_wish(world):
    assert world.ask("CONSUMER.DURABLE.CREATE S D", DURABLE) == 0
    before = {*world.group("D")["peers"]}
    body = DURABLE | {"config": CONFIG | {"num_replicas": 1}}
    assert world.ask("CONSUMER.DURABLE.CREATE S D", body) == 0
    assert world.wish("D")["scale_down"]
    assert {*world.wish("D")["peers"]} == before
    body = DURABLE | {"config": CONFIG | {"num_replicas": 3}}
    assert world.ask("CONSUMER.DURABLE.CREATE S D", body) == 0
    assert "scale_down" not in world.wish("D")
    assert {*world.wish("D")["peers"]} == before


def test_a_server_is_left_at_once_or_later(world):
    assert world.ask("CONSUMER.DURABLE.CREATE S D", DURABLE) == 0
    world.agree(world.leader.evacuate(ACCOUNT, "S", B))
    assert world.group()["peers"] == [A, B, C]
    assert world.wish()["peers"] == [A, C, D]
    entries, replaced = world.leader.remove_peer(ACCOUNT, "S", A)
    world.agree(entries)
    assert replaced
    assert world.group()["peers"] == [B, C]
    assert (world.wish()["peers"], world.wish()["removed"]) == ([C, D, B], [A])
    assert A not in world.group("D")["peers"]
    assert world.wish("D")["removed"] == [A]


def test_a_stream_of_one_whose_server_is_gone_begins_anew(world):
    assert world.ask("STREAM.CREATE T", {"name": "T", "subjects": ["t"]}) == 0
    world.agree(world.leader.left(A))
    of = world.state.streams[ACCOUNT]["T"].said["group"]
    assert of["peers"] == of["desired"]["peers"] == of["desired"]["members"] == [B]


def test_new_consumers_are_placed_where_the_data_is(world):
    assert world.ask("STREAM.UPDATE S", LATE) == 0
    world.report()
    world.report(meta_peers=[A, B, C, E, D], members=[A, B, C])
    body = {"stream_name": "S", "config": {"durable_name": "D1", "ack_policy": "explicit"}}
    assert world.ask("CONSUMER.DURABLE.CREATE S D1", body) == 0
    assert {*world.group("D1")["peers"]} == {A, B, C}
    world.report(meta_peers=[A, B, C, E, D], members=[E, D])
    body = {"stream_name": "S", "config": {"durable_name": "D2", "ack_policy": "explicit"}}
    assert world.ask("CONSUMER.DURABLE.CREATE S D2", body) == 0
    assert {*world.group("D2")["peers"]} == {E, D, C}


CREATED = "2026-11-30T06:00:00.000000001Z"


def asks(world, creates, **more):
    """A member asks by itself that a consumer is assigned or removed."""
    body = json.dumps({"account": ACCOUNT, "stream": "S", "consumer": "D", **more}).encode()
    about, judge = unassigned.read(body), world.leader.judge(ACCOUNT)
    moves = world.leader.moves
    made = unassigned.assigned(about, judge, moves) if creates else unassigned.removed(about, judge)
    world.agree(world.leader.regrouped(judge, made))
    return len(made)


def test_a_member_has_a_consumer_assigned_and_removed(world):
    config = CONFIG | {"deliver_policy": "all", "replay_policy": "instant", "name": "D"}
    state = {"delivered": {"consumer_seq": 3, "stream_seq": 3}, "ack_floor": {}}
    assert asks(world, True, created=CREATED, config=config, state=state) == 1
    assert world.group("D")["peers"] == [A, B, C]
    assert world.stream().consumers["D"]["consumer"] == config
    assert asks(world, True, created=CREATED, config=config) == 0, "it is assigned already"
    assert asks(world, False, created="2026-11-30T07:00:00Z") == 0, "another one of this name"
    assert asks(world, False, created=CREATED) == 1
    assert not world.stream().consumers


@pytest.mark.parametrize("config", [{}, {"durable_name": "D", "of_the_future": 1}])
def test_a_consumer_that_cannot_be_assigned_is_passed_over(world, config):
    with contextlib.suppress(decode.Unreadable):
        asks(world, True, created=CREATED, config=config)
    assert not world.stream().consumers


def test_what_is_asked_may_be_compressed():
    body = {"account": "A", "stream": "S", "consumer": "D", "created": CREATED}
    plain = json.dumps(body).encode()
    assert unassigned.read(b"\1" + s2_encode(plain)) == unassigned.read(plain)
    for wrong in (b"", b"\1", b"\1x", b"{", b'{"x": 1}', b'{"account": 1}'):
        with pytest.raises((ValueError, msgspec.DecodeError)):
            unassigned.read(wrong)
