"""Members of the Raft groups of replicated streams and consumers: opens and closes them with their
assets, and follows their leaders."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from jsserver.cext.replicas import (
    ConsumerReplica,
    StreamReplica,
    join_consumer_replica,
    open_consumer_replica,
    open_stream_replica,
)
from jsserver.cluster.groups import RaftMember, all_assigned, member_of, peer_state
from jsserver.cluster.meta import Name, created_at, group_of, peers_of
from jsserver.disk import groupkeys
from jsserver.disk.directories import are_beside, make_directory
from jsserver.instances import metafiles
from jsserver.instances.progress import state_of
from jsserver.services import standing
from jsserver.services.membership import Member, Said
from jsserver.services.standing import Standing
from jsserver.text.goformat import parse_rfc3339, rfc3339_nano
from jsserver.wire.types import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment
    from jsserver.cext.consumer import StreamHandle
    from jsserver.cext.groups import RaftGroup, RaftGroups
    from jsserver.disk.keys import Keys
    from jsserver.instances.rounds import Work
    from jsserver.instances.running import Consumer, Stream

GROUP_FOLDERS = ("msgs", "snapshots")
"""The folders in every group's directory."""
RESTORED = "restored"
"""A file in a group's directory: the stream was restored, and the group has not yet agreed on the
restored state."""
HANDING_OVER = 0.05
"""Seconds that a leader gets to hand over before it stops."""
HEARD = 3 * 10**9
"""Nanoseconds: only a member that was heard within this time may be handed the lead."""


class Mesh(NamedTuple):
    """What members need from the server."""

    groups: RaftGroups
    directory: Path
    """The directory of all groups; each group has a directory in it."""
    system_account: str
    name_of: Callable[[str], str]
    """A server's name by its id."""
    names: Callable[[], Iterable[str]]
    """Names of the servers that this one is connected to."""
    keys: Keys | None
    """Of an encrypted store; None: it is in clear."""
    there: Callable[[], set[str]]
    """The ids of those of these servers that pass on what they do not answer."""


