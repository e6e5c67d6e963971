"""Backups on their way while accounts go, and clients that send more than is taken."""

import asyncio
import json
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jsserver.api import transfers
from jsserver.wire.types import StreamConfig
from tests.client.raw import RawApp
from tests.client.reloads import reload
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(60)

RESTORES, SNAPSHOTS = 8, 48
STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": 1}


def config(folder: Path, account: str) -> str:
    users = "users: [{user: a, password: p}]"
    others = "B { jetstream: enabled, users: [{user: b, password: p}] }"
    own = {"": "", "none": f"A {{ {users} }}", "all": f"A {{ jetstream: enabled, {users} }}"}
    return f'jetstream {{ store_dir: "{folder}" }}\naccounts {{ {own[account]}\n{others} }}\n'


def client_of(server: Server, user: str = "a") -> RawApp:
    login = {"user": user, "pass": "p", "headers": True, "no_responders": True}
    return RawApp(server.port, options=json.dumps(login).encode())


@pytest.mark.parametrize("left", ["none", ""], ids=["jetstream goes", "the account goes"])
def test_transfers_end_with_the_jetstream_of_their_account(servers: Servers, left: str) -> None:
    folder = servers.base / "store"
    server = servers.under_test(config=config(folder, "all"))
    with client_of(server) as client:
        assert "error" not in client.api("STREAM.CREATE.S", STREAM)
        for _ in range(4):
            assert b'"seq"' in client.request("s.a", bytes(500_000)).payload
        restored = {"config": {**STREAM, "name": "R", "subjects": ["r.>"]}, "state": {}}
        asked = {"deliver_subject": client.inbox(), "chunk_size": 1024, "window_size": 1024}
        assert "error" not in client.api("STREAM.RESTORE.R", restored)
        assert "error" not in client.api("STREAM.SNAPSHOT.S", asked)
        began = time.monotonic()
        reload(server, config(folder, left))
        ended = ("'A > R': restore failed: JetStream not enabled", "of stream 'A > S' failed: ")
        for line in ended:
            wait_until(lambda line=line: line in server.log(), line)
        assert time.monotonic() - began < 4  # and not as one that is silent
    reload(server, config(folder, "all"))
    with client_of(server) as client:
        assert client.api("STREAM.NAMES")["streams"] == ["S"]
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 4
    streams = folder / "jetstream" / "A" / "streams"
    wait_until(lambda: [path.name for path in streams.iterdir()] == ["S"], "others are gone")
    server.stop()


def test_one_account_leaves_room_for_the_backups_of_others(servers: Servers) -> None:
    server = servers.under_test(config=config(servers.base / "store", "all"))
    with client_of(server) as client, client_of(server, "b") as other:
        for user in (client, other):
            for name in range(SNAPSHOTS + 1 if user is client else 1):
                stream = STREAM | {"name": f"S{name}", "subjects": [f"s.{name}"]}
                assert "error" not in user.api(f"STREAM.CREATE.S{name}", stream)
                assert b'"seq"' in user.request(f"s.{name}", random.randbytes(4000)).payload
        busy = [begun(client, name) for name in range(RESTORES + 1)]
        assert busy == [0] * RESTORES + [10062]
        assert begun(other, 0) == 0
        busy = [sent(client, name) for name in range(SNAPSHOTS + 1)]
        assert busy == [0] * SNAPSHOTS + [10064]
        assert sent(other, 0) == 0


def begun(client: RawApp, name: int) -> int:
    """The code of what a restore is refused with."""
    stream = STREAM | {"name": f"R{name}", "subjects": [f"r.{name}"]}
    return code_of(client.api(f"STREAM.RESTORE.R{name}", {"config": stream, "state": {}}))


def sent(client: RawApp, name: int) -> int:
    """Likewise of a snapshot, whose chunks nobody answers."""
    asked = {"deliver_subject": "unanswered", "chunk_size": 1024, "window_size": 1024}
    client.subscribe("unanswered")
    inbox = client.inbox()
    client.publish(f"$JS.API.STREAM.SNAPSHOT.S{name}", json.dumps(asked).encode(), reply=inbox)
    while (frame := client.message()).subject != inbox:
        pass
    return code_of(json.loads(frame.payload))


def code_of(answer: Any) -> int:
    return answer["error"]["err_code"] if "error" in answer else 0


def test_a_restore_keeps_no_more_than_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes while the chunks before it are being written."""
    monkeypatch.setattr(transfers, "WAITING", 100_000)

    async def played() -> None:
        incoming = incoming_restore()
        for _ in range(50):
            incoming.receive(b"reply", bytes(10_000))
        assert incoming._chunks.qsize() == 1  # it is known to have failed
        incoming = incoming_restore()
        for _ in range(100_000):
            incoming.receive(b"reply", b"")
        assert incoming._chunks.qsize() < 1000

    asyncio.run(played())


def incoming_restore() -> transfers.Incoming:
    shared = SimpleNamespace(clock=time.time_ns)
    config = StreamConfig(name="S")
    return transfers.Incoming(cast(Any, shared), cast(Any, None), cast(Any, None), config, None)
