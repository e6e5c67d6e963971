"""Streams and consumers of three replicas, with servers of ours among the members: each leads and
follows, one is killed and another goes on, and acked messages are there after a restart."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import NAMES, Cluster, clients_of, mixtures
from tests.client.test_held_diff import Members, answered, done, refused, stream
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

READS = re.compile(r"\b(INFO|NAMES|LIST|MSG\.GET)\b")
"""Requests that change nothing."""
KEPT = [
    ("ppo", "workqueue"),
    ("ooo", "interest"),
    pytest.param("ooo", "workqueue", marks=pytest.mark.soak),
    pytest.param("ppo", "interest", marks=pytest.mark.soak),
]
"""Kinds of members, and what a stream keeps."""
DISKS = ("ONE/streams/S", "SYS/_js_/S-*", "")
LOST = [
    *zip(("ppo", "ooo", "ppo"), DISKS, strict=True),
    *(pytest.param("ppo", lost, marks=pytest.mark.soak) for lost in DISKS[1:2]),
    *(pytest.param("ooo", lost, marks=pytest.mark.soak) for lost in DISKS[::2]),
]
"""Kinds of members, and what the last one loses: the stream, the groups, or all."""
THREE = {"num_replicas": 3, "placement": {}}


class Three(Members):
    """Waits until streams can be placed on all members."""

    async def ready(self) -> None:
        await Cluster.ready(self)


async def asked(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    """The answer; an error of code 0 where nobody answers. What changes nothing is asked again: a
    request to a leader that was just killed is lost."""
    attempts = 10 if READS.search(subject) else 1
    for _ in range(attempts):
        try:
            answer: dict[str, Any] = await api(client, subject, body, 30 / attempts)
        except NoRespondersError:
            break
        except NoAnswer:
            continue
        return answer
    return {"error": {"err_code": 0}}


async def leader(client: Client, subject: str) -> str:
    """The leader's name, "" while unknown."""
    answer = await asked(client, subject)
    return str((answer.get("cluster") or {}).get("leader", ""))


async def led_by(client: Client, kind: str, asset: str, name: str) -> None:
    """Makes this server the asset's leader: others step down until it is."""

    async def moved() -> bool:
        if await leader(client, f"{kind}.INFO.{asset}") == name:
            return True
        body = {"placement": {"preferred": name}}
        with contextlib.suppress(NoAnswer, NoRespondersError):
            await api(client, f"{kind}.LEADER.STEPDOWN.{asset}", body, 3)
        await asyncio.sleep(0.3)  # until the others have voted
        return await leader(client, f"{kind}.INFO.{asset}") == name

    await until(moved, 60)


async def published(client: Client, subject: str, number: int) -> int:
    """Publishes until the message is acked, with an id, as a client does; its sequence."""
    seqs: list[int] = []

    async def taken() -> bool:
        headers = {"Nats-Msg-Id": f"{subject}-{number}"}
        try:
            context = client.jetstream(timeout=2)
            seqs.append((await context.publish(subject, b"%d" % number, headers=headers)).seq)
        except (NoAnswer, NoStreamResponseError, NoRespondersError, APIError):
            await asyncio.sleep(0.1)  # no leader at the moment
        return bool(seqs)

    await until(taken)
    return seqs[0]


async def current(client: Client, subject: str) -> bool:
    """Whether all other members are current."""
    found = (await asked(client, subject)).get("cluster") or {}
    replicas = found.get("replicas", [])
    return len(replicas) == 2 and all(one["current"] for one in replicas)


def survivor(members: Three, but: Server) -> Server:
    return next(one for one in members.members if one is not but)


async def eventually(what: Callable[[], Awaitable[bool]]) -> None:
    await until(what, 60)


async def fetched(client: Client, count: int) -> list[bytes]:
    """Pulls messages from D, and acks them."""
    found: list[bytes] = []
    pull = await client.jetstream(timeout=5).pull_subscribe_bind("D", "S")
    try:
        while len(found) < count:
            try:
                messages = await pull.fetch(count - len(found), timeout=2)
            except (NoAnswer, NoRespondersError, ServiceUnavailableError):
                await asyncio.sleep(0.1)  # no leader at the moment
                continue
            for message in messages:
                await message.ack_sync(timeout=10)
                found.append(message.data)
    finally:
        await pull.unsubscribe()
    return found


