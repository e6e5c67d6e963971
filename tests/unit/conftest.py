"""What every test of the data plane without a server ends with."""

from collections.abc import Iterator

import pytest

from tests.unit.stream_world import worlds


@pytest.fixture(autouse=True)
def worlds_end() -> Iterator[None]:
    """Streams and commit threads of a test end with it, also where it failed. Those of fixtures
    that a module shares were there before, and stay."""
    of_the_module = len(worlds)
    yield
    environments = {world.env for world in worlds[of_the_module:]}
    while len(worlds) > of_the_module:
        worlds.pop().stream.close(False)
    for env in environments:
        env.stop_commits()
