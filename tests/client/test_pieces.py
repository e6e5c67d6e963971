"""While one client has a large stream purged, or brought within new limits, others are served."""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

MANY = 200_000
TRIES = 8
STORAGES = ["file", "memory"]


def fill(app: RawApp, name: str, count: int = MANY, **config: object) -> None:
    """`count` messages, a tenth of them under `<name>.0.>`; every subject has four."""
    app.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    for start in range(0, count, 2000):
        for n in range(start, start + 2000):
            subject = f"{name}.{n % 10}.{n % (count // 4)}"
            app.send(b"PUB %s 1\r\nx\r\n" % subject.encode())
        app.sync(60)
    assert messages(app, name) == count


def messages(app: RawApp, name: str) -> int:
    state = app.api(f"STREAM.INFO.{name}")["state"]
    assert isinstance(state, dict)
    return int(state["messages"])


def begin(app: RawApp, subject: str, body: object) -> None:
    """Asks, and does not wait for the answer."""
    inbox = app.inbox()
    app.publish(f"$JS.API.{subject}", json.dumps(body).encode(), reply=inbox)


def answer(app: RawApp) -> dict[str, Any]:
    answered = json.loads(app.message(60).payload)
    assert isinstance(answered, dict)
    return answered


def first_of(app: RawApp, name: str) -> int:
    """The sequence of the oldest message, 0 without one."""
    body = b'{"seq":1,"next_by_subj":">"}'
    frame = app.request(f"$JS.API.DIRECT.GET.{name}", body, timeout=60)
    return int(frame.headers.get("Nats-Sequence", 0))


def meanwhile(server: Server, asker: RawApp, each: Callable[[RawApp], None]) -> None:
    """Lets another client do something again and again until the asker has its answer."""
    with RawApp(server.port, timeout=60) as other:
        answered = False
        while not answered:
            each(other)
            asker.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                answered = bool(asker.socket.recv(1, socket.MSG_PEEK))
            asker.socket.settimeout(60)


