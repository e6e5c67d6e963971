"""Snapshots and restores: what either server wrote the other one reads, with everything in it."""

import itertools
import json
import random
from typing import Any

import pytest

from tests.client.backups import backup, restore, stored
from tests.client.raw import RawApp, TimedOut, header_block
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(120)]

CONFIG = {
    "name": "KEPT",
    "subjects": ["kept.>"],
    "max_msgs_per_subject": 50,
    "description": "what is kept",
    "metadata": {"owner": "somebody"},
}
TIMELESS = ("created", "ts", "timestamp", "id", "start", "end", "first_ts", "last_ts")
TOLD = 6
"""Events of a snapshot, a removal and a restore."""
UNTOLD = ("client", "bytes", "_nats.req.level")
"""The archives differ in size; nats-server leaves the level out of what it restored."""


def fill(client: RawApp, count: int = 400) -> None:
    """A stream with gaps at both ends and between, headers, and consumers with state."""
    draw = random.Random(count)
    assert "error" not in client.api("STREAM.CREATE.KEPT", CONFIG)
    for i in range(count):
        head = header_block(f"Number: {i}") if i % 3 == 0 else b""
        client.request(f"kept.{i % 7}", draw.randbytes(i * 13 % 3000), header=head)
    for name, policy in (("explicit", "explicit"), ("all", "all"), ("never", "none")):
        config = {"durable_name": name, "ack_policy": policy, "ack_wait": 3_600_000_000_000}
        body = {"stream_name": "KEPT", "config": config}
        assert "error" not in client.api(f"CONSUMER.DURABLE.CREATE.KEPT.{name}", body)
        inbox = client.inbox()
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.KEPT.{name}", b'{"batch":9}', reply=inbox)
        got = client.messages(9)
        for frame in (got[0], got[1], got[4]) if policy == "explicit" else got[3:4]:
            if policy != "none":
                client.request(frame.reply, b"+ACK")
    for seq in (count - 150, count - 100, count - 99, count):
        client.api("STREAM.MSG.DELETE.KEPT", {"seq": seq})


def consumers(client: RawApp, stream: str) -> list[Any]:
    found: Any = client.api(f"CONSUMER.LIST.{stream}", {})
    shown = ("name", "config", "delivered", "ack_floor", "num_ack_pending", "num_pending")
    return [
        {key: strip(one[key]) for key in shown}
        for one in sorted(found.get("consumers") or [], key=lambda one: one["name"])
    ]


def strip(value: Any) -> Any:
    """Without last activity, which a restore does not keep."""
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items() if k not in ("last_active", "metadata")}
    return value


def look(client: RawApp) -> Any:
    info, messages = stored(client, "KEPT")
    # Of a last message that is gone an archive has no time.
    state = {k: v for k, v in info["state"].items() if k not in ("consumer_count", "last_ts")}
    return info["created"], info["config"], state, messages, consumers(client, "KEPT")


def pair(servers: Servers, which: str) -> Server:
    return (servers.peer if which == "peer" else servers.under_test)(jetstream=True)


@pytest.mark.parametrize(("writer", "reader"), list(itertools.product(("ours", "peer"), repeat=2)))
def test_a_backup_is_restored_with_everything_in_it(
    servers: Servers, writer: str, reader: str
) -> None:
    one = pair(servers, writer)
    with RawApp(one.port) as client:
        fill(client)
        before = look(client)
        answer, archive, last = backup(client, "KEPT", chunk_size=64 << 10)
        assert answer["state"]["messages"] == before[2]["messages"]
        assert last.status == "204"
    two = pair(servers, reader)
    with RawApp(two.port) as client:
        made = restore(client, {**CONFIG, **answer["config"]}, archive)
        assert made.get("error") is None, made
        assert made["type"] == "io.nats.jetstream.api.v1.stream_create_response"
        assert look(client) == before
        assert client.request("kept.new", b"next").payload.startswith(b'{"stream":"KEPT"')
        after = look(client)
    if reader == "ours":  # what nats-server removed by a limit comes back after a kill
        two.kill()
        two.start()
        with RawApp(two.port) as client:
            assert look(client) == after


