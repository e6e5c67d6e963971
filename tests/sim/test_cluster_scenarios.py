"""Single faults of a cluster with publishers and readers at work: publishes are acked again within
a bound, and in the end all replicas have every acked message.

`CLUSTER_SCENARIOS` (2): how many seeds for each fault.
"""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.sim.cluster import Cluster
from tests.sim.cluster_kinds import KINDS
from tests.sim.faults import fail, fill, hand_over, kill, lose_all_power, lose_power, snapshot
from tests.sim.servers import Server
from tests.unit.stream_world import SECOND

SEEDS = range(1, 1 + int(os.environ.get("CLUSTER_SCENARIOS", "2")))
GOES_ON = 10
"""Seconds within which there is another leader, and publishes are acked again."""


@pytest.fixture(params=SEEDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster after five good seconds; at the end it has to recover fully."""
    made = Cluster(request.param, KINDS["three"])
    made.pace = SECOND // 5
    made.begin()
    made.run(5 * SECOND)
    yield made
    made.end_well()
    made.end()


def leader(cluster: Cluster) -> Server:
    assert cluster.run(20 * SECOND, lambda: any(server.leads() for server in cluster.servers))
    return next(server for server in cluster.servers if server.leads())


def followers(cluster: Cluster) -> list[Server]:
    first = leader(cluster)
    return [server for server in cluster.servers if server is not first]


def goes_on(cluster: Cluster, seconds: float = GOES_ON) -> None:
    """Waits until a publish that begins from now on is acked."""
    began, notes = cluster.now, cluster.notes

    def acked() -> bool:
        last = notes.acked.get(notes.last)
        return last is not None and notes.published[last].began >= began

    assert cluster.run(int(seconds * SECOND), acked), "publishes are not acked again"


def stands_still(cluster: Cluster, seconds: float) -> None:
    """Checks that nothing is acked, as there is no majority. Messages under way arrive first."""
    cluster.run(SECOND)
    before = len(cluster.notes.acked)
    cluster.run(int(seconds * SECOND))
    assert len(cluster.notes.acked) == before


def restart(cluster: Cluster, server: Server) -> None:
    cluster.start(server)
    for client in cluster.clients:
        client.move()


def test_leaders_are_killed_one_after_the_other(cluster: Cluster) -> None:
    for _ in range(4):
        kill(cluster, leader(cluster))
        goes_on(cluster)


def test_followers_are_killed_one_after_the_other(cluster: Cluster) -> None:
    for _ in range(4):
        kill(cluster, followers(cluster)[0])
        goes_on(cluster, 3)


def test_a_leader_hands_over_within_a_second(cluster: Cluster) -> None:
    for _ in range(4):
        hand_over(cluster, leader(cluster))
        goes_on(cluster, 5)


@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "a follower"])
def test_one_is_cut_off(cluster: Cluster, leads: bool) -> None:
    one = leader(cluster) if leads else followers(cluster)[0]
    cluster.alone[one.number] = cluster.now + 40 * SECOND
    others = [server for server in cluster.servers if server is not one]
    for client in cluster.clients:
        client.home = others[0].number
    goes_on(cluster, 12)
    cluster.run(cluster.alone[one.number] - cluster.now - SECOND)
    assert not one.leads(), "who hears nobody leads no more"


def test_nobody_hears_anybody(cluster: Cluster) -> None:
    for server in cluster.servers:
        cluster.alone[server.number] = cluster.now + 30 * SECOND
    stands_still(cluster, 25)
    cluster.run(5 * SECOND)
    goes_on(cluster, 20)


def test_a_leader_is_heard_and_hears_nobody(cluster: Cluster) -> None:
    one = leader(cluster).number
    cluster.cut |= {(other, one) for other in range(3)}
    goes_on(cluster, 40)  # the followers hear heartbeats until the leader gives up


def test_a_leader_hears_and_is_not_heard(cluster: Cluster) -> None:
    one = leader(cluster)
    cluster.cut |= {(one.number, other) for other in range(3)}
    for client in cluster.clients:
        client.home = (one.number + 1) % 3
    goes_on(cluster, 15)


@pytest.mark.parametrize("seconds", [1, 5, 20, 60])
def test_a_leader_is_paused(cluster: Cluster, seconds: int) -> None:
    one = leader(cluster)
    one.paused_until = cluster.now + seconds * SECOND
    for client in cluster.clients:
        client.home = (one.number + 1) % 3
    goes_on(cluster, 15)
    cluster.run(max(0, one.paused_until - cluster.now) + 5 * SECOND)


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clock_of_a_leader_is_wrong(cluster: Cluster, hours: int) -> None:
    one = leader(cluster)
    one.env.set_now(cluster.wall() + hours * 3600 * SECOND)
    goes_on(cluster, 3)
    cluster.run(10 * SECOND)
    one.env.set_now(cluster.wall())


def test_disks_are_slow(cluster: Cluster) -> None:
    for server in cluster.servers:
        server.slow = 3 * SECOND
    goes_on(cluster, 30)


@pytest.mark.parametrize("fault", [fill, fail], ids=["full", "failing"])
def test_the_disk_of_a_leader_refuses(
    cluster: Cluster, fault: Callable[[Cluster, Server], None]
) -> None:
    for _ in range(3):
        fault(cluster, leader(cluster))
        goes_on(cluster, 20)


def test_all_are_restarted_in_turn(cluster: Cluster) -> None:
    for server in cluster.servers:
        server.kill()
        cluster.run(2 * SECOND)
        restart(cluster, server)
        assert cluster.run(30 * SECOND, cluster.agreed_on), cluster.figures()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_so_many_lose_power_at_once(cluster: Cluster, n: int) -> None:
    for _ in range(3):
        for server in cluster.servers[:n]:
            if server.up:
                lose_power(cluster, server)
        goes_on(cluster, 40)


def test_the_disk_of_one_is_replaced(cluster: Cluster) -> None:
    one = followers(cluster)[0]
    one.kill()
    one.empty()
    restart(cluster, one)
    goes_on(cluster, 5)


def test_a_new_disk_elects_nobody_who_is_behind(cluster: Cluster) -> None:
    """Two of three servers had the acked messages: one gets a new disk, the other one is down."""
    first = leader(cluster)
    behind, emptied = followers(cluster)
    cluster.alone[behind.number] = 1 << 62
    for client in cluster.clients:
        client.home = first.number
    cluster.run(2 * SECOND)
    goes_on(cluster, 3)
    emptied.kill()
    first.kill()
    emptied.empty()
    cluster.alone.clear()
    restart(cluster, emptied)
    stands_still(cluster, 30)
    restart(cluster, first)
    goes_on(cluster, 30)


def test_all_start_from_snapshots(cluster: Cluster) -> None:
    for server in cluster.servers:
        snapshot(cluster, server)
    cluster.run(3 * SECOND)
    lose_all_power(cluster, cluster.servers[0])
    goes_on(cluster, 30)


def test_a_pause_that_ends_early_keeps_the_order_of_a_route() -> None:
    cluster = Cluster(1, KINDS["three"])
    cluster.begin()
    one = cluster.servers[0]
    heard: list[int] = []
    one.paused_until = cluster.now + 10 * SECOND
    cluster.route(1, 0, heard.append, 1)
    cluster.run(SECOND)
    one.paused_until = cluster.now
    cluster.route(1, 0, heard.append, 2)
    cluster.run(SECOND)
    assert heard == [1, 2]
    cluster.end()
