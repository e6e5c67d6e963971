"""Streams that are encrypted on disk: by this server and by nats-server, one after the other."""

import contextlib
import json
from pathlib import Path

import pytest

from tests.client.backups import backup, restore, stored
from tests.client.raw import RawApp
from tests.client.test_object_reload import BUCKET
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

COUNT = 400
WORDS = (b"payload-of-messages", b"subject-of-messages", b"max_msgs", b"durable_name")
ENCRYPTED = ("chacha", "aes")


def started(servers: Servers, who: str, store: Path, **options: str) -> Server:
    words = "".join(f'{name}: "{value}", ' for name, value in options.items() if value)
    config = f'jetstream {{ store_dir: "{store}", {words} }}'
    return servers.peer(config=config) if who == "peer" else servers.under_test(config=config)


def fill(port: int, compression: str) -> None:
    with RawApp(port) as client:
        stream = {
            "name": "S",
            "subjects": ["subject-of-messages.*"],
            "compression": compression,
            "max_bytes": 80_000,  # so several blocks, and the first messages leave
        }
        assert "error" not in client.api("STREAM.CREATE.S", stream)
        consumer = {"durable_name": "C", "ack_policy": "all"}
        made = client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": consumer})
        assert "error" not in made
        for i in range(COUNT):
            body = b"payload-of-messages %d " % i * 10
            assert b'"seq"' in client.request(f"subject-of-messages.{i % 7}", body).payload
        for seq in range(200, 300, 9):
            assert client.api("STREAM.MSG.DELETE.S", {"seq": seq})["success"]
        for _ in range(5):
            got = client.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
            assert got.reply
            client.request(got.reply, b"+ACK")


def served(port: int) -> dict[str, object]:
    """What a client sees of the stream and its consumer."""
    with RawApp(port) as client:
        info = client.api("STREAM.INFO.S", {"deleted_details": True})
        assert "error" not in info, info
        state = {k: info["state"][k] for k in ("messages", "bytes", "first_seq", "last_seq")}
        consumer = client.api("CONSUMER.INFO.S.C")
        messages = {
            seq: client.api("STREAM.MSG.GET.S", {"seq": seq})["message"]["data"]
            for seq in (state["first_seq"], 250, COUNT)
        }
        place = {k: consumer[k] for k in ("num_pending", "num_ack_pending")}
        floor = consumer["ack_floor"]["stream_seq"]
        deleted = info["state"].get("deleted")
        return {**state, **place, "floor": floor, "deleted": deleted, "messages": messages}


def in_clear(store: Path) -> list[Path]:
    """Files with the text of messages. A server that runs may remove a file meanwhile."""
    found = []
    for path in store.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and any(word in path.read_bytes() for word in WORDS):
                found.append(path)
    return found


def contents(store: Path) -> dict[Path, bytes]:
    streams = next(store.rglob("streams"))
    return {path: path.read_bytes() for path in streams.rglob("*") if path.is_file()}


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize("cipher", ENCRYPTED)
@pytest.mark.parametrize("first", ["ours", "peer"])
def test_servers_take_turns_at_an_encrypted_directory(
    servers: Servers, tmp_path: Path, first: str, cipher: str, compression: str
) -> None:
    second = "peer" if first == "ours" else "ours"
    expected = None
    for who in (first, second, first, second):
        server = started(servers, who, tmp_path, key="secret", cipher=cipher)
        if expected is None:
            fill(server.port, compression)
            expected = served(server.port)
        assert served(server.port) == expected
        server.stop()
        assert in_clear(tmp_path) == []


@pytest.mark.parametrize("first", ["ours", "peer"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"key": "new", "cipher": "chacha"}),
        ({}, {"key": "new", "cipher": "aes"}),
        ({"key": "old"}, {"key": "new", "prev_key": "old"}),
        ({"key": "old"}, {"key": "new", "prev_key": "old", "cipher": "aes"}),
        ({"key": "new", "cipher": "aes"}, {"key": "new", "cipher": "chacha"}),
    ],
)
def test_a_start_encrypts_what_is_in_clear_or_has_another_key(
    servers: Servers, tmp_path: Path, first: str, before: dict[str, str], after: dict[str, str]
) -> None:
    server = started(servers, first, tmp_path, **before)
    fill(server.port, "s2")
    expected = served(server.port)
    server.stop()
    server = started(servers, "ours", tmp_path, **after)
    assert served(server.port) == expected
    assert in_clear(tmp_path) == []
    server.stop()
    alone = {name: value for name, value in after.items() if name != "prev_key"}
    for who in ("peer", "ours"):
        server = started(servers, who, tmp_path, **alone)
        assert served(server.port) == expected
        server.stop()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("first", ["ours", "peer"])
