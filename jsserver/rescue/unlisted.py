"""Streams on disk that a damaged meta group does not list: a rescue assigns them to the server that
has them, by what their own directories say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jsserver.cluster.meta import MetaState, Name, group_of
from jsserver.disk.keys import Keys
from jsserver.offline.places import names_in
from jsserver.offline.stopped import Refused

from . import founding, grouplogs
from .carrying import META, RAFT, is_folder
from .grouplogs import GroupLog
from .plans import MEMORY, AssetFate, Fate, assets_of


def add(
    root: Path, meta: GroupLog, state: MetaState, own: str, cluster: str, keys: Keys | None
) -> list[AssetFate]:
    """Assigns the streams that the state lacks to the server `own`; what became of each. What is
    left out by that is damage of the meta group. `cluster`: "": that of the assignments that are
    left; Refused where there are none."""
    name = cluster or _cluster_of(state)
    known = {
        str(group_of(said).get("name", ""))
        for of_account, of_stream, one in state
        for _, said in assets_of(Name(of_account, of_stream), one)
    }
    found, offline = founding.streams_in(root, keys)
    fates = []
    for account, stream, assigned in found:
        if stream in state.streams.get(account, {}):
            continue
        if not name:
            raise Refused("the meta group does not say what the cluster is called: give --cluster")
        one = founding.assignment(assigned, account, own, name)
        state.streams.setdefault(account, {})[stream] = one
        for asset, said in assets_of(Name(account, stream), one):
            of = group_of(said)
            in_memory = of.get("store") == MEMORY
            fates.append(AssetFate(asset, Fate.FOUND, (own,), (own,), of["name"], in_memory))
    meta.damage += [f"stream {which}: {why}" for which, why in offline.items()]
    meta.damage += _unused(meta.folder.parent, known, keys)
    return fates


def _cluster_of(state: MetaState) -> str:
    named = (str(group_of(one.said).get("cluster") or "") for _, _, one in state)
    return next(filter(None, named), "")


def _unused(groups: Path, known: set[str], keys: Keys | None) -> Iterator[str]:
    """Groups whose streams are not known, so that what their logs have cannot be applied."""
    assert groups.name == RAFT
    for name in names_in(groups):
        if name in known or name == META or not name.startswith(("S-R", "C-R")):
            continue
        if "." in name or not is_folder(groups / name):
            continue  # put aside
        entries = len(grouplogs.read(groups / name, keys).rows)
        if entries:
            yield f"group {name}: nothing says whose it is, and its {entries} entries are left out"
