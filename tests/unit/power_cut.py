"""What a power cut leaves of files that Python code writes: what was synced, and no more."""

import os
from pathlib import Path

import pytest


class PowerCut:
    """Follows every `os.fsync` of the process. A file's bytes are there once it was synced, a name
    once its directory was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self._real(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        inode = os.fstat(descriptor).st_ino
        if path.is_dir():
            self._names[inode] = {each.name: each.stat().st_ino for each in path.iterdir()}
        else:
            self._bytes[inode] = path.read_bytes()

    def whole(self, path: Path) -> bytes | None:
        """The bytes that a cut leaves of the file that has this name now; None: nobody knows."""
        return self._bytes.get(path.stat().st_ino)

    def left(self, directory: Path) -> dict[str, bytes | None]:
        """The names that a cut leaves in a directory, with the bytes of files that it leaves whole;
        None: a directory, or a file of which nothing is sure."""
        names = self._names.get(directory.stat().st_ino, {})
        return {name: self._bytes.get(inode) for name, inode in names.items()}


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    return PowerCut(monkeypatch)
