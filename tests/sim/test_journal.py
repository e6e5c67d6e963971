"""Starts that cannot bring a journal into its files at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cext.stream import TestEnv
from tests.sim.disk import SimDisk
from tests.unit.journals import FOLDER, WITNESS, WRITE, segment

if TYPE_CHECKING:
    from tests.sim.disk import Call

SEGMENT = 1 << 20
EIO = 5
OLDER, NEWER = b"older" * 200, b"newer" * 100


def filled() -> SimDisk:
    """A disk with a file of zeros, and a journal with two writes to that."""
    disk, env = SimDisk(1), TestEnv()
    disk.attach(env)
    folder = b"/" + FOLDER.encode()
    witness = b"/" + WITNESS.encode()
    for path in (b"/S", folder, os.path.dirname(witness)):
        disk.mkdir(path)
    disk.write(b"/S/a", bytes(len(OLDER)))
    disk.write(witness, b"")
    disk.write(folder + b"/1", segment(7, [[(WRITE, b"S/a", 0, OLDER)]]))
    disk.write(folder + b"/2", segment(8, [[(WRITE, b"S/a", 0, NEWER)]]))
    disk.detach(env)
    disk.sync()
    return disk


def start(disk: SimDisk) -> None:
    env = TestEnv()
    try:
        disk.attach(env, journal=SEGMENT)
    finally:
        disk.detach(env)


@pytest.mark.parametrize("call", ["open", "read", "write", "sync", "unlink"])
@pytest.mark.parametrize("after", range(8))
def test_a_journal_stays_until_all_of_it_is_in_the_files(call: Call, after: int) -> None:
    disk = filled()
    disk.fail(call, EIO, after)
    try:
        start(disk)
    except OSError:
        disk.mend()
        start(disk)
    disk.cut()
    assert disk.read(b"/S/a") == NEWER + OLDER[len(NEWER) :]
    assert FOLDER.encode() not in disk.names(b"/") or not disk.names(b"/" + FOLDER.encode())
