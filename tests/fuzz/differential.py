"""Plays one sequence of JetStream operations on two servers and tells where they first differ.

After every step everything that a client can see is compared: answers, what inboxes heard,
advisories, and the state of every stream and consumer. What comes a moment later on one side is
waited for; a difference counts when it is there each time the sequence is played.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from tests.client.raw import Frame, RawApp
from tests.client.recorder import ACK_SUBJECT, plain, shown
from tests.client.test_api_diff import _clean
from tests.fuzz.sequences import STREAMS, Step

PATIENCE = 0.7
TRIES = 3
EVENTS = "$JS.EVENT.ADVISORY.>"


class Side:
    """One server and what a client hears of it during a sequence."""

    def __init__(self, port: int) -> None:
        self.client = RawApp(port, timeout=8)
        self.inboxes: dict[str, list[Frame]] = {}
        self.replies: dict[str, str] = {}
        self.flows: list[str] = []
        """Where requests of flow control are answered, in their order."""
        self.kept: set[str] = set()

    def close(self) -> None:
        self.client.close()

    def listen(self, subject: str, queue: str = "", *, keep: bool = True) -> str:
        sid = self.client.subscribe(subject, queue)
        self.inboxes[sid] = []
        if keep:
            self.kept.add(sid)
        return sid

    def take(self, frame: Frame) -> None:
        if frame.sid in self.inboxes:
            self.inboxes[frame.sid].append(frame)
            if frame.reply.startswith("$JS.ACK."):
                self.replies[ACK_SUBJECT.sub(r"\1TIME\2", frame.reply)] = frame.reply
            elif frame.reply.startswith("$JS.FC."):
                self.flows.append(frame.reply)

    def gather(self) -> None:
        """Takes what the server has sent so far; its pings are answered by the way."""
        self.client.send(b"PONG\r\n")
        for frame in self.client.sync():
            if frame.verb in ("MSG", "HMSG"):
                self.take(frame)

    def request(self, subject: str, data: bytes, header: bytes = b"") -> Frame:
        """A request and its first answer."""
        inbox = f"_INBOX.r.{self.client.last_sid + 1}"
        sid = self.listen(inbox, keep=False)
        self.client.publish(subject, data, reply=inbox, header=header)
        while not self.inboxes[sid]:
            self.take(self.client.message())
        self.client.send(f"UNSUB {sid}\r\n".encode())
        return self.inboxes.pop(sid)[0]

    def api(self, subject: str, body: object) -> Any:
        data = b"" if body == "" else json.dumps(body).encode()
        return json.loads(
            self.request(f"$JS.API.{subject}", data).payload, object_pairs_hook=_clean
        )

    def start(self) -> None:
        for name in STREAMS:
            self.request(f"$JS.API.STREAM.DELETE.{name}", b"")
        for sid in self.inboxes:
            self.client.send(f"UNSUB {sid}\r\n".encode())
        time.sleep(0.02)  # The advisories of the deletions belong to nobody.
        self.client.sync()
        self.inboxes.clear()
        self.replies.clear()
        self.flows.clear()
        self.kept.clear()
        self.listen(EVENTS)

    def play(self, step: Step, keys: Sequence[str]) -> object:
        """Carries out a step; the immediate answer, None where there is none to compare."""
        match step:
            case ("api", subject, body):
                return self.api(subject, body)
            case ("pub", subject, payload, lines):
                text = "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines, ""))
                header = text.encode() if lines else b""
                inbox = f"_INBOX.p.{self.client.last_sid + 1}"
                self.listen(inbox)
                self.client.publish(subject, payload.encode(), reply=inbox, header=header)
            case ("pull", stream, consumer, body):
                inbox = f"_INBOX.n.{self.client.last_sid + 1}"
                self.listen(inbox)
                data = body if isinstance(body, str) else json.dumps(body)
                target = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
                self.client.publish(target, data.encode(), reply=inbox)
            case ("ack", number, payload):
                inbox = f"_INBOX.a.{self.client.last_sid + 1}"
                self.listen(inbox)
                if keys:
                    target = self.replies[keys[number % len(keys)]]
                    self.client.publish(target, payload.encode(), reply=inbox)
            case ("send", subject, payload):
                inbox = f"_INBOX.s.{self.client.last_sid + 1}"
                self.listen(inbox)
                self.client.publish(subject, payload.encode(), reply=inbox)
            case ("big", subject, size):
                self.client.publish(subject, b"p" * size)
            case ("confirm", consumer, number, more):
                asked = [reply for reply in self.flows if reply.split(".")[3] == consumer]
                if number < len(asked):
                    self.client.publish(asked[-1 - number] + more)
            case ("direct", stream, body):
                inbox = f"_INBOX.d.{self.client.last_sid + 1}"
                self.listen(inbox)
                target = f"$JS.API.DIRECT.GET.{stream}"
                self.client.publish(target, json.dumps(body).encode(), reply=inbox)
            case ("sub", subject, queue):
                self.listen(subject, queue)
            case _:
                raise ValueError(step)
        return None

    def heard(self) -> dict[str, list[object]]:
        """Everything that was heard, by inbox; advisories in an order of their own."""
        found = {}
        for sid, frames in self.inboxes.items():
            if sid in self.kept:
                found[sid] = [comparable(frame) for frame in frames if not of_a_look(frame)]
                if frames and frames[0].subject.startswith("$JS.EVENT."):
                    found[sid].sort(key=repr)
        return found

    def state(self) -> list[object]:
        """Streams and consumers as the API shows them."""
        found: list[object] = []
        for name in STREAMS:
            body = {"subjects_filter": ">", "deleted_details": True}
            info = self.api(f"STREAM.INFO.{name}", body)
            found.append(without_zero(info))
            in_memory = dict(dict(info).get("config", [])).get("storage") == "memory"
            listed = self.api(f"CONSUMER.LIST.{name}", "")
            found.append(without_skipped(listed) if in_memory else listed)
        return found


def without_zero(info: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The peer counts sequence 0 of a file stream that never held anything as deleted."""
    fields = dict(info)
    state = dict(fields.get("state") or [])
    if state.get("deleted") == [0]:
        del state["deleted"], state["num_deleted"]
        fields["state"] = list(state.items())
    return list(fields.items())


