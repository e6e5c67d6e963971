"""What a stream holds that keeps messages until they are acked, beside the model of its consumer.

After each step, restarts and kills included, the stream holds what the model says and nothing else.
What a kill may undo is an ack that was not confirmed: such a message may be there again, where
the consumer waits for its ack again, too.
"""

import json
from typing import Any

from tests.client.raw import RawApp
from tests.fault.delivery_model import FILTERS, HOUR, SECONDS_TO_COME, History
from tests.servers import Server


class Kept(History):
    """A stream whose messages go when they are acked."""

    def __init__(self, server: Server, seed: int) -> None:
        self.subjects: dict[int, str] = {}
        """Of all that was ever stored."""
        self.unsure: set[int] = set()
        """Acked since the server last confirmed something."""
        super().__init__(server, seed)

    def held(self) -> set[int]:
        """What the stream holds."""
        state = self.api("STREAM.INFO.S", {"deleted_details": True})["state"]
        found = {*range(max(state["first_seq"], 1), state["last_seq"] + 1)}
        found -= {*(state.get("deleted") or ())}
        assert len(found) == state["messages"], state
        return found

    def needed(self, seq: int) -> bool:
        """Whether the consumer has or may have it."""
        if seq in self.pending or seq in self.given_up:
            return True
        return seq >= self.at and self.wanted(self.subjects[seq])

    def acked(self, seq: int) -> None:
        before = {*self.pending, *self.given_up}
        super().acked(seq)
        done = before - {*self.pending, *self.given_up}
        self.unsure |= done
        self.release(done)

    def release(self, done: set[int]) -> None:
        """The consumer needs these no more."""
        self.stored = {s: of for s, of in self.stored.items() if s not in done}

    def confirmed(self) -> None:
        super().confirmed()
        self.unsure.clear()

    def agree(self) -> None:
        self.subjects |= self.stored
        self.release(set())
        super().agree()
        held = self.held()
        assert held == {*self.stored}, (held - {*self.stored}, {*self.stored} - held)

    def come_back(self) -> None:
        unsure = {*self.unsure}
        super().come_back()
        held = self.held()
        lost = {*self.stored} - held
        back = held - {*self.stored}
        assert not lost, f"{lost} lost"
        assert back <= unsure, f"{back - unsure} came back"
        kept = {seq for seq in back if not self.needed(seq)}
        assert not kept, f"{kept} stay for ever"
        assert {*self.pending} <= held, f"{ {*self.pending} - held } are waited for, and gone"
        self.stored = {seq: self.subjects[seq] for seq in sorted(held)}

    def finish(self) -> None:
        """What was given up stays until it is acked after all."""
        super().finish()
        for seq in sorted(self.given_up):
            self.say(seq, (b"+ACK",))
            self.acked(seq)
            self.agree()


class WorkQueue(Kept):
    """What no consumer asks for stays."""

    retention = "workqueue"


class Interest(Kept):
    """What nobody needs goes; there is a second consumer, whose acks are all confirmed."""

    retention = "interest"
    more_steps = ("second",) * 4

    def __init__(self, server: Server, seed: int) -> None:
        self.other = RawApp(server.port)
        self.second_at = 1
        self.second_last = 0
        self.second_sure = 0
        self.second_pending: dict[int, str] = {}
        """Their ack subjects."""
        super().__init__(server, seed)
        self.second_filters: list[str] = self.random.choice(FILTERS)
        config = {
            "durable_name": "d",
            "ack_policy": "explicit",
            "ack_wait": HOUR,
            "filter_subjects": self.second_filters,
        }
        self.api("CONSUMER.DURABLE.CREATE.S.d", {"stream_name": "S", "config": config})

    def needed(self, seq: int) -> bool:
        wanted = not self.second_filters or self.subjects[seq] in self.second_filters
        second = seq in self.second_pending or (seq >= self.second_at and wanted)
        return second or super().needed(seq)

    def release(self, done: set[int]) -> None:
        """All that nobody needs, for whatever reason."""
        self.stored = {s: of for s, of in self.stored.items() if self.needed(s)}

    def second_new(self) -> list[int]:
        wanted = self.second_filters
        found = [s for s, of in self.stored.items() if not wanted or of in wanted]
        return sorted(s for s in found if s >= self.second_at)

    def second(self) -> None:
        self.second_takes(self.random.randint(0, 5))
        done = [seq for seq in sorted(self.second_pending) if self.random.random() < 0.5]
        for seq in done:
            answer = self.other.request(self.second_pending.pop(seq), b"+ACK")
            assert not answer.status and not answer.payload, answer
        if done:
            self.confirmed()

    def second_takes(self, batch: int) -> None:
        if batch == 0:
            return
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        self.other.publish("$JS.API.CONSUMER.MSG.NEXT.S.d", body, reply=self.other.inbox())
        for seq in self.second_new()[:batch]:
            frame = self.other.message(SECONDS_TO_COME)
            assert not frame.status and int(frame.reply.split(".")[5]) == seq, (frame, seq)
            self.second_pending[seq] = frame.reply
            self.second_last = seq
            self.second_at = seq + 1
            batch -= 1
        if batch:
            assert self.other.message(SECONDS_TO_COME).status == "404 No Messages"

    def confirmed(self) -> None:
        super().confirmed()
        self.second_sure = self.second_last

    def filters(self) -> None:
        """Not those that leave out what is pending: the stream drops it, it is missed when it is
        due."""
        held = {self.subjects[seq] for seq in (*self.pending, *self.given_up)}
        self.put(filter_subjects=self.random.choice([f for f in FILTERS if not f or held <= {*f}]))

    def delete(self) -> None:
        super().delete()
        gone = {seq for seq in self.second_pending if seq not in self.stored}
        for seq in gone:
            del self.second_pending[seq]

    def come_back(self) -> None:
        self.other.close()
        self.other = RawApp(self.server.port)
        sure = self.second_sure
        self.second_return(sure)
        super().come_back()

    def second_return(self, sure: int) -> None:
        app = RawApp(self.server.port)
        about: Any = app.api("CONSUMER.INFO.S.d")
        answer: Any = app.api("JSSERVER.CONSUMER.PENDING.S.d")
        app.close()
        found = {one["seq"] for one in answer.get("messages") or ()}
        last = about["delivered"]["stream_seq"]
        assert sure <= last <= self.second_last
        assert found == {seq for seq in self.second_pending if seq <= last}
        self.second_pending = {seq: self.second_pending[seq] for seq in found}
        self.second_last = last
        self.second_at = last + 1

    def finish(self) -> None:
        """Nothing is left."""
        super().finish()
        while self.second_new() or self.second_pending:
            self.second()
            self.agree()
        assert not self.stored
        self.other.close()


def on(retention: type[Kept], kind: type[History]) -> type[History]:
    """Histories of this kind of consumer on a stream of this retention."""
    return type(
        f"{retention.__name__}{kind.__name__}",
        (retention, kind),
        {
            "kind": f"{kind.kind}-{retention.retention}",
            "more_steps": (*retention.more_steps, *kind.more_steps),
        },
    )
