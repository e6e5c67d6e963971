"""Damages the files of a store in every way and opens it: what must hold whatever was damaged.

Nothing crashes or hangs, no wrong byte is served, what is missing is reported, no sequence is used
again, and no file loses more than the damage took. `python -m tests.fault.damage WORK CASES` runs
cases given as JSON lines; it names each before it runs it, so that a crash names its case.
"""

import faulthandler
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cext.store import PyLog, PyStore

if TYPE_CHECKING:
    from tests.cext.store import Lost

Message = tuple[str, bytes, bytes]
NOW = 1_700_000_000_000_000_000
LIMITS: dict[str, Any] = {"max_bytes": 100_000, "trim": False}
"""Small blocks that no limit empties."""
LOG = "consumers.log"
CACHES = ("checkpoint.jss", "subjects.jsd", ".jsx", "sequence.jsr")
PLAIN = ("clean", "killed")
PACKED = ("clean-packed", "killed-packed")
"""Images whose closed blocks are compressed."""


@dataclass
class World:
    """What a store held when it was left."""

    live: dict[int, Message]
    deleted: list[int]
    last_seq: int
    entries: list[bytes]


@dataclass
class Case:
    image: str
    file: str
    kind: str
    at: int = 0
    other: str = ""


def message(seq: int) -> Message:
    header = b""
    if seq % 4 == 0:
        header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % seq
    elif seq % 29 == 0:
        header = b"no header at all\r\n"
    body = b"%d:" % seq + bytes((seq * 7 + k) % 251 for k in range(seq * 37 % 300))
    return f"s{seq % 7}." + "t" * (seq % 9) + f".{seq % 50}", header, body


def fill(store: PyStore, log: PyLog, count: int) -> World:
    rng = random.Random(7)
    world = World({}, [], 0, [])
    for i in range(count):
        if i % 61 == 60:
            store.skip()
            continue
        subject, header, body = message(store.state()["last_seq"] + 1)
        seq = store.append(subject, body, header)
        world.live[seq] = (subject, header, body)
        if i % 9 == 8:
            gone = rng.choice(sorted(world.live))
            store.remove(gone, erase=i % 2 == 0)
            del world.live[gone]
            world.deleted.append(gone)
        if i % 13 == 12:
            entry = b"entry %d" % seq
            log.append(entry)
            world.entries.append(entry)
        if i % 17 == 16:
            store.commit()
    store.commit()
    world.last_seq = store.state()["last_seq"]
    return world


