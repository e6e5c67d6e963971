"""Finds the nats-server that differential tests compare with."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "nats-server: v2.14"


@cache
def find_peer() -> Path | None:
    """The nats-server 2.14 of `$NATS_SERVER`, `.peer/` or PATH, None where there is none."""
    on_path = shutil.which("nats-server")
    places = [os.environ.get("NATS_SERVER"), ROOT / ".peer" / "nats-server", on_path]
    for place in places:
        if place and Path(place).is_file() and _version(Path(place)).startswith(VERSION):
            return Path(place).resolve()
    return None


def _version(program: Path) -> str:
    try:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
