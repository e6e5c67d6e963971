"""Routing, counting, concurrency, advisories and the events of the data plane."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver.api.endpoints import find
from jsserver.api.responder import Request
from jsserver.instances.backend import (
    AdvisoryKind,
    BatchAbandoned,
    ConsumerAdvisory,
    ConsumerGone,
    PauseOver,
)

from .api_server import ACCOUNT, BARE_ACCOUNT, ApiServer
from .fake_backend import FakeAccount, FakeStream


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as server:
        yield server


def heard(api: ApiServer, account: FakeAccount | None = None) -> list[tuple[str, dict[str, Any]]]:
    """What was published since the last call, by default in the account with the streams."""
    account = account or api.engine
    found = [(s.decode(), json.loads(p)) for s, p in account.published]
    account.published.clear()
    return found


@pytest.mark.parametrize(
    "subject",
    [
        "FOO",
        "STREAM",
        "STREAM.INFO",
        "STREAM.INFO.A.B",
        "STREAM.INFO.",
        "STREAM.NAMES.x",
        "STREAM.TEMPLATES",
        "CONSUMER.INFO.S",
        "CONSUMER.DURABLE.CREATE.S.d.x",
        "META.LEADER.STEPDOWN",
        "INFO.x",
    ],
)
def test_silence(api: ApiServer, subject: str) -> None:
    assert api.raw(subject) is None


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("STREAM.LEADER.STEPDOWN.S", 10010),
        ("STREAM.PEER.REMOVE.S", 10010),
        ("CONSUMER.LEADER.STEPDOWN.S.c", 10010),
    ],
)
def test_what_this_server_does_not_do(api: ApiServer, subject: str, code: int) -> None:
    assert api.refused(subject)[0] == code


def test_errors_carry_the_type_and_the_empty_body(api: ApiServer) -> None:
    assert api.ask("STREAM.INFO.X") == {
        "type": "io.nats.jetstream.api.v1.stream_info_response",
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
        "total": 0,
        "offset": 0,
        "limit": 0,
    }
    assert api.ask("STREAM.PURGE.X")["purged"] == 0
    assert api.ask("STREAM.NAMES", {"bogus": 1})["streams"] is None
    assert api.ask("STREAM.LIST", {"bogus": 1})["streams"] == []


def test_an_account_without_jetstream(api: ApiServer) -> None:
    answer = json.loads(api.raw("INFO", account=BARE_ACCOUNT) or b"")
    assert answer["type"].endswith("account_info_response")
    assert answer["error"]["err_code"] == 10039


@pytest.mark.parametrize(
    ("level", "ok"), [("0", 1), ("4", 1), ("  1", 1), ("", 1), ("5", 0), ("x", 0), ("1 ", 0)]
)
def test_required_level(api: ApiServer, level: str, ok: bool) -> None:
    headers = f"NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n".encode()
    error = api.ask("INFO", headers=headers).get("error", {})
    assert (error.get("err_code"), error.get("code")) == ((None, None) if ok else (10185, 412))


def test_domain(tmp_path: Path) -> None:
    with ApiServer(tmp_path, domain="hub") as api:
        api.ok("STREAM.CREATE.S", {"name": "S"})
        assert api.ok("STREAM.INFO.S")["domain"] == "hub"
        assert api.ok("INFO")["domain"] == "hub"


def test_counting(api: ApiServer) -> None:
    api.stream("S")
    api.engine.store("S")
    api.refused("STREAM.CREATE.S", {"name": "S", "description": "x"})
    api.ok("STREAM.MSG.GET.S", {"seq": 1})
    api.refused("STREAM.MSG.GET.S", {"seq": 2})
    assert api.ok("INFO")["api"] == {"level": 4, "total": 3, "errors": 2}


def test_submitted_requests_are_answered_once_each(api: ApiServer) -> None:
    async def burst() -> None:
        for n in range(50):
            body = json.dumps({"name": f"S{n}", "storage": "memory"}).encode()
            subject = f"$JS.API.STREAM.CREATE.S{n}".encode()
            api.dispatcher.submit(Request(ACCOUNT, subject, b"reply.%d" % n, b"", body))
        api.dispatcher.submit(Request(ACCOUNT, b"$JS.API.STREAM.NAMES", b""))
        api.dispatcher.submit(Request(ACCOUNT, b"$JS.API.NOTHING", b"reply.silent"))
        while len(api.engine.published) < 50:
            await asyncio.sleep(0.001)

    api.run(burst())
    assert sorted(s for s, _ in heard(api)) == sorted(f"reply.{n}" for n in range(50))


def test_a_queue_that_is_too_long_is_dropped_and_told(tmp_path: Path) -> None:
    with ApiServer(tmp_path, info_queue_limit=3) as api:
        for account in (api.engine, api.system):
            account.listened.append("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")

        async def flood() -> None:
            for n in range(4):
                api.dispatcher.submit(Request(ACCOUNT, b"$JS.API.INFO", b"reply.%d" % n))
            await asyncio.sleep(0)

        api.run(flood())
        assert heard(api) == []
        ((subject, event),) = heard(api, api.system)
        assert subject == "$JS.EVENT.ADVISORY.API.LIMIT_REACHED" and event["dropped"] == 4


def test_the_system_account_is_told_where_somebody_listens(api: ApiServer) -> None:
    api.dispatcher.advisories.out_of_storage()
    api.dispatcher.advisories.limit_reached(4)
    assert heard(api) == heard(api, api.system) == []


def test_what_the_system_account_hears(api: ApiServer) -> None:
    told = BatchAbandoned(account=ACCOUNT, stream="S", batch="b", reason="large")
    subject = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"
    api.dispatcher.on_event(told)
    assert heard(api) == heard(api, api.system) == []
    api.engine.listened.append(subject)
    api.system.listened += [subject, "$JS.EVENT.ADVISORY.SERVER.OUT_OF_STORAGE"]
    api.dispatcher.on_event(told)
    ((where, event),) = heard(api)
    assert where == subject and list(event)[3:] == ["stream", "batch", "reason"]
    ((where, event),) = heard(api, api.system)
    assert where == subject and list(event)[3:] == ["account", "stream", "batch", "reason"]
    assert event["account"] == ACCOUNT
    api.dispatcher.advisories.out_of_storage()
    ((_, event),) = heard(api, api.system)
    assert event["type"] == "io.nats.jetstream.advisory.v1.server_out_of_space"
    assert list(event)[3:] == ["server", "server_id", "cluster"]


def test_what_is_asked_while_it_stops_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A client that heard of no stream might make it anew."""
    with ApiServer(tmp_path) as api:
        api.stream("S")
        stopped, stop = threading.Event(), api.engine.streams["S"].close

        def slowly(delete: bool) -> None:
            assert stopped.wait(10)
            stop(delete)

        api.engine.streams["S"].close = slowly  # type: ignore[method-assign]
        subjects = [b"STREAM.INFO.S", b"STREAM.CREATE.S", b"STREAM.NAMES", b"STREAM.DELETE.S"]

        async def ask() -> None:
            closing = asyncio.ensure_future(api.dispatcher.close())
            while api.account.streams:
                await asyncio.sleep(0)
            for subject in subjects:
                request = Request(ACCOUNT, b"$JS.API." + subject, b"r", b"", b'{"name":"S"}')
                api.dispatcher.submit(request)
            while len(api.engine.published) < len(subjects):
                await asyncio.sleep(0)
            stopped.set()
            await closing
            api.dispatcher.submit(Request(ACCOUNT, b"$JS.API.INFO", b"r"))

        api.run(ask())
        codes = [answer["error"]["err_code"] for _, answer in heard(api)]
        assert codes == [10008] * len(subjects)
    with ApiServer(tmp_path, engine=FakeAccount()) as api:
        assert api.ok("STREAM.NAMES")["streams"] == ["S"]


