"""This server's member of a JetStream cluster's meta group: votes, and applies all assignments.

Lives in the event loop. Loaded only by a clustered server with JetStream.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jsserver import StartError
from jsserver.cext.groups import GroupError, RaftGroups
from jsserver.cluster import follow
from jsserver.cluster.answers import Meta
from jsserver.cluster.groups import RaftMember, Replica, member_of, peer_state, replicas, trouble
from jsserver.cluster.meta import Change, MetaError, MetaState
from jsserver.cluster.placement import Room, Rules
from jsserver.cluster.succession import Succession
from jsserver.disk import groupkeys
from jsserver.disk.directories import make_directory
from jsserver.disk.quarantine import put_aside, settle
from jsserver.services.clusterapi import ClusterApi, ours
from jsserver.services.held_api import HeldApi
from jsserver.services.holdings import Holdings
from jsserver.services.members import Members, Said
from jsserver.services.metalead import MetaLead
from jsserver.services.presence import Presence, elsewhere
from jsserver.services.removal import Removal
from jsserver.services.replicas import HANDING_OVER, Mesh
from jsserver.services.unheld import VOTES, Unheld
from jsserver.text.goformat import failure, quote
from jsserver.text.identity import short_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.assets.limits import ServerSettings
    from jsserver.cext.engine import DataPlane, Item
    from jsserver.cext.groups import EntryTaken, GroupState, RaftGroup, State
    from jsserver.config.options import Options
    from jsserver.process.logs import Logger
    from jsserver.services.held import Held
    from jsserver.services.jetstream import JetStream
    from jsserver.services.needed import Needed

NAME = b"_meta_"
NORMAL, ADD_PEER, REMOVE_PEER, SNAPSHOT = 0, 3, 4, 6
"""Types of entries that change the assignments or the group's members."""
SNAPSHOT_PERIOD = 60.0
"""Seconds between two snapshots of the applied state."""
AGAIN_MIN, AGAIN_MAX = 1.0, 60.0
"""Seconds before the group is opened again after a failure; doubles with each failure."""
SIZE_MIN = 2
"""The expected size of a new group, where the configuration names fewer routes."""


