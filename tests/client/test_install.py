"""docs/service.md installs a service by commands that work, below another root."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "docs" / "service.md"
SWITCH = ROOT / "docs" / "switch.md"
DIST = Path(os.environ.get("JSSERVER_DIST", ROOT / "dist"))
# What changes the machine itself, or asks a service that runs on it.
OF_THE_MACHINE = ("make ", "useradd ", "systemctl ", "curl ")


def block(page: Path, heading: str, language: str) -> str:
    """The first block of code of a section."""
    section = page.read_text().split(f"\n{heading}\n", 1)[1]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(not (DIST / "jsserver").exists(), reason="no executable: run `make binary`")
def test_the_commands_leave_a_server_that_starts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("usr/bin", "etc/systemd/system", "var/lib/jsserver"):
        (root / folder).mkdir(parents=True)
    script = [
        re.sub(r"(?<= )/(?=usr/|etc/)", f"{root}/", line).replace("-g jsserver ", "")
        for line in block(SERVICE, "## Install it as a service", "sh").splitlines()
        if not line.startswith(OF_THE_MACHINE)
    ]
    assert len(script) == 4
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "packaging").symlink_to(ROOT / "packaging")
    (checkout / "dist").symlink_to(DIST)
    subprocess.run(["sh", "-eu", "-c", "\n".join(script)], cwd=checkout, check=True, timeout=60)
    assert (root / "etc/systemd/system/jsserver.service").read_bytes() == (
        ROOT / "packaging/jsserver.service"
    ).read_bytes()
    conf = root / "etc/jsserver/jsserver.conf"
    text = conf.read_text().replace("/var/lib/jsserver", f"{root}/var/lib/jsserver")
    text = text.replace('listen: "127.0.0.1:4222"', "").replace('http: "127.0.0.1:8222"', "")
    # A small machine may have less room than the example allows its streams.
    conf.write_text(text.replace("max_file_store: 10GB", "max_file_store: 1MB"))
    server = Server(
        [str(root / "usr/bin/jsserver")], tmp_path / "server", args=["-c", str(conf)], monitor=True
    )
    try:
        server.start()
        server.wait_log("Server is ready")
        assert (root / "var/lib/jsserver/jetstream").is_dir()
    finally:
        server.kill()


def test_systemd_accepts_the_drop_in(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "jsserver.service"
    unit.write_text((ROOT / "packaging/jsserver.service").read_text())
    drop_in = tmp_path / "jsserver.service.d" / "paths.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(block(SWITCH, "## In the place of a nats-server", "ini"))
    for path in (unit, drop_in):
        path.write_text(path.read_text().replace("/usr/bin/jsserver", sys.executable))
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=60)
    named = ("jsserver.service", "paths.conf")
    assert [line for line in done.stderr.splitlines() if any(n in line for n in named)] == []