class Replicas:
    """The members of groups on this server."""

    def __init__(self, peer: str, cluster: Callable[[], str]) -> None:
        """`peer`: this server's id."""
        self._peer = peer
        self._cluster = cluster
        self._mesh: Mesh | None = None
        self._said: dict[Name, Said] = {}
        self._begins: dict[Name, Standing] = {}
        """The standing with which a new member begins."""
        self._members: dict[int, Member] = {}
        """By the number of the group."""
        self._begun = 0
        """Since when groups may be opened, in ns since the epoch."""
        self._rescued: set[str] = set()
        """The names of groups that a rescue has left with one member."""
        self.elected: Callable[[Name, RaftMember], None] = lambda name, member: None
        """Is called when this server becomes the leader of a group."""

    def begin(self, mesh: Mesh) -> None:
        """Allows groups to be opened."""
        self._mesh = mesh
        self._begun = time.time_ns()
        self._rescued = standing.rescued(mesh.directory)

    def of(self, account: str) -> AccountReplicas:
        """The members of an account's assets."""
        return AccountReplicas(self, account)

    def say(self, name: Name, said: Said, begins: Standing = Standing.MEMBER) -> None:
        """Notes an asset's assignment before the asset is made or its member changes. `begins`: the
        standing of a new member."""
        self._said[name] = said
        self._begins[name] = begins

    def said(self, name: Name) -> Said | None:
        """The asset's assignment, if it is replicated; None otherwise."""
        found = self._said.get(name)
        return found if found is not None and self._has_group(found) else None

    def _has_group(self, said: Said) -> bool:
        return is_replicated(said) or group_of(said).get("name") in self._rescued

    def is_rescued(self, member: Member) -> bool:
        """Whether the member leads a group that a rescue has left with it alone: the whole log is
        applied then, and the group can end."""
        return member.group in self._rescued and member.leads()

    def others(self, said: Said) -> set[str]:
        """The ids of the other servers of an assignment that can be reached, and ask before they
        answer."""
        there = set() if self._mesh is None else self._mesh.there()
        return there & {*peers_of(said)} - {self._peer}

    def members(self) -> list[Member]:
        """All members."""
        return list(self._members.values())

    def member(self, number: int) -> Member | None:
        """The member whose group has this number; None: there is none."""
        return self._members.get(number)

    def directory(self, name: Name) -> Path | None:
        """The directory of an asset's group; None: the asset is not replicated, or is to be
        later."""
        said = self.said(name)
        if said is None or self._mesh is None:
            return None
        group = str(group_of(said).get("name", ""))
        if not is_group(group) or group_of(said).get("scale_up"):
            return None
        return self._mesh.directory / group

    # ---- groups of streams that are being restored, in any thread

    def hold(self, name: Name) -> RaftGroup:
        """The group of a stream to be restored. This server leads the group, so that no other
        member starts the stream empty; OSError."""
        member = self._new(name)
        group = self._groups().open(
            str(member.directory),
            member.group.encode(),
            self._peer.encode(),
            peers=peer_state(len(member.peers), member.peers),
            observer=False,
        )
        group.choose()
        return group

    def begin_restored(self, name: Name) -> None:
        """Marks the restored state as not agreed on: a crash from here on discards the stream."""
        metafiles.replace(self._new(name).directory / RESTORED, b"")

    def end_restored(self, name: Name) -> None:
        """Removes the mark: the group has agreed."""
        (self._new(name).directory / RESTORED).unlink()

    def is_half_restored(self, name: Name) -> bool:
        """Whether the server stopped while the mark was set."""
        directory = self.directory(name)
        return directory is not None and (directory / RESTORED).exists()

    def forget(self, name: Name) -> None:
        """Erases the directory of a stream's group, which is not open."""
        metafiles.erase(self._new(name).directory)

    # ---- life of members, in any thread

    def open_stream(self, name: Name, stream: Stream, synced: bool = False) -> None:
        """Opens the stream's member; OSError, StoreError. `synced` as in `AccountReplicas.join`."""
        member = self._new(name)
        member.replica = replica = open_stream_replica(
            self._groups(),
            stream.handle,
            str(member.directory),
            name=member.group.encode(),
            id=self._peer.encode(),
            peers=peer_state(len(member.peers), member.peers),
            standing=member.standing.code,
            sync=str(self._said[name].get("sync", "")).encode(),
            synced=synced and are_beside(member.directory, stream.directory),
        )
        replica.handle.await_consumers()
        self._opened(member)
        stream.member = member

    def open_consumer(
        self, name: Name, stream: Stream, prepared: Any, directory: str | None
    ) -> Member:
        """The opened member of a consumer, with the consumer's handle; OSError, StoreError."""
        member = self._new(name)
        member.replica = open_consumer_replica(
            self._groups(),
            cast("StreamHandle", stream.handle),
            prepared,
            directory,
            group_directory=str(member.directory),
            name=member.group.encode(),
            id=self._peer.encode(),
            peers=peer_state(len(member.peers), member.peers),
            standing=member.standing.code,
            memory=group_of(self._said[name]).get("store") == "memory",
            state=self.begins_with(name),
        )
        self._opened(member)
        return member

    def begins_with(self, name: Name) -> bytes:
        """A new consumer's first state in the form of o.dat; b"": its configuration decides."""
        said = self._said.get(name, {})
        return state_of(said["state"]) if said.get("state") else b""

    # ---- changed members, in any thread; OSError, StoreError

    def regroup_stream(self, name: Name, stream: Stream) -> None:
        """Brings a running stream's member in line with the assignment: opens or ends it, or
        changes its group's members."""
        said = self._said[name]
        member = cast("Member | None", stream.member)
        if member is not None and not self._is_of_group(member, said):
            stream.handle.wait_durable()  # where the disk fails, the group's log is still needed
            self._members.pop(member.replica.number, None)
            cast("StreamReplica", member.replica).close(part=True)
            stream.member = None
            stream.handle.activate()
            stream.handle.wait_durable(synced=True)
            self._end(member)
        elif member is not None:
            member.assign(said)
            self._settle_rescue(member)
        if stream.member is None and is_replicated(said):
            self._begins[name] = Standing.BASE
            self.open_stream(name, stream)

    def regroup_consumer(self, name: Name, consumer: Consumer) -> None:
        """The same for a consumer."""
        said = self._said[name]
        member = cast("Member | None", consumer.member)
        if member is not None and not self._is_of_group(member, said):
            self._members.pop(member.replica.number, None)
            cast("ConsumerReplica", member.replica).part()
            consumer.member = None
            self._end(member)
        elif member is not None:
            member.assign(said)
            self._settle_rescue(member)
        if consumer.member is None and is_replicated(said):
            self._begins[name] = Standing.BASE
            new = self._new(name)
            new.replica = join_consumer_replica(
                self._groups(),
                consumer.handle,
                str(new.directory),
                name=new.group.encode(),
                id=self._peer.encode(),
                peers=peer_state(len(new.peers), new.peers),
                memory=group_of(said).get("store") == "memory",
            )
            self._opened(new)
            consumer.member = new

    def _settle_rescue(self, member: Member) -> None:
        """Notes that the log is applied of a group that a rescue had left with one member, and that
        has got others since."""
        if self.is_rescued(member):
            self._rescued.discard(member.group)
            standing.forget_rescue(member.directory)

    def _end(self, member: Member) -> None:
        self._rescued.discard(member.group)
        standing.forget_rescue(member.directory)
        metafiles.erase(member.directory)

    def _is_of_group(self, member: Member, said: Said) -> bool:
        return is_replicated(said) and member.group == group_of(said).get("name")

    def joined(self, member: Member) -> None:
        """Notes that a member has caught up."""
        member.standing = Standing.MEMBER
        standing.joined(member.directory)

    def _groups(self) -> RaftGroups:
        assert self._mesh is not None
        return self._mesh.groups

    def _new(self, name: Name) -> Member:
        assert self._mesh is not None
        mesh = self._mesh
        member = Member(name, self._said[name], mesh.directory, self._peer, mesh.there)
        if not is_group(member.group):
            raise OSError("its assignment names no group")
        begins = self._begins.pop(name, Standing.MEMBER)
        if member.directory.is_dir():
            groupkeys.check(str(member.directory), self._mesh.keys)
            member.standing = standing.found(member.directory)
            self._look_for_loss(member)
            return member
        of = group_of(self._said[name])
        if begins is Standing.MEMBER and of.get("scale_up"):  # it was down when it was to join
            begins = Standing.BASE if of.get("preferred") == self._peer else Standing.LOG
        make_directory(str(member.directory))
        standing.begin(member.directory, begins)
        member.standing = begins
        self._look_for_loss(member)
        return member

    def _look_for_loss(self, member: Member) -> None:
        """Marks a member that has nothing of a group older than this start of the server: the
        member may have lost what it had, so its vote must not count like a new member's."""
        is_old = created_at(self._said[member.name]) < self._begun
        if is_old and member.standing is Standing.MEMBER:
            standing.mark_if_empty(member.directory)

    def _opened(self, member: Member) -> None:
        replica, said = member.replica, self._said[member.name]
        self._members[replica.number] = member
        assert self._mesh is not None
        groupkeys.renew(str(member.directory), self._mesh.keys)
        member.assign(said)
        if member.standing is Standing.BASE and replica.found.state.index:
            self.joined(member)
        preferred = group_of(said).get("preferred", "")
        if replica.found.fresh and (member.standing is Standing.BASE or preferred == self._peer):
            replica.choose()

    def close(self, member: Member, *, delete: bool) -> None:
        """Closes a member, and a consumer's handle with it. `delete`: the asset was deleted."""
        replica = member.replica
        self._members.pop(replica.number, None)
        if isinstance(replica, ConsumerReplica):
            replica.close(delete)
        else:
            replica.close()
        if delete:
            self._said.pop(member.name, None)
            metafiles.erase(member.directory)

    async def close_all(self) -> None:
        """Hands over what this server leads, and closes all members."""
        leading = [member for member in list(self._members.values()) if member.leads()]
        for member in leading:
            if isinstance(member.replica, StreamReplica):
                member.replica.retire()
            else:
                member.replica.hand_over()
        if leading:
            await asyncio.sleep(HANDING_OVER)
            for member in leading:  # a stream may never retire without a quorum
                if member.leads():
                    member.replica.hand_over()
        await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        for of_consumers in (True, False):
            for member in list(self._members.values()):
                if bool(member.name.consumer) is of_consumers:
                    self.close(member, delete=False)

    # ---- news of members

    def gone(self, peer: str) -> None:
        """A server was lost: groups that it led look for a new leader."""
        for member in list(self._members.values()):
            with suppress(ValueError):  # another thread has closed the member
                member.replica.gone(peer.encode())

    def may_lead(self, account: str, *, may: bool) -> None:
        """Sets whether this server may lead streams and consumers of an account. If not, it hands
        over what it leads, as far as another member can take over."""
        for member in list(self._members.values()):
            if member.name.account == account and member.standing is Standing.MEMBER:
                with suppress(ValueError):  # another thread has closed the member
                    member.replica.observe(not may)

    def look(self, member: Member) -> bool:
        """Whether somebody else leads than before."""
        changed, leads = member.look(), member.leads()
        if leads and not member.led_since:
            member.led_since = time.time_ns()
            group = self._group(member)
            if group is not None:
                self.elected(member.name, group)
        elif not leads:
            member.led_since = 0
        return changed or leads

    def name_of(self, peer: str) -> str:
        """A server's name by its id, "" for none."""
        return "" if self._mesh is None or not peer else self._mesh.name_of(peer)

    def groups(self) -> list[RaftMember]:
        """The state of all groups that this server is a member of; in any thread."""
        found = map(self._group, list(self._members.values()))
        return [group for group in found if group is not None]

    def count(self) -> int:
        """The length of groups(), without making the list."""
        return len(self._members)

    def leaderless(self) -> list[tuple[Name, RaftMember]]:
        """The groups without a leader. As a side effect, notes which members are current."""
        found = []
        for member in list(self._members.values()):
            member.trouble()
            group = None if member.looked() else self._group(member)
            if group is not None and not group.leader:
                found.append((member.name, group))
        return found

    def _group(self, member: Member) -> RaftMember | None:
        if self._mesh is None:
            return None
        return member_of(
            member.replica,
            member.name.account,
            member.group,
            self._peer,
            self._mesh.name_of,
            member.led_since,
            member.ever_led,
        )

    def placed(self, asset: Stream | Consumer) -> ClusterInfo | None:
        """The leader and the members of an asset; None: it is not replicated."""
        member = asset.member
        if not isinstance(member, Member) or self._mesh is None:
            return None
        found = self._group(member)
        if found is None:
            return None
        online = {*self._mesh.names()}
        return ClusterInfo(
            name=self._cluster(),
            raft_group=member.group,
            leader=self.name_of(found.leader),
            leader_since=rfc3339_nano(member.led_since) if member.led_since else "",
            system_account=True,
            traffic_account=self._mesh.system_account,
            replicas=[*all_assigned(found, member.peers, self.name_of, online.__contains__)],
        )


