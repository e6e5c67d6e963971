"""Life after life of streams and consumers on a simulated disk, and what each has to keep."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jsserver.cext.consumer import ConsumerHandle, StreamHandle
from jsserver.cext.stream import StoreError, StreamClosed
from tests.cext.stream import TestEnv, open_test_stream
from tests.sim.disk import SimDisk, durable_ticket, messages, ticket
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    FILE,
    INTEREST,
    LIMITS,
    SECOND,
    WORKQUEUE,
    consumer_params,
    headers,
    stream_params,
)

MS = 1_000_000
EIO, ENOSPC = 5, 28
STORE_ERROR = 3
ACK_WAIT = 30 * SECOND

Message = tuple[bytes, bytes, bytes]


class Wrong(AssertionError):
    """What was found after a seed's last step."""


@dataclass
class Snap:
    """What a stream held after something was done, and the ticket of that."""

    what: str
    ticket: int
    live: dict[int, Message]
    last: int


@dataclass
class Reader:
    """A consumer, and what of its acks was asked and confirmed."""

    name: bytes
    filter: bytes
    acks_all: bool = False
    """Whether an ack is one of everything delivered before."""
    handle: ConsumerHandle | None = None
    asked: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    open: dict[int, bytes] = field(default_factory=dict)
    """Delivered and not acked: sequence -> where its ack goes."""
    delivered: set[int] = field(default_factory=set)

    def acked_by(self, seq: int) -> set[int]:
        """What an ack of that message stands for."""
        return {s for s in self.delivered if s <= seq} if self.acks_all else {seq}

    def wants(self, subject: bytes) -> bool:
        return not self.filter or subject.split(b".")[1] == self.filter.split(b".")[1]


