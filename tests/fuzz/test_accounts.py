"""Accounts that import services and streams of each other, with streams and consumers: whatever
clients send, all are answered, and nothing comes where nothing is shared.

`FUZZ_SECONDS` runs longer, `ACCOUNTS_SEED` repeats a run.
"""

import os
import random
import re
import time

import pytest

from jsserver.cext.engine import ServiceLink, StreamLink
from tests.seeds import seed_of
from tests.unit.stream_world import (
    INTEREST,
    LIMITS,
    WORKQUEUE,
    compiled,
    consumer_params,
    stream_params,
)
from tests.unit.test_dataplane import Peer, Plane, joined

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
SEED = seed_of("ACCOUNTS_SEED")
HOUR = 3600 * 10**9
NAMES = ("A", "B", "C")
SUBJECTS = ("x", "x.a", "x.b", "ask", "ask.a", "bs.a", "bs.b.c", "ev.a", "p.a", "in.1", "out.1")
PATTERNS = (*SUBJECTS, "x.*", "ask.>", "bs.>", "ev.*", "p.*", "in.>", "_R_.>", "*.a", ">")
REPLIES = (*SUBJECTS, "in.2", "_INBOX.a", "")
SECRET = "secret"
HEADERS = (
    "Nats-Expected-Last-Sequence: 77",
    "Nats-Expected-Stream: NONE",
    "Nats-Msg-Id: 1",
    "Nats-Rollup: sub",
    'Nats-Request-Info: {"acc":"A"}',
    "Nats-Trace-Dest: x.a",
    "Nats-Trace-Only: true",
    "Nats-TTL: 1",
    "A: b",
    "",
)
BLOCKS = (b"", b"\r\n", b"N", b"NATS/1.0", b"NATS/1.0\r\n", b"NATS/1.0\r\n\r\n", b"\n\n\n")


