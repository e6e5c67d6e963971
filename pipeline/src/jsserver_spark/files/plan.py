"""What of a stream's files is to be read, and by which task.

Which messages are live is taken from a cache beside the blocks when it is valid, else from the
blocks themselves, by a replay as the server's own recovery does it. Nothing is written.
"""

import contextlib
import mmap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy
from pyspark.sql.datasource import InputPartition

from jsserver_spark.cext.columns import (
    SIDE_LOAD,
    SIDE_NONE,
    WALK_BAD,
    Plain,
    Survey,
    block_key,
    checkpoint,
    index_db,
    record_kinds,
)
from jsserver_spark.errors import NatsError
from jsserver_spark.files.bounds import MAX_TIME, MIN_TIME, Bounds
from jsserver_spark.files.directory import Config, Damaged, Location, StreamFiles, log, tail_of
from jsserver_spark.options import StoreOptions

_CLOCK_SLACK = 600 * 1_000_000_000
"""How far a clock may have stepped back inside a block whose first and last times are known."""

_RUN = 2


class BlockPart(NamedTuple):
    """A block's share of a split: live are first..last without `gone` (runs of 2 x u64 each)."""

    number: int
    first: int
    last: int
    gone: bytes

    @property
    def last_live(self) -> int:
        """The last message that is not gone."""
        last = self.last
        for at in range(len(self.gone) - 16, -1, -16):
            run = (int.from_bytes(self.gone[i : i + 8], "little") for i in (at, at + 8))
            start, stop = run
            if stop < last:
                break
            last = min(last, start - 1)
        return last


@dataclass
class Split(InputPartition):
    """What one task reads: whole blocks, in order. Small, and pickled into the task."""

    location: Location
    stream: str
    blocks: tuple[BlockPart, ...]
    bounds: Bounds
    ttl_now: int = 0
    """When the messages' own lives were looked at, ns since 1970; 0: they have none."""


class Live(NamedTuple):
    """A block's live messages, as a cache or a survey knows them."""

    number: int
    first: int
    last: int
    min_ts: int
    max_ts: int
    gone: bytes


@dataclass(frozen=True)
class Found:
    """The live messages of a stream."""

    blocks: list[Live]
    tail_bytes_ignored: int = 0
    """Behind the last good record of a block that may be growing."""

    source: str = "blocks"
    last_seq: int = 0
    """Of a replay: the highest sequence in the blocks."""


class Claim(NamedTuple):
    """What a cache says that does not fit the blocks beside it."""

    cache: str
    last_seq: int
    blocks: dict[int, int]
    """The last messages of blocks, by number, where nothing was removed since."""


@dataclass(frozen=True)
class Plan:
    """Everything that planning found out."""

    stream: str
    config: Config
    splits: list[Split]
    blocks: int
    tail_bytes_ignored: int
    source: str
    """"index.db" or "checkpoint.jss" when that was valid, "blocks" when they were replayed."""


# ---- from caches -------------------------------------------------------------------------------


def from_index(
    body: bytes,
    stream: str,
    numbers: Sequence[int],
    end: bytes | None,
    gone: Callable[[int, str], None] | None = None,
) -> Found | None:
    """What nats-server's index.db says, None when it does not fit the blocks.

    `end`: the last 8 plain bytes of the last block. `gone` is called with the number of a block
    that has messages and is not there, though blocks before it are.
    """
    found = index_db(body, block_key(stream))
    if found is None:
        return None
    blocks, last_number, last_end = found[4], found[5], found[6]
    there = set(numbers)
    if not numbers or last_number != numbers[-1] or end != last_end:
        return None
    lacking = [b for b in blocks if b[0] not in there and b[4] >= b[2]]
    absent = [b[0] for b in lacking if not _covers(b[7], b[2], b[4])]
    if absent and gone is not None and absent[-1] > numbers[0]:
        gone(absent[-1], "index.db")
    if lacking:
        return None
    return Found(
        [
            Live(number, first, last, ts1 - _CLOCK_SLACK, ts2 + _CLOCK_SLACK, gone)
            for number, _, first, ts1, last, ts2, _, gone in blocks
            if last >= first
        ],
        source="index.db",
    )


