"""What one connection asks of the API at once, without waiting for an answer: each request finds
what those before it have made, and nothing of what those behind it do, as if each had waited.
nats-server does not promise that."""

import json

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

Requests = list[tuple[str, object]]


def consumer(stream: str, name: str, **config: object) -> tuple[str, object]:
    body = {"stream_name": stream, "config": {"durable_name": name, **config}}
    return f"CONSUMER.CREATE.{stream}.{name}", body


REQUESTS: Requests = [
    ("STREAM.INFO.A", None),
    ("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]}),
    ("STREAM.INFO.A", None),
    ("STREAM.CREATE.B", {"name": "B", "subjects": ["a.b"]}),
    ("STREAM.CREATE.B", {"name": "B", "subjects": ["b"]}),
    ("STREAM.NAMES", None),
    consumer("A", "c"),
    ("INFO", None),
    ("CONSUMER.INFO.A.c", None),
    consumer("A", "d", deliver_policy="new"),
    consumer("A", "c", description="changed"),
    ("CONSUMER.NAMES.A", None),
    consumer("A", "c", deliver_policy="new"),
    ("CONSUMER.DELETE.A.c", None),
    ("CONSUMER.INFO.A.c", None),
    consumer("A", "c", deliver_policy="new"),
    ("CONSUMER.PAUSE.A.d", {"pause_until": "2100-01-01T00:00:00Z"}),
    ("CONSUMER.INFO.A.d", None),
    ("CONSUMER.NAMES.A", None),
    ("STREAM.PURGE.A", {"filter": "a.x"}),
    ("STREAM.INFO.A", None),
    ("STREAM.UPDATE.A", {"name": "A", "subjects": ["a.>", "c"], "max_msgs": 5}),
    ("STREAM.INFO.A", None),
    ("STREAM.DELETE.A", None),
    ("STREAM.MSG.GET.A", {"seq": 1}),
    ("CONSUMER.INFO.A.c", None),
    ("STREAM.INFO.A", None),
    ("STREAM.DELETE.A", None),
    ("STREAM.CREATE.C", {"name": "C", "subjects": ["d.>"]}),
    ("STREAM.MSG.GET.C", {"seq": 1}),
    ("STREAM.MSG.DELETE.C", {"seq": 1}),
    consumer(
        "C", "e", priority_groups=["g"], priority_policy="pinned_client", ack_policy="explicit"
    ),
    ("CONSUMER.UNPIN.C.e", {"group": "g"}),
    ("STREAM.CREATE.D", {"name": "D"}),
    ("STREAM.SNAPSHOT.D", {"deliver_subject": "nobody"}),
    ("STREAM.DELETE.B", None),
    ("STREAM.CREATE.W", {"name": "W", "retention": "workqueue"}),
    consumer("W", "one", ack_policy="explicit"),
    ("CONSUMER.DELETE.W.one", None),
    consumer("W", "two", ack_policy="explicit"),
    ("INFO", None),
    ("STREAM.LIST", None),
]


LARGE = {"name": "L", "subjects": ["l.one", *(f"l.{n}" for n in range(4000))]}
"""A configuration that is read beside the event loop."""


def subjects(name: str, *these: str) -> dict[str, object]:
    return {"name": name, "subjects": [*these]}


LATER: dict[str, Requests] = {
    "looks and a purge": [
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.MSG.GET.S", {"seq": 3}),
        ("STREAM.MSG.GET.S", {"start_time": "2001-01-01T00:00:00Z"}),
        ("STREAM.PURGE.S", None),
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
        ("STREAM.MSG.GET.S", {"seq": 3}),
    ],
    "looks and a removal": [
        ("STREAM.MSG.GET.S", {"seq": 3}),
        ("STREAM.MSG.DELETE.S", {"seq": 3}),
        ("STREAM.MSG.GET.S", {"seq": 3}),
        ("STREAM.MSG.GET.S", {"seq": 4}),
        ("STREAM.DELETE.S", None),
        ("STREAM.MSG.GET.S", {"seq": 4}),
    ],
    "a snapshot and a purge": [
        ("STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"}),
        ("STREAM.PURGE.S", None),
    ],
    "subjects of a stream that is removed": [
        ("STREAM.DELETE.S", None),
        ("STREAM.CREATE.T", subjects("T", "s.1")),
        ("STREAM.CREATE.U", subjects("U", "s.1")),
        ("STREAM.DELETE.T", None),
        ("STREAM.CREATE.U", subjects("U", "s.>")),
    ],
    "subjects that a stream gives up": [
        ("STREAM.UPDATE.S", subjects("S", "q")),
        ("STREAM.CREATE.T", subjects("T", "s.1")),
        ("STREAM.UPDATE.S", subjects("S", "s.1")),
        ("STREAM.UPDATE.T", subjects("T", "r")),
        ("STREAM.UPDATE.S", subjects("S", "s.1")),
    ],
    "a large configuration": [
        ("STREAM.CREATE.L", LARGE),
        ("STREAM.CREATE.T", subjects("T", "l.one")),
        ("STREAM.DELETE.L", None),
        ("STREAM.CREATE.T", subjects("T", "l.one")),
        ("STREAM.CREATE.L", LARGE),
        ("STREAM.DELETE.T", None),
    ],
    "room for one more stream": [
        *((f"STREAM.CREATE.T{n}", {"name": f"T{n}"}) for n in range(3)),
        ("STREAM.DELETE.T1", None),
        ("STREAM.CREATE.T2", {"name": "T2"}),
        ("STREAM.CREATE.T1", {"name": "T1"}),
    ],
    "room for one more consumer": [
        ("STREAM.CREATE.T", {"name": "T", "max_consumers": 1}),
        consumer("T", "c"),
        consumer("T", "d"),
        ("CONSUMER.DELETE.T.c", None),
        consumer("T", "d"),
    ],
    "a large configuration of a consumer": [
        ("STREAM.CREATE.W", {"name": "W", "subjects": ["w.>"], "retention": "workqueue"}),
        consumer("W", "c", ack_policy="explicit", filter_subjects=[f"w.{n}" for n in range(3000)]),
        consumer("W", "d", ack_policy="explicit", filter_subject="w.1"),
        ("CONSUMER.DELETE.W.c", None),
        consumer("W", "d", ack_policy="explicit", filter_subject="w.1"),
    ],
}


