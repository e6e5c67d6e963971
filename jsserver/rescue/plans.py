"""What becomes of a cluster's assignments when only some of its members are left.

Plain functions over assignments: the survivors come to the same, each in its own directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from enum import Enum
from typing import Any, NamedTuple

from jsserver.cluster.meta import MetaState, Name, StreamAssignment, group_of, peers_of

Said = dict[str, Any]
MEMORY = "memory"
NO_SURVIVOR_KNOWS = ("preferred", "scale_up", "desired")
"""Fields of a group's assignment that name members which may be gone: the preferred leader, members
that were to join, and nats-server 2.15's wish for other members."""


class Fate(Enum):
    """What becomes of a stream or consumer."""

    SAME = "same"
    """All its members are left."""
    REDUCED = "reduced"
    """Some are."""
    LOST = "lost"
    """None is, and its assignment stays as it was."""
    FOUND = "found"
    """The meta group does not list it; what is on disk is assigned to this server."""
    REMOVED = "removed"
    """None is, and its assignment goes."""


class AssetFate(NamedTuple):
    """Of one stream, or one consumer."""

    name: Name
    fate: Fate
    before: tuple[str, ...]
    after: tuple[str, ...]
    """Its members' ids."""
    group: str
    in_memory: bool
    is_missing: bool = False
    """Whether the last of its members is this server, and nothing of it is here."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        told: dict[str, object] = {"account": self.name.account, "stream": self.name.stream}
        if self.name.consumer:
            told["consumer"] = self.name.consumer
        return {
            **told,
            "fate": self.fate.value,
            "members_before": [*self.before],
            "members_after": [*self.after],
            "missing_here": self.is_missing,
        }


def assets_of(name: Name, assignment: StreamAssignment) -> Iterator[tuple[Name, Said]]:
    """The assignments of a stream and of its consumers."""
    yield name, assignment.said
    for consumer, said in assignment.consumers.items():
        yield name._replace(consumer=consumer), said


def decide(
    state: MetaState,
    survivors: Set[str],
    is_missing: Callable[[Name, Said], bool],
    remove_lost: bool,
) -> tuple[MetaState, list[AssetFate]]:
    """All assignments as they are to be, and what becomes of each. `survivors`: ids;
    `is_missing`: whether what this server alone is left of is not here."""
    after, fates = MetaState(), []
    for account, stream, assignment in state:
        name = Name(account, stream)
        fate = _fate(name, assignment.said, survivors, is_missing, remove_lost)
        fates.append(fate)
        if fate.fate is Fate.REMOVED:
            continue
        consumers = dict(assignment.consumers)
        if fate.fate is not Fate.LOST:
            for consumer, said in assignment.consumers.items():
                one = name._replace(consumer=consumer)
                of_one = _fate(one, said, {*fate.after}, is_missing, remove_lost)
                fates.append(of_one)
                if of_one.fate is Fate.REMOVED:
                    del consumers[consumer]
                elif of_one.fate is Fate.REDUCED:
                    consumers[consumer] = reduced(said, "consumer", of_one.after)
        said = assignment.said
        if fate.fate is Fate.REDUCED:
            said = reduced(said, "stream", fate.after)
        after.streams.setdefault(account, {})[stream] = StreamAssignment(said, consumers)
    return after, fates


def _fate(
    name: Name,
    said: Said,
    survivors: Set[str],
    is_missing: Callable[[Name, Said], bool],
    remove_lost: bool,
) -> AssetFate:
    before, of = tuple(peers_of(said)), group_of(said)
    after = tuple(peer for peer in before if peer in survivors)
    told = AssetFate(
        name, Fate.SAME, before, after, str(of.get("name", "")), of.get("store") == MEMORY
    )
    if after == before:
        return told
    lost = Fate.REMOVED if remove_lost else Fate.LOST
    if len(after) == 1 and is_missing(name, said):
        return told._replace(fate=lost, after=(), is_missing=True)
    return told._replace(fate=Fate.REDUCED if after else lost)


def reduced(said: Said, kind: str, peers: Iterable[str]) -> Said:
    """The assignment with these members, and no more replicas than they are. The group keeps its
    name, by which its log is found."""
    stay = [*peers]
    of = {key: value for key, value in group_of(said).items() if key not in NO_SURVIVOR_KNOWS}
    config = dict(said.get(kind) or {})
    if (config.get("num_replicas") or 0) > len(stay):
        config["num_replicas"] = len(stay)
    return {**said, kind: config, "group": {**of, "peers": stay}}


def counts(fates: Iterable[AssetFate]) -> Iterator[tuple[Fate, int, int]]:
    """How many streams and consumers there are of each fate that any has."""
    known = [*fates]
    for fate in Fate:
        of_it = [one for one in known if one.fate is fate]
        consumers = sum(bool(one.name.consumer) for one in of_it)
        if of_it:
            yield fate, len(of_it) - consumers, consumers
