"""Records what a JetStream application hears, in a form that two servers can be compared by."""

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.client.raw import Frame, RawApp, TimedOut

Heard = tuple[object, ...]

ACK_SUBJECT = re.compile(r"^(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.)\d{15,}(\.\d+)$")
FLOW_SUBJECT = re.compile(r"(\$JS\.FC\.[^.]+\.[^.]+\.)\w+")
TIME_HEADER = re.compile(rb"(Nats-Time-Stamp: |Nats-Subject: \$JS\.ACK\.)[^\r]+")
TIMES = (
    *("created", "ts", "time", "first_ts", "last_ts", "last_active", "timestamp", "id"),
    *("opt_start_time", "pause_remaining", "pinned_ts", "pinned_client_id", "pinned_id"),
)
# The rest of this error's text is the JSON library's and of no use to a client.
INVALID_JSON = 10025
# What a case gives in nanoseconds, and a patient recorder makes longer where it is short.
GIVEN = (
    *("ack_wait", "priority_timeout", "expires", "idle_heartbeat"),
    *("max_age", "duplicate_window", "subject_delete_marker_ttl"),
)
SHORT = 10 * 10**9
# The inbox of answers that are not noted: how many come is a matter of time.
POLLED = "_POLLED"


class Recorder:
    """A connection to one server; what its inboxes hear is kept by inbox, in order.

    Short periods that a case gives, and the waits, last `patience` times as long: a slow machine
    gets through what a case does before they end.
    """

    def __init__(self, port: int, stream: str, patience: int = 1) -> None:
        self.client = RawApp(port, timeout=8 * patience)
        self.stream = stream
        self.patience = patience
        self.said: list[Heard] = []
        self.inboxes: dict[str, list[Frame]] = {}
        self.names: dict[str, str] = {}
        self.counted = 0

    def close(self) -> None:
        self.client.close()

    def note(self, *what: object) -> None:
        self.said.append(what)

    # talking

    def inbox(self, subject: str = "", queue: str = "") -> str:
        """A new subscription, by default on an inbox of its own; returns its subject.

        Inboxes are the stream's: consumers of earlier cases go on pushing to theirs."""
        if not subject:
            self.counted += 1
            subject = f"_INBOX.{self.stream}.{self.counted}"
        sid = self.client.subscribe(subject, queue)
        self.inboxes[sid] = []
        self.names[subject] = sid
        return subject

    def forget(self, subject: str) -> None:
        self.client.send(f"UNSUB {self.names[subject]}\r\n".encode())
        self.client.sync()

    def publish(
        self, subject: str, payload: bytes = b"", *, header: bytes = b"", reply: str = ""
    ) -> None:
        self.client.publish(subject, payload, header=header, reply=reply)

    def next(self, inbox: str, timeout: float = 8) -> Frame:
        """The next message of an inbox; messages of others wait for their turn."""
        queue = self.inboxes[self.names[inbox]]
        end = time.monotonic() + timeout * self.patience
        while not queue:
            frame = self.client.message(end - time.monotonic())
            self.inboxes[frame.sid].append(frame)
        return queue.pop(0)

    def hear(self, inbox: str, count: int = 1, timeout: float = 8) -> list[Frame]:
        """Takes and notes the next `count` messages of an inbox."""
        frames = [self.next(inbox, timeout) for _ in range(count)]
        for frame in frames:
            self.note(*shown(frame))
        return frames

    def silence(self, inbox: str, seconds: float = 0.25) -> None:
        """Notes whether an inbox stays silent."""
        try:
            self.note("not silent", *shown(self.next(inbox, seconds)))
        except TimedOut:
            self.note("silence")

    def longer(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same, with short periods as long as the recorder's patience has them."""
        return {
            name: value * self.patience
            if name in GIVEN and isinstance(value, int) and 0 < value < SHORT
            else value
            for name, value in given.items()
        }

    # JetStream

    def api(self, subject: str, body: object = None, *, header: bytes = b"") -> Any:
        """A request to `$JS.API.<subject>`; notes and returns the decoded answer."""
        data = b"" if body is None else body
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        answer = json.loads(self.client_request(f"$JS.API.{subject}", data, header).payload)
        self.note(subject, plain(answer))
        return answer

    def client_request(self, subject: str, data: bytes, header: bytes = b"") -> Frame:
        inbox = self.inbox()
        self.publish(subject, data, header=header, reply=inbox)
        return self.next(inbox)

    def ask(self, subject: str, data: bytes = b"", *, header: bytes = b"") -> Frame:
        """A request; notes and returns the first answer."""
        frame = self.client_request(subject, data, header)
        self.note(*shown(frame))
        return frame

    def create(self, **config: object) -> None:
        """The case's stream, by default on `<name>.>`."""
        settings = {"name": self.stream, "subjects": [f"{self.stream}.>"]} | config
        self.api(f"STREAM.CREATE.{self.stream}", self.longer(settings))

    def consumer(self, name: str = "C", **config: object) -> Any:
        """A durable consumer of the case's stream, by default with explicit acks."""
        settings = {"durable_name": name, "ack_policy": "explicit"} | config
        body = {"stream_name": self.stream, "config": self.longer(settings)}
        return self.api(f"CONSUMER.DURABLE.CREATE.{self.stream}.{name}", body)

    def info(self, name: str = "C") -> Any:
        return self.api(f"CONSUMER.INFO.{self.stream}.{name}")

    def fill(self, count: int, subject: str = "a", size: int = 0) -> None:
        """Stores messages 1, 2, 3… and waits for their acks."""
        for n in range(1, count + 1):
            body = str(n).encode().ljust(size, b".")
            self.client_request(f"{self.stream}.{subject}", body)

    def store(self, subject: str, payload: bytes = b"", *lines: str) -> Frame:
        """A publish with these header lines; notes the ack byte by byte."""
        header = ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()
        return self.ask(f"{self.stream}.{subject}", payload, header=header if lines else b"")

    def settled(self, field: str, value: int, name: str = "C") -> None:
        """Waits, noting nothing, until a consumer's info has this value."""
        self._poll(f"CONSUMER.INFO.{self.stream}.{name}", lambda info: info[field] == value)

    def stored(self, count: int, stream: str = "") -> None:
        """Waits, noting nothing, until the stream, by default the case's, has so many messages."""
        subject = f"STREAM.INFO.{stream or self.stream}"
        self._poll(subject, lambda info: info["state"]["messages"] == count)

    def at_least(self, subject: str, count: int) -> None:
        """Waits, noting nothing, until the case's stream has so many messages on a subject."""
        self._poll(
            f"STREAM.INFO.{self.stream}",
            lambda info: (info["state"].get("subjects") or {}).get(subject, 0) >= count,
            json.dumps({"subjects_filter": subject}).encode(),
        )

    def _poll(self, subject: str, good: Callable[[Any], bool], body: bytes = b"") -> None:
        end = time.monotonic() + 5 * self.patience
        if POLLED not in self.names:
            self.inbox(POLLED)
        while time.monotonic() < end:
            self.publish(f"$JS.API.{subject}", body, reply=POLLED)
            if good(json.loads(self.next(POLLED).payload)):
                return
            time.sleep(0.01)

    def pull(self, body: object, name: str = "C") -> str:
        """A request for the next messages; returns its inbox."""
        inbox = self.inbox()
        given = self.longer(body) if isinstance(body, dict) else body
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}", data, reply=inbox)
        return inbox

    def fetch(self, body: object, count: int, name: str = "C") -> list[Frame]:
        """A request for the next messages and the `count` frames that it brings."""
        return self.hear(self.pull(body, name), count)

    def direct(self, body: object, *, subject: str = "", header: bytes = b"") -> list[Frame]:
        """A direct get and all the frames that it brings."""
        inbox = self.inbox()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"$JS.API.DIRECT.GET.{self.stream}{subject}"
        self.publish(target, data, header=header, reply=inbox)
        frames = self.hear(inbox)
        many = isinstance(body, dict) and ({"batch", "multi_last"} & body.keys())
        while many and not frames[-1].status:
            frames += self.hear(inbox)
        return frames


