"""Leaders of a meta group by themselves, in clusters that are made up: leaders that do not know yet
that another one was elected, proposals that are lost, members that crash; each from a seed."""

import json
import random
from collections.abc import Sequence, Set
from typing import Any

import pytest

from jsserver.assets.limits import AccountLimits, ServerSettings
from jsserver.cluster.leader import Leader
from jsserver.cluster.meta import MetaState, Op
from jsserver.cluster.moves import Usage
from jsserver.cluster.proposals import Asked
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import StreamConfig

ACCOUNT = "ONE"
HOLDERS = ["holderAA", "holderBB", "holderCC", "holderDD"]
SETTINGS = ServerSettings(server_name="A")


class Known:
    """What the leaders know of members: which are there changes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.there = set(HOLDERS)

    def place(
        self,
        config: StreamConfig,
        clusters: list[str],
        *,
        existing: Sequence[str] = (),
        leaving: int = 0,
        ignored: Set[str] = frozenset(),
    ) -> tuple[str, list[str]]:
        found = sorted(self.there - {*existing, *ignored})
        lacking = max(config.num_replicas - len(existing), 0)
        if len(found) < lacking or not clusters:
            raise errcodes.CLUSTER_NO_PEERS(err="no suitable peers for placement")
        return clusters[0], [*existing, *self.rng.sample(found, lacking)][: config.num_replicas]

    def clusters(self) -> list[str]:
        return ["C"]

    def cluster_of(self, peer: str) -> str:
        return "C"

    def tags_of(self, peer: str) -> Sequence[str] | None:
        return () if peer in HOLDERS else None

    def online(self, peers: list[str]) -> list[str]:
        return [peer for peer in peers if peer in self.there]

    def heard(self, account: str, subject: str) -> bool:
        return False

    def by_wishes(self) -> bool:
        return False

    def limits(self, account: str) -> AccountLimits | None:
        return AccountLimits(max_streams=6) if account == ACCOUNT else None

    def usage(self, account: str) -> Usage:
        return Usage()


class Member:
    """A member's state, as far as it has applied the log; it may think that it leads."""

    def __init__(self) -> None:
        self.state = MetaState()
        self.applied = 0
        self.leader: Leader | None = None
        self.term = 0


