"""What a new member of a group still lacks, in a file beside the group's log: a restart goes on
from there. nats-server ignores the file."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from jsserver.cext import replicas as CODES
from jsserver.disk.directories import sync_directory, write_whole
from jsserver.disk.quarantine import LOST, MEMBERS, RESCUED

if TYPE_CHECKING:
    from pathlib import Path

FILE = "joining"


class Standing(Enum):
    """What a member of a group has of the group's log and state, and whether it may lead."""

    MEMBER = "member"
    """The member has all, as far as it knows. It may lead."""
    BASE = "base"
    """The member held the asset before the asset had a group. It leads first, and writes the state
    into the group's log as a snapshot."""
    LOG = "log"
    """The member lacks entries of the log. It may not lead."""
    STATE = "state"
    """The member lacks everything, and the log is to begin with a snapshot. It may not lead."""

    @property
    def code(self) -> int:
        """The number of this standing in the data plane."""
        return CODES_OF[self]


CODES_OF = {
    Standing.MEMBER: CODES.MEMBER,
    Standing.BASE: CODES.BASE,
    Standing.LOG: CODES.JOINS_LOG,
    Standing.STATE: CODES.AWAITS_STATE,
}


def begin(directory: Path, standing: Standing) -> None:
    """Records the standing of a new member on disk; OSError."""
    if standing is Standing.MEMBER:
        return
    write_whole(directory / FILE, standing.value.encode())
    sync_directory(directory)


def found(directory: Path) -> Standing:
    """The standing that this directory records; MEMBER where none is recorded; OSError."""
    try:
        said = (directory / FILE).read_text(errors="replace")
    except FileNotFoundError:
        return Standing.MEMBER
    try:
        return Standing(said)
    except ValueError:
        return Standing.LOG  # a crash cut the file short: the member votes once it has caught up


def joined(directory: Path) -> None:
    """Records that the member has caught up; OSError."""
    with suppress(FileNotFoundError):
        os.unlink(directory / FILE)


def mark_if_empty(directory: Path) -> None:
    """Notes in a directory in which no group was ever opened that the member may have lost what it
    had; OSError."""
    if not (directory / MEMBERS).exists():
        write_whole(directory / LOST, b"")
        sync_directory(directory)


def rescued(groups: Path) -> set[str]:
    """The groups of this directory that a rescue has left with one member; OSError."""
    return {path.parent.name for path in groups.glob(f"*/{RESCUED}")}


def forget_rescue(directory: Path) -> None:
    """What the log of this group has is applied; OSError."""
    with suppress(FileNotFoundError):
        os.unlink(directory / RESCUED)
