"""Syncs of files, of all who wait for one at the same time together.

A file system that is told to bring everything to disk takes as long for many small files as for
one, while a sync of each takes its own time. So a task that comes while a sync is under way waits
for the next one, which is of all tasks that wait by then. A task that is alone has its own files
synced, and nothing that others have written.
"""

import errno
import os
from collections.abc import Sequence
from threading import Lock

from jsserver.cext.bytes import begin_writing, sync_file_system

FEW = 4
"""Files that are synced each by itself, also where several wait."""


_File = tuple[int, int]
"""Device and inode: a file that several have opened is synced once."""


class _Wait:
    """What somebody wants synced."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self.descriptors = descriptors
        self.files: list[_File] = []
        self.turn = Lock()
        self.turn.acquire()  # until it is synced, or its turn to sync
        self.done = False
        self.error: OSError | None = OSError(errno.ECANCELED, "the sync was broken off")


def _distinct(turn: list[_Wait]) -> dict[_File, int]:
    """The files that are to be synced, each with a descriptor."""
    found: dict[_File, int] = {}
    for one in turn:
        for descriptor in one.descriptors:
            status = os.fstat(descriptor)
            file = status.st_dev, status.st_ino
            one.files.append(file)
            found.setdefault(file, descriptor)  # the older one hears of more errors
    return found


def _synced(descriptor: int) -> OSError | None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        return error
    return None


class Syncs:
    """May be used by any number of threads at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[_Wait] = []
        self._running = False
        self._kept: dict[int, int] = {}
        """By device, a descriptor that has been open since before what is synced was written: no
        error can have been told to somebody else."""

    def all(self, *descriptors: int) -> None:
        """Returns when these files and directories are on disk, OSError where one of them is not;
        none is still being synced then."""
        (error,) = self.each([descriptors])
        if error is not None:
            raise error

    def each(self, groups: Sequence[Sequence[int]]) -> list[OSError | None]:
        """As `all`, of several at the same time: why each of them is not on disk, or None."""
        mine = [_Wait(descriptors) for descriptors in groups]
        with self._lock:
            self._waiting += mine
            leads = not self._running
            self._running = True
        if not leads:
            mine[0].turn.acquire()
        if not mine[0].done:
            self._turn()
        return [one.error for one in mine]

    def _turn(self) -> None:
        """Syncs for all who wait, and lets one of those who have come meanwhile go on."""
        with self._lock:
            turn, self._waiting = self._waiting, []
        try:
            files = _distinct(turn)
            together = len(turn) > 1 and len(files) > FEW and self._together(files)
            errors = {} if together else self._each(files)
            for one in turn:
                failed = (errors.get(file) for file in one.files)
                one.error = next((error for error in failed if error is not None), None)
        finally:
            for one in turn:
                one.done = True
            with self._lock:
                if self._waiting:
                    self._waiting[0].turn.release()
                else:
                    self._running = False
            for one in turn:
                one.turn.release()

    def _together(self, files: dict[_File, int]) -> bool:
        """Whether all of it was synced at one go."""
        try:
            for device, descriptor in {file[0]: d for file, d in files.items()}.items():
                sync_file_system(self._descriptor(device, descriptor))
        except OSError:
            return False  # it may be of others: each hears of its own files
        return True

    def _descriptor(self, device: int, of: int) -> int:
        if device not in self._kept:
            self._kept[device] = os.dup(of)
        return self._kept[device]

    def _each(self, files: dict[_File, int]) -> dict[_File, OSError | None]:
        """Syncs each of them; what became of each.

        What all of them hold is on its way before the first is waited for, so the file system's
        journal is written once for all of them, and the others find that done. Threads that sync
        side by side take as long, and each of their hand-overs waits for a processor."""
        begin_writing(list(files.values()))
        return {file: _synced(descriptor) for file, descriptor in files.items()}

    def close(self) -> None:
        """Lets go of what it keeps open."""
        for descriptor in self._kept.values():
            os.close(descriptor)
        self._kept.clear()
