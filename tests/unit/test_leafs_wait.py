"""How long a server waits before it dials another one again, whose leaf node it is or which is its
own, and at which address."""

import random
from typing import Any

import pytest

from jsserver.links.leafmodel import Address, LeafSettings, Remote
from jsserver.links.leafs import Leafs

RECONNECT = 1.0


class Recorder:
    """What the leaf nodes ask for is done by nobody."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


@pytest.mark.parametrize(
    ("happens", "least"),
    [
        (None, RECONNECT),
        (lambda leafs: leafs.violated(1), 30.0),
        (lambda leafs: leafs.looped(1), 30.0),
        (lambda leafs: leafs.error(1, b"'Loop detected for leafnode account=\"$G\"'"), 30.0),
        (lambda leafs: leafs.error(1, b"'remote leafnode has same cluster name'"), 30.0),
        (lambda leafs: leafs.error(1, b"'connection rejected since minimum version'"), RECONNECT),
        (
            lambda leafs: leafs.error(
                1, b"'connection rejected since minimum version required is \"2.9.0\"'"
            ),
            5.0,
        ),
    ],
)
def test_how_long_it_waits(happens: Any, least: float) -> None:
    settings = LeafSettings(
        server_id="N", server_name="A", version="2.14.5", host="h", port=7422, reconnect=RECONNECT
    )
    remote = Remote(addresses=[Address("there", 7422)], account="$G", hub=True)
    leafs = Leafs(settings, [remote], Recorder(), lambda: "nonce", random.Random(1))
    leafs.start(0.0)
    leafs.dialled(1, remote, "there:7422")
    leafs.opened(1, "there:7422", 0.0)
    if happens is not None:
        happens(leafs)
    leafs.closed(1, 10.0)
    assert remote.at is not None
    assert 10.0 + least <= remote.at <= 10.0 + least + 2 * RECONNECT
    assert remote.delay == 0.0


def test_the_next_address_is_another_one() -> None:
    """A hub that stops is in nobody's way: also where its cluster was announced meanwhile."""
    one, two, three = (Address(name, 7422) for name in ("one", "two", "three"))
    remote = Remote(addresses=[one], account="$G", hub=True)
    assert remote.next_address() == one
    remote.found = [two, three]
    assert [remote.next_address() for _ in range(4)] == [two, three, one, two]
    remote.found = [three]
    assert [remote.next_address() for _ in range(2)] == [three, one]
    remote.found = []
    assert [remote.next_address() for _ in range(2)] == [one, one]
