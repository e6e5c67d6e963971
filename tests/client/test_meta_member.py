"""A server of ours votes in the meta group of two nats-servers: its log has the same bytes, its
vote elects a leader, and it knows the same assignments after every kind of start."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer

from jsserver.cext.bytes import s2_decode
from jsserver.cluster.meta import MetaState
from jsserver.disk.quarantine import put_aside
from tests.cext.raftlog import read_snapshot
from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, page
from tests.raft.cluster import log_of
from tests.servers import (
    Server,
    ServerFailed,
    Servers,
    command_of_peer,
    command_under_test,
    free_port,
)

pytestmark = pytest.mark.usefixtures("peer_present")

NO_STREAMS = 'server_tags: ["!jetstream"]'
META = b"_meta_"


class Members(Cluster):
    """Two nats-servers, A and B, and ours, C, with JetStream; each dials all others."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self.ports = [free_port() for _ in range(3)]
        routes = list(self.ports)
        for number, kind in enumerate("ppo"):
            rest = ACCOUNTS + (NO_STREAMS if kind == "o" else "")
            port = self.ports[number]
            self.add(kind, rest=rest, routes=routes, port=port, jetstream=True, monitor=True)

    @property
    def ours(self) -> Server:
        return self.members[2]

    @property
    def real(self) -> list[Server]:
        return self.members[:2]

    def leader(self) -> Server | None:
        """The leading nats-server, if all running members agree."""
        said = {page(one, "jsz").get("meta_cluster", {}).get("leader") for one in self.running()}
        name = said.pop()
        found = "AB".find(name or "-")
        return None if said or found < 0 or not self.members[found].running else self.members[found]

    def running(self) -> list[Server]:
        return [one for one in self.members if one.running]

    async def led(self) -> Server:
        """The leader, once all agree and have applied its log; ours hands over."""

        async def led() -> bool:
            if page(self.ours, "jsz").get("meta_cluster", {}).get("leader") == "C":
                async with connected(self.ours, user="sys", password="sys") as system:
                    with contextlib.suppress(NoAnswer):  # from a former leader
                        await api(system, "META.LEADER.STEPDOWN")
            return self.leader() is not None and self.current()

        await until(led, 60)
        found = self.leader()
        assert found is not None
        return found

    def current(self) -> bool:
        """Whether the leader reports ours as current and without lag."""
        leader = self.leader()
        if leader is None:
            return False
        replicas = page(leader, "jsz")["meta_cluster"].get("replicas", [])
        mine = [one for one in replicas if one["name"] == "C"]
        return bool(mine) and mine[0]["current"] and not mine[0].get("lag", 0)

    def folder(self, member: Server) -> Path:
        return member.store / "jetstream" / "SYS" / "_js_" / META.decode()

    def stop(self) -> None:
        for one in self.running():
            one.stop()


def records(folder: Path) -> dict[int, bytes]:
    """The log's records of a stopped server, by index."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    found = log_of(folder, copy)
    return {index: record for index, record in found.items() if record is not None}


def snapshot(folder: Path) -> bytes:
    """The state in the newest snapshot."""
    files = list((folder / "snapshots").iterdir())
    read = [read_snapshot(META, file.read_bytes()) for file in files]
    found = [one for one in read if one is not None]
    term, _, _, state = max(found)
    assert term > 0
    return state


def assignments(members: Members, member: Server) -> list[Any]:
    """The assignments in a member's newest snapshot, sorted, because nats-server's maps have no
    order; without the preferred leader, which members forget once it has led."""
    state = snapshot(members.folder(member))
    if not state:
        return []
    streams = json.loads(s2_decode(state))
    for one in streams:
        one["Consumers"].sort(key=lambda consumer: consumer["name"])
        for asset in (one, *one["Consumers"]):
            asset["group"].pop("preferred", None)
    return sorted(streams, key=lambda one: one["stream"]["name"])


def same_log(members: Members) -> int:
    """Asserts that all logs are equal where they overlap; how many records were compared."""
    ours = records(members.folder(members.ours))
    compared = 0
    for real in members.real:
        theirs = records(members.folder(real))
        for index in ours.keys() & theirs.keys():
            assert body(ours[index]) == body(theirs[index])
            compared += 1
    return compared


def body(record: bytes) -> bytes:
    """A record without the leader's term behind its entries, which only catching up adds."""
    at = 42
    for _ in range(int.from_bytes(record[40:42], "little")):
        at += 4 + int.from_bytes(record[at : at + 4], "little")
    return record[:at]


async def ask(client: Client, subject: str, body: object = None) -> None:
    """Repeats a request until it succeeds: a new leader may not have applied earlier ones yet."""

    async def done() -> bool:
        return "error" not in await api(client, subject, body)

    await until(done)