LONG = {
    "subject": ("STREAM.PURGE.{}", {"filter": "{}.*.>"}),
    "keep": ("STREAM.PURGE.{}", {"filter": "{}.*.>", "keep": 10}),
    "sequence": ("STREAM.PURGE.{}", {"seq": MANY - 4999}),
    "max_msgs": ("STREAM.UPDATE.{}", {"max_msgs": 10}),
    "max_msgs_per_subject": ("STREAM.UPDATE.{}", {"max_msgs_per_subject": 1}),
}


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("what", LONG)
def test_others_are_served_meanwhile(js_server: Server, what: str, storage: str) -> None:
    """Tried again where a loaded machine let nobody ask in between."""
    name = f"L{what.upper()}{storage.upper()}"
    left = {"subject": 0, "keep": 10, "sequence": 5000, "max_msgs": 10}.get(what, MANY // 4)
    for _ in range(TRIES):
        # The oldest messages go first: the first one is seen where neither begin nor end leave it.
        if first_ones_seen(js_server, name, what, storage, left) - {0, 1, MANY - left + 1}:
            return
    pytest.fail("nobody was served before all was done")


def first_ones_seen(server: Server, name: str, what: str, storage: str, left: int) -> set[int]:
    """Which oldest messages another client saw while a stream was cut down to `left`."""
    subject, body = LONG[what]
    asked = json.loads(json.dumps(body).replace("{}", name))
    seen: set[int] = set()
    if "UPDATE" in subject:
        asked = {
            "name": name,
            "subjects": [f"{name}.>"],
            "storage": storage,
            "allow_direct": True,
        } | asked
    with RawApp(server.port, timeout=60) as app:
        fill(app, name, storage=storage, allow_direct=True)
        begin(app, subject.format(name), asked)
        meanwhile(server, app, lambda other: seen.add(first_of(other, name)))
        assert "error" not in answer(app)
        assert messages(app, name) == left
        app.api(f"STREAM.DELETE.{name}")
    return seen


@pytest.mark.parametrize("storage", STORAGES)
def test_publishes_while_a_purge_runs_stay(js_server: Server, storage: str) -> None:
    name = f"LP{storage.upper()}"
    acked = []
    with RawApp(js_server.port, timeout=60) as app:
        fill(app, name, storage=storage)
        begin(app, f"STREAM.PURGE.{name}", {"filter": f"{name}.>", "keep": 1})

        def publish(other: RawApp) -> None:
            acked.append(json.loads(other.request(f"{name}.0.1", b"late").payload)["seq"])

        meanwhile(js_server, app, publish)
        purged = answer(app)["purged"]
        first = app.api(f"STREAM.INFO.{name}")["state"]
        assert isinstance(first, dict)
        # What was there when it began is gone but for the newest; what came later stays, all of it.
        assert first["last_seq"] == acked[-1]
        assert first["messages"] == first["last_seq"] - first["first_seq"] + 1
        assert MANY <= first["first_seq"] == purged + 1
        app.api(f"STREAM.DELETE.{name}")


def test_a_delete_of_the_stream_waits_for_its_purge(js_server: Server) -> None:
    with RawApp(js_server.port, timeout=60) as app, RawApp(js_server.port, timeout=60) as other:
        fill(app, "LD")
        begin(app, "STREAM.PURGE.LD", {"filter": "LD.*.>", "keep": 5})
        app.sync(60)
        assert other.api("STREAM.DELETE.LD")["success"]
        other.sync()
        assert other.api("STREAM.INFO.LD")["error"]


def test_a_server_that_is_killed_in_the_middle_of_a_purge(servers: Servers) -> None:
    """Whatever the purge had removed by then, nothing else is gone."""
    server = servers.under_test(jetstream=True)
    with RawApp(server.port, timeout=60) as app:
        fill(app, "LK", storage="file")
        begin(app, "STREAM.PURGE.LK", {"filter": "LK.0.>"})
        for _ in range(3):
            app.sync(60)
        server.restart(kill=True)
    with RawApp(server.port, timeout=60) as app:
        gone = MANY - messages(app, "LK")
        assert 0 <= gone <= MANY // 10
        again = app.api("STREAM.PURGE.LK", {"filter": "LK.0.>"})
        assert again["purged"] == MANY // 10 - gone
        assert messages(app, "LK") == MANY - MANY // 10


LOOKS = {
    "subjects": ("STREAM.INFO.{}", {"subjects_filter": "{}.*.*"}),
    "pending": (
        "CONSUMER.CREATE.{}.a",
        {"stream_name": "{}", "config": {"name": "a", "filter_subjects": ["{}.1.*", "{}.*.7"]}},
    ),
    "lasts": (
        "CONSUMER.CREATE.{}.b",
        {
            "stream_name": "{}",
            "config": {"name": "b", "deliver_policy": "last_per_subject", "filter_subject": "{}.>"},
        },
    ),
    "last": ("STREAM.MSG.GET.{}", {"last_by_subj": "{}.*.x"}),
    "next": ("STREAM.MSG.GET.{}", {"seq": 1, "next_by_subj": "{}.*.x"}),
}


@pytest.mark.parametrize("storage", STORAGES)
def test_who_looks_at_much_is_answered_and_others_are_served(
    js_server: Server, storage: str
) -> None:
    name = f"LOOK{storage.upper()}"
    with RawApp(js_server.port, timeout=60) as app:
        fill(app, name, storage=storage, allow_direct=True)
        answers = {}
        for look, (subject, body) in LOOKS.items():
            gaps = [0.0]

            def round_trip(other: RawApp, gaps: list[float] = gaps) -> None:
                begin = time.monotonic()
                other.sync(60)
                gaps.append(time.monotonic() - begin)

            begin(app, subject.format(name), json.loads(json.dumps(body).replace("{}", name)))
            meanwhile(js_server, app, round_trip)
            answers[look] = answer(app)
            assert max(gaps) < 5, look
        state = answers["subjects"]["state"]
        assert isinstance(state, dict)
        assert len(state["subjects"]) == answers["subjects"]["total"] == MANY // 4
        assert answers["pending"]["num_pending"] == MANY // 10 + sum(
            n % 10 != 1 for n in range(7, MANY, MANY // 4)
        )
        assert answers["lasts"]["num_pending"] == MANY // 4
        assert [answers[look]["error"]["code"] for look in ("last", "next")] == [404, 404]
        app.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("look", LOOKS)
def test_a_stream_is_deleted_while_somebody_looks_at_much_of_it(
    js_server: Server, look: str
) -> None:
    name = f"DEL{look.upper()}"
    subject, body = LOOKS[look]
    with RawApp(js_server.port, timeout=60) as app, RawApp(js_server.port, timeout=60) as other:
        fill(app, name, 40_000, storage="memory")
        begin(app, subject.format(name), json.loads(json.dumps(body).replace("{}", name)))
        assert other.api(f"STREAM.DELETE.{name}")["success"]
        assert answer(app)
        assert other.api(f"STREAM.INFO.{name}")["error"]
