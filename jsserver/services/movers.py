"""Moves streams and consumers between servers, step by step, as the leader of their groups.

While an asset moves, its assignment lists its old members first and its new members behind them. A
leader among the old members waits until a quorum of the new members has caught up, and hands over.
A leader among the new members removes the old ones, and asks the meta group for an assignment with
the new members alone. nats-server does the same, so either server may lead at any step.

Where a nats-server 2.15 leads the meta group, the assignment has a wish instead
(`jsserver/cluster/desired.py`): the leader of the asset reports each step towards the wish.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from jsserver.cext.replicas import StreamReplica
from jsserver.cluster.desired import Seen, Step, next_step, wish_of
from jsserver.cluster.meta import MetaState, Name, Op, StreamAssignment, group_of, peers_of
from jsserver.cluster.proposals import Said, entry
from jsserver.cluster.regroup import replicas_of
from jsserver.services.membership import Member
from jsserver.services.replicas import HEARD, Replicas
from jsserver.services.reports import Kind, Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.cext.groups import Peer
    from jsserver.instances.backend import AccountHandle

PERIOD = 0.5
"""Seconds between two checks."""
SOON = 0.05
"""Seconds between two checks while there are wishes, which take several steps."""
AGAIN = 5.0
"""Seconds after which the meta leader is asked again."""
TELL_AGAIN = 1.0
"""Seconds after which a step is reported again."""
LAG = 256
"""Entries that a new member may lack when the lead is handed to it: they reach it first."""


class Moving(NamedTuple):
    """An asset whose members change."""

    stream: StreamAssignment
    """The assignment of the stream, or of the consumer's stream."""
    said: Said
    """The asset's own assignment."""
    replicas: int
    """How many members the asset is to have."""


