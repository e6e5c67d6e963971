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
            assert b'"seq"' in client.request("s.a", random.randbytes(500_000)).payload
        restored = {"config": {**STREAM, "name": "R", "subjects": ["r.>"]}, "state": {}}
        asked = {"deliver_subject": client.inbox(), "chunk_size": 1024, "window_size": 1024}
        assert "error" not in client.api("STREAM.RESTORE.R", restored)
        assert "error" not in client.api("STREAM.SNAPSHOT.S", asked)
        reload(server, config(folder, left))
        why = "JetStream not enabled for account"  # and not that they were silent
        ends = (f"500 {why}", "408 No Interest")  # of the client that is cut
        wait_until(lambda: f"'A > R': restore failed: {why}" in server.log(), "the restore's end")
        wait_until(
            lambda: any(f"'A > S' failed: NATS/1.0 {end}" in server.log() for end in ends),
            "the snapshot's end",
        )
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
        # Together, so that none has ended by silence before the last one comes.
        assert sorted(restoring(client, RESTORES + 1)) == [0] * RESTORES + [10062]
        assert restoring(other, 1) == [0]
        assert sorted(sending(client, SNAPSHOTS + 1)) == [0] * SNAPSHOTS + [10064]
        assert sending(other, 1) == [0]


def restoring(client: RawApp, count: int) -> list[int]:
    """The codes of what so many restores are refused with."""
    asked = []
    for name in range(count):
        stream = STREAM | {"name": f"R{name}", "subjects": [f"r.{name}"]}
        asked.append((f"STREAM.RESTORE.R{name}", {"config": stream, "state": {}}))
    return codes(client, asked)


def sending(client: RawApp, count: int) -> list[int]:
    """Likewise of snapshots, whose chunks nobody answers."""
    client.subscribe("unanswered")
    asked = {"deliver_subject": "unanswered", "chunk_size": 1024, "window_size": 1024}
    return codes(client, [(f"STREAM.SNAPSHOT.S{name}", asked) for name in range(count)])


def codes(client: RawApp, asked: list[tuple[str, Any]]) -> list[int]:
    inbox = client.inbox()
    for subject, body in asked:
        client.publish(f"$JS.API.{subject}", json.dumps(body).encode(), reply=inbox)
    answers: list[Any] = []
    while len(answers) < len(asked):
        frame = client.message()
        if frame.subject == inbox:
            answers.append(json.loads(frame.payload))
    return [answer["error"]["err_code"] if "error" in answer else 0 for answer in answers]


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
        incoming = incoming_restore()
        incoming.stop("the reason")
        incoming.receive(b"reply", b"x")
        assert incoming._chunks.qsize() == 1  # the end, whatever still comes

    asyncio.run(played())


def incoming_restore() -> transfers.Incoming:
    shared = SimpleNamespace(clock=time.time_ns)
    config = StreamConfig(name="S")
    return transfers.Incoming(cast(Any, shared), cast(Any, None), cast(Any, None), config, None)


@pytest.mark.parametrize(
    ("storage", "own", "every", "room"),
    [
        ("file", -1, -1, -1),
        ("file", 0, -1, 0),
        ("file", 100, 30, 20),
        ("file", 5, 30, 0),
        ("memory", 100, -1, 93),
        ("memory", -1, 0, 0),
    ],
)
def test_the_room_of_a_restore(storage: str, own: int, every: int, room: int) -> None:
    """What both limits leave beside ten bytes in files and seven in memory; -1: no limit."""

    async def played() -> None:
        incoming = incoming_restore()
        limits = (SimpleNamespace(max_memory=n, max_storage=n) for n in (own, every))
        account = SimpleNamespace(name="A", limits=next(limits))
        handle = SimpleNamespace(usage=lambda: SimpleNamespace(memory=7, storage=10))
        shared = SimpleNamespace(settings=next(limits), accounts={"A": handle})
        incoming.account, incoming.shared = cast(Any, account), cast(Any, shared)
        incoming._config = StreamConfig(name="S", storage=cast(Any, storage))
        assert incoming._room() == room

    asyncio.run(played())


def test_chunks_are_those_of_their_account_alone() -> None:
    async def played() -> None:
        incoming, finished = incoming_restore(), []
        incoming.account = cast(Any, SimpleNamespace(name="A"))
        under_way = transfers.Transfers(
            cast(Any, None), cast(Any, None), lambda *of: finished.append(of)
        )
        under_way._by_subject[incoming.subject] = incoming
        own = incoming._chunks.qsize
        for account, subject, waiting in (
            ("B", incoming.subject, 0),
            ("A", f"{incoming.subject}x", 0),
            ("A", incoming.subject, 1),
        ):
            request = SimpleNamespace(
                account=account, reply=b"r", payload=b"x", connection=7, cost=1
            )
            assert under_way.receive(cast(Any, request), subject)
            assert own() == waiting
        assert finished == [(7, 1)] * 3

    asyncio.run(played())


def test_a_snapshot_that_nobody_hears_ends(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.S", STREAM)
        assert "error" not in client.api("STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
        server.wait_log("Snapshot of stream '$G > S' failed: NATS/1.0 408 No Interest", 30)


def test_a_snapshot_that_nobody_hears_keeps_no_other_one_waiting(servers: Servers) -> None:
    """Who asks again with the right subject gets it at once."""
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.S", STREAM)
        assert b'"seq"' in client.request("s.a", random.randbytes(500_000)).payload
        for subject in ("nobody", "nobody", client.inbox()):
            asked = {"deliver_subject": subject}
            assert "error" not in client.api("STREAM.SNAPSHOT.S", asked)
        frame = client.message(timeout=1.5)  # before the others give up
        while not frame.status:
            if frame.reply:
                client.publish(frame.reply)
            frame = client.message()
        assert frame.status == "204"
