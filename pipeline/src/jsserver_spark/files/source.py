"""The format `nats-store`: a stream read from its files, without a server."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jsserver_spark.files.backup import plan_backup, read_backup
from jsserver_spark.files.bounds import Bounds, bounds_of
from jsserver_spark.files.directory import locate, log
from jsserver_spark.files.plan import Plan, Split, plan_directory
from jsserver_spark.files.rows import read_blocks
from jsserver_spark.options import StoreOptions
from jsserver_spark.schema import Table, table_of


def plan(options: StoreOptions) -> Plan:
    """What there is to read, and by how many tasks.

    OptionError when the options name no stream, NatsError when its files cannot be read.
    """
    location = locate(options)

    def bounds_for(stream: str) -> Bounds:
        return bounds_of(options, stream)

    planned = plan_backup if location.archive else plan_directory
    return planned(options, location, bounds_for)


def read_split(
    options: StoreOptions, split: Split, table: Table | None = None
) -> Iterator[pa.RecordBatch]:
    """The split's rows in order of sequence; `table`: other columns than the options ask for.

    DataLossError when a block is gone, Damaged when one cannot be decoded.
    """
    read = read_backup if split.location.archive else read_blocks
    return read(options, split, table)


class StoreReader(DataSourceReader):
    """Reads a stream's files once, as they are when the query is planned."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        found = plan(self._options)
        if found.tail_bytes_ignored:
            log.warning(
                "stream %s: %d bytes at the end of its last block are ignored",
                found.stream,
                found.tail_bytes_ignored,
            )
        return list(found.splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Split):
            return iter(())  # Spark's own, where a plan has no splits
        return read_split(self._options, partition)


class StoreSource(DataSource):
    """`spark.read.format("nats-store")`."""

    @classmethod
    def name(cls) -> str:
        return "nats-store"

    @property
    def _store_options(self) -> StoreOptions:
        return StoreOptions.read(self.options, "reading format nats-store")

    def schema(self) -> StructType:
        return table_of(self._store_options).spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return StoreReader(self._store_options)
