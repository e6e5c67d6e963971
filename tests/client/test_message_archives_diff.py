"""Backups of nats-server 2.15, which have messages instead of blocks, are restored here."""

import asyncio
import json
import random
import re
from typing import Any

import pytest

from jsserver.cext.bytes import s2_encode
from jsserver.text.s2 import decompress
from tests.client.backups import backup, restore
from tests.client.directories import STREAMS, contents, differences, fill
from tests.client.raw import RawApp
from tests.peer import NEWER_VERSION, find_peer
from tests.servers import Server, Servers

pytestmark = pytest.mark.skipif(
    find_peer(NEWER_VERSION) is None, reason=f"no nats-server {NEWER_VERSION}: `make peer`"
)

#: A restore makes these anew, or they are of the server: the time of creation, what was active.
ANEW = re.compile(r".*/(created|last_active)(/.*)?$")
NAMES = [config["name"] for config in STREAMS if "subjects" in config]
Backup = tuple[dict[str, Any], bytes]


@pytest.fixture(scope="module")
def origin(module_servers: Servers) -> Server:
    server = module_servers.release(NEWER_VERSION, jetstream=True)
    asyncio.run(fill(server))
    return server


@pytest.fixture(scope="module")
def backups(origin: Server) -> dict[str, Backup]:
    """Configuration and archive of each stream."""
    found = {}
    with RawApp(origin.port) as client:
        for name in NAMES:
            answer, archive, _ = backup(client, name, chunk_size=64 << 10)
            assert decompress(archive, 1 << 30).startswith(b"NATSARC1")
            found[name] = answer["config"], archive
    return found


def test_everything_in_them_is_there(
    servers: Servers, origin: Server, backups: dict[str, Backup]
) -> None:
    before = asyncio.run(contents(origin))
    ours = servers.under_test(jetstream=True)
    with RawApp(ours.port) as client:
        for name, (config, archive) in backups.items():
            answer = restore(client, config, archive)
            assert "error" not in answer, (name, answer)
    made = asyncio.run(contents(ours))
    before = {name: before[name] for name in made}
    found = [text for text in differences(before, made) if not ANEW.match(text.partition(":")[0])]
    assert not found, "\n".join(found)
    ours.restart()
    assert differences(made, asyncio.run(contents(ours))) == []


def test_what_is_cut_or_changed_leaves_nothing_behind(
    servers: Servers, backups: dict[str, Backup]
) -> None:
    config, archive = backups["FIRST"]
    plain = decompress(archive, 1 << 30)
    dice = random.Random(7)
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        for _ in range(100):
            cut = plain[: dice.randrange(len(plain) - 1)]
            answer = restore(client, config, s2_encode(cut))
            assert "error" in answer, f"cut at {len(cut)}"
        assert client.api("STREAM.NAMES", {})["total"] == 0
        for _ in range(200):
            broken = bytearray(plain)
            place = dice.randrange(400) if dice.random() < 0.5 else dice.randrange(len(plain))
            broken[place] = dice.randrange(256)
            answer = restore(client, config, s2_encode(bytes(broken)))
            if "error" not in answer:  # a byte of a message, of a time
                assert client.api("STREAM.DELETE.FIRST")["success"]
        assert client.api("STREAM.NAMES", {})["total"] == 0


def test_numbers_at_the_edge(servers: Servers, backups: dict[str, Backup]) -> None:
    """Lengths and sequences that cannot be are refused with a reason."""
    config, _ = backups["FIRST"]

    def number(value: int) -> bytes:
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*out, value))

    def entry(name: bytes, seq: int, headers: int, payload: bytes, length: int = -1) -> bytes:
        size = len(payload) - headers if length < 0 else length
        return b"".join(map(number, (len(name), 0, seq, headers, size))) + name + payload

    def state(**fields: Any) -> bytes:
        said = {"messages": 1, "first_seq": 1, "last_seq": 1, "last_ts": "2026-01-01T00:00:00Z"}
        return b"NATSARC1" + entry(b"state.json", 0, 0, json.dumps(said | fields).encode())

    end = entry(b"", 0, 0, b"")
    message = entry(b"FIRST.1", 1, 0, b"x")
    cases = {
        b"NATSARC1": "truncated",
        b"NATSARC1" + message: "state.json",
        state() + message: "truncated",
        state() + entry(b"FIRST.1", 1, 0, b"", 1 << 63) + end: "of 9223372036854775849 bytes",
        state() + entry(b"FIRST.1", 1, 0, b"", 64 << 20) + end: "of 67108905 bytes",
        state() + b"\xff" * 12 + end: "more than 64 bits",
        state() + number(1 << 40) + bytes(20): "name of 1099511627776 bytes",
        state() + entry(b"FIRST.1", 2, 0, b"x") + end: "sequence 2 out of order",
        state() + message + message + end: "sequence 1 out of order",
        state() + entry(b"odd", 0, 0, b"x") + end: "expected message sequence",
        state(last_seq=1 << 63) + message + end: "state.json",
        state(last_seq=-1) + message + end: "state.json",
        state(last_ts="soon") + end: "state.json",
        state() + entry(b"consumers/c", 0, 0, b"{}") + message + end: "consumers/c",
        state() + entry(b"consumers/../c", 0, 0, CONSUMER) + message + end: "consumer named",
        state() + entry(b"FIRST." + b"y" * 70000, 1, 0, b"x") + end: "name of 70006 bytes",
    }
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        for plain, reason in cases.items():
            answer = restore(client, config, s2_encode(plain))
            assert reason in answer.get("error", {}).get("description", ""), (plain[:300], answer)
        whole = state() + message + end
        assert restore(client, config, s2_encode(whole))["state"]["messages"] == 1


CONSUMER = json.dumps(
    {
        "config": {"durable_name": "c", "ack_policy": "explicit"},
        "state": {
            "delivered": {"consumer_seq": 0, "stream_seq": 0},
            "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        },
    }
).encode()
