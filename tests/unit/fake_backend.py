"""A data plane in memory, as simple as it can be, for tests of the API.

Messages are kept in a dict by sequence; a "directory" is a key under which they survive closing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from jsserver.cext.bytes import subject_covers
from jsserver.instances.backend import (
    AccountUsage,
    AnsweredRequests,
    ConsumerState,
    ConsumerWait,
    Lost,
    Message,
    PendingMessage,
    PreparedConsumer,
    PreparedStream,
    StoreError,
    StreamState,
)

NOW = 1_700_000_000_000_000_000
_ids = count(1)


def matches(filter: bytes, subject: bytes) -> bool:
    return not filter or subject_covers(filter, subject)


class FakeConsumer:
    """Starts where its policy says and never delivers anything."""

    def __init__(
        self, stream: "FakeStream", prepared: PreparedConsumer, directory: str | None
    ) -> None:
        self.stream = stream
        self.prepared = prepared
        self.config = prepared.config
        self.directory = directory
        self.id = next(_ids)
        self.interest = False
        self.paused_until = prepared.pause_until
        self.closed: bool | None = None
        self.start = self._start()
        self.begun: int | None = None

    def begin(self, ticket: int = 0) -> None:
        self.begun = ticket

    def damaged(self) -> bool:
        return False

    def _wants(self, message: Message) -> bool:
        filters = self.prepared.filters
        return not filters or any(matches(f.encode(), message.subject) for f in filters)

    def _start(self) -> int:
        state = self.stream.state()
        wanted = [m.seq for m in self.stream.messages.values() if self._wants(m)]
        policy = self.config.deliver_policy
        if policy == "new":
            return state.last_seq + 1
        if policy == "last" and wanted:
            return max(wanted)
        if policy == "last_per_subject" and wanted:
            last = {self.stream.messages[seq].subject: seq for seq in wanted}
            return min(last.values())
        if policy == "by_start_sequence":
            return max(self.config.opt_start_seq, state.first_seq)
        if policy == "by_start_time":
            return self.stream.at_time(self.prepared.opt_start_time)
        return max(state.first_seq, 1)

    def state(self) -> ConsumerState:
        held = self.stream.messages
        wanted = [m for s, m in held.items() if s >= self.start and self._wants(m)]
        pending = len(wanted)
        if self.config.deliver_policy == "last_per_subject":
            pending = len({m.subject for m in wanted})
        return ConsumerState(
            delivered_consumer=0,
            delivered_stream=self.start - 1,
            delivered_ts=0,
            floor_consumer=0,
            floor_stream=self.start - 1,
            floor_ts=0,
            num_ack_pending=0,
            num_redelivered=0,
            num_waiting=0,
            num_pending=pending,
            push_bound=self.interest,
            pinned_id=b"",
            pinned_ts=0,
        )

    def counting(self) -> bool:
        return False

    def changed_state(self) -> ConsumerState:
        return self.state()

    def update(self, prepared: PreparedConsumer, back: bool = False) -> None:
        self.prepared = prepared
        self.config = prepared.config

    def reset(self, seq: int) -> int:
        self.start = seq or self.start
        return self.start

    def waits(self) -> ConsumerWait:
        return ConsumerWait(0, 0, 0, 0)

    def oldest(self) -> tuple[int, int]:
        return 0, 0

    def pending(self, start: int, limit: int, idle: int) -> list[PendingMessage]:
        return []

    def release(self, seqs: Iterable[int], idle: int, deliver: bytes) -> list[int]:
        return []

    def unpin(self) -> None:
        pass

    def pause(self, until: int) -> None:
        self.paused_until = until

    def close(self, delete: bool) -> None:
        assert self.closed is None, "closed twice"
        self.closed = delete


@dataclass
class Disk:
    """What survives a restart."""

    messages: dict[int, Message] = field(default_factory=dict)
    last_seq: int = 0


class FakeStream:
    """Stores what is published on its subjects; knows max_msgs of the limits."""

    def __init__(self, prepared: PreparedStream, disk: Disk) -> None:
        self.prepared = prepared
        self.config = prepared.config
        self.disk = disk
        self.active = False
        self.synced = False
        self.closed: bool | None = None
        self.consumers: list[FakeConsumer] = []
        self.waits = 0
        self.fails = ""
        """Why nothing becomes durable any more."""
        if not disk.last_seq and prepared.config.first_seq:
            disk.last_seq = prepared.config.first_seq - 1

    @property
    def messages(self) -> dict[int, Message]:
        return self.disk.messages

    def activate(self, hold: bool = False) -> None:
        assert not self.active
        self.active = True

    def store(self, subject: bytes, data: bytes, headers: bytes = b"") -> None:
        assert self.active
        if self.config.sealed:
            return
        self.disk.last_seq += 1
        seq = self.disk.last_seq
        if self.config.retention == "interest" and not self.consumers:
            return
        self.messages[seq] = Message(
            subject=subject, seq=seq, ts=NOW + seq, headers=headers, data=data
        )
        self._trim()

    def _trim(self) -> None:
        while 0 < self.config.max_msgs < len(self.messages):
            del self.messages[min(self.messages)]

    def update(self, prepared: PreparedStream, back: bool = False) -> None:
        self.prepared = prepared
        self.config = prepared.config
        self._trim()

    def _size(self, message: Message) -> int:
        fixed = 30 if self.config.storage == "file" else 16
        head = len(message.headers)
        if head and self.config.storage == "file":
            head += 4
        return fixed + len(message.subject) + head + len(message.data)

    def state(self) -> StreamState:
        last = self.disk.last_seq
        held = self.messages
        first = min(held) if held else last + 1
        return StreamState(
            messages=len(held),
            bytes=sum(map(self._size, held.values())),
            first_seq=first,
            first_ts=held[first].ts if held else 0,
            last_seq=last,
            last_ts=NOW + last if last and (held or not self.config.first_seq) else 0,
            num_subjects=len({m.subject for m in held.values()}),
            num_deleted=last - first + 1 - len(held) if held else 0,
        )

    def lost(self) -> Lost:
        return Lost([], 0, 0, [])

    def deleted(self, most: int) -> Sequence[int]:
        state = self.state()
        gone = [s for s in range(state.first_seq, state.last_seq + 1) if s not in self.messages]
        return gone[:most]

    def subjects(self, filter: bytes, start: int, most: int) -> tuple[int, dict[bytes, int]]:
        counts: dict[bytes, int] = {}
        for message in self.messages.values():
            if matches(filter, message.subject):
                counts[message.subject] = counts.get(message.subject, 0) + 1
        return len(counts), dict(sorted(counts.items())[start : start + most])

    def purge(self, filter: bytes | None, seq: int, keep: int, short: bool = False) -> int:
        chosen = [s for s, m in self.messages.items() if matches(filter or b"", m.subject)]
        if keep:
            chosen = chosen[:-keep]
        elif seq:
            chosen = [s for s in chosen if s < seq]
        for gone in chosen:
            del self.messages[gone]
        if not filter and seq > self.disk.last_seq:
            self.disk.last_seq = seq - 1
        return len(chosen)

    def get(self, seq: int) -> Message | None:
        return self.messages.get(seq)

    def last_for(self, filter: bytes) -> Message | None:
        found = [m for m in self.messages.values() if matches(filter, m.subject)]
        return found[-1] if found else None

    def next_for(self, filter: bytes, seq: int) -> Message | None:
        found = [m for s, m in self.messages.items() if s >= seq and matches(filter, m.subject)]
        return found[0] if found else None

    def at_time(self, ts: int) -> int:
        later = [s for s, m in self.messages.items() if m.ts >= ts]
        return later[0] if later else self.disk.last_seq + 1

    def delete(self, seq: int, erase: bool) -> bool:
        return self.messages.pop(seq, None) is not None

    def unsettled(self, seq: int = 0) -> int:
        return 0

    def changed_ticket(self) -> int:
        self.wait_durable()
        return 0

    def answer(self, ticket: int, reply: bytes, data: bytes, type: bytes) -> bool:
        raise AssertionError("nothing here waits for a disk")

    def reopen(self, mirror: bool = False) -> None:
        raise AssertionError("nothing here fails")

    def resume(self) -> None:
        raise AssertionError("nothing here fails")

    def withhold(self, on: bool) -> None:
        pass

    def wait_durable(self, synced: bool = False) -> None:
        if self.fails:
            raise StoreError(self.fails)
        self.waits += 1

    def open_consumer(
        self, prepared: PreparedConsumer, directory: str | None, hold: bool = False
    ) -> FakeConsumer:
        consumer = FakeConsumer(self, prepared, directory)
        self.consumers.append(consumer)
        return consumer

    def close(self, delete: bool) -> None:
        assert self.closed is None, "closed twice"
        self.closed = delete
        if delete:
            self.disk.messages.clear()
            self.disk.last_seq = 0


class FakeAccount:
    """An account of the data plane: streams by directory; what was published; what is heard."""

    def __init__(self) -> None:
        self.disks: dict[str, Disk] = {}
        self.streams: dict[str, FakeStream] = {}
        self.limits: tuple[int, int] | None = None
        self.published: list[tuple[bytes, bytes]] = []
        self.listened: list[str] = []
        self.broken = ""
        """Text of the error with which the next stream does not open."""

    def open_stream(
        self, directory: str | None, prepared: PreparedStream, synced: bool = False
    ) -> FakeStream:
        if self.broken:
            raise StoreError(self.broken)
        assert (directory is None) == (prepared.config.storage == "memory")
        disk = Disk() if directory is None else self.disks.setdefault(directory, Disk())
        stream = FakeStream(prepared, disk)
        stream.synced = synced
        self.streams[prepared.config.name] = stream
        return stream

    def usage(self) -> AccountUsage:
        held = {"file": 0, "memory": 0}
        for stream in self.streams.values():
            if stream.closed is None:
                held[stream.config.storage] += stream.state().bytes
        return AccountUsage(memory=held["memory"], storage=held["file"])

    def requests(self) -> AnsweredRequests:
        return AnsweredRequests(total=0, errors=0, inflight=0)

    def set_limits(self, max_memory: int, max_storage: int) -> None:
        self.limits = (max_memory, max_storage)

    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self.published.append((subject, payload))

    def subject_interest(self, subject: bytes) -> bool:
        return any(subject_covers(p, subject) for p in self.listened)

    def subscribed(self, subject: bytes) -> bool:
        return subject.decode() in self.listened

    def store(self, subject: str, data: bytes = b"", headers: bytes = b"") -> None:
        """A client's publish: every stream that captures the subject stores it."""
        for stream in self.streams.values():
            if stream.closed is None and any(
                matches(p.encode(), subject.encode()) for p in stream.config.subjects
            ):
                stream.store(subject.encode(), data, headers)
