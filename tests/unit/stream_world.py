"""What tests of streams and consumers share: parameters, and short ways to publish and pull."""

import json
from typing import get_args

from jsserver.cext.bytes import SubjectTransform
from jsserver.cext.consumer import ConsumerHandle
from jsserver.cext.stream import Message
from jsserver.instances.backend import PreparedConsumer, PreparedStream
from jsserver.text.transforms import parse
from jsserver.wire.types import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Discard,
    Retention,
    Storage,
    StreamConfig,
)
from tests.cext.stream import TestEnv, open_test_stream

MS = 1_000_000
SECOND = 1_000_000_000
LIMITS, INTEREST, WORKQUEUE = get_args(Retention)
OLD, NEW = get_args(get_args(Discard)[0])
FILE, MEMORY = get_args(Storage)
ALL, LAST, NEW_ONLY, BY_SEQ, BY_TIME, LAST_PER_SUBJECT = get_args(DeliverPolicy)
ACK_NONE, ACK_ALL, ACK_EXPLICIT = get_args(AckPolicy)[:3]


def text(value):
    """Bytes, and lists of them, as configurations have them."""
    if isinstance(value, bytes):
        return value.decode()
    return list(map(text, value)) if isinstance(value, tuple | list) else value


def split(kind, values):
    """What is a field of a configuration, and what is made of one."""
    values = {name: text(value) for name, value in values.items()}
    made = set(kind.__struct_fields__) - {"config"}
    return (
        {name: value for name, value in values.items() if name not in made},
        {name: value for name, value in values.items() if name in made},
    )


def stream_params(**given):
    """A stream as the data plane is handed it: the given fields, or what is made of some."""
    config, made = split(PreparedStream, given)
    values = dict(
        name="S",
        subjects=["s.>"],
        storage=MEMORY,
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=-1,
        max_msg_size=-1,
        duplicate_window=120 * SECOND,
        allow_direct=True,
    )
    others = dict(
        subject_transform=None, republish=None, republish_headers_only=False, mirror_direct=""
    )
    return PreparedStream(config=StreamConfig(**(values | config)), **(others | made))


def consumer_params(**given):
    """A consumer as the data plane is handed it: the given fields, or what is made of some."""
    config, made = split(PreparedConsumer, given)
    values = dict(ack_policy=ACK_EXPLICIT, max_deliver=-1, max_waiting=512, max_ack_pending=1000)
    others = dict(
        name="C",
        opt_start_time=0,
        ack_wait=30 * SECOND,
        filters=(),
        sample_percent=0,
        dead_subject="",
        pause_until=0,
    )
    return PreparedConsumer(config=ConsumerConfig(**(values | config)), **(others | made))


def headers(**values: object) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in values.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def compiled(source: str, destination: str) -> SubjectTransform:
    """A transform that is one."""
    transform = parse(source, destination)
    assert transform is not None
    return transform.compiled()


def refusal(answer: str) -> int:
    """The err_code of an answer."""
    code: int = json.loads(answer)["error"]["err_code"]
    return code


worlds: "list[World]" = []
"""Those of the test that runs; its end closes them (conftest.py)."""


class World:
    """One stream in a test environment, active unless told otherwise."""

    def __init__(self, env=None, directory=None, active=True, place=None, **params):
        worlds.append(self)
        self.env = env or TestEnv()
        if (b"inbox", b"") not in self.env.clients:
            self.env.listen(b"inbox")
        self.handles: list[ConsumerHandle] = []  # of what is opened with it
        self.stream = open_test_stream(
            self.env, stream_params(**params), directory, **(place or {})
        )
        if active:
            self.stream.activate()

    def publish(self, subject=b"s.a", data=b"x", header=b"", reply=b"ack"):
        """The answer to one publish, None without one."""
        self.env.take()
        self.env.inject(subject, data, reply, header)
        answers = [m for m in self.env.sent if m[0] == reply]
        return answers[0][4].decode() if answers else None

    def fill(self, n, subject=b"s.a", data=b"x"):
        for i in range(n):
            self.env.inject(subject, data if isinstance(data, bytes) else data(i))
        self.stream.wait_durable()
        self.env.run()
        self.env.take()

    def message(self, seq: int) -> Message:
        """One that must be there."""
        found = self.stream.get(seq)
        assert found is not None, f"no message {seq}"
        return found

    def last_for(self, subject: bytes) -> Message:
        """One that must be there."""
        found = self.stream.last_for(subject)
        assert found is not None, f"no message on {subject!r}"
        return found

    def consumer(self, directory=None, **params):
        return self.stream.open_consumer(consumer_params(**params), directory)

    def pull(self, body=b"", name=b"C", reply=b"inbox", header=b""):
        """Asks for messages; returns what came at once."""
        self.env.take()
        self.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S." + name, body, reply, header)
        return self.env.take()

    def ack(self, message, body=b"", reply=b""):
        self.env.take()
        self.env.inject(message[2], body, reply)
        return self.env.take()

    def direct(self, body=b"", subject=b"", header=b""):
        """What comes back for a direct get, without the inbox it came to."""
        self.env.take()
        to = b"$JS.API.DIRECT.GET.S" + (b"." + subject if subject else b"")
        self.env.inject(to, body, b"inbox", header)
        self.env.run()
        return [m[3:] for m in self.env.take()]


def tokens(message):
    """deliveries, stream sequence, consumer sequence, time, pending of a delivered message."""
    return tuple(int(t) for t in message[2].split(b".")[4:])


def seqs(messages):
    return [tokens(m)[1] for m in messages if m[2].startswith(b"$JS.ACK.")]


def status(message):
    """The status line's code and text."""
    return message[3].split(b"\r\n")[0].removeprefix(b"NATS/1.0 ").decode()


def statuses(messages):
    return [status(m) for m in messages if not m[2].startswith(b"$JS.ACK.")]