class MetaGroup:
    """This server's member of the meta group; start() and close() frame its life."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        accounts: Accounts,
        directory: str,
        log: Logger,
        *,
        name: str,
        cluster: Callable[[], str],
        routed: Callable[[], Iterable[str]],
        settings: ServerSettings,
        held: Held | None,
        jetstream: JetStream,
        needed: Needed,
    ) -> None:
        """`directory`: the store's; `cluster`: its present name; `routed`: names of the servers
        that routes go to; `settings`: limits for new streams; `held`: runs the assets assigned to
        this server, None where it only votes; `needed`: fetches accounts that are not loaded."""
        self.state = MetaState()
        self.leader = ""
        """The name of the server that leads, its id where nobody knows the name; "": none does."""
        self._leader = ""  # its id
        self._options = options
        self._plane = plane
        self._accounts = accounts
        self._directory = os.path.join(directory, options.system, "_js_", NAME.decode())
        self._log = log
        self._id = short_hash(name)
        self._succession = Succession(self._id)
        self._known = {self._id: name}
        """Names of servers by id, also of servers that are gone."""
        self._cluster = cluster
        self._presence = presence = Presence(routed, name, cluster, wide=options.gateway.port > 0)
        self._there = partial(ours, accounts[options.system], presence.names)
        self._groups: RaftGroups | None = None
        self._group: RaftGroup | None = None
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._settings = settings
        self._needed = needed
        self._members: Members | None = None
        self._lead: MetaLead | None = None
        self._api: ClusterApi | None = None
        self._held = held
        self._jetstream = jetstream
        self._held_api: HeldApi | None = None
        self.holdings = Holdings(
            *(accounts, options.system, jetstream, held),
            id=self._id,
            name=name,
            cluster=cluster,
            names=presence.names,
            state=lambda: self.state,
            meta=self._own_group,
        )
        """What this server holds of the assigned assets."""
        self._led_since = 0
        """When this server became the leader, in ns since the epoch; 0: it is not the leader."""
        self._ever_led = False
        """Whether the group has had a leader since this server started."""
        self._unheld: Unheld | None = None
        self._replaying = True
        """Whether entries from before the start are still being applied: assets follow only
        after."""
        self._has_begun = False
        """Whether assignments were followed once, so that a reopened group finds assets running."""
        self._recovered = 0
        """The log's last index when the group was opened: older requests are not answered again."""
        self._applied = 0
        self._term = 0
        """The term of the last applied entry."""
        self._kept = 0
        """The index of the last snapshot."""
        self._stopped = False
        self.removal = Removal(log, held, jetstream, self._shut)
        self._reopening: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.last_snapshot = 0
        """When the last snapshot was made, in ns since the epoch; 0: none yet."""

    async def start(self) -> None:
        """Opens the group and takes part in it; StartError."""
        self._log.info("Creating JetStream metadata controller")
        self._groups = RaftGroups(
            self._plane,
            self._accounts[self._options.system],
            self._options.jetstream.max_outstanding_catchup,
        )
        self._writer = threading.Thread(target=self._groups.run, name="raft-files", daemon=True)
        self._writer.start()
        try:
            await asyncio.to_thread(self._open)
        except (GroupError, OSError, MetaError) as error:
            why = str(error) if isinstance(error, GroupError | MetaError) else failure(error)
            raise StartError(f"Can't start JetStream: the meta group: {why}") from error
        if self._held is not None:
            mesh = Mesh(
                self._groups,
                Path(self._directory).parent,
                self._options.system,
                self._name_of,
                self._presence.names,
                self._jetstream.keys,
                self._there,
            )
            self._held.replicas.begin(mesh)
        self._unheld = Unheld(
            self._accounts,
            self._options.system,
            self._log,
            peer=self._id,
            held=self._any_there,
            why=(lambda said: VOTES) if self._held is None else follow.why_not,
            asked=self._held is not None,
        )
        self._unheld.replace(self.state)
        self._open_api(self._unheld)
        self._presence.came, self._presence.left = self._take, self.lost  # a name may be known now
        self._take()
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_PERIOD, self._keep_again)

    def _open_api(self, held: Unheld) -> None:
        """Begins to answer requests of the API."""
        options = self._options
        own = Said(
            name=self._known[self._id],
            cluster=self._cluster(),
            tags=options.server_tags,
        )
        self.holdings.begin(held)
        self._members = Members(
            self._accounts,
            options.system,
            own=own,
            room=lambda: Room(*self._jetstream.room(), assets=self.holdings.count()),
            rules=Rules(options.jetstream.unique_tag, options.jetstream.limits.max_ha_assets),
            presence=self._presence,
            peers=lambda: list(self.members()),
            state=lambda: self.state,
            limits=self._jetstream.limits_in_cluster,
            usage=self.holdings.usage,
            ours=self._there,
        )
        api = HeldApi(
            self._accounts,
            options.system,
            self._jetstream,
            self._held,
            held,
            own=self._id,
            known=self._members,
        )
        self._held_api = api
        self._lead = MetaLead(
            self._accounts,
            options.system,
            self,
            self._members,
            self._settings,
            own=self._id,
            info=api.info,
            answering=self.holdings.answering,
        )
        if self._held is not None:
            self._held.propose = self.propose
            self._held.refusals.reports.taken = self._lead.result
            self._held.movers.reports.taken = self._lead.step
        self._api = ClusterApi(
            self._accounts,
            options.system,
            self._lead,
            api,
            self._log,
            own=self._id,
            answering=self.holdings.answering,
            asking=self.holdings.asking,
            succession=self._succession,
            state=lambda: self.state,
            meta=self._meta,
            members=self._members,
            leader=lambda: self._leader,
            needed=self._needed,
        )

    def _open(self) -> None:
        assert self._groups is not None
        settle(self._directory)
        make_directory(self._directory)
        groupkeys.check(self._directory, self._jetstream.keys)
        self.state = MetaState()
        self._applied = self._term = self._kept = 0
        known = os.path.exists(os.path.join(self._directory, "peers.idx"))
        what = "recovering state" if known else "bootstrapping"
        self._log.info(f"JetStream cluster {what}")
        size = max(SIZE_MIN, len(self._options.cluster.routes) + elsewhere(self._options.gateway))
        alone = peer_state(size, [self._id])
        group = self._groups.open(
            self._directory, NAME, self._id.encode(), peers=alone, observer=False
        )
        self._group = group
        group.choose(alone=False)
        groupkeys.renew(self._directory, self._jetstream.keys)
        if group.found.lost:
            self._log.warn(
                f"Part of what the meta group had in {quote(self._directory)} is lost: this server"
                " catches up before its vote counts"
            )
        if group.found.state.index:
            self._replace(group.found.state)
            self._kept = self._applied
            group.applied(self._applied)
        self._recovered = group.state().last
        self._replaying = True

    async def close(self) -> None:
        """Leaves the lead and closes the group, after a last snapshot of the applied state."""
        if self._timer is not None:
            self._timer.cancel()
        await self.removal.done()
        if self._reopening is not None:
            self._closing.set()
            await self._reopening
        if self._lead is not None:
            self._lead.close()
        self.holdings.close()
        self._needed.close()
        if self._held is not None:
            await self._held.close()
        if self._group is not None:
            self._keep()
            if self.hand_over(""):
                await asyncio.sleep(HANDING_OVER)
        if self._groups is not None and self._writer is not None:
            self._groups.end()
            await asyncio.to_thread(self._writer.join)
            group, self._group = self._group, None  # later news of the group is ignored
            if group is not None:
                await asyncio.to_thread(group.close)
            self._groups.close()
            self._groups = None

    # ---- what monitoring reads, in any thread

    def _state(self) -> GroupState | None:
        group = self._group
        try:
            return None if group is None else group.state()
        except ValueError:
            return None  # another thread has just closed the group

    @property
    def trouble(self) -> str:
        """What keeps this member from being healthy, in nats-server's words; "": nothing."""
        now = None if self._stopped or self.removal.removed else self._state()
        return trouble(now, self._held is not None and self._replaying, self.leader)

    @property
    def size(self) -> int:
        """How many members the group expects."""
        now = self._state()
        return 0 if now is None else now.size

    @property
    def pending(self) -> tuple[int, int]:
        """The log's entries behind the last snapshot, and their bytes."""
        now = self._state()
        return (0, 0) if now is None else (now.last + 1 - now.first, now.bytes)

    def _own_group(self) -> RaftMember | None:
        if self._group is None:
            return None
        return member_of(
            self._group,
            self._options.system,
            NAME.decode(),
            self._id,
            self._name_of,
            self._led_since,
            self._ever_led,
        )

    def replicas(self) -> list[Replica]:
        """The other members, if this server leads; no members otherwise."""
        found = self._own_group() if self._led_since else None
        return [] if found is None else replicas(found, {*self._presence.names()}.__contains__)

    # ---- news of the group, and messages to its members

    def take(self, item: Item) -> bool:
        """Hands a message from the inbox to the part that expects it; whether any did."""
        takers = (self._lead, self._members, self._unheld, self._held_api, self._api)
        return self.holdings.usages.take(item) or any(
            taker.take(item) for taker in takers if taker is not None
        )

    def told(self, number: int) -> None:
        """An INBOX_GROUP: a group has news. Ignored until the group is open; start() catches up."""
        if self._unheld is None or self._group is None:
            return
        if number == self._group.number:
            self._take()

    def _take(self) -> None:
        """Applies a batch of committed entries, and calls itself until none are left."""
        group = self._group
        if group is None or self._stopped or self.removal.removed:
            return
        try:
            taken = group.take()
        except GroupError as error:
            self._fail(str(error), damaged=True)
            return
        self._look(group)
        replaced = taken.state is not None
        if taken.state is not None:
            try:
                self._replace(taken.state)
            except MetaError as error:
                self._stop(str(error))
                return
        changes = []
        for entry in taken.entries:
            replaced = replaced or entry.type == SNAPSHOT
            changes += self._apply(entry)
        self._follow(changes, replaced)
        self._begin(group)
        if taken.state is not None or taken.entries:
            group.applied(self._applied)
            asyncio.get_running_loop().call_soon(self._take)
        if taken.state is not None:
            self._keep()

    def _apply(self, entry: EntryTaken) -> list[Change]:
        """Applies an entry; its change, where it changed a single asset."""
        self._applied, self._term = entry.index, entry.term
        try:
            if entry.type == NORMAL:
                change = self.state.apply(entry.data)
                if self._lead is not None:
                    self._lead.applied(entry.data, change)
                return [change.at(entry.index, is_new=entry.index > self._recovered)]
            if entry.type == SNAPSHOT:
                self.state = MetaState.read(entry.data)
            elif entry.type in (ADD_PEER, REMOVE_PEER):
                self._count(entry.data.decode("latin-1"), entry)
        except MetaError as error:
            self._log.error(f"Error applying JetStream cluster entries: {error}")
        return []

    def _count(self, peer: str, entry: EntryTaken) -> None:
        """A server became a member of the group, or is none any more."""
        joins = entry.type == ADD_PEER
        if self._lead is not None:
            (self._lead.joined if joins else self._lead.left)(peer)
        if peer == self._id and not joins and entry.index > self.removal.since:
            self.holdings.elections.removed()
            self.removal.begin()

    def _follow(self, changes: list[Change], replaced: bool) -> None:
        """Brings the assets of this server in line with the state."""
        assert self._unheld is not None
        self._unheld.follow(self.state, changes)
        if replaced:
            self._unheld.replace(self.state)
            if self._lead is not None and self._lead.leads:
                self._lead.begin(self.state)
        if self._held is not None and self._replaying:
            self._held.skip(changes)
        elif self._held is not None:
            self._held.follow(self.state, changes)
            if replaced:
                self._held.replace(self.state)

    def _begin(self, group: RaftGroup) -> None:
        """Follows all assignments once the log, or a leader's shorter one, is applied. A group that
        was reopened waits until it is current: running assets must not go by lost entries."""
        now = group.state()
        short = bool(self.leader) and now.last < self._recovered
        known = short or self._applied >= self._recovered
        if self._has_begun:
            known = known and bool(self.leader) and not now.lost and now.applied >= now.commit
        if self._held is not None and self._replaying and known:
            self._replaying, self._has_begun = False, True
            self._held.replace(self.state)

    def _any_there(self, peers: list[str]) -> bool:
        """Whether this server is connected to one of these members."""
        return bool(peers) and any(short_hash(name) in peers for name in self._presence.names())

    def _replace(self, state: State) -> None:
        self.state = MetaState.read(state.data)
        self._applied, self._term = state.index, state.term

    def _look(self, group: RaftGroup) -> None:
        """Looks for a new leader, and whether this member can go on."""
        now = group.state()
        self.removal.since = max(self._recovered, now.met)
        if self._lead is not None:
            self._lead.look(now, self.state)
        self._leader = now.leader.decode("latin-1")
        leads = bool(self._lead and self._lead.leads)
        self._succession.look(self._leader, leads, time.monotonic())
        if (leader := self._name_of(self._leader)) != self.leader:
            self.leader = leader
            self._ever_led = self._ever_led or bool(leader)
            own = self._own_group() if leader == self._known[self._id] else None
            self._led_since = 0 if own is None else time.time_ns()
            if own is not None:
                self.holdings.elections.domain(own)
            if leader:
                of = self._members.cluster_of(self._leader) if self._members else self._cluster()
                self._log.info(f"JetStream cluster new metadata leader: {leader}/{of}")
            else:
                self._log.warn("JetStream cluster has no metadata leader")
        if now.diverged:
            self._fail("its log has committed what the leader's has not", damaged=True)
        elif now.error:
            why = f"its disk or memory refuses: {os.strerror(now.error)}"
            self._fail(why, damaged=False)
        elif now.role == "stopped":
            if not self._stopped:
                self.holdings.elections.removed()
            self._stop("it was removed from the cluster, or has no memory")

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._log.error(f"This server takes part in the meta group no more: {why}")

    def _fail(self, why: str, *, damaged: bool) -> None:
        """Reopens the group from its directory, in which all is stored that it ever confirmed; from
        an empty one if the directory is damaged."""
        if not self._stopped:
            self._stopped = True
            self._log.error(f"This server takes no part in the meta group for a while: {why}")
            self._reopening = asyncio.create_task(self._begin_again(damaged))

    async def _begin_again(self, damaged: bool) -> None:
        pause = AGAIN_MIN
        while True:
            await asyncio.to_thread(self._shut)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
                return
            pause = min(pause * 2, AGAIN_MAX)
            try:
                if damaged:
                    aside = await asyncio.to_thread(put_aside, self._directory)
                    self._log.warn(f"The meta group's directory is now {quote(aside)}")
                    damaged = False
                await asyncio.to_thread(self._open)
                break
            except (GroupError, OSError, MetaError) as error:
                self._log.error(f"The meta group cannot be opened again: {error}")
        if self._closing.is_set():
            return
        self._stopped = False
        self._follow([], True)
        self._take()

    def _shut(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def _name_of(self, peer: str) -> str:
        if peer and peer not in self._known:
            self._known.update((short_hash(name), name) for name in self._presence.names())
        return self._known.get(peer, peer)

    def told_by_replica(self, item: Item) -> None:
        """An INBOX_REPLICA: a member of an asset's group has news."""
        if self._held is not None:
            self._held.told(item)

    def lost(self, server: str) -> None:
        """Another server was lost. If it led, this member asks for votes without waiting."""
        if self._held is not None:
            self._held.replicas.gone(short_hash(server))
        group = self._group
        if group is not None and not self._stopped:
            with suppress(ValueError):  # another thread has closed the group
                group.gone(short_hash(server).encode())

    # ---- what the leader does

    def _meta(self) -> Meta:
        """Who leads, where this server does not answer as the leader yet."""
        now = time.monotonic()
        if self._leader not in ("", self._id) or self.removal.removed:
            return Meta.LEFT if self._succession.led_lately(now) else Meta.LED
        others = self._members.others() if self._members is not None else set()
        here = self._succession.answers(bool(self._leader), others, now)
        return Meta.LEADERLESS if here else Meta.LED

    def propose(self, entry: bytes) -> bool:
        """Proposes an entry to the group; False: this server is not the leader."""
        group = self._group
        return group is not None and not self._stopped and group.propose(entry)

    def hand_over(self, to: str) -> bool:
        """Hands the lead to a member, with "" to any; False: this server is not the leader."""
        group = self._group
        return group is not None and not self._stopped and group.hand_over(to.encode())

    def remove(self, peer: str) -> bool:
        """Removes a member; False: this server is not the leader, or another change of members is
        under way."""
        group = self._group
        return group is not None and not self._stopped and group.remove_peer(peer.encode())

    def members(self) -> dict[str, str]:
        """The members' names by id; the id itself where the name is unknown."""
        group = self._group
        if group is None or self._stopped:
            return {}
        ids = [peer.id.decode("latin-1") for peer in group.peers()]
        return {peer: self._name_of(peer) for peer in ids}

    # ---- snapshots

    def _keep_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_PERIOD, self._keep_again)
        self._keep()

    def _keep(self) -> None:
        """Writes a snapshot, if entries were applied since the last one."""
        group = self._group
        if group is None or self._applied <= self._kept or self._stopped:
            return
        if group.snapshot(self._term, self._applied, self.state.snapshot()):
            self._kept = self._applied
            self.last_snapshot = time.time_ns()
