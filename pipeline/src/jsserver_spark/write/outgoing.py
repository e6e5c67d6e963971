"""From the columns of a record batch to what an Outbox reads; no row is touched."""

from typing import Any

import pyarrow as pa

from jsserver_spark.cext.columns import Offsets, Outbox, rows_digest
from jsserver_spark.errors import NatsError

ADDED = {
    "msg_id": b"Nats-Msg-Id",
    "ttl": b"Nats-TTL",
    "stream": b"Nats-Expected-Stream",
    "expected_last_subject_seq": b"Nats-Expected-Last-Subject-Sequence",
    "expected_last_seq": b"Nats-Expected-Last-Sequence",
}
"""Columns that are headers of their own."""

BATCH = {"batch_sequence": b"Nats-Batch-Sequence", "batch_commit": b"Nats-Batch-Commit"}
"""Columns of an atomic batch (ADR-50)."""

NEVER = (b"Nats-Batch-Id", b"Nats-Rollup")
"""Headers of rows that are not sent: a copied rollup would remove what the target holds."""

COLUMNS = ("subject", "data", "headers", "headers_raw", *ADDED)

Headers = tuple[str, Offsets | None, Offsets | None, Offsets | None, Offsets]


def load(out: Outbox, rows: pa.RecordBatch) -> None:
    """Hands the rows to the outbox. NatsError names a column that is unknown or of no use."""
    given = {name: rows.column(i) for i, name in enumerate(rows.schema.names)}
    for name in given:
        if name not in COLUMNS and name not in BATCH:
            raise NatsError(f"unknown column {name!r}; there are: {', '.join(COLUMNS)}")
    if "headers" in given and "headers_raw" in given:
        raise NatsError("columns 'headers' and 'headers_raw' exclude each other")
    own = ADDED | BATCH
    headers: Headers | None = None
    if "headers" in given:
        headers = _headers(given["headers"])
    elif "headers_raw" in given:
        headers = ("block", None, None, None, texts("headers_raw", given["headers_raw"]))
    out.load(
        rows.num_rows,
        subject=texts("subject", given["subject"]) if "subject" in given else None,
        data=texts("data", given["data"]) if "data" in given else None,
        headers=headers,
        added=[(own[name], texts(name, given[name])) for name in given if name in own],
    )


def digest(rows: pa.RecordBatch, first_row: int | None = None) -> int:
    """What the rows are, in 64 bits: by their ids, or else by subjects and payloads. With
    `first_row`, the number of the first one, also in which order."""
    given = rows.schema.names
    chosen = ["msg_id"] if "msg_id" in given else ["subject", "stream", "data"]
    columns = [texts(name, rows.column(name)) for name in chosen if name in given]
    return rows_digest(rows.num_rows, columns, first_row)


def texts(name: str, array: pa.Array) -> Offsets:
    """A column of strings or bytes, or of whole numbers in columns that are headers."""
    array = _plain(array)
    type_ = array.type
    if name in ADDED | BATCH and pa.types.is_integer(type_):
        array = array.cast(pa.string())
        type_ = array.type
    wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    if not (wide or pa.types.is_string(type_) or pa.types.is_binary(type_)):
        raise NatsError(f"column {name!r} is {type_}; cast it to string or binary")
    valid, offsets, data = array.buffers()
    return Offsets(
        len(array),
        array.offset,
        wide,
        valid if array.null_count else None,
        offsets,
        data=data if data is not None else b"",
    )


def _plain(array: pa.Array) -> pa.Array:
    """In a layout with offsets."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    type_ = array.type
    if pa.types.is_null(type_):
        return array.cast(pa.binary())
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        return array.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    return array


def _headers(array: pa.Array) -> Headers | None:
    """A map from names to a value or a list of them, an array of (key, value), or whole blocks."""
    type_ = array.type
    if pa.types.is_null(type_):
        return None
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return ("block", None, None, None, texts("headers", array))
    listed = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if not (pa.types.is_map(type_) or (listed and _is_pair(type_.value_type))):
        raise NatsError(
            f"column 'headers' is {type_}; it must be a map from string to string or to array of"
            " string, an array of struct<key, value>, or binary (a header block)"
        )
    entries = array.values
    names, values = texts("headers.key", entries.field(0)), entries.field(1)
    if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        return ("pairs", _lists(array), names, None, texts("headers.value", values))
    each = texts("headers.value", values.values)
    return ("grouped", _lists(array), names, _lists(values), each)


def _is_pair(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_)) and [f.name for f in type_] == ["key", "value"]


def _lists(array: Any) -> Offsets:
    valid, offsets = array.buffers()[:2]
    return Offsets(
        len(array),
        array.offset,
        pa.types.is_large_list(array.type),
        valid if array.null_count else None,
        offsets,
        children=len(array.values),
    )
