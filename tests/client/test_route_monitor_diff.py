"""What members of a cluster tell of its routes, each of ours beside one of nats-server in the same
place: pages of monitoring, requests to `$SYS` and the `nats` tool."""

import json
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import Cluster, clients, meet, page
from tests.client.nats_tool import TOOL, run
from tests.client.test_monitor_diff import VOLATILE, VOLATILE_TOTALS, plain
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

USERS = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        ONE { users: [{ user: one, password: x }] }
    }
    system_account: SYS
    no_auth_user: one
"""
SYS = {"user": "sys", "password": "sys"}
ROUTES_OF_A_PEER = 4
"""Connections between two members: three of the pool, and that of the system account."""
OF_ROUTES = VOLATILE | VOLATILE_TOTALS | {"rid", "pending_size", "pending", "num_slow_consumers"}
OF_TRAFFIC = frozenset(("in_msgs", "in_bytes", "out_msgs", "out_bytes"))
"""Of single routes: servers tell each other of themselves on that of the system account."""


def all_there(cluster: Cluster) -> bool:
    """Whether each member has all its connections to all others."""
    wanted = (len(cluster.members) - 1) * ROUTES_OF_A_PEER
    return all(page(one, "routez")["num_routes"] == wanted for one in cluster.members)


async def started(servers: Servers, kinds: str, name: str = "C", **options: Any) -> Cluster:
    cluster = Cluster(servers, name)
    cluster.start(kinds, rest=USERS, monitor=True, **options)
    await until(lambda: all_there(cluster), 20)
    return cluster


def seen(server: Server, path: str, cluster: Cluster) -> Any:
    """A page about routes as a comparison sees it: who, by which account, dialled by whom."""
    found = page(server, path)
    ids = {page(one, "varz")["server_id"]: "id" for one in cluster.members}
    for route in found["routes"]:
        route["remote_id"] = ids[route["remote_id"]]
    found["routes"].sort(key=lambda r: (r["remote_name"], r.get("account", ""), r["did_solicit"]))
    return plain(found, OF_ROUTES | OF_TRAFFIC)


@asynchronous
async def test_routez(servers: Servers) -> None:
    """The second of two members is ours in one cluster and nats-server in the other."""
    ours, theirs = await started(servers, "po"), await started(servers, "pp")
    assert seen(ours.members[1], "routez", ours) == seen(theirs.members[1], "routez", theirs)


@asynchronous
async def test_routez_of_who_is_dialled(servers: Servers) -> None:
    ours, theirs = await started(servers, "op"), await started(servers, "pp")
    assert seen(ours.members[0], "routez", ours) == seen(theirs.members[0], "routez", theirs)


@pytest.mark.parametrize("subs", ["1", "detail"])
@asynchronous
async def test_subscriptions_of_routes(servers: Servers, subs: str) -> None:
    found = []
    for kinds in ("po", "pp"):
        cluster = await started(servers, kinds)
        async with clients(cluster) as members:
            await members[0].subscribe("some.*")
            await members[0].subscribe("other", "queue")
            await meet(members)
            routes = page(cluster.members[1], f"routez?subs={subs}")["routes"]
            key = "subscriptions_list_detail" if subs == "detail" else "subscriptions_list"
            mine = [sub for r in routes if not r.get("account") for sub in r.get(key, [])]
            shown = [sub if isinstance(sub, str) else {**sub, "cid": 0} for sub in mine]
            found.append(
                sorted(json.dumps(s) for s in shown if "some" in str(s) or "other" in str(s))
            )
    assert found[0] == found[1]
    assert len(found[0]) == 2


CLUSTER_OF_VARZ = ("cluster", "routes", "remotes", "connections", "slow_consumer_stats")


@pytest.mark.parametrize("member", [0, 1])
@asynchronous
async def test_varz(servers: Servers, member: int) -> None:
    found = []
    for kinds in ("oo", "op", "po", "pp"):
        cluster = await started(servers, kinds)
        varz = page(cluster.members[member], "varz")
        varz["cluster"]["cluster_port"] -= cluster.ports[member]
        varz["cluster"]["urls"] = [
            url.replace(str(cluster.ports[0]), "port") for url in varz["cluster"].get("urls", [])
        ]
        found.append({key: varz[key] for key in CLUSTER_OF_VARZ})
    assert found == [found[-1]] * len(found)


OF_CLIENTS = ("in_client_msgs", "in_client_bytes", "out_client_msgs", "out_client_bytes")


@asynchronous
async def test_messages_of_clients_count_by_themselves(servers: Servers) -> None:
    """What came over routes or went there is no message of a client."""
    found = [await client_figures(await started(servers, kinds)) for kinds in ("po", "pp")]
    assert found[0] == found[1]
    assert found[0]["in_client_msgs"] == 100 and found[0]["out_client_bytes"] == 500


async def client_figures(cluster: Cluster) -> dict[str, int]:
    """What the second member counts of its clients' messages, as a hundred come from its clients
    and a hundred go to them, all with the first member's clients at the other end."""
    async with clients(cluster) as members:
        got: list[bytes] = []

        async def take(message: Any) -> None:
            got.append(message.data)

        await members[1].subscribe("there", cb=take)
        await members[0].subscribe("back", cb=take)
        await meet(members)
        before = page(cluster.members[1], "varz")
        for _ in range(100):
            await members[0].publish("there", b"12345")
            await members[1].publish("back", b"123")
        await until(lambda: len(got) == 200)
        after = page(cluster.members[1], "varz")
    assert after["in_msgs"] - before["in_msgs"] >= 200
    assert after["out_msgs"] - before["out_msgs"] >= 200
    return {key: after[key] - before[key] for key in OF_CLIENTS}


