"""A reader's connection: what the server answers goes into rows without Python looking at them."""

from jsserver_spark.batches import Batches
from jsserver_spark.cext.columns import Answer, Replies
from jsserver_spark.client.connection import ConnectionFailed, new_inbox, publish_frame
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream

SLOTS = 2
"""Answers that may be under way at once."""


class Interrupted(NatsError):
    """An answer broke off; asking again from where it stopped may go well."""

    passes = True


class Misdirected(NatsError):
    """Another stream answers the direct gets of this one, as its mirrors may."""


class Answers:
    """Requests whose answers fill rows, over a connection that does nothing else meanwhile."""

    def __init__(self, api: JetStream, replies: Replies) -> None:
        self._connection = api.connection
        self._replies = replies
        self._inbox = new_inbox()
        self._sids = [self._connection.subscribe(f"{self._inbox}.{slot}") for slot in range(SLOTS)]

    def expect(self, slot: int, batches: Batches, after: int, last: int) -> None:
        """What answers at `slot` fills the rows of `batches`, where after < seq <= last."""
        self._replies.expect(slot, self._sids[slot], batches.rows, after, last)

    def ends_before(self, slot: int, seq: int) -> int:
        """From which sequence on rows are left to another answer: `seq` or later."""
        return self._replies.ends_before(slot, seq)

    def ask(self, slot: int, subject: str, body: bytes) -> None:
        self._connection.send(publish_frame(subject, body, f"{self._inbox}.{slot}"))

    def of(self, slot: int) -> Answer:
        return self._replies.answer(slot)

    def goes_on(self, slot: int) -> None:
        """The status that came ends a part of the answer only."""
        self._replies.clear_status(slot)

    def receive(self) -> None:
        """Some more of the answers. ConnectionFailed, NatsError; ReplyError of senseless bytes."""
        size = 0
        if not self._replies.full:
            left = self._connection.taken_bytes()
            with memoryview(self._replies) as view:
                size = len(left) or self._connection.receive_into(view)
                view[: len(left)] = left
        self._replies.feed(size)
        pings = self._replies.take_pings()
        if pings:
            self._connection.send(b"PONG\r\n" * pings)
        refusal = self._replies.take_refusal()
        if "Permissions Violation" in refusal:
            raise NatsError(f"{self._connection.url} said: {refusal}")
        if refusal:
            raise ConnectionFailed(f"{self._connection.url} said: {refusal}")
