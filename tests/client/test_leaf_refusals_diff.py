"""Who may be a leaf node, and what is said to who may not: as nats-server says it, word for
word."""

import json
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.leafs import Tree
from tests.servers import Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

CONNECT: dict[str, Any] = {
    "version": "2.14.5",
    "server_id": "NLEAF",
    "name": "LEAF",
    "cluster": "LEAF",
    "headers": True,
    "compress_mode": "off",
    "remote_account": "$G",
    "protocol": 3,
}
LOGIN = "authorization { user: u, password: p, timeout: 1 }"


class Dialled:
    """A leaf node by hand: what a hub says to it, line by line."""

    def __init__(self, port: int) -> None:
        self.info: dict[str, Any] = {}
        wait_until(lambda: self._is_met(port), f"port {port} is open")  # after that of clients

    def _is_met(self, port: int) -> bool:
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            return False
        self.lines = self.socket.makefile("rb")
        first = self.lines.readline()
        if first.startswith(b"INFO"):  # else a server that has just started was too slow for that
            self.info = json.loads(first.partition(b" ")[2])
        return bool(self.info)

    def say(self, *lines: bytes) -> None:
        self.socket.sendall(b"".join(line + b"\r\n" for line in lines))

    def connect(self, **options: Any) -> None:
        said = {key: value for key, value in (CONNECT | options).items() if value is not None}
        self.say(b"CONNECT " + json.dumps(said).encode())

    def heard(self, until: bytes = b"") -> list[bytes]:
        """Lines up to one that begins so, or to the end."""
        found = []
        try:
            for line in self.lines:
                found.append(line.strip())
                if until and line.startswith(until):
                    break
        except ConnectionResetError:
            pass
        return found

    def errors(self) -> list[str]:
        """What -ERR says before the end."""
        found = [line.decode() for line in self.heard() if line.startswith(b"-ERR")]
        self.socket.close()
        return found


def both(servers: Servers, run: Callable[[Tree], Any], **options: Any) -> tuple[Any, Any]:
    found = []
    for kind in "op":
        tree = Tree(servers)
        tree.add_hub(kind, **options)
        found.append(run(tree))
    return found[0], found[1]


CLUSTER = 'cluster { name: OWN, listen: "127.0.0.1:-1" }'


@pytest.mark.parametrize(
    "options",
    [
        {"lang": "go"},
        {"gateway": "G"},
        {"cluster": "OWN"},
        {"cluster": "a b"},
        {"version": "2.8.0"},
        {"version": None},
    ],
    ids=["client", "gateway", "cluster", "blank", "version", "no version"],
)
def test_who_may_not_come(servers: Servers, options: dict[str, Any]) -> None:
    def run(tree: Tree) -> list[str]:
        dialled = Dialled(tree.port)
        dialled.connect(**options)
        return dialled.errors()

    ours, peers = both(servers, run, block='min_version: "2.9.0"', rest=CLUSTER)
    assert ours == peers


def test_a_login(servers: Servers) -> None:
    def run(tree: Tree) -> list[list[str]]:
        found = []
        for options in ({"user": "u", "pass": "x"}, {"user": "u"}, {}, {"lang": "go"}):
            dialled = Dialled(tree.port)
            dialled.connect(**options)
            found.append(dialled.errors())
        return found

    ours, peers = both(servers, run, block=LOGIN)
    assert ours == peers == [["-ERR 'Authorization Violation'"]] * 4


def test_whoever_says_nothing_is_cut(servers: Servers) -> None:
    ours, peers = both(servers, lambda tree: Dialled(tree.port).errors(), block=LOGIN)
    assert ours == peers


@pytest.mark.parametrize("line", [b"LS+ foo", b"LMSG foo 2\r\nhi", b"PING", b"NONSENSE"])
def test_words_before_the_handshake(servers: Servers, line: bytes) -> None:
    def run(tree: Tree) -> list[str]:
        dialled = Dialled(tree.port)
        dialled.say(line)
        return dialled.errors()

    ours, peers = both(servers, run, block=LOGIN)
    assert ours == peers


def test_the_members_of_info(servers: Servers) -> None:
    def run(tree: Tree) -> list[dict[str, Any]]:
        dialled = Dialled(tree.port)
        dialled.connect()
        (answer,) = dialled.heard(b"INFO")
        dialled.socket.close()
        return [dict(dialled.info), json.loads(answer.partition(b" ")[2])]

    ours, peers = both(servers, run)
    varying = {"server_id", "nonce", "go", "port", "git_commit", "ip", "client_id", "leafnode_urls"}
    left = varying | {"xkey"}
    for own, other in zip(ours, peers, strict=True):
        assert {k: v for k, v in own.items() if k not in left} == {
            k: v for k, v in other.items() if k not in left
        }
        assert set(own) - left == set(other) - left
    assert re.fullmatch(r"[\w-]{15}", ours[0]["nonce"])


