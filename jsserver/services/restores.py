"""Restores streams from archives in a cluster: the member that is to lead a stream receives the
archive.

Lives in the event loop. The other members make the stream like any new one, and catch up from the
first member. The meta group is asked to assign the archive's consumers, each with its progress.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from jsserver.api.responses import TYPE_PREFIX, Response, RestoreResponse
from jsserver.api.transfers import Incoming
from jsserver.cext.replicas import StreamReplica
from jsserver.cluster import proposals
from jsserver.cluster.meta import Name, Op, account_of, group_of, peers_of
from jsserver.cluster.regroup import consumer_replicas
from jsserver.instances import recovery
from jsserver.process.tasks import Tasks
from jsserver.services.answering import client_of
from jsserver.services.membership import Member
from jsserver.text.nuid import token
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jsserver.api.advisories import Advisories
    from jsserver.api.dispatch import Dispatcher
    from jsserver.api.transfers import Transfers
    from jsserver.assets.assigned import ConsumerAssignment
    from jsserver.assets.assigned import StreamAssignment as Wanted
    from jsserver.cext.groups import RaftGroup
    from jsserver.cluster.meta import Change, MetaState
    from jsserver.instances.account import Account
    from jsserver.instances.progress import Progress
    from jsserver.instances.running import Stream
    from jsserver.instances.shared import Shared
    from jsserver.services.refusals import Refusals
    from jsserver.services.replicas import Replicas
    from jsserver.wire.errors import ErrorBody

LOOK, LOOKS = 0.02, 50
"""LOOK: seconds between two checks whether a group has agreed. LOOKS: checks before the meta group
is asked again to assign a consumer."""
AGREEING = 15.0
"""Seconds at most for a stream's group to agree on the restored state."""
LEADER, NORMAL = "leader", 0
"""The role of a leader in a group's state, and the type of entries that change a stream."""
HEARD = 0.1
"""Seconds before the answer names the subject for the archive: by then all servers know that this
server subscribes to it."""
Said = dict[str, Any]


def is_restored(change: Change | None) -> bool:
    """Whether a change assigns a stream whose archive the requester is about to send."""
    said = None if change is None else change.said
    return said is not None and bool(change and change.reply) and "restore_state" in said


