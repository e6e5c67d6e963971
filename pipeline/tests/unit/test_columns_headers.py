"""Header blocks as columns: maps and arrays as ADR-4 has the lines, at a cost that lines bound."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.batches import Batches
from jsserver_spark.options import RowOptions

Lines = list[tuple[str, str]]


def block_of(lines: Lines) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines) + "\r\n").encode()


def headers(form: str, *blocks: bytes) -> list[Any]:
    """What the column holds for rows with these blocks."""
    options = RowOptions(columns=("headers",), headers_format=form)
    made = Batches.of("S", options)
    for seq, block in enumerate(blocks, 1):
        made.rows.add(b"S.x", seq, 0, block, b"")
    return list(made.take()["headers"].to_pylist())


def mapped(lines: Lines) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, value in lines:
        found.setdefault(name, []).append(value)
    return list(found.items())


NAMES = st.sampled_from([f"N{i}" for i in range(12)]) | st.text("abcXYZ-", min_size=1, max_size=9)
VALUES = st.text("xyz 0123", max_size=6).map(str.strip)


@settings(max_examples=200)
@given(st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=60), max_size=5))
def test_every_name_has_its_values_in_order(rows: list[Lines]) -> None:
    """Few lines and many, one block after another."""
    found = headers("map", *map(block_of, rows))
    assert found == [mapped(lines) if lines else None for lines in rows]
    pairs = headers("array", *map(block_of, rows))
    wanted = [[{"key": k, "value": v.encode()} for k, v in lines] or None for lines in rows]
    assert pairs == wanted


@pytest.mark.parametrize("form", ["map", "array", "raw"])
@pytest.mark.parametrize("names", [9000, 100, 1])
def test_thousands_of_lines_cost_no_more_than_their_number(form: str, names: int) -> None:
    lines = [(f"n{i % names}", "v") for i in range(9000)]
    block = block_of(lines)
    if form == "map":
        assert headers(form, block) == [mapped(lines)]
    made = Batches.of("S", RowOptions(columns=("headers",), headers_format=form))
    begun = time.process_time()
    for seq in range(1, 11):
        made.rows.add(b"S.x", seq, 0, block, b"")
    made.take()
    taken = time.process_time() - begun
    assert taken < 0.1, taken


def test_a_block_that_says_nothing_is_none() -> None:
    """A server that is asked for a message does not tell the two apart."""
    empty = b"NATS/1.0\r\n\r\n"
    for form in ("map", "array", "raw"):
        assert headers(form, empty, b"") == [None, None]
    assert headers("raw", b"NATS/1.0 100\r\n\r\n") == [b"NATS/1.0 100\r\n\r\n"]
