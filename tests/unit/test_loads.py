"""Streams of an earlier life that tasks wait for one by one are opened together."""

import asyncio
from pathlib import Path

import pytest

from jsserver.instances import loads, recovery
from jsserver.instances.loads import Loads
from jsserver.instances.recovery import TOGETHER
from jsserver.instances.running import Stream

from .api_server import ApiServer
from .fake_backend import FakeAccount

NAMES = [f"S{n}" for n in range(TOGETHER)]


def earlier_life(api: ApiServer, directory: Path) -> None:
    """The account gets the directories of streams that it does not run."""
    with ApiServer(directory) as before:
        for name in NAMES:
            before.stream(name)
        made = before.account.directory
    assert made is not None and api.account.directory is not None
    api.account.directory.parent.mkdir()
    made.rename(api.account.directory)


async def load(api: ApiServer, names: list[str]) -> list[Stream | str]:
    together = Loads()
    return await asyncio.gather(*(together.load(api.account, name) for name in names))


def test_many_tasks_cost_two_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    fresh = FakeAccount()
    monkeypatch.setattr(recovery, "sync_file_system", lambda _: opened.append(len(fresh.streams)))
    with ApiServer(tmp_path / "now", engine=fresh) as api:
        earlier_life(api, tmp_path / "before")
        found = api.run(load(api, NAMES))
    assert [one.name for one in found if isinstance(one, Stream)] == NAMES
    assert opened == [0, TOGETHER]  # what a kill left, and what opening changed
    assert all(stream.synced for stream in fresh.streams.values())


def test_who_is_first_does_not_wait_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "MOST", 4)
    fresh = FakeAccount()
    seen: list[int] = []

    async def one(together: Loads, api: ApiServer, name: str) -> None:
        await together.load(api.account, name)
        seen.append(len(fresh.streams))

    async def all_of_them(api: ApiServer) -> None:
        together = Loads()
        await asyncio.gather(*(one(together, api, name) for name in NAMES))

    with ApiServer(tmp_path / "now", engine=fresh) as api:
        earlier_life(api, tmp_path / "before")
        api.run(all_of_them(api))
    assert len(seen) == TOGETHER and seen[0] < TOGETHER


def test_a_stream_that_cannot_be_opened_says_why_alone(tmp_path: Path) -> None:
    with ApiServer(tmp_path / "now") as api:
        earlier_life(api, tmp_path / "before")
        assert api.account.directory is not None
        (api.account.directory / "S7" / "meta.sum").write_text("damaged")
        found = api.run(load(api, NAMES))
    said = [one for one in found if isinstance(one, str)]
    assert len(said) == 1 and "meta.sum" in said[0]


def test_tasks_that_come_later_are_served_too(tmp_path: Path) -> None:
    async def in_turn(api: ApiServer) -> None:
        together = Loads()
        for name in NAMES[:3]:
            assert isinstance(await together.load(api.account, name), Stream)

    with ApiServer(tmp_path / "now") as api:
        earlier_life(api, tmp_path / "before")
        api.run(in_turn(api))
