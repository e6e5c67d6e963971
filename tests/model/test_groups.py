"""Priority groups against a simple model: random requests, publishes, acks, time and admins."""

import json
import re

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.stream_world import ACK_EXPLICIT, SECOND, World, status, tokens

PRIORITIZED, OVERFLOW, PINNED = "prioritized", "overflow", "pinned_client"
TIMEOUT = 5
"""Seconds and a bit, so that nothing else happens at the same moment."""
PIN = re.compile(rb"Nats-Pin-Id: ([^\r]*)")
NONE, CURRENT, OLD, WRONG = "none", "current", "old", "wrong"


class Request:
    def __init__(self, reply, batch, priority, least, least_unacked, pin, expires):
        self.reply, self.batch, self.priority = reply, batch, priority
        self.least, self.least_unacked = least, least_unacked
        self.pin, self.expires = pin, expires


class Model:
    """Who gets which message; pins are counted from 1, 0 stands for none and -1 for another one."""

    def __init__(self, policy, most):
        self.policy, self.most = policy, most
        self.queue = []
        self.waiting = []  # sequences to come
        self.unacked = []
        self.last = 0
        self.now = 0
        self.pin = 0
        self.pins = 0
        self.pin_ends = 0
        self.said = []  # (reply, sequence or status, pin)

    def publish(self):
        self.last += 1
        self.waiting.append(self.last)
        self.deliver()

    def ask(self, request):
        if self.policy == PINNED and self.pin:
            if request.pin == self.pin:
                self.pin_ends = self.now + TIMEOUT
            elif request.pin:
                self.said.append((request.reply, "423 Nats-Pin-Id mismatch", 0))
                return
        self.enqueue(request)
        self.deliver()

    def enqueue(self, request):
        at = len(self.queue)
        if self.policy == PRIORITIZED:
            while at and self.queue[at - 1].priority > request.priority:
                at -= 1
        self.queue.insert(at, request)

    def turn(self, q):
        if self.policy == OVERFLOW and (q.least > 0 or q.least_unacked > 0):
            enough = 0 < q.least <= len(self.waiting)
            return "yes" if enough or 0 < q.least_unacked <= len(self.unacked) else "later"
        if self.policy != PINNED or q.pin == self.pin:
            return "yes"
        return "never" if q.pin else "later"

    def pick(self):
        for _ in range(len(self.queue)):
            q = self.queue.pop(0)
            turn = self.turn(q)
            if turn == "later":
                self.queue.append(q)
            elif turn == "never":
                self.said.append((q.reply, "423 Nats-Wrong-Pin-Id", 0))
            else:
                return q
        return None

    def deliver(self):
        while self.waiting and self.queue and len(self.unacked) < self.most:
            q = self.pick()
            if q is None:
                return
            if self.policy == PINNED and not self.pin:
                self.pins += 1
                self.pin = q.pin = self.pins
                self.pin_ends = self.now + TIMEOUT
            seq = self.waiting.pop(0)
            self.unacked.append(seq)
            self.said.append((q.reply, seq, self.pin))
            q.batch -= 1
            if q.batch:
                self.enqueue(q)

    def ack(self, seq):
        self.unacked.remove(seq)
        self.deliver()

    def advance(self, seconds):
        for _ in range(seconds):
            self.now += 1
            if self.pin and self.pin_ends < self.now:
                self.unpin()
            for q in [q for q in self.queue if q.expires and q.expires <= self.now]:
                self.said.append((q.reply, "408 Request Timeout", 0))
                self.queue.remove(q)

    def unpin(self):
        self.pin = 0
        self.deliver()


def by_reply(messages):
    """What each request heard: what several hear at one moment has no order."""
    return sorted(messages, key=lambda m: m[0])


class GroupMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from((PRIORITIZED, OVERFLOW, PINNED)), most=st.sampled_from((3, 1000))
    )
    def begin(self, policy, most):
        self.world = World()
        self.consumer = self.world.consumer(
            ack_policy=ACK_EXPLICIT,
            ack_wait=10_000 * SECOND,
            max_ack_pending=most,
            priority_policy=policy,
            priority_groups=(b"A", b"B"),
            priority_timeout=TIMEOUT * SECOND + 1,
        )
        self.model = Model(policy, most)
        self.ids = []  # of pins, in order
        self.acks = {}
        self.asked = 0

    @rule()
    def publish(self):
        self.world.env.inject(b"s.a", b"data")
        self.model.publish()

    @rule(
        batch=st.integers(1, 3),
        priority=st.integers(0, 9),
        least=st.integers(-1, 4),
        least_unacked=st.integers(-1, 4),
        pin=st.sampled_from((NONE, NONE, CURRENT, OLD, WRONG)),
        expires=st.sampled_from((0, 1, 3, 60)),
        group=st.sampled_from("AB"),
    )
    def ask(self, batch, priority, least, least_unacked, pin, expires, group):
        policy = self.model.policy
        reply = b"r%d" % self.asked
        self.asked += 1
        body = {"batch": batch, "group": group, "expires": expires * SECOND}
        number = 0
        if policy == PRIORITIZED:
            body["priority"] = priority
        elif policy == OVERFLOW:
            body["min_pending"] = least
            body["min_ack_pending"] = least_unacked
        else:
            number = {CURRENT: self.model.pin, OLD: self.model.pin - 1, WRONG: -1}.get(pin, 0)
            if pin == OLD and number < 1:
                number = 0
            if number:
                body["id"] = self.ids[number - 1].decode() if number > 0 else "x" * 22
        self.world.env.listen(reply)
        end = self.model.now + expires if expires else 0
        request = Request(reply, batch, priority, least, least_unacked, number, end)
        self.world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(body).encode(), reply)
        self.model.ask(request)

    @rule(data=st.data())
    def ack(self, data):
        if self.acks:
            seq = data.draw(st.sampled_from(sorted(self.acks)))
            self.world.env.inject(self.acks.pop(seq), b"")
            self.model.ack(seq)

    @rule(seconds=st.integers(1, 6))
    def advance(self, seconds):
        for _ in range(seconds):
            self.world.env.advance(SECOND)
            self.hear()
            self.model.advance(1)
            self.agree()

    @rule()
    def unpin(self):
        if self.model.policy == PINNED:
            self.consumer.unpin()
            self.world.env.run()
            self.model.unpin()

    def hear(self):
        self.heard = []
        for m in self.world.env.take():
            if not m[2].startswith(b"$JS.ACK."):
                if m[3]:
                    self.heard.append((m[0], status(m), 0))
                continue
            seq = tokens(m)[1]
            self.acks[seq] = m[2]
            found = PIN.search(m[3])
            if found and found[1] not in self.ids:
                self.ids.append(found[1])
            self.heard.append((m[0], seq, self.ids.index(found[1]) + 1 if found else 0))

    @invariant()
    def agree(self):
        if not hasattr(self, "model"):
            return
        if self.world.env.sent:
            self.hear()
        said, self.model.said = self.model.said, []
        heard, self.heard = getattr(self, "heard", []), []
        assert by_reply(heard) == by_reply(said)
        state = self.consumer.state()
        assert state.num_waiting == len(self.model.queue)
        assert state.num_ack_pending == len(self.model.unacked)
        assert state.num_pending == len(self.model.waiting)
        assert bool(state.pinned_ts) == bool(self.model.pin)
        if self.model.pin:
            assert state.pinned_id == self.ids[self.model.pin - 1]

    def teardown(self):
        if hasattr(self, "world"):
            self.world.stream.close(True)
            assert self.world.env.timers == 0 and self.world.env.subscriptions == []


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