async def fill(client: Client, start: int, count: int = 8) -> None:
    """Creates, updates and deletes streams and consumers."""
    for number in range(start, start + count):
        name = f"S{number}"
        config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 1 + number % 2}
        await ask(client, f"STREAM.CREATE.{name}", config)
        durable = {"durable_name": "D", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": durable}
        await ask(client, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
        if number % 3 == 1:
            changed = config | {"max_msgs": 5, "metadata": {"a": "<b>"}}
            await ask(client, f"STREAM.UPDATE.{name}", changed)
        if number % 4 == 2:
            await ask(client, f"CONSUMER.DELETE.{name}.D")
        if number % 4 == 3:
            await ask(client, f"STREAM.DELETE.{name}")


@pytest.fixture
def members(servers: Servers) -> Iterator[Members]:
    yield Members(servers)


@asynchronous
async def test_its_vote_elects_and_its_log_is_theirs(members: Members) -> None:
    await members.led()
    async with connected(members.ours) as client:
        await fill(client, 0)
    leader = await members.led()
    await asyncio.to_thread(leader.kill)
    other = await members.led()
    assert other is not leader, "by two votes of three, one of which is ours"
    await asyncio.to_thread(leader.start)
    await members.led()
    async with connected(members.ours) as client:
        await fill(client, 8)
    await members.led()
    await asyncio.to_thread(members.stop)
    mine = assignments(members, members.ours)
    assert mine in [assignments(members, real) for real in members.real]
    same_log(members)


@asynchronous
async def test_every_start_knows_the_same(members: Members) -> None:
    await members.led()
    async with connected(members.ours) as client:
        await fill(client, 0)
    for kill in (True, False):
        await members.led()
        await asyncio.to_thread(members.ours.kill if kill else members.ours.stop)
        async with connected(members.real[0]) as client:
            await fill(client, 10 if kill else 20, 3)
        await asyncio.to_thread(members.ours.start)
    await members.led()
    await asyncio.to_thread(members.stop)
    assert same_log(members) >= 0
    mine = assignments(members, members.ours)
    assert mine in [assignments(members, real) for real in members.real]


@asynchronous
async def test_an_empty_directory_is_filled_from_the_leaders_snapshot(members: Members) -> None:
    await members.led()
    async with connected(members.ours) as client:
        await fill(client, 0)
    await members.led()
    await asyncio.to_thread(members.ours.stop)
    for real in members.real:  # a stop makes a snapshot, and the log then begins behind it
        await asyncio.to_thread(real.restart)
    shutil.rmtree(members.folder(members.ours))
    await asyncio.to_thread(members.ours.start)
    await members.led()
    await asyncio.to_thread(members.stop)
    mine = assignments(members, members.ours)
    assert mine
    assert mine in [assignments(members, real) for real in members.real]


@asynchronous
async def test_it_leads_where_it_alone_has_all(members: Members) -> None:
    """A and ours agree on entries while B is down. Then A is killed: B cannot be elected without
    them."""
    leader = await members.led()
    (other,) = (one for one in members.real if one is not leader)
    await asyncio.to_thread(other.stop)
    await until(lambda: members.leader() is leader)
    async with connected(members.ours) as client:
        await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    await asyncio.to_thread(leader.kill)
    await asyncio.to_thread(other.start)
    await until(lambda: page(other, "jsz").get("meta_cluster", {}).get("leader") == "C", 60)
    async with connected(other) as client:
        await ask(client, "STREAM.NAMES")  # once B has caught up, both agree on the leader
        assert (await api(client, "STREAM.NAMES"))["streams"] == ["S"]


@asynchronous
async def test_a_nats_server_takes_its_place_and_gives_it_back(members: Members) -> None:
    await members.led()
    async with connected(members.ours) as client:
        await fill(client, 0)
    await members.led()
    ours = members.ours
    for command in (command_of_peer(), command_under_test()):
        await asyncio.to_thread(members.ours.stop)
        assert command is not None
        next_one = Server(command, ours.folder, config=ours.config, jetstream=True, monitor=True)
        members.servers.started.append(next_one)
        members.members[2] = await asyncio.to_thread(next_one.start)
        name = f"X{len(command)}"
        config = {"name": name, "subjects": [name]}
        async with connected(members.real[0]) as client:
            await ask(client, f"STREAM.CREATE.{name}", config)
        await members.led()
    await asyncio.to_thread(members.stop)
    same_log(members)
    mine = assignments(members, members.ours)
    assert mine in [assignments(members, real) for real in members.real]


@asynchronous
async def test_requests_are_answered_once_and_nothing_is_placed_here(members: Members) -> None:
    await members.led()
    async with connected(members.ours) as client:
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        config = {"name": "ONCE", "subjects": ["once"], "num_replicas": 2}
        await client.publish("$JS.API.STREAM.CREATE.ONCE", json.dumps(config).encode(), reply=inbox)
        created = json.loads((await answers.next_msg(30)).data)
        assert {created["cluster"]["leader"], *_names(created)} == {"A", "B"}
        await client.publish("$JS.API.STREAM.INFO.ONCE", b"", reply=inbox)
        assert json.loads((await answers.next_msg(30)).data)["config"]["name"] == "ONCE"
        three = {"name": "THREE", "subjects": ["three"], "num_replicas": 3}
        refused = await api(client, "STREAM.CREATE.THREE", three)
        assert refused["error"]["err_code"] == 10005
        await client.flush()
        assert answers.pending_msgs == 0


def _names(info: dict[str, Any]) -> list[str]:
    return [one["name"] for one in info["cluster"]["replicas"]]


@asynchronous
async def test_streams_of_a_server_alone_stay_where_they_are(servers: Servers) -> None:
    """A stream is not deleted for lack of an assignment."""
    alone = servers.under_test(config=ACCOUNTS + "server_name: C", jetstream=True)
    async with connected(alone) as client:
        await api(client, "STREAM.CREATE.OLD", {"name": "OLD", "subjects": ["old"]})
        await client.request("old", b"kept", timeout=10)
    await asyncio.to_thread(alone.stop)
    before = sorted((alone.store / "jetstream" / "ONE").rglob("*.inf"))
    assert before
    port = free_port()
    config = alone.config
    alone.config = f"""{config}
        {NO_STREAMS}
        cluster {{ name: C, listen: "127.0.0.1:{port}" }}
    """
    await asyncio.to_thread(alone.start)
    alone.wait_log("JetStream cluster bootstrapping")
    await asyncio.to_thread(alone.stop)
    alone.config = config
    await asyncio.to_thread(alone.start)
    assert sorted((alone.store / "jetstream" / "ONE").rglob("*.inf")) == before
    async with connected(alone) as client:
        found = await api(client, "STREAM.INFO.OLD")
        assert found["state"]["messages"] == 1


def test_what_no_member_can_have_is_refused(servers: Servers) -> None:
    config = f"""
        server_name: C
        {ACCOUNTS}
        jetstream {{ object_requests: true }}
        cluster {{ name: C, listen: "127.0.0.1:{free_port()}" }}
    """
    with pytest.raises(ServerFailed, match="object_requests"):
        servers.under_test(config=config, jetstream=True)


def test_a_snapshot_is_what_it_was_read_from() -> None:
    """Unknown keys stay in an assignment; keys that only its proposal needs go."""
    said = [
        {
            "client": {"acc": "A", "svc": "B", "cluster": "C", "host": "h"},
            "created": "2026-11-28T10:00:00Z",
            "stream": {"name": "S", "x_new": {"y": [1, 2.5, None]}},
            "group": {"name": "S-R1F-aaaaaaaa", "peers": ["xZ93l5JM"], "desired": {"id": "i"}},
            "sync": "$JSC.SYNC.bbbbbbbb",
            "x_unknown": 12345678901234567890,
            "reply": "_R_.x",
            "Consumers": [{"client": {"acc": "B"}, "name": "D", "stream": "", "z": 1}],
        }
    ]
    from jsserver.cext.bytes import s2_encode_block

    state = MetaState.read(s2_encode_block(msgspec.json.encode(said)))
    (account, name, stream), *others = list(state)
    assert (account, name, others) == ("B", "S", [])
    assert stream.peers == ["xZ93l5JM"]
    kept = json.loads(s2_decode(state.snapshot()))
    expected = {key: value for key, value in said[0].items() if key != "reply"}
    expected["client"] = {"acc": "A", "svc": "B", "cluster": "C"}
    expected["Consumers"] = [{"client": {"acc": "B"}, "name": "D", "stream": "S", "z": 1}]
    assert kept == [expected]


@asynchronous
async def test_a_group_whose_disk_refused_takes_part_again(servers: Servers) -> None:
    """A directory in the place of the vote's file makes the next vote fail."""
    members = Members(servers)
    leader = await members.led()
    folder = members.folder(members.ours)
    obstacle = folder / "tav.idx.new"
    obstacle.mkdir()
    await asyncio.to_thread(leader.kill)
    log = members.ours.log
    await until(lambda: "takes no part in the meta group for a while: its disk" in log(), 60)
    obstacle.rmdir()
    await members.led()
    await asyncio.to_thread(leader.start)
    await members.led()
    assert sorted(one.name for one in folder.parent.iterdir()) == [META.decode()]


@asynchronous
async def test_a_damaged_directory_is_put_aside(servers: Servers) -> None:
    """A member whose log was lost keeps its vote, and catches up."""
    members = Members(servers)
    leader = await members.led()
    async with connected(leader) as client:
        await api(client, "STREAM.CREATE.ONE", {"name": "ONE", "subjects": ["one"]})
    await members.led()
    folder = members.folder(members.ours)
    await asyncio.to_thread(members.ours.stop)
    aside = Path(put_aside(str(folder)))
    assert (aside / "tav.idx").read_bytes() == (folder / "tav.idx").read_bytes()
    assert sorted(one.name for one in folder.iterdir()) == ["lost", "peers.idx", "tav.idx"]
    # The state after a kill in the middle.
    folder.rename(folder.with_name(folder.name + ".next"))
    await asyncio.to_thread(members.ours.start)
    members.ours.wait_log("is lost: this server catches up before its vote counts")
    await members.led()
    await until(lambda: not (folder / "lost").exists())
    assert (aside / "msgs").is_dir()
