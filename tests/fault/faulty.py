"""A server whose file operations fail as a test says, through a library that is preloaded."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

OPERATIONS = ("pwrite", "sync", "open", "rename", "mkdir", "unlink", "truncate", "pread")
LINE = struct.Struct("qqqqq")
BELOW = struct.Struct("256s")  # behind the lines
SOURCE = Path(__file__).with_name("faults.c")


def build(folder: Path) -> Path:
    """The library; skips where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


class Faults:
    """The control file of one server; `below` is what the paths that can fail contain (at most 255
    bytes)."""

    def __init__(self, folder: Path, below: str) -> None:
        self.library = build(folder)
        self.path = folder / "faults.control"
        self.path.write_bytes(bytes(LINE.size * len(OPERATIONS) + BELOW.size))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)
        self.aim(below)

    @property
    def env(self) -> dict[str, str]:
        """What the server's environment needs."""
        preload = [str(self.library), os.environ.get("LD_PRELOAD", "")]
        return {
            "LD_PRELOAD": " ".join(p for p in preload if p),
            "FAULTS_CONTROL": str(self.path),
        }

    def aim(self, below: str) -> None:
        """From now on only paths that contain this can fail; to be called while nothing is to."""
        assert len(below.encode()) < BELOW.size
        BELOW.pack_into(self.map, LINE.size * len(OPERATIONS), below.encode())

    def fail(
        self, op: str, error: int, *, after: int = 0, times: int = 1, held: bool = False
    ) -> None:
        """So many calls succeed, then so many fail, or succeed where `error` is 0; `held`: they do
        not return until `mend`."""
        at = OPERATIONS.index(op) * LINE.size
        LINE.pack_into(self.map, at, error, after, 0, 0, held)
        LINE.pack_into(self.map, at, error, after, times, 0, held)

    def mend(self) -> None:
        """Nothing fails any more."""
        for at in range(len(OPERATIONS)):
            LINE.pack_into(self.map, at * LINE.size, 0, 0, 0, 0, 0)

    def seen(self, op: str) -> int:
        """How many calls failed, or are held and will."""
        return int(LINE.unpack_from(self.map, OPERATIONS.index(op) * LINE.size)[3])