def essence(answer: dict[str, object]) -> object:
    """What an answer tells, without what differs from run to run."""
    if "error" in answer:
        error = answer["error"]
        assert isinstance(error, dict)
        return error["err_code"]
    told: dict[str, object] = {
        k: answer[k] for k in ("name", "consumers", "paused", "purged", "success") if k in answer
    }
    config, state, streams = (answer.get(k) for k in ("config", "state", "streams"))
    message = answer.get("message")
    if isinstance(message, dict):
        told["message"] = message["seq"]
    if isinstance(config, dict):
        shown = ("subjects", "max_msgs", "description", "deliver_policy", "pause_until")
        told["config"] = {k: config[k] for k in shown if k in config}
    if isinstance(state, dict):
        told["state"] = {k: state[k] for k in ("messages", "num_subjects") if k in state}
        told["subjects"] = sorted(state.get("subjects") or ())
    if isinstance(streams, int):
        told["streams"] = streams
    if isinstance(streams, list):
        told["streams"] = [s["config"]["name"] if isinstance(s, dict) else s for s in streams]
    return told


def asked(server: Server, requests: Requests, *, at_once: bool) -> list[object]:
    """The subjects and what was answered; one after another, or all at once."""
    with RawApp(server.port, timeout=30) as client:
        client.subscribe("done.*")
        frames = []
        for number, (subject, body) in enumerate(requests):
            data = json.dumps(body).encode() if body is not None else b""
            words = f"PUB $JS.API.{subject} done.{number} {len(data)}\r\n"
            frames.append(words.encode() + data + b"\r\n")
        heard = []
        if at_once:
            client.send(b"".join(frames))
            heard = client.messages(len(frames))
        for frame in [] if at_once else frames:
            client.send(frame)
            heard.append(client.message())
    found = {int(f.subject.removeprefix("done.")): essence(json.loads(f.payload)) for f in heard}
    return [(subject, found[number]) for number, (subject, _) in enumerate(requests)]


def test_each_request_finds_what_those_before_it_made(servers: Servers) -> None:
    at_once = asked(servers.under_test(jetstream=True), REQUESTS, at_once=True)
    assert at_once == asked(servers.peer(jetstream=True), REQUESTS, at_once=False)


def refill(server: Server) -> None:
    """A stream with messages is there, and no other one."""
    with RawApp(server.port, timeout=30) as client:
        names = client.api("STREAM.NAMES")["streams"] or []
        assert isinstance(names, list)
        for name in names:
            assert "error" not in client.api(f"STREAM.DELETE.{name}")
        assert "error" not in client.api("STREAM.CREATE.S", subjects("S", "s.>"))
        for number in range(20):
            assert b'"seq"' in client.request(f"s.{number}", b"x" * 100).payload


@pytest.mark.parametrize("name", LATER)
def test_no_request_finds_what_those_behind_it_do(servers: Servers, name: str) -> None:
    config = "accounts { A { jetstream { max_streams: 3 }, users: [{user: a}] } }\nno_auth_user: a"
    server = servers.under_test(config=config, jetstream=True)
    peer = servers.peer(config=config, jetstream=True)
    refill(peer)
    wanted = asked(peer, LATER[name], at_once=False)
    for _ in range(10):
        refill(server)
        assert asked(server, LATER[name], at_once=True) == wanted


def test_what_was_asked_before_a_stream_is_removed_is_answered(servers: Servers) -> None:
    """Its first message and its purges come to the disk while it is still there."""
    with RawApp(servers.under_test(jetstream=True).port) as client:
        client.subscribe("done.*")
        for _ in range(50):
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            client.publish("$JS.API.STREAM.PURGE.S", b'{"seq":2}', reply="done.purge")
            client.publish("s", b"x", reply="done.publish")
            client.publish("$JS.API.STREAM.PURGE.S", reply="done.purge")
            client.publish("$JS.API.STREAM.DELETE.S", reply="done.delete")
            for frame in client.messages(4):
                assert b'"error"' not in frame.payload, frame
