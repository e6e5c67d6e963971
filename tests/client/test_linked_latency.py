"""Reports of the latency of services whose clients are at other servers than those that ask. What
happens in mixed clusters is what happens among nats-servers."""

import asyncio
import json
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.gateways import Supercluster
from tests.client.mesh import Cluster, meet
from tests.client.test_latency_diff import in_words
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CLUSTERS = ("pp", "op", "po", "oo")
REGIONS = ("p-p", "o-p", "p-o", "o-o")
"""Who asks and who answers; what the first ones do is what all have to."""
SHARED = """
    accounts {
        SYS { users: [{ user: SYS, password: x }] }
        A {
            users: [{ user: A, password: x }]
            exports: [
                { service: plain, latency: lat.plain }
                { service: short, latency: lat.short, threshold: "200ms" }
                { service: traced, latency: { subject: lat.traced, sampling: headers } }
            ]
        }
        B {
            users: [{ user: B, password: x }]
            imports: [
                { service: { account: A, subject: plain } }
                { service: { account: A, subject: short } }
                { service: { account: A, subject: traced }, share: true }
            ]
        }
    }
    system_account: SYS
"""
SERVICE_SECONDS = 0.1
"""What the service takes to answer."""
CLOCKS_NS = 50_000_000
"""How far apart two servers may see one moment."""


def in_words_but_ids(report: Any) -> Any:
    """A report without figures, and without numbers of connections."""
    for who in ("requestor", "responder"):
        report.get(who, {}).pop("id", None)
    return in_words(report)


async def reported(servers: Servers, kinds: str) -> list[Any]:
    """What the exporter hears of requests at one server to a service at another one."""
    joined = Supercluster(servers) if "-" in kinds else Cluster(servers)
    joined.start(kinds, rest=SHARED)
    one, other = joined.members
    found: list[Any] = []

    async def note(message: Any) -> None:
        found.append((message.subject, json.loads(message.data)))

    async def answer(message: Any) -> None:
        if message.data != b"silent":
            await asyncio.sleep(SERVICE_SECONDS)  # what the reports are to say
            await message.respond(b"1")

    def user(name: str) -> dict[str, str]:
        return {"user": name, "password": "x", "name": name}

    async with (
        connected(one, **user("B")) as asks,
        connected(other, **user("A")) as answers,
        connected(one, **user("A")) as near,
        connected(one, **user("SYS")) as system,
        connected(other, **user("SYS")) as far,
    ):
        await near.subscribe("lat.*", cb=note)
        await meet([system, far])
        for subject in ("plain", "short", "traced"):
            await answers.subscribe(subject, cb=answer)
        await meet([near, answers])
        await asks.request("plain", timeout=10)
        await until(lambda: len(found) == 1, 10)
        await asks.request("traced", timeout=10, headers={"X-B3-Sampled": "1"})
        await until(lambda: len(found) == 2, 10)
        await asks.request("traced", timeout=10)
        await asks.publish("short", b"silent", reply=asks.new_inbox())
        await until(lambda: len(found) == 3, 10)
    for _, report in found[:2]:
        served = report["service"] + report["responder"]["rtt"]
        assert 0.9 * SERVICE_SECONDS <= served / 1e9 < 10
        assert served + report["system"] <= report["total"] + CLOCKS_NS, report
    return [(subject, in_words_but_ids(report)) for subject, report in found]


@pytest.mark.parametrize("kinds", [CLUSTERS, REGIONS], ids=["cluster", "regions"])
@asynchronous
async def test_answers_of_other_servers_are_reported(
    servers: Servers, kinds: tuple[str, ...]
) -> None:
    found = {each: await reported(servers, each) for each in kinds}
    assert found == dict.fromkeys(kinds, found[kinds[0]])
