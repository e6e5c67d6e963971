"""Reports of a service's latency, on both servers."""

import json

import pytest

from tests.client.raw import header_block
from tests.client.sharing import Conversation, Member, Script, answer, conversation
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LATENCY = """
server_name: one
accounts {
    A {
        users: [{ user: a, password: x }]
        exports: [
            { service: all, latency: lat.all }
            { service: heads, latency: { subject: lat.heads, sampling: headers } }
            { service: short, latency: lat.short, threshold: "200ms" }
            { service: shared, latency: { subject: lat.shared, sampling: 100% } }
        ]
    }
    B {
        users: [{ user: b, password: x }]
        imports: [
            { service: { account: A, subject: all } }, { service: { account: A, subject: heads } }
            { service: { account: A, subject: short } }
            { service: { account: A, subject: shared }, share: true }
        ]
    }
}
"""
TRACES = {
    "uber": ["Uber-Trace-Id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:1", "Uberctx-x: y"],
    "uber, other case": ["uber-trace-id:  a:b:c:3 "],
    "uber, no": ["Uber-Trace-Id: a:b:c:2"],
    "uber, odd": ["Uber-Trace-Id: a:b:c"],
    "b3 sampled": ["X-B3-Sampled: 1", "X-B3-SpanId: s"],
    "b3 denied": ["X-B3-Sampled: 0", "X-B3-TraceId: t"],
    "b3 left": ["X-B3-TraceId: t", "X-B3-ParentSpanId: p"],
    "b3 single": ["B3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90"],
    "b3 single, no": ["b3: 0"],
    "b3 single, denied": ["B3: a-b-0"],
    "w3c": [
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate: x",
    ],
    "w3c, no": ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"],
    "w3c, odd": ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-81"],
    "nothing": ["A: 1"],
}


def in_words(value: object, name: str = "") -> object:
    """A report without what differs between any two."""
    if isinstance(value, dict):
        return [(key, in_words(entry, key)) for key, entry in value.items()]
    if name in ("id", "timestamp", "start", "rtt", "service", "total", "system"):
        return type(value).__name__
    return value


@pytest.fixture(scope="module")
def measured(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=LATENCY) for start in starts]


def reports(measured: list[Server], script: Script, count: int) -> None:
    heard = []
    for server in measured:
        with conversation(server, "B", "A") as talk, Member(server, "A") as watching:
            watching.hear("lat.>")
            script(talk)
            found = [watching.message() for _ in range(count)]
            assert watching.quiet(0.1) == []
            heard.append([(f.subject, f.reply, in_words(json.loads(f.payload))) for f in found])
            heard[-1].append(talk.heard)  # type: ignore[arg-type]
    assert heard[0] == heard[1]


@pytest.mark.parametrize("subject", ["all", "shared"])
def test_an_answer_is_reported(measured: list[Server], subject: str) -> None:
    def script(talk: Conversation) -> None:
        talk["A"].hear(subject)
        talk["B"].hear("inbox")
        talk["B"].say(subject, reply="inbox")
        answer(talk, b"1", b"2")

    reports(measured, script, 1)


def test_failures_are_reported(measured: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["B"].hear("inbox")
        talk["B"].say("all", reply="inbox")  # nobody there
        talk["A"].hear("all", "short")
        talk["B"].say("all")  # no reply
        talk["B"].say("all", reply="inbox")
        talk["B"].send(b"UNSUB 1\r\n")  # left
        talk["B"].sync()
        talk["B"].say("short", reply="nobody")  # takes too long

    reports(measured, script, 4)


@pytest.mark.parametrize("trace", TRACES)
def test_headers_ask_for_reports(measured: list[Server], trace: str) -> None:
    wanted = not any(word in trace for word in ("no", "odd", "denied"))

    def script(talk: Conversation) -> None:
        talk["A"].hear("heads")
        talk["B"].hear("inbox")
        talk["B"].say("heads", reply="inbox", header=header_block(*TRACES[trace]))
        answer(talk, b"1")

    reports(measured, script, int(wanted))
