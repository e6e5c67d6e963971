"""Entries of a consumer's group against what nats-server's members make of them: also entries that
no leader in its right mind proposes, late ones, and those that come twice."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.consumer import Member, put_entry
from tests.cext.stream import TestEnv
from tests.unit.consumer_states import State, read_state
from tests.unit.stream_world import ACK_ALL, ACK_EXPLICIT, ACK_NONE, SECOND, World

DELIVERED, ACKED, SKIP, RESET = 7, 8, 10, 18
NOW = 1_800_000_000
MOST = 12

NUMBERS = st.integers(1, MOST)
ENTRIES = st.one_of(
    st.tuples(st.just(DELIVERED), NUMBERS, NUMBERS, st.integers(1, 4), st.integers(-9, 9)),
    st.tuples(st.just(ACKED), NUMBERS, NUMBERS),
    st.tuples(st.just(SKIP), st.just(0), NUMBERS),
    st.tuples(st.just(RESET), st.just(0), NUMBERS),
    st.tuples(st.just(DELIVERED)),  # the next message
    st.tuples(st.just(ACKED)),  # the oldest that is pending
)


class Model:
    """What a member keeps, in the most obvious way."""

    def __init__(self, policy: str, max_deliver: int) -> None:
        self.policy = policy
        self.max_deliver = max_deliver
        self.start(0)

    def start(self, seq: int) -> None:
        self.delivered, self.floor = [0, seq], [0, seq]
        self.pending: dict[int, tuple[int, int]] = {}
        self.redelivered: dict[int, int] = {}

    def sensible(self, entry: tuple[int, ...]) -> tuple[int, ...] | None:
        """The entry, if it is one; else one that a leader would propose now, or None."""
        if len(entry) > 1:
            return entry
        if entry[0] == DELIVERED:
            return DELIVERED, self.delivered[0] + 1, self.delivered[1] + 1, 1, 0
        if not self.pending:
            return None
        seq = min(self.pending)
        return ACKED, self.pending[seq][0], seq

    def apply(self, op: int, dseq: int, seq: int, deliveries: int = 0, sent: int = 0) -> None:
        if op == DELIVERED:
            self.deliver(dseq, seq, deliveries, sent)
        elif op == ACKED:
            self.ack(dseq, seq)
        elif op == RESET:
            self.start(seq - 1)
        elif seq - 1 > self.delivered[1]:
            self.delivered[1] = seq - 1
            if self.policy == ACK_NONE:
                self.floor[1] = seq - 1

    def deliver(self, dseq: int, seq: int, deliveries: int, sent: int) -> None:
        if dseq <= self.floor[0]:
            return
        new = seq > self.delivered[1]
        self.delivered = [max(self.delivered[0], dseq), max(self.delivered[1], seq)]
        if self.policy == ACK_NONE:
            self.floor = [self.delivered[0], max(self.floor[1], self.delivered[1])]
            return
        if new:
            self.pending[seq] = dseq, sent
        elif seq in self.pending:
            self.pending[seq] = self.pending[seq][0], sent
        if deliveries > 1:
            if 0 < self.max_deliver < deliveries:
                self.pending.pop(seq, None)
            self.redelivered[seq] = max(self.redelivered.get(seq, 0), deliveries - 1)

    def ack(self, dseq: int, seq: int) -> None:
        if self.policy == ACK_NONE:
            return
        self.redelivered.pop(seq, None)
        if dseq <= self.floor[0] or seq not in self.pending:
            return
        if self.policy == ACK_ALL:
            gap = seq - self.floor[1]
            every = gap > len(self.pending) or gap < 0
            self.floor = [min(dseq, self.delivered[0]), seq]
            for s in sorted(self.pending) if every else range(seq, seq - gap, -1):
                if s <= seq and self.pending and (s in self.pending or not every):
                    self.pending.pop(s, None)
                    self.redelivered.pop(s, None)
            return
        dseq = min(dseq, self.pending.pop(seq)[0])
        if not self.pending:
            self.floor = list(self.delivered)
        elif dseq == self.floor[0] + 1:
            self.floor = [dseq, seq]
            later = [s for s in sorted(self.pending) if s > seq]
            if later and self.delivered[0] > dseq:
                self.floor = [self.pending[later[0]][0] - 1, later[0] - 1]

    def state(self) -> State:
        delivered, floor = (self.delivered[0], self.delivered[1]), (self.floor[0], self.floor[1])
        return State(delivered, floor, dict(self.pending), dict(self.redelivered))


@settings(max_examples=200, deadline=None)
@given(
    policy=st.sampled_from((ACK_EXPLICIT, ACK_EXPLICIT, ACK_ALL, ACK_NONE)),
    max_deliver=st.sampled_from((-1, 1, 2)),
    entries=st.lists(ENTRIES, max_size=40),
)
def test_members_make_of_entries_what_nats_server_does(
    policy: str, max_deliver: int, entries: list[tuple[int, ...]]
) -> None:
    world = World(TestEnv(now=NOW * SECOND), active=False)
    handle = world.consumer(ack_policy=policy, max_deliver=max_deliver)
    member = Member(handle)
    model = Model(policy, max_deliver)
    for given_one in entries:
        entry = model.sensible(given_one)
        if entry is None or (policy == ACK_NONE and len(entry) > 3 and entry[3] > 1):
            continue
        if entry[0] == DELIVERED:
            entry = (*entry[:4], NOW + entry[4])
        model.apply(*entry)
        said = dict(zip(("op", "dseq", "sseq", "deliveries"), entry, strict=False))
        if entry[0] == DELIVERED:
            said["sent"] = entry[4] * SECOND
        assert member.apply(put_entry(said)) == 0
        assert read_state(handle.encode_state()) == model.state(), entry
    world.stream.close(False)
