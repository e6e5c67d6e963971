"""Memory under a quiet, mixed load: it rises to a level and stays there.

Clients of all kinds come, work a little and go for `SOAK_SECONDS` (20), while memory is sampled.
What a server keeps on purpose is small here and full soon: connections that ended
(max_closed_clients), ids of the window of deduplication, streams with limits. So from ten minutes
on the level may move by no more than the saw of the allocator does. `SOAK_CURVE` names a file for
the samples, a line of JSON each: second, KiB by kind, processor seconds, turns of the workers.
"""

import json
import os
import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))
CURVE = os.environ.get("SOAK_CURVE", "")
SAMPLES = 240
#: From then on memory is level.
WARM_SECONDS = min(600.0, SECONDS / 2)
#: What the level may rise by from the first third of the samples behind that to the last one. A
#: short run shows that the workers work: its server is not warm.
RISE_KIB = 3 << 10 if SECONDS >= 1800 else 16 << 10
CONFIG = json.dumps({"max_closed_clients": 200})
PARTS = re.compile(r"^(Rss|Pss_Anon|Pss_File|Anonymous): +(\d+) kB$", re.MULTILINE)


class Soak:
    """Workers in threads of their own, each of which takes a turn every so many seconds."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = threading.Event()
        self.turns: dict[str, int] = {}
        self.errors: list[str] = []
        self.threads: list[threading.Thread] = []

    def every(self, seconds: float, turn: Callable[["Soak", int], None]) -> None:
        thread = threading.Thread(target=self._run, args=(seconds, turn), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self, seconds: float, turn: Callable[["Soak", int], None]) -> None:
        count = 0
        try:
            while not self.over.wait(seconds):
                turn(self, count)
                count += 1
                self.turns[turn.__name__] = count
        except Exception as error:
            self.errors.append(f"{turn.__name__}: {error!r}")

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(30)


def client(soak: Soak) -> RawApp:
    return RawApp(soak.server.port, timeout=30)


def make_streams(server: Server) -> None:
    with RawApp(server.port) as app:
        for config in (
            {"name": "S", "subjects": ["s.>"], "max_msgs": 5000, "duplicate_window": 10**10},
            {"name": "W", "subjects": ["w.>"], "retention": "workqueue"},
            {
                "name": "KV_b",
                "subjects": ["$KV.b.>"],
                "max_msgs_per_subject": 3,
                "allow_direct": True,
                "allow_rollup_hdrs": True,
                "allow_msg_ttl": True,
                "subject_delete_marker_ttl": 10**9,
            },
            {"name": "M", "subjects": ["m.>"], "storage": "memory", "max_age": 10**10},
        ):
            assert "error" not in app.api(f"STREAM.CREATE.{config['name']}", config)
        for stream, durable in ("S", "d"), ("W", "d"):
            consumer = {"durable_name": durable, "ack_policy": "explicit"}
            body = {"stream_name": stream, "config": consumer}
            assert "error" not in app.api(f"CONSUMER.CREATE.{stream}.{durable}", body)


def publishes(soak: Soak, count: int) -> None:
    with client(soak) as app:
        for n in range(5):
            head = header_block(f"Nats-Msg-Id: {count}.{n}")
            app.request(f"s.{count % 50}.{n}", b"x" * 200, header=head)
            app.request(f"w.{n}", b"x" * 200)
            app.request(f"m.{n}", b"x" * 200)


def consumes(soak: Soak, count: int) -> None:
    with client(soak) as app:
        for stream in "SW":
            inbox = app.inbox()
            body = b'{"batch":5,"no_wait":true}'
            app.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.d", body, reply=inbox)
            for _ in range(5):
                message = app.message()
                if message.status:
                    break
                app.publish(message.reply, b"+ACK")


def keeps_values(soak: Soak, count: int) -> None:
    with client(soak) as app:
        app.request(f"$KV.b.{count % 100}", b"v" * 100, header=header_block("Nats-TTL: 2s"))
        app.request(f"$KV.b.k{count % 100}", b"v" * 100)
        app.request(f"$JS.API.DIRECT.GET.KV_b.$KV.b.k{count % 100}")


def asks(soak: Soak, count: int) -> None:
    with client(soak) as app:
        app.api("INFO")
        app.api("STREAM.LIST")
        app.api("STREAM.INFO.S", {"subjects_filter": ">"})
        app.api("CONSUMER.INFO.S.d")
        app.api("CONSUMER.LIST.S")
        app.api("STREAM.MSG.GET.S", {"last_by_subj": "s.>"})


def makes_and_deletes(soak: Soak, count: int) -> None:
    name = f"T{count}"
    with client(soak) as app:
        app.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"t.{count}.>"]})
        app.request(f"t.{count}.x", b"x")
        config = {"name": f"e{count}", "ack_policy": "explicit", "inactive_threshold": 10**9}
        app.api(f"CONSUMER.CREATE.S.e{count}", {"stream_name": "S", "config": config})
        app.api(f"STREAM.PURGE.{name}")
        app.api(f"STREAM.DELETE.{name}")


def talks(soak: Soak, count: int) -> None:
    with client(soak) as one, client(soak) as other:
        other.subscribe(f"talk.{count}.*", "q")
        other.sync()
        inbox = one.inbox()
        one.publish(f"talk.{count}.x", b"?", reply=inbox)
        other.publish(other.message().reply, b"!")
        one.message()


def watches(soak: Soak, count: int) -> None:
    for path in (
        "/varz",
        "/connz?subs=detail&state=all",
        "/jsz?streams=1&consumers=1&config=1",
        "/healthz",
        "/subsz?subs=1",
        "/accstatz?unused=1",
        "/accountz?acc=$G",
    ):
        with urllib.request.urlopen(soak.server.monitor_url + path, timeout=30) as answer:
            answer.read()


def memory(server: Server) -> dict[str, int]:
    """KiB by kind."""
    text = Path(f"/proc/{server.pid}/smaps_rollup").read_text()
    return {name: int(size) for name, size in PARTS.findall(text)}


WORKERS: tuple[tuple[float, Callable[[Soak, int], None]], ...] = (
    *((0.5, publishes), (0.5, consumes), (0.5, keeps_values), (1.0, asks)),
    *((2.0, makes_and_deletes), (1.0, talks), (5.0, watches)),
)


@pytest.mark.timeout(SECONDS + 120)
def test_memory_is_level_under_a_quiet_load(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG, jetstream=True, monitor=True)
    make_streams(server)
    soak = Soak(server)
    for seconds, turn in WORKERS:
        soak.every(seconds, turn)
    begin = time.monotonic()
    level: list[tuple[int, int]] = []
    while (at := time.monotonic() - begin) < SECONDS:
        now = memory(server)
        if at >= WARM_SECONDS:
            level.append((round(at), now["Rss"]))
        if CURVE:
            line: list[Any] = [round(at), now, server.cpu_seconds(), dict(soak.turns)]
            with open(CURVE, "a") as file:
                file.write(json.dumps(line) + "\n")
        soak.over.wait(SECONDS / SAMPLES)
    soak.end()
    assert soak.errors == []
    assert soak.turns.keys() >= {turn.__name__ for _, turn in WORKERS}
    third = len(level) // 3
    first, last = (
        statistics.median(kib for _, kib in part) for part in (level[:third], level[-third:])
    )
    assert last - first < RISE_KIB, level
    assert server.stop() == 0
