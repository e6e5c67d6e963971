"""Streams to archive and replay: filled on a real server, read back whole, rows made by hand."""

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive, FileEntry, commit
from jsserver_spark.archive.writer import READ, Limits, publish_drafts, write_range
from jsserver_spark.batches import Batches
from jsserver_spark.client.connection import publish_frame
from jsserver_spark.jetstream import JetStream, StreamInfo
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import ConnectionOptions, RowOptions, SourceOptions
from pipeline.tests.paths import PYTHONPATH, ROOT
from tests.servers import Server
from tests.waiting import wait_until

DAY_NS = 86_400_000_000_000
NOON = 20_000 * DAY_NS + DAY_NS // 2
"""2024-10-04 12:00 UTC."""


class Msg(NamedTuple):
    """A message as it is compared: everything but where it stands."""

    subject: str
    header: bytes
    data: bytes


class Row(NamedTuple):
    seq: int
    ts: int
    subject: str = "S.a"
    header: bytes = b""
    data: bytes = b"x"


def batches(rows: Iterable[Row], size: int = 100) -> list[pa.RecordBatch]:
    """Rows as a fetch for an archive gives them."""
    made = Batches(READ, "S", RowOptions(batch_rows=size))
    out = []
    for row in rows:
        made.rows.add(row.subject.encode(), row.seq, row.ts, row.header, row.data)
        if made.rows.full:
            out.append(made.take())
    if len(made.rows):
        out.append(made.take())
    return out


def new_archive(place: Place, stream: str = "S", first: int = 1, created: int = 1) -> Archive:
    place.make_folder(f"stream={stream}/_manifest")
    return Archive(
        stream=stream,
        source=stream,
        created=created,
        number=0,
        first=first,
        last=first - 1,
        files=(),
        config={"subjects": [f"{stream}.>"]},
    )


def add(
    place: Place, archive: Archive, rows: Sequence[Row], last: int, limits: Limits | None = None
) -> Archive:
    """Archives rows made by hand: what one commit of the archiver does."""
    files: list[FileEntry] = write_range(
        place, archive.stream, "run", archive.last + 1, last, limits or Limits(), batches(rows)
    )
    publish_drafts(place, archive.stream, "run", files)
    return commit(place, archive, "add", files, archive.last + 1, last)


def connected(server: Server) -> JetStream:
    return JetStream(ConnectionOptions(servers=(server.url,)))


def create(server: Server, stream: str, **config: Any) -> StreamInfo:
    api = connected(server)
    try:
        body = {"name": stream, "subjects": [f"{stream}.>"], "storage": "file"}
        api.api(f"STREAM.CREATE.{stream}", {**body, "allow_direct": True, **config})
        return api.stream_info(stream)
    finally:
        api.close()


def api(server: Server, verb: str, body: object = None) -> dict[str, Any]:
    one = connected(server)
    try:
        return one.api(verb, body)
    finally:
        one.close()


def info(server: Server, stream: str) -> StreamInfo:
    one = connected(server)
    try:
        return one.stream_info(stream)
    finally:
        one.close()


def some_messages(count: int, stream: str, seed: int = 1) -> list[Msg]:
    """Messages of every kind: with and without headers, empty and large, many subjects."""
    rnd = random.Random(seed)
    out = []
    for i in range(count):
        header = b""
        if i % 7 == 0:
            header = b"NATS/1.0\r\nTrace: %d\r\nTag: a\r\nTag:  b \r\n\r\n" % i
        data = b"" if i % 11 == 0 else json.dumps({"id": i, "n": rnd.random()}).encode()
        if i % 997 == 0:
            data = rnd.randbytes(5000)
        out.append(Msg(f"{stream}.{rnd.randrange(50)}", header, data))
    return out


def publish(server: Server, stream: str, messages: Sequence[Msg]) -> None:
    """Stores messages in order."""
    one = connected(server)
    try:
        before = one.stream_info(stream).state.last_seq
        out = bytearray()
        for message in messages:
            out += publish_frame(message.subject, message.data, "", message.header)
            if len(out) > 1 << 20:
                one.connection.send(out)
                out.clear()
        one.connection.send(out)
        one.connection.flush()
        last = before + len(messages)
        state = one.stream_info
        wait_until(lambda: state(stream).state.last_seq >= last, "the messages are stored", 30)
    finally:
        one.close()


def everything(server: Server, stream: str) -> list[Msg]:
    """All messages of a stream in order."""
    state = info(server, stream).state
    options = SourceOptions(servers=(server.url,), stream=stream)
    out = []
    for batch in fetch(options, stream, state.first_seq, state.last_seq, READ):
        columns = (batch.column(name).to_pylist() for name in ("subject", "headers_raw", "data"))
        out += [Msg(s, h or b"", d) for s, h, d in zip(*columns, strict=True)]
    return out


def job(name: str, *words: str, file_limit: int | None = None) -> subprocess.Popen[str]:
    """A job's process, as a user starts it; `file_limit`: bytes that no file may exceed."""
    command = [sys.executable, "-m", "jsserver_spark.jobs.main", name, *words]

    def limit() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        preexec_fn=limit,
    )


def done(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str, str]:
    """Its exit code and what it said."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, err
