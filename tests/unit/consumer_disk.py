"""Consumers' streams in a folder, for tests of what a stop or a kill leaves."""

import shutil
import time

from tests.cext.stream import TestEnv
from tests.unit.stream_world import FILE, SECOND, World


class Disk:
    """Streams in a folder, opened again and again, as by a server that is stopped or killed."""

    def __init__(self, folder):
        self.folder = folder
        self.worlds = []
        self.now = 1_700_000_000_000_000_000

    def open(self, folder=None, consumers=({},), held=False, **params):
        env = TestEnv(now=self.now)
        env.start_commits(held)
        path = (folder or self.folder) / "S"
        for name in (b"C", *(c.get("name", b"C") for c in consumers)):
            (path / "obs" / name.decode()).mkdir(parents=True, exist_ok=True)
        w = World(env, str(path), active=False, storage=FILE, **params)
        w.handles = [
            w.consumer(str(path / "obs" / c.get("name", b"C").decode()), **c) for c in consumers
        ]
        w.stream.activate()
        self.worlds.append(w)
        return w

    def close(self, w):
        self.now = w.env.now
        self.worlds.remove(w)
        w.stream.close(False)
        w.env.stop_commits()

    def killed(self, w, name):
        """A copy of the folder as it is now: what a killed server leaves."""
        self.now = w.env.now
        # What a purge took away is being removed meanwhile.
        trash = shutil.ignore_patterns(".del-store")
        shutil.copytree(self.folder, self.folder.parent / name, ignore=trash)
        return self.folder.parent / name


def until(w, condition):
    """Runs a world until the condition holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited for 20 s"
        w.env.poll()
        w.env.run()
        time.sleep(0.001)


def settled(w):
    """Lets everything gathered so far reach the disk."""
    w.env.advance(SECOND // 5)
    w.env.inject(b"s.settle", b"", b"settle")
    until(w, lambda: any(m[0] == b"settle" for m in w.env.sent))
    w.env.take()
