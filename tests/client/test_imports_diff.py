"""Services and streams of other accounts: the same conversation, on both servers."""

import json

import pytest

from tests.client.raw import header_block
from tests.client.sharing import Conversation, Member, Script, answer, conversation
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
jetstream: enabled
accounts {
    A {
        users: [{ user: a, password: x }, { user: only, password: x, permissions: {
            subscribe: "svc.>", allow_responses: true } }]
        jetstream: enabled
        mappings { "mapped.in": "svc.mapped" }
        exports: [
            { service: "svc.*" }, { service: "two.*.*" }, { service: all.> }, { service: named }
            { service: many, response: stream }, { service: chunks, response: chunked }
            { service: "of.*", account_token_position: 2 }
            { service: chain }, { service: chain.shared }, { service: listed, accounts: [B] }
            { service: shared }, { service: mapped.in }, { service: "$JS.API.>", response: stream }
            { service: "$JS.ACK.>" }, { service: stored }, { service: short, threshold: "200ms" }
            { stream: "ev.>" }, { stream: "pair.*.*" }, { stream: news }, { stream: "priv.*", accounts: [B] }
            { stream: "slot.*.x", account_token_position: 2 }, { stream: pushed }, { stream: svc.x }
        ]
    }
    B {
        users: [
            { user: b, password: x }
            { user: few, password: x, permissions: { publish: ["svc.x"], subscribe: {
                allow: ["p.>", "inbox.>"], deny: "p.ev.no" } } }
        ]
        mappings { "svc.old": "svc.x", "inbox.moved": "inbox.here" }
        imports: [
            { service: { account: A, subject: "svc.*" } }
            { service: { account: A, subject: "two.*.*" }, to: "swap.$2.$1" }
            { service: { account: A, subject: all.> }, to: some.> }
            { service: { account: A, subject: named }, to: other.name }
            { service: { account: A, subject: many } }, { service: { account: A, subject: chunks } }
            { service: { account: A, subject: of.B } }, { service: { account: A, subject: listed } }
            { service: { account: A, subject: shared }, share: true }
            { service: { account: A, subject: mapped.in } }, { service: { account: A, subject: stored } }
            { service: { account: A, subject: short } }
            { service: { account: A, subject: "$JS.API.>" }, to: "A.API.>" }
            { service: { account: A, subject: "$JS.ACK.>" } }
            { service: { account: C, subject: chain } }, { service: { account: C, subject: chain.shared }, share: true }
            { stream: { account: A, subject: "ev.>" }, prefix: p }
            { stream: { account: A, subject: "pair.*.*" }, to: "swapped.$2.$1" }
            { stream: { account: A, subject: news }, to: old.news }
            { stream: { account: A, subject: "priv.*" } }, { stream: { account: A, subject: slot.B.x } }
            { stream: { account: A, subject: pushed } }, { stream: { account: A, subject: svc.x }, to: seen.x }
        ]
    }
    C {
        users: [{ user: c, password: x }]
        imports: [{ service: { account: A, subject: chain } }, { service: { account: A, subject: chain.shared } }]
        exports: [{ service: chain }, { service: chain.shared }]
    }
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CONFIG, jetstream=True) for start in starts]


def both(pair: list[Server], script: Script, *members: str) -> list[object]:
    """What the script's members hear is the same on both servers."""
    heard = []
    for server in pair:
        with conversation(server, *members) as talk:
            script(talk)
            heard.append(talk.heard)
    assert heard[0] == heard[1]
    return heard[0]


# ---- services

SUBJECTS = (
    "svc.x",
    "svc.x.y",
    "svc.old",
    "swap.1.2",
    "some.a.b",
    "other.name",
    "named",
    "of.B",
    "of.A",
)


