"""What the guides in docs/ say: signals, pages, limits, backups, nats-server and back."""

import json
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from nats.js.errors import APIError

from jsserver.config.options import Options
from tests.client.aio import asynchronous, connected
from tests.client.raw import RawApp
from tests.servers import Server, Servers, command_of_peer, command_under_test
from tests.waiting import wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"


def fetch(server: Server, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"{server.monitor_url}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def first_lines(server: Server, sent: bytes, count: int) -> list[bytes]:
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(sent)
        with client.makefile("rb") as lines:
            return [lines.readline() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop(servers: Servers, number: signal.Signals) -> None:
    server = servers.under_test(jetstream=True)
    assert server.process is not None
    server.process.send_signal(number)
    assert server.process.wait(10) == 0
    assert "Server Exiting.." in server.log()


def test_a_reopened_log(servers: Servers, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    server = Server(command_under_test(), tmp_path / "s", args=["-l", str(log)])
    server.log_path = log
    try:
        server.start()
        log.rename(tmp_path / "a.log.1")
        assert server.process is not None
        server.process.send_signal(signal.SIGUSR1)
        wait_until(log.exists, "the log is opened again")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert "Server Exiting.." in log.read_text()
    finally:
        server.log_path = tmp_path / "a.log.1"
        server.kill()


@asynchronous
async def test_the_pages_show_what_they_are_said_to(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.pull_subscribe("s", "c")
        with pytest.raises(APIError):
            await js.stream_info("NONE")
        _, varz = fetch(server, "/varz")
        assert {"slow_consumers", "connections", "subscriptions", "mem", "cpu"} <= varz.keys()
        js_page = varz["jetstream"]
        assert js_page["stats"]["api"]["errors"] >= 1
        assert {"storage", "memory"} <= js_page["stats"].keys()
        assert {"max_storage", "max_memory"} <= js_page["config"].keys()
        _, jsz = fetch(server, "/jsz?streams=1&consumers=1")
        (consumer,) = jsz["account_details"][0]["stream_detail"][0]["consumer_detail"]
        assert {"num_pending", "num_ack_pending", "num_redelivered"} <= consumer.keys()
        _, connz = fetch(server, "/connz?subs=1")
        assert "pending_bytes" in connz["connections"][0]


def test_defaults_of_limits_are_those_of_the_page() -> None:
    limits = (DOCS / "configure.md").read_text().split("\n## Limits\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`[^|]* \| ([^|]+) \|", limits, re.MULTILINE))
    options = Options()
    assert rows["max_connections"] == f"{options.max_connections:,}"
    assert options.max_subscriptions == 0 and rows["max_subscriptions"] == "none"
    assert rows["max_payload"] == f"{options.max_payload >> 20} MiB"
    assert rows["max_control_line"] == f"{options.max_control_line >> 10} KiB"
    expected = f"{options.max_pending >> 20} MiB, {options.write_deadline // 10**9} s"
    assert rows["max_pending"] == expected
    assert rows["request_queue_limit"] == f"{options.jetstream.request_queue_limit:,}"


def test_limits_answer_as_the_page_says(servers: Servers) -> None:
    server = servers.under_test(config="max_connections: 1, max_subscriptions: 1, max_payload: 8")
    hello = b'CONNECT {"verbose":false}\r\n'
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(hello + b"SUB a 1\r\nSUB b 2\r\nPING\r\n")
        with client.makefile("rb") as lines:
            lines.readline()
            assert lines.readline() == b"-ERR 'maximum subscriptions exceeded'\r\n"
            assert lines.readline() == b"PONG\r\n"
            assert b"-ERR 'maximum connections exceeded'\r\n" in first_lines(server, hello, 2)
            client.sendall(b"PUB a 9\r\n123456789\r\n")
            assert lines.readline() == b"-ERR 'Maximum Payload Violation'\r\n"
            assert lines.readline() == b""


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "as a power cut leaves it"])
@asynchronous
async def test_a_copy_of_the_directory_is_a_backup(
    servers: Servers, tmp_path: Path, kill: bool
) -> None:
    server = servers.under_test(jetstream=True, args=["-n", "first"])
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for n in range(100):
            await js.publish("s", b"%d" % n)
    if kill:
        server.kill()
    else:
        server.stop()
    copy = Server(command_under_test(), tmp_path / "copy", jetstream=True, args=["-n", "second"])
    shutil.copytree(server.store, copy.store)
    try:
        copy.start()
        async with connected(copy) as client:
            js = client.jetstream()
            assert (await js.stream_info("S")).state.messages == 100
            assert (await js.get_msg("S", 100)).data == b"99"
    finally:
        copy.kill()


@asynchronous
async def test_from_nats_server_and_back(
    servers: Servers, tmp_path: Path, peer_present: None
) -> None:
    peer = command_of_peer()
    assert peer is not None
    last = 0
    for turn, command in enumerate((peer, command_under_test(), peer, command_under_test())):
        server = Server(command, tmp_path / "both", jetstream=True, monitor=True)
        try:
            server.start()
            async with connected(server) as client:
                js = client.jetstream()
                if turn == 0:
                    await js.add_stream(name="S", subjects=["s"])
                reader = await js.pull_subscribe("s", "c")
                for _ in range(10):
                    last = (await js.publish("s", b"%d" % turn)).seq
                assert last == 10 * (turn + 1)
                taken = await reader.fetch(10, timeout=30)
                first = 10 * turn + 1
                sequences = [m.metadata.sequence.stream for m in taken]
                assert sequences == list(range(first, first + 10))
                for message in taken:
                    await message.ack_sync(30)
            if turn % 2:
                assert fetch(server, "/healthz") == (200, {"status": "ok"})
            server.stop()
        finally:
            server.kill()


@asynchronous
async def test_a_stream_that_is_offline_shows_in_the_health(
    servers: Servers, tmp_path: Path, peer_present: None
) -> None:
    server = Server(command_under_test(), tmp_path / "both", jetstream=True, monitor=True)
    try:
        server.start()
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["s"])
        server.stop()
        (meta,) = server.store.rglob("streams/S/meta.inf")
        meta.write_bytes(b"{")
        server.start()
        server.wait_log("is offline: ")
        status, page = fetch(server, "/healthz")
        assert status == 503 and "S" in str(page["error"])
        assert fetch(server, "/healthz?js-server-only=true") == (200, {"status": "ok"})
    finally:
        server.kill()


