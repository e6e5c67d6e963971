"""What users may publish, subscribe and receive: random permissions, the same for both servers."""

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.client.raw import Frame, RawClient
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

USERS = 40
SUBJECTS = ("a", "b", "a.a", "a.b", "b.a", "a.b.c", "b.b.b")
PATTERNS = (*SUBJECTS, "*", ">", "a.*", "*.a", "a.>", "*.*", "*.b", "b.>", "*.b.>")
QUEUES = ("q", "r", "q.r", "*", "q.*", ">")
MEMBERS = ("", "q", "r", "q.r", "s")


def some(chance: random.Random, of: Sequence[str], most: int) -> list[str]:
    return [chance.choice(of) for _ in range(chance.randint(0, most))]


def with_queues(chance: random.Random, rules: list[str]) -> list[str]:
    return [f"{rule} {chance.choice(QUEUES)}" if chance.random() < 0.4 else rule for rule in rules]


def permissions(chance: random.Random) -> dict[str, object]:
    chosen: dict[str, object] = {}
    for side in ("publish", "subscribe"):
        lists: dict[str, object] = {}
        for name in ("allow", "deny"):
            rules = some(chance, PATTERNS, 3)
            if side == "subscribe":
                rules = with_queues(chance, rules)
            if chance.random() < 0.7:
                lists[name] = rules
        if chance.random() < 0.8:
            chosen[side] = lists
    if chance.random() < 0.3:
        chosen["allow_responses"] = chance.choice([True, {"max": 2}, {"max": -1}])
    return chosen


def config(chance: random.Random) -> str:
    """JSON is a configuration too."""
    users = [{"user": f"u{n}", "password": "x", "permissions": permissions(chance)}
             for n in range(USERS)]  # fmt: skip
    users.append({"user": "all", "password": "x"})
    return json.dumps({"accounts": {"A": {"users": users}}})


class Client(RawClient):
    def __init__(self, server: Server, user: str) -> None:
        super().__init__(server.port)
        self.frame()
        options = {"user": user, "pass": "x", "verbose": False, "headers": True, "echo": True}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.sync()


def said(frames: list[Frame]) -> list[str]:
    """In any order: to which of its subscriptions a client is sent first is nobody's promise, nor
    which member of a queue group it is."""
    shown = []
    for frame in frames:
        if frame.verb == "PING":
            continue
        _, _, group = frame.sid.partition("@")
        line = frame.line.replace(frame.sid.encode(), group.encode()) if group else frame.line
        shown.append(str([frame.verb, line, frame.payload]))
    return sorted(shown)


def lines(chance: random.Random) -> list[tuple[str, bytes]]:
    """Who says what: the user in question or one who may do everything."""
    steps: list[tuple[str, bytes]] = []
    for number in range(12):
        queue = chance.choice(MEMBERS)
        sid = f"{number}@{queue}" if queue else f"{number}"
        words = ["SUB", chance.choice(PATTERNS), queue, sid]
        steps.append(("user", " ".join(word for word in words if word).encode()))
    for number in range(20):
        who = chance.choice(("user", "all"))
        reply = chance.choice(["", "", " b.b", " c", f" inbox.{number % 3}"])
        subject = chance.choice((*SUBJECTS, "inbox.0", "inbox.1", "c"))
        steps.append((who, f"PUB {subject}{reply} 1\r\nx".encode()))
    return steps


