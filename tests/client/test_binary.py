"""The built executables, started and driven as a user would; skipped until `make binary` was run.

`$JSSERVER_DIST` names another folder than `dist` to find them in.
"""

import ast
import asyncio
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest

import jsserver
from bench.servers import process_tree
from tests.client.tls import Site, TlsClient
from tests.servers import Server, command_under_test
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("JSSERVER_DIST", ROOT / "dist"))
ONE_FILE = DIST / "jsserver"
ONE_FOLDER = DIST / "jsserver-dir" / "jsserver"
START_SECONDS_MAX = {ONE_FILE: 0.25, ONE_FOLDER: 0.15}
PYTHON_SECONDS = 0.08  # what `import asyncio` takes where the above holds
SIZE_MAX = 22 << 20  # libssl and libcrypto alone are 5.2 MiB

pytestmark = pytest.mark.skipif(
    not (ONE_FILE.exists() and ONE_FOLDER.exists()), reason="no executable: run `make binary`"
)
forms = pytest.mark.parametrize("program", [ONE_FILE, ONE_FOLDER], ids=["one-file", "one-folder"])


class Bundle:
    """A server run from an executable, with a folder of its own to extract to."""

    def __init__(self, program: Path, folder: Path, config: str = "") -> None:
        self.extracted = folder / "extracted"
        self.extracted.mkdir(parents=True)
        env = {"TMPDIR": str(self.extracted)}
        self.server = Server([str(program)], folder, jetstream=True, env=env, config=config)

    def folders(self) -> list[Path]:
        return list(self.extracted.glob("_MEI*"))

    def child(self) -> int:
        """The pid of the process that the launcher started."""
        _launcher, child = process_tree(self.server.pid)
        return child


@pytest.fixture
def one_file(tmp_path: Path) -> Iterator[Bundle]:
    bundle = Bundle(ONE_FILE, tmp_path / "one-file")
    yield bundle
    bundle.server.kill()


