"""What holds the engine lock for long: each kind of request on a large stream, and who waits.

Fills streams with small messages, one or more a subject, and then does everything that looks at a
large part of a stream. Meanwhile another client publishes and waits for each ack. Shown are the
longest time that the lock was held, and the longest that the other client waited, in milliseconds.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.servers import OWN_NAME, Server, machine
from jsserver.bench.wire import BenchError, Connection, publish_frame
from jsserver.process.procs import die_with_parent

FORK = multiprocessing.get_context("fork")
FILL_BATCH = 5000
VICTIM_PAUSE_SECONDS = 0.0005
TENTHS = 10
GROUPS = "reads,removals,more_removals,tables,interest,ids"
WAIT_SECONDS = 300.0


@dataclass
class Row:
    """One operation: milliseconds."""

    storage: str
    messages: int
    operation: str
    held: float
    waited: float
    took: float

    def __str__(self) -> str:
        return (
            f"{self.storage:7}{self.messages:9} {self.operation:38}"
            f"{self.held:10.2f}{self.waited:10.2f}{self.took:10.1f}"
        )


def quietest(rows: list[Row]) -> list[Row]:
    """Of each operation the least: others on the machine make everything longer."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        least = found.setdefault((row.storage, row.operation), row)
        least.held = min(least.held, row.held)
        least.waited = min(least.waited, row.waited)
        least.took = min(least.took, row.took)
    return list(found.values())


class Holds:
    """Asks a watched server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> float:
        """The longest hold since the last call, in ms."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self.path))
            return int(asking.recv(64)) / 1e6


class Victim:
    """A client that publishes, one message after another, in a process of its own."""

    def __init__(self, url: str) -> None:
        self.longest = FORK.Value("d", 0.0)
        self.process = FORK.Process(target=self._run, args=(url,), daemon=True)
        self.process.start()

    def _run(self, url: str) -> None:
        die_with_parent()
        connection = Connection(url)
        config = {"name": "VICTIM", "subjects": ["victim"], "storage": "memory", "max_msgs": 10}
        with suppress(BenchError):
            connection.api("STREAM.CREATE.VICTIM", config)
        while True:
            begin = time.monotonic()
            connection.request("victim", b"x")
            took = time.monotonic() - begin
            with self.longest.get_lock():
                self.longest.value = max(self.longest.value, took)
            time.sleep(VICTIM_PAUSE_SECONDS)

    def take(self) -> float:
        with self.longest.get_lock():
            longest: float = self.longest.value
            self.longest.value = 0.0
        return longest * 1e3

    def end(self) -> None:
        self.process.terminate()
        self.process.join()


def connect(url: str) -> Connection:
    connection = Connection(url)
    connection.socket.settimeout(WAIT_SECONDS)
    return connection


def fill(c: Connection, name: str, messages: int, subjects: int, ids: bool = False) -> None:
    for start in range(0, messages, FILL_BATCH):
        lines = []
        for i in range(start, min(start + FILL_BATCH, messages)):
            k = i % subjects
            subject = f"{name}.{k % TENTHS}.{k}.e"
            if ids:
                head = f"NATS/1.0\r\nNats-Msg-Id: {i}\r\n\r\n"
                lines.append(f"HPUB {subject} {len(head)} {len(head) + 1}\r\n{head}x\r\n")
            else:
                lines.append(f"PUB {subject} 1\r\nx\r\n")
        c.send("".join(lines).encode())
        c.api(f"STREAM.INFO.{name}")
    end = time.monotonic() + WAIT_SECONDS
    while c.api(f"STREAM.INFO.{name}")["state"]["messages"] < messages:
        if time.monotonic() > end:
            raise BenchError(f"{name} was not filled in time")
        time.sleep(0.05)