class World:
    """What is agreed on, once and for all, and what leaders have proposed beyond that."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.known = Known(self.rng)
        self.members = [Member() for _ in range(3)]
        self.log: list[bytes] = []
        self.truth = MetaState()
        self.term = 0
        self.proposed: list[bytes] = []
        """By the leader of the present term, in order; a prefix of it is agreed on some time."""
        self.now = 10**18
        self.asked: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.told: dict[str, int] = {}

    def token(self, length: int) -> str:
        return "".join(self.rng.choices("abcdefghijklmnopqrstuvwxyz", k=length))

    def elect(self) -> None:
        """Another member leads, that has all that was agreed on; others may not know. What the one
        before had proposed is lost, or a part of it comes through."""
        self.agree(self.rng.randint(0, len(self.proposed)))
        self.proposed = []
        self.term += 1
        member = self.rng.choice(self.members)
        member.term, member.leader = self.term, None
        self.apply(member)
        member.leader = Leader(
            member.state, self.known, SETTINGS, now=lambda: self.now, token=self.token
        )

    def agree(self, count: int) -> None:
        for entry in self.proposed[:count]:
            self.check(entry)
            self.log.append(entry)
            self.truth.apply(entry)
        del self.proposed[:count]

    def check(self, entry: bytes) -> None:
        """What is agreed on is true to what was agreed on before."""
        said = json.loads(entry[1:])
        streams = self.truth.streams.get(ACCOUNT, {})
        if entry[0] == Op.ASSIGN_STREAM:
            name, subjects = said["stream"]["name"], set(said["stream"]["subjects"])
            there = streams.get(name)
            if there is not None:
                assert there.said["created"] == said["created"], "two streams of one name"
                assert there.group == said["group"]["name"]
                assert said["group"]["peers"], "nobody holds a stream"
            for other, stream in streams.items():
                taken = stream.said["stream"]["subjects"]
                assert other == name or not subjects & set(taken), "two streams of one subject"
            assert there is not None or len(streams) < 6, "more streams than there may be"
        elif entry[0] == Op.ASSIGN_CONSUMER:
            stream = streams[said["stream"]]
            found = stream.consumers.get(said["name"])
            if found is not None:
                assert found["created"] == said["created"], "two consumers of one name"
                sizes = len(found["group"]["peers"]), len(said["group"]["peers"])
                assert found["group"]["name"] == said["group"]["name"] or 1 in sizes
            # what follows a stream may be lost with who led: then it is where it was
            before = [] if found is None else found["group"]["peers"]
            assert said["group"]["peers"], "nobody holds a consumer"
            if said.get("reply"):  # else it follows, though a member may have removed it
                assert {*said["group"]["peers"]} <= {*stream.peers, *before}

    def apply(self, member: Member) -> None:
        for entry in self.log[member.applied :]:
            change = member.state.apply(entry)
            member.applied += 1
            if member.leader is not None and member.term == self.term:
                for told in member.leader.applied(entry, change):
                    self.tell(told.reply, json.loads(told.body), member)
            elif member.leader is not None:
                member.leader = None  # it hears of the other one with what that one says

    def tell(self, reply: str, answer: dict[str, Any], member: Member) -> None:
        """An answer is true, and the only one."""
        self.told[reply] = self.told.get(reply, 0) + 1
        assert self.told[reply] == 1, "two answers"
        name, args = self.asked[reply]
        streams = member.state.streams.get(ACCOUNT, {})
        if name == "STREAM.DELETE":
            assert answer["success"] and args[0] not in streams
        elif name == "CONSUMER.DELETE":
            stream = streams.get(args[0])
            assert answer["success"]
            assert stream is None or args[1] not in stream.consumers
        else:
            assert name == "CONSUMER.PAUSE"
            config = streams[args[0]].consumers[args[1]]["consumer"]
            assert answer["paused"] == bool(config.get("pause_until"))

    def ask(self) -> None:
        """Every member that thinks that it leads gets the request."""
        reply = f"_R_.{len(self.asked)}"
        name, args, body = self.request()
        self.asked[reply] = name, args
        for member in self.members:
            if member.leader is None:
                continue
            asked = Asked(
                ACCOUNT,
                f"$JS.API.{name}",
                reply,
                json.dumps(body).encode() if body is not None else b"",
                {"acc": ACCOUNT, "cluster": "C"},
                args,
            )
            try:
                entries = self.entries(member.leader, name, asked)
            except ApiError as error:
                self.refused(error, member, name, args)
                continue
            if member.term == self.term and self.rng.random() < 0.05:
                for entry in entries:
                    member.leader.refused(entry)  # its log has too much that is not agreed on
            elif member.term == self.term:
                self.proposed += entries
            elif self.rng.random() < 0.5:  # it hears that it leads no more
                for entry in entries:
                    member.leader.refused(entry)
                member.leader = None

    def entries(self, leader: Leader, name: str, asked: Asked) -> list[bytes]:
        """What a leader proposes, with what the leader of the asset says of itself."""
        info = {"cluster": {"leader": "A"}} if leader.moves.asks(name, asked) else None
        if name == "STREAM.PEER.REMOVE":
            peer = json.loads(asked.body)["peer"]
            return leader.remove_peer(ACCOUNT, asked.args[0], peer)[0]
        if name == "ACCOUNT.STREAM.MOVE":
            asked = asked._replace(args=(ACCOUNT, *asked.args))
        return leader.handle(name, asked, info)

    def refused(self, error: ApiError, member: Member, name: str, args: tuple[str, ...]) -> None:
        """The present leader refuses for what is so, or is being made so."""
        if member.term != self.term:
            return
        streams = self.truth.streams.get(ACCOUNT, {})
        if error.err_code == 10059 and name != "STREAM.UPDATE":
            assert args[0] not in streams or self.proposed
        if error.err_code == 10058:
            assert args[0] in streams or self.proposed

    def request(self) -> tuple[str, tuple[str, ...], Any]:
        rng = self.rng
        stream = f"S{rng.randint(0, 7)}"
        consumer = f"C{rng.randint(0, 3)}"
        config: dict[str, Any] = {
            "name": stream,
            "subjects": [f"s{rng.randint(0, 9)}"],
            "num_replicas": rng.choice((1, 1, 3)),
            "retention": rng.choice(("limits", "workqueue")),
        }
        durable = {"durable_name": consumer, "ack_policy": "explicit"}
        return rng.choice(
            [
                ("STREAM.CREATE", (stream,), config),
                ("STREAM.CREATE", (stream,), config),
                ("STREAM.UPDATE", (stream,), config | {"max_msgs": rng.randint(1, 9)}),
                ("STREAM.UPDATE", (stream,), config | {"num_replicas": rng.randint(1, 4)}),
                ("STREAM.PEER.REMOVE", (stream,), {"peer": rng.choice(HOLDERS)}),
                ("ACCOUNT.STREAM.MOVE", (stream,), None),
                ("STREAM.DELETE", (stream,), None),
                (
                    "CONSUMER.DURABLE.CREATE",
                    (stream, consumer),
                    {"stream_name": stream, "config": durable},
                ),
                (
                    "CONSUMER.CREATE",
                    (stream, consumer),
                    {"stream_name": stream, "config": {"name": consumer}},
                ),
                ("CONSUMER.DELETE", (stream, consumer), None),
                (
                    "CONSUMER.PAUSE",
                    (stream, consumer),
                    {"pause_until": rng.choice(("2999-01-01T00:00:00Z", ""))},
                ),
            ]
        )

    def crash(self) -> None:
        """A member forgets all but the log."""
        member = self.rng.choice(self.members)
        member.leader = None
        member.state, member.applied = MetaState.read(self.truth.snapshot()), len(self.log)

    def foreign(self) -> None:
        """A member that runs a stream has a consumer removed that nobody uses."""
        for _, name, stream in self.truth:
            for consumer, said in stream.consumers.items():
                removal = {**said, "stream": name, "name": consumer}
                self.proposed.append(bytes([Op.REMOVE_CONSUMER]) + json.dumps(removal).encode())
                return

    def step(self) -> None:
        self.now += self.rng.randint(1, 10**9)
        match self.rng.randint(0, 19):
            case 0:
                self.elect()
            case 1:
                self.crash()
            case 2:
                self.known.there = set(self.rng.sample(HOLDERS, self.rng.randint(0, 4)))
            case 3:
                self.known.there = set(HOLDERS)
            case 4 if self.term:
                self.foreign()
            case 5 | 6 | 7 | 8:
                self.agree(self.rng.randint(0, len(self.proposed)))
                self.apply(self.rng.choice(self.members))
            case _:
                self.ask()


@pytest.mark.parametrize("block", range(10))
def test_one_asset_of_a_name_and_no_answer_that_is_not_true(block: int) -> None:
    made = 0
    for seed in range(block * 30, block * 30 + 30):
        world = World(seed)
        world.elect()
        for _ in range(400):
            world.step()
        world.agree(len(world.proposed))
        for member in world.members:
            world.apply(member)
            assert member.state.snapshot() or not world.truth.snapshot()
            assert {name for _, name, _ in member.state} == {name for _, name, _ in world.truth}
        made += len(world.log)
    assert made > 300


def test_what_a_member_could_not_make_is_told_and_taken_back() -> None:
    world = World(1)
    world.elect()
    (member,) = (one for one in world.members if one.leader is not None)
    leader = member.leader
    assert leader is not None
    config = json.dumps({"name": "S", "subjects": ["s"]}).encode()
    asked = Asked(ACCOUNT, "$JS.API.STREAM.CREATE.S", "_R_.x", config, {"acc": ACCOUNT}, ("S",))
    (entry,) = leader.handle("STREAM.CREATE", asked)
    assert list(leader.applied(entry, member.state.apply(entry))) == []
    error = errcodes.INSUFFICIENT_RESOURCES().body
    response = json.loads(
        json.dumps({"type": "x", "error": {"code": error.code, "err_code": error.err_code}})
    )
    said = {"account": ACCOUNT, "stream": "S", "create_response": response}
    removal, told = leader.result(json.dumps(said).encode())
    assert told is not None
    assert told.reply == "_R_.x"
    assert json.loads(told.body) == response
    assert removal is not None
    assert removal[0] == Op.REMOVE_STREAM
    member.state.apply(removal)
    assert not list(member.state)
    assert leader.result(b"no JSON") == (None, None)


def test_a_restore_proposes_no_empty_time() -> None:
    """nats-server cannot read an entry of the meta group that has one, and stops applying."""
    world = World(1)
    world.elect()
    leader = next(member.leader for member in world.members if member.leader is not None)
    body = json.dumps({"config": {"name": "S1", "subjects": ["s1"]}, "state": {}}).encode()
    asked = Asked(
        ACCOUNT,
        "$JS.API.STREAM.RESTORE.S1",
        "_R_.1",
        body,
        {"acc": ACCOUNT, "cluster": "C"},
        ("S1",),
    )
    (entry,) = leader.handle("STREAM.RESTORE", asked, None)
    state = json.loads(entry[1:])["restore_state"]
    assert state["messages"] == 0 and "" not in state.values()


@pytest.mark.parametrize("name", ["S", "T"])
def test_what_a_pending_removal_frees_can_be_taken(name: str) -> None:
    world = World(1)
    world.elect()
    leader = next(member.leader for member in world.members if member.leader is not None)

    def ask(request: str, stream: str, body: object = None) -> list[bytes]:
        data = b"" if body is None else json.dumps(body).encode()
        subject = f"$JS.API.{request}.{stream}"
        asked = Asked(ACCOUNT, subject, "_R_.1", data, {"acc": ACCOUNT}, (stream,))
        return leader.handle(request, asked, None)

    ask("STREAM.CREATE", "S", {"name": "S", "subjects": ["s"]})
    ask("STREAM.DELETE", "S")
    (entry,) = ask("STREAM.CREATE", name, {"name": name, "subjects": ["s"]})
    assert entry[0] == Op.ASSIGN_STREAM
    with pytest.raises(ApiError, match="overlap"):
        ask("STREAM.CREATE", "U", {"name": "U", "subjects": ["s"]})
