"""A cluster of three nats-servers, and its groups in the directories that it leaves."""

import asyncio
import contextlib
import hashlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors

from tests.cext.raft import append_entry, write_append_entry
from tests.cext.raftlog import Directory, Machine
from tests.peer import find_peer

NAMES = ("N1", "N2", "N3")
VOTE_REQUEST, APPEND = 1, 2
REPLIES = {0: b"", 1: b"votes", 2: b"responses", 3: b"catch"}
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


@contextlib.contextmanager
def started(base: Path) -> Iterator[Cluster]:
    """A cluster whose servers run; those that still do at the end are killed."""
    cluster = Cluster(base)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop(signal.SIGKILL)


def log_of(folder: Path, copy: Path, member: bytes = b"somebody") -> dict[int, bytes | None]:
    """The log of a group, by index, from the directory that a server left: its records, None where
    there is none. Reads a copy of the directory that this makes, as that member of the group."""
    shutil.copytree(folder, copy)
    directory = Directory(Machine(), copy, folder.name.encode(), member)
    try:
        ends = directory.state()
        return {index: directory.load(index) for index in range(ends["first"], ends["last"] + 1)}
    finally:
        directory.close()


class Pump:
    """Three members of a group, each in the directory of its server; what one says, others hear."""

    def __init__(self, cluster: Cluster, group: bytes) -> None:
        self.machine = Machine()
        self.members = {
            peer_id(name): Directory(
                self.machine, cluster.groups(name)[group], group, peer_id(name)
            )
            for name in NAMES
        }
        for name, d in self.members.items():
            assert not d.found["lost"], (group, name, d.found)
            self.act(name, d.call("applied", d.found["snapshot"]))

    def call(self, name: bytes, what: str, *args: Any) -> None:
        self.act(name, self.members[name].call(what, *args))

    def act(self, name: bytes, actions: list[dict[str, Any]]) -> None:
        for a in actions:
            match a["act"]:
                case "send":
                    self.send(name, a)
                case "commit":
                    self.call(name, "applied", a["index"])
                case "record":
                    m = append_entry(self.members[name].load(a["index"]) or b"")
                    assert m is not None
                    places = (m["leader"], m["term"], m["commit"], m["pterm"], m["pindex"])
                    body = write_append_entry(*places, m["entries"], a["term"])
                    self.reply(name, a["to"], b"responses " + name, body)
                    self.call(name, "sent", a["peer"], a["index"], len(body))

    def send(self, name: bytes, a: dict[str, Any]) -> None:
        reply = b"%s %s %d" % (REPLIES[a["reply"]], name, a["index"]) if a["reply"] else b""
        if a["to"]:
            self.reply(name, a["to"], reply, a["body"])
            return
        for other in self.members:
            if other != name and a["what"] == VOTE_REQUEST:
                self.call(other, "vote_request", a["body"], reply)
            elif other != name:
                self.call(other, "append", a["body"], reply, 0)

    def reply(self, name: bytes, to: bytes, reply: bytes, body: bytes) -> None:
        kind, other, *number = to.split(b" ")
        if kind == b"votes":
            self.call(other, "vote_response", body)
        elif kind == b"responses":
            self.call(other, "response", body, reply)
        else:
            self.call(other, "append", body, reply, int(number[0]))

    def settle(self) -> None:
        for _ in range(20):
            self.machine.write()
            self.machine.commit()
            for name in self.members:
                self.call(name, "look")
                self.call(name, "turn_end")

    def elect(self) -> bytes:
        """The member with the longest log leads."""
        states = {name: d.state() for name, d in self.members.items()}
        name = max(states, key=lambda n: (states[n]["last_term"], states[n]["last"]))
        self.call(name, "campaign")
        self.call(name, "tick", 10**10)
        self.settle()
        return name

    def close(self) -> None:
        for d in self.members.values():
            d.close()