def test_a_failure_inside_is_an_error_for_the_client_and_a_log_line(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    api.stream("S")

    def broken() -> None:
        raise RuntimeError("secret detail")

    api.engine.streams["S"].state = broken  # type: ignore[method-assign,assignment]
    code, text = api.refused("STREAM.INFO.S")
    assert code == 10051 and "secret" not in text
    assert "secret detail" in caplog.text


# ---- advisories --------------------------------------------------------------------------------


def test_nothing_is_published_when_nobody_listens(api: ApiServer) -> None:
    api.stream("S")
    api.consumer("S", "c")
    api.ok("STREAM.DELETE.S")
    assert heard(api) == []


def test_life_of_a_stream_and_its_consumer(api: ApiServer) -> None:
    api.engine.listened += ["$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>"]
    api.stream("S")
    api.stream("S")
    api.consumer("S", "c", pause_until="2101-01-01T00:00:00Z")
    api.consumer("S", "c", description="tells again that it is paused")
    api.ok("STREAM.UPDATE.S", {"name": "S", "description": "x"})
    api.ok("CONSUMER.PAUSE.S.c")
    api.ok("CONSUMER.PAUSE.S.c")
    api.ok("STREAM.DELETE.S")
    events = heard(api)
    assert [s.removeprefix("$JS.EVENT.ADVISORY.") for s, _ in events] == [
        "STREAM.CREATED.S",
        "CONSUMER.CREATED.S.c",
        "CONSUMER.PAUSE.S.c",
        "CONSUMER.PAUSE.S.c",
        "STREAM.UPDATED.S",
        "CONSUMER.PAUSE.S.c",
        "CONSUMER.DELETED.S.c",
        "STREAM.DELETED.S",
    ]
    created = events[0][1]
    assert list(created) == ["type", "id", "timestamp", "stream", "action"]
    assert created["type"] == "io.nats.jetstream.advisory.v1.stream_action"
    assert len(created["id"]) == 22
    assert [e["action"] for s, e in events if "PAUSE" not in s] == [
        "create",
        "create",
        "modify",
        "delete",
        "delete",
    ]
    assert [e["paused"] for s, e in events if "PAUSE" in s] == [True, True, False]


def test_audit(api: ApiServer) -> None:
    api.engine.listened.append("$JS.EVENT.ADVISORY.API")
    api.stream("S")
    api.engine.store("S")
    api.ok("STREAM.MSG.GET.S", {"seq": 1})
    api.refused("STREAM.INFO.X", b"body")
    (_, made), (_, failed) = heard(api)
    assert list(made) == [
        "type",
        "id",
        "timestamp",
        "server",
        "client",
        "subject",
        "request",
        "response",
    ]
    assert made["subject"] == "$JS.API.STREAM.CREATE.S" and made["server"] == "srv"
    assert json.loads(made["response"])["did_create"] is True
    assert failed["request"] == "body" and "10059" in failed["response"]


@pytest.mark.parametrize(
    ("kind", "subject", "fields"),
    [
        (
            AdvisoryKind.MAX_DELIVER,
            "ADVISORY.CONSUMER.MAX_DELIVERIES.S.c",
            ["stream", "consumer", "stream_seq", "deliveries"],
        ),
        (
            AdvisoryKind.NAK,
            "ADVISORY.CONSUMER.MSG_NAKED.S.c",
            ["stream", "consumer", "consumer_seq", "stream_seq", "deliveries"],
        ),
        (
            AdvisoryKind.TERM,
            "ADVISORY.CONSUMER.MSG_TERMINATED.S.c",
            ["stream", "consumer", "consumer_seq", "stream_seq", "deliveries", "reason"],
        ),
        (
            AdvisoryKind.ACK_METRIC,
            "METRIC.CONSUMER.ACK.S.c",
            ["stream", "consumer", "consumer_seq", "stream_seq", "ack_time", "deliveries"],
        ),
    ],
)
def test_what_consumers_tell(
    api: ApiServer, kind: AdvisoryKind, subject: str, fields: list[str]
) -> None:
    api.dispatcher.on_event(
        ConsumerAdvisory(
            account=ACCOUNT,
            stream="S",
            consumer="c",
            kind=kind,
            stream_seq=7,
            consumer_seq=8,
            deliveries=2,
            ack_time=9,
            reason="why",
        )
    )
    ((where, event),) = heard(api)
    assert where == f"$JS.EVENT.{subject}"
    assert list(event)[3:] == fields and event["stream_seq"] == 7


# ---- events --------------------------------------------------------------------------------------


def test_an_inactive_consumer_is_removed(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    api.engine.listened.append("$JS.EVENT.ADVISORY.CONSUMER.DELETED.>")
    api.stream("S")
    api.consumer("S", "c")
    old = api.engine.streams["S"].consumers[0].id

    async def tell(identity: int) -> None:
        event = ConsumerGone(account=ACCOUNT, stream="S", consumer="c", id=identity)
        api.dispatcher.on_event(event)
        await api.dispatcher._tasks.finished()

    api.run(tell(old))
    assert api.ok("CONSUMER.NAMES.S")["consumers"] == []
    assert len(heard(api)) == 1
    api.run(tell(old))  # and is gone by now
    assert heard(api) == [] and caplog.records == []
    api.consumer("S", "c")
    api.run(tell(old))
    assert api.ok("CONSUMER.NAMES.S")["consumers"] == ["c"], "a new one of the same name stays"


def test_the_end_of_a_pause_is_told(api: ApiServer) -> None:
    api.engine.listened.append("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
    api.stream("S")
    api.consumer("S", "c", pause_until="2001-01-01T00:00:00Z")
    api.dispatcher.on_event(PauseOver(account=ACCOUNT, stream="S", consumer="c"))
    ((_, event),) = heard(api)
    assert event["paused"] is False and event["pause_until"] == "2001-01-01T00:00:00Z"


# ---- the order of a connection -------------------------------------------------------------------


class Held:
    """Lets a thread wait in a stream's `purge` until a test lets it go on."""

    def __init__(self, api: ApiServer, stream: str) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._purge = api.engine.streams[stream].purge
        api.engine.streams[stream].purge = self  # type: ignore[method-assign,assignment]

    def __call__(
        self, filter: bytes | None, seq: int, keep: int, short: bool = False
    ) -> int | None:
        if short:
            return None
        self.begun.set()
        assert self.go_on.wait(20)
        return self._purge(filter, seq, keep)


def submit(api: ApiServer, connection: int, *subjects: str, body: bytes = b"") -> None:
    for subject in subjects:
        reply = f"{connection}.{subject}".encode()
        asked = f"$JS.API.{subject}".encode()
        request = Request(ACCOUNT, asked, reply, b"", body, connection=connection)
        api.dispatcher.submit(request)


async def answered(api: ApiServer, count: int) -> list[str]:
    while len(api.engine.published) < count:
        await asyncio.sleep(0.001)
    return [subject.decode() for subject, _ in api.engine.published]


def test_only_what_depends_on_a_request_waits_for_it(api: ApiServer) -> None:
    api.stream("S")
    api.stream("T")
    held = Held(api, "S")

    async def ask() -> None:
        submit(api, 1, "STREAM.PURGE.S", "STREAM.INFO.S", "STREAM.INFO.T", "STREAM.NAMES")
        submit(api, 2, "STREAM.INFO.S", "STREAM.NAMES")
        others = ["1.STREAM.INFO.T", "2.STREAM.INFO.S", "2.STREAM.NAMES"]
        assert sorted(await answered(api, 3)) == others
        held.go_on.set()
        assert (await answered(api, 6))[3:] == [
            "1.STREAM.PURGE.S",
            "1.STREAM.INFO.S",
            "1.STREAM.NAMES",
        ]

    api.run(ask())


def test_what_waits_for_its_connection_keeps_no_other_one_waiting(api: ApiServer) -> None:
    api.stream("S")
    held = Held(api, "S")

    async def ask() -> None:
        for connection in range(1, 9):
            submit(api, connection, "STREAM.PURGE.S", *["STREAM.INFO.S"] * 100)
        while api.dispatcher.waiting:
            await asyncio.sleep(0.001)
        submit(api, 99, "STREAM.INFO.S")
        assert await answered(api, 1) == ["99.STREAM.INFO.S"]
        held.go_on.set()
        await answered(api, 1 + 8 * 101)

    api.run(ask())


def test_what_waits_for_its_connection_is_answered_when_the_server_stops(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("S")
        held = Held(api, "S")

        async def ask() -> None:
            submit(api, 1, "STREAM.PURGE.S", "STREAM.INFO.S", "STREAM.PURGE.S")
            while not held.begun.is_set():
                await asyncio.sleep(0.001)
            closing = asyncio.ensure_future(api.dispatcher.close())
            await asyncio.sleep(0)
            held.go_on.set()
            await closing

        api.run(ask())
        assert [subject for subject, _ in heard(api)] == [
            "1.STREAM.PURGE.S",
            "1.STREAM.INFO.S",
            "1.STREAM.PURGE.S",
        ]


def test_what_waits_for_its_connection_is_answered_when_its_account_goes(api: ApiServer) -> None:
    api.stream("S")
    held = Held(api, "S")

    async def ask() -> None:
        submit(api, 1, "STREAM.PURGE.S", "STREAM.INFO.S")
        while not held.begun.is_set():
            await asyncio.sleep(0.001)
        going = asyncio.ensure_future(api.dispatcher.remove_account(ACCOUNT))
        await asyncio.sleep(0)
        held.go_on.set()
        await going

    api.run(ask())
    told = heard(api)
    assert [subject for subject, _ in told] == ["1.STREAM.PURGE.S", "1.STREAM.INFO.S"]
    assert all("error" not in answer for _, answer in told)


def test_two_connections_that_want_each_others_streams_both_get_on(api: ApiServer) -> None:
    """Each removes what the other one makes, and makes what the other one removes."""

    async def ask() -> None:
        for _ in range(20):
            for connection, (first, second) in ((1, "ST"), (2, "TS")):
                for name, verb in ((first, "CREATE"), (second, "CREATE"), (first, "DELETE")):
                    body = json.dumps({"name": name}).encode() if verb == "CREATE" else b""
                    submit(api, connection, f"STREAM.{verb}.{name}", body=body)
        await answered(api, 20 * 6)

    api.run(ask())


#: What shows a stream or a consumer as it is now, behind a change of its own too.
SHOWN: dict[str, dict[str, Any] | None] = {
    "STREAM.INFO.S": None,
    "STREAM.CREATE.S": {"name": "S", "subjects": ["S"]},
    "STREAM.UPDATE.S": {"name": "S", "subjects": ["S"], "max_msgs": 5},
    "CONSUMER.INFO.S.c": None,
    "CONSUMER.LIST.S": None,
    "CONSUMER.RESET.S.c": None,
}


@pytest.mark.parametrize("subject", SHOWN)
def test_an_answer_is_held_until_what_it_shows_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    """Also messages that come between the change and the answer."""
    body = SHOWN[subject]
    payload = b"" if body is None else json.dumps(body).encode()
    with ApiServer(tmp_path) as api:
        api.stream("S", subjects=["S"])
        api.consumer("S", "c", durable_name="c", ack_policy="explicit")
        monkeypatch.setattr(FakeStream, "unsettled", lambda self, seq=0: 7)
        request = Request(ACCOUNT, f"$JS.API.{subject}".encode(), b"r", b"", payload)
        found = find(subject)
        assert found is not None
        served = api.run(api.dispatcher._serve(request, found))
    assert b'"error"' not in served.response
    assert served.shown is not None and served.shown[1] == 7
