"""JetStream under mappings of the global account: what is mapped and what never is, on both
servers."""

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest

from tests.client.raw import TimedOut
from tests.client.recorder import Heard, Recorder
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
jetstream { domain: hub }
mappings {
    "orders.*": "held.$1"
    "away.*": "elsewhere.$1"
    "api.>": "$JS.API.>"
    "hub.>": "$JS.hub.API.>"
    "$JS.API.STREAM.NAMES": "$JS.API.INFO"
    "$JS.hub.API.STREAM.LIST": "$JS.API.INFO"
    "$JS.API.STREAM.INFO.NONE": "$JS.API.STREAM.INFO.HELD"
    "$JS.API.STREAM.CREATE.OTHER": "$JS.API.STREAM.CREATE.RENAMED"
    "$JS.API.CONSUMER.MSG.NEXT.HELD.alias": "$JS.API.CONSUMER.MSG.NEXT.HELD.c"
    "$JS.API.DIRECT.GET.alias.>": "$JS.API.DIRECT.GET.HELD.>"
    "_INBOX.mapped": "_INBOX.not"
    "pushed.*": "pushed.mapped.$1"
    "again.*": "again.mapped.$1"
    "target.*": "target.mapped.$1"
    "done.*.>": "$JS.ACK.$1.>"
    "$KV.A.*": "$KV.B.$1"
    "loop.a": "loop.b"
    "loop.b": "loop.a"
    "lost.*": [{ dest: "lost.$1", weight: 0 }]
    "parts.*": "parted.{{partition(3,1)}}.$1"
    "$SYS.REQ.USER.INFO": "$JS.API.INFO"
    "$JS.API.STREAM.PURGE.>": "nowhere.>"
}
"""
Case = Callable[[Recorder], None]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[tuple[Server, Server]]:
    starts = (module_servers.under_test, module_servers.peer)
    ours, theirs = (start(config=CONFIG, jetstream=True) for start in starts)
    yield ours, theirs


def stream(r: Recorder, name: str, *subjects: str, **more: object) -> None:
    r.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **more})


def subjects(r: Recorder, name: str) -> None:
    r.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})


@case
def publishes(r: Recorder) -> None:
    stream(r, "HELD", "held.*")
    stream(r, "AWAY", "away.*")
    stream(r, "PARTS", "parted.>", max_msgs_per_subject=1)
    expect = "Nats-Expected-Last-Subject-Sequence: "
    for subject in ("orders.a", "held.a", "away.a", "elsewhere.a", "lost.a", "parts.a", "parts.b"):
        r.ask(subject, b"x")
    for subject, line in (
        ("orders.a", expect + "0"),
        ("orders.a", expect + "2"),
        ("orders.a", expect + "3\r\nNats-Expected-Last-Subject-Sequence-Subject: orders.a"),
        ("orders.a", expect + "3\r\nNats-Expected-Last-Subject-Sequence-Subject: held.a"),
        ("orders.b", "Nats-Rollup: sub"),
    ):
        r.ask(subject, b"x", header=f"NATS/1.0\r\n{line}\r\n\r\n".encode())
    for name in ("HELD", "AWAY", "PARTS"):
        subjects(r, name)


@case
def mapped_then_transformed(r: Recorder) -> None:
    transform = {"src": "held.*", "dest": "orders.$1"}
    again = {"src": "orders.*", "dest": "again.$1"}
    stream(r, "HELD", "held.*", subject_transform=transform, republish=again)
    out = r.inbox("again.>")
    r.ask("orders.a", b"x")
    r.hear(out)
    subjects(r, "HELD")


@case
def the_api_by_another_name(r: Recorder) -> None:
    stream(r, "HELD", "held.*")
    r.ask("api.STREAM.INFO.HELD")
    r.ask("api.STREAM.DELETE.NONE")
    r.ask("api.INFO")
    r.ask("hub.INFO")
    r.ask("api.CONSUMER.NAMES.HELD")
    r.ask("api")


@case
def requests_that_are_mapped(r: Recorder) -> None:
    stream(r, "HELD", "held.*")
    r.api("STREAM.NAMES")
    r.ask("$JS.hub.API.STREAM.NAMES")
    r.ask("$JS.hub.API.STREAM.LIST")
    r.api("STREAM.INFO.NONE")
    r.ask("$JS.hub.API.STREAM.INFO.NONE")
    r.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})
    r.api("STREAM.CREATE.OTHER", {"name": "RENAMED", "subjects": ["renamed"]})
    r.ask("$JS.API.STREAM.PURGE.HELD")
    r.ask("$SYS.REQ.USER.INFO")
    r.ask("api.STREAM.PURGE.HELD")


@case
def what_the_server_sends_is_not_mapped(r: Recorder) -> None:
    stream(r, "HELD", "held.*", republish={"src": "held.*", "dest": "again.$1"})
    direct, mapped = r.inbox("again.*"), r.inbox("again.mapped.*")
    pushed, mapped_push = r.inbox("pushed.x"), r.inbox("pushed.mapped.x")
    reply, not_reply = r.inbox("_INBOX.mapped"), r.inbox("_INBOX.not")
    r.consumer("p", deliver_subject="pushed.x", ack_policy="none")
    r.publish("orders.a", b"x", reply="_INBOX.mapped")
    r.hear(reply)
    r.hear(direct)
    r.hear(pushed)
    for inbox in (mapped, mapped_push, not_reply):
        r.silence(inbox, 0.05)
    r.publish("again.x", b"a client's")
    r.hear(mapped)
    r.silence(direct, 0.05)


@case
def pulls_and_acks(r: Recorder) -> None:
    stream(r, "HELD", "held.*")
    for n in range(3):
        r.ask("orders.a", str(n).encode())
    r.consumer("c")  # behind them: nats-server may count one that came later when it is delivered
    inbox = r.inbox()
    r.publish("$JS.API.CONSUMER.MSG.NEXT.HELD.alias", b"1", reply=inbox)
    first = r.hear(inbox)[0]
    r.ask(first.reply.replace("$JS.ACK.", "done."), b"+ACK")
    r.info("c")
    r.publish("api.CONSUMER.MSG.NEXT.HELD.c", b'{"batch":2,"no_wait":true}', reply=inbox)
    r.hear(inbox, 2)
    r.publish("$JS.API.CONSUMER.MSG.NEXT.HELD.c", b"1", reply="_INBOX.mapped")
    r.info("c")


@case
def direct_gets(r: Recorder) -> None:
    stream(r, "HELD", "held.*", allow_direct=True)
    r.ask("orders.a", b"x")
    r.ask("$JS.API.DIRECT.GET.alias.held.a")
    r.ask("$JS.API.DIRECT.GET.alias.orders.a")
    r.ask("api.DIRECT.GET.HELD.held.a")
    r.ask("api.DIRECT.GET.HELD", b'{"last_by_subj":"held.a"}')
    r.ask("hub.DIRECT.GET.HELD", b'{"seq":1}')


@case
def buckets(r: Recorder) -> None:
    for name in ("A", "B"):
        stream(r, f"KV_{name}", f"$KV.{name}.>", max_msgs_per_subject=1, allow_direct=True)
    r.ask("$KV.A.key", b"x")
    r.ask("$KV.A.deep.key", b"x")
    r.ask("$JS.hub.API.$KV.A.key", b"x")
    for name in ("A", "B"):
        subjects(r, f"KV_{name}")


@case
def mapped_once(r: Recorder) -> None:
    stream(r, "LOOP", "loop.*")
    r.ask("loop.a", b"a")
    r.ask("loop.b", b"b")
    r.ask("hub.STREAM.INFO.LOOP")
    subjects(r, "LOOP")


@case
def schedules(r: Recorder) -> None:
    stream(r, "HELD", "held.*", "target.>", allow_msg_schedules=True)
    plan = "Nats-Schedule: @at 2000-01-01T00:00:00Z\r\nNats-Schedule-Target: target.a"
    r.ask("orders.plan", b"x", header=f"NATS/1.0\r\n{plan}\r\n\r\n".encode())
    r.at_least("target.a", 1)
    r.ask("target.b", b"x")
    subjects(r, "HELD")


@case
def batches(r: Recorder) -> None:
    stream(r, "HELD", "held.*", allow_atomic=True, allow_batched=True)
    for number, commit in ((1, ""), (2, "Nats-Batch-Commit: 1\r\n")):
        header = f"NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Batch-Sequence: {number}\r\n{commit}\r\n"
        r.ask("orders.a", b"x", header=header.encode())
    heard = r.inbox("_FAST.>")
    r.publish("orders.b", b"1", reply="_FAST.x.10.ok.1.0.$FI")
    r.hear(heard)
    r.publish("orders.b", b"2", reply="_FAST.x.10.ok.2.2.$FI")
    r.hear(heard)
    subjects(r, "HELD")


@case
def rules_do_not_know_mappings(r: Recorder) -> None:
    stream(r, "ORDERS", "orders.*")
    stream(r, "HELD", "held.*", republish={"src": "held.*", "dest": "orders.$1"})
    r.ask("orders.a", b"x")
    r.stored(1, "ORDERS")
    r.ask("api.STREAM.PURGE.ORDERS")
    subjects(r, "HELD")
    stream(r, "BAD", "api.>")
    r.ask("api.STREAM.INFO.BAD")
    subjects(r, "BAD")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_same_answers(pair: tuple[Server, Server], case: Case) -> None:
    heard: list[list[Heard]] = []
    for server in pair:
        r = Recorder(server.port, "HELD")
        r.client.sync()
        names = json.loads(r.client_request("api.STREAM.NAMES", b"").payload)["streams"]
        for name in names or ():
            r.client_request(f"$JS.API.STREAM.DELETE.{name}", b"")
        try:
            case(r)
        except TimedOut:
            r.note("nothing more came in time")
        finally:
            r.close()
        heard.append(r.said)
    for ours, theirs in zip_longest(*heard):
        assert ours == theirs
    assert ("nothing more came in time",) not in heard[0]