async def lives(members: Three, ours: Server) -> None:
    """A stream S and its consumer D, led by `ours` and by another server in turn."""
    name = NAMES[members.members.index(ours)]
    client_of = survivor(members, ours)
    async with connected(client_of) as client:
        body = stream("S", **THREE)
        made = await done(client, "STREAM.CREATE.S", body)
        assert made["did_create"] is True
        durable = {"durable_name": "D", "ack_policy": "explicit", "ack_wait": 5 * 10**9}
        wanted = {"stream_name": "S", "config": durable}
        made = await done(client, "CONSUMER.DURABLE.CREATE.S.D", wanted)
        assert made["config"].get("num_replicas", 0) == 0
        for number in range(5):
            assert await published(client, f"S.{number}", number) == number + 1
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        assert await fetched(client, 2) == [b"0", b"1"]

        await led_by(client, "STREAM", "S", name)
        await led_by(client, "CONSUMER", "S.D", name)
        for number in range(5, 10):
            assert await published(client, f"S.{number}", number) == number + 1
        assert await fetched(client, 2) == [b"2", b"3"]
        info = await done(client, "STREAM.INFO.S")
        assert info["state"]["messages"] == 10
        assert len(info["cluster"]["replicas"]) == 2
        await done(client, "STREAM.MSG.DELETE.S", {"seq": 10})
        assert (await api(client, "STREAM.PURGE.S", {"filter": "S.8"}))["purged"] == 1
        assert (await done(client, "STREAM.INFO.S"))["state"]["messages"] == 8

        await asyncio.to_thread(ours.kill)
        assert await published(client, "S.10", 10) == 11
        assert await fetched(client, 2) == [b"4", b"5"]
        await asyncio.to_thread(ours.start)
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        await led_by(client, "STREAM", "S", name)
        await led_by(client, "CONSUMER", "S.D", name)
        info = await done(client, "STREAM.INFO.S")
        assert (info["state"]["messages"], info["state"]["last_seq"]) == (9, 11)
        assert await fetched(client, 2) == [b"6", b"7"]
        assert await published(client, "S.11", 11) == 12


async def removed(members: Three, ours: Server) -> None:
    """Waits until stream and consumer are gone, with their files and groups."""
    async with connected(survivor(members, ours)) as client:
        await done(client, "CONSUMER.DELETE.S.D")
        await eventually(lambda: refused(client, "CONSUMER.INFO.S.D", 10014))
        await done(client, "STREAM.DELETE.S")
        await eventually(lambda: refused(client, "STREAM.INFO.S", 10059))
        folder = ours.store / "jetstream"
        await until(lambda: not [*(folder / "ONE" / "streams").glob("[!.]*")])
        await until(lambda: [one.name for one in (folder / "SYS" / "_js_").iterdir()] == ["_meta_"])


@asynchronous
async def test_ours_follows_and_leads_beside_two_nats_servers(servers: Servers) -> None:
    members = Three(servers, "ppo")
    await members.ready()
    await lives(members, members.holder)
    await removed(members, members.holder)


@asynchronous
async def test_three_of_ours(servers: Servers) -> None:
    members = Three(servers, "ooo")
    await members.ready()
    await lives(members, members.holder)
    await removed(members, members.holder)


@asynchronous
async def test_consumers_that_others_hold_are_counted(servers: Servers) -> None:
    """Each member leads the stream in turn, and holds one of three consumers of one replica."""
    members = Three(servers, "ooo")
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        for number in range(3):
            config = {"durable_name": f"D{number}", "ack_policy": "explicit", "num_replicas": 1}
            body = {"stream_name": "S", "config": config}
            await done(client, f"CONSUMER.DURABLE.CREATE.S.D{number}", body)
        for name in "ABC":
            await led_by(client, "STREAM", "S", name)
            assert (await done(client, "STREAM.INFO.S"))["state"]["consumer_count"] == 3
            (listed,) = (await done(client, "STREAM.LIST"))["streams"]
            assert listed["state"]["consumer_count"] == 3


