"""No answer shows or confirms what is not on disk: while syncs do not return, nothing is heard."""

import errno
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import Frame, RawApp
from tests.client.tokens import Client, configured
from tests.fault.faulty import Faults
from tests.jwts import Account, Operator, User
from tests.servers import Server, Servers, servers_in
from tests.waiting import wait_until

HELD_SECONDS = 1.0
ANSWER_SECONDS = 30.0
STREAM = {"name": "S", "subjects": ["s.>"], "allow_direct": True}
LATE = b"not on disk"
CONSUMER = {"durable_name": "c", "ack_policy": "explicit"}
Body = dict[str, Any] | bytes | None

#: Request -> its body, and what of a message that waits for its sync the answer shows.
SHOWS: dict[str, tuple[Body, bytes]] = {
    "STREAM.INFO.S": (None, b'"messages":4'),
    "STREAM.LIST": (None, b'"messages":4'),
    "STREAM.SNAPSHOT.S": ({"deliver_subject": "nobody"}, b'"messages":4'),
    "STREAM.CREATE.S as it is": (STREAM, b'"messages":4'),
    "CONSUMER.CREATE.S.c as it is": (
        {"stream_name": "S", "config": CONSUMER},
        b'"num_pending":4',
    ),
    "STREAM.MSG.GET.S last": ({"last_by_subj": "s.1"}, b64encode(LATE)),
    "STREAM.MSG.GET.S in another form": (b'{"s\\u0065q":4}', b64encode(LATE)),
    "STREAM.MSG.GET.S seq": ({"seq": 4}, b64encode(LATE)),
    "CONSUMER.INFO.S.c": (None, b'"num_pending":4'),
    "CONSUMER.LIST.S": (None, b'"num_pending":4'),
    "JSSERVER.CONSUMER.WAITS.S.c": (None, b'"lag":{"messages":4'),
    "JSSERVER.CONSUMER.PENDING.S.c": (None, b'"num_ack_pending":0'),
    "DIRECT.GET.S": ({"last_by_subj": "s.1"}, LATE),
    "DIRECT.GET.S.s.1": (None, LATE),
}
#: Request -> its body. Each changes something itself.
CHANGES: dict[str, Body] = {
    "STREAM.CREATE.T": {"name": "T", "subjects": ["t"]},
    "STREAM.UPDATE.S": {**STREAM, "max_msgs": 100},
    "STREAM.DELETE.S": None,
    "STREAM.MSG.DELETE.S": {"seq": 2},
    "STREAM.MSG.DELETE.S unerased": {"seq": 2, "no_erase": True},
    "STREAM.MSG.DELETE.S in another form": b'{"s\\u0065q":2}',
    "STREAM.PURGE.S": None,
    "STREAM.PURGE.S some": {"filter": "s.1"},
    "STREAM.PURGE.S keep": {"keep": 1},
    "CONSUMER.CREATE.S.d": {
        "stream_name": "S",
        "config": {"durable_name": "d", "ack_policy": "explicit"},
    },
    "CONSUMER.CREATE.S.c": {"stream_name": "S", "config": {**CONSUMER, "description": "new"}},
    "CONSUMER.DELETE.S.c": None,
    "CONSUMER.RESET.S.c": None,
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Faults]]:
    folder = tmp_path_factory.mktemp("held")
    faults = Faults(folder, "/jetstream/")
    with servers_in(folder) as servers:
        yield servers.under_test(jetstream=True, env=faults.env), faults


def begin(app: RawApp, **config: object) -> None:
    """The stream with a consumer and three messages, on disk."""
    for name in ("S", "T"):
        app.api(f"STREAM.DELETE.{name}")
    assert "error" not in app.api("STREAM.CREATE.S", STREAM | config)
    made = app.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": CONSUMER})
    assert "error" not in made, made
    for n in range(3):
        assert json.loads(app.request(f"s.{n}", b"x").payload)["seq"] == n + 1