@pytest.mark.parametrize("writer", ["ours", "peer"])
def test_a_backup_is_restored_into_memory_with_everything_in_it(
    servers: Servers, writer: str
) -> None:
    """nats-server answers that it is done, too, and has an empty stream."""
    with RawApp(pair(servers, writer).port) as client:
        fill(client)
        before = look(client)
        answer, archive, _ = backup(client, "KEPT", chunk_size=64 << 10)
    config = {**CONFIG, **answer["config"], "storage": "memory"}
    with RawApp(pair(servers, "peer").port) as client:
        theirs = restore(client, config, archive)
        assert theirs["state"]["messages"] == 0
    two = pair(servers, "ours")
    with RawApp(two.port) as client, RawApp(two.port) as listener:
        listener.subscribe("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.>")
        listener.sync()
        made = restore(client, config, archive)
        assert made.get("error") is None, made
        assert made["config"]["storage"] == "memory"
        assert {**timeless(theirs), "state": 0} == {**timeless(made), "state": 0}
        assert listener.message().subject.endswith("KEPT")
        after = look(client)
        assert smaller(after) == smaller(before)
        assert client.request("kept.new", b"next").payload == b'{"stream":"KEPT","seq":401}'
        inbox = client.inbox()
        client.publish("$JS.API.CONSUMER.MSG.NEXT.KEPT.all", b"", reply=inbox)
        assert client.message().reply.split(".")[4:7] == ["1", "60", "10"]
        asked = {"deliver_subject": "anywhere"}
        assert client.api("STREAM.SNAPSHOT.KEPT", asked)["error"]["err_code"] == 10064
        client.api("STREAM.CREATE.FILE", {"name": "FILE", "subjects": ["file"]})
    two.stop()
    assert [entry.name for entry in (two.store / "jetstream" / "$G" / "streams").iterdir()] == [
        "FILE"
    ]
    two.start()
    with RawApp(two.port) as client:
        assert client.api("STREAM.NAMES", {})["streams"] == ["FILE"]


def smaller(looked: Any) -> Any:
    """What was looked at, without what memory makes of it."""
    created, config, state, messages, found = looked
    rest = {k: v for k, v in config.items() if k != "storage"}
    return created, rest, {k: v for k, v in state.items() if k != "bytes"}, messages, found