def is_dead(pid: int) -> bool:
    """Gone, or waiting only for its parent to notice."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


async def use(url: str) -> None:
    """Core publish and subscribe, a stream, and a consumer of it."""
    client = await nats.connect(url)
    try:
        subscription = await client.subscribe("greet.*")
        await client.publish("greet.world", b"hello")
        assert (await subscription.next_msg(timeout=5)).data == b"hello"
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(10):
            ack = await stream.publish("orders.new", b"%d" % number)
            assert ack.seq == number + 1
        pull = await stream.pull_subscribe("orders.>", durable="work")
        messages = await pull.fetch(10, timeout=5)
        assert [m.data for m in messages] == [b"%d" % n for n in range(10)]
        for message in messages:
            await message.ack_sync()
    finally:
        await client.close()


@forms
def test_clients_use_it(program: Path, tmp_path: Path) -> None:
    bundle = Bundle(program, tmp_path / "server")
    try:
        bundle.server.start()
        asyncio.run(use(bundle.server.url))
        bundle.server.stop()
        assert bundle.folders() == []
    finally:
        bundle.server.kill()


@forms
def test_it_brings_its_tls_along(program: Path, tmp_path: Path, site: Site) -> None:
    bundle = Bundle(program, tmp_path / "server", site.config())
    try:
        bundle.server.start()
        with TlsClient(bundle.server.port, site.authority.client_context()) as client:
            assert "PONG" in client.login()
        extracted = [path.name for path in bundle.extracted.rglob("libssl*")]
        assert extracted or program == ONE_FOLDER  # the bundle's own, not the machine's
    finally:
        bundle.server.kill()


def of_the_standard_library() -> set[str]:
    """Its modules that ours import, also those that are imported late."""
    names = {"importlib.resources", "numbers", "_strptime"}  # of zoneinfo, _decimal, _datetime
    names |= {"multiprocessing.popen_fork", "multiprocessing.synchronize"}  # of a context
    for path in (ROOT / "jsserver").rglob("*.py"):
        if "cext" in path.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module)
    kept = {name for name in names if name.partition(".")[0] in sys.stdlib_module_names}
    return kept - {"importlib.metadata", "posix"}


@forms
def test_every_module_is_in_it_and_imports(program: Path) -> None:
    command = [str(program), "--import-check", *sorted(of_the_standard_library())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    report = json.loads(done.stdout)
    assert report["failed"] == {}
    found = pkgutil.walk_packages(jsserver.__path__, "jsserver.")
    assert set(report["modules"]) == {m.name for m in found}
    assert done.returncode == 0


@forms
@pytest.mark.parametrize("command", ["consumer", "cluster", "bench", "store"])
def test_commands_have_their_help(program: Path, command: str) -> None:
    """As they have it where docstrings are left in."""
    told = []
    for words in ([str(program)], command_under_test()):
        asked = [*words, command, "--help"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
        told.append(done.stdout)
    assert told[0] == told[1] and command in told[0]


@forms
def test_a_host_that_is_not_ascii_is_not_found(program: Path, tmp_path: Path) -> None:
    """A server says so and goes on. Its name and logins may be of any language."""
    urls = '"nats://bücher.example:1", "nats://a..b:1", "nats://usér:pässword@127.0.0.1:1"'
    cluster = f"cluster {{ name: C, listen: '127.0.0.1:-1', routes: [{urls}] }}"
    bundle = Bundle(program, tmp_path / "server", f"server_name: Bücher\n{cluster}")
    try:
        bundle.server.start()
        for host in ("bücher.example", "a..b", "127.0.0.1"):
            bundle.server.wait_log(f"Error trying to connect to route {host}:1 (attempt 1): ")
        bundle.server.stop()
    finally:
        bundle.server.kill()


def test_benchmarks_run(tmp_path: Path, js_server: Server) -> None:
    """They use modules that no server does."""
    words = ["bench", "pub", "subject", "--msgs", "100", "--clients", "2", "-s", js_server.url]
    done = subprocess.run(
        [ONE_FOLDER, *words], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def seconds_of(start: Callable[[], object]) -> float:
    begin = time.monotonic()
    start()
    return time.monotonic() - begin


@pytest.mark.alone
@forms
def test_starts_fast(program: Path, tmp_path: Path) -> None:
    """The best of some starts: what else the machine does can only make them slower. A machine on
    which Python itself starts slowly is given that much more time.
    """
    python = [sys.executable, "-c", "import asyncio"]
    taken, bare = [], []
    for attempt in range(15):
        bundle = Bundle(program, tmp_path / f"server{attempt}")
        taken.append(seconds_of(bundle.server.start))
        bundle.server.kill()
        bare.append(seconds_of(lambda: subprocess.run(python, check=True)))
        limit = START_SECONDS_MAX[program] * max(1, min(bare) / PYTHON_SECONDS)
        if min(taken) <= limit:
            return
    pytest.fail(f"{program} took {min(taken):.2f} s to become ready, {limit:.2f} s are allowed")


def test_size_is_bounded() -> None:
    assert ONE_FILE.stat().st_size < SIZE_MAX


@pytest.mark.skipif("JSSERVER_DIST" in os.environ, reason="the wheel is that of this tree")
def test_the_wheel_holds_the_package_alone() -> None:
    (wheel,) = (ROOT / "build" / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist() if "/" in name}
    assert folders == {"jsserver", f"jsserver-{jsserver.__version__}.dist-info"}


def test_killed_launcher_takes_the_server_along(one_file: Bundle) -> None:
    one_file.server.start()
    child = one_file.child()
    os.kill(one_file.server.pid, signal.SIGKILL)
    wait_until(lambda: is_dead(child), "the server follows its launcher", 10)


def test_killed_server_takes_the_launcher_along(one_file: Bundle) -> None:
    one_file.server.start()
    process = one_file.server.process
    assert process is not None
    os.kill(one_file.child(), signal.SIGKILL)
    assert process.wait(10) != 0
    assert one_file.folders() == []


def test_what_a_killed_one_extracted_is_removed_by_the_next(one_file: Bundle) -> None:
    one_file.server.start()
    one_file.server.kill()
    (left,) = one_file.folders()
    other = Bundle(ONE_FILE, one_file.server.folder / "other")
    other.server.env["TMPDIR"] = str(one_file.extracted)
    foreign = one_file.extracted / "_MEIforeign"
    foreign.mkdir()
    try:
        other.server.start()
        wait_until(lambda: not left.exists(), "the folder of the killed one is removed", 10)
        assert foreign.exists()
        # A third one leaves the folder of a running one alone.
        one_file.server.start()
        assert len(one_file.folders()) == 3
        asyncio.run(use(other.server.url))
    finally:
        other.server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_launcher_forwards_signals_and_the_exit_code(
    one_file: Bundle, tmp_path: Path, number: signal.Signals
) -> None:
    codes = []
    for server in (one_file.server, Server(command_under_test(), tmp_path / "plain")):
        server.start()
        assert server.process is not None
        server.process.send_signal(number)
        codes.append(server.process.wait(10))
    assert codes[0] == codes[1]
    assert one_file.folders() == []


def test_nothing_of_this_interpreter_is_needed(tmp_path: Path) -> None:
    """It runs with an empty environment, from another folder."""
    done = subprocess.run(
        [ONE_FILE, "-v"], env={}, cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert "v2.14" in done.stdout + done.stderr
    assert sys.prefix not in done.stdout
