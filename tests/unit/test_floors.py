"""Calls run down inside a layer of the data plane: its parts stand on the floors that its page
lists, and none of their circles is large."""

import re
from collections.abc import Iterable

import pytest

from tests.unit.test_layers import CEXT, LAYERS

#: What a part of a layer defines, and what it calls; `x.name(` calls through a table or a method.
DEFINED = re.compile(
    r"^(?:cdef|cpdef|def) (?!struct\b|enum\b|class\b|extern\b|union\b)[^\n=(]*?[ *](\w+)\(",
    re.MULTILINE,
)
CALLED = re.compile(r"(?<![\w.])(\w+)(?=\()")


def floors_of(page: str) -> list[list[str]]:
    """Parts by floor, from the bottom up: before the first colon of each item of the numbered list
    below "## Floors"."""
    _, _, rest = page.partition("\n## Floors\n")
    items = re.findall(r"^\d+\. (.+(?:\n {2,}.+)*)", rest, re.MULTILINE)
    return [re.findall(r"`(\w+)\.pxi`", item.partition(":")[0]) for item in items]


FLOORS = {layer: floors_of((CEXT / layer / "README.md").read_text()) for layer in LAYERS}


#: Docstrings, literals and comments.
SAID = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#.*')


def calls_between(texts: dict[str, str]) -> dict[tuple[str, str], set[str]]:
    """Of a layer's parts: who calls whom, and what. A function that is handed over is not called:
    so a lower part calls back."""
    codes = {part: SAID.sub("", text) for part, text in texts.items()}
    home = {name: part for part, code in codes.items() for name in DEFINED.findall(code)}
    found: dict[tuple[str, str], set[str]] = {}
    for part, code in codes.items():
        for name in CALLED.findall(code):
            if home.get(name, part) != part:
                found.setdefault((part, home[name]), set()).add(name)
    return found


def circles(arrows: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Sets of two parts or more, each of which reaches each other."""
    reached: dict[str, set[str]] = {}
    for part, other in arrows:
        reached.setdefault(part, set()).add(other)
    for by in list(reached):
        for targets in reached.values():
            if by in targets:
                targets |= reached[by]
    found = [
        {other for other in targets if part in reached.get(other, ())}
        for part, targets in reached.items()
    ]
    return [circle for n, circle in enumerate(found) if circle and circle not in found[:n]]


def parts_of(layer: str) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((CEXT / layer).glob("*.pxi"))}


@pytest.mark.parametrize("layer", LAYERS)
def test_parts_of_a_layer_call_their_own_floor_and_below(layer: str) -> None:
    floors, texts = FLOORS[layer], parts_of(layer)
    assert sorted(part for floor in floors for part in floor) == sorted(texts)
    level = {part: n for n, floor in enumerate(floors, 1) for part in floor}
    calls = calls_between(texts)
    up = [
        f"{part}.pxi, floor {level[part]}, calls {other}.pxi, floor {level[other]}: {sorted(names)}"
        for (part, other), names in sorted(calls.items())
        if level[part] < level[other]
    ]
    assert not up, "\n".join(up)
    large = [sorted(circle) for circle in circles(calls) if len(circle) > len(texts) / 4]
    assert not large, f"parts that call each other in a circle: {large}"


def test_floors_and_circles_are_seen() -> None:
    page = "# x: y\n\n## Floors\n\n1. `a.pxi`,\n   `b.pxi`: see `c.pxi`.\n2. `d.pxi`: top.\n"
    assert floors_of(page) == [["a", "b"], ["d"]]
    assert floors_of("# x: y\n\n1. `a.pxi`: no floor.\n") == []
    texts = {
        "a": "cdef inline int one(Store* s) noexcept:\n    return two(s) + s.three(1)\n",
        "b": "cdef int two(Store* s) noexcept:\n    # one(s)\n    return 2 if s else three(s)\n",
        "c": 'cdef Store** three(Store* s):\n    timer_set(s, two)\n    return one("four(")\n',
        "d": "def four():\n    one(NULL)\n",
    }
    calls = calls_between(texts)
    assert calls == {
        ("a", "b"): {"two"},
        ("b", "c"): {"three"},
        ("c", "a"): {"one"},
        ("d", "a"): {"one"},
    }
    assert circles(calls) == [{"a", "b", "c"}]
