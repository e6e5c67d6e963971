"""What a check finds, how bad it is, and what a server does with it at its start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

MOST = 1000
"""Findings of a stream that are kept; further ones are counted."""


class Severity(Enum):
    """How bad a finding is."""

    NOTE = "note"
    """Nothing is wrong: what a crash leaves, what cannot be looked at."""
    WARNING = "warning"
    """A server starts and serves every message, but makes something anew or lacks a position."""
    DAMAGE = "damage"
    """Messages, a configuration or positions are lost or not served."""


_STARTS = {
    "meta": "both servers leave the stream or consumer out (jsserver lists it as offline) and keep"
    " its files",
    "offline": "jsserver lists it as offline and keeps its files",
    "record": "jsserver withholds these messages alone; nats-server without a fitting index.db cuts"
    " the block here, and what stands behind it in this block is gone",
    "lengths": "jsserver withholds the message whose lengths changed; nats-server serves it wrong",
    "bare": "both servers pass it over",
    "packed": "nothing of this block is served; nats-server without a fitting index.db deletes the"
    " stream's directory",
    "unread": "jsserver keeps the stream offline; nats-server without a fitting index.db deletes"
    " the stream's directory",
    "missing": "both servers start; the messages are gone",
    "foreign-block": "jsserver puts the file aside (damaged-N.blk); nats-server empties it",
    "tail": "both servers cut this; nobody was promised what stood here",
    "cache": "both servers read the blocks instead, which takes longer",
    "stale": "both servers pass it over",
    "reserve": "jsserver goes by the other line",
    "index": "nats-server reads every block instead; messages that a limit had removed may come"
    " back",
    "counts": "a server that trusts this file counts wrong",
    "state": "nats-server takes these positions, or drops the consumer where it cannot read them;"
    " jsserver goes by consumers.log where that is newer",
    "log": "jsserver passes over it: what was acked there may be delivered again",
    "wheel": "nats-server takes the times from here: messages may leave or fire at another time",
    "order": "both servers pass over a record whose sequence is not above the one before",
    "leftover": "a start removes it or passes over it",
    "strange": "no server looks at it",
    "consumer-folder": "nats-server takes every folder here for a consumer",
    "link": "a server follows it; check what it points to by itself",
    "key": "nats-server cannot read what this key is for; jsserver does not read encrypted streams",
    "unseen": "",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a check has found. `file` is relative to the store directory."""

    severity: Severity
    kind: str
    account: str
    stream: str
    file: str
    what: str
    offset: int | None = None
    size: int | None = None
    lost: str = ""
    """Sequences of the messages that it costs, for people."""

    @property
    def at_start(self) -> str:
        """What a server does with it."""
        return _STARTS[self.kind]

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "severity": self.severity.value,
            "kind": self.kind,
            "account": self.account,
            "stream": self.stream,
            "file": self.file,
            "offset": self.offset,
            "size": self.size,
            "what": self.what,
            "lost": self.lost,
            "at_start": self.at_start,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        where = self.file + ("" if self.offset is None else f" at {self.offset}")
        long = "" if not self.size else f", {self.size} bytes"
        yield f"{self.severity.value}: {where}{long}: {self.what}"
        if self.lost:
            yield f"    messages: {self.lost}"
        if self.at_start and self.severity is not Severity.NOTE:
            yield f"    at a start: {self.at_start}"


@dataclass
class Findings:
    """Those of a stream."""

    found: list[Finding] = field(default_factory=list)
    more: dict[Severity, int] = field(default_factory=dict)
    unread: int = 0
    """Files that could not be read."""

    def add(self, finding: Finding) -> None:
        if len(self.found) < MOST:
            self.found.append(finding)
        else:
            self.more[finding.severity] = self.more.get(finding.severity, 0) + 1

    def count(self, severity: Severity) -> int:
        kept = sum(1 for finding in self.found if finding.severity is severity)
        return kept + self.more.get(severity, 0)

    @property
    def sound(self) -> bool:
        return not self.count(Severity.WARNING) and not self.count(Severity.DAMAGE)

    def in_order(self) -> list[Finding]:
        """By file, and by place in it."""
        return sorted(self.found, key=lambda f: (_natural(f.file), f.offset or 0))


def _natural(path: str) -> list[tuple[int, str]]:
    """Numbers of blocks in the order of numbers."""
    stems = (part.partition(".") for part in path.split("/"))
    return [(int(s) if s.isdecimal() else -1, s + dot + rest) for s, dot, rest in stems]