@pytest.mark.parametrize("kinds", mixtures("ppo", "ooo", soak=["nno"]))
@asynchronous
async def test_another_leads_when_the_leader_is_killed(servers: Servers, kinds: str) -> None:
    """Ours takes over when a nats-server is killed: all acked messages are there, and more are
    taken."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.holder) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        await done(client, "CONSUMER.DURABLE.CREATE.S.D", body)
        await led_by(client, "STREAM", "S", "A")
        await led_by(client, "CONSUMER", "S.D", "A")
        for number in range(5):
            assert await published(client, f"S.{number}", number) == number + 1
        assert await fetched(client, 1) == [b"0"]
        await asyncio.to_thread(members.members[0].kill)
        await eventually(lambda: answered(client, "STREAM.INFO.S"))
        assert await published(client, "S.5", 5) == 6
        await led_by(client, "STREAM", "S", "C")
        await eventually(lambda: answered(client, "CONSUMER.INFO.S.D"))
        assert await fetched(client, 5) == [b"1", b"2", b"3", b"4", b"5"]
        await asyncio.to_thread(members.members[0].start)
        await eventually(lambda: current(client, "STREAM.INFO.S"))


@asynchronous
async def test_all_of_ours_are_killed(servers: Servers) -> None:
    """No acked message is lost when all three servers start again."""
    members = Three(servers, "ooo")
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        for number in range(20):
            assert await published(client, f"S.{number}", number) == number + 1
        for one in members.members:
            await asyncio.to_thread(one.kill)
        for one in members.members:
            await asyncio.to_thread(one.launch)
        for one in members.members:
            await asyncio.to_thread(one.wait_ready)
    async with clients_of(members.members) as clients:
        await eventually(lambda: answered(clients[0], "STREAM.INFO.S"))
        assert (await done(clients[1], "STREAM.INFO.S"))["state"]["messages"] == 20
        assert await published(clients[2], "S.20", 20) == 21


@asynchronous
async def test_answers_about_replicas_are_those_of_a_nats_server(servers: Servers) -> None:
    """Requests about a stream and a consumer that the third server leads."""
    said = []
    for kinds in ("ppp", "ppo"):
        members = Three(servers, kinds)
        await members.ready()
        async with clients_of(members.members) as clients:
            said.append(await answers(clients[0]))
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in members.members))
    real, ours = said
    for one, other in zip(real, ours, strict=True):
        assert one == other


async def answers(client: Client) -> list[Any]:
    await done(client, "STREAM.CREATE.S", stream("S", allow_direct=True, **THREE))
    durable = {"durable_name": "D", "ack_policy": "explicit"}
    await done(client, "CONSUMER.DURABLE.CREATE.S.D", {"stream_name": "S", "config": durable})
    await led_by(client, "STREAM", "S", "C")
    await led_by(client, "CONSUMER", "S.D", "C")
    for number in range(5):
        assert await published(client, f"S.{number}", number) == number + 1
    await eventually(lambda: current(client, "STREAM.INFO.S"))
    await eventually(lambda: current(client, "CONSUMER.INFO.S.D"))
    said = []
    changed = {"stream_name": "S", "config": durable | {"max_ack_pending": 5}}
    for subject, body in (
        ("STREAM.INFO.S", None),
        ("CONSUMER.INFO.S.D", None),
        ("STREAM.UPDATE.S", stream("S", allow_direct=True, max_msgs=9, **THREE)),
        ("CONSUMER.DURABLE.CREATE.S.D", changed),
        ("STREAM.MSG.GET.S", {"seq": 2}),
        ("STREAM.MSG.DELETE.S", {"seq": 2}),
        ("STREAM.MSG.DELETE.S", {"seq": 2}),
        ("STREAM.MSG.DELETE.S", {"seq": 20}),
        ("STREAM.MSG.DELETE.S", {}),
        ("STREAM.PURGE.S", {"seq": 2, "keep": 1}),
        ("STREAM.PURGE.S", {"filter": "S.0"}),
        ("CONSUMER.RESET.S.D", {"seq": 3}),
        ("CONSUMER.NAMES.S", None),
        ("CONSUMER.LIST.S", None),
        ("STREAM.PURGE.S", None),
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.LIST", None),
        ("CONSUMER.DELETE.S.D", None),
        ("STREAM.LEADER.STEPDOWN.S", None),
    ):
        said.append((subject, alike(await asked(client, subject, body))))
    return said


CHANCE = (
    *("raft_group", "active", "lag", "total", "created", "ts", "last_active", "first_ts"),
    *("last_ts", "time", "leader_since", "current"),
)


def alike(answer: Any) -> Any:
    """An answer without times, chance, and the lag of other members."""
    if isinstance(answer, list):
        return [alike(one) for one in answer]
    if isinstance(answer, dict):
        return {key: alike(value) for key, value in answer.items() if key not in CHANCE}
    return answer


def interests(kind: str) -> dict[str, Any]:
    return stream("S", retention=kind, **THREE)


@pytest.mark.parametrize(("kinds", "retention"), KEPT)
@asynchronous
async def test_acked_messages_go(servers: Servers, kinds: str, retention: str) -> None:
    """From all members, whichever leads the stream and the consumer."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", interests(retention))
        body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        await done(client, "CONSUMER.DURABLE.CREATE.S.D", body)
        at = 0
        for one, other in (("C", "C"), ("C", "A"), ("A", "C"), ("A", "A")):
            await led_by(client, "STREAM", "S", one)
            await led_by(client, "CONSUMER", "S.D", other)
            for number in range(at, at + 4):
                assert await published(client, f"S.{number}", number) == number + 1
            assert await fetched(client, 4) == [b"%d" % n for n in range(at, at + 4)]
            at += 4
            await eventually(lambda: holds(client, 0))
        await led_by(client, "STREAM", "S", "C")
        assert await published(client, "S.x", at) == at + 1
        await asyncio.to_thread(members.holder.restart, kill=True)
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        await led_by(client, "STREAM", "S", "C")
        assert await holds(client, 1)
        await led_by(client, "CONSUMER", "S.D", "C")
        assert await fetched(client, 1) == [b"%d" % at]
        await eventually(lambda: holds(client, 0))


