"""Syncs of files, of all who wait for one at the same time together.

A file system that is told to bring everything to disk takes as long for many small files as for
one, while a sync of each takes its own time. So whoever comes while a sync is under way waits for
the next one, which is of all who wait by then. Whoever is alone has its own files synced, and
nothing that others have written.
"""

import errno
import os
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Lock

from jsserver.cext.bytes import sync_file_system

THREADS = 2
"""Syncs that others do for those who wait: a disk that is told by several threads at the same time
to write out what it holds does so once for all of them."""


class _Wait:
    """What somebody wants synced."""

    def __init__(self, descriptors: tuple[int, ...]) -> None:
        self.descriptors = descriptors
        self.turn = Lock()
        self.turn.acquire()  # until it is synced, or its turn to sync
        self.done = False
        self.error: OSError | None = OSError(errno.ECANCELED, "the sync was broken off")


class Syncs:
    """May be used by any number of threads at once."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sync")
        self._lock = Lock()
        self._waiting: list[_Wait] = []
        self._running = False
        self._kept: dict[int, int] = {}
        """By device, a descriptor that has been open since before what is synced was written: no
        error can have been told to somebody else."""

    def all(self, *descriptors: int) -> None:
        """Returns when these files and directories are on disk, OSError where one of them is not;
        none is still being synced then."""
        mine = _Wait(descriptors)
        with self._lock:
            self._waiting.append(mine)
            leads = not self._running
            self._running = True
        if not leads:
            mine.turn.acquire()
        if not mine.done:
            self._turn()
        if mine.error is not None:
            raise mine.error

    def _turn(self) -> None:
        """Syncs for all who wait, and lets one of those who have come meanwhile go on."""
        with self._lock:
            turn, self._waiting = self._waiting, []
        try:
            together = len(turn) > 1 and self._together(turn)
            for one in turn:
                one.error = None if together else self._each(one.descriptors)
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

    def _together(self, turn: list[_Wait]) -> bool:
        """Whether all of it was synced at one go."""
        try:
            for device in {os.fstat(d).st_dev: d for one in turn for d in one.descriptors}.items():
                sync_file_system(self._descriptor(*device))
        except OSError:
            return False  # it may be of others: each hears of its own files
        return True

    def _descriptor(self, device: int, of: int) -> int:
        if device not in self._kept:
            self._kept[device] = os.dup(of)
        return self._kept[device]

    def _each(self, descriptors: tuple[int, ...]) -> OSError | None:
        tasks = [self._threads.submit(os.fsync, descriptor) for descriptor in descriptors[1:]]
        try:
            os.fsync(descriptors[0])
        except OSError as error:
            return error
        finally:
            wait(tasks)
        try:
            for task in tasks:
                task.result()
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()
        for descriptor in self._kept.values():
            os.close(descriptor)
        self._kept.clear()
