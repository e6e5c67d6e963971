"""Life after life of streams and consumers on a simulated disk, from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from jsserver.cext.cipher import AES, CHACHA
from jsserver.cext.stream import StoreError, StreamClosed
from tests.cext.stream import TestEnv
from tests.sim.disk import SimDisk, name_seed
from tests.sim.kinds import KINDS, Keys, Kind
from tests.sim.notes import Wrong
from tests.sim.streams import MS, Sim
from tests.unit.stream_world import SECOND

if TYPE_CHECKING:
    from tests.sim.disk import Call

EIO, ENOSPC = 5, 28
TOGETHER = (0, 1)
"""Seeds that leave such a rest when divided by five are of servers that sync what they find and
change at a start at one go."""
STORE_ERROR = 3


class World:
    """A disk, the streams on it, and the environment of their present life."""

    def __init__(
        self, seed: int, kind: Kind, ignores_syncs: bool = False, again: bool = True
    ) -> None:
        name_seed(seed)
        self.rng = random.Random(seed)
        self.again_rng = random.Random(f"again {seed}") if again else None
        """How often the same start is repeated, which changes nothing else of the history."""
        self.kind = kind
        self.seed = seed
        self.log: list[str] = []
        self.debris = False
        self.sound = True
        """No power cut yet, and no call that failed: nothing explains a report of damage."""
        self.doubt = False
        """Of what is there without its sync, because that failed, nothing is known."""
        self.together = seed % 5 in TOGETHER and kind.sync_interval == 0
        self.disk = SimDisk(self.rng.getrandbits(64), self.rng.random() < 0.4, ignores_syncs)
        self.now = 1_700_000_000 * SECOND
        self.update: tuple[Sim, dict[str, int]] | None = None
        self.keys = Keys(b"secret" if kind.encrypted else b"")
        self.converted = False
        """Every file has the present key: another one may follow it."""
        self.env: TestEnv
        self.boot()
        count = self.rng.choice([1, 1, 2, 8]) if not kind.turnover else 1
        self.streams = [Sim(self, f"S{i}", self.rng) for i in range(count)]
        for sim in self.streams:
            sim.create()
            sim.snap("create")
        self.converted = True
        usual = STEPS + BATCHES * kind.batches + PUBLISHED * kind.published
        self.steps = TURNOVER if kind.turnover else usual
        self.weights = [self.rng.choice([0.2, 1, 1, 3]) for _ in self.steps]

    # ---- lives ----

    def boot(self) -> None:
        self.env = TestEnv(now=self.now, seed=self.rng.getrandbits(32))
        self.env.listen(b"inbox")
        if self.kind.rotates and self.converted and self.rng.random() < 0.5:
            secret = b"secret %d" % self.rng.randrange(1_000_000)
            self.keys = Keys(secret, self.keys.secret, self.rng.choice([CHACHA, AES]))
            self.log.append("new keys")
        self.converted = False
        journal = self.rng.choice(self.kind.journal) if self.kind.journal else 0
        self.disk.attach(
            self.env, self.kind.sync_interval, self.kind.threads, *self.keys, journal=journal
        )

    def name_key(self, directory: bytes) -> None:
        """A stream is made, or was opened with a key: without one of its own it may be in clear."""
        disk = self.disk
        if self.keys.secret and not disk.dead and b"meta.key" not in disk.names(directory):
            disk.write(directory + b"/meta.key", b"a key")
            disk.mkdir(directory + b"/obs")  # which brings the names to disk

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
        if self.kind.journal:
            self.begin_to_boot(cuts=True)
        self.boot()
        self.open()
        for sim in self.streams:
            sim.check_life(why)
            sim.snaps = []
            sim.snap("start")
            sim.synced = sim.snaps[0].ticket
            sim.acked = min(sim.acked, sim.snaps[0].last)

    def begin_to_boot(self, cuts: bool) -> None:
        """Now and then a start ends while it brings the journal into the files: by a kill, or with
        cuts by one of the power, also behind a clean stop."""
        while self.rng.random() < 0.3:
            self.log.append("broken off in the journal")
            self.disk.cut_after(self.rng.choice([0, 1, 3, 10]))
            with suppress(OSError):
                self.boot()
            self.disk.stop()
            self.disk.detach(self.env)
            if cuts:
                self.disk.cut(again=True)
                self.sound = False
            else:
                self.disk.kill()

    def open(self, killed: bool = False) -> None:
        """Every stream; where they are synced together, a cut may come before they are served."""
        if self.together:
            self.disk.sync()
        for sim in self.streams:
            sim.open(killed, self.together)
        if self.together and self.rng.random() < 0.3:
            self.disk.stop()
            self.end()
            self.disk.cut(again=True)
            self.sound = False
            self.boot()
            for sim in self.streams:
                sim.open(killed)
        elif self.together:
            self.disk.sync()
        for sim in self.streams:
            sim.serve()
        self.converted = True
        if self.again_rng is not None:
            self.open_again(self.again_rng, killed)

    def open_again(self, rng: random.Random, killed: bool) -> None:
        """The same start, now and then once or twice more, with nothing written in between."""
        shown = [sim.shown() for sim in self.streams]
        for _ in range(rng.choice([0, 0, 1, 2])):
            how = rng.choice(["stopped", "killed", "killed in a start"])
            self.log.append(how)
            self.leave(how == "stopped")
            if how == "killed" and rng.random() < 0.5:
                for sim in self.streams:
                    sim.begin_block(rng.choice([0, 4096, 8192]))
            if how == "killed in a start":
                self.begin_to_open(rng.choice([0, 1, 3, 10]), killed)
            self.boot()
            if self.together:
                self.disk.sync()
            for sim in self.streams:
                sim.open(killed, self.together)
            if self.together:
                self.disk.sync()
            for sim, before in zip(self.streams, shown, strict=True):
                sim.serve()
                sim.check_again(how, before)
            self.converted = True

    def leave(self, stops: bool = False) -> None:
        """The streams are closed, or the process is killed."""
        if not stops:
            self.disk.stop()
        self.end()
        self.disk.kill()

    def begin_to_open(self, calls: int, killed: bool) -> None:
        """A start that is killed after so many calls."""
        self.boot()
        self.disk.cut_after(calls)
        streams, self.streams = self.streams, []
        with suppress(StoreError, OSError):
            for sim in streams:
                sim.open(killed)
                self.streams.append(sim)
        self.leave()
        self.streams = streams

    def power_cut(self, why: str) -> None:
        self.log.append(why)
        self.end()
        self.cut_disk()
        if self.update is not None and self.rng.random() < 0.5:
            sim, limits = self.update
            sim.limits = limits
        self.update = None
        self.start(why)
        self.debris = True

    def cut_disk(self) -> None:
        self.doubt = self.disk.doubtful and self.kind.sync_interval > 0
        self.disk.cut()
        self.sound = False
        for sim in self.streams:
            for reader in sim.readers:
                if self.kind.sync_interval:
                    reader.confirmed = reader.kept

    def kill(self) -> None:
        """A SIGKILL, mostly in the middle of something: all that was acked is there."""
        if self.rng.random() < 0.7:
            self.disk.cut_after(self.rng.choice([0, 1, 3, 10, 40]))
            with suppress(StoreError, StreamClosed, OSError):
                self.commit()
        if not self.disk.dead and self.troubled():
            return
        self.disk.stop()
        self.log.append("killed")
        acked = {sim.name: sim.written() for sim in self.streams}
        self.end()
        self.doubt = self.disk.doubtful and self.kind.sync_interval > 0
        self.disk.kill()
        self.update = None
        self.now += self.rng.choice([0, MS, SECOND])
        if self.kind.journal:
            self.begin_to_boot(cuts=False)
        self.boot()
        self.open(killed=True)
        for sim in self.streams:
            sim.check_kill(acked[sim.name])
        self.debris = True

    def restart(self) -> None:
        """A clean stop: all that was done is there, unless its sync hears that an earlier one
        failed."""
        self.commit()
        if self.disk.dead or self.troubled():
            return
        self.doubt = self.disk.untold and self.kind.sync_interval > 0
        self.end()
        if self.disk.dead:
            self.cut_disk()
            self.start("cut in a stop")
            return
        for sim in self.streams if not self.doubt else []:
            sim.snaps = sim.snaps[-1:]
            sim.undone = {}
        self.start("stop")

    # ---- answers ----

    def hear(self) -> None:
        """Takes what went out: PubAcks, confirmed acks and deliveries are noted."""
        sent = self.env.take()
        for dest, _, reply, _, data in sent:
            kind, _, rest = dest.partition(b".")
            if kind == b"ack":
                sim = self.named(rest.partition(b".")[0])
                number = sim.acks.pop(dest, None)
                if number is not None and b'"error"' not in data:
                    sim.promise(number, json.loads(data)["seq"])
            elif kind == b"fast":
                name, id, *_ = rest.split(b".")
                answer = json.loads(data)
                if "error" not in answer:
                    self.named(name).promise_fast(id, answer)
            elif kind == b"done":
                stream, name, seq = rest.split(b".")
                (reader,) = [r for r in self.named(stream).readers if r.name == name]
                if not data.startswith(b"-"):
                    reader.confirmed |= reader.acked_by(int(seq))
            elif reply.startswith(b"$JS.ACK."):
                words = reply.split(b".")
                self.named(words[2]).deliver(words[3], int(words[5]), reply)

    def named(self, name: bytes) -> Sim:
        return next(sim for sim in self.streams if sim.name == name)

    def commit(self, update: tuple[Sim, dict[str, int]] | None = None) -> None:
        self.update = update
        self.hear()
        written = [(sim, sim.written()) for sim in self.streams]
        confirmed = [(r, set(r.confirmed)) for sim in self.streams for r in sim.readers]
        syncs = self.disk.whole_syncs
        self.disk.commit(self.env)
        self.hear()
        if self.disk.dead:
            return
        self.update = None
        if self.disk.whole_syncs > syncs:
            for sim, ticket in written:
                sim.synced = max(sim.synced, ticket if self.disk.writes else sim.written())
                sim.undone = {}
            for reader, seqs in confirmed:
                reader.kept = seqs
        for sim in self.streams:
            if not self.disk.dead:
                self.heal(sim)
                sim.settle()
        if self.kind.sync_interval and not self.disk.dead:
            self.check_syncs()

    def check_syncs(self) -> None:
        """No message that is acked is left unsynced for longer than it may."""
        for sim in self.streams:
            written = sim.written()
            for snap in sim.snaps[1:] if not sim.in_memory else []:
                if snap.ticket <= written and snap.acked_at < 0:
                    snap.acked_at = self.env.mono
                late = self.env.mono - snap.acked_at > self.kind.sync_interval
                unsynced = self.disk.synced_at < snap.at and snap.ticket <= written
                if late and unsynced and snap.what.startswith("publish"):
                    raise Wrong(f"{snap.what} of {sim.name!r} is not synced in time")

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
        self.doubt = self.disk.doubtful and self.kind.sync_interval > 0
        self.disk.mend()
        sim.settle()
        done = sim.written()
        sim.stream.reopen()
        taken_back = sim.gone_after(done)
        sim.snaps[1:] = [snap for snap in sim.snaps[1:] if snap.ticket <= done]
        sim.acks = {}
        for reader in sim.readers:
            reader.open = {}
            if reader.in_memory:  # what comes back was gone for it
                reader.asked |= taken_back
        sim.check_life("refused", taken_back if self.kind.threads or sim.passes_over() else set())
        sim.stream.resume()
        sim.snap("healed")
        sim.synced = -1  # tickets begin anew
        healed = sim.snaps[-1]
        if self.doubt:
            sim.acked = min(sim.acked, healed.last)
        for snap in sim.snaps[1:]:
            snap.ticket = healed.ticket
            if self.doubt and snap.last > healed.last:  # a failed sync took back what was acked
                snap.what = f"lost {snap.what}"

    def trace(self) -> str:
        """What tells one history from another."""
        return f"{self.disk.calls} calls: " + ", ".join(self.log)

    # ---- what happens ----

    def step(self) -> None:
        name, act = self.rng.choices(self.steps, self.weights)[0]
        self.log.append(name)
        if self.rng.random() < 0.1:
            self.disk.cut_after(self.rng.choice([0, 1, 3, 10, 40]))
        try:
            act(self)
        except (StoreError, StreamClosed, OSError) as error:
            if not self.disk.dead and not self.troubled():
                raise Wrong(f"{name}: {error}") from error
            self.look_again()
        if self.disk.dead:
            self.power_cut(f"cut in {name}")
            return
        self.hear()
        for sim in self.streams:
            self.heal(sim)
            sim.settle()
            if self.kind.memory or self.kind.threads:
                sim.check_steady(name)

    def look_again(self) -> None:
        """What was broken off may have been done in part."""
        for sim in self.streams:
            with suppress(OSError, ValueError):  # it cannot be read
                sim.snap("broken off")

    def trouble(self) -> None:
        """A call fails, once or for some time, or there is no room."""
        self.debris = True
        self.sound = False
        self.commit()
        kinds: list[Call | Literal["room"]] = [
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
        kind = self.rng.choice(kinds)
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
    ("kill", World.kill),
    ("trouble", World.trouble),
    ("again", World.again),
]
BATCHES: list[tuple[str, Callable[[World], None]]] = [("batch", lambda w: one_of(w).batch())] * 3
PUBLISHED: list[tuple[str, Callable[[World], None]]] = [
    ("atomic batch", lambda w: one_of(w).atomic()),
    ("atomic batch", lambda w: one_of(w).atomic()),
    ("fast batch", lambda w: one_of(w).fast()),
]
TURNOVER: list[tuple[str, Callable[[World], None]]] = [
    *[("come and go", lambda w: one_of(w).come_and_go())] * 5,
    ("delete", lambda w: one_of(w).delete()),
    ("purge", lambda w: one_of(w).purge()),
    ("update", lambda w: one_of(w).update()),
    ("upkeep", World.upkeep),
    ("wait", World.wait),
    ("stop", World.restart),
    ("kill", World.kill),
    ("kill", World.kill),
]


broken_off: list[World] = []
"""Their threads wait for a turn that never comes."""


def run(
    seed: int,
    kind: str = "synced",
    steps: int = 60,
    ignores_syncs: bool = False,
    again: bool = True,
) -> World:
    """A whole history; Wrong says what is not as it has to be, and after what. again: starts are
    repeated now and then."""
    world = World(seed, KINDS[kind], ignores_syncs, again)
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
        broken_off.append(world)
        what = str(error) if isinstance(error, Wrong) else repr(error)
        after = " / ".join(world.log[-12:])
        raise Wrong(f"seed {seed} ({kind}): {what}\n  after {after}") from error
    return world
