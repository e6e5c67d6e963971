"""Carries out the steps of a plan by requests to a cluster's API."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from jsserver.admin.plan import Lead, Move
from jsserver.admin.survey import JSZ, members
from jsserver.admin.system import System
from jsserver.client.connection import TimedOut

PAUSE = 0.25
"""Seconds between two checks of moves and elections."""
ELECTION = 10.0
"""Seconds within which the wanted server has to become the leader."""

Step = Lead | Move


class Outcome(Enum):
    """The state of a step."""

    BEGUN = "begun"
    GOES_ON = "goes on"
    DONE = "done"
    FAILED = "failed"


class News(NamedTuple):
    """A step's new state; `text`: details, "" without."""

    step: Step
    outcome: Outcome
    text: str = ""


Tell = Callable[[News], None]


class _Moving(NamedTuple):
    """A replica that is moving: when the move began, what was last seen, and since when."""

    step: Move
    begun: float
    seen: object
    since: float


class Carrier:
    """Carries out steps. `tell`: is called with each step's news; `patience`: seconds without
    progress after which a move has failed."""

    def __init__(self, system: System, tell: Tell, *, patience: float) -> None:
        self._system = system
        self._tell = tell
        self._patience = patience

    def leads(self, steps: Iterable[Lead]) -> int:
        """Changes leaders; how many of these steps failed."""
        return sum(not self._lead(step) for step in steps)

    def _lead(self, step: Lead) -> bool:
        kind = "CONSUMER" if step.consumer else "STREAM" if step.stream else "META"
        name = ".".join(filter(None, (f"{kind}.LEADER.STEPDOWN", step.stream, step.consumer)))
        try:
            body = {"placement": {"preferred": step.target}}
            answer = self._system.api(name, body, step.account)
        except TimedOut:
            answer = {}
        if "error" in answer:
            self._tell(News(step, Outcome.FAILED, answer["error"]["description"]))
            return False
        end = time.monotonic() + ELECTION
        while time.monotonic() < end:
            leader = self._leader(step)
            if leader and leader != step.source:
                self._tell(News(step, Outcome.DONE, leader))
                return True
            time.sleep(PAUSE)
        self._tell(News(step, Outcome.FAILED, f"nobody took over in {ELECTION:g} s"))
        return False

    def _leader(self, step: Lead) -> str:
        if not step.stream:
            told = self._system.statistics()
            [id, *_] = [one["server"]["id"] for one in told if one["statsz"].get("jetstream")]
            said = self._system.server(id, "JSZ", {**JSZ, "accounts": False})
            return str((said["data"].get("meta_cluster") or {}).get("leader", ""))
        return str(self._info(step.account, step.stream, step.consumer).get("leader", ""))

    def _info(self, account: str, stream: str, consumer: str = "") -> dict[str, Any]:
        """The `cluster` part of an asset's INFO; {} while there is no leader."""
        kind = "CONSUMER" if consumer else "STREAM"
        try:
            name = ".".join(filter(None, (f"{kind}.INFO", stream, consumer)))
            answer = self._system.api(name, None, account)
        except TimedOut:
            return {}
        return answer.get("cluster") or {}

    def moves(self, steps: Iterable[Move], together: int) -> int:
        """Moves replicas, at most `together` at a time; how many of these steps failed."""
        waiting, failed = deque(steps), 0
        under_way: list[_Moving] = []
        while waiting or under_way:
            while waiting and len(under_way) < together:
                step = waiting.popleft()
                if self._begun(step):
                    now = time.monotonic()
                    under_way.append(_Moving(step, now, None, now))
                else:
                    failed += 1
            time.sleep(PAUSE)
            for moving in list(under_way):
                under_way.remove(moving)
                after = self._looked_at(moving)
                if isinstance(after, _Moving):
                    under_way.append(after)
                elif not after:
                    failed += 1
        return failed

    def _begun(self, step: Move) -> bool:
        name = f"ACCOUNT.STREAM.MOVE.{step.account}.{step.stream}"
        try:
            answer = self._system.api(name, {"server": step.source})
        except TimedOut:
            answer = {}  # it may have begun: the stream's leader, which answers, may be changing
        if "error" in answer:
            self._tell(News(step, Outcome.FAILED, answer["error"]["description"]))
            return False
        self._tell(News(step, Outcome.BEGUN))
        return True

    def _looked_at(self, moving: _Moving) -> _Moving | bool:
        """Checks a move: its present state, or, if it is over, whether it succeeded."""
        step, now = moving.step, time.monotonic()
        cluster = self._info(step.account, step.stream)
        holders = members(cluster)
        others = cluster.get("replicas") or ()
        lag = sum(one.get("lag", 0) for one in others)
        current = all(one.get("current") for one in others)
        if cluster.get("leader") and step.source not in holders and current:
            text = f"{', '.join(sorted(holders))} after {now - moving.begun:.1f} s"
            self._tell(News(step, Outcome.DONE, text))
            return True
        seen = (holders, lag, current)
        if seen != moving.seen:
            if lag:
                self._tell(News(step, Outcome.GOES_ON, f"{lag} entries behind"))
            return moving._replace(seen=seen, since=now)
        if now - moving.since > self._patience:
            text = f"nothing has changed for {self._patience:g} s; the move may still end"
            self._tell(News(step, Outcome.FAILED, text))
            return False
        return moving