def fits(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("."), subject.split(".")
    for number, token in enumerate(wanted):
        if token == ">" and len(given) > number:
            return True
        if number >= len(given) or token not in ("*", given[number]):
            return False
    return len(wanted) == len(given)


def allows(rule: str, subject: str, member: str) -> bool:
    """Whether a rule lets messages through to a member of a queue, or with "" to no member."""
    pattern, *queue = rule.split()
    return fits(pattern, subject) and (not queue or (member != "" and fits(queue[0], member)))


def within(user: dict[str, Any], heard: list[str]) -> list[str]:
    """What a user may hear. nats-server lets `a.>` in by the rule `a.*`, and sends all of it."""
    allow = user.get("permissions", {}).get("subscribe", {}).get("allow")
    if not allow:
        return heard
    kept = []
    for line in heard:
        words = line.split()
        subject, member = (words[2], words[3]) if "'MSG" in line else ("", "")
        member = "" if member.isdigit() else member
        if not subject or any(allows(rule, subject, member) for rule in allow):
            kept.append(line)
    return kept


@pytest.mark.parametrize("seed", range(3))
def test_random_permissions(servers: Servers, seed: int) -> None:
    chance = random.Random(seed)
    text = config(chance)
    pair = [servers.under_test(config=text), servers.peer(config=text)]
    others = [Client(server, "all") for server in pair]
    for number, user in enumerate(json.loads(text)["accounts"]["A"]["users"]):
        clients = [Client(server, str(user["user"])) for server in pair]
        for who, line in lines(chance):
            heard = []
            for client, other in zip(clients, others, strict=True):
                speaker = client if who == "user" else other
                speaker.send(line + b"\r\n")
                heard.append([said(speaker.sync()), within(user, said(client.sync()))])
                if who == "user":
                    heard[-1][0] = within(user, heard[-1][0])
            assert heard[0] == heard[1], (number, who, line, user)
        for client in clients:
            client.close()


RESERVED = (
    *("$NRG.a", "_GR_.a.b", "_R_.a.b", "$JS.ACK.S.c.1.1.1.1.1", "$JS.FC.a", "$GNR.a", "$LDS.a"),
    *("$NRG", "$NRG.", "_GR_", "_GR_.", "_R_", "_R_.", "$JS.ACK", "$JS.ACK.", "_nrg.a", "$nrg.a"),
    *("$SYS.REQ.SERVER.X.VARZ", "$SYS.ACCOUNT.A.CONNECT", "$JSC.R.a", "$MQTT.msgs.a", "_sys_"),
)
VERBS = (
    b"PUB %b 1\r\nx",
    b"PUB a %b 1\r\nx",
    b"PUB %b %b 1\r\nx",
    b"HPUB %b 12 13\r\nNATS/1.0\r\n\r\nx",
    b"HPUB a %b 12 13\r\nNATS/1.0\r\n\r\nx",
    b"SUB %b 1",
    b"SUB %b q 2",
    b"SUB a %b 3",
    b"SUB a _sys_ 4",
    b"SUB %b _sys_ 5",
    b"UNSUB %b",
    *(b"UNSUB %d" % sid for sid in range(1, 6)),
)
PEOPLE = """
accounts {
    A {
        users: [
            { user: all, password: x }
            { user: one, password: x, permissions: { publish: a.b, subscribe: a.c } }
            { user: answers, password: x
              permissions: { subscribe: "ask.>", allow_responses: { max: 2, expires: "300ms" } } }
            { user: endless, password: x
              permissions: { subscribe: "ask.>", allow_responses: { max: -1, expires: "-1s" } } }
            { user: both, password: x, permissions: {
              publish: { allow: "p.>", deny: "p.no" }, subscribe: "ask.>", allow_responses: true } }
            { user: default, password: x }
            { user: none, password: x
              permissions: { publish: { deny: ">" }, subscribe: { deny: ">" } } }
        ]
    }
    B { users: [{ user: b, password: x }, { user: own, password: x, permissions: { publish: b } }]
        default_permissions: { publish: { allow: "b.>" }, subscribe: { deny: "b.no" } } }
    S { users: [{ user: s, password: x }] }
}
system_account: S
"""


@pytest.fixture(scope="module")
def people(module_servers: Servers) -> list[Server]:
    return [module_servers.under_test(config=PEOPLE), module_servers.peer(config=PEOPLE)]


def alike(people: list[Server], user: str, steps: Sequence[bytes]) -> list[list[str]]:
    """What a user is told to each step, the same by both; MSG of the server's own left out."""
    shown = []
    for server in people:
        with Client(server, user) as client:
            answers = []
            for step in steps:
                client.send(step + b"\r\n")
                frames = client.sync()
                answers.append(
                    [line for line in said(frames) if "$SYS." not in line or "-ERR" in line]
                )
        shown.append(answers)
    for step, ours, theirs in zip(steps, *shown, strict=True):
        assert ours == theirs, step
    return shown[0]


@pytest.mark.parametrize("user", ["all", "s", "one", "none"])
def test_reserved_subjects_through_every_verb(people: list[Server], user: str) -> None:
    steps = [verb.replace(b"%b", name.encode()) for name in RESERVED for verb in VERBS]
    told = alike(people, user, steps)
    assert any("-ERR" in line for answers in told for line in answers)


def test_a_user_with_one_permission(people: list[Server]) -> None:
    steps = [
        b"%b %b%b" % (verb, subject, rest)
        for subject in (b"a.b", b"a.c", b"a", b"a.*", b"*.c", b">", b"A.B", b"a.b.c", b"a.b.")
        for verb, rest in ((b"PUB", b" 0\r\n"), (b"SUB", b" 1"), (b"SUB", b" q 2"), (b"UNSUB", b""))
    ]
    alike(people, "one", [*steps, b"PUB a.b $SYS.x 0\r\n", b"PUB a.b a.c 0\r\n"])


@pytest.mark.parametrize("user", ["b", "own"])
def test_default_permissions_are_of_those_without_any(people: list[Server], user: str) -> None:
    steps = [
        b"%b %b%b" % (verb, subject, rest)
        for subject in (b"b", b"b.a", b"b.no", b"b.>", b"c", b">")
        for verb, rest in ((b"PUB", b" 0\r\n"), (b"SUB", b" 1"), (b"UNSUB", b" 1"))
    ]
    alike(people, user, steps)


def answered(server: Server, user: str) -> list[object]:
    """Answers to questions: too many, elsewhere, after their time, and without a question."""
    heard: list[object] = []
    with Client(server, user) as client, Client(server, "all") as asker:
        client.send(b"SUB ask.> 1\r\n")
        asker.send(b"SUB r.> 1\r\nSUB p.> 2\r\n")
        client.sync()
        asker.sync()

        def ask(reply: str) -> None:
            asker.send(f"PUB ask.a {reply} 0\r\n\r\n".encode())
            asker.sync()
            heard.append(said(client.sync()))

        def answer(*subjects: str) -> None:
            for subject in subjects:
                client.send(f"PUB {subject} 0\r\n\r\n".encode())
                heard.append([subject, said(client.sync()), said(asker.sync())])

        answer("r.0", "p.0", "p.no")
        ask("r.1")
        answer("r.1", "r.1", "r.1", "r.2", "r", "ask.a")
        ask("r.1")
        ask("r.1")
        answer("r.1", "r.1", "r.1")
        ask("p.1")
        answer("p.1", "p.1", "p.1", "p.1")
        ask("p.no")
        answer("p.no", "p.no")
        ask("r.late")
        time.sleep(0.4)  # the time to answer of the user `answers` runs out
        answer("r.late")
    return heard


@pytest.mark.parametrize("user", ["answers", "endless", "both", "default"])
def test_answers_that_are_allowed(people: list[Server], user: str) -> None:
    ours, theirs = (answered(server, user) for server in people)
    assert ours == theirs