def build(work: Path, count: int = 700) -> World:
    """Makes the images, which hold the same, and `foreign`, another stream's."""
    for name in (PLAIN[0], PACKED[0], "foreign"):
        directory = work / name
        directory.mkdir()
        store = opened(directory, name, "F" if name == "foreign" else "D")
        log = PyLog(store, directory / LOG)
        if name == "foreign":
            fill(store, log, count // 2)
        else:
            world = fill(store, log, count)
        store.upkeep()
        if name != "foreign":
            shutil.copytree(directory, work / name.replace("clean", "killed"))
        store.close()
    return world


def opened(directory: Path, image: str, name: str = "D") -> PyStore:
    compress = image in PACKED
    return PyStore(directory, name, commit="manual", now=NOW, compress=compress, **LIMITS)


def is_packed(path: Path) -> bool:
    return path.suffix == ".blk" and path.read_bytes()[:4] == b"cmp\x01"


def files(image: Path) -> list[str]:
    return sorted(str(p.relative_to(image)) for p in image.rglob("*") if p.is_file())


def flips(work: Path, rng: random.Random, count: int, packed: bool = False) -> Iterator[Case]:
    """packed: of compressed blocks alone."""
    places = [(i, f) for i in PLAIN for f in files(work / i)]
    if packed:
        places = [(i, f) for i in PACKED for f in files(work / i) if is_packed(work / i / f)]
    for _ in range(count):
        image, name = rng.choice(places)
        size = (work / image / name).stat().st_size
        if size:
            yield Case(image, name, "flip", rng.randrange(size * 8))


def aimed(work: Path, step: int = 1) -> Iterator[Case]:
    """Every `step`-th bit of the first 64 bytes of every cache."""
    for image in PLAIN:
        for name in files(work / image):
            if name.endswith(CACHES):
                for bit in range(0, 512, step):
                    yield Case(image, name, "flip", bit)


def torn(work: Path, rng: random.Random) -> Iterator[Case]:
    """Cut, emptied, missing, 512 bytes zeroed, another stream's or another block's bytes."""
    for image in PLAIN + PACKED:
        names = files(work / image)
        for name in names:
            size = (work / image / name).stat().st_size
            yield Case(image, name, "missing")
            yield Case(image, name, "empty")
            for _ in range(3):
                yield Case(image, name, "cut", rng.randrange(max(size, 1)))
                yield Case(image, name, "zero", rng.randrange(max(size, 1)) & ~511)
            if (work / "foreign" / name).exists():
                yield Case(image, name, "foreign")
            others = [n for n in names if n != name and n.endswith(name.rpartition(".")[2])]
            if others:
                yield Case(image, name, "copied", other=rng.choice(others))
            if name.endswith(CACHES[:3]):
                yield Case(image, name, "directory")


def harm(work: Path, directory: Path, case: Case) -> None:
    path = directory / case.file
    if case.kind == "missing":
        path.unlink()
    elif case.kind == "empty":
        path.write_bytes(b"")
    elif case.kind == "directory":
        path.unlink()
        path.mkdir()
    elif case.kind == "foreign":
        path.write_bytes((work / "foreign" / case.file).read_bytes())
    elif case.kind == "copied":
        path.write_bytes((work / case.image / case.other).read_bytes())
    else:
        data = bytearray(path.read_bytes())
        if case.kind == "flip":
            data[case.at // 8] ^= 1 << case.at % 8
        elif case.kind == "cut":
            del data[case.at :]
        else:
            data[case.at : case.at + 512] = bytes(len(data[case.at : case.at + 512]))
        path.write_bytes(data)


def told(lost: "Lost") -> set[int]:
    """The sequences that a store names as lost, one by one or with a place."""
    found = set(lost["msgs"])
    for _, _, _, _, first, last, _ in lost["places"]:
        found |= set(range(first, last + 1)) if first else set()
    return found


class Wrong(AssertionError):
    """What must never happen."""


def need(ok: bool, what: object) -> None:
    if not ok:
        raise Wrong(what)


def served(store: PyStore, last: int) -> tuple[dict[int, Message], set[int]]:
    """Every message that can be had, and the sequences that answer that they are damaged."""
    found: dict[int, Message] = {}
    bad = set()
    for seq in range(1, last + 3):
        try:
            _, _, subject, header, data = store.load(seq)
            found[seq] = (subject, header, data)
        except KeyError:
            continue
        except (ValueError, OSError):
            bad.add(seq)
    return found, bad


def readable(store: PyStore, last: int) -> list[int]:
    """The sequences in the order in which a reader meets them."""
    at = 1
    seqs: list[int] = []
    while at:
        at = store.next((), at)
        if at:
            need(at <= last, f"reading meets sequence {at} behind {last}")
            need(not seqs or at > seqs[-1], f"reading goes back to {at}")
            seqs.append(at)
            at += 1
    return seqs


def check(world: World, directory: Path, case: Case) -> None:
    before = {n: (directory / n).read_bytes() for n in files(directory) if n.endswith(".blk")}
    try:
        store = opened(directory, case.image)
    except OSError as error:
        need(case.kind == "directory", f"does not open: {error}")
        return
    state = store.state()
    lost = store.lost()
    got, bad = served(store, max(world.last_seq, state["last_seq"]))
    for seq, found in got.items():
        if seq in world.live:
            need(found == world.live[seq], f"sequence {seq}: other bytes: {found}")
        else:
            need(seq in world.deleted, f"sequence {seq} is invented: {found}")
            need(lost["damage"] > 0, f"sequence {seq} is back, in silence")
    lost = store.lost()
    reported = told(lost)
    missing = set(world.live) - set(got)
    if torn_off(case, before.get(case.file, b"")):
        missing = {seq for seq in missing if seq <= state["last_seq"]}
    need(missing <= reported, f"missing in silence: {sorted(missing - reported)[:20]}")
    need(bad <= reported, f"damaged and not reported: {sorted(bad - reported)[:20]}")
    both = set(got) & set(lost["msgs"])
    need(not both, f"reported and served: {sorted(both)[:20]}")
    chunked = case.image in PACKED and case.file.endswith(".blk")
    limit = 1 if case.kind == "flip" and not chunked else len(world.live)
    need(len(missing) <= limit, f"one bit costs {len(missing)} messages: {sorted(missing)[:20]}")
    seqs = readable(store, state["last_seq"])
    need(set(got) <= set(seqs), "a message that can be had is not met by reading on")
    need(len(seqs) == state["msgs"], f"{len(seqs)} met, {state['msgs']} counted")
    check_log(world, store, directory, case)
    if not may_fall_back(case) and not torn_off(case, before.get(case.file, b"")):
        need(state["last_seq"] >= world.last_seq, f"last sequence falls to {state['last_seq']}")
    kept = {n: p.read_bytes() for n, p in ((p.name, p) for p in (directory / "msgs").iterdir())
            if p.is_file()}  # fmt: skip
    for name, data in before.items():
        number = Path(name).name
        whole = kept.get(number, b"")
        aside = [kept[k] for k in kept if k.startswith("damaged-" + number[:-4] + ".")]
        if whole != data[: len(whole)] or (len(whole) < len(data)):
            rest = data[len(whole) :]
            need(
                not any(rest) or any(rest.rstrip(b"\0") in a for a in aside),
                f"{name}: {len(data)} bytes became {len(whole)}",
            )
    seq = store.append("after", b"damage")
    need(seq > state["last_seq"], f"sequence {seq} is used again")
    store.commit()
    store.upkeep()
    store.close()
    again = opened(directory, case.image)
    got2, _ = served(again, world.last_seq)
    got[seq] = ("after", b"", b"damage")
    if seq <= world.last_seq + 2:
        got2[seq] = got2.get(seq, ("", b"", b""))
    need(again.load(seq)[4] == b"damage", "what was stored behind the damage is gone")
    got = {k: v for k, v in got.items() if k <= world.last_seq + 2}
    need(got2 == got, f"the second start differs: {sorted(set(got) ^ set(got2))[:20]}")
    forgotten = set(lost["msgs"]) - set(again.lost()["msgs"])
    need(not forgotten, f"the second start forgets what is lost: {sorted(forgotten)[:20]}")
    again.close()


def check_log(world: World, store: PyStore, directory: Path, case: Case) -> None:
    try:
        log = PyLog(store, directory / LOG)
    except OSError as error:
        need(case.file == LOG and case.kind == "directory", f"the log does not open: {error}")
        return
    kept = log.replayed
    need(all(e in world.entries for e in kept), f"an entry is invented: {kept}")
    need(kept == [e for e in world.entries if e in kept], "entries change places")
    if case.file != LOG:
        need(kept == world.entries, "entries are gone")
    elif case.kind == "flip":
        need(len(kept) >= len(world.entries) - 1, f"one bit costs {len(world.entries) - len(kept)}")
        need(len(kept) == len(world.entries) or log.damage() > 0, "entries are gone in silence")


def may_fall_back(case: Case) -> bool:
    """A file that ends where a crash may have ended it cannot be told from that."""
    return "killed" in case.image and case.kind == "cut" and case.at % 4096 == 0


def torn_off(case: Case, data: bytes) -> bool:
    """Nor can zeros from some sector on to the end, or an end right behind a record."""
    if "killed" not in case.image or not data:
        return False
    at = 0
    while case.kind == "cut" and at + 4 <= len(data):
        at += max(4, int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF)
    if case.kind == "cut":
        return at == len(data)
    return case.kind == "zero" and not any(data[case.at :])


def run(work: Path, cases: list[Case], world: World) -> list[str]:
    """Runs the cases in this process; what went wrong, each with its case."""
    wrong = []
    directory = work / "case"
    for case in cases:
        print(json.dumps(asdict(case)), flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(work / case.image, directory)
        harm(work, directory, case)
        started = time.process_time()
        faulthandler.dump_traceback_later(20, exit=True)
        try:
            check(world, directory, case)
        except (Wrong, OSError, ValueError, RuntimeError, MemoryError) as error:
            wrong.append(f"{case}: {type(error).__name__}: {error}")
        faulthandler.cancel_dump_traceback_later()
        if time.process_time() - started > 5:
            wrong.append(f"{case}: took {time.process_time() - started:.1f} s")
    return wrong


def run_apart(work: Path, cases: list[Case], world: World, limit: float) -> list[str]:
    """Runs them in a process of their own, which a crash may end."""
    listing = work / "cases.json"
    facts = work / "world.json"
    listing.write_text(json.dumps([asdict(c) for c in cases]))
    facts.write_text(
        json.dumps(
            {
                "live": [[k, v[0], v[1].hex(), v[2].hex()] for k, v in world.live.items()],
                "deleted": world.deleted,
                "last_seq": world.last_seq,
                "entries": [e.hex() for e in world.entries],
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.fault.damage", str(work)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
        env=os.environ,
    )
    lines = done.stdout.splitlines()
    wrong = [line[6:] for line in lines if line.startswith("WRONG ")]
    if done.returncode != 0:
        last = next((line for line in reversed(lines) if line.startswith("{")), "none")
        wrong.append(f"{last}: ended with {done.returncode}: {done.stderr[-1500:]}")
    return wrong


def main() -> None:
    faulthandler.enable()
    work = Path(sys.argv[1])
    facts = json.loads((work / "world.json").read_text())
    world = World(
        {k: (s, bytes.fromhex(h), bytes.fromhex(d)) for k, s, h, d in facts["live"]},
        facts["deleted"],
        facts["last_seq"],
        [bytes.fromhex(e) for e in facts["entries"]],
    )
    cases = [Case(**c) for c in json.loads((work / "cases.json").read_text())]
    for line in run(work, cases, world):
        print("WRONG " + line.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
