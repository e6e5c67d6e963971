"""Clients of a simulated cluster: publishers that remember what was acked, and readers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.sim.cluster_notes import Publish
from tests.sim.faults import after_ack
from tests.unit.stream_world import MS, SECOND, headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.sim.cluster import Cluster
    from tests.sim.servers import Server

TIMEOUT = 2 * SECOND
"""Nanoseconds before a client gives up an answer."""
WINDOW = 30 * SECOND
"""Nanoseconds for which a stream remembers the ids of its messages."""
ATTEMPTS = 8
CUT_AFTER_ACK = 0.004
"""The chance of a fault right after a client has got a good answer."""


class Client:
    """A client of one server at a time; it moves to another one if answers do not come."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.rng = cluster.rng
        self.number = number
        self.name = b"c%d" % number
        self.home = self.rng.randrange(len(cluster.servers))
        self.next_at = 0
        self.count = 0

    def move(self) -> None:
        """Connects to another server."""
        up = [server.number for server in self.cluster.servers if server.up]
        if up:
            self.home = self.rng.choice(up)

    def say(self, subject: bytes, data: bytes, reply: bytes, header: bytes = b"") -> None:
        self.cluster.client_says(self, subject, data, reply, header)

    def hear(self, subject: bytes, reply: bytes, data: bytes, sent: int) -> None:
        """Takes a message that a server sent at the time `sent`."""
        raise NotImplementedError

    def heard_good(self) -> None:
        """Notes an answer that promises something: a good moment for a fault."""
        if not self.cluster.peace and self.rng.random() < CUT_AFTER_ACK:
            after_ack(self.cluster)

    def step(self) -> None:
        raise NotImplementedError


class Publisher(Client):
    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self.waiting: dict[bytes, tuple[Publish, int]] = {}
        """Publishes without an ack by reply, and when each is given up or repeated."""

    def step(self) -> None:
        now = self.cluster.now
        late = [reply for reply, (_, until) in self.waiting.items() if until <= now]
        for reply in late:
            publish, _ = self.waiting.pop(reply)
            if publish.again and publish.attempts < ATTEMPTS:
                self.attempt(publish)
            self.move()
        if now >= self.next_at and len(self.waiting) < 20:
            self.next_at = now + self.rng.randrange(self.cluster.pace)
            for _ in range(self.rng.choice((1, 1, 1, 2, 10)) if not self.cluster.peace else 1):
                self.publish()

    def publish(self) -> None:
        rng, cluster = self.rng, self.cluster
        if cluster.kind.batches and rng.random() < 0.2:
            self.publish_batch(rng.choice((2, 3, 10)))
            return
        made = self.made()
        if rng.random() < 0.7:
            made.again = True
            made.header = headers(Nats_Msg_Id=made.data.strip().decode())
        elif rng.random() < 0.3:
            made.expected = cluster.notes.last
            made.header = headers(Nats_Expected_Last_Sequence=made.expected)
        self.attempt(made)

    def made(self) -> Publish:
        """A new message without a header."""
        rng, cluster = self.rng, self.cluster
        self.count += 1
        data = b"%s.%d" % (self.name, self.count) + b" " * rng.choice((0, 0, 0, 100, 3000))
        subject = b"s.%d" % rng.randrange(cluster.subjects)
        made = Publish(subject, b"", data, cluster.now, cluster.notes.last)
        cluster.notes.published[data] = made
        return made

    def publish_batch(self, n: int) -> None:
        """Publishes an atomic batch: the ack of its last message is the ack of all."""
        batch = [self.made() for _ in range(n)]
        name = batch[0].data.strip().decode()
        for number, one in enumerate(batch, 1):
            one.batch = batch
            told = {"Nats_Batch_Id": name, "Nats_Batch_Sequence": number}
            if number < n:
                one.header = headers(**told)
                self.say(one.subject, one.data, b"", one.header)
        batch[-1].header = headers(**told, Nats_Batch_Commit=1)
        self.attempt(batch[-1])

    def attempt(self, publish: Publish) -> None:
        publish.attempts += 1
        if publish.attempts > 1 and self.cluster.now - publish.began > WINDOW - TIMEOUT:
            return  # the stream may have forgotten the id: a repetition could be stored twice
        reply = b"ack.%s.%s.%d" % (self.name, publish.data.strip(), publish.attempts)
        self.waiting[reply] = publish, self.cluster.now + TIMEOUT
        self.say(publish.subject, publish.data, reply, publish.header)

    def hear(self, subject: bytes, reply: bytes, data: bytes, sent: int) -> None:
        if subject not in self.waiting:
            return  # too late
        publish, _ = self.waiting.pop(subject)
        answer = json.loads(data)
        self.cluster.notes.answered = max(self.cluster.notes.answered, publish.began)
        if "error" not in answer:
            self.cluster.notes.ack(publish, answer["seq"])
            self.heard_good()
        elif not publish.again:
            self.cluster.notes.refuse(publish, answer["error"]["err_code"], self.cluster.now)


class Reader(Client):
    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self.inbox = b"inbox.%s" % self.name
        self.acking: dict[bytes, tuple[int, int]] = {}
        """Sequences whose acks wait for an answer, and how often each was delivered by then, by the
        answer's subject."""

    def step(self) -> None:
        now = self.cluster.now
        if now >= self.next_at:
            self.next_at = now + self.rng.randrange(100 * MS, 2 * SECOND)
            body = b'{"batch":%d,"expires":%d}' % (self.rng.choice((1, 5, 50)), SECOND)
            self.say(b"$JS.API.CONSUMER.MSG.NEXT.S.C", body, self.inbox)
            if self.rng.random() < 0.1:
                self.move()

    def hear(self, subject: bytes, reply: bytes, data: bytes, sent: int) -> None:
        notes = self.cluster.notes
        if subject in self.acking:
            notes.confirm(*self.acking.pop(subject), self.cluster.now)
            self.heard_good()
        elif reply.startswith(b"$JS.ACK."):
            words = reply.split(b".")
            count, seq, dseq = (int(word) for word in words[4:7])
            notes.deliver(seq, dseq, count, data, sent)
            if self.rng.random() < self.cluster.acks:
                self.count += 1
                to = b"done.%s.%d" % (self.name, self.count)
                self.acking[to] = seq, count
                self.say(reply, b"", to)


def homeless(clients: Iterable[Client], server: Server) -> None:
    """Moves the clients of a server that is gone."""
    for client in clients:
        if client.home == server.number:
            client.move()