class Movers:
    """The moves that this server leads."""

    def __init__(
        self,
        system: AccountHandle,
        peer: str,
        cluster: Callable[[], str],
        replicas: Replicas,
        ask: Callable[[bytes], None],
        runs: Callable[..., object],
    ) -> None:
        """`peer`: the id of this server; `ask`: proposes an entry to the meta group; `runs`:
        the asset of a name, None: it does not run here."""
        self._peer = peer
        self._cluster = cluster
        self._members = replicas.members
        self._ask = ask
        self.reports = Reports(system, Kind.STEP)
        """Reports of steps towards a wish."""
        self._runs = runs
        self._ready: set[Name] = set()
        """Assets that could be handed over at the last check."""
        self._asked: dict[Name, float] = {}
        self._told: dict[Name, tuple[Said, float]] = {}
        """The last report of an asset, and its time."""
        self._state = MetaState()
        self._moving: dict[Name, Moving] | None = None
        """The assets that move by the assignments; None: the assignments changed since the last
        check."""
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, state: MetaState) -> None:
        """Takes all assignments as they are now."""
        self._state = state
        self._moving = None
        if self._timer is None:
            self._look_later()

    def close(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, seconds: float = PERIOD) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Takes the next step of each move that this server leads."""
        wished = False
        try:
            wished = self._take_steps()
        finally:
            self._look_later(SOON if wished else PERIOD)

    def _take_steps(self) -> bool:
        """Whether there are wishes, so that more steps follow soon."""
        if self._moving is None:
            self._moving = moving(self._state, self._peer)
        moves, ready = self._moving, set[Name]()
        for member in self._members() if moves else ():
            asset = moves.get(member.name)
            if asset is not None:
                with suppress(ValueError):  # the member was closed in between
                    take = self._step if wish_of(asset.said) else self._move
                    take(member, asset, ready)
        self._ready = ready
        for name, asset in moves.items():
            if peers_of(asset.said) == [self._peer] and self._runs(*name) is not None:
                self._step_alone(name, asset)
        now = time.monotonic()
        self._asked = {name: at for name, at in self._asked.items() if now - at < AGAIN}
        self._told = {name: one for name, one in self._told.items() if now - one[1] < TELL_AGAIN}
        return any(wish_of(asset.said) for asset in moves.values())

    # ---- towards a wish

    def _step(self, member: Member, asset: Moving, ready: set[Name]) -> None:
        if not member.leads():
            return
        held_up = set() if member.name.consumer else _holders(asset.stream)
        whole = {self._peer, *map(_id_of, _whole(member))}
        term = member.replica.state().term
        sees = Seen(self._peer, term, member.known(), whole, held_up)
        step = next_step(asset.said, asset.replicas, sees)
        if step.have is not None:
            member.have(step.have)
        if step.hands_over:
            ready.add(member.name)
            best = _best(member, wish_of(asset.said)["peers"], asset.replicas)
            if best is not None and member.name in self._ready:
                member.replica.hand_over(best)
        self._tell_step(member.name, step)

    def _step_alone(self, name: Name, asset: Moving) -> None:
        """A step of an asset of one member, which has no group, and so no term of its own."""
        held_up = set() if name.consumer else _holders(asset.stream)
        own, term = self._peer, int(wish_of(asset.said).get("term") or 1)
        sees = Seen(own, term, [own], {own}, held_up)
        self._tell_step(name, next_step(asset.said, asset.replicas, sees))

    def _tell_step(self, name: Name, step: Step) -> None:
        if step.report is not None and self._told.get(name, ({}, 0))[0] != step.report:
            self._told[name] = step.report, time.monotonic()
            self.reports.say(name, step.report)

    # ---- moves without a wish

    def _move(self, member: Member, asset: Moving, ready: set[Name]) -> None:
        if not member.leads():
            return
        peers, count = peers_of(asset.said), asset.replicas
        old, new = peers[:-count], peers[-count:]
        if self._peer in new:
            if member.name.consumer or not _holds_up(asset.stream, old):
                self._finish(member, asset.said, new)
            return
        best = _best(member, new, count)
        if best is None:
            return
        ready.add(member.name)
        if member.name in self._ready:  # for a whole period, so no new member has fallen behind
            member.replica.hand_over(best)

    def _finish(self, member: Member, said: Said, new: list[str]) -> None:
        member.have(new)
        if {*member.known()} != {*new} or member.name in self._asked:
            return
        self._asked[member.name] = time.monotonic()
        of = {key: value for key, value in group_of(said).items() if key != "scale_up"}
        of |= {"peers": new, "preferred": self._peer, "cluster": self._cluster()}
        op = Op.ASSIGN_CONSUMER if member.name.consumer else Op.UPDATE_STREAM
        self._ask(entry(op, {**said, "group": of}))


def _holds_up(stream: StreamAssignment, old: list[str]) -> bool:
    """Whether some consumer still has a member on one of the stream's old members."""
    return bool({*old} & _holders(stream))


def _holders(stream: StreamAssignment) -> set[str]:
    """The members that hold a consumer of the stream."""
    return {peer for said in stream.consumers.values() for peer in peers_of(said)}


def _id_of(peer: Peer) -> str:
    return peer.id.decode("latin-1")


def _whole(member: Member) -> list[Peer]:
    """The other members that have all, and were heard lately."""
    replica = member.replica
    if isinstance(replica, StreamReplica) and replica.feeds():
        return []
    least = replica.state().commit - LAG
    return [one for one in replica.peers() if 0 <= one.silent < HEARD and one.match >= least]


def _best(member: Member, new: list[str], count: int) -> bytes | None:
    """The new member that is to lead; None until a quorum of the new members has caught up."""
    found = [one for one in _whole(member) if _id_of(one) in new]
    if len(found) < count // 2 + 1:
        return None
    return max(found, key=lambda one: one.match).id


def moving(state: MetaState, peer: str) -> dict[Name, Moving]:
    """The assets of this member whose assignments have a wish, or name more members than are
    configured."""
    found = {}
    for account, streams in state.streams.items():
        for name, stream in streams.items():
            for consumer, said in [("", stream.said), *stream.consumers.items()]:
                peers, wish = peers_of(said), wish_of(said)
                if peer not in peers or (len(peers) == 1 and not wish):
                    continue
                count = replicas_of(stream.said, said)
                if wish or (len(peers) > count and not wish_of(stream.said)):
                    found[Name(account, name, consumer)] = Moving(stream, said, count)
    return found
