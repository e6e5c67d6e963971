"""A whole cluster in one process, from a seed: servers with a replicated stream and its consumer,
the network between them, clients, and faults."""

from __future__ import annotations

import heapq
import itertools
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jsserver.cext.stream import StoreError
from tests.sim.clients import Client, Publisher, Reader, homeless
from tests.sim.cluster_kinds import KINDS, Kind, stream_of
from tests.sim.cluster_notes import Notes
from tests.sim.disk import name_seed
from tests.sim.faults import after_election, damage, some_faults
from tests.sim.interest import Interest
from tests.sim.notes import Wrong
from tests.sim.servers import Server
from tests.unit.stream_world import LIMITS, MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable


FASTEST, SLOWEST = 50_000, 3 * MS
"""Nanoseconds that a message takes between two servers: at least, at most."""
CUT_AFTER_ELECTION = 0.05
"""The chance that power is lost just after an election."""
STEP = 50 * MS
"""Nanoseconds between two turns of the clients and the faults."""
AGAIN = 30 * SECOND
"""Nanoseconds at most after the last fault until publishes are answered again."""
PEACE = 90 * SECOND
"""Nanoseconds at most after the last fault until all members agree and all is read."""
LOOKED = 200 * SECOND
"""The same where acked messages are removed: the leader looks for missed ones every 150 s."""
WELL = 20 * SECOND
"""Nanoseconds at most that a cluster without faults takes to elect its leaders."""