def test_limits_hold_for_what_is_restored_into_memory(servers: Servers) -> None:
    with RawApp(pair(servers, "ours").port) as client:
        fill(client)
        _, messages = stored(client, "KEPT")
        _, archive, _ = backup(client, "KEPT")
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        config = {**CONFIG, "storage": "memory", "max_msgs": 100, "max_msgs_per_subject": 20}
        assert "error" not in restore(client, config, archive)
        assert stored(client, "KEPT")[1] == messages[-len(stored(client, "KEPT")[1]) :]
        assert stored(client, "KEPT")[0]["state"]["messages"] <= 100
        client.api("STREAM.DELETE.KEPT")
        for cut in (archive[: len(archive) // 2], b"no archive" * 100):
            assert restore(client, config, cut)["error"]["err_code"] == 10062
        assert client.api("STREAM.NAMES", {})["streams"] is None
        memory: Any = client.api("INFO")
        assert memory["memory"] == 0
        assert "error" not in restore(client, config, archive)
    small = servers.under_test(config="jetstream { max_memory_store: 65536 }", jetstream=True)
    with RawApp(small.port) as client:
        refused = restore(client, config, archive)["error"]
        assert refused["err_code"] == 10062
        assert "insufficient memory" in refused["description"]
        assert "error" not in restore(client, CONFIG, archive)


@pytest.mark.parametrize("writer", ["ours", "peer"])
def test_an_empty_stream_keeps_its_sequences(servers: Servers, writer: str) -> None:
    with RawApp(pair(servers, writer).port) as client:
        client.api("STREAM.CREATE.KEPT", CONFIG)
        for _ in range(5):
            client.request("kept.a", b"x")
        client.api("STREAM.PURGE.KEPT")
        _, archive, last = backup(client, "KEPT")
        assert last.header == b""
    for reader in ("ours", "peer"):
        with RawApp(pair(servers, reader).port) as client:
            assert restore(client, CONFIG, archive)["state"]["last_seq"] == 5
            assert json.loads(client.request("kept.a", b"x").payload)["seq"] == 6


def test_what_is_refused_and_said_is_the_same(servers: Servers) -> None:
    shown = []
    for which in ("ours", "peer"):
        server = pair(servers, which)
        with RawApp(server.port) as client, RawApp(server.port) as listener:
            fill(client, 20)
            client.api("STREAM.CREATE.MEM", {"name": "MEM", "subjects": ["m"], "storage": "memory"})
            listener.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
            listener.sync()
            answers: list[Any] = [
                client.api("STREAM.SNAPSHOT.KEPT"),
                client.api("STREAM.SNAPSHOT.NONE", {"deliver_subject": "a"}),
                client.api("STREAM.SNAPSHOT.KEPT", {"deliver_subject": "a.*"}),
                client.api("STREAM.SNAPSHOT.KEPT", {"deliver_subject": ""}),
                client.api("STREAM.SNAPSHOT.MEM", {"deliver_subject": "a"}),
                client.api("STREAM.RESTORE.KEPT"),
                client.api("STREAM.RESTORE.KEPT", {"config": CONFIG, "state": {}}),
                client.api("STREAM.RESTORE.NEW", {"config": CONFIG, "state": {}}),
                client.api("STREAM.RESTORE.NEW", {"config": {"num_replicas": 9}, "state": {}}),
            ]
            _, archive, last = backup(client, "KEPT", no_consumers=True)
            client.api("STREAM.DELETE.KEPT")
            answers += [restore(client, CONFIG, archive), consumers(client, "KEPT")]
            # nats-server's come in any order, late, and with an update that nobody asked for.
            told: list[Any] = []
            while len(told) < TOLD:
                event = json.loads(listener.message().payload)
                if event.get("action") != "modify" and event["stream"] != "MEM":
                    told.append(event)
            told.sort(key=lambda event: (event["type"], event.get("action", "")))
            answers += [last.header.decode(), told]
            shown.append(timeless(answers))
    for ours, theirs in zip(*shown, strict=True):
        assert ours == theirs


def timeless(value: Any) -> Any:
    """Without what differs from one run to the next."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in (*TIMELESS, *UNTOLD)}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def damaged(archive: bytes) -> dict[str, bytes]:
    flipped = bytearray(archive)
    flipped[len(archive) // 2] ^= 4
    return {
        "cut": archive[: len(archive) // 2],
        "flipped": bytes(flipped),
        "no archive": b"no archive at all" * 1000,
        "nothing": b"",
    }


def test_damaged_archives_leave_nothing_behind(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        fill(client, 100)
        _, archive, _ = backup(client, "KEPT")
        client.api("STREAM.DELETE.KEPT")
        for what, bad in damaged(archive).items():
            answer = restore(client, CONFIG, bad)
            assert answer["error"]["err_code"] == 10062, what
            reason = answer["error"]["description"].removeprefix("restore failed: ")
            assert reason and reason != "None", what
        assert client.api("STREAM.NAMES", {})["streams"] is None
        assert restore(client, {**CONFIG, "name": "OTHER"}, archive)["error"]["err_code"] == 10062
        assert "error" not in restore(client, CONFIG, archive)
        server.stop()
        streams = server.store / "jetstream" / "$G" / "streams"
        assert [entry.name for entry in streams.iterdir()] == ["KEPT"]


def test_what_follows_the_answer_waits_for_whoever_subscribes_then(servers: Servers) -> None:
    """As the nats tool does: its inboxes have a wildcard, which is not meant."""
    with RawApp(servers.under_test(jetstream=True).port) as client:
        client.api("STREAM.CREATE.KEPT", CONFIG)
        client.request("kept.a", b"x")
        client.subscribe("_INBOX.tool.*")
        asked = {"deliver_subject": "_INBOX.tool.7"}
        assert "error" not in client.api("STREAM.SNAPSHOT.KEPT", asked)
        with pytest.raises(TimedOut):
            client.message(0.3)
        sid = client.subscribe("_INBOX.tool.7")
        client.sync()
        heard = [client.message() for _ in range(4)]
        assert sum(frame.sid == sid and frame.payload != b"" for frame in heard) == 1
        assert sum(frame.sid == sid and frame.payload == b"" for frame in heard) == 1


def test_a_receiver_that_does_not_answer_is_given_up(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        fill(client, 60)
        inbox = client.inbox()
        asked = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 4096}
        assert "error" not in client.api("STREAM.SNAPSHOT.KEPT", asked)
        with RawApp(server.port) as other:
            again: Any = other.api("STREAM.SNAPSHOT.KEPT", asked)
        assert again["error"]["err_code"] == 10064
        frames = client.messages(5, 10)
        assert [len(f.payload) for f in frames[:4]] == [1024] * 4
        assert frames[4].status == "408 No Flow Response"
        asked["deliver_subject"] = "nobody.listens"
        assert "error" not in client.api("STREAM.SNAPSHOT.KEPT", asked)


@pytest.mark.parametrize("which", ["ours", "peer"])
def test_a_purge_meanwhile_ends_a_backup_with_an_error(servers: Servers, which: str) -> None:
    """What is sent already does not pass for the whole stream."""
    draw = random.Random(1)
    with RawApp(pair(servers, which).port, timeout=30) as client:
        assert "error" not in client.api("STREAM.CREATE.KEPT", CONFIG)
        for _ in range(50):
            client.request("kept.1", draw.randbytes(600_000))
        inbox, sizes = client.inbox(), {"chunk_size": 64 << 10, "window_size": 64 << 10}
        asked = client.api("STREAM.SNAPSHOT.KEPT", {"deliver_subject": inbox, **sizes})
        assert asked["state"]["messages"] == 50
        chunk = client.message()
        assert client.api("STREAM.PURGE.KEPT")["purged"] == 50
        while chunk.payload:
            if chunk.reply:
                client.publish(chunk.reply)
            chunk = client.message()
        assert chunk.status.startswith("500 ")