def test_where_requests_go(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["A"].hear(">")
        for subject in (*SUBJECTS, "listed", "mapped.in", "chain", "chain.shared", "shared"):
            talk["B"].say(subject, subject.encode())
            talk["B"].say(
                subject, b"h", header=header_block("A: 1", "Nats-Request-Info: me", "B: 2")
            )
        talk.settle()

    assert len(both(pair, script, "B", "A", "C")) == 1


@pytest.mark.parametrize(
    "subject", ["svc.x", "many", "chunks", "chain", "chain.shared", "other.name"]
)
def test_replies(pair: list[Server], subject: str) -> None:
    def script(talk: Conversation) -> None:
        talk["A"].hear("svc.*", "many", "chunks", "chain", "chain.shared", "named")
        talk["B"].hear("inbox.*", "inbox.here")
        for reply in ("inbox.1", "inbox.2", "inbox.moved", "nobody"):
            talk["B"].say(subject, reply=reply)
        answer(talk, b"1", b"2", b"", b"3")

    assert both(pair, script, "B", "A", "C")


def test_a_conversation(pair: list[Server]) -> None:
    """A reply that is a request itself."""

    def script(talk: Conversation) -> None:
        talk["A"].hear("svc.*", "many", "back")
        talk["B"].hear("inbox.*")
        talk["B"].say("many", reply="inbox.1")
        talk["B"].say("svc.x", reply="inbox.2")
        answer(talk, b"and you?", reply="back")
        answer(talk, b"well", who="B")

    both(pair, script, "B", "A")


def test_nobody_answers(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["B"].hear("inbox.*")
        for subject in (*SUBJECTS, "chain", "nowhere", "many"):
            talk["B"].say(subject, reply="inbox.1")
        talk.settle()
        talk["A"].hear("svc.x")
        talk["B"].say("svc.x", reply="inbox.1")
        talk.settle()

    both(pair, script, "B", "A", "C")


def test_queue_groups_across(pair: list[Server]) -> None:
    for server in pair:
        with conversation(server, "A", "B") as talk:
            talk["A"].hear("svc.x q", "svc.* q", "svc.x r")
            for _ in range(20):
                talk["B"].publish("svc.x")
            talk.settle()
            assert len(talk.heard[0][1]) == 40  # type: ignore[index]


def test_local_subscribers_hear_too(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["A"].hear("svc.x")
        talk["B"].hear("svc.*", "svc.x q")
        talk["B"].say("svc.x", b"both")
        talk["A"].say("svc.x", b"own")
        talk.settle()

    both(pair, script, "B", "A")


def test_permissions_of_both_ends(pair: list[Server]) -> None:
    heard = []
    for server in pair:
        with Member(server, "A", user="only") as asked, Member(server, "B", user="few") as asks:
            talk = Conversation(server, {"A": asked, "B": asks})
            asked.hear("svc.x", "named")
            asks.hear("inbox.1")
            asks.say("svc.x", reply="inbox.1")
            asks.say("svc.y", reply="inbox.1")
            answer(talk, b"1", b"2")
            asked.say("inbox.1")
            talk.settle()
        heard.append(talk.heard)
    assert heard[0] == heard[1]


def test_replies_are_given_to_nobody_else(pair: list[Server]) -> None:
    for server in pair:
        with conversation(server, "A", "B", "C") as talk:
            talk["A"].hear("svc.x")
            talk["B"].hear("inbox.1")
            talk["C"].hear(">")
            talk["B"].say("svc.x", reply="inbox.1")
            ((_, request),) = talk.settle()
            for other in ("B", "C"):  # the subject is the exporting account's
                talk[other].publish(request.reply, b"forged")
            talk["A"].publish(request.reply[:-6] + "000000", b"guessed")
            heard = talk.settle()
            assert [(name, f.payload) for name, f in heard if name != "C"] == []
            talk["A"].publish(request.reply, b"right")
            assert [(n, f.payload) for n, f in talk.settle()] == [("B", b"right")]


def test_big_requests(pair: list[Server]) -> None:
    header = header_block(*(f"H{i}: {'x' * 1000}" for i in range(400)))

    def script(talk: Conversation) -> None:
        talk["A"].hear("svc.x")
        talk["B"].hear("inbox.1")
        talk["B"].say("svc.x", b"x" * ((1 << 20) - len(header)), header=header, reply="inbox.1")
        answer(talk, b"y" * (1 << 20))

    both(pair, script, "B", "A")


def test_thresholds(pair: list[Server]) -> None:
    for server in pair:
        with conversation(server, "A", "B") as talk:
            talk["A"].hear("short")
            talk["B"].hear("inbox.1")
            talk["B"].say("short", reply="inbox.1")
            ((_, request),) = talk.settle()
            talk["B"].quiet(0.6)  # nats-server looks once a threshold
            talk["A"].publish(request.reply, b"late")
            assert talk.settle() == []


# ---- JetStream of another account


def test_jetstream_across(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        a, b = talk["A"], talk["B"]
        a.api("STREAM.CREATE.S", {"name": "S", "subjects": ["stored"]})
        b.hear("inbox.*")
        b.say("stored", b"data", reply="inbox.1", header=header_block("A: 1"))
        b.say("A.API.STREAM.NAMES", reply="inbox.2")
        wait_until(lambda: a.api("STREAM.INFO.S")["state"]["messages"] == 1, "the message")
        heard: list[object] = []
        for asked in ("STREAM.MSG.GET.S", "CONSUMER.CREATE.S.C", "STREAM.DELETE.NONE"):
            body = {
                "STREAM.MSG.GET.S": {"seq": 1},
                "CONSUMER.CREATE.S.C": {
                    "stream_name": "S",
                    "config": {"durable_name": "C", "ack_policy": "explicit"},
                },
            }.get(asked)
            found = json.loads(b.request(f"A.API.{asked}", json.dumps(body or "").encode()).payload)
            found.get("message", {}).pop("time", None)
            heard.append([found.get(field) for field in ("type", "name", "message", "error")])
        b.taken()
        b.publish("A.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="inbox.3")
        message = b.message()
        ack = message.reply
        heard.append((message.subject, message.sid, ack.split(".")[:5], message.payload))
        heard.append(message.headers)
        b.say(ack, b"+ACK", reply="inbox.4")
        wait_until(
            lambda: a.api("CONSUMER.INFO.S.C")["num_ack_pending"] == 0,
            "the ack",
        )
        talk.heard.append(heard)
        a.api("STREAM.DELETE.S")

    both(pair, script, "B", "A")


# ---- streams


PUBLISHED = (
    "ev.a",
    "ev.a.b",
    "pair.x.y",
    "news",
    "priv.k",
    "slot.B.x",
    "slot.A.x",
    "svc.x",
    "ev.no",
    "ev",
)
LISTENING = [
    *([one] for one in ("p.>", "p.ev.*", "p.ev.a", ">", "*.*.*", "swapped.y.*", "swapped.*.x")),
    *([one] for one in ("swapped.>", "old.news", "old.*", "news", "priv.k", "priv.*", "slot.>")),
    *([one] for one in ("slot.A.x", "seen.x", "*.ev.a", "p.*.a.>", "swapped.*.* q")),
    ["p.> q", "p.ev.* q", "p.ev.a r"],
]


@pytest.mark.parametrize("subjects", LISTENING, ids=str)
def test_who_hears_a_stream(pair: list[Server], subjects: list[str]) -> None:
    def script(talk: Conversation) -> None:
        talk["B"].hear(*subjects)
        talk["C"].hear(">")
        for subject in PUBLISHED:
            talk["A"].say(subject, subject.encode(), reply="rep")
            talk["A"].say(subject, b"h", header=header_block("A: 1"))
        if len(subjects) > 1:
            assert len(talk.settle()) == 8
            talk.heard.clear()
        talk.settle()
        talk["B"].send(b"UNSUB 1\r\n")
        talk.settle()
        for subject in PUBLISHED:
            talk["A"].say(subject)
        talk.settle() if len(subjects) == 1 else None

    both(pair, script, "B", "A", "C")


def test_streams_and_permissions(pair: list[Server]) -> None:
    heard = []
    for server in pair:
        with Member(server, "A") as says, Member(server, "B", user="few") as hears:
            talk = Conversation(server, {"A": says, "B": hears})
            hears.hear("p.>", "swapped.>", "old.news")
            for subject in PUBLISHED:
                says.say(subject)
            talk.settle()
        heard.append(talk.heard)
    assert heard[0] == heard[1]


def test_a_limit_of_messages_counts_those_of_streams(pair: list[Server]) -> None:
    """In nats-server it does not, and they go on."""
    with conversation(pair[0], "B", "A") as talk:
        talk["B"].hear("p.>")
        talk["B"].send(b"UNSUB 1 3\r\n")
        talk.settle()
        talk["B"].publish("p.own", b"0")
        talk.settle()
        for i in range(1, 5):
            talk["A"].say("ev.a", str(i).encode())
        assert [frame.payload for _, frame in talk.settle()] == [b"1", b"2"]


def test_requests_are_not_heard_as_a_stream(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["B"].hear("seen.x", "svc.x")
        talk["A"].hear("svc.x")
        talk["B"].say("svc.x", b"asked")
        talk["A"].say("svc.x", b"said")
        talk.settle()

    both(pair, script, "B", "A")


def test_push_consumers_deliver_to_who_imports(pair: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        a, b = talk["A"], talk["B"]
        a.api("STREAM.CREATE.S", {"name": "S", "subjects": ["stored"]})
        config = {"deliver_subject": "pushed", "ack_policy": "none", "durable_name": "P"}
        a.api("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": config})
        a.request("stored", b"1")
        b.subscribe("pushed")
        first = b.message()
        talk.heard.append((first.subject, first.sid, first.payload))
        b.send(b"UNSUB 1\r\n")
        b.sync()
        wait_until(
            lambda: not a.api("CONSUMER.INFO.S.P").get("push_bound"),
            "the consumer without interest",
        )
        a.api("STREAM.DELETE.S")

    both(pair, script, "B", "A")


def test_large_messages_to_many_who_import(pair: list[Server]) -> None:
    for server in pair:
        with Member(server, "A") as says, Member(server, "B") as one, Member(server, "B") as two:
            one.hear("p.>", "p.ev.*")
            two.hear("p.ev.a")
            says.hear("ev.>")
            data = bytes(range(256)) * 1000
            says.say("ev.a", data)
            says.sync()
            for client, count in ((one, 2), (two, 1)):
                assert [f.payload for f in client.messages(count)] == [data] * count


# ---- who waits no more


@pytest.mark.parametrize("pattern", ["inbox.9", "inbox.*"])
def test_replies_are_forgotten_when_nobody_waits(servers: Servers, pattern: str) -> None:
    """Seen by the memory of it: what is held for 20,000 requests is given back, and used again."""
    server = servers.under_test(config=CONFIG, jetstream=True)
    with Member(server, "A") as asked:
        asked.hear("many")

        def ask() -> None:
            with Member(server, "B") as asks:
                asks.subscribe(pattern)
                for _ in range(20):
                    asks.send(b"PUB many inbox.9 0\r\n\r\n" * 1000)
                    asks.sync()
                    asked.sync()

        for _ in range(2):
            ask()
        before = server.memory()
        for _ in range(5):
            ask()
        assert server.memory() - before < 20 << 20


# ---- what could go round in circles

CIRCLES = """
server_name: one
accounts {
    A { users: [{ user: a, password: x }], mappings { "back": "a" }, exports: [{ service: back }]
        imports: [{ service: { account: B, subject: in.b }, to: a }] }
    B { users: [{ user: b, password: x }], mappings { "in.b": "b" }, exports: [{ service: in.b }]
        imports: [{ service: { account: C, subject: in.c }, to: b }] }
    C { users: [{ user: c, password: x }], mappings { "in.c": "c" }, exports: [{ service: in.c }]
        imports: [{ service: { account: A, subject: back }, to: c }] }
    D { users: [{ user: d, password: x }], exports: [{ service: ">" }, { stream: ">" }] }
    E { users: [{ user: e, password: x }]
        imports: [{ service: { account: D, subject: ">" } }
            { stream: { account: D, subject: ">" } }] }
}
"""


@pytest.fixture(scope="module")
def circles(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CIRCLES) for start in starts]


@pytest.mark.parametrize("who", ["A", "B", "C"])
def test_three_accounts_in_a_circle(circles: list[Server], who: str) -> None:
    heard = []
    for server in circles:
        with conversation(server, "A", "B", "C") as talk:
            for member in talk.members.values():
                member.hear("a", "b", "c")
            talk[who].hear("inbox")
            talk[who].say(who.lower(), b"round", reply="inbox")
            frames = [(name, f.subject, f.payload, "_R_" in f.reply) for name, f in talk.settle()]
            heard.append(sorted(frames))
    assert heard[0] == heard[1]
    assert 3 <= len(heard[0]) <= 4


def test_all_that_another_account_has(circles: list[Server]) -> None:
    def script(talk: Conversation) -> None:
        talk["D"].hear("x.*", "y", "inbox")
        talk["E"].hear("x.>", "own", "in")
        talk["E"].say("x.1", b"asked", reply="in")
        talk["D"].say("x.2", b"said", reply="inbox")
        talk["E"].say("own", b"to both")
        answer(talk, b"answer", who="D")
        talk["E"].say("nobody", reply="in")
        talk["E"].say("y", b"1", reply="in")
        answer(talk, b"and you?", who="D", reply="inbox")
        answer(talk, b"well", who="E")

    both(circles, script, "E", "D")
