"""The rows of a split: blocks decoded into record batches, one block in memory at a time."""

from collections.abc import Iterator

import pyarrow as pa

from jsserver_spark.batches import Batches
from jsserver_spark.cext.columns import (
    WALK_BAD,
    WALK_FULL,
    BlockReader,
    Plain,
    Wanted,
)
from jsserver_spark.errors import DataLossError
from jsserver_spark.files.directory import Damaged, log
from jsserver_spark.files.plan import BlockPart, Split
from jsserver_spark.options import StoreOptions
from jsserver_spark.schema import Table, table_of


def batches_of(options: StoreOptions, split: Split, table: Table | None) -> Batches:
    return Batches(table if table is not None else table_of(options), split.stream, options)


def read_blocks(
    options: StoreOptions, split: Split, table: Table | None
) -> Iterator[pa.RecordBatch]:
    """All rows of a split of a stream's directory. DataLossError, Damaged."""
    batches = batches_of(options, split, table)
    files = split.location.open(options)
    plain = Plain()
    for part in split.blocks:
        name = str(files.block(part.number))
        try:
            files.load(part.number, plain)
        except FileNotFoundError:
            _lost(options, f"{name} is gone: its messages were removed while they were read")
            continue
        except Damaged as error:
            if options.mode != "PERMISSIVE":
                raise
            log.warning("%s", error)
            continue
        yield from rows_of(options, split, part, plain, files.key(part.number), name, batches)
    if len(batches.rows):
        yield batches.take()


def rows_of(
    options: StoreOptions,
    split: Split,
    part: BlockPart,
    plain: Plain,
    key: bytes,
    name: str,
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """One block's rows; a batch that is not full is left for the next block."""
    bounds = split.bounds
    last = min(bounds.last, part.last)
    wanted = Wanted(
        first=max(bounds.first, part.first),
        last=last,
        min_ts=bounds.min_ts,
        max_ts=bounds.max_ts,
        subjects=bounds.subjects,
        ttl_now=split.ttl_now,
    )
    reader = BlockReader(plain, key, wanted, part.gone)
    while True:
        end = reader.fill(batches.rows)
        if end == WALK_FULL:
            yield batches.take()
            continue
        if end != WALK_BAD or reader.last_seq >= last:
            # Behind the last message that planning saw, a block may be growing.
            _check_end(options, part, bounds.last, reader, name)
            break
        if options.mode != "PERMISSIVE":
            raise Damaged(name, reader.offset)
        at = reader.offset
        log.warning("%s: %d bytes at offset %d are lost", name, reader.skip(), at)


def _check_end(
    options: StoreOptions, part: BlockPart, asked: int, reader: BlockReader, name: str
) -> None:
    """Damaged when a block ends before the last message that planning knows in it."""
    held = part.last_live
    if asked < held or reader.last_seq >= held:
        return
    what = (
        f"it ends behind sequence {reader.last_seq}, and is to hold messages up to {held}: it was"
        " cut off, or they were removed while it was read"
    )
    if options.mode != "PERMISSIVE":
        raise Damaged(name, reader.offset, what)
    log.warning("%s: %s", name, what)


def _lost(options: StoreOptions, what: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{what}; option failOnDataLoss=false reads on without them")
    log.warning("%s", what)
