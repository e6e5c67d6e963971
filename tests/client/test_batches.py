"""Batches beside nats-server: restarts, moved directories, limits of the server, other accounts."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.client.recorder import Recorder
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

BOTH = {"allow_atomic": True, "allow_batched": True}
LIMITS = """
server_name: one
jetstream {
    limits {
        batch { max_inflight_per_stream: 2, max_inflight_total: 3, max_msgs: 3, timeout: "1s" }
    }
}
"""
ACCOUNTS = """
server_name: one
jetstream: enabled
accounts {
    A {
        users: [{ user: a, password: x }], jetstream: enabled
        exports: [{ service: stored.*, response: stream }]
    }
    B {
        users: [{ user: b, password: x }]
        imports: [{ service: { account: A, subject: stored.* }, to: "through.$1" }]
        exports: [{ service: through.*, response: stream }]
    }
    C {
        users: [{ user: c, password: x }]
        imports: [{ service: { account: B, subject: through.* }, share: true }]
    }
}
"""


def pair(servers: Servers, **options: Any) -> list[Server]:
    return [start(jetstream=True, **options) for start in (servers.under_test, servers.peer)]


def member(id: str, number: int, commit: str = "") -> bytes:
    lines = [f"Nats-Batch-Id: {id}", f"Nats-Batch-Sequence: {number}"]
    return header_block(*lines, *([f"Nats-Batch-Commit: {commit}"] if commit else []))


def put(client: RawApp, id: str, number: int, commit: str = "", subject: str = "s.a") -> bytes:
    data = f"{id} {number}".encode()
    return client.request(subject, data, header=member(id, number, commit)).payload


def same(servers: list[Server], play: Callable[[RawApp], object]) -> object:
    heard = []
    for server in servers:
        with RawApp(server.port) as client:
            heard.append(play(client))
    assert heard[0] == heard[1]
    return heard[0]


def test_limits_of_the_server_and_silence(servers: Servers) -> None:
    def play(client: RawApp) -> object:
        for name in "st":
            client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **BOTH})
        with RawApp(client.socket.getpeername()[1]) as listener:
            listener.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>")
            listener.sync()
            said: list[object] = [put(client, id, 1) for id in "abc"]
            said += [put(client, id, 1, subject="t.a") for id in "ab"]
            events = [listener.message(5) for _ in range(3)]
            said.append(put(client, "a", 2, "1"))
            said += [put(client, "d", number) for number in (1, 2, 3, 4)]
            events.append(listener.message(5))
        for frame in events:
            event = json.loads(frame.payload)
            assert event.pop("id") and event.pop("timestamp")
            said.append((frame.subject, sorted(event.items())))
        fast = [put_fast(client, id, 1, 0) for id in "abc"]
        return [*sorted(map(str, said)), *fast]

    said = same(pair(servers, config=LIMITS), play)
    assert str(said).count("'timeout'") == 3 and str(said).count("10210") == 2


def put_fast(client: RawApp, id: str, number: int, op: int, subject: str = "s.a") -> Any:
    """The answer to it."""
    if not hasattr(client, "fast"):
        client.fast = client.subscribe("fast.>")  # type: ignore[attr-defined]
    client.publish(subject, f"{id} {number}".encode(), reply=f"fast.{id}.1.fail.{number}.{op}.$FI")
    return json.loads(client.message(5).payload)


def create(client: RawApp, **more: Any) -> None:
    config = {"name": "S", "subjects": ["s.>"], **BOTH, **more}
    assert "error" not in client.api("STREAM.CREATE.S", config)


def contents(client: RawApp) -> list[dict[str, Any]]:
    last = client.api("STREAM.INFO.S")["state"]["last_seq"]
    found = [client.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, last + 1)]
    for message in found:
        message["message"].pop("time")
    return found


def begin(client: RawApp) -> object:
    create(client)
    said = [put(client, "a", 1), put(client, "a", 2), put(client, "a", 3, "1")]
    said += [put(client, "open", 1), put(client, "open", 2)]
    return [said, put_fast(client, "f", 1, 0)]


def go_on(client: RawApp) -> object:
    return [
        put(client, "open", 3, "1"),
        put_fast(client, "f", 2, 1),
        contents(client),
        put(client, "open", 1),
        put(client, "open", 2, "eob"),
        contents(client),
        client.api("STREAM.INFO.S")["config"],
    ]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_a_restart_leaves(servers: Servers, how: str) -> None:
    both = pair(servers)
    same(both, begin)
    for server in both:
        getattr(server, how)()
        server.start()
    same(both, go_on)


def test_moves_of_the_directory(servers: Servers) -> None:
    """To the other server with open batches, and back."""
    both = pair(servers)
    same(both, begin)
    for server in both:
        server.stop()
    ours, theirs = both
    for store in (ours.store, theirs.store):
        shutil.move(store, store.with_name("aside"))
    shutil.copytree(ours.store.with_name("aside"), theirs.store)
    shutil.copytree(theirs.store.with_name("aside"), ours.store)
    for server in both:
        server.start()
    same(both, go_on)


def test_a_fast_batch_from_another_account(servers: Servers) -> None:
    """What it is stands in its reply, of which the stream hears through the request's headers."""

    def play(server: Server) -> object:
        options = b'{"verbose":false,"headers":true,"no_responders":true,"user":"%s","pass":"x"}'
        said: list[object] = []
        with RawApp(server.port, options=options % b"a") as owner:
            create(owner, subjects=["stored.>"])
            for user, subject in ((b"b", "through.x"), (b"c", "through.y")):
                with RawApp(server.port, options=options % user) as client:
                    for number, op in ((1, 0), (2, 1), (3, 2)):
                        said.append(put_fast(client, subject, number, op, subject))
                    said.append(put(client, "a", 1, subject=subject))
                    said.append(put(client, "a", 2, "1", subject=subject))
            said.append(contents(owner))
        return said

    heard = [play(server) for server in pair(servers, config=ACCOUNTS)]
    assert heard[0] == heard[1]


def test_the_configuration_says_what_is_allowed(servers: Servers) -> None:
    def play(client: RawApp) -> object:
        r = Recorder(client.socket.getpeername()[1], "F")
        for options in ({}, {"allow_atomic": True}, {"allow_batched": True}, BOTH):
            config = {"name": "S", "subjects": ["s.>"], **options}
            r.api("STREAM.CREATE.S", config)
            r.api("STREAM.INFO.S")
            r.api("STREAM.UPDATE.S", {**config, "description": "d"})
            r.api("STREAM.DELETE.S")
        r.close()
        return r.said

    same(pair(servers, args=["-n", "one"]), play)
