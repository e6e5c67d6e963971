"""A cluster of three nats-servers whose directories are looked at after their end."""

import asyncio
import contextlib
import hashlib
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import nats.errors

from tests.peer import find_peer

NAMES = ("N1", "N2", "N3")
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def peer_id(name: str) -> bytes:
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(DIGITS[byte % 62] for byte in digest[:8]).encode()


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """Three nats-servers and their directories."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.ports = free_ports(6)
        self.running: list[subprocess.Popen[bytes]] = []
        routes = ", ".join(f'"nats://127.0.0.1:{p}"' for p in self.ports[3:])
        for n, name in enumerate(NAMES):
            (base / f"{name}.conf").write_text(
                f'server_name: {name}\nlisten: "127.0.0.1:{self.ports[n]}"\n'
                f'jetstream {{ store_dir: "{base / name}" }}\n'
                f'cluster {{ name: C, listen: "127.0.0.1:{self.ports[n + 3]}", '
                f"routes: [{routes}] }}\n"
            )

    def start(self) -> None:
        for name in NAMES:
            command = [str(find_peer()), "-c", str(self.base / f"{name}.conf")]
            with (self.base / f"{name}.log").open("ab") as log:
                self.running.append(subprocess.Popen(command, stderr=log))

    def stop(self, how: signal.Signals) -> None:
        for p in self.running:
            p.send_signal(how)
        for p in self.running:
            p.wait()
        self.running = []

    def groups(self, name: str) -> dict[bytes, Path]:
        return {
            path.name.encode(): path
            for path in sorted((self.base / name).glob("jetstream/*/_js_/*"))
        }

    def ask(self, do: Callable[[Any, Any], Awaitable[None]]) -> None:
        """Does something with a client, again until it works and holds: members catch up."""

        async def run() -> None:
            for attempt in range(120):
                client = None
                try:
                    client = await nats.connect(
                        [f"nats://127.0.0.1:{p}" for p in self.ports[:3]],
                        allow_reconnect=False,
                        error_cb=ignored,
                    )
                    await do(client, client.jetstream(timeout=5))
                    return
                except (nats.errors.Error, OSError, AssertionError):
                    if attempt == 119:
                        raise
                    await asyncio.sleep(0.5)  # until servers have found each other
                finally:
                    if client is not None:
                        with contextlib.suppress(nats.errors.Error, OSError):
                            await client.close()

        asyncio.run(run())


async def ignored(_: Exception) -> None:
    pass