class Sim:
    """One stream's lives."""

    def __init__(self, world: "World", name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name.encode()
        self.rng = rng
        self.directory = b"/" + self.name
        self.retention = rng.choice([LIMITS, LIMITS, LIMITS, INTEREST, WORKQUEUE])
        self.subjects = rng.choice([1, 3, 8, 30])
        self.limits = self.some_limits()
        self.readers: list[Reader] = []
        self.snaps: list[Snap] = []
        self.ids = 0
        self.acked = 0
        """The last sequence of a publish that is durable. What a start left out nobody has seen."""
        self.acks: dict[bytes, int] = {}
        """Acks that are awaited: reply -> number of the snap that they are for."""
        self.stream: StreamHandle
        self.made = False

    # ---- configuration ----

    def some_limits(self) -> dict[str, int]:
        pick = self.rng.choice
        return {
            "max_msgs": pick([-1, 60, 200, 10, 300]),
            "max_bytes": pick([-1, 127_000, 20_000, 60_000, 3_000]),
            "max_msgs_per_subject": pick([-1, -1, 1, 2, 5]),
            "max_age": pick([0, 0, 0, 3 * SECOND, 20 * SECOND]),
        }

    def params(self) -> Any:
        return stream_params(
            name=self.name,
            subjects=(self.name + b".>",),
            storage=FILE,
            retention=self.retention,
            allow_rollup=True,
            **self.limits,
        )

    # ---- lives ----

    def create(self) -> None:
        """As the control plane does: its directory is on disk before it is used."""
        disk = self.world.disk
        disk.mkdir(self.directory)
        disk.mkdir(self.directory + b"/obs")
        count = {LIMITS: self.rng.choice([0, 1, 2]), INTEREST: 2, WORKQUEUE: 1}[self.retention]
        self.readers = [
            Reader(
                b"C%d" % i,
                self.name + b".1" if i and self.rng.random() < 0.5 else b"",
                self.retention != WORKQUEUE and self.rng.random() < 0.25,
            )
            for i in range(count)
        ]
        for reader in self.readers:
            disk.mkdir(self.directory + b"/obs/" + reader.name)
        self.made = True
        self.open()
        self.world.disk.commit(self.world.env)

    def open(self) -> None:
        self.stream = open_test_stream(self.world.env, self.params(), self.directory)
        for reader in self.readers:
            reader.open = {}
            reader.handle = self.stream.open_consumer(
                consumer_params(
                    name=reader.name,
                    filters=(reader.filter,) if reader.filter else (),
                    ack_policy=ACK_ALL if reader.acks_all else ACK_EXPLICIT,
                    ack_wait=ACK_WAIT,
                    max_waiting=100_000,
                ),
                self.directory + b"/obs/" + reader.name,
            )
        self.stream.activate()
        self.acks = {}

    def snap(self, what: str) -> None:
        state = self.stream.state()
        self.snaps.append(Snap(what, ticket(self.stream), messages(self.stream), state.last_seq))

    def settle(self) -> None:
        """What is durable by now is the first of the snaps."""
        done = durable_ticket(self.stream)
        while len(self.snaps) > 1 and self.snaps[1].ticket <= done:
            self.snaps.pop(0)
            if self.snaps[0].what.startswith("publish"):
                self.acked = self.snaps[0].last

    # ---- what is done to it ----

    def publish(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([1, 1, 2, 10, 40])):
            number = min(rng.randrange(self.subjects), rng.randrange(self.subjects))
            self.put(
                b"%s.%d" % (self.name, number), headers(A=b"b".hex()) if rng.random() < 0.2 else b""
            )
            if rng.random() < 0.2:
                self.world.env.advance(rng.choice([1, 50 * MS]))

    def put(self, subject: bytes, header: bytes) -> None:
        self.ids += 1
        reply = b"ack.%s.%d" % (self.name, self.ids)
        size = self.rng.choice([0, 5, 60, 300, 300, 2000, 9000])
        self.world.env.inject(subject, b"%d." % self.ids + bytes(size), reply, header)
        self.snap(f"publish {self.ids}")
        self.acks[reply] = self.ids
        self.world.hear()

    def roll_up(self) -> None:
        whole = self.rng.random() < 0.2
        header = headers(Nats_Rollup="all" if whole else "sub")
        self.put(b"%s.%d" % (self.name, self.rng.randrange(self.subjects)), header)

    def delete(self) -> None:
        live = sorted(self.snaps[-1].live)
        pick = self.rng.choice(["some", "head", "newest"])
        n = min(len(live), self.rng.choice([1, 1, 5, 30]))
        seqs = {"some": self.rng.sample(live, n), "head": live[:n], "newest": live[-2:]}[pick]
        for seq in seqs:
            self.stream.delete(seq, self.rng.random() < 0.6)
            self.snap(f"delete {seq}")

    def purge(self) -> None:
        kind = self.rng.choice(["all", "filter", "filter", "keep", "keep filter", "seq", "seq"])
        filter = (
            self.name + self.rng.choice([b".*", b".1", b".2", b".>"]) if "filter" in kind else None
        )
        keep = self.rng.choice([1, 3, 50]) if "keep" in kind else 0
        seq = max(1, self.snaps[-1].last - self.rng.randrange(200)) if kind == "seq" else 0
        self.stream.purge(filter, seq, keep)
        self.snap(f"purge {kind} {filter!r} {seq} {keep}")

    def update(self) -> None:
        """Not while something else waits: a start afterwards needs to know by which limits."""
        self.world.env.settle(self.stream)  # as the control plane does: what aged stays gone
        self.world.commit()
        if self.world.disk.dead or self.world.troubled():
            return
        changed = self.some_limits()
        before = dict(self.limits)
        for name in self.rng.sample(sorted(changed), self.rng.choice([1, 1, 2, 4])):
            self.limits[name] = changed[name]
        try:
            self.stream.update(self.params())
            self.snap("update")
        except OSError:  # the power went: the next life knows nothing of it
            self.limits = before
            raise
        self.world.commit(update=(self, before))

    def pull(self) -> None:
        for reader in self.readers:
            self.ask(reader, self.rng.choice([1, 5, 30]))

    def ask(self, reader: Reader, batch: int) -> list[int]:
        env = self.world.env
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (self.name, reader.name)
        env.take()
        env.inject(subject, b'{"batch":%d,"no_wait":true}' % batch, b"inbox")
        got = []
        for _, _, reply, _, _ in self.world.hear():
            if reply.startswith(b"$JS.ACK.%s.%s." % (self.name, reader.name)):
                seq = int(reply.split(b".")[5])
                reader.open[seq] = reply
                reader.delivered.add(seq)
                got.append(seq)
        return got

    def ack(self) -> None:
        for reader in self.readers:
            n = min(len(reader.open), self.rng.choice([1, 5, 30]))
            for seq in self.rng.sample(sorted(reader.open), n):
                to = reader.open.pop(seq, b"")
                if not to:
                    continue  # an ack of a later one was its own
                if self.rng.random() < 0.15:
                    self.world.env.inject(to, b"-NAK")
                    continue
                for other in reader.acked_by(seq):
                    reader.asked.add(other)
                    reader.open.pop(other, None)
                reply = b""
                if self.rng.random() < 0.6:
                    reply = b"done.%s.%s.%d" % (self.name, reader.name, seq)
                self.world.env.inject(to, self.rng.choice([b"", b"+ACK"]), reply)
                self.world.hear()
            self.snap("acks")

    # ---- what has to be so ----

    def check_life(self, why: str) -> None:
        """What is there now is what was durable, and maybe some of what came after.

        Of a group that was torn its whole records are kept; sequences may be left out behind it.
        """
        known = self.snaps[0]
        live = messages(self.stream)
        state = self.stream.state()
        if state.last_seq < self.acked:
            raise Wrong(f"{why}: sequences fell back from {self.acked} to {state.last_seq}")
        if state.messages != len(live):
            raise Wrong(f"{why}: {state.messages} messages, {len(live)} can be read")
        ever: dict[int, Message] = {}
        gone: set[int] = set()
        for snap in self.snaps:
            gone |= ever.keys() - snap.live.keys()
            ever.update(snap.live)
        for seq, message in live.items():
            if seq not in ever:
                raise Wrong(f"{why}: {seq} came back: {message[0]!r}")
            if ever[seq] != message:
                raise Wrong(f"{why}: {seq} is another message")
        aged = self.aged(ever)
        for seq in known.live:
            if seq not in live and seq not in gone and seq not in aged:
                raise Wrong(f"{why}: {seq} of {known.last} is lost, acked with {known.what!r}")
        lost = self.stream.lost()
        # No bit was changed: whatever is missing was never acked. But what a write left that failed
        # or was cut before may stand where a sector did not arrive.
        if lost.sequences and not self.world.debris:
            raise Wrong(f"{why}: {lost} is reported")
        acked = [seq for seq in lost.sequences if seq in known.live and seq not in gone]
        if acked:
            raise Wrong(f"{why}: {acked} are reported as lost")
        self.check_readers(why, live)

    def aged(self, ever: dict[int, Message]) -> set[int]:
        """With an age in force anything may have become too old meanwhile, the oldest first."""
        return set(ever) if self.limits["max_age"] else set()

    def check_readers(self, why: str, live: dict[int, Message]) -> None:
        for reader in self.readers:
            if reader.handle is None:
                continue
            floor = reader.handle.state().floor_stream
            ahead = [
                seq
                for seq, message in live.items()
                if seq <= floor and reader.wants(message[0]) and seq not in reader.asked
            ]
            if ahead:
                raise Wrong(f"{why}: {reader.name!r} has {ahead[:9]} below its floor {floor}")

    def drain(self, why: str) -> None:
        """Everything that is not acked is delivered, nothing whose ack was confirmed."""
        self.world.env.advance(ACK_WAIT + SECOND)
        for reader in self.readers:
            got: set[int] = set()
            while more := self.ask(reader, 100):
                got.update(more)
            live = messages(self.stream)
            again = got & reader.confirmed
            if again:
                raise Wrong(f"{why}: {sorted(again)[:9]} come again to {reader.name!r}")
            due = {seq for seq, message in live.items() if reader.wants(message[0])}
            missing = due - got - reader.asked
            if missing:
                raise Wrong(f"{why}: {sorted(missing)[:9]} do not come to {reader.name!r}")
        self.snap("drain")


class World:
    """A disk, the streams on it, and the environment of their present life."""

    def __init__(self, seed: int, ignores_syncs: bool = False) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.log: list[str] = []
        self.debris = False
        self.disk = SimDisk(self.rng.getrandbits(64), self.rng.random() < 0.4, ignores_syncs)
        self.now = 1_700_000_000 * SECOND
        self.update: tuple[Sim, dict[str, int]] | None = None
        self.env: TestEnv
        self.boot()
        count = self.rng.choice([1, 1, 2, 8])
        self.streams = [Sim(self, f"S{i}", self.rng) for i in range(count)]
        for sim in self.streams:
            sim.create()
            sim.snap("create")
        self.weights = [self.rng.choice([0.2, 1, 1, 3]) for _ in STEPS]

    # ---- lives ----

    def boot(self) -> None:
        self.env = TestEnv(now=self.now, seed=self.rng.getrandbits(32))
        self.env.listen(b"inbox")
        self.disk.attach(self.env)

    def end(self) -> None:
        """Every stream is closed, whatever becomes of its files."""
        for sim in self.streams:
            for reader in sim.readers:
                reader.handle = None
            try:
                sim.stream.close(False)
            except StoreError:
                if not self.disk.dead:
                    raise
        self.now = self.env.now
        self.disk.detach(self.env)

    def start(self, why: str) -> None:
        self.now += self.rng.choice([0, MS, SECOND])
        self.boot()
        for sim in self.streams:
            sim.open()
        for sim in self.streams:
            sim.check_life(why)
            sim.snaps = []
            sim.snap("start")

    def power_cut(self, why: str) -> None:
        self.log.append(why)
        self.end()
        self.disk.cut()
        if self.update is not None and self.rng.random() < 0.5:
            sim, limits = self.update
            sim.limits = limits
        self.update = None
        self.start(why)
        self.debris = True

    def restart(self) -> None:
        """A clean stop: all that was done is there."""
        self.commit()
        if self.disk.dead or self.troubled():
            return
        self.end()
        if self.disk.dead:
            self.disk.cut()
            self.start("cut in a stop")
            return
        for sim in self.streams:
            sim.snaps = sim.snaps[-1:]
        self.start("stop")

    # ---- answers ----

    def hear(self) -> list[tuple[bytes, bytes, bytes, bytes, bytes]]:
        """Takes what went out: PubAcks and confirmed acks are noted."""
        sent = self.env.take()
        for dest, _, _, _, data in sent:
            kind, _, rest = dest.partition(b".")
            if kind == b"ack":
                sim = self.named(rest.partition(b".")[0])
                number = sim.acks.pop(dest, None)
                if number is not None and b'"error"' not in data:
                    sim.settle()
                    waiting = {s.what for s in sim.snaps[1:]}
                    if f"publish {number}" in waiting:
                        raise Wrong(
                            f"publish {number} of {sim.name!r} is acked before it is durable"
                        )
            elif kind == b"done":
                stream, name, seq = rest.split(b".")
                (reader,) = [r for r in self.named(stream).readers if r.name == name]
                if not data.startswith(b"-"):
                    reader.confirmed |= reader.acked_by(int(seq))
        return sent

    def named(self, name: bytes) -> Sim:
        return next(sim for sim in self.streams if sim.name == name)

    def commit(self, update: tuple[Sim, dict[str, int]] | None = None) -> None:
        self.update = update
        self.disk.commit(self.env)
        self.hear()
        if not self.disk.dead:
            self.update = None
        for sim in self.streams:
            if not self.disk.dead:
                self.heal(sim)
                sim.settle()

    def upkeep(self) -> None:
        self.disk.upkeep(self.env)
        self.commit()

    def troubled(self) -> bool:
        return any(event[0] == STORE_ERROR for event in self.env.events)

    def heal(self, sim: Sim) -> None:
        """A stream whose group could not be written is opened again, as it was before that."""
        mine = [e for e in self.env.events if e[0] == STORE_ERROR and e[1][0] == sim.name]
        if not mine:
            return
        self.env.events[:] = [e for e in self.env.events if e not in mine]
        self.log.append(f"heal {sim.name!r}")
        self.disk.mend()
        sim.stream.reopen()
        sim.snaps = sim.snaps[:1]
        sim.acks = {}
        for reader in sim.readers:
            reader.open = {}
        sim.check_life("refused")
        sim.stream.resume()
        sim.snap("healed")

    def trace(self) -> str:
        """What tells one history from another."""
        return f"{self.disk.calls} calls: " + ", ".join(self.log)

    # ---- what happens ----

    def step(self) -> None:
        name, act = self.rng.choices(STEPS, self.weights)[0]
        self.log.append(name)
        if self.rng.random() < 0.1:
            self.disk.cut_after(self.rng.choice([0, 1, 3, 10, 40]))
        try:
            act(self)
        except (StoreError, StreamClosed, OSError) as error:
            if not self.disk.dead and not self.troubled():
                raise Wrong(f"{name}: {error}") from error
        if self.disk.dead:
            self.power_cut(f"cut in {name}")
            return
        self.hear()
        for sim in self.streams:
            self.heal(sim)
            sim.settle()

    def trouble(self) -> None:
        """A call fails, once or for some time, or there is no room."""
        self.debris = True
        self.commit()
        kind = self.rng.choice(
            [
                "sync",
                "sync",
                "write",
                "write",
                "open",
                "truncate",
                "rename",
                "unlink",
                "mkdir",
                "room",
            ]
        )
        if kind == "room":
            self.disk.room(self.rng.choice([0, 100, 1000, 20_000]))
        else:
            self.disk.fail(
                kind,
                self.rng.choice([EIO, ENOSPC]),
                self.rng.choice([0, 0, 1, 3]),
                self.rng.choice([1, 1, 2, 9]),
            )
        one_of(self).publish()
        self.commit()
        self.disk.mend()

    def again(self) -> None:
        """A stream is deleted, and another of its name made."""
        self.commit()
        if self.disk.dead or self.troubled():
            return
        sim = one_of(self)
        for reader in sim.readers:
            reader.handle = None
        self.streams.remove(sim)
        sim.stream.close(True)
        if self.disk.dead:  # it was gone for the control plane before
            self.power_cut("cut in a deletion")
        self.disk.cut_after(-1)
        self.disk.remove(sim.directory)
        fresh = Sim(self, sim.name.decode(), self.rng)
        self.streams.append(fresh)
        fresh.create()
        fresh.snap("create")

    def wait(self) -> None:
        self.env.advance(self.rng.choice([10 * MS, 200 * MS, SECOND, 4 * SECOND, 40 * SECOND]))


def one_of(world: World) -> Sim:
    return world.rng.choice(world.streams)


STEPS: list[tuple[str, Callable[[World], None]]] = [
    ("publish", lambda w: one_of(w).publish()),
    ("publish", lambda w: one_of(w).publish()),
    ("roll up", lambda w: one_of(w).roll_up()),
    ("delete", lambda w: one_of(w).delete()),
    ("purge", lambda w: one_of(w).purge()),
    ("update", lambda w: one_of(w).update()),
    ("pull", lambda w: one_of(w).pull()),
    ("ack", lambda w: one_of(w).ack()),
    ("commit", World.commit),
    ("commit", World.commit),
    ("upkeep", World.upkeep),
    ("wait", World.wait),
    ("stop", World.restart),
    ("trouble", World.trouble),
    ("again", World.again),
]


def run(seed: int, steps: int = 60, ignores_syncs: bool = False) -> World:
    """A whole history; Wrong says what is not as it has to be, and after what."""
    world = World(seed, ignores_syncs)
    try:
        for _ in range(steps):
            world.step()
        world.disk.cut_after(-1)
        world.disk.mend()
        world.commit()
        for sim in world.streams:
            sim.drain("end")
        world.commit()
        world.power_cut("last cut")
        for sim in world.streams:
            sim.drain("after the last cut")
        world.end()
    except Exception as error:
        what = str(error) if isinstance(error, Wrong) else repr(error)
        raise Wrong(f"seed {seed}: {what}\n  after {' / '.join(world.log[-12:])}") from error
    return world
