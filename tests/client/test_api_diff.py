"""The JetStream API against nats-server: the same conversation with both, answers field by field.

One side is always nats-server. The other is the API over the fake data plane, and where it can be
started the server itself. Ids, times and server names are left out, and of "invalid JSON" errors
the detail, which is ours. The order of the keys counts.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from jsserver.assets.limits import AccountLimits
from tests.client.api_corpus import ACCOUNT_LIMITS, COUNTED, LIMITED, SCENARIOS, Ask, Pub, Step
from tests.client.raw import RawApp, TimedOut
from tests.servers import Servers
from tests.unit.api_server import ApiServer

TIMES = {"created", "ts", "first_ts", "last_ts", "time", "last_active", "pause_remaining"}
ZERO = "0001-01-01T00:00:00Z"
GENERATED = re.compile(r"(?=.*[A-Z])(?=.*[a-z])[0-9A-Za-z]{8}")
SILENCE_SECONDS = 0.3


class Side(Protocol):
    """Somebody to talk to."""

    def ask(self, step: Ask) -> bytes | None: ...

    def publish(self, step: Pub) -> None: ...


class Wire:
    """A server, over a connection."""

    def __init__(self, port: int) -> None:
        self.client = RawApp(port)

    def ask(self, step: Ask) -> bytes | None:
        body = encode(step.body)
        silent = not known(step.subject)
        try:
            return self.client.request(
                f"$JS.API.{step.subject}",
                body,
                header=step.headers,
                timeout=SILENCE_SECONDS if silent else 60.0,
            ).payload
        except TimedOut:
            return None

    def publish(self, step: Pub) -> None:
        self.client.request(step.subject, step.payload, header=step.headers)


class Faked:
    """The API over the fake data plane."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def ask(self, step: Ask) -> bytes | None:
        return self.server.raw(step.subject, step.body, step.headers)

    def publish(self, step: Pub) -> None:
        self.server.engine.store(step.subject, step.payload, step.headers)


def encode(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def known(subject: str) -> bool:
    """Whether an answer is expected, so that it is worth waiting for."""
    from jsserver.api.endpoints import find

    return find(subject) is not None


def comparable(raw: bytes | None) -> Any:
    """An answer as nested lists of pairs, without what differs from run to run."""
    return None if raw is None else json.loads(raw, object_pairs_hook=_clean)


def _clean(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    out = []
    for key, value in pairs:
        if key in TIMES and value != ZERO:
            value = "TIME"
        elif key == "api":
            value = "COUNTS"  # of all that was asked before, also by other scenarios
        elif key == "leader":
            value = "SERVER"
        elif key == "name" and isinstance(value, str) and GENERATED.fullmatch(value):
            value = "GENERATED"
        elif key == "consumers" and isinstance(value, list):
            value = ["GENERATED" if _generated(v) else v for v in value]
        elif key == "description" and value.startswith("invalid JSON:"):
            value = "invalid JSON"
        out.append((key, value))
    return out


def _generated(value: Any) -> bool:
    return isinstance(value, str) and GENERATED.fullmatch(value) is not None


def differences(ours: Side, theirs: Side, steps: list[Step]) -> list[str]:
    """A text for each step that the two sides answer differently."""
    found = []
    for number, step in enumerate(steps):
        if isinstance(step, Pub):
            ours.publish(step)
            theirs.publish(step)
            continue
        mine, peers = comparable(ours.ask(step)), comparable(theirs.ask(step))
        if mine != peers:
            shown = encode(step.body).decode("utf-8", "replace")[:300]
            where = "\n".join(f"  {line}" for line in unequal("", mine, peers))
            found.append(f"step {number}: {step.subject} {shown}\n{where}")
    return found


def unequal(path: str, ours: Any, theirs: Any) -> list[str]:
    """Where two comparable answers differ, as `path: ours | theirs`."""
    if ours == theirs:
        return []
    if _is_object(ours) and _is_object(theirs):
        mine, peers = dict(ours), dict(theirs)
        found = [
            line
            for key in dict.fromkeys([*mine, *peers])
            for line in unequal(f"{path}.{key}", mine.get(key, "-"), peers.get(key, "-"))
        ]
        return found or [f"{path}: {list(mine)} | {list(peers)}"]
    return [f"{path}: {json.dumps(ours)[:300]} | {json.dumps(theirs)[:300]}"]


def _is_object(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(v) is tuple for v in value)


def sweep(*sides: Side) -> None:
    """Removes all streams, for the next scenario."""
    for side in sides:
        names = json.loads(side.ask(Ask("STREAM.NAMES")) or b"{}").get("streams")
        for name in names or ():
            side.ask(Ask(f"STREAM.DELETE.{name}"))


@pytest.fixture(scope="module")
def peer(module_servers: Servers, peer_present: None) -> Iterator[Wire]:
    side = Wire(module_servers.peer(jetstream=True).port)
    yield side
    side.client.close()


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Iterator[Wire]:
    side = Wire(module_servers.under_test(jetstream=True).port)
    yield side
    side.client.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_api_answers_like_the_peer(scenario: str, peer: Wire, tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        found = differences(Faked(api), peer, SCENARIOS[scenario])
    sweep(peer)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_server_answers_like_the_peer(scenario: str, server: Wire, peer: Wire) -> None:
    found = differences(server, peer, SCENARIOS[scenario])
    sweep(server, peer)
    assert not found, "\n".join(found)


def test_counting_of_requests(servers: Servers, peer_present: None, tmp_path: Path) -> None:
    peer = Wire(servers.peer(jetstream=True).port)
    with ApiServer(tmp_path) as api:
        ours = Faked(api)
        assert not differences(ours, peer, COUNTED)
        counts = [json.loads(side.ask(Ask("INFO")) or b"")["api"] for side in (ours, peer)]
    assert counts[0] == counts[1]


def test_limits_of_an_account(servers: Servers, peer_present: None, tmp_path: Path) -> None:
    config = (
        'jetstream {store_dir: "%s", max_file: 1000000, max_mem: 1000}\n'
        "accounts { A: {jetstream: {max_streams: 2, max_consumers: 2, max_mem: 500,"
        " max_file: 5000, max_bytes_required: true, disk_max_stream_bytes: 4000,"
        " max_ack_pending: 50}, users: [{user: a, password: a}]} }\nno_auth_user: a\n"
    ) % (tmp_path / "peer")
    peer = Wire(servers.peer(config=config).port)
    with ApiServer(tmp_path / "ours", AccountLimits(**ACCOUNT_LIMITS)) as server:
        found = differences(Faked(server), peer, LIMITED)
    assert not found, "\n".join(found)
