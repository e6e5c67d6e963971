"""What hubs and leaf nodes tell of each other, each of ours beside one of nats-server in the same
place: pages of monitoring, requests to `$SYS` and the `nats` tool."""

import json
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.leafs import Tree
from tests.client.mesh import clients_of, meet, page
from tests.client.nats_tool import TOOL, run
from tests.client.test_monitor_diff import VOLATILE, VOLATILE_TOTALS, plain
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ACCOUNTS = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        ONE { users: [{ user: one, password: x }] }
    }
    system_account: SYS
    no_auth_user: one
"""
SYS = {"user": "sys", "password": "sys"}
REMOTE = "account: ONE, deny_imports: [no.in], deny_exports: [no.out, no.more]"
TRAFFIC = frozenset(("in_msgs", "in_bytes", "out_msgs", "out_bytes", "subscriptions"))
"""Of a leaf link: what the servers themselves ask each other, and how many services each has."""
UNLIKE = VOLATILE | VOLATILE_TOTALS | TRAFFIC | {"id", "pending_size", "num_slow_consumers"}


async def started(servers: Servers, kinds: str) -> Tree:
    tree = Tree(servers)
    tree.add_hub(kinds[0], rest=ACCOUNTS, block="compression: off", monitor=True)
    remote = f"{REMOTE}\ncompression: off"
    tree.add_leaf(kinds[1], remote=remote, rest=ACCOUNTS, monitor=True)

    def joined() -> bool:
        return all(page(member, "leafz")["leafnodes"] == 1 for member in tree.members)

    await until(joined, 30)
    return tree


SIDES = pytest.mark.parametrize(("kinds", "side"), [("op", 0), ("po", 1)], ids=["hub", "leaf"])
"""Ours in one of the two places, beside nats-server in both."""


@SIDES
@asynchronous
async def test_leafz(servers: Servers, kinds: str, side: int) -> None:
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        member = tree.members[side]
        shown = [page(member, path) for path in ("leafz", "leafz?acc=ONE", "leafz?acc=SYS")]
        found.append([plain(one, UNLIKE) for one in shown])
    assert found[0] == found[1]


@SIDES
@asynchronous
async def test_subscriptions_of_leafs(servers: Servers, kinds: str, side: int) -> None:
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        async with clients_of(tree.members) as members:
            await members[1 - side].subscribe("some.*")
            await members[1 - side].subscribe("other", "queue")
            await meet(members)
            (leaf,) = page(tree.members[side], "leafz?subs=1")["leafs"]
            found.append({s for s in leaf["subscriptions_list"] if s in ("some.*", "other")})
    assert found[0] == found[1] == {"some.*", "other"}


OF_VARZ = ("leaf", "leafnodes", "connections", "slow_consumer_stats", "stale_connection_stats")


@SIDES
@asynchronous
async def test_varz(servers: Servers, kinds: str, side: int) -> None:
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        varz = page(tree.members[side], "varz")
        text = json.dumps({key: varz[key] for key in OF_VARZ}).replace(str(tree.port), "7422")
        found.append(json.loads(text))
    for one in found:
        one["leaf"].pop("tls_timeout", None)
        for remote in one["leaf"].get("remotes", []):
            remote.pop("tls_timeout", None)
    assert found[0] == found[1]


@SIDES
@asynchronous
async def test_the_accounts_of_leafs(servers: Servers, kinds: str, side: int) -> None:
    """How many connections an account has, and what they moved."""
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        member = tree.members[side]
        async with clients_of(tree.members) as members:
            got: list[bytes] = []

            async def take(message: Any, got: list[bytes] = got) -> None:
                got.append(message.data)

            await members[side].subscribe("there", cb=take)
            await meet(members)
            before = figures(member)
            for _ in range(100):
                await members[1 - side].publish("there", b"12345")
            await until(lambda got=got: len(got) == 100)  # type: ignore[misc]
            after = figures(member)
        one = page(member, "accountz?acc=ONE")["account_detail"]
        moved = after["received"]["leafs"]["bytes"] - before["received"]["leafs"]["bytes"]
        counts = [after[key] for key in ("conns", "leafnodes", "total_conns")]
        found.append([one["leafnode_connections"], moved, *counts])
    assert found[0] == found[1] == [1, 500, 1, 1, 2]


def figures(member: Server) -> dict[str, Any]:
    (one,) = [s for s in page(member, "accstatz")["account_statz"] if s["acc"] == "ONE"]
    return dict(one)


async def ask(client: Client, subject: str, payload: bytes = b"") -> Any:
    return json.loads((await client.request(subject, payload, timeout=10)).data)


@SIDES
@asynchronous
async def test_requests_about_leafs(servers: Servers, kinds: str, side: int) -> None:
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        member = tree.members[side]
        own = page(member, "varz")["server_id"]
        async with connected(member, **SYS) as client:
            answers = [
                await ask(client, f"$SYS.REQ.SERVER.{own}.LEAFZ"),
                await ask(client, f"$SYS.REQ.SERVER.{own}.LEAFZ", b'{"account": "SYS"}'),
                await ask(client, "$SYS.REQ.ACCOUNT.ONE.LEAFZ"),
            ]
            found.append([plain(answer["data"], UNLIKE) for answer in answers])
    assert found[0] == found[1]


@pytest.mark.skipif(TOOL is None, reason="there is no nats tool")
@SIDES
@asynchronous
async def test_the_tool_reports_leafs(servers: Servers, kinds: str, side: int) -> None:
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        words = "server report leafnodes --user=sys --password=sys"
        unlike = (
            (r"127\.0\.0\.1:\d+", "<address>"),
            (r"[\d.]+(?:ms|µs|s|us)", "<rtt>"),
            (r"│ +[\d.]+ *[kKMG]?i?B? +│ +[\d.]+ *[kKMG]?i?B? +(?=│)", "│ <moved> │ <moved> "),
            (r"│ +\d+ +│(?=$|\n)", "│ <subs> │"),
            (r"─+", "─"),
            (r" +", " "),
        )
        said = run(tree.members[side], words, unlike)
        assert said.code == 0, said
        found.append(said.lines)
    assert found[0] == found[1]


@SIDES
@asynchronous
async def test_leafs_can_be_kicked(servers: Servers, kinds: str, side: int) -> None:
    """And come again."""
    found = []
    for both in (kinds, "pp"):
        tree = await started(servers, both)
        member = tree.members[side]
        own = page(member, "varz")["server_id"]
        (leaf,) = page(member, "leafz")["leafs"]
        async with connected(member, **SYS) as client:
            answer = await ask(client, f"$SYS.REQ.SERVER.{own}.KICK", b'{"cid":%d}' % leaf["id"])
            found.append(sorted(answer))

        def has_come_again(member: Server = member, before: int = leaf["id"]) -> bool:
            return [one["id"] != before for one in page(member, "leafz")["leafs"]] == [True]

        await until(has_come_again, 30)
        assert "Leafnode connection closed: Kicked" in member.log()
    assert found[0] == found[1]
