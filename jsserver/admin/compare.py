"""`jsserver cluster compare`: whether all replicas of streams hold the same.

Servers of jsserver make digests of what they hold. Of a nats-server, counts are compared alone.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from jsserver.admin.differences import Difference, Part, differences
from jsserver.admin.rebuilding import rebuild
from jsserver.admin.session import CommandFailed
from jsserver.admin.survey import View, views
from jsserver.admin.system import System
from jsserver.client.connection import ConnectionFailed, TimedOut

CHUNK = 4096
CHUNK_BYTES = 16_000_000
LOOKS = 3
"""How often a difference is to be seen before it counts: a replica may be a moment behind."""
PAUSE = 1.0
DIFFERS = 3
"""The exit code where replicas differ."""


class Replica(NamedTuple):
    """What a server says of its replica of a stream."""

    messages: int
    size: int
    first: int
    last: int
    leads: bool


class Verdict(NamedTuple):
    """What was found of a stream."""

    account: str
    stream: str
    replicas: dict[str, Replica]
    counted: list[str]
    """Servers of which only counts were compared."""
    odd: list[str]
    """Servers whose replica differs."""
    seqs: list[int]
    """The first of the sequences that differ; none where counts differ."""


def add_arguments(made: argparse.ArgumentParser) -> None:
    """The arguments of this command alone."""
    made.add_argument("stream", nargs="?", default="", help="name of the stream, default all")
    made.add_argument("--account", default="", help="its account, default all")
    text = "have a replica that differs built anew from the others; what it has is put aside"
    made.add_argument("--rebuild", action="store_true", help=text)


def run(system: System, options: argparse.Namespace) -> int:
    """Compares what replicas of streams hold, and says which one differs."""
    seen = views(system, system.statistics())
    keys = sorted({key for view in seen for key in view.streams if _wanted(key, options)})
    if not keys:
        raise CommandFailed("there is no such stream")
    differ = 0
    for key in keys:
        if sum(key in view.streams for view in seen) < 2:
            continue
        verdict = _Comparison(system, key).verdict(seen)
        _tell(verdict, options.json)
        if verdict.odd and options.rebuild:
            verdict = _rebuilt(system, key, verdict)
            _tell(verdict, options.json)
        differ += bool(verdict.odd)
    return DIFFERS if differ else 0


def _rebuilt(system: System, key: tuple[str, str], verdict: Verdict) -> Verdict:
    for server in verdict.odd:
        rebuild(system, key, server)
    return _Comparison(system, key).verdict(views(system, system.statistics()))


def _wanted(key: tuple[str, str], options: argparse.Namespace) -> bool:
    return options.account in ("", key[0]) and options.stream in ("", key[1])


class _Comparison:
    """Of the replicas of one stream."""

    def __init__(self, system: System, key: tuple[str, str]) -> None:
        self._system = system
        self._key = key
        self._ids: dict[str, str] = {}

    def verdict(self, seen: list[View]) -> Verdict:
        """What is so in each of some looks; `seen`: what servers said before the first one."""
        for look in range(LOOKS):
            if look:
                time.sleep(PAUSE)
                seen = views(self._system, self._system.statistics())
            found = self._look(seen)
            if not found.odd:
                break
        return found

    def _look(self, seen: list[View]) -> Verdict:
        held = self._held(seen)
        self._ids = {view.server: view.id for view in seen}
        telling = [name for name in held if self._tells(name)]
        counted = [name for name in held if name not in telling]
        leader = next((name for name, one in held.items() if one.leads), "")
        found = self._differences(telling, held)
        if found:  # what was removed meanwhile is no difference
            now = self._held(views(self._system, self._system.statistics()))
            first = max(one.first for one in now.values())
            found = [one for one in found if one.seq >= first]
        odd = {name for one in found for name in one.odd(leader)} | _odd_counts(held, leader)
        return Verdict(*self._key, held, counted, sorted(odd), [one.seq for one in found])

    def _held(self, seen: list[View]) -> dict[str, Replica]:
        key = self._key
        return {view.server: _replica(view, key) for view in seen if key in view.streams}

    def _tells(self, name: str) -> bool:
        """Whether a server makes digests."""
        try:
            self._ask(name, Part(1, 0, 1))
        except TimedOut:
            raise
        except ConnectionFailed:  # nobody listens
            return False
        return True

    def _differences(self, names: list[str], held: Mapping[str, Replica]) -> list[Difference]:
        if len(names) < 2:
            return []
        first = max(held[name].first for name in names)
        last = min(held[name].last for name in names)
        messages = max(held[name].messages for name in names)
        size = max(held[name].size for name in names) // max(messages, 1)
        chunk = CHUNK
        while chunk > 1 and chunk * size > CHUNK_BYTES:
            chunk //= 2
        return differences(names, self._ask, Part(first, last, chunk))

    def _ask(self, name: str, part: Part) -> dict[int, str]:
        account, stream = self._key
        body = {"account": account, "stream": stream, **part._asdict()}
        found: dict[int, str] = {}
        while True:
            said = self._system.server(self._ids[name], "JSSERVER.DIGEST", body)["data"]
            found |= {one["first"]: one["digest"] for one in said.get("chunks") or ()}
            if not said.get("next"):
                return found
            body["first"] = said["next"]


def _replica(view: View, key: tuple[str, str]) -> Replica:
    said = view.streams[key]
    state, cluster = said["state"], said.get("cluster") or {}
    return Replica(
        state["messages"],
        state["bytes"],
        state["first_seq"],
        state["last_seq"],
        cluster.get("leader") == view.server,
    )


def _odd_counts(held: Mapping[str, Replica], leader: str) -> set[str]:
    """Servers whose counts differ, where all have come to the same sequence."""
    counts = {name: one[:4] for name, one in held.items()}
    if len({one.last for one in held.values()}) > 1 or len({*counts.values()}) < 2:
        return set()
    [(right, _)] = Counter(counts.values()).most_common(1)
    if leader and list(counts.values()).count(right) == 1:
        right = counts[leader]
    return {name for name, count in counts.items() if count != right}


def _tell(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        said: dict[str, Any] = verdict._asdict()
        said["replicas"] = {name: one._asdict() for name, one in verdict.replicas.items()}
        print(json.dumps(said), flush=True)
        return
    last = min(one.last for one in verdict.replicas.values())
    names = ", ".join(sorted(verdict.replicas))
    told = f"{verdict.account}/{verdict.stream}: "
    if not verdict.odd:
        told += f"the same on {names} up to sequence {last}"
    elif verdict.seqs:
        told += f"{', '.join(verdict.odd)} differs from sequence {verdict.seqs[0]} on"
        told += f" ({', '.join(map(str, verdict.seqs))})"
    else:
        told += f"{', '.join(verdict.odd)} differs in its counts"
    if verdict.counted:
        told += f"; of {', '.join(sorted(verdict.counted))} only counts were compared"
    print(told, flush=True)
    if verdict.odd:
        for name, one in sorted(verdict.replicas.items()):
            leads = ", leads" if one.leads else ""
            print(
                f"  {name}: {one.messages} messages, {one.size} bytes,"
                f" sequences {one.first} to {one.last}{leads}"
            )
