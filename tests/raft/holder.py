"""A server of ours that runs the replicated streams of its cluster's assignments and nothing else
of them: `python -m tests.raft.holder`, with `$HOLDER_PORT` for what a test asks of it."""

import base64
import json
import os
import socketserver
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from jsserver import cli
from jsserver.cext.replicas import StreamReplica, open_stream_replica
from jsserver.instances import prepared
from jsserver.services.metagroup import MetaGroup
from jsserver.wire.types import StreamConfig


class Holder:
    """The streams that run, by name."""

    def __init__(self, meta: Any) -> None:
        self.meta = meta
        self.streams: dict[str, StreamReplica] = {}
        self.lock = threading.Lock()

    def follow(self) -> None:
        with self.lock:
            for account, name, assignment in self.meta.state:
                held = self.meta._id in assignment.peers and len(assignment.peers) > 1
                if held and name not in self.streams:
                    self.streams[name] = self.open(account, name, assignment)

    def open(self, account: str, name: str, assignment: Any) -> StreamReplica:
        meta, said = self.meta, assignment.said
        root = Path(meta._directory).parents[2]
        directory = root / account / "streams" / name
        group = Path(meta._directory).parent / assignment.group
        memory = said["group"].get("store") == "memory"
        for folder in (directory, group):
            folder.mkdir(parents=True, exist_ok=True)
        config = msgspec.convert(said["stream"], StreamConfig, strict=False)
        handle = meta._accounts[account].open_stream(
            None if memory else str(directory), prepared.stream(config), False
        )
        ids = [peer.encode() for peer in assignment.peers]
        peers = struct.pack("<II", len(ids), len(ids)) + b"".join(ids) + b"\0\0"
        return open_stream_replica(
            meta._groups,
            handle,
            str(group),
            name=assignment.group.encode(),
            id=meta._id.encode(),
            peers=peers,
            standing=0,
            sync=said["sync"].encode(),
        )

    def close(self) -> None:
        with self.lock:
            for replica in self.streams.values():
                replica.close()
                replica.handle.close(False)
            self.streams.clear()

    # ---- what a test asks

    def ask(self, asked: dict[str, Any]) -> Any:
        with self.lock:
            replica = self.streams.get(asked["stream"])
            if replica is None:
                return None
            return getattr(self, "do_" + asked["do"])(replica, asked)

    def do_state(self, replica: StreamReplica, asked: Any) -> Any:
        return {
            "leads": replica.leads(),
            "current": replica.caught_up(),
            "why": replica.why(),
            "role": replica.state().role,
            "leader": replica.state().leader.decode(),
            "first_index": replica.state().first,
            "index": replica.state().applied,
            **replica.handle.state()._asdict(),
        }

    def do_messages(self, replica: StreamReplica, asked: Any) -> Any:
        state = replica.handle.state()
        found = []
        for seq in range(state.first_seq, state.last_seq + 1):
            message = replica.handle.get(seq)
            if message is not None:
                found.append(
                    [
                        seq,
                        message.ts,
                        message.subject.decode(),
                        _text(message.headers or b""),
                        _text(message.data or b""),
                    ]
                )
        return found

    def do_hand_over(self, replica: StreamReplica, asked: Any) -> Any:
        return replica.hand_over(asked.get("to", "").encode())

    def do_snapshot(self, replica: StreamReplica, asked: Any) -> Any:
        replica.snapshot()

    def do_purge(self, replica: StreamReplica, asked: Any) -> Any:
        return replica.propose_purge(subject=b"", reply=b"", client=b"", **asked["how"])

    def do_delete(self, replica: StreamReplica, asked: Any) -> Any:
        return replica.propose_delete(subject=b"", reply=b"", client=b"", **asked["how"])

    def do_reopen(self, replica: StreamReplica, asked: Any) -> Any:
        replica.close()
        replica.handle.close(False)
        del self.streams[asked["stream"]]
        for account, name, assignment in self.meta.state:
            if name == asked["stream"]:
                self.streams[name] = self.open(account, name, assignment)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


holders: list[Holder] = []


class Ask(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            try:
                found = holders[0].ask(json.loads(line)) if holders else None
                said = {"found": found}
            except Exception as error:
                said = {"error": repr(error)}
            self.wfile.write(json.dumps(said).encode() + b"\n")
            self.wfile.flush()


class Answering(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def install() -> None:
    start, follow, close = MetaGroup.start, MetaGroup._follow, MetaGroup.close

    async def started(self: Any) -> None:
        holders.append(Holder(self))
        self._options.server_tags = []  # so that others give it streams to hold
        await start(self)
        holders[0].follow()

    def followed(self: Any, changes: Any, replaced: bool) -> None:
        follow(self, changes, replaced)
        holders[0].follow()

    async def closed(self: Any) -> None:
        holders[0].close()
        await close(self)

    for name, method in (("start", started), ("_follow", followed), ("close", closed)):
        setattr(MetaGroup, name, method)
    listener = Answering(("127.0.0.1", int(os.environ["HOLDER_PORT"])), Ask)
    threading.Thread(target=listener.serve_forever, daemon=True).start()


if __name__ == "__main__":
    install()
    sys.exit(cli.main())
