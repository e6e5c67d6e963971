"""A consumer against a simple model of one: random publishes, pulls, acks, time, restarts."""

import os
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    INTEREST,
    LIMITS,
    SECOND,
    WORKQUEUE,
    World,
    consumer_params,
    seqs,
    tokens,
)

SUBJECTS = (b"s.a", b"s.b", b"s.c.d")
TRUNCATE = 6
FILTERS = ((), (b"s.a",), (b"s.*",), (b"s.a", b"s.c.>"))
ACKS = (b"", b"+ACK", b"+OK", b"+TERM", b"+TERM x", b"+TERM\t", b"-TERM", b"-TERM y", b"+NXT")
NEXTS = (b"+NXT %d", b"-NXT %d", b'+NXT{"batch":%d}', b'+NXT {"batch":%d,"expires":9000000000}')
NAKS = (
    *((b"-NAK", 0), (b"-NAK x", 0), (b"-NAKed", 0), (b"-NAK {", 0), (b'-NAK {"delay":0}', 0.01)),
    *((b"-NAK 1s", 1), (b"-NAK7s", 7), (b'-NAK {"delay":1000000000}', 1)),
    *((b'-NAK\t{"delay": 7000000000} ', 7), (b"-NAK -5s", 0.01)),
)
"""Each with its delay, s."""
LIMITS_OF_CONSUMERS = st.fixed_dictionaries(
    dict(
        ack_wait=st.sampled_from((4 * SECOND, 4 * SECOND, 2 * SECOND, 9 * SECOND)),
        backoff=st.sampled_from(((), (), (SECOND, 3 * SECOND), (5 * SECOND, 2 * SECOND))),
        max_deliver=st.sampled_from((-1, -1, 1, 2, 3)),
        max_ack_pending=st.sampled_from((1, 3, 1000)),
    )
)


def matches(filters, subject):
    wanted = {
        b"s.a": {b"s.a"},
        b"s.*": {b"s.a", b"s.b"},
        b"s.c.>": {b"s.c.d"},
    }
    return not filters or any(subject in wanted[f] for f in filters)


