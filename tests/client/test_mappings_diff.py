"""Subject mappings: the same configuration and the same publishes, on both servers."""

import json
import random
from collections import Counter

import pytest

from jsserver.config.mappings import MappingError, weighed
from jsserver.config.options import Destination, Mapping
from tests.client.raw import RawApp
from tests.client.test_config_diff import check, folder  # noqa: F401
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
mappings {
    one: two
    two: three
    "w.*": "v.$1"
    lost: [{ dest: lost, weight: 0 }]
    elsewhere: [{ dest: there, weight: 100, cluster: C }]
    "hold.*": "held.$1"
    "q.>": "r.>"
    "odd.*": "a.{{splitFromLeft(1,1)}}"
    "short.*": "{{wildcard(1)}}"
    "_INBOX.m": "_INBOX.n"
    half: [{ dest: first, weight: 40 }, { destination: second, weight: "30%" }]
    half.gone: [{ dest: first, weight: 40 }, { dest: half.gone, weight: 30 }]
}
"""


def connected(server: Server, options: object = None) -> RawApp:
    """A client whose account's mappings nats-server knows of: from the second read on."""
    if options is None:
        return RawApp(server.port)
    asked = {"verbose": False, "headers": True, "no_responders": True, "pedantic": False}
    return RawApp(server.port, options=json.dumps({**asked, **dict(options)}).encode())  # type: ignore[call-overload]


def said(client: RawApp) -> list[object]:
    return [frame.shown() for frame in client.sync()]


CONVERSATIONS = {
    "one step": ["PUB one 1\r\na\r\n", "PUB two 1\r\na\r\n", "PUB three 1\r\na\r\n"],
    "wildcards": ["PUB w.x 0\r\n\r\n", "PUB w.x.y 0\r\n\r\n", "PUB q.a.b 0\r\n\r\n"],
    "literals that look like wildcards": ["PUB w.* 0\r\n\r\n", "PUB q.> 0\r\n\r\n"],
    "lost": ["PUB lost 0\r\n\r\n", "UNSUB 1\r\nSUB inbox 9\r\nPUB lost inbox 0\r\n\r\n"],
    "a cluster's": ["PUB elsewhere 0\r\n\r\n"],
    "invalid results": [
        "PUB odd..x 0\r\n\r\n",
        "PUB odd.. 0\r\n\r\n",
        "PUB short.x 0\r\n\r\n",
        "PUB w..x 0\r\n\r\n",
    ],
    "replies are not mapped": ["PUB one _INBOX.m 0\r\n\r\n", "PUB _INBOX.m 0\r\n\r\n"],
    "headers": ["HPUB one 12 13\r\nNATS/1.0\r\n\r\nx\r\n"],
    "no responders": ["UNSUB 1\r\nSUB inbox 9\r\nPUB one inbox 0\r\n\r\n"],
    "pedantic": [
        'CONNECT {"verbose":true}\r\nSUB > 1\r\nPING\r\nPUB one 0\r\n\r\nPUB w.* 0\r\n\r\n'
    ],
    "queue groups": ["UNSUB 1\r\nSUB two a 2\r\nSUB two a 3\r\nSUB one a 4\r\nPUB one 0\r\n\r\n"],
}


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CONFIG, jetstream=True) for start in starts]


@pytest.mark.parametrize("case", CONVERSATIONS)
def test_conversations(pair: list[Server], case: str) -> None:
    heard = []
    for server in pair:
        with RawApp(server.port) as client:
            client.send(b"SUB > 1\r\n")
            client.sync()
            lines: list[object] = []
            for line in CONVERSATIONS[case]:
                client.send(line.encode())
                shown = said(client)
                if case == "queue groups":
                    shown = [len(shown)]
                lines.append(shown)
            heard.append(lines)
    assert heard[0] == heard[1]


def test_weights(pair: list[Server]) -> None:
    for server in pair:
        with RawApp(server.port) as client:
            client.send(b"SUB > 1\r\n")
            client.sync()
            client.send(b"PUB half 0\r\n\r\nPUB half.gone 0\r\n\r\n" * 2000)
            counts = Counter(frame.subject for frame in client.sync())
        assert 1450 < counts["first"] < 1750
        assert 500 < counts["second"] < 700
        assert 500 < counts["half"] < 700
        assert 500 < counts["half.gone"] < 700
        assert 3100 < sum(counts.values()) < 3500  # the rest of the last is lost


def test_streams_take_what_is_mapped(pair: list[Server]) -> None:
    seen = []
    for server in pair:
        with RawApp(server.port) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["held.*"]})
            ack = json.loads(client.request("hold.x", b"data").payload)
            found = client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
            assert isinstance(found, dict)
            seen.append((ack, found["subject"]))
    assert seen[0] == seen[1]
    assert seen[0][1] == "held.x"


PERMISSIONS = """
accounts {
    A {
        users: [
            { user: both, password: x, permissions: { publish: [a, b, "m.>"] } }
            { user: from, password: x, permissions: { publish: [a, c, lost] } }
            { user: to, password: x, permissions: { publish: [b] } }
            { user: all, password: x }
        ]
        maps { a: b, "m.*": "n.$1", lost: [] , lost2: [{ dest: lost2, weight: 0 }] }
    }
    B { users: [{ user: other, password: x }] }
}
"""


