"""The search for garbage rests while much is made at once, as each looks at all of that."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.assets.limits import ServerSettings
from jsserver.instances.shared import Shared
from jsserver.process import garbage
from tests.unit.api_server import stub_hash


@pytest.fixture
def searches() -> Iterator[list[str]]:
    """The threads that began a search."""
    found: list[str] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            found.append(threading.current_thread().name)

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def made(count: int) -> list[list[int]]:
    return [[number] for number in range(count)]


def test_there_is_no_search_while_a_large_request_is_read(searches: list[str]) -> None:
    async def compute() -> None:
        shared = Shared({}, ServerSettings(server_name="srv"), stub_hash)
        assert len(await shared.compute(made, 300_000)) == 300_000
        await shared.close()

    asyncio.run(compute())
    assert len([name for name in searches if name.startswith("large")]) <= 2  # when it has ended
    assert gc.isenabled()


def test_pauses_end_with_the_last_one() -> None:
    with garbage.paused():
        with garbage.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), garbage.paused():
        raise ValueError("x")
    assert gc.isenabled()


def test_what_stays_is_left_out(searches: list[str]) -> None:
    before = gc.get_freeze_count()
    try:
        with garbage.paused(stays=True):
            kept = made(garbage.MANY * 2)
        left_out = gc.get_freeze_count()
        assert left_out >= before + len(kept)
        with garbage.paused(stays=True):
            few = made(10)
        assert len(few) == 10
        assert gc.get_freeze_count() <= left_out
    finally:
        gc.unfreeze()
