"""A stream of a simulated world with its consumers: what is done to it, what has to be so then."""

from __future__ import annotations

import random
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from jsserver.cext.consumer import StreamHandle
from jsserver.cext.stream import StoreError
from tests.cext.stream import open_test_stream
from tests.sim.disk import durable_seq, durable_ticket, look, messages
from tests.sim.notes import Message, Reader, Shown, Snap, Wrong
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    FILE,
    INTEREST,
    LIMITS,
    MEMORY,
    SECOND,
    WORKQUEUE,
    consumer_params,
    headers,
    stream_params,
)

if TYPE_CHECKING:
    from tests.sim.world import World

MS = 1_000_000
ACK_WAIT = 30 * SECOND


class Sim:
    """One stream's lives."""

    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name.encode()
        self.rng = rng
        self.directory = b"/" + self.name
        self.retention = rng.choice([LIMITS, LIMITS, LIMITS, INTEREST, WORKQUEUE])
        self.in_memory = world.kind.memory > 0 and rng.random() < world.kind.memory
        self.subjects = rng.choice([1, 3, 8, 30])
        self.limits = self.some_limits()
        self.readers: list[Reader] = []
        self.snaps: list[Snap] = []
        self.ids = 0
        self.acked = 0
        """The last sequence of a publish that is durable. What a start left out nobody has seen."""
        self.acks: dict[bytes, int] = {}
        """Acks that are awaited: reply -> number of the snap that they are for."""
        self.promised: dict[int, Message] = {}
        """What was acked since the first of the snaps."""
        self.fasts: dict[bytes, list[tuple[int, int]]] = {}
        """Fast ones of this life: of each message number and sequence, zeros once it is acked."""
        self.batches: list[dict[int, Message]] = []
        """Those of this life: what each left."""
        self.undone: dict[int, Message] = {}
        """What the last start did not find: where no sync followed, it may be there again."""
        self.synced = 0
        """The ticket of what is on disk for certain, where acks do not wait for that."""
        self.stream: StreamHandle

    # ---- configuration ----

    def some_limits(self) -> dict[str, int]:
        pick = self.rng.choice
        if self.world.kind.turnover:  # so that there are many blocks
            return {
                "max_msgs": pick([-1, 300]),
                "max_bytes": 127_000,
                "max_msgs_per_subject": pick([-1, -1, 5]),
                "max_age": 0,
            }
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
            storage=MEMORY if self.in_memory else FILE,
            compression="s2" if self.world.kind.compress else "none",
            retention=self.retention,
            allow_rollup_hdrs=True,
            allow_atomic=True,
            allow_batched=True,
            **self.limits,
        )

    # ---- lives ----

    def create(self) -> None:
        """As the control plane does: its directory is on disk before it is used."""
        disk = self.world.disk
        disk.mkdir(self.directory)
        disk.mkdir(self.directory + b"/obs")
        self.world.name_key(self.directory)
        count = {LIMITS: self.rng.choice([0, 1, 2]), INTEREST: 2, WORKQUEUE: 1}[self.retention]
        self.readers = [
            Reader(
                b"C%d" % i,
                self.name + b".1" if i and self.rng.random() < 0.5 else b"",
                self.retention != WORKQUEUE and self.rng.random() < 0.25,
                self.in_memory or (self.world.kind.memory > 0 and self.rng.random() < 0.3),
            )
            for i in range(count)
        ]
        for reader in self.readers:
            disk.mkdir(self.directory + b"/obs/" + reader.name)
        self.open()
        self.serve()
        self.world.disk.commit(self.world.env)

    def open(self, killed: bool = False, synced: bool = False) -> None:
        directory = None if self.in_memory else self.directory
        self.stream = open_test_stream(self.world.env, self.params(), directory, synced=synced)
        if directory is not None:
            self.world.name_key(directory)
        for reader in self.readers:
            reader.begins(look(self.stream)[2], killed)
            reader.handle = self.stream.open_consumer(
                consumer_params(
                    name=reader.name,
                    filters=(reader.filter,) if reader.filter else (),
                    ack_policy=ACK_ALL if reader.acks_all else ACK_EXPLICIT,
                    ack_wait=ACK_WAIT,
                    max_waiting=100_000,
                    mem_storage=reader.in_memory,
                    direct=False,
                ),
                None if reader.in_memory else self.directory + b"/obs/" + reader.name,
            )

    def serve(self) -> None:
        self.stream.activate()
        self.acks = {}
        self.fasts = {}
        self.promised = {}

    def snap(self, what: str) -> None:
        ticket, live, last = look(self.stream)
        self.snaps.append(Snap(what, self.world.env.mono, ticket, live, last))

    def written(self) -> int:
        """The ticket of what is acked by now."""
        return self.snaps[-1].ticket if self.in_memory else durable_ticket(self.stream)

    def settle(self) -> None:
        """What is durable by now is the first of the snaps."""
        lazy = self.world.kind.sync_interval > 0 and not self.in_memory
        done = self.synced if lazy else self.written()
        while len(self.snaps) > 1 and self.snaps[1].ticket <= done:
            self.snaps.pop(0)
            self.promised = {s: m for s, m in self.promised.items() if s > self.snaps[0].last}
            if self.snaps[0].what.startswith("publish"):
                self.acked = self.snaps[0].last

    def promise(self, number: int, seq: int) -> None:
        """A publish is acked with this sequence."""
        waiting = {snap.what for snap in self.snaps if snap.ticket > self.written()}
        late = f"publish {number}" in waiting and seq > durable_seq(self.stream)
        if late and not self.world.troubled():
            raise Wrong(f"publish {number} of {self.name!r} is acked before it is durable")
        for snap in self.snaps[1:]:
            if snap.what == f"publish {number}" and seq in snap.live:
                self.promised[seq] = snap.live[seq]
        for batch in self.batches:
            if seq in batch:
                self.promised.update(batch)

    def promise_fast(self, id: bytes, answer: dict[str, Any]) -> None:
        """An answer to a fast batch."""
        upto = answer.get("count", answer["seq"] if answer.get("type") == "ack" else 0)
        for number, seq in self.fasts[id][:upto]:
            if number:
                self.promise(number, seq)
        self.fasts[id][:upto] = [(0, 0)] * min(upto, len(self.fasts[id]))

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

    def put(self, subject: bytes, header: bytes, to: bytes = b"", hears: bool = True) -> None:
        self.ids += 1
        reply = to or b"ack.%s.%d" % (self.name, self.ids)
        size = self.rng.choice(self.world.kind.sizes)
        data = b"%d." % self.ids + bytes(size)
        self.world.env.inject(subject, data, reply, header)
        before = self.snaps[-1]
        self.snap(f"publish {self.ids}")
        for seq, message in self.snaps[-1].live.items():
            if seq > before.last and (message[0], message[2]) != (subject, data):
                raise Wrong(f"{seq} is {message[2][:9]!r}, not {data[:9]!r}")
        now = self.snaps[-1]
        lazy = self.world.kind.sync_interval > 0
        if lazy and now.last == before.last + 1 and now.last not in now.live:
            now.passed[now.last] = (subject, header, data)
        if hears:
            self.acks[reply] = self.ids
            self.world.hear()

    def batch(self) -> None:
        """Several publishes that are stored together; the last one is answered."""
        rng = self.rng
        count = rng.choice([2, 3, 10, 40])
        reply = b"ack.%s.%d" % (self.name, self.ids + count)
        self.world.env.stage(self.stream)
        for k in range(count):
            self.ids += 1
            data = b"%d." % self.ids + bytes(rng.choice(self.world.kind.sizes))
            header = headers(Nats_Rollup=rng.choice(["sub", "all"])) if rng.random() < 0.03 else b""
            subject = b"%s.%d" % (self.name, rng.randrange(self.subjects))
            self.world.env.inject(subject, data, reply if k + 1 == count else b"", header)
        before = self.snaps[-1].last
        keeps = rng.random() < 0.8
        self.world.env.stage_end(self.stream, keeps)
        self.ended(reply, keeps, before)

    def atomic(self) -> None:
        """The same as publishers send it; some are never committed."""
        rng = self.rng
        count = rng.choice([1, 2, 3, 10, 40])
        reply = b"ack.%s.%d" % (self.name, self.ids + count)
        id = b"%d" % self.ids
        before = self.snaps[-1].last
        keeps = rng.random() < 0.8
        for k in range(1, count + 1):
            self.ids += 1
            data = b"%d." % self.ids + bytes(rng.choice(self.world.kind.sizes))
            lines: dict[str, object] = {"Nats_Batch_Id": id.decode(), "Nats_Batch_Sequence": k}
            if k == 1 and rng.random() < 0.2:
                lines["Nats_Rollup"] = rng.choice(["sub", "all"])
            if keeps and k == count:
                lines["Nats_Batch_Commit"] = 1
            subject = b"%s.%d" % (self.name, rng.randrange(self.subjects))
            self.world.env.inject(subject, data, reply if k == count else b"", headers(**lines))
        self.ended(reply, keeps, before)

    def fast(self) -> None:
        """A fast batch: each of its acks stands for all of it up to there."""
        rng = self.rng
        count, flow = rng.choice([1, 3, 10, 40]), rng.choice([1, 3, 10])
        id = b"%d" % self.ids
        sent = self.fasts[id] = []
        for k in range(1, count + 1):
            op = 2 if k == count else int(k > 1)
            reply = b"fast.%s.%s.%d.fail.%d.%d.$FI" % (self.name, id, flow, k, op)
            before = self.snaps[-1].last
            self.put(b"%s.%d" % (self.name, rng.randrange(self.subjects)), b"", reply, hears=False)
            if self.snaps[-1].last > before:
                sent.append((self.ids, self.snaps[-1].last))
            self.world.hear()

    def ended(self, reply: bytes, keeps: bool, before: int) -> None:
        """A batch was to be stored behind `before`, or not."""
        self.snap(f"publish {self.ids}" if keeps else "given up")
        left = {seq: m for seq, m in self.snaps[-1].live.items() if seq > before}
        if left and not keeps:
            raise Wrong(f"{sorted(left)} are of a batch that was given up")
        if keeps:
            self.batches.append(left)
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

    def come_and_go(self) -> None:
        """Few messages are there at any time, of few subjects: those are often gone for a while."""
        rng = self.rng
        for _ in range(rng.choice([5, 40, 300])):
            self.put(b"%s.%d" % (self.name, rng.randrange(6)), b"")
            live = sorted(self.snaps[-1].live)
            for seq in rng.sample(live, max(0, len(live) - rng.randrange(1, 6))):
                self.stream.delete(seq, rng.random() < 0.2)
                self.snap(f"delete {seq}")
            if rng.random() < 0.2:
                self.world.upkeep()
            if self.world.disk.dead or self.world.troubled():
                return

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
        except (OSError, StoreError):  # the power went: the next life knows nothing of it
            self.limits = before
            raise
        self.world.commit(update=(self, before))

    def pull(self) -> None:
        for reader in self.readers:
            self.ask(reader, self.rng.choice([1, 5, 30]))

    def ask(self, reader: Reader, batch: int) -> None:
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (self.name, reader.name)
        self.world.env.inject(subject, b'{"batch":%d,"no_wait":true}' % batch, b"inbox")
        self.world.hear()

    def deliver(self, name: bytes, seq: int, reply: bytes) -> None:
        """A message has come to a reader."""
        for reader in self.readers:
            if reader.name == name:
                reader.open[seq] = reply
                reader.delivered.add(seq)
                reader.got.append(seq)

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

    def passes_over(self) -> bool:
        """Whether a message may have waited for a consumer in memory only, which passes it over."""
        return self.retention != LIMITS and any(reader.in_memory for reader in self.readers)

    def gone_after(self, done: int) -> set[int]:
        """What was there up to that ticket, and was removed then."""
        later = [snap for snap in self.snaps[1:] if snap.ticket > done]
        known = set(self.promised)
        for snap in self.snaps[:1] + [snap for snap in self.snaps if snap.ticket <= done]:
            known |= snap.live.keys()
        return {seq for snap in later for seq in known if seq not in snap.live and seq <= snap.last}

    def check_life(self, why: str, removed: Set[int] = frozenset(), killed: bool = False) -> None:
        """What is there now is what was durable, and maybe some of what came after.

        Of a group that was torn its whole records are kept; sequences may be left out behind it.
        removed: by what was refused. A group before may have taken some of it along.
        """
        known = self.snaps[0]
        live = messages(self.stream)
        state = self.stream.state()
        if self.in_memory:
            self.check_empty(why)
            return
        if state.last_seq < self.acked and not self.world.doubt:
            raise Wrong(f"{why}: sequences fell back from {self.acked} to {state.last_seq}")
        if state.messages != len(live) and not self.world.doubt:
            raise Wrong(f"{why}: {state.messages} messages, {len(live)} can be read")
        ever = self.undone | self.promised
        gone = set(removed)
        for snap in self.snaps:
            ever.update(snap.passed)
            gone |= ever.keys() - snap.live.keys()
            ever.update(snap.live)
        ever.update(self.promised)  # a sequence may have been another message's before a kill
        for seq, message in live.items():
            if seq not in ever:
                raise Wrong(f"{why}: {seq} came back: {message[0]!r}")
            if message not in (ever[seq], self.undone.get(seq)):
                raise Wrong(f"{why}: {seq} is another message")
        self.undone = {}
        if self.world.kind.sync_interval:
            self.undone = {seq: message for seq, message in ever.items() if seq not in live}
        aged = self.aged(ever)
        for batch in self.batches:
            here = {s for s in batch.keys() - gone if s > known.last or s in known.live} - aged
            if here & live.keys() and here - live.keys():
                raise Wrong(f"{why}: {sorted(here - live.keys())} are missing of {sorted(batch)}")
        self.batches = []
        due = known.live.keys() - gone
        if not self.world.kind.sync_interval:
            due |= self.promised.keys() - gone
        due -= self.pushed_out(known, live)
        if self.world.doubt or any(snap.what.endswith("update") for snap in self.snaps[1:]):
            due = set()  # limits that are new apply to what was there before them
        for seq in due:
            if seq not in live and seq not in aged:
                raise Wrong(f"{why}: {seq} of {known.last} is lost, acked with {known.what!r}")
        self.check_lost(why, due)
        lazy = self.world.kind.sync_interval > 0 and not killed
        self.check_readers(why, live, gone if lazy else set())
        for reader in self.readers if self.world.doubt else []:
            reader.confirmed = set()  # of the consumers' log nothing is known either
            reader.kept = set()

    def pushed_out(self, known: Snap, live: dict[int, Message]) -> set[int]:
        """What newer messages take away where deletes before them are gone.

        A group that was torn keeps its messages, but not what it removed. A message makes room
        before its rollup does.
        """
        newer = sum(seq > known.last for seq in live)
        over = len(known.live) + newer - self.limits["max_msgs"]
        if newer == 0 or self.limits["max_msgs"] <= 0:
            return set()
        return set(sorted(known.live)[: max(0, over)])

    def check_kill(self, acked: int) -> None:
        """What was acked, up to that ticket, is there, and as little synced as it was."""
        kept = self.snaps
        lazy = self.world.kind.sync_interval > 0
        base = max(i for i, snap in enumerate(kept) if i == 0 or snap.ticket <= acked)
        if not self.world.doubt:  # else what a sync lost is there or not
            self.snaps = kept[base:]
            self.promised = {}
        self.check_life("kill", killed=True)
        self.snaps = kept
        self.snap("killed")
        for snap in kept[1:]:
            if snap.ticket > acked:
                snap.what = f"unacked {snap.what}"
            snap.ticket = kept[-1].ticket
            snap.at = snap.acked_at = kept[-1].at
        if self.in_memory or not lazy:
            self.snaps = kept[-1:]
        self.synced = -1 if lazy else self.snaps[0].ticket
        self.acked = min(self.acked, self.snaps[-1].last)

    def check_empty(self, why: str) -> None:
        """Nothing of a stream in memory survives."""
        if self.stream.state().last_seq or messages(self.stream):
            raise Wrong(f"{why}: something is left of {self.name!r}")

    def begin_block(self, size: int) -> None:
        """A kill came behind the making of the next block's file, which may be written ahead."""
        folder = self.directory + b"/msgs"
        names = self.world.disk.names(folder) if not self.in_memory else []
        numbers = [
            int(name[:-4]) for name in names if name[:-4].isdigit() and name.endswith(b".blk")
        ]
        if numbers:
            self.world.disk.write(folder + b"/%d.blk" % (max(numbers) + 1), bytes(size))

    def shown(self) -> Shown:
        """What a start shows of it."""
        _, live, last = look(self.stream)
        at = [r.handle.state().floor_stream for r in self.readers if r.handle is not None]
        floors = [min((seq for seq in live if seq > floor), default=last + 1) for floor in at]
        lost = self.stream.lost()
        return Shown(live, last, floors, lost.sequences, lost.places)

    def check_again(self, why: str, before: Shown) -> None:
        """A start with no message since the last one shows the same, and reports no damage more."""
        now = self.shown()
        if now.last != before.last:
            raise Wrong(f"{why}: the last sequence was {before.last} and is {now.last}")
        if now.live != before.live and not self.limits["max_age"]:
            differ = before.live.keys() ^ now.live.keys()
            raise Wrong(f"{why}: {sorted(differ)[:9]} are no more what a start showed")
        if now.floors != before.floors and not self.limits["max_age"]:
            raise Wrong(f"{why}: consumers stood before {before.floors}, now before {now.floors}")
        # What a power cut damaged a start with a checkpoint does not see.
        sound = self.world.sound
        news = [p for p in now.places if not before.covers(p) and (sound or p.kind == "sequences")]
        if news or (sound and set(now.lost) - set(before.lost)):
            raise Wrong(f"{why}: {now.lost} {news} is reported where nothing was written")

    def check_steady(self, why: str) -> None:
        """What no change concerns stays as it is."""
        known = self.snaps[-1].live
        live = messages(self.stream)
        if any(known.get(seq) != message for seq, message in live.items()):
            raise Wrong(f"{why}: there are other messages than before")
        if self.world.kind.sync_interval and self.world.disk.doubtful:
            return  # what was not synced cannot be read any more
        if len(live) < len(known) and self.retention == LIMITS and not self.limits["max_age"]:
            raise Wrong(f"{why}: {sorted(known.keys() - live.keys())[:9]} are gone")

    def check_lost(self, why: str, acked: set[int]) -> None:
        """No bit was changed: whatever is missing was never acked, and hardly ever reported.

        But what a write left that failed or was cut before may stand where a sector did not arrive.
        And one that arrived in part may look as if somebody had changed a payload.
        """
        lost = self.stream.lost()
        kinds = {place.kind for place in lost.places} - {"tail", "batch"}
        if (
            self.world.kind.sync_interval
        ):  # what was acked may have been of a block that is not there
            kinds -= {"sequences"}
        if self.world.sound and (lost.sequences or kinds):
            raise Wrong(f"{why}: {lost} is reported of a disk that is whole")
        torn = {
            seq
            for place in lost.places
            if place.kind == "records" and self.is_torn(place.block, place.at, place.size)
            for seq in range(place.first, place.last + 1)
        }
        quiet = not self.world.debris and not self.world.kind.sync_interval
        if set(lost.sequences) - torn and quiet:
            raise Wrong(f"{why}: {lost} is reported")
        if acked & set(lost.sequences):
            raise Wrong(f"{why}: {acked & set(lost.sequences)} are reported as lost")

    def is_torn(self, block: int, at: int, size: int) -> bool:
        try:
            return self.world.disk.torn(self.directory + b"/msgs/%d.blk" % block, at, size)
        except FileNotFoundError:
            return False

    def aged(self, ever: dict[int, Message]) -> set[int]:
        """With an age in force anything may have become too old meanwhile, the oldest first."""
        return set(ever) if self.limits["max_age"] else set()

    def check_readers(self, why: str, live: dict[int, Message], gone: set[int]) -> None:
        """gone: what came back, because its removal was not synced, need not be delivered."""
        for reader in self.readers:
            if reader.handle is None:
                continue
            floor = reader.handle.state().floor_stream
            ahead = [
                seq
                for seq, message in live.items()
                if seq <= floor and reader.wants(message[0]) and seq not in reader.asked
            ]
            ahead = [seq for seq in ahead if seq not in gone]
            reader.asked |= gone & live.keys()  # it may have been passed over
            if ahead:
                raise Wrong(f"{why}: {reader.name!r} has {ahead[:9]} below its floor {floor}")

    def drain(self, why: str) -> None:
        """Everything that is not acked is delivered, nothing whose ack was confirmed."""
        for _ in range(2):  # the first sync may hear of one that failed: then each wait begins anew
            self.world.env.advance(ACK_WAIT + SECOND)
            self.world.commit()
        for reader in self.readers:
            got: set[int] = set()
            self.world.commit()
            while True:
                reader.got = []
                self.ask(reader, 100)
                if self.world.kind.threads:
                    self.world.commit()  # something may have to be fetched
                if not reader.got:
                    break
                got.update(reader.got)
            live = messages(self.stream)
            again = got & reader.confirmed
            if again:
                raise Wrong(f"{why}: {sorted(again)[:9]} come again to {reader.name!r}")
            due = {seq for seq, message in live.items() if reader.wants(message[0])}
            missing = due - got - reader.asked
            if missing:
                raise Wrong(f"{why}: {sorted(missing)[:9]} do not come to {reader.name!r}")
        self.snap("drain")
