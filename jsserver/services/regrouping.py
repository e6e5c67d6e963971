"""Changes the members of groups whose streams and consumers run here: a group begins, ends, gains
members or loses some."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from jsserver.cluster.meta import Change, Name, group_of, peers_of
from jsserver.services.membership import Member
from jsserver.services.replicas import HEARD, Replicas
from jsserver.services.standing import Standing

if TYPE_CHECKING:
    from jsserver.cluster.proposals import Said
    from jsserver.instances.account import Account
    from jsserver.instances.running import Consumer, Stream

TAKING_OVER = BOWING_OUT = 3.0
"""Seconds at most for the handover in a group that loses members. Shorter than the election
timeout: a member that is leaving would call an election then."""
REMOVING = 0.3
"""Seconds of TAKING_OVER for removing the other members, which may not answer any more."""
PAUSE = 0.02
"""Seconds between two checks during a handover."""


class Regrouping:
    """The changes of one server; `peer`: the id of the server."""

    def __init__(self, replicas: Replicas, peer: str) -> None:
        self._replicas = replicas
        self._peer = peer

    def begins(self, change: Change | None, said: Said | None) -> Standing:
        """The standing with which this server joins a group that the change assigns to it."""
        before = None if change is None else change.before
        if before is None or said is None or before.get("created") != said.get("created"):
            return Standing.MEMBER
        if self._peer in peers_of(before):
            return Standing.MEMBER
        alike = group_of(before).get("name") == group_of(said).get("name")
        return Standing.LOG if alike and len(peers_of(before)) > 1 else Standing.STATE

    async def hand_on(self, change: Change | None, running: Stream | Consumer | None) -> None:
        """Hands the lead of a group that loses members to one of the members that stay."""
        member = None if running is None else running.member
        if not isinstance(member, Member) or change is None or change.removes:
            return
        after = peers_of(change.said or {})
        with suppress(ValueError):  # the member was closed in between
            if self._peer not in after:
                await self._bow_out(member, after)
            elif len(after) == 1:
                await self._take_over(member)

    async def stream(self, account: Account, running: Stream) -> None:
        """Gives a running stream the group that is assigned to it now, which may be none or have
        other members; the caller holds the stream's lock. OSError, StoreError."""
        before, asset = running.member, Name(account.name, running.name)
        await account.shared.run(self._replicas.regroup_stream, asset, running)
        takes_in = running.config.mirror is not None or running.config.sources
        if running.member is before or not takes_in:
            return
        await account.intakes.end_many(running.name, removed=False)
        if running.member is None:
            await account.intakes.follow_many(running)

    async def consumer(self, account: Account, asset: Name, running: Consumer) -> None:
        """Gives a running consumer the group that is assigned to it now. OSError, StoreError."""
        await account.shared.run(self._replicas.regroup_consumer, asset, running)

    async def _take_over(self, member: Member) -> None:
        """This member stays alone, so it has to hold everything that the group agreed on: it waits
        until it leads and has removed the other members, or until the time is up."""
        member.have([self._peer])
        led = 0.0
        for _ in range(round(TAKING_OVER / PAUSE)):
            led = led + PAUSE if member.leads() else 0.0
            if led and (member.known() == [self._peer] or led > REMOVING):
                return
            await asyncio.sleep(PAUSE)

    async def _bow_out(self, member: Member, peers: list[str]) -> None:
        """This member leaves: it hands the lead to one of the peers that stay, and waits until they
        have removed it or the time is up, because the group's quorum may still need its vote."""
        member.have(peers)
        for _ in range(round(BOWING_OUT / PAUSE)):
            if member.leads():
                found = [one for one in member.replica.peers() if one.id.decode() in peers]
                heard = [one for one in found if 0 <= one.silent < HEARD]
                if heard:
                    member.replica.hand_over(max(heard, key=lambda one: one.match).id)
            elif self._peer not in member.known():
                return
            await asyncio.sleep(PAUSE)
