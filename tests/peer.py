"""Finds the releases of nats-server that differential tests compare with."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLLOWED_VERSION = "v2.14.5"
#: The newest release, for what several servers share: a directory, links.
NEWER_VERSION = "v2.15.3"
#: What tests call the peer; `$PEER_VERSION` chooses the newest release, for mixtures with that.
PEER_VERSION = os.environ.get("PEER_VERSION", FOLLOWED_VERSION)
REASON = (
    f"no nats-server {PEER_VERSION} to compare with: set NATS_SERVER, run `make peer`, "
    "or put it on PATH"
)


def _is_release(path: Path, version: str) -> bool:
    """Whether the file is that real nats-server, which is a Go program, and not a name of ours."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return False
        # Ours prints this line too, and its own version below.
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return said.stdout.strip() == f"nats-server: {version}"


@cache
def find_peer(version: str = PEER_VERSION) -> Path | None:
    """The nats-server of this release; None if there is none.

    The release that ours follows is looked for in $NATS_SERVER, `.peer/` and PATH; the newer one in
    $NATS_SERVER_NEWER, `.peer/v2.15.3/` and PATH.
    """
    if version == FOLLOWED_VERSION:
        named, own = "NATS_SERVER", ROOT / ".peer" / "nats-server"
    else:
        named, own = "NATS_SERVER_NEWER", ROOT / ".peer" / version / "nats-server"
    candidates = [os.environ.get(named, ""), str(own)]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates.append(shutil.which("nats-server", path=folder) or "")
    for candidate in candidates:
        if candidate and _is_release(Path(candidate), version):
            return Path(candidate).resolve()
    return None