def shown(frame: Frame) -> Heard:
    """A message without what differs between any two runs: times, random tokens, lengths."""
    reply = ACK_SUBJECT.sub(r"\1TIME\2", frame.reply)
    reply = FLOW_SUBJECT.sub(r"\1ID", reply)
    header = TIME_HEADER.sub(rb"\1TIME", frame.header)
    header = FLOW_SUBJECT.sub(r"\1ID", header.decode("utf-8", "replace")).encode()
    payload: object = frame.payload
    if frame.payload.startswith(b'{"type":"io.nats.'):
        payload = plain(json.loads(frame.payload))
    return (frame.verb, frame.subject, reply, header, payload)


def plain(value: object, key: str = "") -> object:
    """A decoded answer without times and ids."""
    if isinstance(value, dict):
        if value.get("err_code") == INVALID_JSON:
            return {**value, "description": "invalid JSON"}
        return {name: plain(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        listed = [plain(inner) for inner in value]
        if key == "sources":  # in any order
            listed.sort(key=repr)
        return listed
    if key == "active" and value != -1:
        return "TIME"
    if isinstance(value, str) and value[:6] in ("$JS.M.", "$JS.S."):
        return value[:6] + "ID"
    if key in TIMES and value != "0001-01-01T00:00:00Z":
        return "TIME"
    return value


def played(recorder: Recorder, case: Callable[[Recorder], None]) -> list[Heard]:
    """What is heard while a case is played, to its end or until nothing more comes in time."""
    try:
        case(recorder)
    except TimedOut:
        recorder.note("nothing more came in time")
    finally:
        recorder.close()
    return recorder.said


def until_alike(
    number: int, tries: Sequence[int], plays: Sequence[Callable[[str, int], list[Heard]]]
) -> list[list[Heard]]:
    """What each of these heard of case `number`, in the first try in which all heard the same, or
    in the last one: answers vary under load. Each is given a new stream's name and how patient to
    be."""
    heard: list[list[Heard]] = []
    for turn, patience in enumerate(tries):
        stream = f"S{number}x{turn}"
        with ThreadPoolExecutor(len(plays)) as pool:
            playing = [pool.submit(play, stream, patience) for play in plays]
            heard = [one.result() for one in playing]
        if all(one == heard[0] for one in heard):
            break
    return heard
