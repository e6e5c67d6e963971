"""A member gets messages from its leader's store, which is newer than the member's snapshot."""

from tests.sim.cluster import Cluster
from tests.sim.cluster_kinds import KINDS
from tests.sim.cluster_notes import Publish
from tests.sim.faults import snapshot
from tests.sim.servers import Server
from tests.unit.stream_world import SECOND

LIMITS = {"max_bytes": 12_000, "max_msgs_per_subject": 1}


def published(cluster: Cluster, subject: bytes, size: int) -> None:
    """Publishes a message and waits for its ack."""
    publisher = cluster.publishers[0]
    publisher.count += 1
    data = b"%s.%d" % (subject, publisher.count) + b" " * size
    made = Publish(subject, b"", data, cluster.now, cluster.notes.last)
    cluster.notes.published[data] = made
    publisher.attempt(made)
    assert cluster.run(10 * SECOND, lambda: data in cluster.notes.acked.values())


def quiet() -> Cluster:
    """A cluster whose clients publish nothing by themselves."""
    cluster = Cluster(1, KINDS["three"])
    cluster.stream |= LIMITS
    for client in cluster.clients:
        client.next_at = 1 << 62
    cluster.begin()
    return cluster


def kept(cluster: Cluster, server: Server) -> None:
    """Has a member replace its log by a snapshot."""
    snapshot(cluster, server)
    stream = server.stream
    assert stream is not None
    assert cluster.run(10 * SECOND, lambda: stream.state().first > stream.state().applied - 1)


def test_what_left_for_limits_leaves_a_member_that_was_behind() -> None:
    cluster = quiet()
    one = next(server for server in cluster.servers if not server.leads())
    published(cluster, b"s.old", 10)
    assert cluster.run(10 * SECOND, cluster.agreed_on)
    one.kill()
    for client in cluster.clients:
        client.move()
    published(cluster, b"s.large", 6000)
    published(cluster, b"s.other", 3000)
    for server in cluster.servers:
        if server.up:
            kept(cluster, server)
    published(cluster, b"s.next", 3500)  # the limits now remove `old`, because of `large`
    published(cluster, b"s.large", 10)
    one.start()
    assert cluster.run(30 * SECOND, cluster.agreed_on)
    cluster.run(2 * SECOND)
    first = cluster.servers[0].has()
    assert sorted(first[0]) == [3, 4, 5]
    for server in cluster.servers:
        assert server.has() == first
    cluster.end()
