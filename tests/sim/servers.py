"""A server of a simulated cluster: its disk, its environment while it runs, and its members of the
groups of a stream and a consumer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from jsserver.cext.groups import GroupError, RaftGroups
from jsserver.cext.replicas import (
    NEWS_DIVERGED,
    NEWS_FAILED,
    ConsumerReplica,
    StreamReplica,
    open_consumer_replica,
    open_stream_replica,
)
from jsserver.cext.stream import StoreError
from tests.cext.groups import deadline, files_due, write_files
from tests.cext.raft import write_peer_state
from tests.cext.replicas import state_of
from tests.cext.stream import TestAccount, TestEnv, open_test_stream
from tests.sim.disk import SimDisk, look
from tests.sim.interest import SHOWN
from tests.sim.notes import Wrong
from tests.unit.consumer_states import State, read_state
from tests.unit.stream_world import FILE, SECOND, consumer_params, stream_params

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.cluster import Cluster
    from tests.sim.disk import Stored

Place = TypeVar("Place", bytes, str)

STREAM_GROUP, CONSUMER_GROUP = b"S-R3F-stream01", b"C-R3F-consum01"
SYNC = b"$JSC.SYNC.stream01"
REPLICA_EVENT = 10
ONE = SECOND
"""The monotonic clock of a new environment, in ns."""
ANEW = SECOND
"""Nanoseconds before a stopped member is reopened."""
FOREVER = 1 << 62
SERVING_MOST = 1024
"""Bytes under way to members that catch up: only a few messages, so that the limit is met."""


class Server:
    """A server of the cluster; the object outlives kills and power cuts."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.name = b"server%02d" % number
        rng = cluster.rng
        self.disk = SimDisk(
            rng.getrandbits(64), cluster.kind.loose and rng.random() < 0.5, cluster.ignores_syncs
        )
        for path in (b"/groups", b"/S", b"/S/obs"):
            self.disk.mkdir(path)
        self.make_directories()
        self.up = False
        self.life = 0
        self.skew = 0
        """How far its wall clock is off, in ns."""
        self.paused_until = 0
        self.waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What came while the server was paused, in order."""
        self.slow = 0
        """The longest time of a sync in ns; 0: as usual."""
        self.stopped: dict[str, str] = {}
        """Why members have stopped since the start, by stream and consumer."""
        self.env: TestEnv
        self.groups: RaftGroups
        self.stream: StreamReplica | None = None
        self.consumer: ConsumerReplica | None = None

    def make_directories(self) -> None:
        for path in (b"/groups/S", b"/groups/C", b"/S/obs/C"):
            self.disk.mkdir(path)

    # ---- life

    def start(self) -> None:
        self.life += 1
        self.up = True
        self.wakes_at = FOREVER
        self.commits_at = FOREVER
        cluster = self.cluster
        self.started = cluster.now
        self.env = TestEnv(now=cluster.wall() + self.skew, seed=cluster.rng.getrandbits(32))
        for inbox in cluster.inboxes():
            self.env.listen(inbox)
        self.disk.attach(self.env, 0)
        self.groups = RaftGroups(self.env, TestAccount(), SERVING_MOST)
        self.seen: dict[int, frozenset[bytes]] = {}
        """The subscriptions of the other servers, as far as this server knows, by their numbers."""
        self.subscribed = 0
        cluster.interest.begins(self)
        self.open()
        self.turn()

    def open(self) -> None:
        """Opens stream and consumer. What a power cut interrupts, the next start opens."""
        self.stopped = {}
        try:
            self.open_stream()
            self.open_consumer()
            self.choose()
        except (StoreError, GroupError, OSError) as error:
            if not self.disk.dead:
                self.close_members()
                self.cluster.note(f"{self.number} cannot open: {error}")
                self.later(ANEW, self.reopen)

    def open_stream(self) -> None:
        names = self.cluster.names
        handle = open_test_stream(
            self.env, stream_params(**({"storage": FILE} | self.cluster.stream)), self.place(b"/S")
        )
        try:
            self.stream = open_stream_replica(
                self.groups,
                handle,
                "/groups/S",
                name=STREAM_GROUP,
                id=self.name,
                peers=write_peer_state(len(names), names),
                standing=0,
                sync=SYNC,
            )
        except BaseException:
            handle.close(False)
            raise
        handle.await_consumers()

    def choose(self) -> None:
        """Makes this server the first leader of its new groups, if the history chose it."""
        for member in (self.stream, self.consumer):
            if member is not None and member.found.fresh and self.cluster.first == self.number:
                member.choose()

    def place(self, path: Place) -> Place | None:
        """The place of a stream in files; None in memory."""
        return None if self.cluster.kind.memory else path

    def open_consumer(self) -> None:
        assert self.stream is not None
        names = self.cluster.names
        self.consumer = open_consumer_replica(
            self.groups,
            self.stream.handle,
            consumer_params(**self.cluster.consumer),
            self.place("/S/obs/C"),
            group_directory="/groups/C",
            name=CONSUMER_GROUP,
            id=self.name,
            peers=write_peer_state(len(names), names),
            standing=0,
            memory=self.cluster.kind.memory,
        )
        self.stream.handle.serve()

    def close_members(self) -> None:
        with suppress(StoreError):
            if self.consumer is not None:
                self.consumer.close(False)
        self.consumer = None
        if self.stream is not None:
            handle = self.stream.handle
            self.stream.close()
            with suppress(StoreError):
                handle.close(False)
        self.stream = None

    def reopen(self, empty: bool = False) -> None:
        """Reopens a member that stopped, as the control plane does: the stream with its consumer,
        and empty where its data differs from what the group agreed on."""
        self.close_members()
        if empty:
            self.empty()
        self.open()

    def empty(self) -> None:
        """Erases all, as if with a new disk."""
        for path in (b"/S", b"/groups/S", b"/groups/C"):
            self.disk.remove(path)
        self.disk.mkdir(b"/S")
        self.disk.mkdir(b"/S/obs")
        self.make_directories()

    def end(self) -> None:
        """Ends the process, whatever that does to its files."""
        self.close_members()
        self.groups.close()
        self.disk.detach(self.env)
        self.up = False

    def kill(self) -> None:
        """Kills the process. Written data stays, synced or not."""
        self.disk.stop()
        self.end()
        self.disk.kill()

    def cut_power(self) -> None:
        self.disk.stop()
        self.end()
        self.disk.cut()

    # ---- a turn

    def later(self, delay: int, do: Callable[[], None]) -> None:
        """Calls after a delay, unless the server has stopped since."""
        life = self.life

        def run() -> None:
            if self.up and self.life == life and not self.cluster.waits(self, run):
                self.turn(do)

        self.cluster.at(self.cluster.now + delay, run)

    def turn(self, do: Callable[[], object] | None = None) -> None:
        """Runs an event and all that follows from it."""
        if not self.up:
            return
        now = self.cluster.now - self.started + ONE
        self.quiet = False
        """Whether nothing is staged for a commit."""
        self.env.advance(now - self.env.mono)
        if do is not None:
            do()
            self.env.run()
        self.ends_turn()

    def hear_message(self, dest: bytes, reply: bytes, header: bytes, data: bytes) -> None:
        """A message of another server; as `turn`, but faster, because it happens most."""
        if self.up:
            self.quiet = False
            env = self.env
            env.advance(self.cluster.now - self.started + ONE - env.mono)
            env.inject(dest, data, reply, header, True, True)
            self.ends_turn()

    def shows(self) -> frozenset[bytes]:
        """The subscriptions that other servers are told of."""
        return frozenset(s for s in self.env.subscriptions if s.startswith(SHOWN))

    def sees(self, number: int, subjects: frozenset[bytes]) -> None:
        """Another server tells its subscriptions."""
        before = self.seen.get(number, frozenset())
        self.seen[number] = subjects
        for subject in sorted(before - subjects):
            self.env.ignore(subject)
        for subject in sorted(subjects - before):
            self.env.listen(subject)

    def hear_client(self, subject: bytes, data: bytes, reply: bytes, header: bytes) -> None:
        self.turn(lambda: self.env.inject(subject, data, reply, header))

    def ends_turn(self) -> None:
        if self.disk.dead:
            self.cluster.power_went(self)
            return
        env = self.env
        if env.sent:
            carry = self.cluster.carry
            for dest, _, reply, header, data in env.take():
                carry(self, dest, reply, header, data)
        if env.events:
            self.hear()
        if env.subscribed != self.subscribed:
            self.subscribed = env.subscribed
            self.cluster.interest.changed(self)
        self.see_to_later()

    def see_to_later(self) -> None:
        now = self.cluster.now
        due = deadline(self.env) - ONE + self.started
        if due < self.wakes_at:
            self.wakes_at = max(due, now)
            self.later(self.wakes_at - now, self.wake)
        if self.commits_at == FOREVER and not self.quiet:
            delay = self.cluster.sync_time(self)
            self.commits_at = self.cluster.now + delay
            self.later(delay, self.commit)

    def wake(self) -> None:
        self.wakes_at = FOREVER

    def commit(self) -> None:
        """Commits what was staged since the last commit."""
        self.commits_at = FOREVER
        before = self.disk.calls
        self.cluster.before_commit(self)
        self.disk.commit(self.env)
        if not self.disk.dead and files_due(self.groups):
            write_files(self.groups)
        if self.disk.calls == before:
            self.quiet = True

    # ---- news of members

    def hear(self) -> None:
        events, self.env.events[:] = list(self.env.events), []
        for kind, texts, numbers in events:
            if kind != REPLICA_EVENT:
                continue
            if numbers[1] in (NEWS_FAILED, NEWS_DIVERGED):
                self.halted(numbers[0], texts[0].decode(), numbers[1] == NEWS_DIVERGED)
        self.cluster.look(self)

    def halted(self, number: int, why: str, diverged: bool) -> None:
        of = "stream" if self.stream is not None and self.stream.number == number else "consumer"
        self.cluster.note(f"{of} of {self.number} stopped: {why}")
        if of not in self.stopped:
            self.stopped[of] = why
            life = self.stream
            self.later(ANEW, lambda: self.reopen(diverged) if self.stream is life else None)

    # ---- state

    def leads(self) -> bool:
        return self.up and self.stream is not None and self.stream.leads()

    def consumer_leads(self) -> bool:
        return self.up and self.consumer is not None and self.consumer.leads()

    def has(self) -> tuple[dict[int, Stored], int]:
        """The stream's messages by sequence, and its last sequence."""
        assert self.stream is not None
        _, messages, last = look(self.stream.handle)
        return messages, last

    def stream_state(self) -> bytes:
        """The state as a snapshot has it, with the count of refused entries."""
        assert self.stream is not None
        return state_of(self.stream.handle)

    def consumer_state(self) -> State:
        assert self.consumer is not None
        return read_state(self.consumer.handle.encode_state())

    def is_current(self) -> bool:
        """Whether both members have applied all that their groups agreed on."""
        if not self.up or self.stream is None or self.consumer is None or self.stopped:
            return False
        return self.stream.caught_up()

    def has_read(self) -> bool:
        """Whether all messages in the stream were delivered and acked."""
        state = self.consumer_state()
        return not state.pending and state.floor[1] >= max(self.has()[0], default=0)

    def check_well(self) -> None:
        """Wrong if a member does not run."""
        for member in (self.stream, self.consumer):
            if member is None or member.why():
                raise Wrong(f"{self.name!r} has a member that does not run: {self.stopped}")
