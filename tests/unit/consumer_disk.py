"""Consumers' streams in a folder, for tests of what a stop or a kill leaves."""

import shutil

from tests.cext.stream import TestEnv
from tests.unit.stream_world import FILE, World


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
