"""Rows under way against a model: whatever is sent, acked, refused or lost, none stays behind."""

import re

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jsserver_spark.cext.columns import Outbox
from jsserver_spark.write import outgoing

INBOX = b"_INBOX.x."
MAX_ROWS = 7
FRAME = re.compile(rb"PUB s _INBOX\.x\.(\d+) (\d+)\r\n")
ACK = '{"stream":"S","seq":1}'
REFUSAL = '{"error":{"code":503,"err_code":10008}}'


class Rows(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.out = Outbox(INBOX, MAX_ROWS, 400, 500)
        self.state: dict[int, str] = {}
        self.sent_at: dict[int, int] = {}
        self.told: list[int] = []
        self.half = b""
        self.now = 1

    # ---- what the publisher does ---------------------------------------------------------------

    @precondition(lambda self: self.out.taken)
    @rule(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=6))
    def load(self, sizes: list[int]) -> None:
        data = pa.array([b"x" * size for size in sizes], pa.binary())
        outgoing.load(
            self.out, pa.RecordBatch.from_pydict({"subject": ["s"] * len(sizes), "data": data})
        )

    @rule(most=st.integers(1, 300))
    def fill(self, most: int) -> None:
        before = self.out.next_row
        assert self.out.fill(most) == 0
        self.state.update(dict.fromkeys(range(before, self.out.next_row), "new"))

    @rule(limit=st.integers(1, 300), part=st.floats(0, 1))
    def send(self, limit: int, part: float) -> None:
        self.now += 1
        view = self.out.to_send(limit)
        if view is not None:
            self.wire(view, max(int(len(view) * part), 1))

    @rule()
    def send_all(self) -> None:
        while (view := self.out.to_send(100)) is not None:
            self.wire(view, len(view))
        assert self.half == b""
        assert "new" not in self.state.values()

    @rule()
    def lose(self) -> None:
        self.out.lost()
        self.half = b""
        self.told = []
        self.again_to_send({"sent", "refused"}, self.now)

    @rule(before=st.integers(0, 100))
    def send_again(self, before: int) -> None:
        found = self.out.again(before)
        assert found == (-1 if self.half else self.again_to_send({"sent"}, before))

    @rule()
    def send_refused_again(self) -> None:
        found = self.out.refused_again()
        assert found == (-1 if self.half else self.again_to_send({"refused"}, self.now))

    @rule()
    def refusals(self) -> None:
        assert self.out.refusals() == [(n, REFUSAL.encode()) for n in self.told]
        self.told = []

    # ---- what the server says ------------------------------------------------------------------

    @rule(n=st.integers(0, 60), times=st.integers(1, 2))
    def ack(self, n: int, times: int) -> None:
        n = self.row(n)
        self.say(n, ACK, times)
        if n in self.sent_at:
            self.state[n] = "acked"

    @rule(n=st.integers(0, 60))
    def refuse(self, n: int) -> None:
        n = self.row(n)
        self.say(n, REFUSAL)
        if n in self.sent_at and self.state[n] != "acked":
            self.state[n] = "refused"
            self.told.append(n)

    @rule()
    def ping(self) -> None:
        assert self.out.received(b"PING\r\n", 6)

    # ---- the model -----------------------------------------------------------------------------

    def row(self, n: int) -> int:
        """Mostly one that is under way."""
        return self.out.first_row + n % (MAX_ROWS + 2)

    def say(self, n: int, text: str, times: int = 1) -> None:
        said = b"MSG %s%d 1 %d\r\n%s\r\n" % (INBOX, n, len(text), text.encode()) * times
        assert self.out.received(said, len(said))

    def wire(self, view: memoryview, size: int) -> None:
        """Sends `size` bytes of the view; a row is sent with the last byte of its frame."""
        data = bytes(view[:size])
        pong = not self.half and b"PONG\r\n".endswith(bytes(view))
        self.out.sent(size, self.now)
        self.half += b"" if pong else data
        while (found := FRAME.match(self.half)) is not None:
            end = found.end() + int(found[2]) + 2
            if len(self.half) < end:
                return
            n = int(found[1])
            assert self.state[n] in ("new", "acked")  # acked while it was sent again
            if self.state[n] == "new":
                self.state[n] = "sent"
            self.sent_at[n] = self.now
            self.half = self.half[end:]

    def again_to_send(self, states: set[str], before: int) -> int:
        found = [n for n, s in self.state.items() if s in states and self.sent_at[n] <= before]
        self.state.update(dict.fromkeys(found, "new"))
        return len(found)

    @invariant()
    def counts(self) -> None:
        assert self.out.acked == sum(s == "acked" for s in self.state.values())
        assert self.out.next_row == len(self.state)
        assert all(self.state[n] == "acked" for n in range(self.out.first_row))

    def teardown(self) -> None:
        """A new connection takes whatever is left."""
        self.lose()
        self.send_all()
        for n in range(self.out.first_row, self.out.next_row):
            assert self.state[n] in ("sent", "acked")
            self.ack(n - self.out.first_row, 1)
        self.out.to_send(1)
        assert self.out.under_way == 0


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
