"""A load on many streams at once, so that groups go through the server's journal, and what of it
must be there later."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

from tests.client.raw import RawApp, TimedOut
from tests.waiting import wait_until

JOURNAL = ".jsserver.journal"
SECONDS = 30


@dataclass
class Sent:
    """A message; `acked` is when its ack came (CLOCK_MONOTONIC, ns), 0: never."""

    stream: int
    body: bytes
    seq: int = 0
    acked: int = 0
    refused: str = ""


class Load:
    """Publishes to each of the streams in turn, and keeps so many in flight."""

    def __init__(self, streams: int, window: int = 300, size: int = 60) -> None:
        self.streams = streams
        self.window = window
        self.size = size
        self.sent: list[Sent] = []
        self.acked = 0
        self.failure = ""

    def create(self, client: RawApp) -> None:
        for n in range(self.streams):
            config = {"name": f"S{n}", "subjects": [f"s.{n}"], "allow_direct": True}
            answer = client.api(f"STREAM.CREATE.S{n}", config)
            assert "error" not in answer, answer

    def run(self, port: int, stop: threading.Event) -> None:
        """Until it is told to stop or the server is gone."""
        try:
            with RawApp(port, timeout=SECONDS) as client:
                client.subscribe("ack.*")
                waiting = 0
                while not stop.is_set():
                    while waiting < self.window:
                        self.publish(client)
                        waiting += 1
                    if not self.take(client):
                        return
                    waiting -= 1
                while waiting and self.take(client):
                    waiting -= 1
        except (ConnectionError, TimedOut, AssertionError) as error:
            self.failure = repr(error)

    def publish(self, client: RawApp) -> None:
        number = len(self.sent)
        stream = number % self.streams
        body = b"%d " % number + b"x" * (number * 7 % self.size)
        self.sent.append(Sent(stream, body))
        client.publish(f"s.{stream}", body, reply=f"ack.{number}")

    def take(self, client: RawApp) -> bool:
        """Notes the next ack; False: the server is gone."""
        frame = client.frame()
        while frame.verb not in ("MSG", "HMSG", "EOF"):
            frame = client.frame()
        if frame.verb == "EOF":
            return False
        answer = json.loads(frame.payload or b"{}")
        message = self.sent[int(frame.subject.rpartition(".")[2])]
        if "error" not in answer and "seq" in answer:
            message.seq, message.acked = answer["seq"], time.monotonic_ns()
            self.acked += 1
        else:
            message.refused = str(answer.get("error", {}).get("description", frame.status))
        return True

    def rounds(self, port: int, count: int) -> None:
        """So many windows full, each answered before the next."""
        with RawApp(port, timeout=SECONDS) as client:
            client.subscribe("ack.*")
            for _ in range(count):
                for _ in range(self.window):
                    self.publish(client)
                for _ in range(self.window):
                    assert self.take(client)

    def check(self, port: int, before: int) -> None:
        """What was acked by then is there, and what is there was sent."""
        there = contents(port, self.streams)
        for stream, found in enumerate(there):
            mine = [m for m in self.sent if m.stream == stream]
            acked = {m.seq: m.body for m in mine if 0 < m.acked < before}
            lost = {seq: found.get(seq) for seq, body in acked.items() if found.get(seq) != body}
            assert not lost, f"S{stream}: acked, and not there or other: {lost}"
            sent = {m.body for m in mine if not m.refused}
            assert set(found.values()) <= sent, f"S{stream}: never sent, or refused"
            assert len(set(found.values())) == len(found), f"S{stream}: twice"


def last_seq(client: RawApp, stream: str) -> int:
    """As soon as the stream shows it: for a moment after a call that failed it does not."""
    state = {}

    def shown() -> bool:
        state.update(client.api(f"STREAM.INFO.{stream}").get("state", {}))
        return bool(state)

    wait_until(shown, f"{stream} shows its state")
    return int(state["last_seq"])


def contents(port: int, streams: int) -> list[dict[int, bytes]]:
    """The messages of each stream, by sequence."""
    there: list[dict[int, bytes]] = []
    with RawApp(port, timeout=SECONDS) as client:
        for n in range(streams):
            found: dict[int, bytes] = {}
            last = last_seq(client, f"S{n}")
            inbox = client.inbox()
            body = json.dumps({"seq": 1, "batch": last + 1}).encode()
            client.publish(f"$JS.API.DIRECT.GET.S{n}", body, reply=inbox)
            while not (frame := client.message()).status:
                found[int(frame.headers["Nats-Sequence"])] = frame.payload
            there.append(found)
    return there