def loop_of(dialled: Dialled) -> bytes:
    for line in dialled.lines:
        if line.startswith(b"LS+ $LDS."):
            return bytes(line.split()[1])
    raise AssertionError("no loop subject")


def test_a_loop(servers: Servers) -> None:
    def run(tree: Tree) -> list[str]:
        dialled = Dialled(tree.port)
        dialled.connect()
        dialled.say(b"LS+ " + loop_of(dialled))
        return dialled.errors()

    ours, peers = both(servers, run)
    assert ours == peers and "Loop detected" in ours[0]


def test_of_two_connections_of_a_server_the_later_one_stays(servers: Servers) -> None:
    def run(tree: Tree) -> list[str]:
        first, second = Dialled(tree.port), Dialled(tree.port)
        for dialled in (first, second):
            dialled.connect()
            loop_of(dialled)
        found = first.errors()
        second.say(b"PING")
        assert second.heard(b"PONG")[-1] == b"PONG"
        return found

    ours, peers = both(servers, run)
    assert ours == peers == ["-ERR 'Duplicate Remote LeafNode Connection'"]


USERS = """
    accounts { A { users: [
        {user: a, password: a, permissions {
            publish: {allow: ["p.>", "w.*"], deny: ["p.no"]}
            subscribe: {allow: ["s.>", "_INBOX.>"], deny: ["s.no"]}}}
    ] } }
"""


@pytest.mark.parametrize(
    "lines",
    [
        [b"LS+ s.yes", b"LS+ s.*", b"LS+ other.*", b"LS+ >"],
        [b"LS+ s.no"],
        [b"LS+ p.yes"],
        [b"LMSG p.yes 2\r\nhi"],
        [b"LMSG p.no 2\r\nhi"],
        [b"LMSG s.yes 2\r\nhi"],
        [b"LMSG _R_.aaaaaa.b 2\r\nhi", b"LMSG $JS.ACK.x 2\r\nhi"],
        [b"LS+ a..b"],
        [b"LS+ a b"],
        [b"LS- never"],
        [b"LMSG foo"],
        [b"LMSG foo x"],
    ],
    ids=lambda lines: lines[0].decode().replace("\r\n", " "),
)
def test_what_a_leaf_node_may(servers: Servers, lines: list[bytes]) -> None:
    """-ERR, and whether it stays."""

    def run(tree: Tree) -> list[bytes]:
        dialled = Dialled(tree.port)
        dialled.connect(user="a", **{"pass": "a"})
        loop_of(dialled)
        dialled.say(*lines, b"PING")
        heard = dialled.heard(b"PONG")
        return [line for line in heard if line.startswith((b"-ERR", b"PONG"))]

    ours, peers = both(servers, run, rest=USERS)
    assert ours == peers


def test_permissions_are_told(servers: Servers) -> None:
    def run(tree: Tree) -> Any:
        dialled = Dialled(tree.port)
        dialled.connect(user="a", **{"pass": "a"})
        answer = json.loads(dialled.heard(b"INFO")[-1].partition(b" ")[2])
        return answer["import"], answer["export"], answer["remote_account"]

    ours, peers = both(servers, run, rest=USERS)
    assert ours == peers


LOGINS = {
    "nobody": {},
    "a user": {"user": "a", "pass": "a"},
    "a wrong password": {"user": "a", "pass": "b"},
    "a stranger": {"user": "z", "pass": "z"},
}
BLOCKS = {
    "the users of clients": ("", USERS),
    "an account": ("authorization { account: A }", "accounts { A {} }"),
    "an account beside users": ("authorization { account: B }", USERS + "accounts { B {} }"),
    "its own user": ("authorization { user: a, password: a, account: B }", "accounts { B {} }"),
    "its own users": (
        "authorization { users: [{user: a, password: a, account: B}, {user: z, password: z}] }",
        "accounts { B {} }",
    ),
    "one user of all": ("", "authorization { user: a, password: a }"),
    "a token": ("", "authorization { token: t }"),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_into_which_account(servers: Servers, block: str) -> None:
    def run(tree: Tree) -> dict[str, Any]:
        found = {}
        for name, options in LOGINS.items():
            dialled = Dialled(tree.port)
            dialled.connect(**options)
            line = dialled.lines.readline()
            if line.startswith(b"INFO"):
                found[name] = json.loads(line.partition(b" ")[2])["remote_account"]
            else:
                found[name] = line.decode().strip()
            dialled.socket.close()
        return found

    more, rest = BLOCKS[block]
    ours, peers = both(servers, run, block=more, rest=rest)
    assert ours == peers


def test_a_hub_on_the_wrong_port(servers: Servers) -> None:
    """A remote that leads to the port of clients."""
    for kind in "op":
        tree = Tree(servers)
        tree.add_hub("p")
        wrong = tree.hub.url
        leaf = tree.add_leaf(kind, url=wrong)
        leaf.wait_log("attempted to connect to wrong port")
