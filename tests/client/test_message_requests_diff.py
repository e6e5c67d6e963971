"""MSG.GET and MSG.DELETE, which streams answer themselves where they are plain: what both servers
answer, whatever form a request has, in which order, and what they count."""

import json
import re

import pytest

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

HEADER = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n"
TIME = re.compile(rb'"time":"[^"]*"')
INVALID = re.compile(rb'"description":"invalid JSON: .*"')
SUBJECTS = [
    *("s.a", "s.b", "s.a", 's."q"', "s.\u00e4", "s.<&>", "s.back\\slash", "s.\u2028", "s.c.d.e"),
    *("s.a", "s.b"),
]
GETS: list[bytes] = [
    *(b'{"seq":%d}' % seq for seq in range(16)),
    *(b'{"seq":%d,"no_hdr":true}' % seq for seq in (2, 3)),
    *(b'{"last_by_subj":"%s"}' % s for s in (b"s.a", b"s.*", b"s.>", b">", b"s", b"s.x", b"s..a")),
    *(b'{"next_by_subj":"s.a","seq":%d}' % seq for seq in (0, 1, 2, 3, 4, 11, 12)),
    *(b'{"next_by_subj":"%s","seq":4}' % s for s in (b"*.b", b"s.c.>", b"s.*.*", b"x.>", b"")),
    b'{"last_by_subj":"s.\xc3\xa4"}',
    b'{"last_by_subj":"s.\\u00e4"}',
    b'{"last_by_subj":"s.\xe4"}',
    b'{"last_by_subj":"s.\\"q\\""}',
    b'{"last_by_subj":""}',
    b'{"last_by_subj":"s.a","seq":1}',
    b'{"last_by_subj":"s.a","seq":0}',
    b'{"last_by_subj":"s.a","next_by_subj":"s.a"}',
    b'{"last_by_subj":"s.a","next_by_subj":""}',
    b'{"start_time":"2001-01-01T00:00:00Z"}',
    b'{"start_time":"2001-01-01T00:00:00Z","next_by_subj":"s.b"}',
    b'{"start_time":"2101-01-01T00:00:00Z"}',
    b'{"start_time":null,"seq":2}',
    b'{"seq":2,"batch":0}',
    b'{"seq":2,"batch":1}',
    b'{"seq":2,"max_bytes":1}',
    b'{"seq":2,"multi_last":["s.a"]}',
    b'{"seq":2,"up_to_seq":1}',
    b'{"no_hdr":true}',
    b'{"seq":2,"no_hdr":null}',
    b'{"seq":2,"no_hdr":1}',
]
DELETES: list[bytes] = [
    *(b'{"seq":%d}' % seq for seq in (2, 2, 1, 1, 0, 40)),
    b'{"seq":3,"no_erase":true}',
    b'{"seq":3,"no_erase":true}',
    b'{"no_erase":false,"seq":4}',
    b'{"no_erase":true}',
    b'{"seq":6,"no_erase":null}',
    b'{"seq":7,"no_erase":1}',
]
FORMS: list[bytes] = [
    b"",
    b" ",
    b"{}",
    b" { } ",
    b"null",
    b"true",
    b"7",
    b'"seq"',
    b"[]",
    b'[{"seq":5}]',
    b"{",
    b'{"seq"}',
    b'{"seq":}',
    b'{"seq":5',
    b'{"seq":5,}',
    b'{"seq":5}}',
    b"{'seq':5}",
    b"{seq:5}",
    b'{"seq":05}',
    b'{"seq":5.0}',
    b'{"seq":5e0}',
    b'{"seq":-5}',
    b'{"seq":"5"}',
    b'{"seq":true}',
    b'{"seq":[5]}',
    b'{"seq":null}',
    b'{"seq":18446744073709551615}',
    b'{"seq":18446744073709551616}',
    b'{"seq":5,"other":{"a":[1,2]}}',
    b'{"seq":40,"seq":5}',
    b'{"seq":5,"seq":40}',
    b'{"SEQ":8}',
    b'{"Seq":9,"seq":8}',
    b'{"\\u0073eq":9}',
    b'\xef\xbb\xbf{"seq":5}',
    b'\n{"seq"\t:\r10 } ',
]


