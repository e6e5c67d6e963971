"""What of their interest members of a cluster tell each other, and what counts, each of ours beside
one of nats-server in the same place."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.client.aio import asynchronous, until
from tests.client.mesh import Cluster, clients, meet, page
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPEN = '"$SYS.>", "_INBOX.>", "probe.>"'
"""What tests and servers need themselves."""
RULES = {
    "nothing": "",
    "import allow": f'permissions {{ import: {{ allow: ["a.*", "b.>", {OPEN}] }} }}',
    "import deny": 'permissions { import: { deny: ["a.*", "b"] } }',
    "import both": f'permissions {{ import: {{ allow: ["*.>", {OPEN}], deny: "a.x" }} }}',
    "export allow": f'permissions {{ export: {{ allow: ["a.x", "b.>", {OPEN}] }} }}',
    "export deny": 'permissions { export: { deny: ["a.x", "b.*"] } }',
    "both": 'permissions { import: { deny: "a.x" }, export: { deny: "a.y" } }',
    "of a login": 'authorization { permissions { export: { deny: "a.*" } } }',
}
SUBJECTS = ("a", "b", "a.x", "a.y", "a.x.y", "b.x", "b.x.y", "c")
PATTERNS = ("a.*", "a.>", "b.*.y", ">")
_groups = itertools.count(1)


async def crossing(cluster: Cluster, sender: int, receiver: int) -> list[str]:
    """What gets from a client of one member to those who listen at another: `subscription subject`
    for each message. Its queue groups are new: members whose clients have just gone may be there
    for a while, and would be chosen."""
    got: list[str] = []
    group = f"of-{next(_groups)}"
    async with clients(cluster) as members:
        for subject in SUBJECTS + PATTERNS:
            for queue in ("", f"{group}-{subject}"):

                async def take(message: Any, on: str = f"{subject} {queue and 'queue'}") -> None:
                    if message.subject in SUBJECTS:
                        got.append(f"{on} {message.subject}")

                await members[receiver].subscribe(subject, queue, cb=take)
        ended = asyncio.Event()

        async def end(_: Any) -> None:
            ended.set()

        await members[receiver].subscribe("probe.end", cb=end)
        await meet(members)
        for subject in SUBJECTS:
            await members[sender].publish(subject, b"")
        await members[sender].publish("probe.end", b"")
        await members[sender].flush()
        await asyncio.wait_for(ended.wait(), 20)
    return sorted(got)


def with_rules(servers: Servers, kinds: str, rules: str, name: str = "C") -> Cluster:
    """Two members; the first one has the rules."""
    cluster = Cluster(servers, name)
    cluster.add(kinds[0], block=rules, monitor=True)
    cluster.add(kinds[1], monitor=True)
    return cluster


@pytest.mark.parametrize("rules", RULES)
@asynchronous
async def test_what_crosses(servers: Servers, rules: str) -> None:
    """A message counts once for each subscription that it reaches there."""
    found = []
    for kinds in ("op", "pp"):
        cluster = with_rules(servers, kinds, RULES[rules])
        found.append([await crossing(cluster, 0, 1), await crossing(cluster, 1, 0)])
    assert found[0] == found[1]
    assert rules != "nothing" or len(found[0][0]) > 2 * len(SUBJECTS)


@asynchronous
async def test_a_pattern_takes_no_more_than_is_allowed(servers: Servers) -> None:
    """`a.>` counts where `a.*` is allowed, as with nats-server; what lies beyond does not cross."""
    rules = f'permissions {{ export: {{ allow: ["a.*", {OPEN}] }} }}'
    cluster = with_rules(servers, "op", rules)
    heard = await crossing(cluster, 0, 1)
    assert "a.>  a.x" in heard and "a.>  a.x.y" not in heard


@asynchronous
async def test_members_of_ours_alone(servers: Servers) -> None:
    found = []
    for kinds in ("oo", "pp"):
        cluster = with_rules(servers, kinds, RULES["both"])
        found.append([await crossing(cluster, 0, 1), await crossing(cluster, 1, 0)])
    assert found[0] == found[1]


@pytest.mark.parametrize("member", [0, 1])
@asynchronous
async def test_pages_show_what_crosses(servers: Servers, member: int) -> None:
    """A member shows its own rules, and of each route those of the other side."""
    found = []
    for kinds in ("op", "po", "pp"):
        cluster = with_rules(servers, kinds, RULES["both"])
        seen = cluster.members[member]
        await until(lambda of=seen: page(of, "routez")["num_routes"] == 4, 20)  # type: ignore[misc]
        shown = page(seen, "routez")
        of_route = shown["routes"][0]
        found.append([part.get(key) for part in (shown, of_route) for key in ("import", "export")])
    assert found == [found[-1]] * 3
