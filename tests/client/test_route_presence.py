"""Servers of a cluster tell each other how they are, and answer together what an account asks, in
each mixture."""

import contextlib
import json
import signal
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, clients, page
from tests.client.test_route_monitor_diff import SYS, started
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

PAIRS = ("op", "po", "oo")


async def heard(client: Client, subject: str) -> list[dict[str, Any]]:
    """What comes to a subject, from now on."""
    found: list[dict[str, Any]] = []

    async def take(message: Any) -> None:
        found.append({"subject": message.subject, **json.loads(message.data)})

    await client.subscribe(subject, cb=take)
    await client.flush()
    return found


@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("event", ["SHUTDOWN", "LAMEDUCK"])
@asynchronous
async def test_servers_know_each_other(servers: Servers, kinds: str, event: str) -> None:
    """Each tells of its figures though no user of the system account is there, and of its end."""
    cluster = await started(servers, kinds)
    for member in cluster.members:
        own = page(member, "varz")["server_id"]
        async with connected(member, **SYS) as client:

            async def counts_both(client: Client = client, own: str = own) -> bool:
                answer = await client.request(f"$SYS.REQ.SERVER.{own}.STATSZ", b"", timeout=10)
                return bool(json.loads(answer.data)["statsz"]["active_servers"] == 2)

            await until(counts_both)
    async with connected(cluster.members[0], **SYS) as client:
        figures = await heard(client, "$SYS.SERVER.*.STATSZ")
        ends = await heard(client, f"$SYS.SERVER.*.{event}")
        names = {"A", "B"}
        await until(lambda: {one["server"]["name"] for one in figures} == names, 30)
        assert all(one["server"]["cluster"] == "C" for one in figures)
        process = cluster.members[1].process
        assert process is not None
        process.send_signal(signal.SIGUSR2 if event == "LAMEDUCK" else signal.SIGTERM)
        await until(lambda: [one["name"] for one in ends] == ["B"])


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_connections_of_an_account_are_told_everywhere(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0], **SYS) as client:
        came = await heard(client, "$SYS.ACCOUNT.ONE.CONNECT")
        gone = await heard(client, "$SYS.ACCOUNT.ONE.DISCONNECT")
        async with connected(cluster.members[1], name="far"):
            await until(lambda: [one["client"]["name"] for one in came] == ["far"])
            assert came[0]["server"]["name"] == "B"
        await until(lambda: [one["client"]["name"] for one in gone] == ["far"])


@pytest.mark.parametrize("kinds", ["opo", "pop", "ooo"])
@asynchronous
async def test_all_servers_answer_an_account(servers: Servers, kinds: str) -> None:
    """An account that asks for its connections hears of those at all members, and of no other's."""
    cluster = await started(servers, kinds)
    async with contextlib.AsyncExitStack() as stack:
        entered = []
        for number, member in enumerate(cluster.members):
            for name, login in (("one", {}), ("other", SYS)):
                coming = connected(member, name=f"{name}{number}", **login)
                entered.append(await stack.enter_async_context(coming))
        for asker, subject in (
            (0, "$SYS.REQ.ACCOUNT.PING.CONNZ"),
            (2, "$SYS.REQ.ACCOUNT.PING.CONNZ"),
            (4, "$SYS.REQ.SERVER.PING.CONNZ"),
        ):
            client = entered[asker]
            inbox = client.new_inbox()
            answers = await heard(client, inbox)
            await client.publish(subject, b"", reply=inbox)
            await until(lambda got=answers: len(got) >= 3)  # type: ignore[misc]
            shown = {
                one["server"]["name"]: [c["name"] for c in one["data"]["connections"]]
                for one in answers
            }
            assert shown == {"A": ["one0"], "B": ["one1"], "C": ["one2"]}
            assert len(answers) == 3
        client = entered[0]
        inbox = client.new_inbox()
        answers = await heard(client, inbox)
        await client.publish("$SYS.REQ.ACCOUNT.PING.STATZ", b"", reply=inbox)
        await until(lambda: len(answers) >= 3)
        for one in answers:
            assert [row["acc"] for row in one["data"]["account_statz"]] == ["ONE"]


@pytest.mark.parametrize("kinds", PAIRS)
@asynchronous
async def test_subscribers_are_counted_on_all_members(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds, rest=ACCOUNTS)
    async with clients(cluster, user="sys", password="sys") as members:
        for client in members:
            await client.subscribe("count.a")
            await client.subscribe("count.*", "group")
            await client.flush()
        for client in (one for one, kind in zip(members, kinds, strict=True) if kind == "o"):
            for asked, expected in (("count.a", 4), ("count.>", 4), ("count.a group", 2)):
                found = await client.request("$SYS.DEBUG.SUBSCRIBERS", asked.encode(), timeout=5)
                assert int(found.data) == expected, asked
