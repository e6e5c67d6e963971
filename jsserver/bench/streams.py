"""JetStream scenarios: publish synchronously and in batches, consume in every way, get."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any

from jsserver.bench.core import ask_repeatedly
from jsserver.bench.run import Options, Worker
from jsserver.bench.wire import (
    BenchError,
    Connection,
    new_inbox,
    payload_of,
    publish_frame,
)

NANOSECONDS = 1_000_000_000
PULL_EXPIRES_S = 30
ACK = b"+ACK"
ACK_SUBJECT = re.compile(rb" (\$JS\.ACK\.\S+) \d")
ERRORS_SHOWN = 200
FLOW_MAX = 65_535
FLOW_ANSWER = re.compile(
    rb'{"type":"ack","seq":(?P<upto>\d+),"msgs":(?P<flow>\d+)}|"count":(?P<count>\d+)}'
)
BLOCKS_MAX = 4096


def create_stream(connection: Connection, options: Options) -> None:
    """The stream that `nats bench js pub --create` makes; an existing one is made anew."""
    with contextlib.suppress(BenchError):
        connection.api(f"STREAM.DELETE.{options.stream}")
    subjects = [options.subject]
    if options.subjects:
        subjects.append(f"{options.subject}.*")
    config: dict[str, Any] = {
        "name": options.stream,
        "subjects": subjects,
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_bytes": options.max_bytes,
        "max_age": 0,
        "max_msg_size": -1,
        "storage": options.storage,
        "discard": "new",
        "num_replicas": 1,
        "duplicate_window": 120 * NANOSECONDS,
        "allow_direct": True,
        "allow_atomic": True,
        "allow_batched": True,
    }
    connection.api(f"STREAM.CREATE.{options.stream}", config)


def prepare(options: Options) -> None:
    """Makes or empties the stream before the clients start, as the options ask."""
    connection = options.connect()
    if options.create:
        create_stream(connection, options)
    if options.purge:
        connection.api(f"STREAM.PURGE.{options.stream}")
    connection.close()


def _subject(options: Options, number: int) -> str:
    if not options.subjects:
        return options.subject
    return f"{options.subject}.{number % options.subjects}"


def _check_acks(answer: bytes) -> None:
    if b'"error"' in answer:
        start = answer.index(b'"error"')
        raise BenchError(f"publish refused: {answer[start : start + ERRORS_SHOWN]!r}")


def publish_sync(worker: Worker) -> int:
    """Each message waits for its ack."""
    options = worker.options
    connection = options.connect()
    inbox = new_inbox()
    connection.subscribe(inbox)
    payload = payload_of(options.size)
    count = min(worker.messages, max(1, options.subjects))
    frames = [publish_frame(_subject(options, n), payload, inbox) for n in range(count)]
    connection.flush()
    worker.start_together()
    _check_acks(connection.ask(frames[0]))
    worker.messages -= 1
    return ask_repeatedly(worker, connection, frames) + 1


def publish_async(worker: Worker) -> int:
    """A batch at a time: all of it is sent, then all of its acks are awaited."""
    options = worker.options
    connection = options.connect()
    inbox = new_inbox()
    sid = connection.subscribe(inbox)
    payload = payload_of(options.size)
    connection.flush()
    mark = f"MSG {inbox} {sid} ".encode()

    def frames(first: int, size: int) -> bytes:
        numbers = range(first, first + size)
        return b"".join(publish_frame(_subject(options, n), payload, inbox) for n in numbers)

    def send(data: bytes, size: int) -> None:
        connection.send(data)
        _await_acks(connection, mark, size)

    return _in_batches(worker, frames, send)


def _in_batches(
    worker: Worker, frames: Callable[[int, int], bytes], send: Callable[[bytes, int], None]
) -> int:
    """Publishes the worker's messages a batch at a time, and takes the time of each.

    `frames` makes a batch, given the number of its first message and how many it has; `send` sends
    a batch and waits until it is acked. A batch that was made is used again for those alike.
    """
    options = worker.options
    blocks: dict[tuple[int, int], bytes] = {}
    done = 0
    add = worker.latencies.append
    worker.start_together()
    while done < worker.messages:
        size = min(options.batch, worker.messages - done)
        key = (size, done % options.subjects if options.subjects else 0)
        if key not in blocks:
            if len(blocks) == BLOCKS_MAX:
                blocks.clear()
            blocks[key] = frames(done, size)
        start = time.perf_counter()
        send(blocks[key], size)
        add(time.perf_counter() - start)
        done += size
    return done


def _await_acks(connection: Connection, mark: bytes, wanted: int) -> None:
    seen = 0
    data = b""
    while seen < wanted or not data.endswith(b"\r\n"):
        data = data[-len(mark) + 1 :] + connection.receive()
        seen += data.count(mark)
        _check_acks(data)


def publish_atomic(worker: Worker) -> int:
    """An atomic batch at a time: all of it is sent, then the ack of its commit is awaited."""
    connection = worker.options.connect()
    inbox = new_inbox()
    connection.subscribe(inbox)
    connection.flush()

    def frames(first: int, size: int) -> bytes:
        numbers = range(1, size + 1)
        return b"".join(_batch_frame(worker, n, size, first + n - 1, inbox) for n in numbers)

    return _in_batches(worker, frames, lambda data, _: _check_acks(connection.ask(data)))


def _batch_frame(worker: Worker, number: int, size: int, subject: int, inbox: str) -> bytes:
    """A message of an atomic batch; the last one commits it and wants the ack."""
    options = worker.options
    last = number == size
    lines = f"Nats-Batch-Id: bench-{worker.index}\r\nNats-Batch-Sequence: {number}\r\n"
    more = "Nats-Batch-Commit: 1\r\n" if last else ""
    return publish_frame(
        _subject(options, subject),
        payload_of(options.size),
        inbox if last else "",
        f"NATS/1.0\r\n{lines}{more}\r\n".encode(),
    )


def publish_fast(worker: Worker) -> int:
    """One fast batch, of which no more than --batch messages are unacked."""
    options = worker.options
    connection = options.connect()
    inbox = new_inbox()
    connection.subscribe(f"{inbox}.>")
    connection.flush()
    payload = payload_of(options.size)
    place = f"{inbox}.bench-{worker.index}.{min(options.batch, FLOW_MAX)}.fail"
    flow, sent, acked = 1, 0, 0
    add = worker.latencies.append
    worker.start_together()
    while acked < worker.messages:
        start = time.perf_counter()
        upto = min(acked + flow, worker.messages)
        frames = []
        while sent < upto:
            sent += 1
            operation = 2 if sent == worker.messages else int(sent > 1)
            reply = f"{place}.{sent}.{operation}.$FI"
            frames.append(publish_frame(_subject(options, sent - 1), payload, reply))
        connection.send(b"".join(frames))
        flow, acked = _await_flow(connection, flow, acked, sent)
        add(time.perf_counter() - start)
    return acked


def _await_flow(connection: Connection, flow: int, acked: int, sent: int) -> tuple[int, int]:
    """Waits until something more is acked, or the flow allows for more."""
    data = b""
    while True:
        data += connection.receive()
        _check_acks(data)
        end = data.rfind(b"\r\n") + 2
        for said in FLOW_ANSWER.finditer(data, 0, end):
            if said["count"]:
                return flow, int(said["count"])
            flow, acked = int(said["flow"]), int(said["upto"])
        if b'"type":"gap"' in data or b'"type":"err"' in data:
            raise BenchError(f"publish refused: {data[:ERRORS_SHOWN]!r}")
        if acked + flow > sent:
            return flow, acked
        data = data[end:]


def _consumer(options: Options, **settings: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * NANOSECONDS,
        "max_deliver": -1,
        "max_ack_pending": max(1000, options.batch * options.clients * 2),
        "replay_policy": "instant",
        "inactive_threshold": 10 * NANOSECONDS,
        **settings,
    }
    return {"stream_name": options.stream, "config": config}


def create_consumer(options: Options) -> None:
    """The durable consumer that consume and fetch share among their clients, made anew."""
    connection = options.connect()
    path = f"{options.stream}.{options.consumer}"
    with contextlib.suppress(BenchError):
        connection.api(f"CONSUMER.DELETE.{path}")
    body = _consumer(options, durable_name=options.consumer, name=options.consumer)
    connection.api(f"CONSUMER.CREATE.{path}", body)
    connection.close()


class Puller:
    """Asks a pull consumer for messages and counts them."""

    def __init__(self, connection: Connection, options: Options, consumer: str) -> None:
        self.connection = connection
        self.inbox = new_inbox()
        sid = connection.subscribe(self.inbox)
        connection.flush()
        self.ask_subject = f"$JS.API.CONSUMER.MSG.NEXT.{options.stream}.{consumer}"
        self.mark = f" {sid} $JS.ACK.".encode()
        self.rest = b""

    def ask(self, batch: int) -> None:
        body = {"batch": batch, "expires": PULL_EXPIRES_S * NANOSECONDS}
        self.connection.send(publish_frame(self.ask_subject, json.dumps(body).encode(), self.inbox))

    def take(self) -> bytes:
        """What came next, cut so that no control line is split between two calls."""
        data = self.rest + self.connection.receive()
        end = data.rfind(b"\r\n") + 2
        if end < 2:
            end = 0
        self.rest = data[end:]
        return data[:end]


def ordered(worker: Worker) -> int:
    """An ephemeral consumer without acks, kept asked for two batches."""
    options = worker.options
    connection = options.connect()
    body = _consumer(
        options,
        ack_policy="none",
        mem_storage=True,
        num_replicas=1,
        name=f"bench-{new_inbox()[7:]}",
    )
    answer = connection.api(f"CONSUMER.CREATE.{options.stream}.{body['config']['name']}", body)
    puller = Puller(connection, options, answer["name"])
    worker.start_together()
    return _pull(worker, puller, ack=False)


def consume(worker: Worker) -> int:
    """The shared durable consumer with explicit acks, always asked for ahead."""
    options = worker.options
    puller = Puller(options.connect(), options, options.consumer)
    worker.start_together()
    return _pull(worker, puller, ack=True)


def _pull(worker: Worker, puller: Puller, *, ack: bool) -> int:
    """Keeps between one half and one whole batch asked for, as client libraries do."""
    batch = worker.options.batch
    seen = asked = 0
    while seen < worker.messages:
        if asked - seen <= batch // 2 and asked < worker.messages:
            more = min(batch - (asked - seen), worker.messages - asked)
            puller.ask(more)
            asked += more
        seen += _handle(puller, puller.take(), ack=ack)
    puller.connection.flush()
    return seen


def _handle(puller: Puller, data: bytes, *, ack: bool) -> int:
    if not ack:
        return data.count(puller.mark)
    subjects = ACK_SUBJECT.findall(data)
    end = b" %d\r\n%b\r\n" % (len(ACK), ACK)
    puller.connection.send(b"".join([b"PUB " + subject + end for subject in subjects]))
    return len(subjects)


def fetch(worker: Worker) -> int:
    """The shared durable consumer, a batch asked for when the one before is done."""
    options = worker.options
    puller = Puller(options.connect(), options, options.consumer)
    worker.start_together()
    done = 0
    while done < worker.messages:
        size = min(options.batch, worker.messages - done)
        puller.ask(size)
        seen = 0
        while seen < size:
            seen += _handle(puller, puller.take(), ack=True)
        done += seen
    puller.connection.flush()
    return done


def get(worker: Worker) -> int:
    """Direct gets by sequence, one after the other."""
    options = worker.options
    connection = options.connect()
    inbox = new_inbox()
    state = connection.api(f"STREAM.INFO.{options.stream}")["state"]
    first, count = state["first_seq"], max(1, state["messages"])
    connection.subscribe(inbox)
    path = f"$JS.API.DIRECT.GET.{options.stream}"
    frames = [
        publish_frame(path, b'{"seq":%d}' % (first + n), inbox)
        for n in range(min(count, worker.messages))
    ]
    connection.flush()
    worker.start_together()
    return ask_repeatedly(worker, connection, frames)
