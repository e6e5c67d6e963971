"""Monitoring pages of a member of a JetStream cluster, beside those of the nats-servers in it."""

import re
from typing import Any

import pytest

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import Cluster, page
from tests.client.test_meta_member import Members, ask
from tests.servers import Server, Servers

SAME = ("size", "quorum_needed", "committed", "applied", "leader", "ever_had_leader", "term")
pytestmark = pytest.mark.usefixtures("peer_present")


def meta(member: Server) -> dict[str, Any]:
    """The page's part about the meta group."""
    found: dict[str, Any] = page(member, "raftz")["SYS"]["_meta_"]
    return found


@asynchronous
async def test_raftz_is_as_theirs(servers: Servers) -> None:
    members = Members(servers)
    leader = await members.led()
    async with connected(members.ours) as client:
        await ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    (follower,) = (one for one in members.real if one is not leader)
    await until(lambda: meta(members.ours)["applied"] == meta(leader)["applied"])
    ours, theirs, leads = meta(members.ours), meta(follower), meta(leader)
    assert ours.keys() - {"voted_for"} == theirs.keys() - {"voted_for"}
    for key in SAME:
        assert ours[key] == theirs[key] == leads[key], key
    for key in ("pterm", "pindex", "state", "system_account", "traffic_account"):
        assert ours[key] == theirs[key], key
    assert ours["id"] in leads["peers"]
    assert {one["name"] for one in ours["peers"].values()} == {"A", "B"}
    assert ours["peers"].keys() == leads["peers"].keys() - {ours["id"]} | {leads["id"]}
    assert ours["peers"][leads["id"]]["last_seen"].endswith("s")
    assert page(members.ours, "raftz?group=none") == page(leader, "raftz?group=none") == {}
    assert page(members.ours, "healthz?js-meta-only=1") == {"status": "ok"}


def shape(value: Any, path: str = "") -> set[str]:
    """The keys of a page, with names of groups and ids of members made equal."""
    if isinstance(value, dict):
        found = set()
        for key, below in value.items():
            known = re.sub(r"^[SC]-R3[FM]-.*|^[A-Za-z0-9]{8}$", "*", key)
            found |= shape(below, f"{path}/{key if key in PLAIN else known}")
        return found
    if isinstance(value, list):
        return {field for below in value for field in shape(below, f"{path}[]")}
    return {path}


PLAIN = ("accounts", "replicas", "messages", "max_msgs", "metadata", "subjects", "ack_wait")
"""Keys whose values are as long as an id."""
PAGES = ("raftz?acc=ONE", "jsz?consumers=1&config=1&raft=1", "jsz?acc=ONE&streams=1")
OURS_ALONE = {"/config/sync_always", "/config/sync_interval"}
NEWER_ALONE = {"/meta_cluster/quorum_needed", "/limits/default_max_consumers"}
"""What nats-server shows since 2.15."""


async def filled(servers: Servers, kinds: str) -> Cluster:
    """A cluster with streams and consumers of one and of three replicas, all with messages."""
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.whole()
    async with connected(cluster.members[0]) as client:
        for name, replicas in (("S", 3), ("T", 1)):
            config = {"name": name, "subjects": [name], "num_replicas": replicas}

            async def made(name: str = name, config: object = config) -> bool:
                return "error" not in await api(client, f"STREAM.CREATE.{name}", config)

            await until(made, 60)
            for consumer, of_it in (("D", replicas), ("ONE", 1)):
                about = {"durable_name": consumer, "num_replicas": of_it, "ack_policy": "explicit"}
                body = {"stream_name": name, "config": about}
                await api(client, f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", body)
            for _ in range(10):
                await client.jetstream(timeout=10).publish(name, b"x" * 100)
    return cluster


def settled(cluster: Cluster) -> bool:
    """Whether all members know the account's usage on the others."""
    said = [page(one, "jsz?acc=ONE")["account_details"][0] for one in cluster.members]
    used = {(one["storage"], one["api"]["total"], one["api"]["errors"]) for one in said}
    return len(used) == 1 and said[0]["storage"] == 4 * 10 * USED


USED = 131
"""Bytes of a message of `filled` in a stream."""


@asynchronous
async def test_pages_of_streams_are_as_theirs(servers: Servers) -> None:
    theirs = await filled(servers, "ppp")
    await until(lambda: settled(theirs), 30)
    for kinds in ("ooo", "oop"):
        ours = await filled(servers, kinds)
        await until(lambda ours=ours: settled(ours), 30)  # type: ignore[misc]
        for path in PAGES:
            fields = [
                set().union(*(shape(page(one, path)) for one in cluster.members))
                - OURS_ALONE
                - NEWER_ALONE
                for cluster in (ours, theirs)
            ]
            assert fields[0] == fields[1], (kinds, path)
        found = [page(one, "jsz?raft=1") for one in ours.members]
        assert sum(one["streams"] for one in found) == 4
        assert sum(one.get("streams_leader", 0) for one in found) == 2
        assert sum(one.get("consumers_leader", 0) for one in found) == 4
        assert {page(one, "jsz")["ha_assets"] for one in ours.members} == {3}
        for cluster in (ours, theirs):
            for one in cluster.members:
                assert page(one, "healthz") == {"status": "ok"}
