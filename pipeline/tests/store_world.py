"""Stores for tests: written by hand, or by a server, and what that server serves from them."""

import asyncio
import json
import pickle
import random
from pathlib import Path

import nats
from nats.js.api import StoreCompression, StreamConfig
from nats.js.client import JetStreamContext

from jsserver_spark.cext.bytes import hh64
from jsserver_spark.cext.columns import block_key
from jsserver_spark.files.plan import Plan
from jsserver_spark.files.source import plan, read_split
from jsserver_spark.options import StoreOptions
from tests.servers import Server
from tests.unit.records import STREAM

Rows = dict[int, tuple[str, bytes]]


def options(path: Path, **more: str) -> StoreOptions:
    given = {"path": str(path), "columns": "seq,subject,data", **more}
    return StoreOptions.read(given, "reading format nats-store")


def read(chosen: StoreOptions) -> tuple[Rows, Plan]:
    """All rows, each split read from its pickled form, and the plan."""
    planned = plan(chosen)
    found: Rows = {}
    for split in planned.splits:
        last = 0
        for batch in read_split(chosen, pickle.loads(pickle.dumps(split))):
            for row in batch.to_pylist():
                assert row["seq"] > last
                last = row["seq"]
                assert last not in found
                found[last] = (row["subject"], row["data"])
    return found, planned


def write_stream(folder: Path, blocks: dict[int, bytes], **config: object) -> Path:
    """A stream's directory."""
    (folder / "msgs").mkdir(parents=True)
    body = json.dumps({"name": STREAM, **config, "Created": "2026-11-21T10:00:00Z"}).encode()
    (folder / "meta.inf").write_bytes(body)
    total = hh64(block_key(STREAM), body).to_bytes(8, "little").hex()
    (folder / "meta.sum").write_text(total)
    for number, code in blocks.items():
        (folder / "msgs" / f"{number}.blk").write_bytes(code)
    return folder


def state_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything about every file below a folder."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- with a server -----------------------------------------------------------------------------


async def _info(js: JetStreamContext) -> nats.js.api.StreamState:
    return (await js.stream_info(STREAM)).state


class Writer:
    """Publishes and deletes at random, the same for the same seed."""

    def __init__(self, js: JetStreamContext, seed: int) -> None:
        self.js = js
        self.random = random.Random(seed)
        self.published = 0

    async def publish(self, count: int) -> None:
        for _ in range(count):
            n = self.published
            header = {"A": "b"} if n % 3 == 0 else None
            data = b"message %d " % n + b"x" * self.random.randrange(300)
            await self.js._nc.publish(f"k.{self.random.randrange(40)}", data, headers=header)
            self.published += 1
        await self.js._nc.flush()
        while (await _info(self.js)).last_seq < self.published:
            await asyncio.sleep(0.005)

    async def delete(self, count: int) -> None:
        state = await _info(self.js)
        for _ in range(count):
            seq = self.random.randrange(state.first_seq, state.last_seq + 1)
            try:
                await self.js.delete_msg(STREAM, seq)
            except nats.js.errors.APIError:
                continue  # gone already


async def _fill(url: str, config: dict[str, object], purged: bool) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    fixed = {"name": STREAM, "subjects": ["k.>"]}
    if config.get("compression"):
        fixed["compression"] = StoreCompression.S2
    rest = {key: value for key, value in config.items() if key != "compression"}
    # A small limit makes small blocks, and so many of them; they stay small when it is lifted.
    await js.add_stream(StreamConfig(**fixed, max_bytes=100_000))
    await js.update_stream(StreamConfig(**fixed, **rest))
    writer = Writer(js, 7)
    await writer.publish(1200)
    await writer.delete(40)
    if purged:
        await js.purge_stream(STREAM)
    await writer.publish(300)
    await js.purge_stream(STREAM, subject="k.7")
    await js.purge_stream(STREAM, subject="k.8", keep=2)
    state = await _info(js)
    await js.purge_stream(STREAM, seq=state.first_seq + state.messages // 5)
    await writer.publish(200)
    await writer.delete(30)
    await client.close()


def fill(server: Server, config: dict[str, object], *, purged: bool = False) -> None:
    """A stream with deletes whose tombstones lie in later blocks, and purges."""
    asyncio.run(_fill(server.url, config, purged))


async def _served(url: str) -> Rows:
    client = await nats.connect(url)
    js = client.jetstream()
    state = await _info(js)
    found = {}
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            message = await js.get_msg(STREAM, seq)
        except nats.js.errors.NotFoundError:
            continue
        found[seq] = (message.subject, message.data)
    await client.close()
    return found


def served(server: Server) -> Rows:
    """What the server has."""
    return asyncio.run(_served(server.url))


async def _snapshot(url: str, into: Path) -> None:
    client = await nats.connect(url)
    chunks = await client.subscribe("backup.here")
    request = json.dumps({"deliver_subject": "backup.here", "no_consumers": True})
    answer = await client.request(f"$JS.API.STREAM.SNAPSHOT.{STREAM}", request.encode())
    about = json.loads(answer.data)
    with (into / "stream.tar.s2").open("wb") as file:
        while chunk := (await chunks.next_msg(10)):
            if chunk.reply:
                await client.publish(chunk.reply, b"")
            if not chunk.data:
                break
            file.write(chunk.data)
    (into / "backup.json").write_text(json.dumps(about))
    await client.close()


def snapshot(server: Server, into: Path) -> Path:
    """A backup as `nats stream backup` makes it."""
    into.mkdir()
    asyncio.run(_snapshot(server.url, into))
    return into
