"""What pages of connections to other servers have in common."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from jsserver.cext.engine import Item


class Numbered(Protocol):
    """A link as a state machine has it."""

    number: int


L = TypeVar("L", bound=Numbered)


def with_items(links: Iterable[L], items: Iterable[Item]) -> list[tuple[L, Item]]:
    """The links, in the order in which they came, each with what the data plane says of it. One
    that has gone meanwhile is left out."""
    known = {item.cid: item for item in items}
    ordered = sorted(links, key=lambda link: link.number)
    return [(link, known[link.number]) for link in ordered if link.number in known]