def held_back(app: RawApp, faults: Faults, requests: dict[str, bytes]) -> list[Frame]:
    """The answers to requests, none of which comes while syncs do not return."""
    faults.fail("sync", 0, times=1 << 30, held=True)
    try:
        for subject, data in requests.items():
            app.publish(subject, data, reply=app.inbox())
        early = [frame for frame in app.quiet(HELD_SECONDS) if frame.verb in ("MSG", "HMSG")]
        assert early == []
        assert faults.seen("sync") > 0, "the library does not reach what the server calls"
    finally:
        faults.mend()
    return app.messages(len(requests))


def encoded(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"" if body is None else json.dumps(body).encode()


@pytest.mark.parametrize("asked", SHOWS)
def test_an_answer_waits_for_what_it_shows(held: tuple[Server, Faults], asked: str) -> None:
    server, faults = held
    body, shown = SHOWS[asked]
    with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
        begin(app)
        subject = f"$JS.API.{asked.partition(' ')[0]}"
        answers = held_back(app, faults, {"s.1": LATE, subject: encoded(body)})
        assert any(shown in answer.payload for answer in answers), answers


@pytest.mark.parametrize("asked", CHANGES)
def test_an_answer_waits_for_what_it_changes(held: tuple[Server, Faults], asked: str) -> None:
    server, faults = held
    with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
        begin(app)
        subject = f"$JS.API.{asked.partition(' ')[0]}"
        (answer,) = held_back(app, faults, {subject: encoded(CHANGES[asked])})
        assert b'"error"' not in answer.payload, answer


def test_publishes_and_acks_wait_for_the_disk(held: tuple[Server, Faults]) -> None:
    server, faults = held
    with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
        begin(app)
        delivery = app.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1")
        held_back(app, faults, {"s.1": b"one more", delivery.reply: b"+ACK"})


def test_what_goes_with_a_consumer_is_gone_for_good(held: tuple[Server, Faults]) -> None:
    """Messages that only this consumer wanted: their removal is on disk when it is answered."""
    server, faults = held
    faults.aim("/msgs/")
    try:
        with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
            begin(app, retention="interest")
            (answer,) = held_back(app, faults, {"$JS.API.CONSUMER.DELETE.S.c": b""})
            assert b'"success":true' in answer.payload
            assert app.api("STREAM.INFO.S")["state"]["messages"] == 0
    finally:
        faults.aim("/jetstream/")


@pytest.mark.parametrize("asked", ["STREAM.UPDATE.S", "CONSUMER.RESET.S.c"])
def test_a_change_waits_for_the_messages_that_its_answer_shows(
    held: tuple[Server, Faults], asked: str
) -> None:
    """The change itself is on disk; a message before it is not."""
    server, faults = held
    faults.aim("/msgs/")
    try:
        with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
            begin(app)
            subject = f"$JS.API.{asked}"
            answers = held_back(app, faults, {"s.1": LATE, subject: encoded(CHANGES[asked])})
            shown = (b'"messages":4', b'"num_pending":4')
            assert any(part in answer.payload for answer in answers for part in shown), answers
    finally:
        faults.aim("/jetstream/")


def test_a_longer_age_comes_after_what_the_shorter_one_removed(
    held: tuple[Server, Faults],
) -> None:
    """Else a power cut in between brings messages back."""
    server, faults = held
    faults.aim("/msgs/")
    meta = server.store / "jetstream" / "$G" / "streams" / "S" / "meta.inf"
    try:
        with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
            begin(app, max_age=10**9)
            before = meta.read_bytes()
            faults.fail("sync", 0, times=1 << 30, held=True)
            try:
                wait_until(lambda: app.api("INFO")["storage"] == 0, "all messages are too old")
                app.publish("$JS.API.STREAM.UPDATE.S", encoded(STREAM), reply=app.inbox())
                assert [f for f in app.quiet(HELD_SECONDS) if f.verb == "MSG"] == []
                assert meta.read_bytes() == before
            finally:
                faults.mend()
            assert b'"max_age":0' in app.message().payload
            assert b'"max_age":0' in meta.read_bytes()
    finally:
        faults.aim("/jetstream/")


BUCKET = {"name": "OBJ_b", "subjects": ["$O.b.C.>", "$O.b.M.>"], "allow_rollup_hdrs": True}


def with_objects(servers: Servers, tmp_path: Path) -> tuple[Server, Faults]:
    """A server that answers requests to buckets, and the disk under the messages of one."""
    faults = Faults(tmp_path, "/OBJ_b/msgs/")
    config = f"jetstream {{ store_dir: '{tmp_path / 'store'}', object_requests: true }}"
    return servers.under_test(config=config, env=faults.env), faults


def test_an_object_is_told_of_when_it_is_on_disk(servers: Servers, tmp_path: Path) -> None:
    server, faults = with_objects(servers, tmp_path)
    meta = {"bucket": "b", "name": "x", "nuid": "n", "chunks": 0, "size": 0}
    with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
        assert "error" not in app.api("STREAM.CREATE.OBJ_b", BUCKET)
        requests = {"$O.b.M.eA==": json.dumps(meta).encode(), "$OBJ.b": b'{"name":"x"}'}
        answers = held_back(app, faults, requests)
        assert any(b'"nuid":"n"' in answer.payload for answer in answers), answers


def test_chunks_of_an_object_are_gone_for_good(servers: Servers, tmp_path: Path) -> None:
    """When its deletion is answered: the meta's sync returns, that of their removal does not."""
    server, faults = with_objects(servers, tmp_path)
    meta = {"bucket": "b", "name": "x", "nuid": "n", "chunks": 1, "size": 1}
    with RawApp(server.port, timeout=ANSWER_SECONDS) as app:
        assert "error" not in app.api("STREAM.CREATE.OBJ_b", BUCKET)
        app.request("$O.b.C.n", b"x")
        app.request("$O.b.M.eA==", json.dumps(meta).encode())
        faults.fail("sync", 0, after=1, times=1 << 30, held=True)
        try:
            app.publish("$OBJ.b", b'{"action":"delete","name":"x"}', reply=app.inbox())
            wait_until(lambda: faults.seen("sync") > 0, "the removal is written")
            early = [frame for frame in app.quiet(HELD_SECONDS) if frame.verb == "MSG"]
            assert early == []
        finally:
            faults.mend()
        (answer,) = app.messages(1)
        assert b'"error"' not in answer.payload, answer
        assert app.api("STREAM.INFO.OBJ_b")["state"]["messages"] == 1


def test_the_token_of_an_account_is_on_disk_when_its_update_is_answered(
    servers: Servers, tmp_path: Path
) -> None:
    operator = Operator()
    faults = Faults(tmp_path, "/tokens/")
    resolver = f"resolver: {{ dir: '{tmp_path / 'tokens'}', type: full }}"
    config = configured(operator, []).replace("resolver: MEMORY", resolver)
    server = servers.under_test(config=config, env=faults.env)
    account = Account(operator)
    with Client(server, User(operator.sys)) as client:
        faults.fail("sync", 0, times=1 << 30, held=True)
        try:
            data = account.token.encode()
            client.send(b"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in %d\r\n" % len(data))
            client.send(data + b"\r\n")
            wait_until(lambda: faults.seen("sync") > 0, "the token is written")
            early = [frame for frame in client.quiet(HELD_SECONDS) if frame.verb == "MSG"]
            assert early == []
        finally:
            faults.mend()
        assert b"jwt updated" in client.message(ANSWER_SECONDS).payload
        stored = tmp_path / "tokens" / f"{account.public}.jwt"
        assert stored.read_text() == account.token
        # Its bytes are synced before its name: a power cut leaves no empty token.
        faults.fail("sync", errno.EIO, times=1)
        other = Account(operator)
        data = other.token.encode()
        client.send(b"PUB $SYS.REQ.CLAIMS.UPDATE in %d\r\n" % len(data) + data + b"\r\n")
        assert b"jwt updated" not in client.message(ANSWER_SECONDS).payload
        assert not (tmp_path / "tokens" / f"{other.public}.jwt").exists()
