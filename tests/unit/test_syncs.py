"""Syncs that several tasks wait for at the same time."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from jsserver.cext.bytes import begin_writing
from jsserver.instances import syncs as module
from jsserver.instances.syncs import Syncs
from tests.waiting import wait_until


@pytest.fixture
def syncs() -> Iterator[Syncs]:
    made = Syncs()
    yield made
    made.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class Files:
    """Descriptors of files, of which syncs may be held up or fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = [os.open(folder / f"{n}", os.O_CREAT | os.O_RDWR) for n in range(8)]
        self.go = Event()
        self.synced: list[int] = []
        self.together = 0
        self.bad: int | None = None
        self.whole_fails = False
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(module, "sync_file_system", self.sync_all)

    def fsync(self, descriptor: int) -> None:
        self.go.wait(60)
        self.synced.append(descriptor)
        if descriptor == self.bad:
            raise OSError(errno.EIO, "bad")

    def sync_all(self, _: int) -> None:
        self.together += 1
        if self.whole_fails:
            raise OSError(errno.EIO, "all")

    def close(self) -> None:
        for descriptor in self.opened:
            os.close(descriptor)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    made = Files(tmp_path, monkeypatch)
    yield made
    made.close()


def test_who_is_alone_syncs_its_own_files(syncs: Syncs, files: Files) -> None:
    files.go.set()
    for _ in range(2):
        syncs.all(*files.opened[:3])
    assert sorted(files.synced) == sorted(files.opened[:3] * 2)
    assert files.together == 0


def test_all_files_are_on_their_way_before_one_is_waited_for(
    syncs: Syncs, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one who asked: no other thread has to have its turn."""
    before = threading.active_count()
    begun: list[tuple[list[int], list[int]]] = []
    monkeypatch.setattr(
        module, "begin_writing", lambda them: begun.append((them, list(files.synced)))
    )
    files.go.set()
    syncs.all(*files.opened[:3])
    assert begun == [(files.opened[:3], [])]
    assert files.synced == files.opened[:3]
    assert threading.active_count() == before


def test_what_is_begun_waits_for_nothing_and_tells_no_error(tmp_path: Path) -> None:
    """A directory and a descriptor that is not open are passed over."""
    with open(tmp_path / "file", "wb") as file:
        file.write(b"x")
        file.flush()
        directory = os.open(tmp_path, os.O_RDONLY)
        os.close(directory)
        begin_writing([directory, file.fileno()])
    assert (tmp_path / "file").read_bytes() == b"x"


def test_who_comes_meanwhile_is_synced_with_all_others(
    syncs: Syncs, files: Files, threads: ThreadPoolExecutor
) -> None:
    first = threads.submit(syncs.all, files.opened[0])
    wait_until(lambda: syncs._running, "the first sync is under way")
    others = [threads.submit(syncs.all, d) for d in files.opened[1:]]
    wait_until(lambda: len(syncs._waiting) == 7, "all others wait")
    assert not first.done() and files.together == 0
    files.go.set()
    for task in [first, *others]:
        task.result(60)
    assert files.together == 1
    assert files.synced == [files.opened[0]]


def test_each_hears_of_its_own_files(
    syncs: Syncs, files: Files, threads: ThreadPoolExecutor
) -> None:
    """Where the file system as a whole could not be synced."""
    files.bad, files.whole_fails = files.opened[5], True
    first = threads.submit(syncs.all, files.opened[0])
    wait_until(lambda: syncs._running, "the first sync is under way")
    others = [threads.submit(syncs.all, d) for d in files.opened[1:]]
    wait_until(lambda: len(syncs._waiting) == 7, "all others wait")
    files.go.set()
    first.result(60)
    for d, task in zip(files.opened[1:], others, strict=True):
        error = task.exception(60)
        assert isinstance(error, OSError) if d == files.bad else error is None
    syncs.all(files.opened[0])