def answer(app: RawApp, subject: str, body: bytes, header: bytes = b"") -> bytes:
    payload = app.request(f"$JS.API.STREAM.MSG.{subject}", body, header=header).payload
    return INVALID.sub(b"invalid", TIME.sub(b"time", payload))


def filled(server: Server, **config: object) -> RawApp:
    """A connection of which the control plane has no request, and a stream with messages."""
    with RawApp(server.port) as other:
        answer = other.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
        assert "error" not in answer
    app = RawApp(server.port)
    for n, subject in enumerate(SUBJECTS):
        app.request(subject, b"x" * n, header=HEADER if n % 3 == 1 else b"")
    return app


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_every_form_of_a_request(servers: Servers, storage: str) -> None:
    told = []
    for start in (servers.under_test, servers.peer):
        with filled(start(jetstream=True), storage=storage) as app:
            said = [(body, answer(app, "GET.S", body)) for body in GETS + FORMS]
            for number in (b"", b"0", b"1", b"99", b"x", b"-1"):
                for verb in ("GET.S", "DELETE.S"):
                    said.append((number, answer(app, verb, b'{"seq":5}', LEVEL % number)))
            for body in DELETES + FORMS:
                said.append((body, answer(app, "DELETE.S", body)))
                said.append((body, answer(app, "GET.S", b'{"next_by_subj":"s.>"}')))
            said += [(b"", answer(app, f"{verb}.X", b'{"seq":1}')) for verb in ("GET", "DELETE")]
            info = app.api("STREAM.INFO.S", {"deleted_details": True})
            assert isinstance(info["state"], dict)
            told.append((said, info["state"]["deleted"], counted(app)))
    (ours, our_deleted, our_count), (theirs, their_deleted, their_count) = told
    assert ours == theirs
    assert our_deleted == their_deleted
    assert our_count == their_count


def counted(app: RawApp) -> int:
    """Requests that the account made."""
    api = app.api("INFO")["api"]
    assert isinstance(api, dict)
    return int(api["total"])


@pytest.mark.parametrize("refused", [{"sealed": True}, {"deny_delete": True}])
def test_streams_that_let_nothing_be_deleted(servers: Servers, refused: dict[str, object]) -> None:
    told = []
    for start in (servers.under_test, servers.peer):
        with filled(start(jetstream=True)) as app:
            said = [answer(app, "DELETE.S", b'{"seq":1}')]
            app.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **refused})
            said += [answer(app, "DELETE.S", b'{"seq":2}'), answer(app, "GET.S", b'{"seq":2}')]
            told.append(said)
    assert told[0] == told[1]


def test_what_one_connection_asks_is_done_in_its_order(servers: Servers) -> None:
    """Each sees what the ones before it changed, however many are on their way, also where the
    control plane answers some."""
    count = len(SUBJECTS)
    with filled(servers.under_test(jetstream=True)) as app:
        app.subscribe("answers.*")
        asked: list[tuple[str, bytes]] = []
        want: list[str] = []
        for seq in range(1, count + 1):
            asked += [("GET", b'{"seq":%d}' % seq), ("GET", b'{"seq":0,"SEQ":%d}' % seq)]
            asked += [("DELETE", b'{"seq":%d}' % seq), ("GET", b'{"seq":%d}' % seq)]
            asked += [("DELETE", b'{"seq":%d,"no_erase":true}' % seq)]
            asked += [("GET", b'{"next_by_subj":"s.>"}')]
            following = str(seq + 1) if seq < count else "no message found"
            want += [str(seq)] * 2 + ["deleted", "no message found", "no message found", following]
        for n, (verb, body) in enumerate(asked):
            app.publish(f"$JS.API.STREAM.MSG.{verb}.S", body, reply=f"answers.{n:04}")
        frames = sorted(app.messages(len(asked)), key=lambda f: f.subject)
    assert [_short(f) for f in frames] == want


def _short(frame: Frame) -> str:
    """The sequence, that it is deleted, or why not."""
    body = json.loads(frame.payload)
    if "error" in body:
        return str(body["error"]["description"])
    return "deleted" if body.get("success") else str(body["message"]["seq"])


