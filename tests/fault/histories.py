"""Random histories of a store, and what of it must be the same before and after a kill."""

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tests.cext.store import PyStore

if TYPE_CHECKING:
    from tests.cext.store import State

SECOND = 1_000_000_000
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"

Messages = dict[int, tuple[Any, ...]]


@dataclass
class Seen:
    """Everything that can be asked about what a store holds."""

    state: "State"
    messages: Messages
    subjects: dict[str, int]
    lasts: list[int]

    def differences(self, other: "Seen") -> str:
        """What is another in `other`, in words; empty when nothing is."""
        lost = sorted(set(self.messages) - set(other.messages))
        back = sorted(set(other.messages) - set(self.messages))
        changed = sorted(
            seq
            for seq in set(self.messages) & set(other.messages)
            if self.messages[seq] != other.messages[seq]
        )
        found = [
            f"{len(seqs)} {what}: {seqs[:10]}"
            for what, seqs in (("lost", lost), ("came back", back), ("changed", changed))
            if seqs
        ]
        if self.state != other.state:
            found.append(f"state {self.state} became {other.state}")
        if self.subjects != other.subjects or self.lasts != other.lasts:
            found.append("subjects differ")
        return "; ".join(found)


def seen(store: PyStore) -> Seen:
    state = store.state()
    messages = {}
    seq = store.next()
    while seq:
        messages[seq] = store.load(seq)[1:]
        seq = store.next((), seq + 1)
    return Seen(state, messages, store.subjects(), store.last_per_subject())


class Limits(TypedDict):
    """As a PyStore takes them."""

    max_msgs: int
    max_bytes: int
    max_msgs_per: int
    max_age: int


Limit = Literal["max_age", "max_bytes", "max_msgs", "max_msgs_per"]
LIMITS: tuple[Limit, ...] = ("max_age", "max_bytes", "max_msgs", "max_msgs_per")


def limits_of(rng: random.Random) -> Limits:
    """Limits that are met often, in blocks that are small wherever there is a limit of bytes."""
    return {
        "max_msgs": rng.choice([-1, -1, -1, 2, 10, 60, 300]),
        "max_bytes": rng.choice([-1, 1 << 40, 500, 20_000, 127_000, 127_000]),
        "max_msgs_per": rng.choice([-1, -1, 1, 1, 2, 5, 30]),
        "max_age": rng.choice([0, 0, 0, 3 * SECOND, 20 * SECOND]),
    }


