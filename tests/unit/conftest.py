"""What every test of the data plane without a server ends with."""

from collections.abc import Iterator

import pytest

from tests.unit.stream_world import worlds


@pytest.fixture(autouse=True)
def worlds_end() -> Iterator[None]:
    """Streams and commit threads of a test end with it, also where it failed."""
    yield
    environments = {world.env for world in worlds}
    while worlds:
        worlds.pop().stream.close(False)
    for env in environments:
        env.stop_commits()
