"""Large answers are made in pieces that together are the text of the whole."""

import random

import msgspec
import pytest

from jsserver.text.goformat import escape_json
from jsserver.wire.pieces import BLOCK, pieces
from jsserver.wire.types import Wire, always


class Leaf(Wire):
    """An element without elements."""

    name: str
    tags: list[str] = msgspec.field(default_factory=list)
    texts: dict[str, str] = msgspec.field(default_factory=dict)


class Branch(Wire):
    """One that may have elements, and holds one that may."""

    name: str = always("")
    leaves: list[Leaf] = msgspec.field(default_factory=list)
    inner: "Branch | None" = None
    branches: list["Branch"] = always([])
    missing: list[Leaf] | None = always(None)
    last: int = always(0)


def leaf(chance: random.Random) -> Leaf:
    name = chance.choice(["", "a", '"\n<&>', "\u2028é", "\\", "x" * chance.randrange(50)])
    tags = [chance.choice(["", "{", "[\n]"])] * chance.randrange(3)
    return Leaf(name=name, tags=tags, texts={name: name} if chance.random() < 0.3 else {})


def branch(chance: random.Random, depth: int) -> Branch:
    made = Branch(name=leaf(chance).name, last=chance.randrange(9))
    made.leaves = [leaf(chance) for _ in range(chance.choice([0, 1, 2, 15, 16, 17, 40]))]
    if depth:
        made.branches = [branch(chance, depth - 1) for _ in range(chance.randrange(4))]
        if chance.random() < 0.5:
            made.inner = branch(chance, depth - 1)
    return made


@pytest.mark.parametrize("seed", range(40))
def test_the_pieces_are_the_whole(seed: int) -> None:
    page = branch(random.Random(seed), seed % 4)
    whole = msgspec.json.encode(page)
    assert b"".join(pieces(page)) == escape_json(whole)
    lines = escape_json(msgspec.json.format(whole, indent=2))
    assert b"".join(pieces(page, pretty=True)) == lines


@pytest.mark.parametrize("pretty", [False, True])
def test_no_piece_is_much_larger_than_an_element(pretty: bool) -> None:
    leaves = [Leaf(name="x" * (BLOCK // 4)) for _ in range(100)]
    made = [*pieces(Branch(branches=[Branch(leaves=leaves)]), pretty=pretty)]
    assert len(made) > 5
    assert max(map(len, made)) < 6 * BLOCK
