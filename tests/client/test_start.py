"""How a server starts: what it says, where its data goes, that each client is served."""

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp, RawClient
from tests.servers import Server, ServerFailed, Servers, command_under_test, free_port, servers_in
from tests.waiting import wait_until

SEVERAL_REACTORS = Path(__file__).parents[1] / "several_reactors.py"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with servers_in(tmp_path) as started:
        yield started


def accepts(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def store_directory(server: Server) -> str:
    (line,) = [x for x in server.log().splitlines() if "Store Directory:" in x]
    return line.split('"')[1]


def test_as_many_files_may_be_open_as_the_machine_allows(servers: Servers) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = min(soft, hard - 1, 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        server = servers.under_test()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert "open files" not in server.log()


def test_what_has_no_effect_is_warned_about(servers: Servers) -> None:
    server = servers.under_test(
        config="""
            disable_sublist_cache: true
            websocket { port: -1, no_tls: true }
            jetstream { max_buffered_msgs: 5, limits { batch { max_msgs: 9 } } }
            max_payload: 9MB
            """,
        args=["-sd", str(servers.base / "store")],
    )
    warnings = [line for line in server.log().splitlines() if "[WRN]" in line]
    for words in (
        '"disable_sublist_cache" has no effect',
        "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!",
        '"max_buffered_msgs" has no effect',
        "Maximum payloads over 8.00 MB are generally discouraged",
    ):
        assert sum(words in line for line in warnings) == 1, words


def test_defaults_that_are_set_are_not_warned_about(servers: Servers) -> None:
    server = servers.under_test(config='lame_duck_duration: "2m"\n')
    assert "[WRN]" not in server.log()


def test_a_pid_file_that_cannot_be_written_is_fatal(tmp_path: Path) -> None:
    server = Server(command_under_test(), tmp_path, args=["-P", str(tmp_path / "none" / "x.pid")])
    with pytest.raises(ServerFailed, match=r"Could not write pidfile: open .*: no such file or"):
        server.start()
    assert server.process is not None and server.process.returncode == 1


def test_monitoring_answers_before_the_client_port_accepts(tmp_path: Path) -> None:
    port, monitor_port = free_port(), free_port()
    server = Server(command_under_test(), tmp_path, monitor=True)
    server.port, server.monitor_port = port, monitor_port
    server.launch()
    try:
        end = time.monotonic() + 15
        while not accepts(port):
            assert time.monotonic() < end
        with contextlib.closing(socket.create_connection(("127.0.0.1", port), 5)) as client:
            client.sendall(b"PING\r\n")
            while b"PONG" not in client.recv(4096):
                pass
        assert accepts(monitor_port)
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("advertised", "host", "port"),
    [("[::1]:5", "::1", 5), ("[::1]", "::1", None), ("a.b:7", "a.b", 7), ("a.b", "a.b", None)],
)
def test_the_address_that_clients_are_told(
    servers: Servers, advertised: str, host: str, port: int | None
) -> None:
    server = servers.under_test(config=f'client_advertise: "{advertised}"')
    with RawClient(server.port) as client:
        info = client.frame().json
    assert (info["host"], info["port"]) == (host, port or server.port)


def test_servers_without_a_directory_share_the_temporary_one_in_turn(servers: Servers) -> None:
    env = {"TMPDIR": str(servers.base)}
    first = servers.under_test(args=["-js"], env=env)
    second = servers.under_test(args=["-js", "-p", str(free_port())], env=env)
    anywhere = servers.under_test(args=["-js"], env=env)
    shared = str(servers.base / "nats" / "jetstream")
    assert store_directory(first) == shared
    assert store_directory(second) == f"{shared}-{second.port}"
    assert store_directory(anywhere) not in (shared, store_directory(second))
    assert "Temporary storage directory used" in first.log()

    removed = store_directory(anywhere)
    anywhere.stop()
    assert not os.path.exists(removed)
    first.stop()
    second.restart()
    assert store_directory(second) == f"{shared}-{second.port}"


def loads(log: str) -> set[str]:
    """The modules that a log with lines of `-X importtime` names."""
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", log, re.MULTILINE))


@pytest.mark.parametrize("jetstream", [False, True])
def test_a_start_loads_only_what_it_needs(tmp_path: Path, jetstream: bool) -> None:
    """Each of these modules takes milliseconds of every start."""
    command = [sys.executable, "-X", "importtime", "-m", "jsserver.cli"]
    server = Server(command, tmp_path, jetstream=jetstream)
    server.start()
    server.stop()  # takes effect when all is loaded
    loaded = loads(server.log().partition("Initiating Shutdown")[0])
    assert "asyncio" in loaded
    assert not loaded & {
        *("argparse", "configparser", "csv", "ctypes", "dataclasses", "difflib", "email"),
        *("hashlib", "http", "json", "multiprocessing", "pickle", "random", "shutil", "statistics"),
        *("_ssl", "tempfile", "unicodedata", "uvloop", "zipfile", "zlib", "zoneinfo"),
        *("bcrypt", "jsserver.client", "jsserver.monitor.monitor", "jsserver.process.signalling"),
    }
    if not jetstream:
        assert not loaded & {"jsserver.services.jetstream", "jsserver.api.dispatch"}


@pytest.mark.parametrize("jetstream", [False, True])
@pytest.mark.parametrize(
    ("options", "language", "most"),
    [
        ({"monitor": False}, set(), 101),
        ({"monitor": True}, set(), 101),
        ({"config": 'ping_interval: "2m"'}, {"datetime", "re"}, 118),
    ],
)
def test_clients_are_served_before_the_control_plane_is_loaded(
    tmp_path: Path, jetstream: bool, options: dict[str, Any], language: set[str], most: int
) -> None:
    """What is loaded before the line is most of the time until a client is served; `language`:
    what reading a configuration file needs."""
    command = [sys.executable, "-X", "importtime", "-c", "from jsserver import cli; cli.main()"]
    server = Server(command, tmp_path, jetstream=jetstream, **options)
    server.start()
    server.stop()
    before, ready, after = server.log().partition("Server is ready")
    early, late = loads(before), loads(after)
    assert ready and {"asyncio", "jsserver.server", "msgspec"} <= late
    assert not (early - language) & {
        *("ast", "asyncio", "base64", "concurrent.futures", "datetime", "importlib.util"),
        *("inspect", "logging", "msgspec", "pathlib", "re", "subprocess", "traceback", "typing"),
        *("jsserver.access.clients", "jsserver.process.notify", "jsserver.process.procs"),
        *("jsserver.process.runfiles", "jsserver.wire.types"),
    }
    assert len(early) < most


def test_the_command_for_suites_starts_so_many_reactors(tmp_path: Path) -> None:
    """Each reactor is a thread."""
    threads = {}
    for number in (1, 4):
        command = [sys.executable, str(SEVERAL_REACTORS), str(number)]
        server = Server(command, tmp_path / str(number))
        server.start()
        try:
            threads[number] = len(os.listdir(f"/proc/{server.pid}/task"))
        finally:
            server.kill()
    assert threads[4] - threads[1] == 3


def connected(server: Server) -> RawApp:
    """A client of a launched server: the first that can be."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError):
            return RawApp(server.port)
    raise AssertionError(f"nobody listens:\n{server.log()}")


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Server]:
    server = Server(command_under_test(), tmp_path, jetstream=True)
    server.port = free_port()
    server.launch()
    yield server
    server.kill()


def test_the_first_client_gets_its_answers(launched: Server) -> None:
    with connected(launched) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert json.loads(client.request("s", b"x").payload)["seq"] == 1
        assert json.loads(client.request("$SYS.REQ.USER.INFO").payload)["data"]["account"] == "$G"


def test_streams_are_there_before_the_first_client(launched: Server) -> None:
    with connected(launched) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for number, kill in enumerate((False, True), 1):
        launched.kill() if kill else launched.stop()
        launched.launch()
        with connected(launched) as client:
            answer = client.request("s", b"x")
            assert not answer.status and json.loads(answer.payload)["seq"] == number


def test_who_ends_a_server_as_it_starts_finds_it_ending_in_order(launched: Server) -> None:
    with connected(launched):
        assert launched.stop() == 0
    assert "Server Exiting.." in launched.log()


def test_a_configured_directory_stays_locked(servers: Servers) -> None:
    first = servers.under_test(jetstream=True)
    again = Server(
        command_under_test(), servers.base / "again", args=["-js", "-sd", str(first.store)]
    )
    with pytest.raises(ServerFailed, match="in use by another server"):
        again.start()


def test_failures_are_told_in_words(tmp_path: Path) -> None:
    command = [*command_under_test(), "-a", "127.0.0.1", "-p", "-1"]
    few = ["prlimit", "--nofile=40:40", *command]
    failed = subprocess.run(few, capture_output=True, text=True, timeout=30, check=False)
    assert failed.returncode == 1
    assert "The limit of open files is 40, and a server needs 64" in failed.stderr
    assert "Traceback" not in failed.stderr
    folder = tmp_path / "store" / "jetstream"
    folder.mkdir(parents=True)
    (folder / ".jsserver.lock").mkdir()
    words = [*command, "-js", "-sd", str(tmp_path / "store")]
    failed = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert failed.returncode == 1 and "[Errno" not in failed.stderr
    assert f"cannot lock store directory: {folder}/.jsserver.lock: Is a directory" in failed.stderr


def test_traps_of_the_store_directory(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        app.request("s", b"x")
    server.restart()
    server.wait_log("Restored 1 streams with 1 messages in ")
    second = Server(command_under_test(), servers.base / "second")
    second.args = ["-js", "-sd", str(server.store)]
    with pytest.raises(ServerFailed, match=rf"in use by another server \(pid {server.pid}\)"):
        second.start()
    inside = servers.under_test(args=["-js", "-sd", str(server.store / "jetstream")])
    inside.wait_log("holds streams itself, which are not served")


@pytest.mark.parametrize("gone", ["the folder", "the file"])
def test_a_ports_file_that_cannot_be_removed_ends_no_stop_badly(
    servers: Servers, tmp_path: Path, gone: str
) -> None:
    folder = tmp_path / "ports"
    folder.mkdir()
    server = servers.under_test(args=["--ports_file_dir", str(folder)])
    wait_until(lambda: any(folder.glob("[!.]*.ports")), "the ports file")
    (file,) = folder.glob("[!.]*.ports")
    file.unlink()
    if gone == "the folder":
        folder.rmdir()
        folder.write_text("a file")
    assert server.stop() == 0
    shown = "Error cleaning up ports file" in server.log()
    assert shown is (gone == "the folder")
