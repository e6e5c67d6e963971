"""Directories whose names a power cut leaves."""

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


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