ROW = re.compile(r"^\| `\[(ERR|WRN|INF)\]` \| (.*?) \|", re.MULTILINE)


def test_lines_of_the_log_have_the_level_that_the_page_says(servers: Servers) -> None:
    rows = ROW.findall((DOCS / "monitor.md").read_text())
    levels = {words: level for level, cell in rows for words in re.findall(r"`([^`]+)`", cell)}
    config = "disable_sublist_cache: true\n"
    server = servers.under_test(jetstream=True, monitor=True, config=config)
    streams = server.store / "jetstream" / "$G" / "streams"
    with RawApp(server.port) as app:
        for name in "SD":
            app.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        for _ in range(10):
            app.request("D", bytes(1000))
        app.request("$JS.API.STREAM.CREATE.X", b"{")
    server.stop()
    (streams / "S" / "meta.sum").write_text("0" * 16)
    block = next((streams / "D" / "msgs").glob("*.blk"))
    block.write_bytes(block.read_bytes()[:3000] + b"?" * 200 + block.read_bytes()[3200:])
    logged = server.log()
    server.start()
    assert fetch(server, "/healthz")[0] == 503
    (server.folder / "server.conf").write_text("max_pending: 5\n")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    server.wait_log("Failed to reload")
    logged += server.log()
    seen = set()
    for line in logged.splitlines():
        for words, level in levels.items():
            if words in line:
                assert f"[{level}]" in line, line
                seen.add(words)
    assert seen >= {
        *("is offline", "are damaged", "lost messages", "Failed to reload server configuration"),
        *("has no effect", "Invalid JetStream request", "Healthcheck failed"),
    }
