"""Core scenarios: publish, subscribe, request, and the service that answers requests."""

import time

from jsserver.bench.run import Worker
from jsserver.bench.wire import CONTROL_LINE, Connection, new_inbox, payload_of, publish_frame

BUFFER_BYTES = 1 << 18


def publish(worker: Worker) -> int:
    """As fast as the server takes it, `subjects` > 0 spread over so many subjects."""
    options = worker.options
    payload = payload_of(options.size)
    names = [options.subject]
    if options.subjects:
        names = [f"{options.subject}.{number}" for number in range(options.subjects)]
    frames = [publish_frame(name, payload) for name in names[: worker.messages]]
    block = b"".join(frames) * max(1, BUFFER_BYTES // sum(map(len, frames)))
    per_block = len(frames) * max(1, BUFFER_BYTES // sum(map(len, frames)))
    connection = options.connect()
    worker.start_together()
    blocks, rest = divmod(worker.messages, per_block)
    for _ in range(blocks):
        connection.send(block)
    connection.send(b"".join(frames[number % len(frames)] for number in range(rest)))
    connection.flush()
    return worker.messages


def subscribe(worker: Worker) -> int:
    """Receives every message; time runs from the first one on."""
    options = worker.options
    connection = options.connect()
    name = f"{options.subject}.*" if options.subjects else options.subject
    sid = connection.subscribe(name)
    connection.flush()
    worker.start_together()
    # The control line of each message ends this way, whatever its subject.
    mark = f" {sid} {options.size}\r\n".encode()
    connection.give_back(connection.receive())
    worker.started = time.monotonic()
    return connection.count_until(mark, worker.messages)


def request(worker: Worker) -> int:
    """One request after the other, each waiting for its reply."""
    options = worker.options
    connection = options.connect()
    inbox = new_inbox()
    connection.subscribe(inbox)
    frame = publish_frame(options.subject, payload_of(options.size), inbox)
    connection.flush()
    worker.start_together()
    return ask_repeatedly(worker, connection, [frame])


def ask_repeatedly(worker: Worker, connection: Connection, frames: list[bytes]) -> int:
    """Sends the frames in turn, `worker.messages` in all, and times each until its reply."""
    add = worker.latencies.append
    clock = time.perf_counter
    count = len(frames)
    for number in range(worker.messages):
        start = clock()
        connection.ask(frames[number % count])
        add(clock() - start)
    return worker.messages


def serve(worker: Worker) -> int:
    """Answers each request with the payload's size of bytes; ends after `messages` of them."""
    options = worker.options
    connection = options.connect()
    connection.subscribe(options.subject, queue="bench-reply")
    connection.send(b"PING\r\n")
    data = b""  # requests may come before the PONG
    while b"PONG\r\n" not in data:
        data += connection.receive()
    answer = f" {options.size}\r\n".encode() + payload_of(options.size) + b"\r\n"
    worker.start_together()
    handled = 0
    while True:
        replies = []
        position = 0
        while found := CONTROL_LINE.search(data, position):
            end = found.end() + int(found[6]) + 2
            if end > len(data):
                break
            if found[4]:
                replies.append(b"PUB " + found[4] + answer)
            position = end
        connection.send(b"".join(replies))
        handled += len(replies)
        if worker.messages and handled >= worker.messages:
            return handled
        data = data[position:] + connection.receive()
