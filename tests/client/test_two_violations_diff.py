"""A publish with two things wrong: both servers name the same one of them.

Each pair of violations is sent to the same streams of both servers; nothing is stored by any.
"""

import itertools
import json

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LONG = "x" * 66_000
STREAMS: dict[str, dict[str, object]] = {
    "plain": {},
    "sealed": {"deny_delete": True},
    "full": {"max_msgs": 1, "discard": "new"},
    "full bytes": {"max_bytes": 60, "discard": "new"},
    "full subject": {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
    "rollups and lives": {"allow_rollup_hdrs": True, "allow_msg_ttl": True},
    "counter": {"allow_msg_counter": True},
    "batches": {"allow_atomic": True, "allow_batched": True},
    "schedules": {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
}
HEADERS: dict[str, tuple[str, ...]] = {
    "another stream": ("Nats-Expected-Stream: OTHER",),
    "last sequence": ("Nats-Expected-Last-Sequence: 77",),
    "last sequence, no number": ("Nats-Expected-Last-Sequence: x",),
    "last sequence of the subject": ("Nats-Expected-Last-Subject-Sequence: 77",),
    "last sequence of another subject": (
        "Nats-Expected-Last-Subject-Sequence: 77",
        "Nats-Expected-Last-Subject-Sequence-Subject: s.other",
    ),
    "last id": ("Nats-Expected-Last-Msg-Id: none",),
    "duplicate": ("Nats-Msg-Id: first",),
    "lifetime": ("Nats-TTL: -5s",),
    "lifetime, allowed": ("Nats-TTL: 10s",),
    "rollup": ("Nats-Rollup: sub",),
    "rollup, unknown": ("Nats-Rollup: some",),
    "increment": ("Nats-Incr: x",),
    "increment, allowed": ("Nats-Incr: 1",),
    "schedule": ("Nats-Schedule: never", "Nats-Schedule-Target: s.target"),
    "schedule without target": ("Nats-Schedule: @every 10s",),
    "batch": ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 9"),
    "batch without sequence": ("Nats-Batch-Id: b",),
    "long headers": (f"X: {LONG}",),
}
TOO_LARGE = "too large"
VIOLATIONS = [*HEADERS, TOO_LARGE]


@pytest.fixture(scope="module")
def both(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(jetstream=True) for start in starts]


def refusals(server: Server, config: dict[str, object]) -> dict[tuple[str, ...], object]:
    """Violations, alone and in pairs, and what the server says to each."""
    said: dict[tuple[str, ...], object] = {}
    with RawApp(server.port) as client:
        made = {"name": "S", "subjects": ["s.>"], "max_msg_size": 70_000, **config}
        assert "error" not in client.api("STREAM.CREATE.S", made)
        increment = ["Nats-Incr: 1"] if "allow_msg_counter" in config else []
        client.publish("s.a", b"", header=header_block("Nats-Msg-Id: first", *increment))
        client.sync()
        pairs = itertools.combinations(VIOLATIONS, 2)
        for pair in (*((name,) for name in VIOLATIONS), *pairs):
            lines = [line for name in pair if name in HEADERS for line in HEADERS[name]]
            if len({line.partition(":")[0] for line in lines}) < len(lines):
                continue  # the same header twice says nothing about an order
            size = 71_000 if TOO_LARGE in pair else 1
            answer = client.request("s.a", b"x" * size, header=header_block(*lines))
            said[pair] = json.loads(answer.payload) if answer.payload else answer.status
        client.api("STREAM.DELETE.S")
    return said


@pytest.mark.parametrize("name", STREAMS)
def test_which_violation_is_told(both: list[Server], name: str) -> None:
    ours, theirs = (refusals(server, STREAMS[name]) for server in both)
    differ = {pair: (ours[pair], theirs[pair]) for pair in ours if ours[pair] != theirs[pair]}
    assert not differ, "\n".join(f"{pair}: {a} / {b}" for pair, (a, b) in differ.items())
    assert len([pair for pair, answer in ours.items() if "error" in str(answer)]) > 100
