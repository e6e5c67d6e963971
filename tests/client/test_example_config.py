"""The example configuration: it loads, its defaults are true, both servers take it."""

import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from jsserver.config.load import Loaded, load
from tests.peer import REASON, find_peer
from tests.servers import Server, command_under_test

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
EXAMPLE = PACKAGING / "jsserver.conf"
UNIT = PACKAGING / "jsserver.service"
#: An option that is not set: behind the mark stands no prose, which begins with one space.
UNSET = re.compile(r"^(\s*)#(?! \S|$)", re.MULTILINE)
USERS = re.compile(r"^authorization \{.*?^\}", re.MULTILINE | re.DOTALL)


def everything_set() -> str:
    return UNSET.sub(r"\1", EXAMPLE.read_text())


def options_of(text: str, folder: Path) -> Loaded:
    path = folder / "jsserver.conf"
    path.write_text(text)
    return load(str(path), {})


def test_it_loads_without_a_word_to_say(tmp_path: Path) -> None:
    for text in (EXAMPLE.read_text(), everything_set()):
        loaded = options_of(text, tmp_path)
        assert loaded.warnings == []
        assert loaded.without_effect == []


def test_what_is_not_set_shows_its_default(tmp_path: Path) -> None:
    assert len(UNSET.findall(EXAMPLE.read_text())) > 20
    plain = options_of(EXAMPLE.read_text(), tmp_path).options
    shown = options_of(USERS.sub("", everything_set()), tmp_path).options
    plain.config_digest = shown.config_digest = ""
    assert shown == plain


def test_its_users(tmp_path: Path) -> None:
    authorization = options_of(everything_set(), tmp_path).options.authorization
    app, viewer = authorization.users
    assert (app.name, app.permissions) == ("app", None)
    assert viewer.name == "viewer"
    assert viewer.permissions is not None


def test_it_is_what_the_unit_starts(tmp_path: Path) -> None:
    unit = UNIT.read_text()
    assert f"ExecStart=/usr/bin/jsserver -c /etc/jsserver/{EXAMPLE.name}\n" in unit
    (state,) = re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE)
    assert options_of(EXAMPLE.read_text(), tmp_path).options.store_dir == f"/var/lib/{state}"


def test_a_server_runs_with_it(tmp_path: Path) -> None:
    config = EXAMPLE.read_text()
    server = Server(
        command_under_test(), tmp_path / "server", config=config, jetstream=True, monitor=True
    )
    try:
        server.start()
        with urlopen(f"{server.monitor_url}/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert "[WRN]" not in server.log()
        server.stop()
    finally:
        server.kill()


def test_signals_find_the_server_by_the_pid_file_that_it_names(tmp_path: Path) -> None:
    """It is in the folder that the unit makes, and in the page that says how to use it."""
    (named,) = re.findall(r'^# .*"(/run/.*)"', EXAMPLE.read_text(), re.MULTILINE)
    (folder,) = re.findall(r"^RuntimeDirectory=(\S+)$", UNIT.read_text(), re.MULTILINE)
    assert Path(named).parent == Path("/run") / folder
    assert f"`{named}`" in (PACKAGING.parent / "docs" / "service.md").read_text()
    file = tmp_path / Path(named).name
    config = EXAMPLE.read_text().replace('#pid_file: ""', f'pid_file: "{file}"')
    server = Server(command_under_test(), tmp_path / "server", config=config, jetstream=True)
    try:
        server.start()
        assert server.process is not None
        subprocess.run([*command_under_test(), "--signal", f"term={file}"], check=True, timeout=30)
        assert server.process.wait(30) == 0
    finally:
        server.kill()


@pytest.mark.skipif(find_peer() is None, reason=REASON)
def test_nats_server_takes_it(tmp_path: Path) -> None:
    for text in (EXAMPLE.read_text(), everything_set()):
        path = tmp_path / "nats-server.conf"
        path.write_text(text)
        done = subprocess.run(
            [str(find_peer()), "-t", "-c", path], capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