class Model:
    """What the specification says, in the most obvious way."""

    def __init__(self, retention, **params):
        self.retention = retention
        self.filters = params["filters"]
        self.policy = params["ack_policy"]
        self.configure(params)
        self.stored = {}
        self.last = 0
        self.now = 0
        self.next = 1
        self.dseq = 1
        self.delivered = 0
        self.floor = (0, 0)
        # sequence -> [first consumer sequence, deliveries, deadline or None while queued]
        self.pending = {}
        self.queue = []
        self.exhausted = set()

    def configure(self, params):
        self.waits = [w // SECOND for w in params["backoff"]] or [params["ack_wait"] // SECOND]
        self.max_deliver = params["max_deliver"]
        self.max_pending = params["max_ack_pending"]

    def wait(self, deliveries):
        return self.waits[min(deliveries, len(self.waits)) - 1]

    def update(self, params):
        before = {seq: self.wait(entry[1]) for seq, entry in self.pending.items()}
        self.configure(params)
        for seq, entry in self.pending.items():
            if entry[2] is not None:
                entry[2] += self.wait(entry[1]) - before[seq]
        for seq in list(self.queue):
            self.requeue(seq)

    def publish(self, subject):
        self.last += 1
        if self.retention != INTEREST or matches(self.filters, subject):
            self.stored[self.last] = subject

    def undelivered(self):
        return [
            s
            for s in sorted(self.stored)
            if s >= self.next and matches(self.filters, self.stored[s])
        ]

    def pull(self, batch):
        got = []
        for _ in range(batch):
            if self.queue:
                seq = self.queue.pop(0)
                entry = self.pending[seq]
                entry[1] += 1
                entry[2] = self.now + self.wait(entry[1])
                got.append((entry[1], seq, self.dseq))
            elif self.policy != ACK_NONE and len(self.pending) >= self.max_pending:
                break
            elif self.undelivered():
                seq = self.undelivered()[0]
                self.next = seq + 1
                self.delivered = seq
                if self.policy == ACK_NONE:
                    self.floor = (self.dseq, seq)
                    self.let_go(seq)
                else:
                    self.pending[seq] = [self.dseq, 1, self.now + self.wait(1)]
                got.append((1, seq, self.dseq))
            else:
                break
            self.dseq += 1
        return got

    def let_go(self, seq):
        if self.retention != LIMITS:
            self.stored.pop(seq, None)

    def take_out(self, seq):
        first = min(self.pending) == seq
        del self.pending[seq]
        if seq in self.queue:
            self.queue.remove(seq)
        if not self.pending:
            self.floor = (self.dseq - 1, max(self.floor[1], self.delivered))
        elif first:
            low = min(self.pending)
            self.floor = (max(self.floor[0], self.pending[low][0] - 1), max(self.floor[1], low - 1))

    def ack(self, seq, dseq):
        if seq >= self.next:
            return
        if self.policy == ACK_ALL:
            for s in [s for s in self.exhausted if s <= seq]:
                self.exhausted.remove(s)
                self.let_go(s)
            if seq <= self.floor[1]:
                return
            for s in [s for s in self.pending if s <= seq]:
                del self.pending[s]
                if s in self.queue:
                    self.queue.remove(s)
                self.let_go(s)
            self.floor = (max(self.floor[0], dseq), seq)
        elif seq in self.pending:
            self.take_out(seq)
            self.let_go(seq)
        elif seq in self.exhausted:
            self.exhausted.remove(seq)
            self.let_go(seq)

    def nak(self, seq, dseq, delay):
        if seq not in self.pending or dseq <= self.floor[0] or dseq > self.dseq:
            return
        if delay:
            if seq in self.queue:
                self.queue.remove(seq)
            self.pending[seq][2] = self.now + delay
        else:
            self.requeue(seq)

    def progress(self, seq):
        if seq in self.pending and seq not in self.queue:
            self.pending[seq][2] = self.now + self.wait(self.pending[seq][1])

    def requeue(self, seq):
        if 0 < self.max_deliver <= self.pending[seq][1]:
            if seq in self.queue:
                self.queue.remove(seq)
            del self.pending[seq]
            self.exhausted.add(seq)
        elif seq not in self.queue:
            self.pending[seq][2] = None
            self.queue.append(seq)

    def advance(self, seconds):
        for _ in range(seconds):
            self.now += 1
            self.expire()

    def expire(self):
        for _, seq in sorted(
            (e[2], s) for s, e in self.pending.items() if e[2] is not None and e[2] <= self.now
        ):
            self.requeue(seq)

    def remove(self, seq):
        if self.stored.pop(seq, None) is None:
            return
        self.exhausted.discard(seq)
        if seq in self.pending:
            self.take_out(seq)

    def purge(self):
        self.stored.clear()
        self.next, self.delivered = self.last + 1, self.last
        self.exhausted.clear()
        for seq in sorted(self.pending):
            self.take_out(seq)
        if self.floor[1] < self.last:
            self.floor = (self.dseq - 1, self.last)

    def truncate(self, seq):
        self.stored = {s: subject for s, subject in self.stored.items() if s <= seq}
        self.last = seq
        self.next, self.delivered = min(self.next, seq + 1), min(self.delivered, seq)
        self.pending = {s: entry for s, entry in self.pending.items() if s <= seq}
        self.queue = [s for s in self.queue if s <= seq]
        self.exhausted = {s for s in self.exhausted if s <= seq}
        if not self.pending:
            self.floor = (self.dseq - 1, max(self.floor[1], self.delivered))
        self.floor = (self.floor[0], min(self.floor[1], seq))

    def reset(self, seq):
        seq = max(seq or self.floor[1] + 1, 1)
        self.next, self.dseq, self.delivered, self.floor = seq, 1, seq - 1, (0, seq - 1)
        self.pending, self.queue, self.exhausted = {}, [], set()
        if self.retention == INTEREST:
            for s in [s for s in self.stored if s < seq]:
                del self.stored[s]
        return seq

    def restart(self):
        self.queue = sorted(self.queue)

    def redelivered(self):
        if self.max_deliver == 1:
            return 0
        return sum(e[1] > 1 for e in self.pending.values()) + len(self.exhausted)


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    @initialize(
        retention=st.sampled_from((LIMITS, INTEREST, WORKQUEUE)),
        policy=st.sampled_from((ACK_EXPLICIT, ACK_EXPLICIT, ACK_ALL, ACK_NONE)),
        filters=st.sampled_from(FILTERS),
        limits=LIMITS_OF_CONSUMERS,
    )
    def begin(self, retention, policy, filters, limits):
        if retention == WORKQUEUE and policy != ACK_EXPLICIT:
            policy = ACK_EXPLICIT
        self.params = dict(filters=filters, ack_policy=policy, **limits)
        self.world = World(retention=retention)
        self.model = Model(retention, **self.params)
        self.consumer = self.world.consumer(**self.params)
        self.seen = []

    @rule(subject=st.sampled_from(SUBJECTS))
    def publish(self, subject):
        self.world.env.inject(subject, b"data")
        self.model.publish(subject)

    @rule(batch=st.integers(1, 6))
    def pull(self, batch):
        got = self.world.pull(b'{"batch":%d}' % batch)
        assert [tokens(m)[:3] for m in got] == self.model.pull(batch)
        assert seqs(got) == [tokens(m)[1] for m in got]
        self.seen += got
        self.world.env.ignore(b"inbox")
        assert self.consumer.state().num_waiting == 0
        self.world.env.listen(b"inbox")

    @rule(data=st.data(), body=st.sampled_from(ACKS))
    def ack(self, data, body):
        message = self.choose(data)
        if message is not None and self.model.policy != ACK_NONE:
            _, seq, dseq, *_ = tokens(message)
            self.world.ack(message, body)
            self.model.ack(seq, dseq)

    @rule(data=st.data(), batch=st.integers(1, 3), body=st.sampled_from(NEXTS))
    def ack_next(self, data, batch, body):
        message = self.choose(data)
        if message is not None and self.model.policy != ACK_NONE:
            _, seq, dseq, *_ = tokens(message)
            got = self.world.ack(message, body % batch, b"inbox")
            self.model.ack(seq, dseq)
            assert [tokens(m)[:3] for m in got] == self.model.pull(batch)
            self.seen += got
            self.world.env.ignore(b"inbox")
            assert self.consumer.state().num_waiting == 0
            self.world.env.listen(b"inbox")

    @rule(data=st.data(), spelled=st.sampled_from(NAKS))
    def nak(self, data, spelled):
        message = self.choose(data)
        if message is not None and self.model.policy != ACK_NONE:
            _, seq, dseq, *_ = tokens(message)
            body, delay = spelled
            self.world.ack(message, body)
            self.model.nak(seq, dseq, delay)

    @rule(limits=LIMITS_OF_CONSUMERS)
    def update(self, limits):
        self.params.update(limits)
        self.consumer.update(consumer_params(**self.params))
        self.model.update(self.params)

    @rule(data=st.data(), body=st.sampled_from((b"+WPI", b"-WPI")))
    def progress(self, data, body):
        message = self.choose(data)
        if message is not None and self.model.policy != ACK_NONE:
            self.world.ack(message, body)
            self.model.progress(tokens(message)[1])

    def choose(self, data):
        return data.draw(st.sampled_from(self.seen)) if self.seen else None

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds):
        self.world.env.advance(seconds * SECOND)
        self.model.advance(seconds)

    @rule(data=st.data())
    def remove(self, data):
        if self.model.last:
            seq = data.draw(st.integers(1, self.model.last))
            assert self.world.stream.delete(seq, False) == (seq in self.model.stored)
            self.model.remove(seq)

    @rule()
    def purge(self):
        assert self.world.stream.purge(None, 0, 0) == len(self.model.stored)
        self.model.purge()

    @rule(back=st.integers(1, 12))
    def truncate(self, back):
        if self.model.last:
            seq = max(0, self.model.last - back)
            self.change((TRUNCATE, seq, self.world.env.now, 0, 0, False, b"", b"", b"", b""))
            self.model.truncate(seq)

    def change(self, change):
        assert self.world.env.apply(self.world.stream, change) == 0

    @rule(data=st.data())
    def reset(self, data):
        seq = data.draw(st.integers(0, self.model.last + 1))
        assert self.consumer.reset(seq) == self.model.reset(seq)
        self.world.env.run()
        self.seen = []

    @precondition(
        lambda self: self.model.retention != INTEREST
    )  # counts are made at the stream's start
    @rule()
    def restart(self):
        state = self.consumer.encode_state()
        self.consumer.close(False)
        with open(os.path.join(self.folder.name, "o.dat"), "wb") as f:
            f.write(state)
        self.consumer = self.world.consumer(self.folder.name, **self.params)
        self.world.env.advance(0)
        self.model.restart()

    @invariant()
    def agree(self):
        if not hasattr(self, "model"):
            return
        m, s = self.model, self.consumer.state()
        assert s.num_pending == len(m.undelivered())
        assert s.num_ack_pending == len(m.pending)
        assert (s.floor_consumer, s.floor_stream) == m.floor
        assert (s.delivered_consumer, s.delivered_stream) == (m.dseq - 1, m.delivered)
        assert s.num_redelivered == m.redelivered()
        assert self.world.stream.state().messages == len(m.stored)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.stream.close(True)
            assert self.world.env.timers == 0 and self.world.env.subscriptions == []
        self.folder.cleanup()


TestConsumer = ConsumerMachine.TestCase
TestConsumer.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
