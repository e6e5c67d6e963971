"""What servers tell of gateways, each of ours beside one of nats-server in the same place: pages of
monitoring, requests to `$SYS` and the `nats` tool."""

import json
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.gateways import Supercluster
from tests.client.mesh import clients_of, meet, page
from tests.client.nats_tool import TOOL, run
from tests.client.test_monitor_diff import VOLATILE, VOLATILE_TOTALS, plain
from tests.client.test_route_monitor_diff import OF_TRAFFIC, SYS, UNLIKE, USERS, ask
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LEFT = VOLATILE | VOLATILE_TOTALS | OF_TRAFFIC | {"name", "num_subs", "gwid", "msgs", "bytes"}
"""Of gateways: what the servers themselves ask each other, and how many services each has."""

OF_GATEWAYS = (
    (r"(│ [AB]1? +│ [AB]? +│) +\d+", r"\1 <port>"),
    (r"\d+(?:\.\d+)?(?:ms|µs|s)\b", "<time>"),
    (r"gid:\d+", "<gid>"),
    (r"│ +\d+(?= +│ \d+\.\d+\.\d+\.\d+)", "│ <subs>"),
    (r"(│ +2 +│ +2 +│ +│ +0 +│ +1 +│) +\d+", r"\1 <subs>"),
)
"""Ports, which connection is which, and how many services each server has."""


def all_joined(joined: Supercluster) -> bool:
    """Whether each server has dialled all other clusters, and each cluster was by each server."""
    servers, others = len(joined.members), len(joined.clusters) - 1
    pages = [page(member, "gatewayz") for member in joined.members]
    inbound = [links for found in pages for links in found["inbound_gateways"].values()]
    dialled = all(len(found["outbound_gateways"]) == others for found in pages)
    return dialled and sum(map(len, inbound)) == servers * others


async def started(servers: Servers, kinds: str) -> Supercluster:
    joined = Supercluster(servers)
    joined.start(kinds, rest=USERS, monitor=True)
    await until(lambda: all_joined(joined), 30)
    return joined


def seen(joined: Supercluster, path: str) -> Any:
    """A page about gateways of the first server, as a comparison sees it."""
    found = page(joined.members[0], path)
    for remote in [*(found["outbound_gateways"] or {}).values()]:
        for account in remote.get("accounts", []):
            account.pop("num_queue_subs", None)
    text = json.dumps(found)
    return plain(json.loads(text), LEFT)


@asynchronous
async def test_gatewayz(servers: Servers) -> None:
    found = []
    for kinds in ("o-p", "p-p"):
        joined = await started(servers, kinds)
        paths = ("", "?gw_name=B", "?gw_name=NONE", "?accs=1&acc_name=ONE", "?acc_name=NONE")
        found.append([seen(joined, f"gatewayz{path}") for path in paths])
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs


@asynchronous
async def test_accounts_of_gateways(servers: Servers) -> None:
    found = []
    for kinds in ("o-p", "p-p"):
        joined = await started(servers, kinds)
        async with clients_of(joined.members) as members:
            await members[1].subscribe("some.*")
            await members[1].subscribe("other", "queue")
            await meet(members)
            shown = page(joined.members[0], "gatewayz?acc_name=ONE&subs=1")
            (account,) = shown["outbound_gateways"]["B"]["accounts"]
            subjects = set(account.pop("subscriptions_list")) & {"some.*", "other"}
            account.pop("num_subs")
            detail = page(joined.members[0], "gatewayz?acc_name=ONE&subs=detail")
            (detailed,) = detail["outbound_gateways"]["B"]["accounts"]
            subs = [
                {**sub, "cid": 0}
                for sub in detailed["subscriptions_list_detail"]
                if sub["subject"] in ("some.*", "other")
            ]
            found.append((account, subjects, sorted(subs, key=str)))
    assert found[0] == found[1]
    assert found[0][1] == {"some.*", "other"}


@asynchronous
async def test_varz(servers: Servers) -> None:
    found = []
    for kinds in ("o-p", "p-p"):
        joined = await started(servers, kinds)
        varz = page(joined.members[0], "varz")
        gateway = varz["gateway"]
        assert gateway.pop("port")
        for remote in gateway["gateways"]:
            remote["urls"] = len(remote["urls"])
        counts = [varz["slow_consumer_stats"], varz["stale_connection_stats"], varz["connections"]]
        found.append((gateway, counts, varz["cluster"].get("name")))
    assert found[0] == found[1]


@asynchronous
async def test_requests_to_the_system_account(servers: Servers) -> None:
    """Servers of all clusters answer, wherever they are asked."""
    found = []
    for kinds in ("oo-p", "pp-p"):
        joined = await started(servers, kinds)
        own = page(joined.members[0], "varz")["server_id"]
        async with connected(joined.members[0], **SYS) as client:
            names: set[str] = set()

            async def all_answer(client: Any = client, names: set[str] = names) -> bool:
                inbox = client.new_inbox()
                answers = await client.subscribe(inbox)
                await client.publish("$SYS.REQ.SERVER.PING.IDZ", b"", reply=inbox)
                for _ in joined.members:  # noqa: B023
                    try:
                        answer = json.loads((await answers.next_msg(2)).data)
                    except TimeoutError:
                        return False
                    names.add(f"{answer.get('cluster', '')} {answer['name']}")
                return len(names) == 3

            await until(all_answer, 30)
            page_of = await ask(client, f"$SYS.REQ.SERVER.{own}.GATEWAYZ", b'{"name":"B"}')
            stats = await ask(client, f"$SYS.REQ.SERVER.{own}.STATSZ")
            keys = sorted(page_of["data"]["outbound_gateways"]), sorted(page_of["data"])
            figures = plain(stats["statsz"]["gateways"], LEFT | {"inbound_connections"})
            found.append((names, keys, figures))
    assert found[0] == found[1]


@pytest.mark.skipif(TOOL is None, reason="there is no nats tool")
@pytest.mark.parametrize("words", ["server ls --sort=name", "server report gateways --sort=server"])
@asynchronous
async def test_the_tool_lists_servers_and_gateways(servers: Servers, words: str) -> None:
    found = []
    for kinds in ("o-p", "p-p"):
        joined = await started(servers, kinds)
        said = run(joined.members[0], f"{words} --user=sys --password=sys", UNLIKE + OF_GATEWAYS)
        assert said.code == 0, said
        found.append(sorted(said.lines))
    assert found[0] == found[1]


@asynchronous
async def test_connections_of_an_account_in_all_clusters(servers: Servers) -> None:
    """The limit of an account holds for the servers of all clusters together."""
    joined = await started(servers, "o-p")
    async with clients_of(joined.members), connected(joined.members[0], **SYS) as client:

        async def counted() -> bool:
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            await client.publish("$SYS.REQ.ACCOUNT.ONE.CONNS", b"", reply=inbox)
            conns = []
            for _ in joined.members:
                try:
                    answer = json.loads((await answers.next_msg(2)).data)
                except TimeoutError:
                    return False
                conns.append(answer.get("data", answer).get("conns"))
            return conns == [1, 1]

        await until(counted, 30)