def test_requests_from_another_account(servers: Servers) -> None:
    """By an import of the API, and by a domain's name."""
    config = """
    accounts {
      A { jetstream: enabled, users: [{user: a, password: a}]
          exports: [{service: "$JS.API.STREAM.MSG.>"}] }
      B { users: [{user: b, password: b}]
          imports: [{service: {account: A, subject: "$JS.API.STREAM.MSG.>"}, to: "far.>"}] }
    }
    """
    told = []
    options = '{{"user":"{0}","pass":"{0}","headers":true,"no_responders":true,"verbose":false}}'
    for start in (servers.under_test, servers.peer):
        server = start(config=config, jetstream=True)
        with (
            RawApp(server.port, options=options.format("a").encode()) as near,
            RawApp(server.port, options=options.format("b").encode()) as far,
        ):
            near.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            for n in range(3):
                near.request("s.a", b"%d" % n)
            said = []
            for verb in ("GET", "DELETE", "GET", "DELETE"):
                got = far.request(f"far.{verb}.S", b'{"seq":2}')
                said.append(TIME.sub(b"time", got.payload))
            got = far.request("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}')
            said.append(got.status.encode() or TIME.sub(b"time", got.payload))
            told.append((said, counted(near)))
    assert told[0] == told[1]


def test_whoever_listens_hears_of_deletions(servers: Servers) -> None:
    told = []
    for start in (servers.under_test, servers.peer):
        with filled(start(jetstream=True)) as app:
            app.subscribe("answers.*")
            app.subscribe("$JS.EVENT.ADVISORY.API")
            asked = [("GET", 3), ("GET", 40), ("DELETE", 1), ("DELETE", 2), ("GET", 41)]
            for n, (verb, seq) in enumerate(asked):
                body = b'{"seq":%d}' % seq
                app.publish(f"$JS.API.STREAM.MSG.{verb}.S", body, reply=f"answers.{n}")
            events = []
            for frame in app.messages(len(asked) + 4):
                if frame.subject.startswith("$JS"):
                    event = json.loads(frame.payload)
                    events.append((event["subject"], event["request"], event["response"]))
            told.append(sorted(events))
    assert told[0] == told[1]


def test_what_waits_for_the_disk_is_counted_with_the_rest(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with filled(server) as app, RawApp(server.port) as other:
        before = counted(other)
        app.subscribe("answers")
        for seq in (1, 2, 3):
            body = b'{"seq":%d}' % seq
            app.publish("$JS.API.STREAM.MSG.DELETE.S", body, reply="answers")
            app.publish("$JS.API.STREAM.MSG.GET.S", body, reply="answers")
        app.messages(6)
        after = other.api("INFO")["api"]
    # The INFO before is one, too; of the reads those that found nothing count.
    assert after == {"level": 4, "total": before + 7, "errors": 3}


def test_what_the_store_refuses_is_no_error_of_a_request(servers: Servers) -> None:
    told = []
    for start in (servers.under_test, servers.peer):
        with filled(start(jetstream=True)) as app:
            before = app.api("INFO")["api"]
            for stream, body in (
                ("S", b'{"seq":40}'),  # not there yet
                *(("S", b'{"seq":3}'), ("S", b'{"seq":3}')),  # removed before
                *(("S", b'{"seq":1}'), ("S", b'{"seq":1}')),  # before the first
                *(("S", b'{"seq":"x"}'), ("ABSENT", b'{"seq":1}')),
            ):
                app.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", body)
            after = app.api("INFO")["api"]
            told.append({name: after[name] - before[name] for name in ("total", "errors")})
    assert told[0] == told[1] == {"total": 8, "errors": 2}


def test_a_pipeline_goes_on_behind_what_the_control_plane_answers(servers: Servers) -> None:
    """The connection waits for that one; what it sent meanwhile is answered then."""
    with filled(servers.under_test(jetstream=True)) as app:
        app.subscribe("answers.*")
        for n in range(500):
            verb, body = ("DELETE", b'{"seq":40}') if n % 5 == 0 else ("GET", b'{"seq":1}')
            app.publish(f"$JS.API.STREAM.MSG.{verb}.S", body, reply=f"answers.{n}")
        frames = app.messages(500)
    for frame in frames:
        seq = json.loads(frame.payload).get("message", {}).get("seq")
        assert seq == (None if int(frame.subject.removeprefix("answers.")) % 5 == 0 else 1)
    assert len({frame.subject for frame in frames}) == 500
