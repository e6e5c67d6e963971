"""What the groups of consumers agreed on in a cluster of three nats-servers leads to the same state
here as on their followers."""

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.cext.consumer import Member, get_entry, put_entry
from tests.cext.raft import append_entry
from tests.cext.stream import TestEnv
from tests.peer import REASON, find_peer
from tests.raft.cluster import NAMES, Cluster, Pump, log_of, peer_id, started
from tests.unit.consumer_states import read_state
from tests.unit.stream_world import INTEREST, LIMITS, SECOND, WORKQUEUE, World

pytestmark = pytest.mark.skipif(find_peer() is None, reason=REASON)

STREAMS = {"L": LIMITS, "I": INTEREST, "W": WORKQUEUE}
CONSUMERS: dict[str, dict[str, Any]] = {
    "E": {"ack_policy": "explicit", "ack_wait": SECOND},
    "M": {"ack_policy": "explicit", "ack_wait": SECOND, "max_deliver": 2},
    "A": {"ack_policy": "all", "ack_wait": SECOND},
    "N": {"ack_policy": "none"},
    "F": {"ack_policy": "explicit", "ack_wait": SECOND, "filter_subject": "{}.b"},
    "B": {"ack_policy": "explicit", "backoff": [SECOND // 2, SECOND], "max_deliver": 4},
}
STEPS = 60
LED = ("E", "M", "A", "N", "B")
MESSAGES = 12


def params_of(name: str) -> dict[str, Any]:
    """A consumer of the cluster, as one here."""
    params = dict(CONSUMERS[name])
    params.pop("filter_subject", None)
    if "backoff" in params:
        params["ack_wait"] = params["backoff"][0]
    return params


def consumers_of(stream: str) -> list[str]:
    return ["E"] if stream == "W" else list(CONSUMERS)


async def api(client: Any, subject: str, said: dict[str, Any]) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{subject}", json.dumps(said).encode(), timeout=5)
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, (subject, found)
    return found


async def make(client: Any, _: Any) -> None:
    for stream, retention in STREAMS.items():
        config: dict[str, Any] = {"name": stream, "subjects": [f"{stream}.>"], "num_replicas": 3}
        await api(client, f"STREAM.CREATE.{stream}", config | {"retention": retention})
        for name in consumers_of(stream):
            own = {key: value for key, value in CONSUMERS[name].items()}
            if "filter_subject" in own:
                own["filter_subject"] = own["filter_subject"].format(stream)
            config = {"name": name, "durable_name": name, "num_replicas": 3} | own
            said = {"stream_name": stream, "config": config, "action": ""}
            await api(client, f"CONSUMER.CREATE.{stream}.{name}", said)


class User:
    """Asks for messages and acks some, in no sensible order."""

    def __init__(self, client: Any, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.held: list[Any] = []

    async def start(self) -> None:
        self.inbox = self.client.new_inbox()

        async def took(message: Any) -> None:
            if message.reply:
                self.held.append(message)

        await self.client.subscribe(self.inbox, cb=took)

    async def step(self) -> None:
        stream = self.random.choice(list(STREAMS))
        name = self.random.choice(consumers_of(stream))
        match self.random.randrange(12):
            case 0 | 1:
                for _ in range(5):
                    subject = f"{stream}.{self.random.choice('ab')}"
                    await self.client.request(subject, b"x", timeout=5)
            case 2 | 3 | 4:
                said = {"batch": self.random.randint(1, 6), "expires": SECOND}
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
                await self.client.publish(subject, json.dumps(said).encode(), reply=self.inbox)
            case 10 if self.random.random() < 0.3:
                await api(self.client, f"CONSUMER.RESET.{stream}.{name}", {})
            case 11 if stream == "L" and self.random.random() < 0.3:
                await api(self.client, "STREAM.PURGE.L", {"keep": 4})
            case _:
                await self.answer()

    async def answer(self) -> None:
        if self.held:
            message = self.held.pop(self.random.randrange(len(self.held)))
            texts = (b"+ACK", b"+ACK", b"+TERM", b"-NAK", b'-NAK {"delay": 700000000}', b"+WPI")
            await self.client.publish(message.reply, self.random.choice(texts))

    async def states(self) -> list[Any]:
        found = []
        for stream in STREAMS:
            for said in (await api(self.client, f"CONSUMER.LIST.{stream}", {}))["consumers"]:
                found.append([said["name"], said["delivered"], said["ack_floor"]])
        return found


async def use(cluster: Cluster, seed: int) -> dict[tuple[str, str], tuple[str, str]]:
    """Of each consumer its group and who led it at the end."""
    servers = [f"nats://127.0.0.1:{port}" for port in cluster.ports[:3]]
    client = await nats.connect(servers)
    user = User(client, seed)
    await user.start()
    for _ in range(STEPS):
        await user.step()
        await asyncio.sleep(0.02)  # between users, not for something
    before: list[Any] = []
    for _ in range(60):
        await asyncio.sleep(0.5)  # until nothing is delivered again and files are written
        states = await user.states()
        if states == before:
            break
        before = states
    groups = {}
    for stream in STREAMS:
        for said in (await api(client, f"CONSUMER.LIST.{stream}", {}))["consumers"]:
            at = said["cluster"]
            groups[stream, said["name"]] = at["raft_group"], at["leader"]
    await client.close()
    return groups


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with started(tmp_path) as found:
        found.ask(make)
        yield found


def agreed(cluster: Cluster, server: str, group: str) -> tuple[list[bytes], int]:
    """The entries of a group as this server has them, and how often it was led anew."""
    copy = cluster.base / "copies" / group
    log = log_of(cluster.groups(server)[group.encode()], copy, peer_id(server))
    entries, terms = [], set()
    for loaded in log.values():
        record = append_entry(loaded or b"")
        assert record is not None
        terms.add(record["term"])
        entries += [data for kind, data in record["entries"] if kind == 0]
    assert min(log) == 1, "no snapshot took the place of entries"
    return entries, len(terms)


def test_entries_of_a_cluster_lead_to_the_states_of_its_followers(cluster: Cluster) -> None:
    groups = asyncio.run(use(cluster, 1))
    cluster.stop(signal.SIGKILL)
    kinds = set()
    for (stream, name), (group, leader) in groups.items():
        follower = next(server for server in NAMES if server != leader)
        entries, terms = agreed(cluster, follower, group)
        place = next((cluster.base / follower).glob(f"jetstream/*/streams/{stream}/obs/{name}"))
        theirs = read_state((place / "o.dat").read_bytes())
        stamp = (place / "o.dat").stat().st_mtime_ns
        world = World(TestEnv(now=stamp), retention=STREAMS[stream], active=False)
        handle = world.consumer(**params_of(name))
        member = Member(handle)
        for entry in entries:
            said = get_entry(entry)
            assert said is not None and put_entry(said) == entry
            kinds.add(said["op"])
            assert member.apply(entry) == 0
        ours = read_state(handle.encode_state())
        assert ours.near(theirs), (stream, name, terms, ours, theirs)
        world.stream.close(False)
    assert kinds == {7, 8, 10, 12, 13, 18}


def led_here(name: str) -> tuple[list[bytes], Any]:
    """What a consumer that leads here proposes while it is used, and how it stands at the end."""
    world = World(TestEnv(now=time.time_ns()))
    world.fill(MESSAGES)
    handle = world.consumer(**params_of(name))
    member = Member(handle)
    member.lead()
    entries: list[bytes] = []

    def agreed() -> list[Any]:
        came = world.env.take()
        while member.proposed:
            entries.append(member.proposed.pop(0))
            assert member.apply(entries[-1]) == 0
            world.env.run()
            came += world.env.take()
        return came

    world.pull(b"5")
    got = agreed()
    assert len(got) == 5
    if name != "N":
        world.ack(got[0])
        world.ack(got[2], b"-NAK 2s" if name != "A" else b"")
        world.ack(got[3], b"+WPI" if name != "A" else b"-NAK")
        agreed()
        for _ in range(3):  # what is not acked comes again, or is given up
            world.env.advance(3 * SECOND)
            world.pull(b"2")
            got = agreed()
        if got:
            world.ack(got[-1])
    world.pull(b'{"batch":9,"expires":60000000000}')
    agreed()
    state = handle.state()
    world.stream.close(False)
    return entries, state


def test_nats_servers_stand_as_a_leader_here_proposed(cluster: Cluster) -> None:
    groups: dict[str, str] = {}

    async def fill(client: Any, _: Any) -> None:
        for name in LED:
            said = await api(client, f"CONSUMER.INFO.L.{name}", {})
            groups[name] = said["cluster"]["raft_group"]
        while (await api(client, "STREAM.INFO.L", {}))["state"]["messages"] < MESSAGES:
            await client.request("L.a", b"x", timeout=5)

    cluster.ask(fill)
    cluster.stop(signal.SIGKILL)
    wanted = {}
    for name in LED:
        entries, wanted[name] = led_here(name)
        pump = Pump(cluster, groups[name].encode())
        leader = pump.elect()
        for entry in entries:
            pump.call(leader, "propose", pump.members[leader].state()["term"], entry)
        pump.settle()
        state = pump.members[leader].state()
        assert state["commit"] == state["last"]
        pump.close()

    async def stands(client: Any, _: Any) -> None:
        for name, ours in wanted.items():
            said = await api(client, f"CONSUMER.INFO.L.{name}", {})
            delivered, floor = said["delivered"], said["ack_floor"]
            assert delivered["consumer_seq"] == ours.delivered_consumer, name
            assert delivered["stream_seq"] == ours.delivered_stream, name
            assert floor["consumer_seq"] == ours.floor_consumer, name
            assert floor["stream_seq"] == ours.floor_stream, name
            assert said["num_ack_pending"] == ours.num_ack_pending, name
            assert said["num_redelivered"] == ours.num_redelivered, name

    cluster.start()
    cluster.ask(stands)
