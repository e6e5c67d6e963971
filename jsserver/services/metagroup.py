"""This server's part in the meta group of a JetStream cluster: it votes, and knows all assignments.

Lives in the event loop. Loaded only by a server of a cluster with JetStream.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from jsserver import StartError
from jsserver.cext.groups import GroupError, RaftGroups
from jsserver.cluster.meta import Change, MetaError, MetaState
from jsserver.disk.directories import make_directory
from jsserver.disk.quarantine import put_aside, settle
from jsserver.services.unheld import Unheld
from jsserver.text.goformat import failure, quote
from jsserver.text.identity import short_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.cext.engine import DataPlane, Item
    from jsserver.cext.groups import EntryTaken, GroupState, RaftGroup, State
    from jsserver.config.options import Options
    from jsserver.process.logs import Logger

NAME = b"_meta_"
NORMAL, SNAPSHOT = 0, 6
"""Types of entries that say something of assignments."""
SNAPSHOT_PERIOD = 60.0
"""Seconds after which what was applied is kept as a snapshot."""
WATCH_PERIOD = 2.0
"""Seconds after which it is looked at whether somebody leads."""
PATIENCE = 20.0
"""Seconds without a leader after which this member asks for votes: several elections."""
CURRENT = 3 * 10**9
"""Nanoseconds within which a member was heard that may be handed the lead."""
AGAIN_MIN, AGAIN_MAX = 1.0, 60.0
"""Seconds before the directory is opened again after a failure: twice as many each time."""
SIZE_MIN = 2
"""Members that a cluster has at least, before anybody has said how many there are."""


class MetaGroup:
    """The member that this server is; start() and close() frame its life."""

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
        names: Callable[[], Iterable[str]],
    ) -> None:
        """`directory`: of the store; `cluster`: what the cluster is called now; `names`: the names
        of the servers that this one is connected to."""
        self.state = MetaState()
        self.leader = ""
        """The name of the server that leads, its id where nobody knows the name; "": none does."""
        self._options = options
        self._plane = plane
        self._accounts = accounts
        self._directory = os.path.join(directory, options.system, "_js_", NAME.decode())
        self._log = log
        self._id = short_hash(name)
        self._known = {self._id: name}
        """Names of servers by their ids, of those that are gone, too."""
        self._cluster = cluster
        self._names = names
        self._groups: RaftGroups | None = None
        self._group: RaftGroup | None = None
        self._writer: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._led = 0.0
        """When it was seen last that somebody leads."""
        self._stands_in = False
        """Whether it asks for votes, or leads, until another member can."""
        self._unheld: Unheld | None = None
        self._recovered = 0
        """What the log had when it was opened: who asked for that is answered long since."""
        self._applied = 0
        self._term = 0
        """Of the entry that was applied last."""
        self._kept = 0
        """The index of the last snapshot."""
        self._stopped = False
        self._reopening: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.last_snapshot = 0
        """When it was made, in ns since the epoch; 0: not yet."""

    async def start(self) -> None:
        """Opens the group, and takes part from then on; StartError."""
        self._log.info("Creating JetStream metadata controller")
        self._groups = RaftGroups(self._plane, self._accounts[self._options.system])
        self._writer = threading.Thread(target=self._groups.run, name="raft-files", daemon=True)
        self._writer.start()
        try:
            await asyncio.to_thread(self._open)
        except (GroupError, OSError, MetaError) as error:
            why = str(error) if isinstance(error, GroupError | MetaError) else failure(error)
            raise StartError(f"Can't start JetStream: the meta group: {why}") from error
        self._unheld = Unheld(
            self._accounts, self._options.system, self._log, peer=self._id, held=self._any_there
        )
        self._unheld.replace(self.state)
        self._take()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SNAPSHOT_PERIOD, self._keep_again)
        self._led = loop.time()
        self._watch()

    def _open(self) -> None:
        assert self._groups is not None
        settle(self._directory)
        make_directory(self._directory)
        self.state = MetaState()
        self._applied = self._term = self._kept = 0
        known = os.path.exists(os.path.join(self._directory, "peers.idx"))
        what = "recovering state" if known else "bootstrapping"
        self._log.info(f"JetStream cluster {what}")
        size = max(SIZE_MIN, len(self._options.cluster.routes))
        alone = struct.pack("<II8sH", size, 1, self._id.encode(), 0)
        group = self._groups.open(
            self._directory, NAME, self._id.encode(), peers=alone, observer=True
        )
        self._group = group
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

    async def close(self) -> None:
        """Takes part no more. What was applied is kept as a snapshot."""
        for timer in (self._timer, self._watch_timer):
            if timer is not None:
                timer.cancel()
        if self._reopening is not None:
            self._closing.set()
            await self._reopening
        if self._group is not None:
            self._keep()
        if self._groups is not None and self._writer is not None:
            self._groups.end()
            await asyncio.to_thread(self._writer.join)
            if self._group is not None:
                await asyncio.to_thread(self._group.close)
                self._group = None
            self._groups.close()
            self._groups = None

    # ---- what monitoring reads, in any thread

    def _state(self) -> GroupState | None:
        group = self._group
        try:
            return None if group is None else group.state()
        except ValueError:
            return None  # it is closed just now

    @property
    def trouble(self) -> str:
        """Why this is no good member at the moment, as nats-server says it; "": it is one."""
        now = self._state()
        if now is None or self._stopped:
            return "JetStream meta layer is not running"
        if not self.leader:
            return "JetStream has not established contact with a meta leader"
        if now.lost or now.applied < now.commit:
            return "JetStream is not current with the meta leader"
        return ""

    @property
    def size(self) -> int:
        """How many members there are to be."""
        now = self._state()
        return 0 if now is None else now.size

    @property
    def pending(self) -> tuple[int, int]:
        """Entries of the log that no snapshot stands for, and bytes of these."""
        now = self._state()
        return (0, 0) if now is None else (now.last + 1 - now.first, now.bytes)

    # ---- what the group tells, and what is asked of its members

    def take(self, item: Item) -> bool:
        """Whether a request out of the inbox is for this."""
        return self._unheld is not None and self._unheld.take(item)

    def told(self, number: int) -> None:
        """An INBOX_GROUP. What comes before the group is open is taken at the end of start()."""
        if self._unheld is None or self._group is None:
            return
        if number == self._group.number:
            self._take()

    def _take(self) -> None:
        """Applies what there is, a part at a time."""
        group = self._group
        if group is None or self._stopped:
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
        if taken.state is not None or taken.entries:
            group.applied(self._applied)
            asyncio.get_running_loop().call_soon(self._take)
        if taken.state is not None:
            self._keep()

    def _apply(self, entry: EntryTaken) -> list[Change]:
        """What the entry was about, where it is about one thing."""
        self._applied, self._term = entry.index, entry.term
        try:
            if entry.type == NORMAL:
                change = self.state.apply(entry.data)
                return [change if entry.index > self._recovered else change._replace(reply="")]
            if entry.type == SNAPSHOT:
                self.state = MetaState.read(entry.data)
        except MetaError as error:
            self._log.error(f"Error applying JetStream cluster entries: {error}")
        return []

    def _follow(self, changes: list[Change], replaced: bool) -> None:
        """What is assigned to this server is as the state says."""
        assert self._unheld is not None
        self._unheld.follow(self.state, changes)
        if replaced:
            self._unheld.replace(self.state)

    def _any_there(self, peers: list[str]) -> bool:
        """Whether one of these members can be reached from here."""
        return bool(peers) and any(short_hash(name) in peers for name in self._names())

    def _replace(self, state: State) -> None:
        self.state = MetaState.read(state.data)
        self._applied, self._term = state.index, state.term

    def _look(self, group: RaftGroup) -> None:
        """Who leads, and whether this member still takes part."""
        now = group.state()
        leader = self._name_of(now.leader.decode("latin-1"))
        if leader != self.leader:
            self.leader = leader
            if leader:
                of = self._cluster()
                self._log.info(f"JetStream cluster new metadata leader: {leader}/{of}")
            else:
                self._log.warn("JetStream cluster has no metadata leader")
        if now.diverged:
            self._fail("its log has committed what the leader's has not", damaged=True)
        elif now.error:
            why = f"its disk or memory refuses: {os.strerror(now.error)}"
            self._fail(why, damaged=False)
        elif now.role == "stopped":
            self._stop("it was removed from the cluster, or has no memory")

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._log.error(f"This server takes part in the meta group no more: {why}")

    def _fail(self, why: str, *, damaged: bool) -> None:
        """The group begins again from its directory, which holds all that it ever said it has; from
        nothing where the directory is damaged."""
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
        self._stopped = self._stands_in = False
        self._led = asyncio.get_running_loop().time()
        self._follow([], True)
        self._take()

    def _shut(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()

    def _name_of(self, peer: str) -> str:
        if peer and peer not in self._known:
            self._known.update((short_hash(name), name) for name in self._names())
        return self._known.get(peer, peer)

    # ---- who leads

    def _watch(self) -> None:
        """This member asks for no votes, as it cannot do what a leader has to. But it may have what
        no other one has, so that none of them is elected. Then it leads until one has it, too."""
        loop = asyncio.get_running_loop()
        self._watch_timer = loop.call_later(WATCH_PERIOD, self._watch)
        group = self._group
        if group is None or self._stopped:
            return
        now, peers = group.state(), group.peers()
        own = self._id.encode()
        others = [peer for peer in peers if peer.id != own and peer.silent >= 0]
        if now.role == "leader":
            if any(peer.match >= now.last and peer.silent < CURRENT for peer in others):
                self._stand_in(group, False)
        elif any(peer.leads and peer.silent < PATIENCE * 1e9 for peer in others):
            self._led = loop.time()
            if self._stands_in:
                self._stand_in(group, False)
        elif not self._stands_in and now.last and loop.time() - self._led >= PATIENCE:
            self._stand_in(group, True)

    def _stand_in(self, group: RaftGroup, does: bool) -> None:
        self._stands_in = does
        self._led = asyncio.get_running_loop().time()
        group.observe(not does)
        if does:
            self._log.warn(
                "JetStream cluster has had no metadata leader for a while: this server asks for"
                " votes, to hand over to a member that can lead"
            )

    # ---- snapshots

    def _keep_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_PERIOD, self._keep_again)
        self._keep()

    def _keep(self) -> None:
        """Has what is applied written as a snapshot, where there is more than in the last one."""
        group = self._group
        if group is None or self._applied <= self._kept or self._stopped:
            return
        if group.snapshot(self._term, self._applied, self.state.snapshot()):
            self._kept = self._applied
            self.last_snapshot = time.time_ns()
