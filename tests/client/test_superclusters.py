"""JetStream of several clusters that gateways join: a stream is in one of them, clients everywhere,
and either kind of server as the meta leader. The answers are those of nats-servers alone."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import ServiceUnavailableError

from tests.client.aio import api, asynchronous, connected, fill, take, until
from tests.client.mesh import mixtures
from tests.client.regions import Regions
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

DURABLE = {"durable_name": "D", "ack_policy": "explicit"}
COUNT = 50
"""Messages of a stream."""
RANDOM = (
    (re.compile(r"20\d\d-\d\d-\d\dT[0-9:.]+Z"), "TIME"),
    (re.compile(r'("(?:leader|name)": ")(?:[AB][12]|[0-9A-Za-z]{8})"'), r'\1NAME"'),
    (re.compile(r'("peer": ")[0-9A-Za-z]{8}"'), r'\1ID"'),
    (re.compile(r'("raft_group": "[SC]-R\d[FM]-)[0-9A-Za-z]{8}"'), r'\1ID"'),
    (re.compile(r'("(?:active|delivered_ns)": )\d+'), r"\1NS"),
    (re.compile(r'("current": )(?:true|false)'), r"\1BOOL"),
    (re.compile(r', "lag": \d+'), ""),
)
"""What is another one in each run."""


def plain(answer: dict[str, Any]) -> str:
    """An answer without what is another one in each run."""
    text = json.dumps(answer)
    for pattern, instead in RANDOM:
        text = pattern.sub(instead, text)
    return text


async def asked(client: Client, subject: str, body: object = None) -> str:
    try:
        return plain(await api(client, subject, body, 10))
    except NoAnswer:
        return "no answer"


async def made(client: Client, name: str, **more: Any) -> str:
    return await asked(
        client, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]} | more
    )


async def placed(client: Client, name: str) -> tuple[str, list[str]]:
    """The cluster of a stream, and its members."""
    found = (await api(client, f"STREAM.INFO.{name}"))["cluster"]
    return found["name"], sorted(
        [found["leader"], *(one["name"] for one in found.get("replicas", []))]
    )


async def pulled(pull: Any, count: int) -> list[Any]:
    """So many messages. Who asks in another cluster hears of a new consumer a moment before its
    own server does."""
    while True:
        with contextlib.suppress(ServiceUnavailableError):
            found: list[Any] = await pull.fetch(count, timeout=10)
            return found
        await asyncio.sleep(0.02)  # before the next request


async def outcomes(regions: Regions) -> list[tuple[str, object]]:
    """What clients of both clusters see."""
    found: list[tuple[str, object]] = []
    here, there = (regions.member(name) for name in ("A1", "B1"))
    async with connected(here) as a, connected(there) as b:

        async def ask(client: Client, subject: str, body: object = None) -> None:
            found.append((subject, await asked(client, subject, body)))

        # a stream is placed in the cluster of who asks, or in the one that is named
        found.append(("near", await made(a, "NEAR", num_replicas=2)))
        found.append(("far", await made(a, "FAR", num_replicas=2, placement={"cluster": "B"})))
        found.append(("in B", await made(b, "INB", num_replicas=1, storage="memory")))
        found.append(("too many", await made(a, "NO", num_replicas=3)))
        found.append(("unknown", await made(a, "NO", placement={"cluster": "X"})))
        found.append(("tags", await made(a, "TAGS", placement={"tags": ["east"]})))
        found.append(("tags", await made(b, "NO", placement={"tags": ["gone"]})))
        for name in ("NEAR", "FAR", "INB", "TAGS"):
            for client in (a, b):
                found.append(
                    (
                        name,
                        await placed(client, name)
                        if name == "FAR"
                        else (await placed(client, name))[0],
                    )
                )
        for client in (a, b):
            await ask(client, "STREAM.NAMES")
            await ask(client, "STREAM.INFO.FAR")
            await ask(client, "STREAM.INFO.NO")
        # messages and consumers across the gateways
        for client, name in ((a, "FAR"), (b, "NEAR")):
            js = client.jetstream()
            await fill(js, f"{name}.x", COUNT)
            await ask(
                client,
                f"CONSUMER.DURABLE.CREATE.{name}.D",
                {"stream_name": name, "config": {"durable_name": "D", "ack_policy": "explicit"}},
            )
            pull = await js.pull_subscribe_bind("D", name)
            got = await pulled(pull, COUNT // 2)
            found.append(("pulled", [(one.subject, one.data) for one in got]))
            for one in got:
                await one.ack_sync()
            await ask(client, f"CONSUMER.INFO.{name}.D")
            await ask(client, f"CONSUMER.NAMES.{name}")
            pushed = await js.subscribe(f"{name}.>", stream=name, ordered_consumer=True)
            found.append(
                (
                    "pushed",
                    [
                        (one.subject, one.data, one.metadata.sequence.stream)
                        for one in await take(pushed, COUNT)
                    ],
                )
            )
            await pushed.unsubscribe()
            await ask(client, f"STREAM.MSG.GET.{name}", {"seq": 7})
        return found


async def moved(client: Client, name: str, **more: Any) -> tuple[str, object]:
    """Moves a stream, and waits until it is there alone, and its consumer with it."""
    said = await asked(
        client, f"STREAM.UPDATE.{name}", {"name": name, "subjects": [f"{name}.>"]} | more
    )
    cluster, count = more["placement"]["cluster"], more["num_replicas"]

    async def there() -> bool:
        with contextlib.suppress(NoAnswer, KeyError):
            stream = await placed(client, name)
            consumer = (await api(client, f"CONSUMER.INFO.{name}.D", None, 5))["cluster"]
            return (stream[0], len(stream[1])) == (cluster, count) and (
                consumer["leader"] in stream[1] and len(consumer.get("replicas", ())) == count - 1
            )
        return False

    await until(there, 60)
    return said, await placed(client, name)


async def moves(regions: Regions) -> list[object]:
    """What clients see of streams that move to the other cluster and back, with a consumer."""
    found: list[object] = []
    async with connected(regions.member("A1")) as a, connected(regions.member("B1")) as b:
        js = a.jetstream()
        found.append(await made(a, "M", num_replicas=2))
        await fill(js, "M.x", COUNT)
        await asked(a, "CONSUMER.DURABLE.CREATE.M.D", {"stream_name": "M", "config": DURABLE})
        pull = await js.pull_subscribe_bind("D", "M")
        for one in await pulled(pull, COUNT // 2):
            await one.ack_sync()
        for client, cluster in ((a, "B"), (b, "A")):
            found.append(await moved(client, "M", num_replicas=2, placement={"cluster": cluster}))
            await fill(js, "M.x", 1)
            got = await pulled(pull, 5)
            for one in got:
                await one.ack_sync()
            found.append([(one.data, one.metadata.sequence) for one in got])
        found.append(
            await asked(
                b,
                "STREAM.UPDATE.M",
                {
                    "name": "M",
                    "subjects": ["M.>"],
                    "num_replicas": 1,
                    "placement": {"cluster": "B"},
                },
            )
        )
        found.append(
            await asked(
                b,
                "STREAM.UPDATE.M",
                {
                    "name": "M",
                    "subjects": ["M.>"],
                    "num_replicas": 2,
                    "placement": {"cluster": "X"},
                },
            )
        )
        found.append(await asked(b, "STREAM.PURGE.M"))
        found.append(await asked(b, "CONSUMER.DELETE.M.D"))
        found.append(await asked(b, "STREAM.DELETE.M"))
        found.append(await asked(a, "STREAM.INFO.M"))
    return found


async def leads(regions: Regions) -> list[object]:
    """What comes of wishes for another meta leader."""
    found: list[object] = []
    async with connected(regions.member("A2"), user="sys", password="sys") as system:
        for cluster in ("A", "B", "A"):

            async def led(cluster: str = cluster) -> bool:
                leader = regions.leader()
                if leader and leader[0] != cluster:
                    with contextlib.suppress(NoAnswer):  # from a former leader
                        wanted = {"placement": {"cluster": cluster}}
                        await api(system, "META.LEADER.STEPDOWN", wanted, 3)
                return leader[:1] == cluster

            await until(led, 60)
        for placement in ({"cluster": "X"}, {"preferred": "B9"}, {"tags": ["gone"]}):
            found.append(await asked(system, "META.LEADER.STEPDOWN", {"placement": placement}))
    return found


TAGS = {"B2": 'server_tags: ["east"]'}


@pytest.mark.parametrize("kinds", mixtures("oo-pp", soak=("oo-oo", "pp-oo", "op-po", "oo-nn")))
@asynchronous
async def test_clients_see_what_they_see_of_nats_servers(servers: Servers, kinds: str) -> None:
    ours, theirs = Regions(servers), Regions(servers)
    ours.start(kinds, TAGS)
    theirs.start("pp-pp", TAGS)
    await asyncio.gather(ours.whole(), theirs.whole())
    parts: list[Callable[[Regions], Awaitable[list[Any]]]] = [outcomes, moves, leads]
    for part in parts:
        got, expected = await asyncio.gather(part(ours), part(theirs))
        for mine, other in zip(got, expected, strict=True):
            assert mine == other


async def of_small_clusters(regions: Regions) -> list[object]:
    """Where streams go if the cluster of who asks has too few servers."""
    found: list[object] = []
    async with connected(regions.member("A1")) as a, connected(regions.member("B1")) as b:
        wanted: list[tuple[Client, dict[str, Any]]] = [
            (a, {"num_replicas": 1}),
            (b, {"num_replicas": 1}),
            (b, {"num_replicas": 2}),
            (b, {"num_replicas": 3}),
            (b, {"num_replicas": 2, "placement": {"cluster": "B"}}),
            (a, {"num_replicas": 1, "placement": {"tags": ["east"]}}),
            (b, {"num_replicas": 1, "placement": {"tags": ["west"]}}),
            (b, {"num_replicas": 2, "placement": {"tags": ["west"]}}),
            (b, {"num_replicas": 1, "placement": {"tags": ["!west"]}}),
        ]
        for number, (client, more) in enumerate(wanted):
            name = f"S{number}"
            said = await made(client, name, **more)
            found.append((name, said))
            if "error" not in said:
                found.append((name, (await placed(a, name))[0]))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("kinds", ["oo-o", "oo-p", "pp-o", "op-o"])
@asynchronous
async def test_other_clusters_are_tried(servers: Servers, kinds: str) -> None:
    rests = {"B1": 'server_tags: ["east"]', "A2": 'server_tags: ["west"]'}
    ours, theirs = Regions(servers), Regions(servers)
    ours.start(kinds, rests)
    theirs.start("pp-p", rests)
    await asyncio.gather(ours.whole(), theirs.whole())
    got, expected = await asyncio.gather(of_small_clusters(ours), of_small_clusters(theirs))
    for mine, other in zip(got, expected, strict=True):
        assert mine == other


@pytest.mark.soak
@pytest.mark.parametrize("kinds", ["oo-oo", "oo-pp", "pp-oo"])
@asynchronous
async def test_a_lost_meta_leader_is_replaced_from_any_cluster(
    servers: Servers, kinds: str
) -> None:
    """Nothing that was acked is lost, and both clusters go on. Streams are made in the whole
    cluster: a nats-server takes a killed server of another cluster for online for minutes."""
    regions = Regions(servers)
    regions.start(kinds)
    await regions.whole()
    acked = 0
    for round in range(3):
        first = regions.leader()
        leader = regions.member(first)
        others = [one for one in regions.members if one is not leader]
        await asyncio.to_thread(leader.kill if round else leader.stop)
        await until(lambda old=first: regions.leader() not in ("", old), 60)  # type: ignore[misc]
        whole = {"cluster": "B" if first[0] == "A" else "A"}
        for server in others:
            async with connected(server) as client:

                async def works(
                    client: Client = client, name: str = f"R{round}", place: object = whole
                ) -> bool:
                    config = {"name": name, "subjects": [f"{name}.>"], "placement": place}
                    with contextlib.suppress(NoAnswer):
                        return "error" not in await api(client, f"STREAM.CREATE.{name}", config, 5)
                    return False

                await until(works, 60)
                await client.jetstream().publish(f"R{round}.x", b"", timeout=10)
                acked += 1
        await asyncio.to_thread(leader.start)
        await regions.whole()
    async with connected(regions.members[-1]) as client:
        found = 0
        for round in range(3):

            async def state(name: str = f"R{round}") -> int:
                with contextlib.suppress(NoAnswer, KeyError):
                    info = await api(client, f"STREAM.INFO.{name}", None, 5)
                    return int(info["state"]["messages"])
                return -1

            async def known(state: Callable[[], Awaitable[int]] = state) -> bool:
                return await state() >= 0

            await until(known, 60)
            found += await state()
    assert found == acked
