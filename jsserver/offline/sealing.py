"""Encrypted blocks that are written anew under new keys, so that a crash at any time leaves the old
block or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jsserver.disk.directories import sync_directory

from .places import Place, names_in

REDO = ".key.redo"
"""Behind the number of a block: the key of the block that waits as N.blk.new. A start finishes the
step, too."""

Write = Callable[[Path, bytes], None]
"""Writes a file durably, but for its name."""


def finish(folder: Path) -> None:
    """Steps that a crash cut short after they were taken."""
    for name in names_in(folder):
        if name.endswith(REDO):
            number = name.removesuffix(REDO)
            waits = folder / f"{number}.blk.new"
            if waits.exists():
                os.rename(waits, folder / f"{number}.blk")
                sync_directory(folder)
            os.rename(folder / name, folder / f"{number}.key")
            sync_directory(folder)


def replace(place: Place, path: Path, plain: bytes, write: Write) -> None:
    """A block and its key are replaced by others that hold these bytes; OSError."""
    assert place.keys is not None
    folder, number = path.parent, path.stem
    seed, key_file = place.keys.new(place.account, f"{place.name}:{number}")
    waits, key = folder / f"{number}.blk.new", folder / f"{number}.key.tmp"
    write(waits, seed.encrypt(plain))
    write(key, key_file)
    sync_directory(folder)
    os.rename(key, folder / f"{number}{REDO}")
    sync_directory(folder)
    finish(folder)
