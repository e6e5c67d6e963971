"""What one connection asks of the API at once, without waiting for an answer: each request finds
what those before it have made, as if each had waited. nats-server does not promise that."""

import json

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


def essence(answer: dict[str, object]) -> object:
    """What an answer tells, without what differs from run to run."""
    if "error" in answer:
        error = answer["error"]
        assert isinstance(error, dict)
        return error["err_code"]
    told = {
        k: answer[k] for k in ("name", "consumers", "paused", "purged", "success") if k in answer
    }
    config, state, streams = (answer.get(k) for k in ("config", "state", "streams"))
    if isinstance(config, dict):
        shown = ("subjects", "max_msgs", "description", "deliver_policy", "pause_until")
        told["config"] = {k: config[k] for k in shown if k in config}
    if isinstance(state, dict):
        told["state"] = {k: state[k] for k in ("messages",)}
    if isinstance(streams, int):
        told["streams"] = streams
    if isinstance(streams, list):
        told["streams"] = [s["config"]["name"] if isinstance(s, dict) else s for s in streams]
    return told


def asked(server: Server, *, at_once: bool) -> list[object]:
    """The subjects and what was answered; one after another, or all at once."""
    with RawApp(server.port, timeout=30) as client:
        client.subscribe("done.*")
        frames = []
        for number, (subject, body) in enumerate(REQUESTS):
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
    return [(REQUESTS[number][0], found[number]) for number in range(len(REQUESTS))]


def test_each_request_finds_what_those_before_it_made(servers: Servers) -> None:
    at_once = asked(servers.under_test(jetstream=True), at_once=True)
    assert at_once == asked(servers.peer(jetstream=True), at_once=False)


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
