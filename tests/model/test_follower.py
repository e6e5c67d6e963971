"""A consumer that is handed from stream to stream, against the model of one: a follower gets what
the leader's stream decided and what its log took, in step or late, and then takes the lead."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.cext.consumer import PyLead
from tests.cext.stream import TestEnv
from tests.model.test_consumer import FILTERS, LIMITS_OF_CONSUMERS, SUBJECTS, ConsumerMachine, Model
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    FILE,
    INTEREST,
    LIMITS,
    SECOND,
    WORKQUEUE,
    World,
    consumer_params,
)

if TYPE_CHECKING:
    from tests.cext.stream import Change

STARTED = 1_700_000_000 * SECOND


class Server:
    """A stream with a consumer in a folder of its own."""

    def __init__(
        self, folder: Path, now: int, retention: int, params: dict[str, Any], leads: bool
    ) -> None:
        folder.mkdir(parents=True)
        self.env = TestEnv(now=now)
        self.env.start_commits()
        self.world = World(self.env, str(folder), active=False, storage=FILE, retention=retention)
        self.changes: list[Change] = []
        self.records: list[bytes] = []
        self.consumer = self.world.consumer(str(folder / "C"), **params)
        self.lead = PyLead(self.world.stream, self.records)
        self.env.record(self.world.stream, self.changes)
        self.fed = (0, 0)
        if leads:
            self.lead.lead()

    def settle(self) -> None:
        self.world.stream.wait_durable()
        self.env.poll()
        self.env.run()

    def close(self) -> None:
        self.world.stream.close(False)
        assert self.env.timers == 0 and self.env.subscriptions == []
        self.env.stop_commits()


class FollowerMachine(ConsumerMachine):
    """The rules of a single consumer, and what befalls it in company."""

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
        self.retention = retention
        self.started = 0
        self.changes = []  # all that leaders decided, and what their logs took
        self.records = []
        self.leader = self.start(STARTED, True)
        self.follower = self.start(STARTED, False)
        self.model = Model(retention, **self.params)
        self.seen = []
        self.use(self.leader)

    def start(self, now, leads):
        self.started += 1
        folder = Path(self.folder.name) / str(self.started)
        return Server(folder, now, self.retention, self.params, leads)

    def use(self, server):
        self.world = server.world
        self.consumer = server.consumer

    def feed(self):
        """The follower comes to where the leader is."""
        leader, follower = self.leader, self.follower
        leader.settle()
        leader.lead.flush()
        self.changes += leader.changes
        self.records += leader.records
        leader.changes.clear()
        leader.records.clear()
        follower.env.advance(leader.env.now - follower.env.now)
        for change in self.changes[follower.fed[0] :]:
            follower.env.apply(follower.world.stream, change)
        for entry in self.records[follower.fed[1] :]:
            assert follower.lead.apply(entry) == 0
        follower.fed = (len(self.changes), len(self.records))
        follower.settle()
        assert follower.env.take() == []
        assert follower.env.subscriptions == []

    @rule(subject=st.sampled_from(SUBJECTS))
    def publish(self, subject):
        self.world.env.inject(subject, b"data")
        self.model.publish(subject)
        self.leader.settle()

    def change(self, change):
        self.leader.changes.append(change)
        super().change(change)
        self.leader.settle()

    @rule(limits=LIMITS_OF_CONSUMERS)
    def update(self, limits):
        self.feed()
        super().update(limits)
        self.follower.consumer.update(consumer_params(**self.params))
        self.leader.settle()

    @rule()
    def in_step(self):
        self.feed()
        states = [s.consumer.state() for s in (self.leader, self.follower)]
        ours, theirs = (s._replace(delivered_ts=0, floor_ts=0) for s in states)
        assert ours == theirs

    @rule(again=st.integers(0, 5))
    def hand_over(self, again):
        """The leader goes; the follower leads, and another one follows it from the start.

        again: so many of the last records come twice."""
        self.feed()
        for entry in self.records[len(self.records) - again :]:
            assert self.follower.lead.apply(entry) == 0
        self.leader.close()
        self.leader = self.follower
        self.leader.lead.lead()
        self.leader.env.advance(0)
        self.leader.settle()
        self.use(self.leader)
        self.model.restart()
        self.follower = self.start(self.leader.env.now, False)

    @rule()
    def step_down_and_lead_again(self):
        self.leader.lead.follow()
        assert not any(b"MSG.NEXT" in s or b"ACK" in s for s in self.leader.env.subscriptions)
        self.leader.lead.lead()
        self.leader.env.advance(0)

    # A rule of a consumer alone, which this machine does not have.
    restart = None  # type: ignore[assignment]

    def teardown(self):
        if hasattr(self, "leader"):
            self.leader.close()
            self.follower.close()
        self.folder.cleanup()


TestFollower = FollowerMachine.TestCase
TestFollower.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