def without_skipped(listed: Any) -> Any:
    """Over a memory stream nats-server counts what a filter passed over as delivered, sometimes."""
    if isinstance(listed, tuple):
        return (listed[0], without_skipped(listed[1]))
    if isinstance(listed, list):
        return [
            without_skipped(v)
            for v in listed
            if not (isinstance(v, tuple) and v[0] == "stream_seq")
        ]
    return listed


def of_a_look(frame: Frame) -> bool:
    """Whether it is the advisory of a request by which the comparison looks at the state."""
    return b'"subject":"$JS.API.STREAM.INFO.' in frame.payload[:600] or (
        b'"subject":"$JS.API.CONSUMER.LIST.' in frame.payload[:600]
    )


def comparable(frame: Frame) -> object:
    """A message without times; an advisory without ids and what it tells of this connection."""
    if not frame.subject.startswith("$JS.EVENT.ADVISORY."):
        return shown(frame)
    event = json.loads(frame.payload)
    if "response" in event:
        event["response"] = json.loads(event["response"])
        event.pop("client")
    return (frame.subject, json.dumps(plain(event)))


def settled(sides: Sequence[Side], look: Any) -> tuple[object, object] | None:
    """None when both sides look the same within the time, else how they look."""
    end = time.monotonic() + PATIENCE
    pause = 0.002
    while True:
        for side in sides:
            side.gather()
        ours, theirs = (look(side) for side in sides)
        if ours == theirs:
            return None
        if time.monotonic() > end:
            return ours, theirs
        time.sleep(pause)
        pause *= 1.5


def difference(sides: Sequence[Side], steps: Sequence[Step]) -> str:
    """What differs first, "" if nothing does."""
    for side in sides:
        side.start()
    for number, step in enumerate(steps):
        keys = sorted(set(sides[0].replies) & set(sides[1].replies))
        ours, theirs = (side.play(step, keys) for side in sides)
        found = (ours, theirs) if ours != theirs else settled(sides, Side.heard)
        where = "answer" if ours != theirs else "heard"
        if found is None:
            found, where = settled(sides, Side.state), "state"
        if found is None:
            found, where = settled(sides, Side.heard), "heard"
        if found is not None:
            parts = "\n".join(f"  {line}" for line in parted("", *found))
            return f"step {number}, {where}: {step}\n{parts}"
    return ""


def parted(path: str, ours: object, theirs: object) -> list[str]:
    """Where two looks differ."""
    if ours == theirs:
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = dict.fromkeys([*ours, *theirs])
        return [line for k in keys for line in parted(f"{path}/{k}", ours.get(k), theirs.get(k))]
    if isinstance(ours, list) and isinstance(theirs, list):
        if all(type(v) is tuple and len(v) == 2 and type(v[0]) is str for v in ours + theirs):
            found = parted(path, dict(ours), dict(theirs))
            return found or [f"{path}: order {[k for k, _ in ours]} | {[k for k, _ in theirs]}"]
        if len(ours) == len(theirs):
            pairs = enumerate(zip(ours, theirs, strict=True))
            return [line for n, (a, b) in pairs for line in parted(f"{path}/{n}", a, b)]
        ours = [v for v in ours if v not in theirs] or ours
        theirs = [v for v in theirs if v not in ours] or theirs
    return [f"{path}:\n    {ours!r:.1500}\n    {theirs!r:.1500}"]


def steady(sides: Sequence[Side], steps: Sequence[Step]) -> str:
    """A difference that is there each time."""
    found = ""
    for _ in range(TRIES):
        found = difference(sides, steps)
        if not found:
            return ""
    return found


def shortest(sides: Sequence[Side], steps: Sequence[Step], seconds: float = 60) -> list[Step]:
    """A sequence with as few steps as the time allows that still differs."""
    end = time.monotonic() + seconds
    left = list(steps)
    size = max(1, len(left) // 2)
    while time.monotonic() < end:
        at, changed = 0, False
        while at < len(left) and time.monotonic() < end:
            shorter = left[:at] + left[at + size :]
            if shorter and difference(sides, shorter) and difference(sides, shorter):
                left, changed = shorter, True
            else:
                at += size
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    return left
