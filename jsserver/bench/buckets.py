"""Key-value scenarios: put and get, one after the other."""

import contextlib

from jsserver.bench.core import ask_repeatedly
from jsserver.bench.run import Options, Worker
from jsserver.bench.wire import BenchError, Connection, new_inbox, payload_of, publish_frame


def prepare(options: Options) -> None:
    """Makes the bucket with a history of 1, as `nats bench kv put` does."""
    connection = options.connect()
    stream = f"KV_{options.bucket}"
    if options.create or options.purge:
        with contextlib.suppress(BenchError):
            connection.api(f"STREAM.DELETE.{stream}")
    config = {
        "name": stream,
        "subjects": [f"$KV.{options.bucket}.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": 1,
        "max_bytes": options.max_bytes,
        "max_age": 0,
        "max_msg_size": -1,
        "storage": options.storage,
        "discard": "new",
        "num_replicas": 1,
        "duplicate_window": 120_000_000_000,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    connection.api(f"STREAM.CREATE.{stream}", config)
    connection.close()


def _connection(worker: Worker) -> tuple[Connection, str]:
    connection = worker.options.connect()
    inbox = new_inbox()
    connection.subscribe(inbox)
    connection.flush()
    return connection, inbox


def put(worker: Worker) -> int:
    """Each value waits for its ack; the keys are numbers from 0 on."""
    options = worker.options
    connection, inbox = _connection(worker)
    payload = payload_of(options.size)
    frames = [
        publish_frame(f"$KV.{options.bucket}.{number}", payload, inbox)
        for number in range(worker.messages)
    ]
    worker.start_together()
    return ask_repeatedly(worker, connection, frames)


def get(worker: Worker) -> int:
    """The same keys, each by a direct get of its last message."""
    options = worker.options
    connection, inbox = _connection(worker)
    path = f"$JS.API.DIRECT.GET.KV_{options.bucket}.$KV.{options.bucket}"
    frames = [publish_frame(f"{path}.{number}", b"", inbox) for number in range(worker.messages)]
    worker.start_together()
    return ask_repeatedly(worker, connection, frames)
