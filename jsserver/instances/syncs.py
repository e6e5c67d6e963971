"""Syncs of several files at once.

A disk that is told by several threads at the same time to write out what it holds does so once for
all of them: three syncs side by side take as long as one, three after another three times that.
"""

import os
from concurrent.futures import ThreadPoolExecutor, wait

THREADS = 8
"""Syncs that others do for those who wait."""


class Syncs:
    """Threads that sync; they are started when they are needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sync")

    def all(self, first: int, *others: int) -> None:
        """Returns when these files and directories are on disk, OSError where one of them is not;
        none is still being synced then."""
        tasks = [self._threads.submit(os.fsync, descriptor) for descriptor in others]
        try:
            os.fsync(first)
        finally:
            wait(tasks)
        for task in tasks:
            task.result()

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()