class AccountReplicas:
    """The members of one account's assets."""

    def __init__(self, replicas: Replicas, account: str) -> None:
        self._replicas = replicas
        self._account = account

    def drives(self, wanted: StreamAssignment) -> bool:
        """Whether this very stream is replicated here."""
        said = self._replicas.said(Name(self._account, wanted.config.name))
        return said is not None and is_of(said, wanted.created)

    def prepare(self, name: str, consumer: str = "") -> Work[None]:
        """Makes the directory for the group of a stream or a consumer, if it has a group;
        OSError."""
        directory = self._replicas.directory(Name(self._account, name, consumer))
        if directory is not None:
            yield from metafiles.make_folders(directory, GROUP_FOLDERS)

    def join(self, stream: Stream, *, synced: bool = False) -> None:
        """Sets `member` of a stream that is open and not served yet; OSError, StoreError.
        `synced`: what the stream's file system has is on disk."""
        self._replicas.open_stream(Name(self._account, stream.name), stream, synced)

    def leave(self, stream: Stream, *, delete: bool) -> None:
        """Closes the members of a stream and its consumers. `delete`: they were deleted."""
        for consumer in stream.consumers.values():
            if isinstance(consumer.member, Member):
                self._replicas.close(consumer.member, delete=delete)
        if isinstance(stream.member, Member):
            self._replicas.close(stream.member, delete=delete)

    def join_consumer(
        self, stream: Stream, wanted: ConsumerAssignment, prepared: Any, directory: str | None
    ) -> Member | None:
        """The member of a consumer to be opened; None: the consumer is not replicated."""
        asset = Name(self._account, stream.name, wanted.name)
        said = self._replicas.said(asset)
        if said is None or not is_of(said, wanted.created):
            return None
        return self._replicas.open_consumer(asset, stream, prepared, directory)

    def begins_with(self, stream: str, consumer: str) -> bytes:
        """A new consumer's first state in the form of o.dat; b"": its configuration decides."""
        return self._replicas.begins_with(Name(self._account, stream, consumer))

    def leave_consumer(self, stream: Stream, consumer: Consumer, *, delete: bool) -> None:
        """Closes a consumer's member, and its handle with it."""
        if isinstance(consumer.member, Member):
            self._replicas.close(consumer.member, delete=delete)


def is_group(name: str) -> bool:
    """Whether a group's name can be the name of a directory."""
    return bool(name) and "/" not in name and not name.startswith(".")


def is_of(said: Said, created: int) -> bool:
    """Whether an assignment is of the asset with this creation time in ns."""
    try:
        return parse_rfc3339(str(said.get("created", ""))) == created
    except ValueError:
        return False


def is_replicated(said: Said) -> bool:
    """Whether an assignment has more than one member."""
    return len(peers_of(said)) > 1


def clear(stream: Stream) -> None:
    """Erases the groups of a closed stream and its consumers."""
    for member in (stream.member, *(one.member for one in stream.consumers.values())):
        if isinstance(member, Member):
            metafiles.erase(member.directory)