class Bench:
    """One storage and size."""

    def __init__(
        self, server: Server, holds: Holds, storage: str, given: argparse.Namespace
    ) -> None:
        self.server = server
        self.holds = holds
        self.storage = storage
        self.messages = given.messages
        self.subjects = given.subjects
        self.only = given.only
        self.rows: list[Row] = []
        self.c = connect(server.url)
        self.victim = Victim(server.url)
        time.sleep(0.3)

    def make(
        self, name: str, *, messages: int = 0, subjects: int = 0, ids: bool = False, **config: Any
    ) -> None:
        self.c.api(
            f"STREAM.CREATE.{name}",
            {
                "name": name,
                "subjects": [f"{name}.>"],
                "storage": self.storage,
                "allow_direct": True,
                "allow_rollup_hdrs": True,
                **config,
            },
        )
        fill(self.c, name, messages or self.messages, subjects or self.subjects, ids)

    def wanted(self, operation: str) -> bool:
        return not self.only or any(only in operation for only in self.only)

    def time(self, operation: str, work: Callable[[], object]) -> None:
        if not self.wanted(operation):
            return
        time.sleep(0.05)
        self.holds.take()
        self.victim.take()
        begin = time.monotonic()
        try:
            work()
        except BenchError as error:
            print(f"{operation}: {error}", file=sys.stderr)
        took = (time.monotonic() - begin) * 1e3
        time.sleep(0.05)
        row = Row(
            self.storage,
            self.messages,
            operation,
            round(self.holds.take(), 2),
            round(self.victim.take(), 2),
            round(took, 1),
        )
        self.rows.append(row)
        print(
            f"{row.storage:7}{row.messages:9} {operation:38}{row.held:10.2f}{row.waited:10.2f}"
            f"{row.took:10.1f}",
            flush=True,
        )

    def consumer(self, stream: str, name: str, **config: Any) -> dict[str, Any]:
        body = {
            "stream_name": stream,
            "config": {"name": name, "durable_name": name, "ack_policy": "explicit", **config},
        }
        return self.c.api(f"CONSUMER.CREATE.{stream}.{name}", body)

    def fetch(self, stream: str, consumer: str, batch: int = 1) -> None:
        inbox = "_INBOX.bench"
        self.c.send(f"SUB {inbox} 7\r\n".encode())
        body = json.dumps({"batch": batch, "expires": 120_000_000_000}).encode()
        self.c.send(publish_frame(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, inbox))
        self.c.count_until(b"$JS.ACK.", batch)
        self.c.send(b"UNSUB 7\r\n")

    def direct(self, stream: str, body: dict[str, Any], last: bytes = b"") -> None:
        """A direct get; with `last` until an answer with this status."""
        inbox = "_INBOX.direct"
        self.c.send(f"SUB {inbox} 8\r\n".encode())
        self.c.send(publish_frame(f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode(), inbox))
        self.c.count_until(last or b"MSG _INBOX.direct", 1)
        self.c.send(b"UNSUB 8\r\n")

    def ask(self, subject: str, body: dict[str, Any]) -> None:
        with suppress(BenchError):
            self.c.api(subject, body)

    # ---- what is timed ---------------------------------------------------------------------

    def reads(self) -> None:
        n, mid = "H", self.messages // 2
        self.make(n)
        f, time_ = f"{n}.3.>", self.time
        time_("consumer, a tenth, all", lambda: self.consumer(n, "a", filter_subject=f))
        time_("its first message", lambda: self.fetch(n, "a"))
        time_("its info", lambda: self.c.api(f"CONSUMER.INFO.{n}.a"))
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": mid}
        time_("consumer, a tenth, middle", lambda: self.consumer(n, "b", filter_subject=f, **start))
        two = [f"{n}.1.>", f"{n}.2.*.e"]
        time_(
            "consumer, two filters, middle",
            lambda: self.consumer(n, "c", filter_subjects=two, **start),
        )
        time_("its first message, two filters", lambda: self.fetch(n, "c"))
        time_(
            "consumer, wildcards that match all",
            lambda: self.consumer(n, "d", filter_subject=f"{n}.*.*.e", **start),
        )
        time_(
            "consumer, wildcards that match none",
            lambda: self.consumer(n, "dn", filter_subject=f"{n}.*.*.x", **start),
        )
        sparse = [f"{n}.*.{k}.e" for k in range(0, self.subjects, self.subjects // 50)]
        time_(
            "consumer, 50 sparse filters",
            lambda: self.consumer(n, "s", filter_subjects=sparse, **start),
        )
        time_("its first message, sparse", lambda: self.fetch(n, "s"))
        time_(
            "update of the filter",
            lambda: self.consumer(n, "b", filter_subject=f"{n}.4.>", **start),
        )
        last = {"deliver_policy": "last_per_subject", "filter_subject": f"{n}.>"}
        time_("consumer, last per subject, all", lambda: self.consumer(n, "e", **last))
        time_(
            "consumer, last per subject, a tenth",
            lambda: self.consumer(n, "f", **(last | {"filter_subject": f})),
        )
        time_(
            "consumer, last, a tenth",
            lambda: self.consumer(n, "g", filter_subject=f, deliver_policy="last"),
        )
        time_(
            "consumer, new, a tenth",
            lambda: self.consumer(n, "h", filter_subject=f, deliver_policy="new"),
        )
        when = {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"}
        time_("consumer, by time, a tenth", lambda: self.consumer(n, "i", filter_subject=f, **when))
        time_("subjects, all", lambda: self.c.api(f"STREAM.INFO.{n}", {"subjects_filter": ">"}))
        time_("subjects, a tenth", lambda: self.c.api(f"STREAM.INFO.{n}", {"subjects_filter": f}))
        none = f"{n}.*.*.x"
        time_("get last, none", lambda: self.ask(f"STREAM.MSG.GET.{n}", {"last_by_subj": none}))
        time_(
            "get next, none",
            lambda: self.ask(f"STREAM.MSG.GET.{n}", {"seq": 1, "next_by_subj": none}),
        )
        time_("direct last, none", lambda: self.direct(n, {"last_by_subj": none}))
        time_("direct last, one of many", lambda: self.direct(n, {"last_by_subj": f"{n}.*.55.e"}))
        time_("direct next, none", lambda: self.direct(n, {"seq": 1, "next_by_subj": none}))
        time_(
            "direct batch, a tenth, middle",
            lambda: self.direct(n, {"seq": mid, "next_by_subj": f, "batch": 10}),
        )
        eob, many = b"204 EOB", b"413 Too"
        time_("multi last, too many", lambda: self.direct(n, {"multi_last": [">"]}, many))
        time_(
            "multi last, one of many", lambda: self.direct(n, {"multi_last": [f"{n}.*.55.e"]}, eob)
        )
        back = {"multi_last": [f"{n}.*.55.e", f"{n}.*.66.e"], "up_to_seq": mid}
        time_("multi last, two, up to the middle", lambda: self.direct(n, back, eob))
        for seq, what in ((0, "expected last, none"), (1, "expected last, another")):
            head = (
                b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n"
                b"Nats-Expected-Last-Subject-Sequence-Subject: %b.*.*.%b\r\n\r\n"
            ) % (seq, n.encode(), b"x" if seq == 0 else b"e")
            frame = b"HPUB H.x _INBOX.roll %d %d\r\n%sx\r\n" % (len(head), len(head) + 1, head)
            time_(what, partial(self.published, frame))
        time_("monitoring of it", lambda: self.c.api(f"STREAM.INFO.{n}"))

    def removals(self) -> None:
        n = "P"
        self.make(n)
        self.consumer(n, "a", filter_subject=f"{n}.4.>")
        self.consumer(n, "b")
        self.time("purge, a tenth", lambda: self.c.api(f"STREAM.PURGE.{n}", {"filter": f"{n}.3.>"}))
        self.time("deleted, all", lambda: self.c.api(f"STREAM.INFO.{n}", {"deleted_details": True}))
        keep = {"filter": f"{n}.4.>", "keep": 1000}
        self.time("purge, a tenth, keep", lambda: self.c.api(f"STREAM.PURGE.{n}", keep))
        config = self.c.api(f"STREAM.INFO.{n}")["config"]
        self.time(
            "limit, half of the messages",
            lambda: self.c.api(f"STREAM.UPDATE.{n}", config | {"max_msgs": self.messages // 2}),
        )
        self.time("purge, all", lambda: self.c.api(f"STREAM.PURGE.{n}"))

    def more_removals(self) -> None:
        if self.wanted("age, all"):
            self.make("A")
            config = self.c.api("STREAM.INFO.A")["config"]
            self.time(
                "age, all",
                lambda: self.until_empty(
                    "A", config | {"max_age": 100_000_000, "duplicate_window": 100_000_000}
                ),
            )
        if self.wanted("rollup, all"):
            self.make("R")
            head = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n"
            frame = b"HPUB R.x _INBOX.roll %d %d\r\n%sx\r\n" % (len(head), len(head) + 1, head)
            self.time("rollup, all", lambda: self.published(frame))
        if self.wanted("rollup, a subject"):
            self.make("RS", subjects=1)
            head = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
            one = b"HPUB RS.0.0.e _INBOX.roll %d %d\r\n%sx\r\n" % (len(head), len(head) + 1, head)
            self.time("rollup, a subject", lambda: self.published(one))
        if self.wanted("delete of the stream"):
            self.make("D")
            for i in range(1000):
                self.consumer("D", f"c{i}", mem_storage=True)
            self.time("delete of the stream", lambda: self.c.api("STREAM.DELETE.D"))

    def tables(self) -> None:
        """What grows and shrinks with what it holds: ids of the window, what waits for acks."""
        self.time("publishes with ids", lambda: self.make("W", ids=True))
        if self.wanted("deliveries, and their acks"):
            self.make("K", subjects=1000)
            self.consumer("K", "a", max_ack_pending=-1, ack_policy="all")
            self.time("deliveries, and their acks", lambda: self.ack_all("K", "a", self.messages))

    def interest(self) -> None:
        self.c.api(
            "STREAM.CREATE.I",
            {"name": "I", "subjects": ["I.>"], "storage": self.storage, "retention": "interest"},
        )
        self.consumer("I", "a", max_ack_pending=-1, ack_policy="all")
        self.consumer("I", "b", filter_subject="I.3.>")
        fill(self.c, "I", self.messages, self.subjects)
        self.time(
            "interest, another consumer", lambda: self.consumer("I", "c", filter_subject="I.4.>")
        )
        self.time(
            "interest, delete of one",
            lambda: self.until_left("I", lambda: self.c.api("CONSUMER.DELETE.I.c")),
        )
        self.time("interest, ack of all", lambda: self.ack_all("I", "a", self.messages))
        self.time(
            "interest, delete of the last",
            lambda: [self.c.api(f"CONSUMER.DELETE.I.{x}") for x in "ab"],
        )

    def ids(self) -> None:
        if not self.wanted("first id after a restart"):
            return
        self.make("X", messages=min(self.messages, 1_000_000), ids=True)
        self.victim.end()
        self.server.stop() if self.storage == "file" else None
        if self.storage != "file":
            return
        self.holds.path.unlink(missing_ok=True)
        self.server.start()
        self.c = connect(self.server.url)
        self.victim = Victim(self.server.url)
        time.sleep(0.3)
        head = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
        frame = b"HPUB X.0.0.e _INBOX.roll %d %d\r\n%sx\r\n" % (len(head), len(head) + 1, head)
        self.time("first id after a restart", lambda: self.published(frame))

    def published(self, frame: bytes) -> None:
        self.c.send(b"SUB _INBOX.roll 9\r\n" + frame)
        self.c.count_until(b"MSG _INBOX.roll", 1)
        self.c.send(b"UNSUB 9\r\n")

    def ack_all(self, stream: str, consumer: str, batch: int) -> None:
        self.fetch(stream, consumer, batch - 1)
        inbox = "_INBOX.one"
        self.c.send(f"SUB {inbox} 11\r\n".encode())
        self.c.send(publish_frame(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b"", inbox))
        answer = b""
        while b"\r\nx\r\n" not in answer:
            answer += self.c.receive()
        line = answer[answer.index(b"MSG ") :].split(b"\r\n")[0].split()
        self.until_left(stream, lambda: self.c.request(line[3].decode(), b"+ACK"))

    def until_left(self, stream: str, work: Callable[[], object]) -> None:
        """Does it, and waits until what it removes is gone."""
        work()
        before, after = -1, self.count(stream)
        while before != after:
            time.sleep(0.1)
            before, after = after, self.count(stream)

    def count(self, stream: str) -> int:
        return int(self.c.api(f"STREAM.INFO.{stream}")["state"]["messages"])

    def until_empty(self, stream: str, config: dict[str, Any]) -> None:
        self.c.api(f"STREAM.UPDATE.{stream}", config)
        while self.count(stream):
            time.sleep(0.02)


@contextmanager
def watched(folder: Path) -> Iterator[tuple[Server, Holds]]:
    path = folder / "holds"
    os.environ["WATCHED"] = str(path)
    os.environ["JSSERVER"] = f"{sys.executable} -m bench.watched"
    server = Server(OWN_NAME, folder)
    server.start()
    try:
        yield server, Holds(path)
    finally:
        server.stop()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--storage", default="file,memory")
    parser.add_argument("--groups", default=GROUPS)
    parser.add_argument("--rounds", type=int, default=1, help="the least of so many is shown")
    parser.add_argument("--only", action="append", help="operations whose name has this in it")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(argv)
    rows: list[Row] = []
    titles = f"{'storage':7}{'messages':>9} {'operation':38}{'held':>10}{'waited':>10}{'took':>10}"
    print(f"{machine()}\n{titles}")
    for storage in given.storage.split(",") * given.rounds:
        with (
            tempfile.TemporaryDirectory(prefix="holds-") as folder,
            watched(Path(folder)) as (server, holds),
        ):
            bench = Bench(server, holds, storage, given)
            try:
                for group in given.groups.split(","):
                    getattr(bench, group)()
            finally:
                bench.victim.end()
            rows += bench.rows
    rows = quietest(rows)
    if given.rounds > 1:
        print("\nthe least of all rounds")
        for row in rows:
            print(row)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