def test_a_wrong_key_is_named_and_changes_nothing(
    servers: Servers, tmp_path: Path, first: str, killed: bool
) -> None:
    server = started(servers, first, tmp_path, key="secret")
    fill(server.port, "none")
    expected = served(server.port)
    if killed and first == "ours":
        server.kill()
    else:
        server.stop()
    files = contents(tmp_path)
    for options, why in [
        (
            {"key": "another", "prev_key": "secreT"},
            "neither the key nor the previous key of the configuration opens meta.key of S",
        ),
        ({}, "encrypted, and the configuration has no key"),
    ]:
        server = started(servers, "ours", tmp_path, **options)
        with RawApp(server.port) as client:
            assert client.api("STREAM.LIST")["offline"] == {"S": why}
        server.wait_log(f"Stream '$G > S' is offline: {why}")
        assert "secreT" not in server.log()
        server.stop()
        assert contents(tmp_path) == files
    server = started(servers, "ours", tmp_path, key="secret")
    assert served(server.port) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({}, {"key": "another"}),
        ({"key": "secret", "cipher": "aes"}, {}),
        ({"key": "secret"}, {"key": "another", "cipher": "aes"}),
    ],
)
@pytest.mark.parametrize(
    ("writer", "reader"), [("ours", "peer"), ("peer", "ours"), ("ours", "ours")]
)
def test_a_backup_goes_to_a_server_with_other_keys(
    servers: Servers,
    tmp_path: Path,
    writer: str,
    reader: str,
    source: dict[str, str],
    target: dict[str, str],
) -> None:
    """It is in clear, whatever keys the servers have at either end."""
    one = started(servers, writer, tmp_path / "one", **source)
    fill(one.port, "s2")
    expected = served(one.port)
    with RawApp(one.port) as client:
        messages = stored(client, "S")[1]
        answer, archive, _ = backup(client, "S", chunk_size=64 << 10)
    two = started(servers, reader, tmp_path / "two", **target)
    with RawApp(two.port) as client:
        made = restore(client, answer["config"], archive)
        assert made.get("error") is None, made
        assert stored(client, "S")[1] == messages
    assert served(two.port) == expected
    two.stop()
    if target:
        assert in_clear(tmp_path / "two") == []
    for who in ("ours", "peer"):
        server = started(servers, who, tmp_path / "two", **target)
        assert served(server.port) == expected
        server.stop()


def test_changes_of_an_encrypted_stream_stay(servers: Servers, tmp_path: Path) -> None:
    server = started(servers, "ours", tmp_path, key="secret")
    fill(server.port, "none")
    with RawApp(server.port) as client:
        config = client.api("STREAM.INFO.S")["config"]
        config["description"] = "durable_name"
        assert "error" not in client.api("STREAM.UPDATE.S", config)
        made = client.api(
            "CONSUMER.DURABLE.CREATE.S.D",
            {
                "stream_name": "S",
                "config": {"durable_name": "D", "ack_policy": "explicit"},
            },
        )
        assert "error" not in made
    expected = served(server.port)
    server.kill()
    assert in_clear(tmp_path) == []
    for who in ("ours", "peer"):
        server = started(servers, who, tmp_path, key="secret")
        assert served(server.port) == expected
        with RawApp(server.port) as client:
            config = client.api("STREAM.INFO.S")["config"]
            assert config["description"] == "durable_name"
            assert sorted(client.api("CONSUMER.NAMES.S")["consumers"]) == ["C", "D"]
        server.stop()


def test_an_upload_that_a_kill_cuts_off_leaves_no_name_in_clear(
    servers: Servers, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    words = f'store_dir: "{store}", key: secret, object_requests: true'
    server = servers.under_test(config=f"jetstream {{ {words} }}")
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        begin = {"nonce": "n", "size": 200_000, "chunks": 2}
        body = json.dumps(begin).encode()
        assert b'"error"' not in client.request("$OBJ.b.info.name-of-object", body).payload
        client.request("$OBJ.b.chunks.n", bytes(100_000))
        notes = store / "jetstream" / "$G" / "uploads"
        (note,) = notes.iterdir()
        assert b"name-of-object" not in note.read_bytes()
        server.kill()
    server = servers.under_test(config=f"jetstream {{ {words} }}")
    wait_until(lambda: not list(notes.iterdir()), "the note goes with the chunks")
    with RawApp(server.port) as client:
        assert client.api("STREAM.INFO.OBJ_b")["state"]["messages"] == 0


@pytest.mark.parametrize("which", ["block", "consumer"])
@pytest.mark.parametrize("who", ["ours", "peer"])
def test_a_damaged_key_costs_what_it_encrypts(
    servers: Servers, tmp_path: Path, who: str, which: str
) -> None:
    """The rest is served. nats-server says nothing of a block, and leaves a consumer out."""
    server = started(servers, who, tmp_path, key="secret")
    fill(server.port, "none")
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
    server.stop()
    stream = next(tmp_path.rglob("streams/S"))
    keys = sorted((stream / "msgs").glob("*.key"), key=lambda path: int(path.stem))
    key = keys[len(keys) // 2] if which == "block" else stream / "obs" / "C" / "meta.key"
    data = bytearray(key.read_bytes())
    data[40] ^= 0x55
    key.write_bytes(data)
    server = started(servers, who, tmp_path, key="secret")
    with RawApp(server.port) as client:
        assert client.api("STREAM.NAMES")["streams"] == ["S", "T"]
        state = client.api("STREAM.INFO.S")["state"]
        assert state["last_seq"] == COUNT
        for seq in (state["first_seq"], COUNT):
            assert "error" not in client.api("STREAM.MSG.GET.S", {"seq": seq})
        if which == "consumer":
            assert "error" in client.api("CONSUMER.INFO.S.C")
        elif who == "ours":
            lost = state["lost"]["msgs"]
            assert len(lost) > 10
            assert "error" in client.api("STREAM.MSG.GET.S", {"seq": lost[0]})
            assert f"{key.name} is damaged or missing" in server.log()
            assert f"lost messages: {len(lost)} " in server.log()
            assert not key.exists()
            assert (key.parent / f"damaged-{key.name}").read_bytes() == data
