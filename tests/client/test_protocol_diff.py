"""Holds the same raw conversations with the server under test and with nats-server."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from time import sleep

import pytest

from tests.client.protocol import CASES
from tests.client.protocol.case import (
    BYTEWISE,
    CLOSE,
    CONFIGS,
    END,
    OPEN,
    PAUSE,
    SYNC,
    Case,
)
from tests.client.raw import EOF, Frame, RawClient
from tests.servers import Server, ServerFailed, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

# Fields of INFO whose values differ between any two servers; what is compared is their presence.
VARYING = ("server_id", "server_name", "go", "host", "port", "client_id", "xkey", "nonce")
ABSENT_IN_SOME_BUILDS = ("git_commit",)
TRIES = 3


@dataclass
class Pair:
    """The server under test and its peer under the same configuration."""

    under_test: Server
    peer: Server
    named: bool


class Pairs:
    """Starts a pair for each configuration when the first case asks for it."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.started: dict[str, Pair | ServerFailed] = {}

    def of(self, config: str) -> Pair:
        if config not in self.started:
            try:
                self.started[config] = self.start(config)
            except ServerFailed as failure:
                self.started[config] = failure
        pair = self.started[config]
        if isinstance(pair, ServerFailed):
            raise pair
        return pair

    def start(self, config: str) -> Pair:
        options = {"config": CONFIGS[config], "jetstream": config == "jetstream"}
        named = "server_name" in CONFIGS[config]
        return Pair(self.servers.under_test(**options), self.servers.peer(**options), named)


@pytest.fixture(scope="module")
def pairs(module_servers: Servers) -> Iterator[Pairs]:
    yield Pairs(module_servers)


@dataclass
class Conversation:
    """Plays a case on one server and keeps what each connection heard."""

    port: int
    case: Case
    named: bool
    clients: dict[str, RawClient] = field(default_factory=dict)
    heard: dict[str, list[Frame]] = field(default_factory=dict)

    def play(self) -> dict[str, list[tuple[object, ...]]]:
        try:
            for name, action in self.case.steps:
                self.step(name, action)
            self.settle()
        finally:
            for client in self.clients.values():
                client.close()
        return {name: self.shown_all(frames) for name, frames in self.heard.items()}

    def connection(self, name: str) -> RawClient:
        if name not in self.clients:
            client = self.clients[name] = RawClient(self.port)
            info = client.frame()
            assert info.verb == "INFO", info
            self.heard[name] = [info] if self.case.info else []
        return self.clients[name]

    def step(self, name: str, action: object) -> None:
        if isinstance(action, PAUSE):
            sleep(action.seconds)  # what a case says about time
            return
        client = self.connection(name)
        heard = self.heard[name]
        match action:
            case bytes():
                client.send(action)
            case BYTEWISE():
                for byte in action.data:
                    client.send(bytes([byte]))
            case int():
                heard += [client.frame() for _ in range(action)]
            case _ if action == SYNC:
                client.send(b"PING\r\n")
                heard += client.until("PONG")
            case _ if action == END:
                heard += client.until(EOF)
            case _ if action == CLOSE:
                client.close()
            case _:
                assert action == OPEN, action

    def settle(self) -> None:
        """Two rounds of PING and PONG: after the first, all that was published is on its way."""
        for _ in range(2):
            for name, client in self.clients.items():
                heard = self.heard[name]
                if client.closed or (heard and heard[-1].verb == EOF):
                    continue
                client.send(b"PING\r\n")
                heard += [f for f in client.until("PONG") if not self.expected_pong(f)]

    def expected_pong(self, frame: Frame) -> bool:
        return frame.verb == "PONG" and frame.line == b"PONG"

    def shown_all(self, frames: list[Frame]) -> list[tuple[object, ...]]:
        """The frames, copies of one message to several subscriptions in the order of their lines:
        which of them comes first is left to chance."""
        runs = groupby(frames, key=lambda f: (f.verb, f.subject, f.reply, f.header, f.payload))
        in_order = (sorted(run, key=lambda f: f.line if key[1] else b"") for key, run in runs)
        return [self.shown(frame) for run in in_order for frame in run]

    def shown(self, frame: Frame) -> tuple[object, ...]:
        if frame.verb != "INFO":
            return frame.shown()
        varying = [v for v in VARYING if not (self.named and v in ("server_name", "host", "port"))]
        fields = [
            (name, "…" if name in varying else value)
            for name, value in frame.json.items()
            if name not in ABSENT_IN_SOME_BUILDS
        ]
        return ("INFO", fields, frame.line[-2:])


def kinds(heard: dict[str, list[tuple[object, ...]]]) -> dict[str, list[tuple[object, ...]]]:
    """How many frames of each kind each connection heard."""
    return {
        name: sorted(Counter(frame[0] for frame in frames).items())
        for name, frames in heard.items()
    }


ZEROS = "sizes are told without the zeros that the publisher put before them"

#: Conversations in which the server differs from nats-server, and why.
DIFFERENT = {
    "pub_size_leading_zeros": ZEROS,
    "pub_size_nine_digits": ZEROS,
    "hpub_leading_zeros": ZEROS,
    "perm_wide_sub_of_narrow_allow": "leave to a.* is no leave to subscribe to a.>",
}


def marked(case: Case) -> object:
    """The case, expected to fail if it is a known difference; then it must."""
    if case.name not in DIFFERENT:
        return pytest.param(case, id=case.name)
    mark = pytest.mark.xfail(reason=DIFFERENT[case.name], strict=True)
    return pytest.param(case, id=case.name, marks=mark)


@pytest.mark.parametrize("case", [marked(c) for c in CASES])
def test_same_conversation(pairs: Pairs, case: Case) -> None:
    """Says so only after a second and a third try: a loaded machine may cut a last word off."""
    pair = pairs.of(case.config)
    theirs = []
    for _ in range(TRIES):
        with ThreadPoolExecutor(2) as pool:
            ours, their = pool.map(
                lambda server: Conversation(server.port, case, pair.named).play(),
                (pair.under_test, pair.peer),
            )
        if case.counted:
            ours, their = kinds(ours), kinds(their)
        theirs.append(their)
        if ours in theirs:
            break
    if ours not in theirs:
        assert ours == theirs[-1]
    assert pair.under_test.running
