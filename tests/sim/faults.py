"""Faults of a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.stream_world import MS, SECOND

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.sim.cluster import Cluster
    from tests.sim.disk import Call
    from tests.sim.servers import Server

    Fault = Callable[[Cluster, Server], None]


def kill(cluster: Cluster, server: Server) -> None:
    if cluster.may_stop(server):
        cluster.note(f"{server.number} is killed")
        cluster.stop(server, True)


def lose_power(cluster: Cluster, server: Server) -> None:
    if cluster.may_stop(server):
        cluster.note(f"{server.number} loses power")
        cluster.stop(server, False)


def lose_all_power(cluster: Cluster, server: Server) -> None:
    if not cluster.kind.memory:
        cluster.note("all lose power")
        for one in cluster.servers:
            if one.up:
                cluster.stop(one, False)


def lose_most_power(cluster: Cluster, server: Server) -> None:
    if not cluster.kind.memory:
        cluster.note(f"all but {server.number} lose power")
        for one in cluster.servers:
            if one.up and one is not server:
                cluster.stop(one, False)


def pause(cluster: Cluster, server: Server) -> None:
    server.paused_until = cluster.now + cluster.rng.randrange(20 * SECOND)
    cluster.note(f"{server.number} is paused until {server.paused_until / SECOND:.3f}")


def stand_still(cluster: Cluster, server: Server) -> None:
    """All servers are paused until the same moment: then many members ask for votes at once."""
    until = cluster.now + cluster.rng.randrange(20 * SECOND)
    cluster.note(f"all are paused until {until / SECOND:.3f}")
    for one in cluster.servers:
        one.paused_until = until


def cut_link(cluster: Cluster, server: Server) -> None:
    other = cluster.rng.randrange(len(cluster.servers))
    cluster.cut.add((server.number, other))
    cluster.note(f"{server.number} is not heard by {other}")


def cut_off(cluster: Cluster, server: Server) -> None:
    cluster.alone[server.number] = cluster.now + cluster.rng.randrange(15 * SECOND)
    cluster.note(f"{server.number} is alone until {cluster.alone[server.number] / SECOND:.3f}")


def lose_route(cluster: Cluster, server: Server) -> None:
    other = cluster.rng.randrange(len(cluster.servers))
    if other != server.number:
        cluster.note(f"the route of {server.number} and {other} breaks")
        cluster.break_route(server.number, other)


def slow_down(cluster: Cluster, server: Server) -> None:
    server.slow = 0 if server.slow else cluster.rng.choice((100 * MS, 2 * SECOND, 5 * SECOND))
    cluster.note(f"the disk of {server.number} takes up to {server.slow / SECOND} s")


def fill(cluster: Cluster, server: Server) -> None:
    if cluster.kind.memory:
        return  # would be the same as a stop
    cluster.note(f"the disk of {server.number} is full")
    server.disk.room(cluster.rng.choice((0, 1000, 20_000)))
    cluster.at(cluster.now + cluster.rng.randrange(5 * SECOND), server.disk.mend)


CALLS: list[Call] = ["sync", "write", "rename", "open"]


def fail(cluster: Cluster, server: Server) -> None:
    if cluster.kind.memory:
        return
    rng = cluster.rng
    what = rng.choice(CALLS)
    cluster.note(f"the disk of {server.number} fails to {what}")
    server.disk.fail(what, 5, rng.choice((0, 0, 1, 3)), rng.choice((1, 1, 2)))


def snapshot(cluster: Cluster, server: Server) -> None:
    cluster.note(f"{server.number} keeps its state")

    def keep() -> None:
        for member in (server.stream, server.consumer):
            if member is not None:
                member.snapshot()

    server.turn(keep)


def hand_over(cluster: Cluster, server: Server) -> None:
    cluster.note(f"{server.number} hands over")

    def hand() -> None:
        for member in (server.stream, server.consumer):
            if member is not None and cluster.rng.random() < 0.7:
                member.hand_over()

    server.turn(hand)


def move_clock(cluster: Cluster, server: Server) -> None:
    server.skew = cluster.rng.randrange(-15 * SECOND, 15 * SECOND)
    cluster.note(f"the clock of {server.number} is wrong by {server.skew / SECOND} s")
    server.env.set_now(cluster.wall() + server.skew)


def upkeep(cluster: Cluster, server: Server) -> None:
    server.turn(lambda: server.disk.upkeep(server.env))


def after_ack(cluster: Cluster) -> None:
    """Right after a client has got an ack, or the answer to its own ack: the leader, most servers
    or all lose power, or the leader is cut off."""
    rng = cluster.rng
    leader = next((server for server in cluster.servers if server.leads()), None)
    what = rng.random()
    if what < 0.4 or leader is None:
        lose_all_power(cluster, cluster.servers[0])
    elif what < 0.6:
        lose_most_power(cluster, rng.choice(cluster.servers))
    elif what < 0.8:
        lose_power(cluster, leader)
    else:
        cluster.alone[leader.number] = cluster.now + rng.randrange(20 * SECOND)
        cluster.note(f"{leader.number} leads, and is alone")


def after_election(cluster: Cluster, server: Server) -> None:
    """A server was elected just now: it loses power, or all servers do, before another sync."""
    if server.up:
        (lose_power if cluster.rng.random() < 0.3 else lose_all_power)(cluster, server)


def replace_disk(cluster: Cluster, server: Server) -> None:
    """One follower is behind; then the disk of another one is replaced while the leader is down."""
    leader = next((one for one in cluster.servers if one.leads()), None)
    if leader is None or cluster.damaged is not None or not cluster.kind.damage:
        return
    behind, emptied = [one for one in cluster.servers if one is not leader][:2]
    until = cluster.now + cluster.rng.randrange(SECOND, 4 * SECOND)
    cluster.alone[behind.number] = until
    cluster.note(f"{behind.number} is alone until {until / SECOND:.3f}")

    def replace() -> None:
        if cluster.peace or cluster.damaged is not None or not (leader.up and emptied.up):
            return
        cluster.note(f"{emptied.number} gets a new disk, and {leader.number} is killed")
        cluster.damaged = emptied
        cluster.stop(leader, True)
        cluster.stop(emptied, True)
        emptied.empty()

    cluster.at(until, replace)


FAULTS: list[tuple[float, Fault]] = [
    (0.004, kill),
    (0.004, lose_power),
    (0.002, lose_all_power),
    (0.001, lose_most_power),
    (0.004, pause),
    (0.001, stand_still),
    (0.008, cut_link),
    (0.004, cut_off),
    (0.005, lose_route),
    (0.003, slow_down),
    (0.002, fill),
    (0.002, fail),
    (0.01, snapshot),
    (0.004, hand_over),
    (0.003, move_clock),
    (0.005, upkeep),
    (0.004, replace_disk),
]


def some_faults(rng: random.Random) -> list[tuple[float, Fault]]:
    """The faults of a history with their chances: some never happen in it, others often."""
    often = [(chance * rng.choice((0, 0.5, 1, 3)), fault) for chance, fault in FAULTS]
    return [(chance, fault) for chance, fault in often if chance]


def files_of(server: Server, path: bytes) -> list[bytes]:
    """All files with contents, in the directory and below."""
    found = []
    for name in server.disk.names(path):
        inside = b"%s/%s" % (path, name)
        found += [inside] if server.disk.read(inside) else files_of(server, inside)
    return found


def damage(cluster: Cluster, server: Server) -> None:
    """Damages a server's disk; no other server's before all members agree again."""
    if cluster.damaged is not None:
        return
    others = [one for one in cluster.servers if one is not server]
    if cluster.rng.random() < 0.3:
        cluster.note(f"{server.number} has a new disk")
        server.empty()
        cluster.damaged = server
    elif all(other.is_current() for other in others):
        flip(cluster, server)


def flip(cluster: Cluster, server: Server) -> None:
    """Flips a bit of a file."""
    rng = cluster.rng
    files = files_of(server, b"/S") + files_of(server, b"/groups")
    if rng.random() < 0.5:  # messages, which a snapshot may stand for
        files = files_of(server, b"/S/msgs") or files
    if not files:
        return
    path = rng.choice(files)
    data = bytearray(server.disk.read(path))
    at = rng.randrange(len(data.rstrip(b"\0")) or 1)
    data[at] ^= 1 << rng.randrange(8)
    server.disk.write(path, bytes(data))
    cluster.damaged = server
    cluster.note(f"{path.decode()} of {server.number} is damaged at {at} of {len(data)}")
