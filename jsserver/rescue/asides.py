"""What servers of a cluster have put aside instead of removing it: listed, taken out, removed.

A stream that no assignment names any more lies in `ACCOUNT/aside/NAME.TIME`, the log of a damaged
group in `GROUP.damaged-TIME`, what a rescue has replaced beside the group's own files.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from jsserver.disk.directories import make_directory, sync_directory
from jsserver.instances.recovery import ASIDE, move
from jsserver.offline.places import folders_in
from jsserver.offline.stopped import Refused
from jsserver.text.goformat import rfc3339_nano

from .carrying import RAFT

_TIME = "([0-9]{16,20})"
_STREAM = re.compile(rf"(.+)\.{_TIME}")
_GROUP = re.compile(rf"(.+)\.damaged-{_TIME}")
_RESCUE = re.compile(rf"(?:msgs\.)?before-rescue-{_TIME}")
REMOVED = ".del-"
"""How the name begins of what is being removed."""


class Kind(Enum):
    """What was put aside."""

    STREAM = "stream"
    GROUP = "group"
    """A Raft group's directory that was damaged."""
    RESCUE = "rescue"
    """What a rescue has replaced."""


@dataclass(frozen=True)
class Aside:
    """One thing that was put aside."""

    kind: Kind
    account: str
    name: str
    """Of the stream or the group."""
    at: int
    """When, in ns since the epoch."""
    path: Path

    def id(self, root: Path) -> str:
        """By what commands name it."""
        return str(self.path.relative_to(root))

    def size(self) -> int:
        """Bytes of its files."""
        return sum(one.stat().st_size for one in self.path.rglob("*") if one.is_file())

    def as_dict(self, root: Path) -> dict[str, object]:
        """For JSON."""
        return {
            "id": self.id(root),
            "kind": self.kind.value,
            "account": self.account,
            "name": self.name,
            "time": rfc3339_nano(self.at),
            "bytes": self.size(),
        }


def found(root: Path) -> list[Aside]:
    """All that was put aside in a store directory; Unreadable."""
    known = []
    for account in folders_in(root):
        for name in folders_in(root / account / ASIDE):
            if match := _STREAM.fullmatch(name):
                path = root / account / ASIDE / name
                known.append(Aside(Kind.STREAM, account, match[1], int(match[2]), path))
        for name in folders_in(root / account / RAFT):
            path = root / account / RAFT / name
            if match := _GROUP.fullmatch(name):
                known.append(Aside(Kind.GROUP, account, match[1], int(match[2]), path))
            for inner in folders_in(path):
                if match := _RESCUE.fullmatch(inner):
                    known.append(Aside(Kind.RESCUE, account, name, int(match[1]), path / inner))
    return known


def chosen(root: Path, ids: list[str]) -> list[Aside]:
    """Those that are named so; Refused."""
    known = {one.id(root): one for one in found(root)}
    for name in ids:
        if name not in known:
            there = ", ".join(known) or "nothing"
            raise Refused(f"nothing is put aside as {name}; there is: {there}")
    return [known[name] for name in ids]


def take_out(one: Aside, to: Path) -> Path:
    """Moves a stream into a store directory of its own, or into another one on the same file
    system, where a standalone server serves it; where it is now. Refused, OSError."""
    if one.kind is not Kind.STREAM:
        raise Refused(f"{one.path.name} is no stream: only streams can be restored")
    place = to / "jetstream" / one.account / "streams" / one.name
    if place.exists():
        raise Refused(f"{place} is there already")
    if list(to.glob(f"jetstream/*/{RAFT}")):
        raise Refused(f"{to} is the directory of a member of a cluster, which knows no such stream")
    made = [path for path in (place.parent, *place.parent.parents) if not path.exists()]
    make_directory(place.parent)
    owner = one.path.stat()
    for path in made:
        os.chown(path, owner.st_uid, owner.st_gid)
    if os.stat(place.parent).st_dev != os.stat(one.path).st_dev:
        raise Refused(f"{to} is on another file system: choose one on that of the quarantine")
    move(one.path, place)
    return place


def remove(one: Aside) -> None:
    """Removes it for good; OSError. A kill leaves what is listed no more."""
    gone = one.path.with_name(f"{REMOVED}{one.path.name}")
    os.rename(one.path, gone)
    sync_directory(one.path.parent)
    shutil.rmtree(gone)
