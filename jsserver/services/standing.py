"""How far this server's member of a group is that it has just got: kept beside the group's log, so
that a start goes on there. nats-server does not look at the file."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from jsserver.cext import replicas as CODES
from jsserver.disk.directories import sync_directory, write_whole

if TYPE_CHECKING:
    from pathlib import Path

FILE = "joining"


class Standing(Enum):
    """What a member has of what its group has, and whether it may lead."""

    MEMBER = "member"
    """All of it, as far as anybody knows."""
    BASE = "base"
    """What no log has: it leads first, and puts that into the log."""
    LOG = "log"
    """It lacks what the log has."""
    STATE = "state"
    """Likewise, and a state is to come that the log begins with."""

    @property
    def code(self) -> int:
        """As the data plane calls it."""
        return CODES_OF[self]


CODES_OF = {
    Standing.MEMBER: CODES.MEMBER,
    Standing.BASE: CODES.BASE,
    Standing.LOG: CODES.JOINS_LOG,
    Standing.STATE: CODES.AWAITS_STATE,
}


def begin(directory: Path, standing: Standing) -> None:
    """A new member begins so; OSError."""
    if standing is Standing.MEMBER:
        return
    write_whole(directory / FILE, standing.value.encode())
    sync_directory(directory)


def found(directory: Path) -> Standing:
    """How the member of this directory began, if it has not joined since; OSError."""
    try:
        said = (directory / FILE).read_text(errors="replace")
    except FileNotFoundError:
        return Standing.MEMBER
    try:
        return Standing(said)
    except ValueError:
        return Standing.LOG  # a crash cut it off: the member takes part when it has all


def joined(directory: Path) -> None:
    """The member has all; OSError."""
    with suppress(FileNotFoundError):
        os.unlink(directory / FILE)