@dataclass
class History:
    """One directory, and a store on it that lives through a random history."""

    directory: Path
    rng: random.Random
    now: int = 1_000_000 * SECOND
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.limits = limits_of(self.rng)
        self.trim = self.rng.random() < 0.85
        self.n_subjects = self.rng.choice([1, 3, 8, 40])
        self.weights = [self.rng.choice([0, 1, 1, 3]) for _ in OPERATIONS]
        self.store = self.open(self.directory, self.now)

    def open(self, directory: Path, now: int) -> PyStore:
        return PyStore(directory, "S", commit="manual", now=now, trim=self.trim, **self.limits)

    def subject(self) -> str:
        # Few subjects get most of it, and some are written once only.
        n = min(self.rng.randrange(self.n_subjects), self.rng.randrange(self.n_subjects))
        return f"k.{n}.{n % 3}" if n % 2 else f"k.{n}"

    def live(self) -> list[int]:
        state = self.store.state()
        gone = set(self.store.deleted())
        return [q for q in range(state["first_seq"], state["last_seq"] + 1) if q not in gone]

    def step(self) -> None:
        name, operation = self.rng.choices(OPERATIONS, [w + 0.2 for w in self.weights])[0]
        self.done.append(name)
        operation(self)

    def publish(self) -> None:
        for _ in range(self.rng.choice([1, 1, 2, 10, 100])):
            self.now += self.rng.choice([0, SECOND // 100, SECOND // 10])
            self.store.tick(self.now)
            size = self.rng.choice([0, 5, 60, 300, 300, 2000])
            header = HEADER if self.rng.random() < 0.2 else b""
            self.store.append(self.subject(), self.rng.randbytes(size), header, self.now)

    def delete(self) -> None:
        live = self.live()
        for seq in self.rng.sample(live, min(len(live), self.rng.choice([1, 1, 5, 40]))):
            self.store.remove(seq, self.rng.random() < 0.6)

    def delete_head(self) -> None:
        for seq in self.live()[: self.rng.choice([1, 3, 30])]:
            self.store.remove(seq, self.rng.random() < 0.3)

    def delete_newest(self) -> None:
        for seq in self.live()[-self.rng.choice([1, 2]) :]:
            self.store.remove(seq, self.rng.random() < 0.6)

    def purge(self) -> None:
        kind = self.rng.choice(["all", "filter", "filter", "keep", "keep filter", "seq", "seq"])
        last = self.store.state()["last_seq"]
        patterns = (self.rng.choice([self.subject(), "k.*", "k.*.1"]),) if "filter" in kind else ()
        keep = self.rng.choice([1, 3, 50]) if "keep" in kind else 0
        seq = max(1, last - self.rng.randrange(200)) if kind == "seq" else 0
        self.store.purge(patterns, seq, keep)

    def roll_up(self) -> None:
        """As the stream does it: the message, then a purge that keeps it."""
        subject = self.subject()
        self.store.append(subject, b"rolled up", b"", self.now)
        self.store.purge(() if self.rng.random() < 0.2 else (subject,), 0, 1)

    def skip(self) -> None:
        self.store.skip()

    def update(self) -> None:
        changed = limits_of(self.rng)
        for name in self.rng.sample(LIMITS, self.rng.choice([1, 1, 2, 4])):
            self.limits[name] = changed[name]
        self.store.update(**self.limits)

    def wait(self) -> None:
        self.now += self.rng.choice([1, 1, 4, 30]) * SECOND
        self.store.tick(self.now)

    def upkeep(self) -> None:
        """Sidecars and compaction."""
        self.store.commit()
        self.store.upkeep()

    def commit(self) -> None:
        self.store.commit()

    # ---- restarts ----

    def kill(self) -> None:
        self.store.abandon()
        self.store = self.open(self.directory, self.now)

    def compared_after_kill(self, copy: Path) -> str:
        """What a kill at this moment would change of what was committed; the store goes on."""
        self.store.tick(self.now)
        unlinked = self.commit_and_watch(copy.with_name("blocks"))
        before, now = seen(self.store), self.now
        for _ in range(self.rng.choice([0, 0, 2])):
            if self.rng.random() < 0.7:
                self.publish()
            else:
                self.delete()
        shutil.copytree(self.directory, copy)
        if unlinked is not None:
            (copy / "msgs" / unlinked[0]).write_bytes(unlinked[1])
        found = ""
        for opening in ("", "opened again: "):
            after = self.open(copy, now)
            differences = before.differences(seen(after))
            if differences and not found:
                found = opening + differences
            if opening:
                after.close()
            else:
                after.abandon()
        shutil.rmtree(copy)
        return found

    def commit_and_watch(self, keep: Path) -> tuple[str, bytes] | None:
        """A block's file that this commit removed, as its last: a power cut may bring it back."""
        messages = self.directory / "msgs"
        keep.mkdir()
        for path in messages.glob("*.blk"):
            os.link(path, keep / path.name)
        before = messages.stat().st_ino
        self.store.commit()
        gone = [path for path in keep.iterdir() if not (messages / path.name).exists()]
        found = None
        if len(gone) == 1 and messages.stat().st_ino == before:
            found = gone[0].name, gone[0].read_bytes()
        shutil.rmtree(keep)
        return found

    def compared_after_stop(self) -> str:
        """What a clean stop changes, and a kill right behind it."""
        self.store.commit()
        self.store.tick(self.now)
        before = seen(self.store)
        self.store.close()
        kept = self.rng.random() < 0.5
        if not kept:
            checkpoint = self.directory / "msgs" / "checkpoint.jss"
            if checkpoint.exists():
                os.unlink(checkpoint)
        self.store = self.open(self.directory, self.now)
        found = before.differences(seen(self.store))
        return f"clean stop, checkpoint kept {kept}: {found}" if found else ""


OPERATIONS = [
    ("publish", History.publish),
    ("publish", History.publish),
    ("publish", History.publish),
    ("delete", History.delete),
    ("delete head", History.delete_head),
    ("delete newest", History.delete_newest),
    ("purge", History.purge),
    ("roll up", History.roll_up),
    ("skip", History.skip),
    ("update", History.update),
    ("wait", History.wait),
    ("upkeep", History.upkeep),
    ("commit", History.commit),
]


def run(directory: Path, seed: int, rounds: int) -> str:
    """A history of its own; what a restart changed, with what led there."""
    rng = random.Random(seed)
    history = History(directory / "S", rng)
    try:
        for number in range(rounds):
            for _ in range(rng.choice([2, 8, 25])):
                history.step()
            if rng.random() < 0.7:
                found = history.compared_after_kill(directory / "copy")
                if rng.random() < 0.5:
                    history.store.commit()
                    history.kill()
            else:
                found = history.compared_after_stop()
            if found:
                return f"seed {seed}, round {number}, {history.limits}: {found}"
    finally:
        history.store.close()
        shutil.rmtree(directory / "S")
    return ""
