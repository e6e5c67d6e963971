"""A consumer of three members, whose leader changes: what it delivers and answers is agreed on, and
members that applied the same stand alike."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cext.consumer import Member, get_entry
from tests.cext.stream import TestEnv
from tests.model.test_consumer import FILTERS, SUBJECTS, matches
from tests.model.test_consumer_entries import ACKED, DELIVERED, SKIP, Model
from tests.unit.consumer_states import read_state
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    SECOND,
    World,
    tokens,
)

STARTED = 1_700_000_000 * SECOND
ACKS = (b"", b"+ACK", b"+TERM", b"-NAK", b"-NAK 3s", b"+WPI", b"+NXT")


class Server:
    """One member, and its stream, which holds what all streams hold."""

    def __init__(self, params):
        self.world = World(TestEnv(now=STARTED))
        self.handle = self.world.consumer(**params)
        self.member = Member(self.handle)
        self.model = Model(params["ack_policy"], params["max_deliver"])
        self.applied = 0

    def apply(self, log):
        for entry in log[self.applied :]:
            said = get_entry(entry)
            assert said is not None and self.member.apply(entry) == 0
            if said["op"] in (DELIVERED, ACKED, SKIP):
                names = ("op", "dseq", "sseq", "deliveries", "sent")
                self.model.apply(*(said.get(name, 0) for name in names))
        self.applied = len(log)
        self.world.env.run()

    def state(self):
        return read_state(self.handle.encode_state())


class GroupMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from((ACK_EXPLICIT, ACK_EXPLICIT, ACK_ALL, ACK_NONE)),
        filters=st.sampled_from(FILTERS),
        max_deliver=st.sampled_from((-1, -1, 2)),
        max_ack_pending=st.sampled_from((2, 1000)),
        max_waiting=st.sampled_from((2, 512)),
    )
    def begin(self, policy, filters, max_deliver, max_ack_pending, max_waiting):
        self.params = dict(
            ack_policy=policy,
            filters=filters,
            max_deliver=max_deliver,
            max_ack_pending=max_ack_pending,
            max_waiting=max_waiting,
            ack_wait=4 * SECOND,
        )
        self.servers = [Server(self.params) for _ in range(3)]
        self.log: list[bytes] = []
        self.stored: dict[int, bytes] = {}
        self.last = 0
        self.seen: list[tuple[bytes, ...]] = []  # of what was delivered
        self.acked: set[int] = set()  # what was answered so
        self.asked: dict[bytes, int] = {}  # double acks that are not answered
        self.leads(self.servers[0])

    def leads(self, server):
        server.apply(self.log)
        self.leader = server
        self.asked = {}
        server.member.lead()
        self.look()

    def look(self):
        """At what the leader sends."""
        self.leader.world.env.run()
        for message in self.leader.world.env.take():
            if message[0] in self.asked:
                self.acked.add(self.asked.pop(message[0]))
            elif message[2].startswith(b"$JS.ACK."):
                deliveries, seq, dseq, *_ = tokens(message)
                agreed = [get_entry(entry) or {} for entry in self.log]
                assert any(
                    e["op"] == DELIVERED
                    and (e["dseq"], e["sseq"], e["deliveries"]) == (dseq, seq, deliveries)
                    for e in agreed
                )
                assert seq not in self.acked, "what was acked came again"
                self.seen.append(message)

    @rule(subject=st.sampled_from(SUBJECTS))
    def publish(self, subject):
        for server in self.servers:
            server.world.env.inject(subject, b"data")
        self.last += 1
        self.stored[self.last] = subject
        self.look()

    @rule(data=st.data())
    def remove(self, data):
        if self.stored:
            seq = data.draw(st.sampled_from(sorted(self.stored)))
            for server in self.servers:
                assert server.world.stream.delete(seq, False)
            del self.stored[seq]
            self.look()

    @rule(keep=st.integers(0, 3))
    def purge(self, keep):
        for server in self.servers:
            server.world.stream.purge(None, 0, keep)
        for seq in sorted(self.stored)[: max(0, len(self.stored) - keep)]:
            del self.stored[seq]
        self.look()

    @rule(batch=st.integers(1, 5), waits=st.booleans())
    def pull(self, batch, waits):
        said = b',"expires":9000000000' if waits else b',"no_wait":true'
        to = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
        self.leader.world.env.inject(to, b'{"batch":%d%s}' % (batch, said), b"inbox")
        self.look()

    @rule(data=st.data(), body=st.sampled_from(ACKS), double=st.booleans())
    def ack(self, data, body, double):
        if self.seen and self.params["ack_policy"] != ACK_NONE:
            message = data.draw(st.sampled_from(self.seen))
            reply = b""
            if double and body in (b"", b"+ACK"):
                reply = b"acked.%d" % len(self.asked)
                self.leader.world.env.listen(reply)
                if reply not in self.asked:
                    self.asked[reply] = tokens(message)[1]
            elif body == b"+NXT":
                reply = b"inbox"
            self.leader.world.env.inject(message[2], body, reply)
            self.look()

    @rule(n=st.integers(1, 9))
    def agree(self, n):
        """The next proposals are committed."""
        proposed = self.leader.member.proposed
        self.log += proposed[:n]
        del proposed[:n]
        self.leader.apply(self.log)
        self.look()

    @rule(which=st.integers(0, 2))
    def hear(self, which):
        """A member hears of what was committed."""
        if self.servers[which] is not self.leader:
            self.servers[which].apply(self.log)
            assert self.servers[which].world.env.take() == []

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds):
        for server in self.servers:
            server.world.env.advance(seconds * SECOND)
        self.look()

    @rule(which=st.integers(0, 2), kept=st.integers(0, 9))
    def hand_over(self, which, kept):
        """Another member leads, or the same one again; of what was proposed some was committed."""
        before = self.leader
        self.log += before.member.proposed[:kept]
        before.member.follow()
        before.world.env.take()
        del before.member.proposed[:]
        self.leads(self.servers[which])
        heard = before.world.env.subscriptions
        assert before is self.leader or not any(b".MSG.NEXT." in s or b"ACK" in s for s in heard)

    @invariant()
    def all_stand_as_the_log_says(self):
        for server in getattr(self, "servers", ()):
            state, model = server.state(), server.model.state()
            model = model._replace(
                pending={seq: (dseq, sent // SECOND) for seq, (dseq, sent) in model.pending.items()}
            )
            assert state.near(model), (state, model)

    def teardown(self):
        """In the end each message that is not acked comes again, and no other."""
        if not hasattr(self, "servers"):
            return
        self.hand_over(1, 0)
        held = set(self.leader.state().pending)
        position = self.leader.state().delivered[1]
        rest = {
            seq
            for seq, subject in self.stored.items()
            if seq > position and matches(self.params["filters"], subject)
        }
        wanted = (held & self.stored.keys()) | rest
        self.seen = []
        for _ in range(len(wanted) + 8):
            self.pull(5, True)
            while self.leader.member.proposed:
                self.agree(100)
            for message in self.seen:
                self.leader.world.env.inject(message[2], b"+ACK")
            self.advance(5)
        came = {tokens(message)[1] for message in self.seen}
        if self.params["max_deliver"] == -1 and self.params["ack_policy"] != ACK_ALL:
            assert came == wanted
        if self.params["max_deliver"] == -1:
            assert not self.leader.state().pending
            assert self.leader.state().delivered[1] >= max(wanted, default=0)
        assert came <= wanted
        for server in self.servers:
            server.apply(self.log)
            assert server.state().near(self.leader.state())
        for server in self.servers:
            server.world.stream.close(False)
            assert server.world.env.timers == 0 and server.world.env.subscriptions == []


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
