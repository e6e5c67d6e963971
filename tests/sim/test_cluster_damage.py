"""Messages that damage has cost a member come back from its group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.cluster import Cluster
from tests.sim.cluster_kinds import KINDS
from tests.sim.faults import snapshot
from tests.sim.servers import Server
from tests.unit.stream_world import SECOND

BLOCK = b"/S/msgs/1.blk"
Lacking = Callable[[pytest.MonkeyPatch], tuple[Cluster, Server]]


def published(seconds: int = 5) -> Cluster:
    cluster = Cluster(1, KINDS["three"])
    cluster.begin()
    cluster.run(seconds * SECOND)
    return cluster


def follower(cluster: Cluster) -> Server:
    return next(server for server in cluster.servers if not server.leads())


def damage(server: Server, at: float) -> None:
    """Flips a bit of a block, at a part of the bytes that it has."""
    data = bytearray(server.disk.read(BLOCK))
    data[int(len(data.rstrip(b"\0")) * at)] ^= 1
    server.disk.write(BLOCK, bytes(data))


def hurt(server: Server, at: float) -> None:
    server.kill()
    damage(server, at)
    server.start()


def lose_catch_ups(cluster: Cluster, patch: pytest.MonkeyPatch) -> None:
    """From now on no message of a catch-up from store to store arrives."""
    carry = cluster.carry

    def lose(sender: Server, dest: bytes, *rest: bytes) -> None:
        if not dest.startswith(b"$JSC."):
            carry(sender, dest, *rest)

    patch.setattr(cluster, "carry", lose)


def restart(cluster: Cluster, server: Server) -> None:
    server.kill()
    server.start()
    cluster.run(3 * SECOND)


def test_messages_that_a_start_finds_damaged_come_again_from_the_log() -> None:
    cluster = published()
    server = follower(cluster)
    hurt(server, 0.4)
    cluster.end_well()
    assert len(server.has()[0]) == server.has()[1] > 20
    cluster.end()


def test_messages_that_a_start_finds_damaged_come_again_from_the_leader() -> None:
    """When the log no longer has them."""
    cluster = published()
    server = follower(cluster)
    for one in cluster.servers:
        snapshot(cluster, one)
    cluster.run(5 * SECOND)
    stream = server.stream
    assert stream is not None
    assert stream.state().first > 20
    hurt(server, 0.2)
    assert len(server.has()[0]) < server.has()[1], "it is not what it was"
    cluster.end_well()
    assert len(server.has()[0]) == server.has()[1] > 20
    cluster.end()


def spoil(server: Server) -> None:
    """Makes a block unreadable while the server is down: what it had is not known."""
    data = server.disk.read(BLOCK)
    server.disk.write(BLOCK, bytes(byte ^ 1 for byte in data))


def behind(patch: pytest.MonkeyPatch) -> tuple[Cluster, Server]:
    """A member that has its leader's snapshot, and nothing of what the snapshot stands for: its
    block has become unreadable, and no catch-up arrives until the patch is undone. Nobody reads
    until then."""
    cluster = published()
    server = follower(cluster)
    server.kill()
    for reader in cluster.readers:
        reader.next_at = 1 << 62
    cluster.run(3 * SECOND)
    for one in cluster.servers:
        if one.up:
            snapshot(cluster, one)
    cluster.run(2 * SECOND)
    lose_catch_ups(cluster, patch)
    restart(cluster, server)
    stream = server.stream
    assert stream is not None
    assert stream.state().first > server.has()[1] > 20, "the log begins behind its messages"
    server.kill()
    spoil(server)
    server.start()
    return cluster, server


def holed(patch: pytest.MonkeyPatch) -> tuple[Cluster, Server]:
    """A member with a damaged message that its log has no more, and one that the log has: no
    catch-up arrives until the patch is undone. Nobody has read either message."""
    cluster = Cluster(1, KINDS["three"])
    for reader in cluster.readers:
        reader.next_at = 1 << 62
    cluster.begin()
    cluster.run(5 * SECOND)
    server = follower(cluster)
    snapshot(cluster, server)
    cluster.run(5 * SECOND)
    lose_catch_ups(cluster, patch)
    stream = server.stream
    assert stream is not None
    first = stream.state().first
    server.kill()
    for place in (0.1, 0.9):
        damage(server, place)
    server.start()
    lost = [seq for seq in range(1, first) if seq not in server.has()[0]]
    assert lost and lost[0] < first - 20, "a message survived behind one that is lost"
    return cluster, server


def read(cluster: Cluster) -> None:
    for reader in cluster.readers:
        reader.next_at = cluster.now


def comes_back(cluster: Cluster, server: Server) -> None:
    cluster.end_well()
    assert len(server.has()[0]) == server.has()[1] > 20
    cluster.end()


@pytest.mark.parametrize("lacking", [behind, holed])
def test_what_is_lacking_is_known_at_later_starts(
    lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, server = lacking(monkeypatch)
    for _ in range(2):
        restart(cluster, server)
    monkeypatch.undo()
    read(cluster)
    comes_back(cluster, server)


@pytest.mark.parametrize("lacking", [behind, holed])
def test_a_consumer_does_not_pass_over_what_its_leader_lacks(
    lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, server = lacking(monkeypatch)
    while not server.consumer_leads():
        for leader in cluster.servers:
            if leader.consumer_leads() and leader.consumer is not None:
                leader.turn(leader.consumer.hand_over)
        cluster.run(2 * SECOND)
        assert cluster.now < 300 * SECOND
    read(cluster)
    cluster.run(3 * SECOND)
    assert server.consumer_leads()
    monkeypatch.undo()
    comes_back(cluster, server)


@pytest.mark.parametrize("lacking", [behind, holed])
def test_a_leader_that_is_silent_is_asked_again(
    lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, server = lacking(monkeypatch)
    for publisher in cluster.publishers:
        publisher.next_at = cluster.now + 90 * SECOND
    cluster.run(90 * SECOND)
    monkeypatch.undo()
    read(cluster)
    comes_back(cluster, server)


def test_members_that_have_all_lost_a_message_go_on_without_it() -> None:
    cluster = published()
    for one in cluster.servers:
        snapshot(cluster, one)
    cluster.run(5 * SECOND)
    for one in cluster.servers:
        one.kill()
        damage(one, 0.1)
    for one in cluster.servers:
        one.start()
    assert cluster.run(120 * SECOND, cluster.agreed_on)
    for one in cluster.servers:
        assert len(one.has()[0]) == one.has()[1] - 1
    cluster.end()