class Sharing:
    """Three accounts with a client each, which import what the seed says."""

    def __init__(self, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.plane = Plane(auth_required=True)
        self.accounts = {name: self.plane.account(name) for name in NAMES}
        self.clients: dict[str, Peer] = {name: joined(self.plane, name) for name in NAMES}
        self.exports = 0
        self.handles: list[object] = []
        for name in NAMES:
            self.clients[name].send(b"SUB _INBOX.> inbox\r\n")
            self.open_stream(name)
            self.link(name)

    def service(self, of: str) -> ServiceLink:
        local, subject = self.rnd.choice(
            [("ask", "x"), ("ask.>", "bs.>"), ("bs.>", "bs.>"), ("x.a", "ask.a"), ("in.>", "in.>")]
        )
        self.exports += 1
        transform = compiled(local, subject) if local.endswith(">") else None
        return ServiceLink(
            exporter=self.accounts[of],
            local=local.encode(),
            subject=b"" if transform else subject.encode(),
            transform=transform,
            export=self.exports,
            once=self.rnd.random() < 0.7,
            threshold=self.rnd.choice([10**6, HOUR]),
            share=self.rnd.random() < 0.5,
            latency=self.rnd.choice([b"", b"x.b"]),
            sampling=self.rnd.choice([0, 100]),
        )

    def stream(self, of: str) -> StreamLink:
        source, local = self.rnd.choice([("ev.*", "p.*"), ("p.*", "ev.*"), ("x.*", "out.*")])
        return StreamLink(
            exporter=self.accounts[of],
            subject=source.encode(),
            local=local.encode(),
            literal=False,
            transform=compiled(source, local.replace("*", "$1")),
            back=compiled(local, source.replace("*", "$1")),
        )

    def link(self, name: str) -> None:
        """Imports something else than before."""
        others = [other for other in NAMES if other != name]
        services = [self.service(self.rnd.choice(others)) for _ in range(self.rnd.randrange(3))]
        streams = [self.stream(self.rnd.choice(others)) for _ in range(self.rnd.randrange(3))]
        self.accounts[name].link(services, streams)

    def open_stream(self, name: str) -> None:
        """With a consumer that delivers to one of the subjects that are shared, or is asked."""
        subjects = self.rnd.choice([(b"x",), (b"x", b"x.>"), (b"ev.>", b"in.>"), (b"bs.>",)])
        params = stream_params(
            name=b"X",
            subjects=subjects,
            retention=self.rnd.choice([LIMITS, INTEREST, WORKQUEUE]),
            max_msgs=50,
            allow_rollup_hdrs=True,
            allow_msg_ttl=self.rnd.random() < 0.5,
        )
        stream = self.accounts[name].open_stream(None, params)
        stream.activate()
        target = self.rnd.choice(["", "p.a", "ask", "bs.a", "out.1"])
        if any(re.match(s.decode().replace(">", ".*"), target) for s in subjects):
            target = ""
        more = {"deliver_subject": target.encode(), "max_ack_pending": 20} if target else {}
        self.handles += [stream, stream.open_consumer(consumer_params(**more), None)]

    def said(self) -> bytes:
        """What a client sends next."""
        rnd = self.rnd
        subject, reply = rnd.choice(SUBJECTS), rnd.choice(REPLIES)
        match rnd.randrange(10):
            case 0:
                return f"SUB {rnd.choice(PATTERNS)} {rnd.randrange(20)}\r\n".encode()
            case 1:
                return f"UNSUB {rnd.randrange(20)}\r\n".encode()
            case 2:
                ask = rnd.choice(["1", "5", '{"batch":3,"no_wait":true}', '{"expires":1000000}'])
                words = f"PUB $JS.API.CONSUMER.MSG.NEXT.X.C {reply} {len(ask)}\r\n{ask}\r\n"
                return words.encode()
            case 3:
                return f'PUB $JS.API.DIRECT.GET.X {reply} 9\r\n{{"seq":1}}\r\n'.encode()
            case 4 | 5:
                return f"PUB {subject} {reply} 1\r\nm\r\n".encode()
            case 6:
                block = rnd.choice(BLOCKS)
            case _:
                lines = rnd.sample(HEADERS, rnd.randrange(1, 4))
                block = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
        if not block:
            return f"PUB {subject} {reply} 0\r\n\r\n".encode()
        return f"HPUB {subject} {reply} {len(block)} {len(block)}\r\n".encode() + block + b"\r\n"

    def turn(self) -> None:
        name = self.rnd.choice(NAMES)
        client = self.clients[name]
        client.send(b"".join(self.said() for _ in range(self.rnd.randrange(1, 8))))
        other = f"{SECRET}.{name}"
        client.send(f"PUB {other} {len(name)}\r\n{name}\r\n".encode())
        for acked in re.findall(rb"\$JS\.ACK\.\S+", client.until_pong())[:3]:
            client.send(b"PUB %s 0\r\n\r\n" % acked)
        if self.rnd.random() < 0.02:
            self.link(name)

    def close(self) -> None:
        for name, client in self.clients.items():
            heard = client.until_pong().decode("latin-1")
            for other in NAMES:
                assert other == name or f"MSG {SECRET}.{other} " not in heard
        for name in NAMES:
            self.accounts[name].link([], [])
        self.plane.stop()


def test_an_ack_without_headers_asks_an_imported_service() -> None:
    """A stream refuses a message, and its answer goes to a reply that another account serves."""
    sharing = Sharing(SEED)
    a, b = sharing.accounts["A"], sharing.accounts["B"]
    linked = ServiceLink(
        exporter=a,
        local=b"bs.>",
        subject=b"",
        transform=compiled("bs.>", "bs.>"),
        export=99,
        once=True,
        threshold=HOUR,
        share=False,
        latency=b"",
        sampling=0,
    )
    b.link([linked], [])
    sharing.clients["A"].send(b"SUB bs.> 1\r\n")
    sharing.clients["A"].until_pong()
    stream = b.open_stream(None, stream_params(name=b"Y", subjects=(b"y",)))
    stream.activate()
    block = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 77\r\n\r\n"
    sharing.clients["B"].send(b"HPUB y bs.a %d %d\r\n%s\r\n" % (len(block), len(block), block))
    sharing.clients["B"].until_pong()
    heard = sharing.clients["A"].until_pong()
    assert b"HMSG bs.a 1 " in heard
    assert b"wrong last sequence" in heard
    sharing.close()


@pytest.mark.timeout(FUZZ_SECONDS + 300)
def test_whatever_clients_send() -> None:
    end = time.monotonic() + FUZZ_SECONDS
    seed = SEED
    while seed == SEED or time.monotonic() < end:
        sharing = Sharing(seed)
        for _ in range(300):
            sharing.turn()
        sharing.close()
        seed += 1