async def ask(client: Client, subject: str, payload: bytes = b"") -> Any:
    return json.loads((await client.request(subject, payload, timeout=10)).data)


@asynchronous
async def test_statsz_has_routes(servers: Servers) -> None:
    found = []
    for kinds in ("po", "pp"):
        cluster = await started(servers, kinds)
        own = page(cluster.members[1], "varz")["server_id"]
        async with connected(cluster.members[1], **SYS) as client:
            answer: Any = None

            async def knows_both(client: Client = client, own: str = own) -> bool:
                nonlocal answer
                answer = await ask(client, f"$SYS.REQ.SERVER.{own}.STATSZ")
                return bool(answer["statsz"]["active_servers"] == 2)

            await until(knows_both)  # nats-server counts whom it has heard of
        routes = answer["statsz"]["routes"]
        assert answer["server"]["cluster"] == "C"
        found.append([plain(route, OF_ROUTES | {"msgs", "bytes"}) for route in routes])
    assert found[0] == found[1]


@asynchronous
async def test_routes_cannot_be_kicked(servers: Servers) -> None:
    found = []
    for kinds in ("po", "pp"):
        cluster = await started(servers, kinds)
        member = cluster.members[1]
        own = page(member, "varz")["server_id"]
        rids = [route["rid"] for route in page(member, "routez")["routes"]]
        async with connected(member, **SYS) as client:
            for rid in rids:
                answer = await ask(client, f"$SYS.REQ.SERVER.{own}.KICK", b'{"cid":%d}' % rid)
                found.append(answer["error"])
        assert [route["rid"] for route in page(member, "routez")["routes"]] == rids
    assert found == [found[-1]] * len(found)


@asynchronous
async def test_servers_are_asked_by_their_cluster(servers: Servers) -> None:
    cluster = await started(servers, "opo", name="EAST")
    async with connected(cluster.members[0], **SYS) as client:
        for asked, names in (
            ({"cluster": "EAS"}, "ABC"),
            ({"cluster": "EAS", "exact_match": True}, ""),
            ({"cluster": "EAST", "exact_match": True}, "ABC"),
            ({"cluster": "WEST"}, ""),
            ({"cluster": "EAST", "server_name": "B"}, "B"),
        ):
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            payload = json.dumps(asked).encode()
            await client.publish("$SYS.REQ.SERVER.PING.IDZ", payload, reply=inbox)
            await client.publish("$SYS.REQ.SERVER.PING.VARZ", payload, reply=inbox)
            seen_names: list[str] = []
            while len(seen_names) < len(names):
                answer = json.loads((await answers.next_msg(10)).data)
                if "server" in answer:
                    assert answer["server"]["cluster"] == "EAST"
                    seen_names.append(answer["server"]["name"])
            await client.flush()
            assert sorted(seen_names) == list(names), asked


UNLIKE = (
    (r"(│ no +│ +\d+ +│) +\d+", r"\1 <subs>"),
    (r"(│ +3 +│ +│ +0 +│ +1 +│) +\d+", r"\1 <subs>"),
    (r"│[^│\n]*│[^│\n]*│[^│\n]*(│[^│\n]*│[^│\n]*│) rid:\d+", r"│\1 <rid>"),
    (r"│ +\d+ +(│ +[\d.]+ [KMGT]?i?B +│ +[\d.]+ [KMGT]?i?B)", r"│ <subs> \1"),
    (r"(│ +(?:<size>|[\d.]+ [KMGT]?i?B) +│) +\d+(?= +│)", r"\1 <cpu>"),
)
"""How many services each server has, which connection is which, how busy a server is, and whose row
comes first: the tool leaves out a name that stands in the row above."""


@pytest.mark.skipif(TOOL is None, reason="there is no nats tool")
@pytest.mark.parametrize("words", ["server ls --sort=name", "server report routes --sort=name"])
@asynchronous
async def test_the_tool_lists_servers_and_routes(servers: Servers, words: str) -> None:
    found = []
    for kinds in ("opo", "ppp"):
        cluster = await started(servers, kinds)
        said = run(cluster.members[0], f"{words} --user=sys --password=sys", UNLIKE)
        assert said.code == 0, said
        found.append(sorted(said.lines))
    assert found[0] == found[1]
