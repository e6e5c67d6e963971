"""This server's part in the Raft group of a stream or a consumer: who leads that, and who answers.

Lives in the event loop, but for what monitoring reads.
"""

from __future__ import annotations

import time
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jsserver.cext.replicas import ConsumerReplica, StreamReplica
from jsserver.cluster.answers import Asset
from jsserver.cluster.desired import members_now
from jsserver.cluster.meta import Name, group_of, peers_of
from jsserver.cluster.succession import Succession
from jsserver.services.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from jsserver.instances.running import Consumer, Stream

Said = dict[str, Any]
GRACE = 10.0
"""Seconds for which a member that was as its group is counts as that still: about as long as it
takes to choose another leader."""
FIRST_TERM = 1
"""The term of a new group's first leader."""


class Duty(Enum):
    """What a server owes to who asked for a change of an asset, once the meta group has agreed."""

    ANSWER = auto()
    """It answers: it leads, and has for long, or there is nobody else."""
    ASK = auto()
    """It leads since shortly: it answers unless another one has."""
    DOUBT = auto()
    """It does not lead, and nobody else may any more: it answers if the asset goes, unless another
    one has."""
    LEAVE = auto()
    """Another one leads, and answers."""


class Owes(NamedTuple):
    """What this server owes, and who else may have answered."""

    duty: Duty
    leader: str = ""
    """The id of who leads the asset; "": nobody does, or the asset has one replica."""
    others: Callable[[], Set[str]] = frozenset
    """The ids of the servers that may have answered, and can be asked."""

    @property
    def leads(self) -> bool:
        """Whether this server leads the asset."""
        return self.duty in (Duty.ANSWER, Duty.ASK)

    @property
    def answers(self) -> bool:
        """Whether it may be this server's to answer, also where nobody will lead any more."""
        return self.duty is not Duty.LEAVE


class Member:
    """This server's part in the group of an asset."""

    def __init__(
        self, name: Name, said: Said, groups: Path, own: str, there: Callable[[], set[str]]
    ) -> None:
        """`groups`: the directory of all groups; `own`: the id of this server; `there`: the ids of
        servers that can be reached, and pass on what they do not answer."""
        self.name = name
        self._own = own
        self._there = there
        self.group = str(group_of(said).get("name", ""))
        self.peers = peers_of(said)
        self.directory = groups / self.group
        self.standing = Standing.MEMBER
        self.replica: StreamReplica | ConsumerReplica
        self.leader = ""
        """The id of who leads, as it was told last."""
        self._succession = Succession(own)
        self.led_since = 0
        """When this server began to lead, in ns since the epoch; 0: it does not."""
        self.ever_led = False
        """Whether anybody has led since the member was opened."""
        self.served = False
        """Of a stream: whether all its consumers were open."""
        self._current_at = -GRACE
        """When it was seen to be as the group is."""

    @property
    def handle(self) -> Any:
        """The stream, or the consumer."""
        return self.replica.handle

    def leads(self) -> bool:
        """Whether it takes publishes, or delivers, and answers: not any more from the moment in
        which it hands the lead over."""
        try:
            return self.replica.leads() and self.looked() == self._own
        except ValueError:
            return False  # it is closed

    def assign(self, said: Said) -> None:
        """The group is to have these members from now on."""
        self.peers = peers_of(said)
        self.have(members_now(said, self.known()))

    def have(self, peers: list[str]) -> None:
        """Likewise, while the assignment says more."""
        self.replica.assign([peer.encode() for peer in peers])

    def known(self) -> list[str]:
        """The ids of the members that the log says."""
        return [peer.id.decode("latin-1") for peer in self.replica.peers()]

    def trouble(self) -> str:
        """Why it is not as the group is, as nats-server says it; "": it is, or was a moment ago: a
        group that chooses another leader, or applies what has just come, does its work."""
        try:
            why = self._behind()
        except ValueError:
            return "group node missing"  # it is closed just now
        now = time.monotonic()
        if not why:
            self._current_at = now
        return why if now - self._current_at > GRACE else ""

    def _behind(self) -> str:
        replica, state = self.replica, self.replica.state()
        if not state.leader or state.error or state.diverged or state.role == "stopped":
            return "group node unhealthy"
        if isinstance(replica, ConsumerReplica):
            return "" if state.applied >= state.commit else "group node unhealthy"
        return "" if replica.caught_up() else "stream catching up"

    def seen(self) -> Asset:
        """What the asset is here."""
        leader, now = self.looked(), time.monotonic()
        if self.leads():
            self._succession.note(self._own)
            return Asset.LEADS if self._is_sure(now) else Asset.BEGAN
        if self._answers(leader, now):
            return Asset.LEADERLESS
        left = self._succession.led_lately(now)
        return Asset.LEFT if left and leader not in ("", self._own) else Asset.HELD

    def _is_sure(self, now: float) -> bool:
        """Whether nothing is left, as this server leads, of who led before."""
        try:
            return self._succession.is_settled(now) or self.replica.state().term <= FIRST_TERM
        except ValueError:
            return False  # it is closed

    def _answers(self, leader: str, now: float) -> bool:
        """Whether this server answers, as nobody leads."""
        if leader and leader != self._own:
            self._succession.note(leader)
            return False
        return self._succession.answers(bool(leader), self.others(), now)

    def others(self) -> set[str]:
        """The ids of the other members that can be reached, and ask before they answer."""
        return self._there() & {*self.peers} - {self._own}

    def was_led_by_others(self) -> bool:
        """Whether a server led last, as far as is known, that does not ask before it answers."""
        return self._succession.last not in {"", self._own, *self.others()}

    def owes(self) -> Owes:
        """What this server owes to who asked for what the meta group has agreed on. The lead counts
        from when it was told: both come in the order in which they came to this server."""
        leader, now = self.looked(), time.monotonic()
        if self.leads() and self._succession.leads:
            duty = Duty.ANSWER if self._is_sure(now) else Duty.ASK
            return Owes(duty, self._own, self.others)
        if leader and leader != self._own:
            left = self._succession.led_lately(now) and leader in self.others()
            return Owes(Duty.DOUBT if left else Duty.LEAVE, leader, self.others)
        return Owes(Duty.DOUBT, others=self.others)

    def looked(self) -> str:
        """The id of who leads, "": nobody does, or this member is closed."""
        try:
            return self.replica.state().leader.decode("latin-1")
        except ValueError:
            return ""

    def look(self) -> bool:
        """Takes who leads as told; whether that is somebody else than before."""
        leads, leader = self.leads(), self.looked()
        changed = leader != self.leader or leads != self._succession.leads
        self.leader = leader
        self.ever_led = self.ever_led or bool(leader)
        self._succession.look(leader, leads, time.monotonic())
        return changed


def owes(asset: Stream | Consumer | None) -> Owes:
    """Where a change of an asset is asked for, which runs here or does not run yet."""
    member = None if asset is None else asset.member
    return member.owes() if isinstance(member, Member) else Owes(Duty.ANSWER)
