"""The directory of a Raft group that is damaged is put aside, and nothing of it deleted.

What takes its place says that the member lost what it had: its vote counts little until it has
caught up. Who was voted for is kept, so that no term gets a second vote.
"""

from __future__ import annotations

import os
import time

from jsserver.disk.directories import make_directory, sync_directory, write_whole

MEMBERS = "peers.idx"
KEPT = ("tav.idx", MEMBERS)
"""Votes and members."""
LOST = "lost"
RESCUED = "rescued"
"""A file in the directory of a group that a rescue has left with one member: what its log has is
applied, then the group is no more."""
NEXT = ".next"
"""What is appended to the name of a directory that is to take the place."""


def put_aside(directory: str) -> str:
    """The name that it has now; OSError. A kill at any moment leaves what settle() finishes."""
    aside = f"{directory}.damaged-{time.time_ns()}"
    following = directory + NEXT
    make_directory(following)
    for name in KEPT:
        try:
            with open(os.path.join(directory, name), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        write_whole(os.path.join(following, name), data)
    write_whole(os.path.join(following, LOST), b"")
    sync_directory(following)
    os.rename(directory, aside)
    sync_directory(os.path.dirname(directory))
    settle(directory)
    return aside


def settle(directory: str) -> None:
    """Before it is opened: finishes what a kill interrupted; OSError."""
    following = directory + NEXT
    if os.path.isdir(following) and not os.path.exists(directory):
        os.rename(following, directory)
        sync_directory(os.path.dirname(directory))
