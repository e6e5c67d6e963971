"""Structures of the data plane have few fields, and states as enums, not heaps of booleans."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CEXT = ROOT / "cext"
FIELDS_MAX = 60
BOOLEANS_MAX = 6

STRUCT = re.compile(r"^cdef struct (\w+):\n((?:[ \t]+[^\n]*\n|\n)+)", re.MULTILINE)


def members(body: str) -> Iterator[tuple[str, str]]:
    """Of a struct: each field's type and name."""
    for line in body.splitlines():
        declared = re.sub(r"#.*|\[[^\]]*\]|^ *const ", "", line).strip()
        if declared and "(" not in declared:
            kind, _, names = declared.partition(" ")
            for name in names.split(","):
                yield kind, name.strip()
        elif "(" in declared:
            yield "function", declared


def sizes(text: str) -> Iterator[tuple[str, int, int]]:
    """Of each structure its name, how many fields it has, and how many of them are booleans."""
    for name, body in STRUCT.findall(text):
        fields = list(members(body))
        yield name, len(fields), sum(kind == "bint" and "*" not in field for kind, field in fields)


def all_sizes() -> dict[str, tuple[int, int]]:
    return {
        name: (fields, booleans)
        for suffix in (".pxd", ".pxi", ".pyx")
        for path in sorted(CEXT.rglob(f"*{suffix}"))
        for name, fields, booleans in sizes(path.read_text())
    }


def test_structures_have_few_fields_and_fewer_booleans() -> None:
    found = all_sizes()
    assert len(found) > 150
    large = {
        name: (fields, booleans)
        for name, (fields, booleans) in found.items()
        if fields > FIELDS_MAX or booleans > BOOLEANS_MAX
    }
    assert not large


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (
            "cdef struct A:\n    # What.\n    bint a\n    uint64_t b[4]     # bint c\n\n",
            ("A", 2, 1),
        ),
        (
            "cdef struct B:\n    bint (*fn)(void* ctx)\n    bint* c\n    #   more\n    A a\n",
            ("B", 3, 0),
        ),
        (
            "cdef struct C:\n    # Few.\n    int n, m\n    bint f    # one\n\ncdef int x\n",
            ("C", 3, 1),
        ),
    ],
)
def test_fields_are_counted(text: str, size: tuple[str, int, int]) -> None:
    assert list(sizes(text)) == [size]
