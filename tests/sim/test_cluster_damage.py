"""Messages that damage has cost a member come back from its group."""

from tests.sim.cluster import Cluster
from tests.sim.cluster_kinds import KINDS
from tests.sim.faults import snapshot
from tests.sim.servers import Server
from tests.unit.stream_world import SECOND

BLOCK = b"/S/msgs/1.blk"


def published(seconds: int = 5) -> Cluster:
    cluster = Cluster(1, KINDS["three"])
    cluster.begin()
    cluster.run(seconds * SECOND)
    return cluster


def follower(cluster: Cluster) -> Server:
    return next(server for server in cluster.servers if not server.leads())


def hurt(server: Server, at: float) -> None:
    """Flips a bit of a block while the server is down."""
    server.kill()
    data = bytearray(server.disk.read(BLOCK))
    data[int(len(data) * at)] ^= 1
    server.disk.write(BLOCK, bytes(data))
    server.start()


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