class Restores:
    """The restores whose archives this server receives."""

    def __init__(
        self,
        peer: str,
        dispatcher: Dispatcher,
        replicas: Replicas,
        refusals: Refusals,
        *,
        state: Callable[[], MetaState | None],
        ask: Callable[[bytes], None],
        answer: Callable[[Change, Response], None],
        done: Callable[[Account, Stream], None],
    ) -> None:
        """`peer`: the id of this server; `state`: the meta group's; `ask`: proposes an entry to the
        meta group; `answer`: answers the request behind a change; `done`: is called with each
        stream that was restored with all its consumers."""
        self._peer = peer
        self._dispatcher = dispatcher
        self._replicas = replicas
        self._refusals = refusals
        self._state = state
        self._ask = ask
        self._answer = answer
        self._done = done
        self._under_way: dict[Name, Restore] = {}
        self._assigning: dict[Name, frozenset[str]] = {}
        """By restored stream, its consumers until all of them are assigned."""
        self._tasks = Tasks()
        self._closed = False

    async def close(self) -> None:
        """Stops all restores, and returns when their groups are closed."""
        self._closed = True
        for asset in [*self._under_way]:
            self.end(asset)
        await self._tasks.finished()

    async def begin(self, account: Account, wanted: Wanted, change: Change | None) -> bool:
        """Begins to receive the archive of a new stream, if this server is to do so; whether it
        is. The answer names the subject for the archive. ApiError: too many restores run, or the
        stream cannot be restored; OSError."""
        if change is None or change.said is None or not is_restored(change):
            return False
        peers, group = peers_of(change.said), group_of(change.said)
        if self._peer != (group.get("preferred") if len(peers) > 1 else peers[0]):
            return False
        of, asset = self._dispatcher, Name(account.name, wanted.config.name)
        restore = Restore(self, of.shared, of.advisories, account, wanted, change.said)
        if len(peers) > 1:
            if wanted.config.storage == "memory":
                raise errcodes.CLUSTER_UN_SUPPORT_FEATURE()
            restore.group = await of.shared.run(self._replicas.hold, asset)
        try:
            of.transfers.begin(restore)
        except BaseException:
            await self._let_go(asset, restore)
            raise
        self._under_way[asset] = restore
        self._tasks.begin(restore.whole(of.transfers))
        self._tasks.begin(self._lead(restore))
        kind = f"{TYPE_PREFIX}stream_restore_response"
        where = RestoreResponse(type=kind, deliver_subject=restore.subject)
        asyncio.get_running_loop().call_later(HEARD, self._answer, change, where)
        return True

    def has(self, asset: Name) -> bool:
        """Whether a stream of this name is being restored here."""
        return asset in self._under_way

    def is_under_way(self, asset: Name, created: int) -> bool:
        """Whether the stream of this name and creation time is being restored here. A restore of a
        stream of the same name with another creation time ends."""
        restore = self._under_way.get(asset)
        if restore is None:
            return False
        if restore.wanted.created != created:
            self.end(asset)
        return restore.wanted.created == created

    def awaited(self, asset: Name) -> frozenset[str]:
        """The consumers of a restored stream that are not assigned yet."""
        restore = self._under_way.get(asset)
        found = self._assigning.get(asset, frozenset())
        return found if restore is None else frozenset(restore.consumers)

    def end(self, asset: Name) -> None:
        """Ends the restore of a stream that was deleted."""
        restore = self._under_way.pop(asset, None)
        if restore is not None:
            restore.stop("the stream was deleted")

    def is_wanted(self, restore: Restore) -> bool:
        """Whether the restore has not been ended."""
        return self._under_way.get(Name(restore.account.name, restore.stream)) is restore

    def over(self, restore: Restore, error: ErrorBody | None) -> None:
        """Takes the outcome of a restore; None: it succeeded."""
        asset = Name(restore.account.name, restore.stream)
        wanted = self.is_wanted(restore)
        if wanted:
            del self._under_way[asset]
        if error is not None:
            self._tasks.begin(self._let_go(asset, restore))
        if error is None and wanted:
            self._assigning[asset] = frozenset(restore.consumers)
            self._tasks.begin(self._assign(asset, restore))
        elif wanted:
            answer = Response(type=f"{TYPE_PREFIX}stream_restore_response", error=error)
            self._refusals.say(asset, restore_response=answer)

    # ---- the groups of streams that have several replicas

    async def _lead(self, restore: Restore) -> None:
        """Stops the restore if another server leads the group before the archive is complete."""
        while restore.group is not None and not self._closed:
            try:
                _is_led(restore.group)
            except ApiError:
                restore.stop("another server has led its group")
                return
            await asyncio.sleep(LOOK)

    async def begin_group(self, asset: Name, restore: Restore) -> None:
        """Hands the group from the restore to the stream, once the archive is complete. ApiError
        if another server has led the group: it may have stored messages."""
        run, group = self._dispatcher.shared.run, restore.group
        if group is None:
            return
        end = time.monotonic() + AGREEING
        while not _is_led(group):  # a short archive may be here before the group has voted
            if time.monotonic() > end or self._closed:
                raise errcodes.CLUSTER_NOT_LEADER()
            await asyncio.sleep(LOOK)
        await run(self._replicas.begin_restored, asset)
        restore.group = None
        await run(group.close)

    async def agree(self, asset: Name, stream: Stream) -> None:
        """Waits until the group has agreed on the restored state; ApiError."""
        if not isinstance(stream.member, Member):
            return
        replica = stream.member.replica
        assert isinstance(replica, StreamReplica)
        replica.agree()
        end = time.monotonic() + AGREEING
        while not replica.agreed():
            if time.monotonic() > end or self._closed:
                raise errcodes.CLUSTER_NOT_LEADER()
            await asyncio.sleep(LOOK)
        await self._dispatcher.shared.run(self._replicas.end_restored, asset)

    async def _let_go(self, asset: Name, restore: Restore) -> None:
        """Removes the group and the stream of a restore that failed."""
        run, account = self._dispatcher.shared.run, restore.account
        group, restore.group = restore.group, None
        if group is not None:
            await run(group.close)
            await run(self._replicas.forget, asset)
        async with account.lock(asset.stream):
            stream = account.streams.get(asset.stream)
            if stream is not None and stream.created == restore.wanted.created:
                await account.assign_stream(asset.stream, None)

    # ---- consumers

    async def _assign(self, asset: Name, restore: Restore) -> None:
        """Asks the meta group for the stream's consumers until all are assigned."""
        left = dict(restore.consumers)
        while left and not self._closed:
            state = self._state()
            of_account = {} if state is None else state.streams.get(asset.account, {})
            stream = of_account.get(asset.stream)
            if stream is None:
                break  # it was deleted
            left = {name: entry for name, entry in left.items() if name not in stream.consumers}
            for entry in left.values():
                self._ask(entry)
            for _ in range(LOOKS):
                if left.keys() - stream.consumers.keys() and not self._closed:
                    await asyncio.sleep(LOOK)
        self._assigning.pop(asset, None)
        running = restore.account.streams.get(asset.stream)
        if running is not None and not self._closed:
            self._done(restore.account, running)