async def holds(client: Client, messages: int) -> bool:
    answer = await asked(client, "STREAM.INFO.S")
    return "state" in answer and answer["state"]["messages"] == messages


@pytest.mark.parametrize("kinds", mixtures("ppo", soak=["ooo"]))
@asynchronous
async def test_a_stream_in_memory_comes_back_from_the_others(servers: Servers, kinds: str) -> None:
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S", storage="memory", **THREE))
        body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        await done(client, "CONSUMER.DURABLE.CREATE.S.D", body)
        for number in range(10):
            assert await published(client, f"S.{number}", number) == number + 1
        assert await fetched(client, 3) == [b"0", b"1", b"2"]
        await asyncio.to_thread(members.holder.restart, kill=True)
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        await led_by(client, "STREAM", "S", "C")
        await led_by(client, "CONSUMER", "S.D", "C")
        assert await holds(client, 10)
        assert await fetched(client, 2) == [b"3", b"4"]


@pytest.mark.parametrize(("kinds", "lost"), LOST)
@asynchronous
async def test_what_a_disk_loses_comes_from_the_others(
    servers: Servers, kinds: str, lost: str
) -> None:
    """Removes the stream, the groups, or all data of the third server."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        body = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        await done(client, "CONSUMER.DURABLE.CREATE.S.D", body)
        for number in range(10):
            assert await published(client, f"S.{number}", number) == number + 1
        assert await fetched(client, 3) == [b"0", b"1", b"2"]
        await asyncio.to_thread(members.holder.kill)
        root = members.holder.store / "jetstream"
        for folder in root.glob(lost) if lost else [root]:
            shutil.rmtree(folder)
        assert await published(client, "S.10", 10) == 11
        await asyncio.to_thread(members.holder.start)
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        await led_by(client, "STREAM", "S", "C")
        await led_by(client, "CONSUMER", "S.D", "C")
        assert await holds(client, 11)
        assert await fetched(client, 2) == [b"3", b"4"]


@pytest.mark.parametrize("here", [False, True])
@asynchronous
async def test_what_one_server_has_is_not_lost_by_an_update_to_three(
    servers: Servers, here: bool
) -> None:
    """Whichever member holds it, also when ours restarts meanwhile."""
    members = Three(servers, "ppo")
    await members.ready()
    async with connected(members.members[1]) as client:

        async def placed() -> bool:
            wanted = stream("S") if here else stream("S", placement={})
            await done(client, "STREAM.CREATE.S", wanted)
            if (await leader(client, "STREAM.INFO.S") == "C") is here:
                return True
            await done(client, "STREAM.DELETE.S")
            return False

        await eventually(placed)
        for number in range(5):
            assert await published(client, f"S.{number}", number) == number + 1
        await asked(client, "STREAM.UPDATE.S", stream("S", **THREE))
        for kill in (False, True):
            await asyncio.to_thread(members.holder.restart, kill=kill)
            await eventually(lambda: holds(client, 5))


@pytest.mark.parametrize("kinds", mixtures("ppo", soak=["ooo"]))
@asynchronous
async def test_what_nobody_wanted_meanwhile_goes_after_a_start(
    servers: Servers, kinds: str
) -> None:
    """The other members skipped the message; a starting member learns of it before its consumers
    are open."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", interests("interest"))
        config = {"durable_name": "D", "ack_policy": "explicit", "filter_subject": "S.wanted"}
        body = {"stream_name": "S", "config": config}
        await done(client, "CONSUMER.DURABLE.CREATE.S.D", body)
        assert await published(client, "S.wanted", 0) == 1
        await asyncio.to_thread(members.holder.kill)
        for number in range(1, 6):
            assert await published(client, "S.other", number) == number + 1
        assert await published(client, "S.wanted", 6) == 7
        await asyncio.to_thread(members.holder.start)
        await eventually(lambda: current(client, "STREAM.INFO.S"))
        await led_by(client, "STREAM", "S", "C")
        await eventually(lambda: holds(client, 2))
        await led_by(client, "CONSUMER", "S.D", "C")
        assert await fetched(client, 2) == [b"0", b"6"]
        await eventually(lambda: holds(client, 0))
