"""Finds the nats-server that differential tests compare with."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER_VERSION = "v2.14.5"
REASON = (
    f"no nats-server {PEER_VERSION} to compare with: set NATS_SERVER, run `make peer`, "
    "or put it on PATH"
)


def _is_peer(path: Path) -> bool:
    """Whether the file is the real nats-server, which is a Go program, and not a name of ours."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return False
        # Ours prints this line too, and its own version below.
        version = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return version.stdout.strip() == f"nats-server: {PEER_VERSION}"


@cache
def find_peer() -> Path | None:
    """The nats-server of $NATS_SERVER, `.peer/` or PATH; None if there is none."""
    candidates = [os.environ.get("NATS_SERVER", ""), str(ROOT / ".peer" / "nats-server")]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates.append(shutil.which("nats-server", path=folder) or "")
    for candidate in candidates:
        if candidate and _is_peer(Path(candidate)):
            return Path(candidate).resolve()
    return None