def _is_led(group: RaftGroup) -> bool:
    """Whether this server leads the group; ApiError if the group has agreed on a message."""
    taken = group.take()
    if any(entry.type == NORMAL for entry in taken.entries):
        raise errcodes.CLUSTER_NOT_LEADER()
    if taken.entries:
        group.applied(taken.entries[-1].index)
    return group.state().role == LEADER


class Restore(Incoming):
    """The restore of one stream."""

    def __init__(
        self,
        owner: Restores,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        wanted: Wanted,
        said: Said,
    ) -> None:
        """`said`: the stream's assignment."""
        super().__init__(shared, advisories, account, wanted.config, client_of(said.get("client")))
        self._owner = owner
        self.wanted = wanted
        self._said = said
        self.group: RaftGroup | None = None
        """The group of a replicated stream until the archive is complete; None otherwise."""
        self.consumers: dict[str, bytes] = {}
        """Entries that assign the archive's consumers, by consumer."""

    async def whole(self, transfers: Transfers) -> None:
        """Runs the restore to its end."""
        await transfers.start(self)

    async def place(self, staged: Path, meta: bytes) -> Stream:
        """Makes the stream from the unpacked archive `staged`, as it is assigned."""
        account, name = self.account, self.stream
        asset = Name(account.name, name)
        async with account.lock(name):
            if not self._owner.is_wanted(self):
                raise errcodes.STREAM_NOT_FOUND()
            await self._owner.begin_group(asset, self)
            found = await recovery.restore_assigned(
                account, self.wanted, staged, meta, self._is_apart
            )
            self.consumers = {one.name: self._entry(one, state) for one, state in found}
            stream = account.streams[name]
        await self._owner.agree(asset, stream)
        return stream

    def over(self, error: ErrorBody | None) -> None:
        """Reports the outcome; None: success."""
        self._owner.over(self, error)

    def _replicas(self, consumer: ConsumerAssignment) -> int:
        return consumer_replicas(
            consumer.config.num_replicas,
            len(peers_of(self._said)),
            durable=consumer.config.durable_name,
            retention=self.wanted.config.retention,
        )

    def _is_apart(self, consumer: ConsumerAssignment) -> bool:
        """Whether a consumer is made only when it is assigned, because it has several members."""
        return self._replicas(consumer) > 1

    def _entry(self, consumer: ConsumerAssignment, state: Progress | None) -> bytes:
        group, client = group_of(self._said), self._said.get("client")
        own = str(group.get("preferred", ""))
        peers = peers_of(self._said)
        first = [own, *(peer for peer in peers if peer != own)] if own in peers else peers
        in_memory = consumer.config.mem_storage or self.wanted.config.storage == "memory"
        storage = "memory" if in_memory else "file"
        count, cluster = self._replicas(consumer), str(group.get("cluster", ""))
        of = proposals.group("C", first[:count], storage, cluster, token(8))
        name = consumer.name
        said = proposals.consumer(name, self.stream, consumer.stored, consumer.created, of)
        if state is not None:
            said["state"] = msgspec.to_builtins(state, str_keys=True)
        account = {"acc": account_of(self._said)}
        return proposals.entry(Op.ASSIGN_CONSUMER, {"client": client or account, **said})
