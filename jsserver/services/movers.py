"""Moves streams and consumers between servers, step by step, as the leader of their groups.

While an asset moves, its assignment lists its old members first and its new members behind them. A
leader among the old members waits until a quorum of the new members has caught up, and hands over.
A leader among the new members removes the old ones, and asks the meta group for an assignment with
the new members alone. nats-server does the same, so either server may lead at any step.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from jsserver.cext.replicas import StreamReplica
from jsserver.cluster.meta import MetaState, Name, Op, StreamAssignment, group_of, peers_of
from jsserver.cluster.proposals import Said, entry
from jsserver.cluster.regroup import consumer_replicas
from jsserver.services.replicas import HEARD, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PERIOD = 0.5
"""Seconds between two checks."""
AGAIN = 5.0
"""Seconds after which the meta leader is asked again."""
LAG = 256
"""Entries that a new member may lack when the lead is handed to it: they reach it first."""


class Movers:
    """The moves that this server leads."""

    def __init__(
        self,
        peer: str,
        cluster: Callable[[], str],
        members: Callable[[], Iterable[Member]],
        ask: Callable[[bytes], None],
    ) -> None:
        """`peer`: the id of this server; `ask`: proposes an entry to the meta group."""
        self._peer = peer
        self._cluster = cluster
        self._members = members
        self._ask = ask
        self._ready: set[Name] = set()
        """Assets that could be handed over at the last check."""
        self._asked: dict[Name, float] = {}
        self._state = MetaState()
        self._moving: dict[Name, tuple[StreamAssignment, Said, int]] | None = None
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

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def _look(self) -> None:
        """Takes the next step of each move that this server leads."""
        self._look_later()
        if self._moving is None:
            self._moving = moving(self._state, self._peer)
        ready: set[Name] = set()
        for member in self._members() if self._moving else ():
            found = self._moving.get(member.name)
            if found is not None:
                stream, said, count = found
                with suppress(ValueError):  # the member was closed in between
                    self._move(member, stream, said, count, ready)
        self._ready = ready
        now = time.monotonic()
        self._asked = {name: at for name, at in self._asked.items() if now - at < AGAIN}

    def _move(
        self,
        member: Member,
        stream: StreamAssignment,
        said: Said,
        count: int,
        ready: set[Name],
    ) -> None:
        if not member.leads():
            return
        old, new = peers_of(said)[:-count], peers_of(said)[-count:]
        if self._peer in new:
            if member.name.consumer or not _holds_up(stream, old):
                self._finish(member, said, new)
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
    return any({*old} & {*peers_of(said)} for said in stream.consumers.values())


def _best(member: Member, new: list[str], count: int) -> bytes | None:
    """The new member that is to lead; None until a quorum of the new members has caught up."""
    replica = member.replica
    if isinstance(replica, StreamReplica) and replica.feeds():
        return None
    least = replica.state().commit - LAG
    found = [
        one
        for one in replica.peers()
        if one.id.decode("latin-1") in new and 0 <= one.silent < HEARD and one.match >= least
    ]
    if len(found) < count // 2 + 1:
        return None
    return max(found, key=lambda one: one.match).id


def replicas_of(stream: Said, said: Said) -> int:
    """How many members a stream's or its consumer's configuration asks for; `said` is the
    assignment of the asset, `stream` the one of its stream."""
    config = stream["stream"]
    of_stream = int(config.get("num_replicas") or 1)
    if said is stream:
        return of_stream
    wanted = said["consumer"]
    return consumer_replicas(
        int(wanted.get("num_replicas") or 0),
        of_stream,
        durable=wanted.get("durable_name") or "",
        retention=config.get("retention") or "limits",
    )


def moving(state: MetaState, peer: str) -> dict[Name, tuple[StreamAssignment, Said, int]]:
    """The assets of this member whose assignments name more members than their configurations say:
    the stream's assignment, the asset's own, and how many members it is to have."""
    found = {}
    for account, streams in state.streams.items():
        for name, stream in streams.items():
            for consumer, said in [("", stream.said), *stream.consumers.items()]:
                peers = peers_of(said)
                if len(peers) == 1 or peer not in peers:
                    continue
                count = replicas_of(stream.said, said)
                if len(peers) > count:
                    found[Name(account, name, consumer)] = stream, said, count
    return found
