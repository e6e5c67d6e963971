"""Atomic and fast batches, whole histories of them, beside a plain model of what they are."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cext.stream import TestEnv
from tests.unit.stream_world import FILE, MEMORY, SECOND, World, headers

SUBJECTS = (b"s.a", b"s.b", b"s.c")
SIZE_MAX = 8
OPEN_MAX = 3
SILENCE = 10 * SECOND


@dataclass
class Sent:
    """A message of an atomic batch that waits."""

    subject: bytes
    data: bytes
    asked: dict[str, Any]


@dataclass
class Batch:
    """An open one; of a fast one `last` is its last number, `told` that of its last ack."""

    heard: int
    messages: list[Sent] = field(default_factory=list)
    last: int = 0
    told: int = 0
    flow: int = 0
    flow_max: int = 0
    gaps: bool = False
    stored: int = 0


class Model:
    """What a stream holds, and what is open. Answers are words, error codes, or tuples."""

    def __init__(self, per_subject: int) -> None:
        self.per_subject = per_subject
        self.messages: dict[int, tuple[bytes, bytes]] = {}
        self.last = 0
        self.ids: dict[str, int] = {}
        self.atomic: dict[str, Batch] = {}
        self.fast: dict[str, Batch] = {}

    def restart(self) -> None:
        """What is open is forgotten, and the ids of what is not stored any more."""
        self.atomic = {}
        self.fast = {}
        self.ids = {id: seq for id, seq in self.ids.items() if seq in self.messages}

    def silent(self, now: int) -> None:
        for open_ones in (self.atomic, self.fast):
            for id, batch in list(open_ones.items()):
                if now - batch.heard >= SILENCE:
                    del open_ones[id]

    def last_of(self, subject: bytes) -> int:
        return max((seq for seq, m in self.messages.items() if m[0] == subject), default=0)

    def store(self, sent: Sent) -> int:
        self.last += 1
        self.messages[self.last] = (sent.subject, sent.data)
        if "id" in sent.asked:
            self.ids[sent.asked["id"]] = self.last
        if "rollup" in sent.asked:
            self.messages = {
                seq: m
                for seq, m in self.messages.items()
                if seq == self.last or (sent.asked["rollup"] == "sub" and m[0] != sent.subject)
            }
        here = [seq for seq, m in sorted(self.messages.items()) if m[0] == sent.subject]
        for seq in here[: -self.per_subject]:
            del self.messages[seq]
        return self.last

    def wrong(self, sent: Sent, before: list[Sent]) -> int:
        """The error of a message behind those of its batch, 0: none."""
        asked = sent.asked
        id = asked.get("id")
        if id and (id in self.ids or any(m.asked.get("id") == id for m in before)):
            return 10201
        if "last" in asked:
            if asked["last"] != self.last + len(before):
                return 10071
            if before:
                return 10164
        if "subject" in asked:
            if any(m.subject == sent.subject for m in before):
                return 10164
            if asked["subject"] != self.last_of(sent.subject):
                return 10071
        if asked.get("rollup") == "sub" and any(m.subject == sent.subject for m in before):
            return 10111
        if asked.get("rollup") == "all" and before:
            return 10111
        return 0

    def put(self, now: int, id: str, number: int, commit: str, sent: Sent) -> object:
        """The answer to a message of an atomic batch."""
        batch = self.atomic.get(id)
        if batch is None:
            if number != 1:
                return 10199 if (number - (commit == "eob")) % 2**64 > SIZE_MAX else 10176
            if len(self.atomic) == OPEN_MAX:
                return 10210
            batch = self.atomic[id] = Batch(now)
        batch.heard = now
        batch.last += 1
        if batch.last != number or (number == 1 and commit == "eob"):
            del self.atomic[id]
            return 10176
        if number - (commit == "eob") > SIZE_MAX:
            del self.atomic[id]
            return 10199
        if commit != "eob":
            batch.messages.append(sent)
        if not commit:
            return "staged"
        del self.atomic[id]
        for at, message in enumerate(batch.messages):
            if error := self.wrong(message, batch.messages[:at]):
                return error
        for message in batch.messages:
            self.store(message)
        return ("stored", self.last, len(batch.messages))

    # a fast one

    def flow_of(self, batch: Batch) -> list[object]:
        if batch.last < batch.told + batch.flow:
            return []
        batch.told += (batch.last - batch.told) // batch.flow * batch.flow
        share = min(batch.flow_max, max(500 // len(self.fast), 1))
        if batch.flow < share:
            batch.flow = min(batch.flow * 2, share)
        else:
            batch.flow = max(batch.flow // 2, share)
        return [("ack", batch.told, batch.flow)]

    def end(self, id: str, batch: Batch) -> list[object]:
        del self.fast[id]
        return [("stored", batch.stored, batch.last)]

    def feed(
        self, now: int, id: str, flow: int, gaps: bool, number: int, op: int, sent: Sent
    ) -> list[object]:
        """What a message of a fast batch is answered with."""
        batch = self.fast.get(id)
        if batch is None:
            if number != 1:
                return [10208]
            if len(self.fast) == OPEN_MAX:
                return [10211]
            batch = self.fast[id] = Batch(now, flow_max=flow, gaps=gaps)
            batch.flow = min(flow, 500) if len(self.fast) == 1 else 1
        batch.heard = now
        said: list[object] = []
        if op == 4:
            if number > batch.last:
                said.append(("gap", batch.last + 1, number + 1))
                if not batch.gaps:
                    return said + self.end(id, batch)
                batch.last = number
                if more := self.flow_of(batch):
                    return said + more
            return [*said, ("ack", batch.told, batch.flow)]
        if number != batch.last + 1:
            if number > batch.last:
                said.append(("gap", batch.last + 1, number))
            if number <= batch.last or not batch.gaps:
                return said + self.end(id, batch)
        if op == 3:
            batch.last = number - 1
            return said + self.end(id, batch)
        batch.last = number
        if number == 1 and op != 2:
            said.append(("ack", 0, batch.flow))
        error = self.wrong(sent, [])
        if error == 10201:
            said += self.flow_of(batch)
            if op != 2:
                return said
            if not batch.gaps and batch.last == 1:
                del self.fast[id]
                return [*said, ("duplicate", self.ids[sent.asked["id"]], number)]
            return said + self.end(id, batch)
        if error:
            if not batch.gaps and batch.last == 1:
                del self.fast[id]
                return [*said, error]
            said.append(("err", number, error))
            if batch.gaps and op != 2:
                return said
            batch.last -= 1
            return said + self.end(id, batch)
        batch.stored = self.store(sent)
        return said + (self.end(id, batch) if op == 2 else self.flow_of(batch))


def heard(data: bytes) -> object:
    """An answer as the model says it."""
    if not data:
        return "staged"
    answer = json.loads(data)
    match answer.get("type"):
        case "ack":
            return ("ack", answer["seq"], answer["msgs"])
        case "gap":
            return ("gap", answer["last_seq"], answer["seq"])
        case "err":
            return ("err", answer["seq"], answer["error"]["err_code"])
    if "error" in answer:
        return answer["error"]["err_code"]
    return ("duplicate" if "duplicate" in answer else "stored", answer["seq"], answer["count"])


class Pair:
    """A stream and its model."""

    def __init__(self, seed: int, storage: int, directory: Any) -> None:
        self.chance = random.Random(seed)
        self.storage = storage
        self.directory = directory if storage == FILE else None
        self.per_subject = self.chance.choice([2, 5, 100])
        self.model = Model(self.per_subject)
        self.world: World
        self.start(TestEnv())

    def start(self, env: TestEnv) -> None:
        env.limit_batches(per_stream=OPEN_MAX, size=SIZE_MAX)
        if self.storage == FILE:
            env.start_commits()
        self.world = World(
            env,
            self.directory,
            storage=self.storage,
            allow_rollup_hdrs=True,
            allow_atomic=True,
            allow_batched=True,
            max_msgs_per_subject=self.per_subject,
            duplicate_window=3600 * SECOND,
        )

    def restart(self) -> None:
        env = self.world.env
        self.world.stream.close(False)
        env.stop_commits()
        self.start(TestEnv(now=env.now))
        self.model.restart()
        assert env.open_batches == (0, 0, 0)
        self.plain(id="start")  # ids are read when the first one asks, of what is there by then

    def message(self) -> tuple[Sent, dict[str, object]]:
        """Some message, and its headers."""
        pick, model = self.chance, self.model
        asked: dict[str, Any] = {}
        lines: dict[str, object] = {}
        subject = pick.choice(SUBJECTS)
        if pick.random() < 0.15:
            asked["id"] = lines["Nats_Msg_Id"] = f"id{pick.randrange(40)}"
        near = pick.random()
        if near < 0.08:
            asked["last"] = lines["Nats_Expected_Last_Sequence"] = model.last + pick.choice(
                [0, 0, 1]
            )
        elif near < 0.16:
            last = model.last_of(subject)
            asked["subject"] = lines["Nats_Expected_Last_Subject_Sequence"] = last or 0
        elif near < 0.2:
            asked["rollup"] = lines["Nats_Rollup"] = pick.choice(["sub", "all"])
        return Sent(subject, b"%d" % pick.getrandbits(40), asked), lines

    def answers(self) -> list[object]:
        self.world.stream.wait_durable()
        self.world.env.run()
        return [heard(m[4]) for m in self.world.env.take()]

    def atomic(self) -> None:
        pick, env = self.chance, self.world.env
        id = f"a{pick.randrange(4)}"
        batch = self.model.atomic.get(id)
        number = (batch.last if batch else 0) + 1
        if pick.random() < 0.1:
            number = pick.choice([0, 1, number + 1, 9, 10])
        commit = pick.choice(["", "", "", "1", "eob"])
        sent, lines = self.message()
        lines |= {"Nats_Batch_Id": id, "Nats_Batch_Sequence": number}
        if commit:
            lines["Nats_Batch_Commit"] = commit
        env.inject(sent.subject, sent.data, b"ack", headers(**lines))
        assert self.answers() == [self.model.put(env.mono, id, number, commit, sent)]

    def fast(self) -> None:
        pick, env = self.chance, self.world.env
        id = f"f{pick.randrange(4)}"
        batch = self.model.fast.get(id)
        number = (batch.last if batch else 0) + 1
        op = pick.choice([1, 1, 1, 1, 1, 2, 3, 4])
        if pick.random() < 0.1:
            number = max(1, number + pick.choice([-1, 0, 1, 5]))
        if number == 1 and op in (1, 3):
            op = 0
        flow, gaps = pick.choice([1, 2, 7, 600]), pick.random() < 0.6
        sent, lines = self.message()
        reply = f"ack.{id}.{flow}.{'ok' if gaps else 'fail'}.{number}.{op}.$FI"
        header = headers(**lines) if lines else b""
        env.inject(sent.subject, sent.data, reply.encode(), header)
        wanted = self.model.feed(env.mono, id, flow, gaps, number, op, sent)
        assert self.answers() == wanted

    def plain(self, id: str = "") -> None:
        subject, data = self.chance.choice(SUBJECTS), b"%d" % self.chance.getrandbits(40)
        self.world.env.inject(subject, data, b"", headers(Nats_Msg_Id=id) if id else b"")
        if id not in self.model.ids:
            self.model.store(Sent(subject, data, {"id": id} if id else {}))

    def wait(self) -> None:
        self.world.env.advance(self.chance.choice([SECOND, 4 * SECOND, 11 * SECOND]))
        self.model.silent(self.world.env.mono)

    def check(self) -> None:
        state = self.world.stream.state()
        assert state.last_seq == self.model.last
        found = [self.world.stream.get(s) for s in range(state.first_seq, state.last_seq + 1)]
        live = {m.seq: (m.subject, m.data) for m in found if m is not None}
        assert live == self.model.messages
        counts = (len(self.model.atomic), len(self.model.fast))
        assert self.world.env.open_batches[:2] == counts


@pytest.mark.parametrize("storage", [MEMORY, FILE], ids=["memory", "file"])
@pytest.mark.parametrize("seed", range(10))
def test_histories(seed: int, storage: int, tmp_path: Any) -> None:
    """The window of ids is longer than a history, and its ids are those of what is stored."""
    directory = str(tmp_path / "S")
    (tmp_path / "S" / "msgs").mkdir(parents=True)
    pair = Pair(seed, storage, directory)
    steps = [pair.atomic] * 12 + [pair.fast] * 12 + [pair.plain, pair.wait]
    for _ in range(400):
        pair.chance.choice(steps)()
        if storage == FILE and pair.chance.random() < 0.005:
            pair.restart()
    pair.check()