class Cluster:
    def __init__(self, seed: int, kind: Kind, ignores_syncs: bool = False) -> None:
        name_seed(seed)
        self.seed = seed
        self.kind = kind
        self.ignores_syncs = ignores_syncs
        self.rng = random.Random(seed)
        self.now = 0
        self.order = itertools.count()
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.log: list[str] = []
        self.names = [b"server%02d" % i for i in range(kind.servers)]
        self.links: dict[tuple[int, int], int] = {}
        """When the last message of a link arrives."""
        self.breaks: dict[tuple[int, int], int] = {}
        """How often a route has broken: messages of before are lost."""
        self.interest = Interest(self)
        self.owners: dict[bytes, Server] = {}
        """The server behind each inbox of a group."""
        self.cut: set[tuple[int, int]] = set()
        """Pairs of servers: messages from the first do not reach the second."""
        self.heals = self.rng.choice((0.02, 0.02, 0.004))
        """The chance at each step that a cut link heals."""
        self.alone: dict[int, int] = {}
        self.loss = 0.0
        self.peace = True
        self.sent = 0
        self.leaders: dict[tuple[str, int], bytes] = {}
        """Leaders by group and term: no term may have two."""
        self.notes = Notes()
        self.subjects = self.rng.choice((1, 3, 20))
        self.pace = self.rng.choice((100 * MS, 300 * MS, 300 * MS, SECOND))
        self.acks = self.rng.choice((0.5, 0.9, 1.0))
        self.stream = stream_of(kind, self.rng)
        self.first = self.rng.choice((-1, self.rng.randrange(kind.servers)))
        """The number of the server that is to lead new groups first; -1: no server is chosen."""
        self.faults = some_faults(self.rng)
        self.damaged: Server | None = None
        """The server whose files were damaged, until all members agree again."""
        self.consumer: dict[str, Any] = {"ack_wait": 5 * SECOND, "max_waiting": 512}
        self.servers = [Server(self, i) for i in range(kind.servers)]
        self.publishers = [Publisher(self, i) for i in range(3)]
        self.readers = [Reader(self, 3 + i) for i in range(2)]
        self.clients: list[Client] = [*self.publishers, *self.readers]

    # ---- time

    def wall(self) -> int:
        return 1_700_000_000 * SECOND + self.now

    def at(self, when: int, do: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self.events, (when, next(self.order), do, args))

    def below(self, n: int) -> int:
        """A random number below n; faster than `randrange`, which would take a tenth of the
        time."""
        return int(self.rng.random() * n)

    def run(self, ns: int, until: Callable[[], bool] | None = None) -> bool:
        """Runs for so many ns, or until `until` is true; whether it was."""
        events = self.events
        end = self.now + ns
        step = self.now + STEP
        while self.now < end:
            if events and events[0][0] <= step:
                self.now, _, do, args = heapq.heappop(events)
                do(*args)
                continue
            self.now = step
            step += STEP
            self.interest.look()
            if until is not None and until():
                return True
            for client in self.clients:
                client.step()
            if not self.peace:
                self.disturb()
        return False

    def note(self, what: str) -> None:
        self.log.append(f"{self.now / SECOND:.3f} {what}")

    # ---- the network

    def inboxes(self) -> list[bytes]:
        return [b"inbox.c%d" % i for i in range(3, 5)]

    def reaches(self, a: int, b: int) -> bool:
        if self.cut and (a, b) in self.cut:
            return False
        alone = self.alone
        return not alone or max(alone.get(a, 0), alone.get(b, 0)) <= self.now

    def link(self, a: int, b: int, do: Callable[..., None], *args: Any) -> None:
        """A message from one server to another; messages of a link arrive in order, as on a
        route."""
        if not self.reaches(a, b) or (self.loss and self.rng.random() < self.loss):
            return
        late = 0
        if self.kind.odd and not self.peace and self.rng.random() < 0.01:
            late = self.below(5 * SECOND)
        self.route(a, b, do, *args, late=late)

    def route(self, a: int, b: int, do: Callable[..., None], *args: Any, late: int = 0) -> None:
        """As `link`, but no message is lost while the route stands. `late`: a delay in ns that
        lets later messages overtake this one."""
        pair = a, b
        when = self.now + FASTEST + self.below(SLOWEST - FASTEST) + late
        if not self.peace and self.rng.random() < 0.002:
            when += self.below(3 * SECOND)
        if not late:
            before = self.links.get(pair, 0)
            if when <= before:
                when = before + 1
            self.links[pair] = when
        self.at(when, self.comes, self.servers[b], pair, self.breaks.get(pair, 0), do, args)

    def comes(
        self,
        server: Server,
        pair: tuple[int, int],
        broken: int,
        do: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        if not server.up or self.breaks.get(pair, 0) != broken:
            return
        if not self.waits(server, self.comes, server, pair, broken, do, args):
            do(*args)

    def waits(self, server: Server, do: Callable[..., None], *args: Any) -> bool:
        """Whether a server is paused: then this waits until it goes on, behind what waits."""
        if server.paused_until <= self.now:
            self.goes_on(server)
            return False
        if not server.waiting:
            self.at(server.paused_until, self.goes_on, server)
        server.waiting.append((do, args))
        return True

    def goes_on(self, server: Server) -> None:
        if server.paused_until > self.now:
            self.at(server.paused_until, self.goes_on, server)
        elif server.waiting:
            waiting, server.waiting = server.waiting, []
            for do, args in waiting:
                do(*args)

    def carry(self, sender: Server, dest: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """Carries a server's message to other servers and to clients."""
        self.sent += 1
        kind = dest.partition(b".")[0]
        if kind == b"$NRG" or kind == b"$JSC":
            if reply.startswith(b"$NRG"):
                self.owners[reply] = sender
            owner = self.owners.get(dest)
            for server in self.servers if owner is None else (owner,):
                if server is not sender:
                    heard = server.hear_message
                    self.link(sender.number, server.number, heard, dest, reply, header, data)
        elif kind in (b"ack", b"done", b"inbox"):
            client = self.clients[int(dest.split(b".", 2)[1][1:])]
            if client.home == sender.number:
                when = self.now + FASTEST + self.below(MS)
                self.at(when, client.hear, dest, reply, data, self.now)
            else:
                self.link(
                    sender.number, client.home, client.hear, dest, reply, data, self.now
                )

    def client_says(
        self, client: Client, subject: bytes, data: bytes, reply: bytes, header: bytes
    ) -> None:
        home = self.servers[client.home]
        if not home.up:
            client.move()
            return
        pair = -1 - client.number, home.number
        when = max(self.now + FASTEST + self.below(MS), self.links.get(pair, 0) + 1)
        self.links[pair] = when
        self.at(when, self.client_said, home, subject, data, reply, header)

    def client_said(
        self, home: Server, subject: bytes, data: bytes, reply: bytes, header: bytes
    ) -> None:
        if not home.up:
            return
        if self.waits(home, self.client_said, home, subject, data, reply, header):
            return
        home.hear_client(subject, data, reply, header)
        of_consumer = subject.startswith(b"$JS.")
        for server in self.servers:
            # A route carries messages for the other server's interest at that time.
            if server is not home and (server.consumer_leads() if of_consumer else server.leads()):
                heard = server.hear_message
                self.link(home.number, server.number, heard, subject, reply, header, data)

    def break_route(self, a: int, b: int) -> None:
        """Breaks a route: messages under way are lost, and both servers notice."""
        for one, other in ((a, b), (b, a)):
            self.breaks[one, other] = self.breaks.get((one, other), 0) + 1
            self.servers[one].later(self.rng.randrange(10 * MS), self.loses(one, other))

    def loses(self, one: int, other: int) -> Callable[[], None]:
        server, name = self.servers[one], self.names[other]

        def gone() -> None:
            self.interest.lost(server, self.servers[other])
            for member in (server.stream, server.consumer):
                if member is not None:
                    member.gone(name)

        return gone

    # ---- news of servers

    def look(self, server: Server) -> None:
        """Notes changes of a server's leads."""
        for of, member in (("stream", server.stream), ("consumer", server.consumer)):
            if member is None:
                continue
            state = member.state()
            if state.role in ("elected", "leader"):
                before = self.leaders.get((of, state.term))
                if before is None:
                    self.leaders[of, state.term] = server.name
                    self.elected(server)
                elif before != server.name:
                    raise Wrong(f"term {state.term} of the {of} has two leaders")
                if of == "consumer" and server.consumer_leads():
                    with suppress(StoreError):
                        self.notes.floor(state.term, server.consumer_state().floor[1])

    def elected(self, server: Server) -> None:
        """A server leads a group that no server led in this term; something may go wrong then."""
        if not self.peace and self.rng.random() < CUT_AFTER_ELECTION:
            self.at(self.now + self.below(3 * MS), after_election, self, server)

    # ---- disks

    def sync_time(self, server: Server) -> int:
        if server.slow:
            return self.below(server.slow)
        return 100_000 + self.below(10 * MS)

    def before_commit(self, server: Server) -> None:
        if not self.peace and not self.kind.memory and self.rng.random() < 0.001:
            server.disk.cut_after(self.rng.choice((0, 1, 3, 10, 40)))

    def power_went(self, server: Server) -> None:
        """The server's power, or its process, ends in the middle of a commit."""
        killed = self.rng.random() < 0.5
        self.note(f"{server.number} {'is killed' if killed else 'loses power'} in a commit")
        self.stop(server, killed)

    def may_stop(self, server: Server) -> bool:
        """Whether a server may stop: data in memory is lost unless a majority has it."""
        return not self.kind.memory or self.agreed_on()

    def stop(self, server: Server, killed: bool) -> None:
        if killed:
            server.kill()
            for other in self.servers:
                if other is not server:
                    self.break_route(other.number, server.number)
        else:
            server.cut_power()
        homeless(self.clients, server)
        server.paused_until = 0
        server.waiting = []
        self.at(self.now + self.rng.randrange(6 * SECOND), self.start, server)

    def start(self, server: Server) -> None:
        if not server.up:
            self.note(f"{server.number} starts")
            if self.kind.damage and not self.peace:
                damage(self, server)
            server.start()

    # ---- faults

    def disturb(self) -> None:
        rng = self.rng
        for chance, do in self.faults:
            if rng.random() < chance:
                server = rng.choice(self.servers)
                if server.up and server.paused_until <= self.now:
                    do(self, server)
        if self.cut and rng.random() < self.heals:
            self.cut.clear()
        if self.damaged is not None and self.agreed_on():
            self.damaged = None

    # ---- beginning and end

    def begin(self) -> None:
        for server in self.servers:
            server.start()
        if not self.run(WELL, self.is_led):
            raise Wrong("nobody leads at first")

    def is_led(self) -> bool:
        servers = self.servers
        return any(s.leads() for s in servers) and any(s.consumer_leads() for s in servers)

    def calm(self) -> None:
        """Ends all faults."""
        self.note("peace")
        self.peace = True
        self.loss = 0.0
        self.cut.clear()
        self.alone.clear()
        for server in self.servers:
            server.slow = 0
            server.skew = 0
            if server.up:
                server.env.set_now(self.wall())
            server.paused_until = min(server.paused_until, self.now)
            server.disk.mend()
            self.start(server)
            self.goes_on(server)

    def settled(self) -> bool:
        """Whether no publisher waits for an answer, and all members have applied the same."""
        return not any(p.waiting for p in self.publishers) and self.agreed_on()

    def agreed_on(self) -> bool:
        if not all(server.is_current() for server in self.servers):
            return False
        states = [s.stream.state() for s in self.servers if s.stream is not None]
        states += [s.consumer.state() for s in self.servers if s.consumer is not None]
        if any(s.stored != s.last or s.applied != s.last or not s.leader for s in states):
            return False
        return self.is_led() and len({s.last for s in states[: len(self.servers)]}) == 1

    def end_well(self) -> None:
        self.calm()
        self.acks = 1.0
        began = self.now
        if not self.run(AGAIN, lambda: self.notes.answered >= began):
            raise Wrong(f"no publish is answered {AGAIN // SECOND} s after peace: {self.figures()}")
        self.run(5 * SECOND)
        for publisher in self.publishers:
            publisher.next_at = 1 << 62
        bound = PEACE if self.kind.retention == LIMITS else LOOKED
        if not self.run(bound, self.all_read):
            raise Wrong(f"not well again within {bound // SECOND} s: {self.figures()}")
        self.check()

    def all_read(self) -> bool:
        if not self.settled():
            return False
        has, _ = self.servers[0].has()
        if not all(server.has_read() for server in self.servers):
            return False
        # Messages expire by each server's own clock, and leave some time after their acks.
        if self.kind.retention != LIMITS:
            return not any(server.has()[0] for server in self.servers)
        aged = self.stream.get("max_age", 0) > 0
        return not aged or all(server.has()[0] == has for server in self.servers)

    def figures(self) -> str:
        out = []
        for server in self.servers:
            for of, member in (("S", server.stream), ("C", server.consumer)):
                if member is not None:
                    s = member.state()
                    out.append(
                        f"{server.number}{of} {s.role} term {s.term} commit {s.commit} applied"
                        f" {s.applied} stored {s.stored} last {s.last} lost {s.lost} {member.why()}"
                    )
        return "; ".join(out)

    def check(self) -> None:
        """Checks that all members are equal, and have every message that was acked."""
        for server in self.servers:
            server.check_well()
        if not self.kind.limits:
            self.notes.check_heard()
        first = self.servers[0]
        messages, last = first.has()
        state = first.stream_state()
        for server in self.servers:
            has, its_last = server.has()
            self.notes.check(f"{server.number}", has, its_last, self.kind.keeps_all)
            if (has, its_last) != (messages, last):
                all_seqs = sorted(has.keys() | messages.keys())
                differ = [s for s in all_seqs if has.get(s) != messages.get(s)]
                raise Wrong(f"{server.number} differs at {differ[:10]}, ends {its_last}, {last}")
            if server.stream_state() != state:
                raise Wrong(f"the states of {server.number} and 0 differ")
            if not server.consumer_state().near(first.consumer_state()):
                raise Wrong(
                    f"the consumers of {server.number} and 0 differ:"
                    f" {server.consumer_state()} {first.consumer_state()}"
                )

    def end(self) -> None:
        for server in self.servers:
            if server.up:
                server.end()

    def trace(self) -> str:
        """A digest of the history: two runs of a seed must have the same."""
        return f"{self.sent} messages, {self.now} ns, {len(self.notes.acked)} acked: {self.log}"


def history(seed: int, kind: str, seconds: int = 40, ignores_syncs: bool = False) -> Cluster:
    """Plays a whole history; Wrong says which rule was broken."""
    cluster = Cluster(seed, KINDS[kind], ignores_syncs)
    try:
        cluster.begin()
        cluster.peace = False
        cluster.loss = 0.003 if cluster.kind.odd else 0.0
        cluster.run(seconds * SECOND)
        cluster.end_well()
        cluster.end()
    except Exception as error:
        what = str(error) if isinstance(error, Wrong) else repr(error)
        after = "\n    ".join(cluster.log[-30:])
        raise Wrong(f"seed {seed} ({kind}): {what}\n    {after}") from error
    return cluster