def _from_caches(
    files: StreamFiles, numbers: list[int], plain: Plain, permissive: bool, claims: list[Claim]
) -> Found | None:
    """What a valid cache says; what others say is added to `claims`.

    Damaged when a block is gone that a cache knows, and nothing but a loss explains it."""

    def gone(number: int, cache: str) -> None:
        what = f"it is gone, and {cache} says that it has messages"
        if files.config.removes_inside or permissive:
            log.warning("%s: %s", files.block(number), what)
        else:
            raise Damaged(files.block(number), 0, what)

    if not numbers:
        return None
    body = files.index()
    if body is not None:
        end = None
        with contextlib.suppress(FileNotFoundError, NatsError):
            files.load(numbers[-1], plain)
            end = tail_of(plain)
        found = from_index(body, files.name, numbers, end, gone) if end is not None else None
        if found is not None:
            return found
        known = index_db(body, block_key(files.name))
        if known is not None and known[5] == numbers[-1]:
            claims.append(Claim("index.db", known[3], {}))
    return None if files.encrypted else _from_checkpoint(files, numbers, gone, claims)


def _from_checkpoint(
    files: StreamFiles,
    numbers: list[int],
    gone: Callable[[int, str], None],
    claims: list[Claim],
) -> Found | None:
    """What our checkpoint says; it is replaced whole, never changed, so it can be mapped."""
    try:
        with (
            (files.messages / "checkpoint.jss").open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            found = checkpoint(view, files.name)
        with files.block(numbers[-1]).open("rb") as last:
            last.seek(-8, 2)
            end = last.read()
        if found is None:
            return None
        if end != found[2]:
            if found[1] and found[1][-1][0] == numbers[-1]:
                claims.append(Claim("checkpoint.jss", found[0], {}))
            return None
        if [block[0] for block in found[1]] != numbers:
            absent = [b[0] for b in found[1] if b[6] and b[0] not in set(numbers)]
            if absent and absent[-1] > numbers[0]:
                gone(absent[-1], "checkpoint.jss")
            return None
        if any(
            files.size(number) != size and files.plain_size(number) != size
            for number, size, *_ in found[1]
        ):
            held = {b[0]: BlockPart(b[0], b[2], b[3], b[8]).last_live for b in found[1] if b[6]}
            claims.append(Claim("checkpoint.jss", found[0], held))
            return None
    except (OSError, ValueError):
        return None
    return Found(
        [
            Live(number, first, last, ts1 - _CLOCK_SLACK, ts2 + _CLOCK_SLACK, gone)
            for number, _, first, last, ts1, ts2, live, _, gone in found[1]
            if live
        ],
        source="checkpoint.jss",
    )


# ---- from the blocks ---------------------------------------------------------------------------


class Block(NamedTuple):
    """A block to be surveyed."""

    number: int
    key: bytes
    name: str
    """For errors."""

    load: Callable[[], Plain]
    """Its plain bytes, good until the next one is loaded. FileNotFoundError, Damaged."""


Blocks = Callable[[], Iterable[Block]]
"""All blocks in order, every time anew."""


def survey(
    config: Config, blocks: Blocks, last: int, *, permissive: bool, ours: StreamFiles | None = None
) -> Found:
    """Replays all blocks; `last` is the number of the one that may be growing. Damaged.

    `ours`: our server wrote last; then sidecars need no block read.
    """
    replayed, ignored = _replay(config, blocks, last, ours, permissive)
    replayed.finish(time.time_ns())
    paired, gone = replayed.gone()
    words = numpy.frombuffer(memoryview(gone), dtype=numpy.uint64)
    runs = words.reshape(-1, _RUN) if paired else _runs(words, replayed.first_seq)
    found = []
    before: tuple[int, int] | None = None
    for number, first, upto, min_ts, max_ts, _, _ in replayed.surveyed():
        if first:
            if before is not None:
                _look_between(before, (number, first), runs)
            before = (number, upto)
            part = _runs_between(runs, first, upto)
            if not _covers(part, first, upto):
                found.append(Live(number, first, upto, min_ts, max_ts, part))
    return Found(found, ignored, last_seq=replayed.last_seq)


def _look_between(before: tuple[int, int], behind: tuple[int, int], runs: "numpy.ndarray") -> None:
    """Warns of blocks that are not there, and whose messages nothing says to be removed.

    The message whose removal empties a block leaves no mark, others do but by a subject's limits or
    purge; so this may be all right. Blocks: their number, and their last or first sequence.
    """
    absent = behind[0] - before[0] - 1
    first, last = before[1] + 1, behind[1] - 1
    if absent <= 0 or last < first:
        return
    parts = numpy.frombuffer(_runs_between(runs, first, last), dtype=numpy.uint64).reshape(-1, _RUN)
    known = numpy.minimum(parts[:, 1], last) - numpy.maximum(parts[:, 0], first) + 1
    if last - first + 1 - int(known.sum()) > absent:
        log.warning(
            "there are no blocks %d to %d: sequences %d to %d are missing, and nothing says that"
            " they were removed",
            before[0] + 1,
            behind[0] - 1,
            first,
            last,
        )


def _replay(
    config: Config,
    blocks: Blocks,
    last: int,
    ours: StreamFiles | None,
    permissive: bool,
) -> tuple[Survey, int]:
    """The survey after all blocks and the bytes ignored at the end."""
    replayed = Survey(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_age=config.max_age,
        max_msgs_per=config.max_msgs_per_subject,
        trim=config.trims,
        ours=ours is not None,
        lives=config.allow_msg_ttl,
    )
    if ours is not None:
        replayed.dictionary(ours.dictionary() or b"", config.name)
    ignored = 0
    for block in blocks():
        try:
            if ours is None or not _sided(replayed, block, ours):
                ignored += _walked(replayed, block, block.number == last, permissive)
        except FileNotFoundError:
            continue  # retention was faster: its messages are gone
        except Damaged as error:
            if not permissive:
                raise
            log.warning("%s", error)
    return replayed, ignored


def _sided(replayed: Survey, block: Block, ours: StreamFiles) -> bool:
    """The block from its sidecar, if that fits."""
    side = ours.side(block.number)
    if side is None:
        return False
    size, end = ours.end(block.number)
    done = replayed.sided(block.number, side, size, end, ours.name)
    if done == SIDE_LOAD:
        done = replayed.sided(block.number, side, size, end, ours.name, block.load())
    return done != SIDE_NONE


def _walked(replayed: Survey, block: Block, is_last: bool, permissive: bool) -> int:
    """The block from its bytes: the bytes ignored at its end."""
    plain = block.load()
    if not len(plain) and not is_last:
        if not permissive:
            raise Damaged(block.name, 0, "it is empty, and others are behind it")
        log.warning("%s is empty, and others are behind it", block.name)
    replayed.begin(block.number, plain, block.key)
    while replayed.walk() == WALK_BAD:
        if replayed.rest_is_zero:
            return 0
        at = replayed.offset
        passed = replayed.skip()
        if is_last and at + passed == len(plain):
            return passed
        if not permissive:
            raise Damaged(block.name, at)
        log.warning("%s: %d bytes at offset %d are lost", block.name, passed, at)
    return 0


def _runs(
    sequences: "numpy.ndarray[tuple[int], numpy.dtype[numpy.uint64]]", first: int
) -> "numpy.ndarray":
    """Sequences in any order as runs, with all those below the first."""
    one = numpy.unique(sequences)
    one = one[one >= first]
    runs = numpy.empty((0, _RUN), dtype=numpy.uint64)
    if len(one):
        breaks = numpy.flatnonzero(numpy.diff(one) != 1)
        firsts = one[numpy.concatenate(([0], breaks + 1))]
        lasts = one[numpy.concatenate((breaks, [len(one) - 1]))]
        runs = numpy.stack((firsts, lasts), axis=1)
    if first <= 1:
        return runs
    below = numpy.array([[0, first - 1]], dtype=numpy.uint64)
    if len(runs) and runs[0, 0] == first:  # one run, or a block that both cover would be looked at
        runs[0, 0] = 0
        return runs
    return numpy.concatenate((below, runs))


def _runs_between(runs: "numpy.ndarray", first: int, last: int) -> bytes:
    """Those that reach into first..last."""
    low = int(runs[:, 1].searchsorted(numpy.uint64(first), "left"))
    high = int(runs[:, 0].searchsorted(numpy.uint64(last), "right"))
    return bytes(runs[low:high].tobytes())


def _covers(runs: bytes, first: int, last: int) -> bool:
    """Whether one run holds everything."""
    if len(runs) != 16:
        return False
    return (
        int.from_bytes(runs[:8], "little") <= first and int.from_bytes(runs[8:], "little") >= last
    )


def _written_by_us(files: StreamFiles, numbers: list[int], plain: Plain) -> bool:
    """Whether our server was the last to write: its marks are in the last block with records."""
    for number in reversed(numbers):
        try:
            files.load(number, plain)
        except (FileNotFoundError, Damaged):
            continue
        records, marks = record_kinds(plain, files.key(number))
        if records:
            return marks > 0
    return False


def _surveyed(files: StreamFiles, numbers: list[int], plain: Plain, permissive: bool) -> Found:
    def load(number: int) -> Plain:
        files.load(number, plain)
        return plain

    def blocks() -> Iterable[Block]:
        for number in numbers:
            name = str(files.block(number))
            yield Block(number, files.key(number), name, partial(load, number))

    by_us = not files.encrypted and _written_by_us(files, numbers, plain)
    ours = files if by_us else None
    last = numbers[-1] if numbers else 0
    try:
        return survey(files.config, blocks, last, permissive=permissive, ours=ours)
    except Damaged:
        # A block that is written to may show a later part before an earlier one: look once more.
        return survey(files.config, blocks, last, permissive=permissive, ours=ours)


# ---- the plan ----------------------------------------------------------------------------------


def plan_directory(options: StoreOptions, location: Location, bounds_for: "BoundsFor") -> Plan:
    """The splits of a stream's directory. NatsError says what is damaged and where."""
    files = location.open(options)
    bounds = bounds_for(files.name)
    numbers = files.numbers()
    plain = Plain()
    permissive = options.mode == "PERMISSIVE"
    claims: list[Claim] = []
    found = _from_caches(files, numbers, plain, permissive, claims)
    if found is None:
        found = _surveyed(files, numbers, plain, permissive)
        _check_claims(files, numbers, found, claims, permissive)
    bounds = aged(bounds, files.config)
    parts, sizes = [], []
    for block in kept(found.blocks, bounds):
        with contextlib.suppress(FileNotFoundError):
            size = files.size(block.number)
            if not size and not permissive:
                raise Damaged(files.block(block.number), 0, "it is empty, and has messages")
            sizes.append(size)
            parts.append(BlockPart(block.number, block.first, block.last, block.gone))
    ttl_now = time.time_ns() if files.config.allow_msg_ttl else 0
    base = Split(location, files.name, (), bounds, ttl_now)
    splits = [
        replace(base, blocks=tuple(chosen))
        for chosen in _packed(parts, sizes, options.split_bytes, options.min_partitions)
    ]
    return Plan(
        files.name,
        files.config,
        splits,
        len(parts),
        found.tail_bytes_ignored,
        found.source,
    )


def _check_claims(
    files: StreamFiles, numbers: list[int], found: Found, claims: list[Claim], permissive: bool
) -> None:
    """Damaged when a block ends before what a cache says that it holds."""
    there = {b.number: BlockPart(b.number, b.first, b.last, b.gone).last_live for b in found.blocks}
    for claim in claims:
        ends = [(number, there.get(number, 0), last) for number, last in claim.blocks.items()]
        for number, last, held in (*ends, (numbers[-1], found.last_seq, claim.last_seq)):
            if held > last:
                what = (
                    f"it ends behind sequence {last}, and {claim.cache} says that it holds messages"
                    f" up to {held}: it was cut off"
                )
                if not permissive:
                    raise Damaged(files.block(number), files.size(number), what)
                log.warning("%s: %s", files.block(number), what)


BoundsFor = Callable[[str], Bounds]
"""The bounds asked for, when the stream's name is known."""


def aged(bounds: Bounds, config: Config) -> Bounds:
    """Without what the stream's max_age has removed by now."""
    if config.max_age <= 0:
        return bounds
    return bounds.narrowed(min_ts=time.time_ns() - config.max_age + 1)


def kept(blocks: Iterable[Live], bounds: Bounds) -> list[Live]:
    """The blocks that can hold what is asked for, ascending."""
    if bounds.empty:
        return []
    return [
        block
        for block in blocks
        if block.first <= bounds.last
        and block.last >= bounds.first
        and (bounds.min_ts == MIN_TIME or block.max_ts >= bounds.min_ts)
        and (bounds.max_ts == MAX_TIME or block.min_ts <= bounds.max_ts)
    ]


def _packed(
    parts: list[BlockPart], sizes: list[int], split_bytes: int, at_least: int
) -> Iterable[list[BlockPart]]:
    """Neighbours together up to a size, and small enough that there are enough splits."""
    limit = min(split_bytes, max(1, sum(sizes) // at_least))
    chosen: list[BlockPart] = []
    total = 0
    for part, size in zip(parts, sizes, strict=True):
        if chosen and total + size > limit:
            yield chosen
            chosen, total = [], 0
        chosen.append(part)
        total += size
    if chosen:
        yield chosen
