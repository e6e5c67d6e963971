"""Chooses the members of a cluster that hold a stream. No clock or network.

The rules are nats-server's, so that either server places alike as meta leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jsserver.config.member import NO_STREAMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set


class Room(NamedTuple):
    """The state of a server's JetStream as the server reports it. `memory`, `files`: free bytes."""

    memory: int
    files: int
    assets: int
    """The server's replicated streams and consumers, and the meta group."""


class Member(NamedTuple):
    """A member of the meta group."""

    peer: str
    known: bool = True
    """Whether the server has announced its name, cluster and tags."""
    cluster: str = ""
    tags: Sequence[str] = ()
    """In lower case, in the order of the server's configuration."""
    online: bool = False
    room: Room | None = None
    """None: not reported yet."""


class Load(NamedTuple):
    """How many streams are assigned to a member."""

    streams: int = 0
    replicated: int = 0
    """Those of `streams` with more than one replica."""


class Rules(NamedTuple):
    """Placement rules in the meta leader's configuration."""

    unique_tag: str = ""
    """Prefix of tags: no two members of a stream may share a tag with this prefix; "": no rule."""
    max_ha_assets: int = 0
    """The most replicated assets of a server; 0: no limit."""


class Wanted(NamedTuple):
    """What a stream to be placed needs."""

    replicas: int
    cluster: str
    in_memory: bool = False
    max_bytes: int = 0
    """Bytes that the stream reserves; 0: none."""
    tags: Sequence[str] = ()
    """Tags that a member must have; a tag after "!" is one that it must not have."""


class Reasons:
    """Why too few members are suitable, in nats-server's words."""

    def __init__(self) -> None:
        self.offline = self.excluded = self.storage = self.unique = self.other = False
        self.no_members = False
        self.unmatched: set[str] = set()
        self.forbidden: set[str] = set()

    def add(self, other: Reasons) -> None:
        """Adds the reasons of another cluster that was tried."""
        self.offline |= other.offline
        self.excluded |= other.excluded
        self.storage |= other.storage
        self.unique |= other.unique
        self.other |= other.other
        self.no_members |= other.no_members
        self.unmatched |= other.unmatched
        self.forbidden |= other.forbidden

    def __str__(self) -> str:
        found = [
            (self.offline, "peer offline"),
            (self.excluded, "exclude tag set"),
            (self.storage, "insufficient storage"),
            (self.unique, "server tag not unique"),
            (self.other, "miscellaneous issue"),
            (self.no_members, "jetstream not enabled in cluster"),
            (self.unmatched, f"tags not matched [{_listed(self.unmatched)}]"),
            (self.forbidden, f"tags excluded [{_listed(self.forbidden)}]"),
        ]
        return ", ".join(["no suitable peers for placement", *(t for is_so, t in found if is_so)])


def place(
    wanted: Wanted,
    members: Sequence[Member],
    loads: Mapping[str, Load],
    rules: Rules,
    *,
    existing: Sequence[str] = (),
    leaving: int = 0,
    ignored: Set[str] = frozenset(),
) -> list[str] | Reasons:
    """Ids of the members that are to hold the stream, the best first, or why there are too few.

    `members`: shuffled, so that ties are broken at random; `existing`: members that hold the stream
    already, they stay in front; `leaving`: how many of `existing`, from the first on, are to leave
    soon, so that new members may have the same tags; `ignored`: members that must not hold the
    stream.
    """
    if len(existing) >= wanted.replicas:
        return list(existing[: wanted.replicas])
    reasons = Reasons()
    if not wanted.cluster:
        reasons.other = True
        return reasons
    taken = _Tags(wanted, rules)
    by_peer = {member.peer: member for member in members}
    for peer in existing[leaving:]:
        if peer in by_peer:
            taken.take(by_peer[peer])
    found = []
    for member in members:
        skipped = member.peer in ignored or member.peer in existing
        if _fits(member, wanted, rules, reasons, skipped=skipped):
            if taken.take(member):
                found.append(member)
            else:
                reasons.unique = True
    lacking = wanted.replicas - len(existing)
    reached = sum(member.online for member in found) + len(existing)
    enough, quorum = len(found) >= lacking, reached > wanted.replicas // 2
    if not enough or not quorum:
        reasons.no_members = not members
        reasons.offline |= bool(members) and enough
        return reasons

    def order(member: Member) -> tuple[bool, int, int, int]:
        load = loads.get(member.peer, Load())
        replicated = load.replicated if wanted.replicas > 1 else 0
        return not member.online, replicated, -_free(member, wanted), load.streams

    found.sort(key=order)
    return [*existing, *(member.peer for member in found[:lacking])]


class _Tags:
    """The tags with the prefix `unique_tag` that chosen members have."""

    def __init__(self, wanted: Wanted, rules: Rules) -> None:
        named = any(_bare(tag).startswith(rules.unique_tag) for tag in wanted.tags)
        self._prefix = "" if named else rules.unique_tag
        """Empty where the stream asks for such a tag itself: the rule does not bind it then."""
        self._taken: set[str] = set()

    def take(self, member: Member) -> bool:
        """Whether the member's tag is still free; takes the tag."""
        if not self._prefix:
            return True
        own = next((tag for tag in member.tags if tag.startswith(self._prefix)), "")
        if not own or own in self._taken:
            return False
        self._taken.add(own)
        return True


def _fits(member: Member, wanted: Wanted, rules: Rules, reasons: Reasons, *, skipped: bool) -> bool:
    """Whether the member is suitable for the stream. If not, notes the reason, where a client is to
    hear of it."""
    if not member.known:
        reasons.other = True
    elif member.cluster != wanted.cluster:
        pass  # in another cluster than the one asked for: no reason to report
    elif member.room is None:
        reasons.offline = True
    elif skipped:
        pass
    elif NO_STREAMS in member.tags:
        reasons.excluded = True
    elif (tag := _wrong_tag(member, wanted)) is not None:
        (reasons.forbidden if tag.startswith("!") else reasons.unmatched).add(_bare(tag))
    elif 0 < wanted.max_bytes > _free(member, wanted):
        reasons.storage = True
    elif 0 < rules.max_ha_assets < member.room.assets:
        reasons.other = True
    else:
        return True
    return False


def _wrong_tag(member: Member, wanted: Wanted) -> str | None:
    """The first of the stream's wanted tags that the member does not meet; None: it meets all."""
    for tag in wanted.tags:
        if (_bare(tag).strip().lower() in member.tags) == tag.startswith("!"):
            return tag
    return None


def _free(member: Member, wanted: Wanted) -> int:
    assert member.room is not None
    return max(0, member.room.memory if wanted.in_memory else member.room.files)


def _bare(tag: str) -> str:
    return tag.removeprefix("!")


def _listed(tags: Set[str]) -> str:
    return ", ".join(f"'{tag}'" for tag in sorted(tags))
