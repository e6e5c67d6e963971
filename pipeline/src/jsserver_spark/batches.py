"""From filled columns to the record batches that Spark takes, without touching a row."""

from typing import Any

import pyarrow as pa

from jsserver_spark.cext.columns import Rows
from jsserver_spark.options import RowOptions
from jsserver_spark.schema import LOG_APPEND_TIME, Column, Table, table_of


class Batches:
    """Batches of one stream's rows: hand `rows` to a reader, `take` the batch when it is full."""

    def __init__(self, table: Table, stream: str, options: RowOptions) -> None:
        self._table = table
        self._schema = table.arrow_schema()
        form = "map"
        for column in table.columns:
            if column.source == "headers" and pa.types.is_list(column.arrow):
                form = "array"
        self.rows = Rows(
            table.sources,
            stream,
            options.batch_rows,
            options.fetch_bytes,
            headers=form,
            token=options.partition_token,
        )

    @classmethod
    def of(cls, stream: str, options: RowOptions) -> "Batches":
        return cls(table_of(options), stream, options)

    def take(self) -> pa.RecordBatch:
        """What was filled; may have no rows."""
        size, buffers = self.rows.take()
        arrays = [_array(column, size, buffers) for column in self._table.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(column: Column, size: int, buffers: dict[str, Any]) -> pa.Array:
    if column.source == "timestampType":
        return pa.repeat(pa.scalar(LOG_APPEND_TIME, pa.int32()), size)
    parts = buffers[column.source]
    if column.source == "headers":
        return _headers(column.arrow, size, parts)
    if column.source == "headers_raw":
        return pa.Array.from_buffers(column.arrow, size, [pa.py_buffer(part) for part in parts])
    return pa.Array.from_buffers(column.arrow, size, [None, *(pa.py_buffer(p) for p in parts)])


def _headers(type_: pa.DataType, size: int, parts: tuple[Any, ...]) -> pa.Array:
    present, n_names, n_values, first, name_at, names, values_at, value_at, values = (
        pa.py_buffer(part) if part is not None and not isinstance(part, int) else part
        for part in parts
    )
    keys = pa.Array.from_buffers(pa.string(), n_names, [None, name_at, names])
    if pa.types.is_map(type_):
        texts = pa.Array.from_buffers(pa.string(), n_values, [None, value_at, values])
        items = pa.Array.from_buffers(type_.item_type, n_names, [None, values_at], children=[texts])
        entry = pa.struct([type_.key_field, type_.item_field])
    else:
        items = pa.Array.from_buffers(pa.binary(), n_values, [None, value_at, values])
        entry = type_.value_type
    entries = pa.Array.from_buffers(entry, n_names, [None], children=[keys, items])
    return pa.Array.from_buffers(type_, size, [present, first], children=[entries])
