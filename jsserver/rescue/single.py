"""A rescue of single streams: their groups lost the majority, and the cluster has its own still.

The meta group stays as it is, because other servers go on with it. Only the logs of the groups that
are here lose the members that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jsserver.cluster.meta import MetaState, Name, group_of
from jsserver.disk.keys import Keys
from jsserver.offline.stopped import Refused
from jsserver.text.identity import short_hash

from . import grouplogs
from .carrying import Plan, Step, fold, group_size, is_folder, is_unmarked
from .plans import MEMORY, AssetFate, Fate, Said, assets_of


def plan(
    root: Path,
    folder: Path,
    server: str,
    others: Sequence[str],
    streams: Sequence[str],
    *,
    keys: Keys | None,
    done: Callable[[int], None],
) -> Plan:
    """What a rescue of these streams (`ACCOUNT/STREAM`) does; Refused, Unreadable, Locked. Else as
    the plan of a whole server's rescue."""
    meta = grouplogs.read(folder, keys)
    survivors = {short_hash(name): name for name in (server, *others)}
    state = fold(meta)
    made = Plan(root, server, survivors, meta, state, [], streams=tuple(streams))
    for text in streams:
        for name, said in _assets(state, text):
            step = _step(folder.parent, name, said, made, keys)
            if step is None:
                continue
            done(group_size(step.log.folder))
            made.fates.append(step.fate)
            if step.gone or is_unmarked(step.fate, step.log.folder):
                made.steps.append(step)
    return made


def _assets(state: MetaState, text: str) -> Iterator[tuple[Name, Said]]:
    """A stream and its consumers."""
    account, _, stream = text.partition("/")
    found = state.streams.get(account, {}).get(stream)
    if found is None:
        known = ", ".join(f"{of}/{name}" for of, name, _ in state) or "none"
        raise Refused(f"the cluster of this directory has no stream {text}; it has: {known}")
    if group_of(found.said).get("store") == MEMORY:
        raise Refused(f"{text} is in memory: nothing of it is left once its servers have stopped")
    yield from assets_of(Name(account, stream), found)


def _step(groups: Path, name: Name, said: Said, made: Plan, keys: Keys | None) -> Step | None:
    """What is to be done to an asset's group; None: it needs no rescue."""
    of = group_of(said)
    place = groups / str(of.get("name", ""))
    if not of.get("name") or not is_folder(place):
        if name.consumer:
            return None
        raise Refused(f"nothing of the group of {name} is in this directory")
    log = grouplogs.read(place, keys)
    members = log.peers()
    if made.own not in members:
        raise Refused(f"{made.server} is no member of the group of {name}: its log has no vote")
    stay = members & made.survivors.keys()
    if 2 * len(stay) > len(members) and stay != members:
        if name.consumer:
            return None
        raise Refused(
            f"{len(stay)} of {len(members)} members of {name} are a majority, and need no rescue:"
            " start them, and replace the others with `nats stream cluster peer-remove`"
        )
    before, after = tuple(sorted(members)), tuple(sorted(stay))
    fate = Fate.SAME if stay == members else Fate.REDUCED
    told = AssetFate(name, fate, before, after, log.name, of.get("store") == MEMORY)
    return Step(told, log, members - stay)
