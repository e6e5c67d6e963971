"""A server with streams for the tests of the formats, and readers as Spark would use them."""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from jsserver_spark.client.connection import publish_frame
from jsserver_spark.jetstream import StreamInfo
from jsserver_spark.source import NatsSource
from pipeline.tests.jobs_world import connected
from tests.servers import Server


class Site:
    """One server, and a connection to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connect()

    def connect(self) -> None:
        """Anew, after a restart of the server."""
        self.js = connected(self.server)

    def create(self, name: str, **config: Any) -> None:
        """A stream with the subjects `<name>.>` and direct gets allowed, unless told otherwise."""
        given = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True} | config
        self.js.api(f"STREAM.CREATE.{name}", given)

    def remove(self, name: str) -> None:
        self.js.api(f"STREAM.DELETE.{name}")

    def delete(self, name: str, *seqs: int) -> None:
        for seq in seqs:
            self.js.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})

    def purge(self, name: str, seq: int) -> None:
        """Everything before `seq`."""
        self.js.api(f"STREAM.PURGE.{name}", {"seq": seq})

    def publish(self, messages: Iterable[tuple[str, bytes, bytes]], stream: str) -> int:
        """Subjects, headers and payloads; the stream's last sequence when all are acknowledged."""
        *most, (subject, header, data) = messages
        for each in most:
            self.js.connection.send(publish_frame(each[0], each[2], "", each[1]))
        ack = msgspec.json.decode(self.js.request(subject, data, header).data)
        assert ack.get("stream") == stream, ack
        return int(ack["seq"])

    def fill(self, name: str, count: int, size: int = 0) -> int:
        """`count` messages over three subjects, every third with headers; the last sequence."""
        start = self.info(name).state.last_seq + 1
        return self.publish(
            (
                (f"{name}.{i % 3}", header_of(i), payload_of(i).ljust(size, b"."))
                for i in range(start, start + count)
            ),
            name,
        )

    def info(self, name: str) -> StreamInfo:
        return self.js.stream_info(name)

    def consumers(self, name: str) -> list[str]:
        return list(self.js.api(f"CONSUMER.NAMES.{name}", {}).get("consumers") or ())

    def source(self, **options: str) -> NatsSource:
        return copy(NatsSource({"servers": self.server.url, **options}))

    def reader(self, **options: str) -> DataSourceReader:
        source = self.source(**options)
        return source.reader(schema=source.schema())

    def stream_reader(self, **options: str) -> DataSourceStreamReader:
        source = self.source(**options)
        return source.streamReader(schema=source.schema())

    def read(self, **options: str) -> pa.Table:
        """A batch read as Spark does it: everything pickled between the steps."""
        reader = self.reader(**options)
        return table_of(reader, reader.partitions())


def header_of(i: int) -> bytes:
    return b"NATS/1.0\r\nNumber: %d\r\n\r\n" % i if i % 3 == 0 else b""


def payload_of(i: int) -> bytes:
    return b"message %d" % i


def copy(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def batches_of(
    reader: DataSourceReader | DataSourceStreamReader, splits: Iterable[InputPartition]
) -> Iterator[pa.RecordBatch]:
    for split in splits:
        yield from copy(reader).read(copy(split))


def table_of(
    reader: DataSourceReader | DataSourceStreamReader, splits: Iterable[InputPartition]
) -> pa.Table:
    """The rows of all splits; there must be a batch."""
    return pa.Table.from_batches(batches_of(reader, splits))


def seqs_of(
    reader: DataSourceReader | DataSourceStreamReader, splits: Iterable[InputPartition]
) -> list[int]:
    return [seq for batch in batches_of(reader, splits) for seq in batch["seq"].to_pylist()]
