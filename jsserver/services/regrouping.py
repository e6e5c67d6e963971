"""Assets that run here while their members become others: the group of one gets smaller or larger,
begins or ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from jsserver.cluster.meta import Change, Name, group_of, peers_of
from jsserver.services.replicas import HEARD, Member, Replicas
from jsserver.services.standing import Standing

if TYPE_CHECKING:
    from jsserver.cluster.proposals import Said
    from jsserver.instances.account import Account
    from jsserver.instances.running import Consumer, Stream

TAKING_OVER = BOWING_OUT = 3.0
"""Seconds at most that a group which gets smaller has for it: fewer than an election takes, which
who goes would begin."""
REMOVING = 0.3
"""Seconds of these for the removal of others, which may be gone."""
PAUSE = 0.02
"""Seconds between two looks meanwhile."""


class Regrouping:
    """Those of a server; `peer`: its id."""

    def __init__(self, replicas: Replicas, peer: str) -> None:
        self._replicas = replicas
        self._peer = peer

    def begins(self, change: Change | None, said: Said | None) -> Standing:
        """How this server's member begins where it is new here."""
        before = None if change is None else change.before
        if before is None or said is None or before.get("created") != said.get("created"):
            return Standing.MEMBER
        if self._peer in peers_of(before):
            return Standing.MEMBER
        alike = group_of(before).get("name") == group_of(said).get("name")
        return Standing.LOG if alike and len(peers_of(before)) > 1 else Standing.STATE

    async def hand_on(self, change: Change | None, running: Stream | Consumer | None) -> None:
        """Before a group gets smaller: it goes on with those of its members that stay."""
        member = None if running is None else running.member
        if not isinstance(member, Member) or change is None or change.removes:
            return
        after = peers_of(change.said or {})
        with suppress(ValueError):  # it is closed meanwhile
            if self._peer not in after:
                await self._bow_out(member, after)
            elif len(after) == 1:
                await self._take_over(member)

    async def stream(self, account: Account, running: Stream) -> None:
        """A stream that runs gets a group, has one no more, or has one with other members; its lock
        is held. OSError, StoreError."""
        before, asset = running.member, Name(account.name, running.name)
        await account.shared.run(self._replicas.regroup_stream, asset, running)
        takes_in = running.config.mirror is not None or running.config.sources
        if running.member is before or not takes_in:
            return
        await account.intakes.remove(running.name)
        if running.member is None:
            await account.intakes.follow_many(running)

    async def consumer(self, account: Account, asset: Name, running: Consumer) -> None:
        """Likewise a consumer."""
        await account.shared.run(self._replicas.regroup_consumer, asset, running)

    async def _take_over(self, member: Member) -> None:
        """The others go, and this one is to have all that the group agreed on: it leads, and
        removes them, if that is possible soon."""
        member.have([self._peer])
        led = 0.0
        for _ in range(round(TAKING_OVER / PAUSE)):
            led = led + PAUSE if member.leads() else 0.0
            if led and (member.known() == [self._peer] or led > REMOVING):
                return
            await asyncio.sleep(PAUSE)

    async def _bow_out(self, member: Member, peers: list[str]) -> None:
        """This server's member is none any more: it hands over to one of these, and waits for a
        while until the others have removed it, as a part of a quorum may be it."""
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
