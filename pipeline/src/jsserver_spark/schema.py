"""The table that a stream is: its columns for Spark and for Arrow, as the options ask for them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jsserver_spark.errors import OptionError
from jsserver_spark.options import RowOptions

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOG_APPEND_TIME = 1
"""Kafka's timestampType of a time that the server gave."""

# Arrow types as Spark derives them from its own (pyspark.sql.pandas.types.to_arrow_type): batches
# are compared with these, names of inner fields and nullability included.
_STRINGS = pa.list_(pa.field("element", pa.string()))
_MAP = pa.map_(pa.string(), pa.field("value", _STRINGS))
_ARRAY = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_HEADERS: dict[str, tuple[pa.DataType, DataType]] = {
    "map": (_MAP, MapType(StringType(), ArrayType(StringType()))),
    "array": (
        _ARRAY,
        ArrayType(
            StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        ),
    ),
    "raw": (pa.binary(), BinaryType()),
}


@dataclass(frozen=True)
class Column:
    """A column: its name in the table, and what fills it: a column of `Rows`, or a constant."""

    name: str
    source: str
    arrow: pa.DataType
    spark: DataType


@dataclass(frozen=True)
class Table:
    """The columns in order."""

    columns: tuple[Column, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What `Rows` has to fill."""
        return tuple(c.source for c in self.columns if c.source != "timestampType")

    def spark_schema(self) -> StructType:
        return StructType([StructField(c.name, c.spark) for c in self.columns])

    def arrow_schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.arrow) for c in self.columns])


def table_of(options: RowOptions) -> Table:
    """The table that the options ask for; OptionError names a column that is none."""
    columns = _kafka(options) if options.schema_mode == "kafka" else _nats(options)
    if not options.columns:
        return Table(tuple(columns))
    return Table(tuple(_chosen(columns, options.columns)))


def _nats(options: RowOptions) -> list[Column]:
    columns = [
        Column("stream", "stream", pa.string(), StringType()),
        Column("subject", "subject", pa.string(), StringType()),
        Column("seq", "seq", pa.int64(), LongType()),
        Column("timestamp", "timestamp", TIMESTAMP, TimestampType()),
    ]
    if options.include_nanos or "ts_nanos" in options.columns:
        columns.append(Column("ts_nanos", "ts_nanos", pa.int32(), IntegerType()))
    if options.include_headers or "headers" in options.columns:
        columns.append(_headers(options.headers_format))
    if options.include_data:
        columns.append(Column("data", "data", pa.binary(), BinaryType()))
    columns.append(Column("partition", "partition", pa.int32(), IntegerType()))
    return columns


def _kafka(options: RowOptions) -> list[Column]:
    columns = [Column("key", "subject", pa.binary(), BinaryType())]
    if options.include_data:
        columns.append(Column("value", "data", pa.binary(), BinaryType()))
    columns += [
        Column("topic", "stream", pa.string(), StringType()),
        Column("partition", "partition", pa.int32(), IntegerType()),
        Column("offset", "seq", pa.int64(), LongType()),
        Column("timestamp", "timestamp", TIMESTAMP, TimestampType()),
        Column("timestampType", "timestampType", pa.int32(), IntegerType()),
    ]
    if options.include_headers or "headers" in options.columns:
        columns.append(_headers("array"))
    return columns


def _headers(form: str) -> Column:
    source = "headers_raw" if form == "raw" else "headers"
    return Column("headers", source, *_HEADERS[form])


def _chosen(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise OptionError(f"option 'columns' names {name!r}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in names]
