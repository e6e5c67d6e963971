"""What the clients of a simulated cluster know of the stream, and the checks that follow from
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.notes import Wrong

if TYPE_CHECKING:
    from tests.sim.disk import Stored


WRONG_LAST_SEQUENCE = 10071


@dataclass
class Publish:
    """A published message."""

    subject: bytes
    header: bytes
    data: bytes
    began: int
    after: int
    """The greatest sequence that was acked before this message was published."""
    again: bool = False
    """Whether the message has an id, and is repeated until it is acked."""
    expected: int = -1
    """The last sequence that the publisher expects the stream to have; -1: none."""
    batch: list[Publish] | None = None
    """All messages of the batch, in order; None: not in a batch."""
    attempts: int = 0
    refused: int = 0
    """The err_code of an answer that the message was not stored; 0: none."""
    refused_at: int = 0
    """When that answer was heard."""


@dataclass
class Notes:
    """What all clients know of the stream."""

    published: dict[bytes, Publish] = field(default_factory=dict)
    """Publishes by the message's data."""
    acked: dict[int, bytes] = field(default_factory=dict)
    """The data of acked messages by sequence."""
    last: int = 0
    """The greatest acked sequence."""
    answered: int = -1
    """When the latest publish with an answer began; -1: none."""
    deliveries: dict[int, int] = field(default_factory=dict)
    """The stream's sequence by the consumer's, for each delivery."""
    heard: dict[int, bytes] = field(default_factory=dict)
    """The data of delivered messages by the stream's sequence."""
    done: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Which delivery of a message was acked, and when the ack was confirmed, by the stream's
    sequence."""
    floors: list[int] = field(default_factory=lambda: [0, 0])
    """The greatest ack floor that a leader of the consumer reported, and the term."""

    # ---- publishes

    def ack(self, publish: Publish, seq: int) -> None:
        for before, one in enumerate(reversed(publish.batch or [publish])):
            self.ack_one(one, seq - before)

    def ack_one(self, publish: Publish, seq: int) -> None:
        before = self.acked.setdefault(seq, publish.data)
        if before != publish.data:
            raise Wrong(f"{before!r} and {publish.data!r} are both acked with sequence {seq}")
        if seq <= publish.after:
            raise Wrong(f"{publish.data!r} is acked as {seq}, though {publish.after} was before it")
        if publish.expected >= 0 and seq != publish.expected + 1:
            raise Wrong(f"{publish.data!r} was to follow {publish.expected}, and is acked as {seq}")
        if publish.refused:
            raise Wrong(f"{publish.data!r} is acked as {seq} and refused")
        self.last = max(self.last, seq)

    def refuse(self, publish: Publish, code: int, now: int) -> None:
        for one in publish.batch or [publish]:
            one.refused, one.refused_at = code, now

    # ---- deliveries

    def deliver(self, seq: int, dseq: int, count: int, data: bytes, sent: int) -> None:
        """Checks delivery `count` of a message; `sent`: when the server sent it. A leader that was
        paused may send an earlier delivery than the acked one: its group had agreed on it."""
        before = self.deliveries.setdefault(dseq, seq)
        if before != seq:
            raise Wrong(f"delivery {dseq} was of {before}, and is of {seq}")
        if self.heard.setdefault(seq, data) != data or self.acked.get(seq, data) != data:
            raise Wrong(f"{data!r} is delivered as {seq}, which is another message")
        acked, confirmed = self.done.get(seq, (count, sent))
        if confirmed < sent and count >= acked:
            raise Wrong(f"{seq} is delivered again, though its ack was confirmed")

    def confirm(self, seq: int, count: int, now: int) -> None:
        self.done.setdefault(seq, (count, now))

    def floor(self, term: int, floor: int) -> None:
        """Checks the ack floor that a leader of the consumer reports."""
        if term >= self.floors[1] and floor < self.floors[0]:
            raise Wrong(f"the ack floor {floor} in term {term} was {self.floors[0]} before")
        self.floors = [max(floor, self.floors[0]), max(term, self.floors[1])]

    # ---- checks in the end

    def check(self, where: str, messages: dict[int, Stored], last: int, keeps: bool) -> None:
        """Checks a replica: it has all acked messages, none twice, and none that was not published.
        `keeps`: no message is ever removed from the stream."""
        if last < self.last:
            raise Wrong(f"{where} ends at {last}, and {self.last} was acked")
        seen: dict[bytes, int] = {}
        for seq, (subject, _, data) in messages.items():
            publish = self.published.get(data)
            if publish is None or publish.subject != subject:
                raise Wrong(f"{where} has {data!r} at {seq}, which nobody published there")
            if data in seen:
                raise Wrong(f"{where} has {data!r} at {seen[data]} and at {seq}")
            if publish.refused:
                raise Wrong(f"{where} has {data!r} at {seq}, refused by {publish.refused}")
            seen[data] = seq
        for seq, data in self.acked.items():
            if seq in messages and messages[seq][2] != data:
                raise Wrong(f"{where} has {messages[seq][2]!r} at {seq}, and {data!r} was acked")
            if seq not in messages and keeps:
                raise Wrong(f"{where} has lost {data!r}, acked as {seq}")
        if keeps:
            self.check_batches(where, seen)
            self.check_refused(where, messages)

    def check_batches(self, where: str, seen: dict[bytes, int]) -> None:
        """Checks that each batch is there in a row, or not at all."""
        for publish in self.published.values():
            batch = publish.batch
            if batch is not None and batch[0] is publish:
                at = [seen.get(one.data, 0) for one in batch]
                if any(at) and at != list(range(at[0], at[0] + len(at))):
                    raise Wrong(f"{where} has the batch of {publish.data!r} at {at}")

    def check_refused(self, where: str, messages: dict[int, Stored]) -> None:
        """Checks that what was refused because the stream went on was refused rightly: the message
        that it went on with was published before the answer."""
        for publish in self.published.values():
            if publish.refused != WRONG_LAST_SEQUENCE or publish.expected < 0:
                continue
            after = messages.get(publish.expected + 1)
            if after is None or self.published[after[2]].began >= publish.refused_at:
                raise Wrong(
                    f"{publish.data!r} was to follow {publish.expected} and is refused, though"
                    f" {where} has nothing published before that behind it"
                )

    def check_heard(self) -> None:
        """Checks that all acked messages were delivered, in a stream that removes none before."""
        for seq, data in self.acked.items():
            if seq not in self.heard:
                raise Wrong(f"{data!r}, acked as {seq}, was never delivered")
