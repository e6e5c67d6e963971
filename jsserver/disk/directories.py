"""Files, and names of directories, that a power cut leaves."""

from __future__ import annotations

import os


def make_directory(path: str | os.PathLike[str], mode: int = 0o700) -> None:
    """Makes a directory durably, with those above it; nothing where it is there."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path) or "."
        make_directory(parent, mode)
        try:
            os.mkdir(path, mode)
        except FileExistsError:  # somebody else was faster
            if not os.path.isdir(path):
                raise
        sync_directory(parent)


def are_beside(one: str | os.PathLike[str], other: str | os.PathLike[str] | None) -> bool:
    """Whether two directories are on one file system; OSError."""
    return other is not None and os.stat(one).st_dev == os.stat(other).st_dev


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private(path: str, flags: int) -> int:
    """Opens a file that is its owner's alone."""
    return os.open(path, flags, 0o600)


def write_whole(path: str | os.PathLike[str], body: bytes) -> None:
    """Writes a file to disk; its name is made durable with its directory."""
    with open(path, "wb", opener=private) as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
