"""The files a running server leaves for scripts: the pid file and the ports file."""

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from jsserver.process.sockets import host_port, local_addresses


def write_pid_file(path: str) -> None:
    """The decimal pid without a newline; it stays behind at exit, as nats-server's does."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w") as f:
        f.write(str(os.getpid()))


class PortsFile:
    """`<program>_<pid>.ports`: every listener's URLs; complete at once, removed at a clean exit."""

    def __init__(self, directory: str) -> None:
        program = os.path.basename(sys.argv[0]) or "nats-server"
        self._path = Path(directory) / f"{program}_{os.getpid()}.ports"

    def write(self, listeners: dict[str, tuple[str, str, int]]) -> None:
        """listeners: field name -> (scheme, host, port)."""
        content: dict[str, list[str]] = {}
        for field, (scheme, host, port) in listeners.items():
            hosts = local_addresses() if host in ("", "0.0.0.0", "::") else [host]
            content[field] = [f"{scheme}://{host_port(h, port)}" for h in hosts]
        hidden = self._path.with_name("." + self._path.name)
        hidden.write_bytes(msgspec.json.encode(content))
        hidden.rename(self._path)

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
