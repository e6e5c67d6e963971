"""Subjects made from columns: `orders.{region}.{id}`."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from jsserver_spark.errors import NatsError, OptionError

_PIECE = re.compile(r"\{([^{}]*)\}|([{}])")


class Template:
    """A subject with names of columns in braces. OptionError when a brace has no other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._pieces: list[tuple[bool, str]] = []
        end = 0
        for found in _PIECE.finditer(text):
            if found[2] or not found[1]:
                raise OptionError(
                    f"option 'subject' is {text!r}: braces hold the name of a column, such as"
                    " orders.{region}"
                )
            self._pieces.append((False, text[end : found.start()]))
            self._pieces.append((True, found[1]))
            end = found.end()
        self._pieces.append((False, text[end:]))

    @property
    def columns(self) -> frozenset[str]:
        """Empty for a subject that is the same for every row."""
        return frozenset(word for is_column, word in self._pieces if is_column)

    def fill(self, rows: pa.RecordBatch, first_row: int) -> pa.Array:
        """The rows' subjects; NatsError names a column that is null or no text, and the row."""
        pieces: list[pa.Scalar | pa.Array] = []
        for is_column, word in self._pieces:
            if is_column:
                pieces.append(_text(word, rows.column(word), first_row))
            elif word:
                pieces.append(pa.scalar(word, pa.large_string()))
        return pc.binary_join_element_wise(*pieces, pa.scalar("", pa.large_string()))


def _text(name: str, values: pa.Array, first_row: int) -> pa.Array:
    if values.null_count:
        row = first_row + pc.index(pc.is_null(values), True).as_py()
        raise NatsError(f"row {row}: column {name!r} is null, and the option subject needs it")
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NatsError(f"column {name!r} cannot be part of a subject: {error}") from None
