"""Limits exactly met, missed by one and passed by one: the same message is refused by both servers.

The size of a message in a file is 30 bytes and its subject and payload, in memory 16 and those.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers, command_of_peer, command_under_test

pytestmark = pytest.mark.usefixtures("peer_present")

PAYLOAD = b"x" * 100
HELD = {"file": 30 + 1 + len(PAYLOAD), "memory": 16 + 1 + len(PAYLOAD)}
STORAGES = ("file", "memory")
ACCOUNTS = """
jetstream {{ max_mem: 1MB, max_file: 1MB }}
accounts {{
    A {{ users: [{{ user: a, password: x }}], jetstream: {{ {limits} }} }}
    S {{ users: [{{ user: s, password: x }}] }}
}}
system_account: S
"""


def pair(servers: Servers, config: str) -> list[Server]:
    return [start(config=config, jetstream=True) for start in (servers.under_test, servers.peer)]


def client_of(server: Server, user: str = "") -> RawApp:
    options: dict[str, object] = {"verbose": False, "headers": True, "no_responders": True}
    if user:
        options |= {"user": user, "pass": "x"}
    return RawApp(server.port, options=json.dumps(options).encode())


def answers(client: RawApp, payloads: list[bytes]) -> Iterator[Any]:
    for payload in payloads:
        yield json.loads(client.request("s", payload).payload)


def state(client: RawApp) -> Any:
    found = client.api("STREAM.INFO.S")["state"]
    assert isinstance(found, dict)
    return [found[key] for key in ("messages", "bytes", "first_seq", "last_seq")]


@pytest.fixture(scope="module")
def both(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(jetstream=True) for start in starts]


@pytest.mark.parametrize("by", [-1, 0, 1])
@pytest.mark.parametrize("discard", ["new", "old"])
@pytest.mark.parametrize("storage", STORAGES)
def test_bytes_of_a_stream(both: list[Server], storage: str, discard: str, by: int) -> None:
    config = {"name": "S", "subjects": ["s"], "storage": storage, "discard": discard}
    seen = []
    for server in both:
        with client_of(server) as client:
            client.api("STREAM.CREATE.S", config | {"max_bytes": 3 * HELD[storage] + by})
            seen.append([*answers(client, [PAYLOAD] * 4), state(client)])
            client.api("STREAM.DELETE.S")
    assert seen[0] == seen[1]
    messages = 2 if by < 0 else 3
    assert seen[0][-1][0] == messages


@pytest.mark.parametrize("limit", ["max_msgs", "max_msgs_per_subject"])
@pytest.mark.parametrize("discard", ["new", "old"])
def test_messages_of_a_stream(both: list[Server], limit: str, discard: str) -> None:
    config = {"name": "S", "subjects": ["s"], "discard": discard, limit: 3}
    if limit == "max_msgs_per_subject" and discard == "new":
        config["discard_new_per_subject"] = True
    seen = []
    for server in both:
        with client_of(server) as client:
            client.api("STREAM.CREATE.S", config)
            told = []
            for answer in answers(client, [PAYLOAD] * 4):
                told.append([answer, state(client)])
            seen.append(told)
            client.api("STREAM.DELETE.S")
    assert seen[0] == seen[1]


@pytest.mark.parametrize("by", [-1, 0, 1])
def test_size_of_a_message(both: list[Server], by: int) -> None:
    seen = []
    for server in both:
        with client_of(server) as client:
            config = {"name": "S", "subjects": ["s"], "max_msg_size": len(PAYLOAD)}
            client.api("STREAM.CREATE.S", config)
            seen.append(list(answers(client, [b"x" * (len(PAYLOAD) + by)])))
            client.api("STREAM.DELETE.S")
    assert seen[0] == seen[1]
    assert ("error" in seen[0][0]) == (by > 0)


@pytest.mark.parametrize("by", [-1, 0, 1])
@pytest.mark.parametrize("storage", STORAGES)
def test_storage_of_an_account(servers: Servers, storage: str, by: int) -> None:
    """An account refuses what would pass its limit."""
    option = "max_file" if storage == "file" else "max_mem"
    config = ACCOUNTS.format(limits=f"{option}: {3 * HELD[storage] + by}")
    seen = []
    for server in pair(servers, config):
        with client_of(server, "a") as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": storage})
            seen.append([*answers(client, [PAYLOAD] * 4), state(client)])
    assert seen[0] == seen[1]
    assert seen[0][-1][0] == (2 if by < 0 else 3)


@pytest.mark.parametrize("by", [-1, 0, 1])
@pytest.mark.parametrize("storage", STORAGES)
def test_storage_of_the_server(servers: Servers, storage: str, by: int) -> None:
    """A server takes the message that passes its limit, and none behind it."""
    option = "max_file" if storage == "file" else "max_mem"
    seen = []
    for server in pair(servers, f"jetstream {{ {option}: {3 * HELD[storage] + by} }}"):
        with client_of(server) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": storage})
            seen.append([*answers(client, [PAYLOAD] * 5), state(client)])
    assert seen[0] == seen[1]
    assert seen[0][-1][0] == (4 if by >= 0 else 3)


@pytest.mark.parametrize("by", [-1, 0, 1])
def test_payload_and_control_line(servers: Servers, by: int) -> None:
    seen = []
    for server in pair(servers, "max_payload: 100, max_control_line: 600"):
        lines = []
        for sent in (
            b"PUB s %d\r\n%b\r\nPING\r\n" % (100 + by, b"x" * (100 + by)),
            b"PUB %b 1\r\nx\r\nPING\r\n" % (b"s" * (600 + by - len(b"PUB  1"))),
        ):
            with client_of(server) as client:
                client.send(sent)
                lines.append([frame.shown() for frame in client.until("PONG")])
        seen.append(lines)
    assert seen[0] == seen[1]
    assert seen[0][0][-1][0] == ("EOF" if by > 0 else "PONG")


@pytest.mark.parametrize("number", ["0", "1", "254", "255", "256"])
def test_most_tokens_of_a_subscription(servers: Servers, number: str) -> None:
    seen = []
    for command in (command_under_test(), command_of_peer()):
        assert command is not None
        path = servers.base / "tokens.conf"
        path.write_text(f"max_sub_tokens: {number}\n")
        done = subprocess.run(
            [*command, "-t", "-c", str(path)], capture_output=True, text=True, timeout=60
        )
        seen.append((done.returncode, "value" in done.stderr + done.stdout))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("unit", ["", *"kmKM", "kb", "mb", "KB", "MB", "kib", "MiB"])
def test_units_of_a_size(servers: Servers, unit: str) -> None:
    sizes = []
    for server in pair(servers, f"max_payload: 1{unit}"):
        with client_of(server) as client:
            sizes.append(client.info["max_payload"])
    assert sizes[0] == sizes[1]