def test_permissions_are_those_of_what_it_is_mapped_to(servers: Servers) -> None:
    heard = []
    for start in (servers.under_test, servers.peer):
        server = start(config=PERMISSIONS)
        lines: list[object] = []
        for user in ("both", "from", "to", "all", "other"):
            with connected(server, {"user": user, "pass": "x", "verbose": True}) as client:
                client.send(b"SUB > 1\r\n")
                client.sync()
                for subject in ("a", "b", "c", "m.x", "n.x", "lost", "lost2"):
                    client.send(f"PUB {subject} 0\r\n\r\n".encode())
                    lines.append((user, subject, said(client)))
        heard.append(lines)
    assert heard[0] == heard[1]


def test_mapping_is_traced(servers: Servers) -> None:
    for start in (servers.under_test, servers.peer):
        server = start(config=CONFIG + "trace: true\n")
        with RawApp(server.port) as client:
            client.publish("one", b"x")
            client.sync()
            server.wait_log("<<- [MAPPING one -> two]")


# ---- any mapping

SOURCES = ("s.*", "s.*.*", "s.>", "s.*.>", "*.x", "s.x", ">", "s.*.y")
SUBJECTS = ("s.x", "s.abc-def", "s.a.bc", "s.é-ü", "s.-a-", "t.x", "s.a.y", "s.abcdefg.x.y.z")
FUNCTIONS = (
    *("wildcard", "partition", "splitFromLeft", "splitFromRight", "sliceFromLeft"),
    *("sliceFromRight", "split"),
)


def destination(rng: random.Random, source: str) -> str:
    stars = source.count("*")
    tokens = []
    for _ in range(rng.randrange(1, 4)):
        index = rng.randrange(0, stars + 1)
        name = rng.choice(FUNCTIONS)
        number = str(rng.choice((-1, 0, 1, 2, 3, 7, 1000)))
        second = rng.choice(("-", "", "b", "--", "x")) if name == "split" else number
        arguments = {
            "wildcard": [str(index)],
            "partition": [number] + [str(rng.randint(0, stars)) for _ in range(rng.randrange(3))],
        }.get(name, [str(index), second])
        tokens.append(rng.choice(("d", f"${index}", f"{{{{{name}({','.join(arguments)})}}}}")))
    return ".".join(["d", *tokens] + [">"] * source.endswith(">"))


def is_valid(source: str, to: str) -> bool:
    try:
        weighed(Mapping(source=source, destinations=[Destination(subject=to)]))
    except MappingError:
        return False
    # of a literal source nats-server hashes nothing, or all, as other mappings of the account go
    return "*" in source or ">" in source or "partition" not in to


def test_any_mapping(servers: Servers) -> None:
    rng = random.Random(11)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 150:
        source = rng.choice(SOURCES)
        to = destination(rng, source)
        if is_valid(source, to):
            pairs.append((source, to))
    accounts = [
        f"A{i} {{ users: [{{ user: u{i}, password: x }}], mappings: {{ "
        f"{json.dumps(source)}: {json.dumps(to)} }} }}"
        for i, (source, to) in enumerate(pairs)
    ]
    config = "accounts {\n" + "\n".join(accounts) + "\n}\n"
    heard = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config)
        lines = []
        for i, mapping in enumerate(pairs):
            with connected(server, {"user": f"u{i}", "pass": "x"}) as client:
                client.send(b"SUB > 1\r\n")
                client.sync()
                for subject in SUBJECTS:
                    client.publish(subject)
                lines.append((mapping, [frame.subject for frame in client.sync()]))
        heard.append(lines)
    assert heard[0] == heard[1]


WRONG = [
    'a..b: x',
    '"a.*": "b.*"',
    'a: "b..c"',
    'a: "b c"',
    'a: "{{foo(1)}}"',
    '"a.*": "{{left(1,2)}}"',
    '"a.*": "b.$2"',
    'a: b.>',
    'a: [{dest: b}]',
    'a: {dest: b}',
    'a: {dest: b, weight: 101}',
    'a: {dest: b, weight: "x%"}',
    'a: {dest: b, weight: "50%%"}',
    'a: {dest: b, weight: "+50%"}',
    'a: {dest: b, weight: -1}',
    'a: {dest: b, weight: 50, x: 1}',
    'a: [b]',
    'a: [{dest: b, weight: 60}, {dest: c, weight: 60}]',
    'a: [{dest: b, weight: 60}, {dest: b, weight: 40}]',
    'a: [{dest: b, weight: 60}, {dest: c, weight: 60, cluster: x}]',
    'a: [{dest: b, weight: 60, cluster: x}, {dest: c, weight: 60, cluster: x}]',
    'a: [{dest: b, weight: 60, cluster: x}]',
    'a: [{dest: b, weight: 60}, {dest: c, weight: 200}]',
    'a: []',
    'a: b\n "": c',
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_mapping(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(f"mappings {{\n {wrong}\n}}\n", capsys)
    check(f"accounts {{ A {{ maps {{\n {wrong}\n}} }} }}\n", capsys)
