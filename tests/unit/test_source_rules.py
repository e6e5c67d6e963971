"""What is checked of mirrors and sources takes no longer than their number."""

from jsserver.assets import sources
from jsserver.wire.types import StreamConfig, StreamSource

DEPTH, WIDTH = 12, 20


def test_many_ways_to_one_origin_are_gone_once() -> None:
    """There are WIDTH ** DEPTH of them."""
    streams = {
        f"S{n}": StreamConfig(
            name=f"S{n}",
            sources=[StreamSource(name=f"S{n + 1}", filter_subject=f"a.{k}") for k in range(WIDTH)],
        )
        for n in range(DEPTH)
    }
    asked = 0

    def find(name: str) -> StreamConfig | None:
        nonlocal asked
        asked += 1
        assert asked <= 10 * DEPTH * WIDTH
        return streams.get(name)

    sources.check(streams["S0"], find, False)
