"""Store directories that servers have filled, for the tests of `jsserver store`."""

import asyncio
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, StreamConfig

from jsserver.cext.bytes import hh64
from jsserver.instances.metafiles import MetaFiles
from jsserver.offline import places
from jsserver.offline.check import StreamCheck
from jsserver.offline.findings import Findings
from tests.servers import Server, Servers, command_of_peer, command_under_test

COUNT = 200
DELETED = (5, 17, 18, 19, 150)
WAYS = ["ours-clean", "ours-killed", "peer-clean", "peer-killed", "moved-clean"]
_TTL = (
    b'{"name":"TTL","subjects":["ttl.>","sch.>"],"allow_msg_ttl":true,"allow_msg_schedules":true,'
    b'"storage":"file","retention":"limits","num_replicas":1,"max_msgs":-1,"max_bytes":-1,'
    b'"max_consumers":-1,"max_msgs_per_subject":-1,"max_age":0,"allow_rollup_hdrs":true}'
)


def payload(i: int) -> bytes:
    return b"%d:" % i + bytes((i * 7 + k) % 251 for k in range(i * 37 % 300))


async def begin(url: str) -> None:
    """Streams, and the first half of their messages."""
    client = await nats.connect(url)
    js = client.jetstream()
    config = StreamConfig(name="S", subjects=["k.>"], max_bytes=120_000, discard=DiscardPolicy.NEW)
    await js.add_stream(config)
    await js.add_stream(StreamConfig(name="KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=1))
    await js.add_stream(StreamConfig(name="LIM", subjects=["lim.>"], max_msgs=50))
    await client.request("$JS.API.STREAM.CREATE.TTL", _TTL)
    await _publish(js, range(COUNT // 2))
    await client.close()


async def finish(url: str) -> None:
    """The other half, deletions and a consumer."""
    client = await nats.connect(url)
    js = client.jetstream()
    await _publish(js, range(COUNT // 2, COUNT))
    later = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": "ttl.out"}
    await client.request("sch.a", b"later", headers=later)
    for seq in DELETED:
        await js.delete_msg("S", seq)
    await js.add_consumer("S", ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT))
    pulled = await js.pull_subscribe_bind("C", "S")
    for number, message in enumerate(await pulled.fetch(40, timeout=10)):
        if number < 20 or number in (25, 30):
            await message.ack_sync()
    await client.close()


async def _publish(js: JetStreamContext, numbers: range) -> None:
    for i in numbers:
        headers = {"A": f"b{i}"} if i % 3 == 0 else None
        await js.publish(f"k.{i % 7}.abc", payload(i), headers=headers)
        await js.publish(f"$KV.B.key{i % 20}", b"v%d" % i)
        await js.publish(f"lim.{i % 5}", b"x%d" % i)
        if i % 20 == 0:
            await js.publish(f"ttl.{i}", b"t", headers={"Nats-TTL": "3600"})


@dataclass
class Made:
    """A store directory, and what a server served of it."""

    path: Path
    served: dict[str, dict[int, tuple[str, bytes]]]


def make(servers: Servers, way: str) -> Made:
    """A directory that one of the servers left: `ours` or `peer`, `clean` or `killed`; `moved`: the
    peer first, then ours."""
    who, _, how = way.partition("-")
    server = (servers.under_test if who == "ours" else servers.peer)(jetstream=True)
    asyncio.run(begin(server.url))
    if who == "moved":
        server.stop()
        server.command = command_under_test()
        server.start()
    asyncio.run(finish(server.url))
    served = asyncio.run(contents(server.url))
    if how == "clean":
        server.stop()
    else:
        server.kill()
    return Made(server.store, served)


async def contents(url: str) -> dict[str, dict[int, tuple[str, bytes]]]:
    """Every message that a server serves, by stream and sequence."""
    client = await nats.connect(url)
    js = client.jetstream()
    out: dict[str, dict[int, tuple[str, bytes]]] = {}
    for info in await js.streams_info():
        name = info.config.name or ""
        messages = out.setdefault(name, {})
        for seq in range(info.state.first_seq, info.state.last_seq + 1):
            try:
                m = await js.get_msg(name, seq)
            except nats.js.errors.NotFoundError:
                continue
            except nats.js.errors.APIError:
                continue  # a damaged one
            messages[seq] = m.subject or "", m.data or b""
    await client.close()
    return out


def served_by(who: str, store: Path, folder: Path) -> dict[str, dict[int, tuple[str, bytes]]]:
    """What a server serves of a copy of a directory."""
    command = command_of_peer() if who == "peer" else command_under_test()
    assert command is not None
    server = Server(command, folder, jetstream=True)
    shutil.copytree(store, server.store, symlinks=True)
    server.start()
    try:
        return asyncio.run(contents(server.url))
    finally:
        server.kill()


def check(store: Path) -> list[Findings]:
    """A check of each stream in this process."""
    layout, files = places.layout(str(store)), MetaFiles(hh64)
    return [StreamCheck(place, layout.root, files).run().findings for place in layout.streams]


def run(*words: object) -> tuple[int, str, str]:
    """`jsserver store` with these words: exit code, stdout, stderr."""
    done = subprocess.run(
        [*command_under_test(), "store", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def stream_of(store: Path, name: str = "S") -> Path:
    return store / "jetstream" / "$G" / "streams" / name


def flip(path: Path, bit: int) -> None:
    """Changes a bit as a disk does: the file's time stays."""
    data, status = bytearray(path.read_bytes()), path.stat()
    data[bit >> 3] ^= 1 << (bit & 7)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
