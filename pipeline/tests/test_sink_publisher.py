"""The publisher against real servers: acks, errors that name rows, and servers that go away."""

import base64
import datetime
import ipaddress
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import SinkOptions
from jsserver_spark.text.goformat import SECOND
from jsserver_spark.write.publisher import Publisher
from jsserver_spark.write.refusals import (
    BadRow,
    NoStream,
    NotAcked,
    PublishError,
    StreamFull,
    StreamMismatch,
    TooLarge,
    TtlRefused,
    WrongLastSequence,
)
from pipeline.tests.jobs_world import connected
from tests.servers import Server, Servers
from tests.waiting import call_at_sleep

pytestmark = pytest.mark.usefixtures("peer_present")


def options(server: Server, **given: str) -> SinkOptions:
    named = {"servers": server.url, "retries": "1", **given}
    return SinkOptions.read(named, "writing format nats")


def stream(server: Server, name: str, **config: Any) -> JetStream:
    js = connected(server)
    js.api(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{name}.>"], "duplicate_window": 600 * SECOND, **config},
    )
    return js


def rows_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def numbered(name: str, n: int) -> pa.RecordBatch:
    return rows_of(subject=[f"{name}.{i % 7}" for i in range(n)], data=[str(i) for i in range(n)])


def contents(js: JetStream, name: str) -> list[tuple[str, bytes, bytes]]:
    found = []
    for seq in range(1, js.stream_info(name).state.last_seq + 1):
        message = js.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
        parts = [base64.b64decode(message.get(key, "")) for key in ("hdrs", "data")]
        found.append((message["subject"], parts[0], parts[1]))
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(c for c in request.node.name.split("[")[0] if c.isalnum())


def test_rows_are_stored_in_order_with_their_headers(server: Server, name: str) -> None:
    js = stream(server, name)
    headers = pa.array([[("A", ["1", "2"])], None, []], pa.map_(pa.string(), pa.list_(pa.string())))
    rows = pa.RecordBatch.from_arrays(
        [pa.array([f"{name}.a", f"{name}.b", f"{name}.c"]), pa.array(["x", None, "z"]), headers],
        names=["subject", "data", "headers"],
    )
    with Publisher(options(server, stream=name), "test") as publisher:
        publisher.publish(rows)
        publisher.flush()
        assert (publisher.acked, publisher.duplicates, publisher.last_seq) == (3, 0, 3)
    expect = b"Nats-Expected-Stream: " + name.encode() + b"\r\n\r\n"
    assert contents(js, name) == [
        (f"{name}.a", b"NATS/1.0\r\nA: 1\r\nA: 2\r\n" + expect, b"x"),
        (f"{name}.b", b"NATS/1.0\r\n" + expect, b""),
        (f"{name}.c", b"NATS/1.0\r\n" + expect, b"z"),
    ]


def test_ids_are_counted_over_all_batches_and_keep_out_what_is_there(
    server: Server, name: str
) -> None:
    js = stream(server, name)
    for duplicates in (0, 5000):
        with Publisher(options(server, maxInflight="100"), "test", id_prefix="i-") as publisher:
            for _ in range(5):
                publisher.publish(numbered(name, 1000))
            publisher.flush()
            assert (publisher.acked, publisher.duplicates) == (5000, duplicates)
    assert js.stream_info(name).state.messages == 5000
    assert b"Nats-Msg-Id: i-4999\r\n" in _header(js, name, 5000)


def _header(js: JetStream, name: str, seq: int) -> bytes:
    message = js.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
    return base64.b64decode(message["hdrs"])


CASES: list[tuple[str, dict[str, Any], dict[str, Any], type[PublishError], int]] = [
    ("size", {"max_msg_size": 3}, {"data": ["1", "12345"]}, TooLarge, 10054),
    ("ttl", {}, {"ttl": [None, "5s"]}, TtlRefused, 10166),
    ("subject_seq", {}, {"expected_last_subject_seq": [None, 9]}, WrongLastSequence, 10071),
    ("seq", {}, {"expected_last_seq": [None, 9]}, WrongLastSequence, 10071),
    ("stream", {}, {"stream": [None, "OTHER"]}, StreamMismatch, 10060),
    ("full", {"max_msgs": 1, "discard": "new"}, {}, StreamFull, 10077),
]


@pytest.mark.parametrize(("case", "config", "columns", "kind", "code"), CASES, ids=lambda v: "")
def test_what_a_stream_refuses_names_the_row(
    server: Server,
    case: str,
    config: dict[str, Any],
    columns: dict[str, Any],
    kind: type[PublishError],
    code: int,
) -> None:
    name = f"refuses{case}"
    js = stream(server, name, **config)
    rows = rows_of(subject=[f"{name}.a", f"{name}.b"], **columns)
    with Publisher(options(server), "test") as publisher:
        with pytest.raises(kind) as caught:
            publisher.publish(rows)
            publisher.flush()
        with pytest.raises(NatsError, match="failed before"):
            publisher.publish(rows)
    error = caught.value
    assert (error.code, error.row, error.subject) == (code, 1, f"{name}.b")
    assert f"row 1 (subject '{name}.b')" in str(error)
    assert js.stream_info(name).state.messages == 1


def test_rows_that_cannot_be_sent_are_named(server: Server, name: str) -> None:
    stream(server, name)
    with Publisher(options(server), "test") as publisher:
        publisher.publish(numbered(name, 10))
        with pytest.raises(BadRow, match=r"row 11 \(subject 'a b'\): there is a blank") as caught:
            publisher.publish(rows_of(subject=[f"{name}.x", "a b"]))
        assert caught.value.row == 11
    large = rows_of(subject=[f"{name}.x"], data=["x" * (1 << 20 | 1)])
    with (
        Publisher(options(server), "test") as publisher,
        pytest.raises(BadRow, match=r"row 0 .*max_payload"),
    ):
        publisher.publish(large)


def test_the_largest_payload_goes_through_a_small_window(server: Server, name: str) -> None:
    js = stream(server, name)
    data = ["x" * (1 << 20), "y", "z" * (1 << 20)]
    given = options(server, maxInflightBytes="1k", maxInflight="2")
    with Publisher(given, "test") as publisher:
        publisher.publish(rows_of(subject=[f"{name}.a"] * 3, data=data))
        publisher.flush()
        assert publisher.acked == 3
    assert [len(row[2]) for row in contents(js, name)] == [1 << 20, 1, 1 << 20]


def test_a_subject_that_no_stream_takes(server: Server) -> None:
    words = r"row 0 \(subject 'nobody.home'\).*gave up after 1 retries"
    with Publisher(options(server), "test") as publisher, pytest.raises(NoStream, match=words):
        publisher.publish(rows_of(subject=["nobody.home"]))
        publisher.flush()


def test_an_answer_of_another_service_is_no_ack(server: Server) -> None:
    words = "answer is no stream's"
    with Publisher(options(server), "test") as publisher, pytest.raises(NoStream, match=words):
        publisher.publish(rows_of(subject=["$JS.API.INFO"]))
        publisher.flush()


def test_a_stream_that_comes_in_time_gets_the_rows(server: Server, name: str) -> None:
    with Publisher(options(server, retries="5"), "test") as publisher:
        publisher.publish(numbered(name, 100))
        timer = threading.Timer(0.4, stream, (server, name))
        timer.start()
        publisher.flush()
        timer.join()
        assert publisher.acked == 100


def test_a_ttl_is_kept_where_the_stream_allows_it(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    js = stream(server, "S", allow_msg_ttl=True)
    with Publisher(options(server), "test") as publisher:
        publisher.publish(rows_of(subject=["S.a", "S.b", "S.c"], ttl=[1, None, None]))
        publisher.flush()
    end = time.monotonic() + 10
    while js.stream_info("S").state.messages > 2:
        assert time.monotonic() < end, "the message with a TTL stays"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["jsserver", "peer"])
@pytest.mark.parametrize("kill", [False, True])
def test_a_server_that_is_restarted_in_between(servers: Servers, kind: str, kill: bool) -> None:
    """Rows with ids are there once; those that were acked before a crash stay there."""
    server = (servers.under_test if kind == "jsserver" else servers.peer)(jetstream=True)
    stream(server, "S")
    done = threading.Event()
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            with Publisher(options(server, retries="9"), "test", id_prefix="i-") as publisher:
                while not done.is_set():
                    publisher.publish(numbered("S", 500))
                publisher.flush()
                counts.append((publisher.rows, publisher.acked))
        except BaseException as error:
            failures.append(error)

    counts: list[tuple[int, int]] = []
    thread = threading.Thread(target=publish)
    thread.start()
    for _ in range(2):
        _wait_growing(server)
        server.restart(kill=kill)
    _wait_growing(server)
    done.set()
    thread.join(60)
    assert not failures and not thread.is_alive()
    rows, acked = counts[0]
    assert rows == acked == connected(server).stream_info("S").state.messages


def _wait_growing(server: Server) -> None:
    end = time.monotonic() + 20
    js = connected(server)
    first = None
    while time.monotonic() < end:
        try:
            last = js.stream_info("S").state.last_seq
        except NatsError:  # not up yet
            last = 0
        if first and last > first:
            js.close()
            return
        first = first or last
        time.sleep(0.02)
    raise AssertionError("nothing is published any more")


def test_a_server_that_is_just_starting_is_waited_for(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.under_test(jetstream=True)
    js = stream(server, "S")
    server.stop()
    tries = call_at_sleep(monkeypatch, 2, server.start)
    with Publisher(options(server, retries="2"), "test") as publisher:
        monkeypatch.undo()
        publisher.publish(numbered("S", 10))
        publisher.flush()
    assert tries[:2] == [0.25, 0.5]
    js = connected(server)
    assert js.stream_info("S").state.messages == 10
    server.stop()
    with pytest.raises(NatsError, match="cannot connect"):
        Publisher(options(server, retries="0"), "test")


def test_a_server_that_stays_away_is_an_error_in_bounded_time(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    stream(server, "S")
    with Publisher(options(server, retries="2"), "test") as publisher:
        publisher.publish(numbered("S", 10))
        publisher.flush()
        server.kill()
        started = time.monotonic()
        with pytest.raises(NotAcked, match="gave up after 2 retries"):
            publisher.publish(numbered("S", 10))
            publisher.flush()
        assert time.monotonic() - started < 10


class Silent:
    """A server that takes everything and acks nothing."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self.listener.getsockname()[1]}"
        self.taken = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        client.sendall(b'INFO {"max_payload":1048576,"headers":true}\r\n')
        with client, client.makefile("rb") as lines:
            for line in lines:
                self.taken += line.startswith(b"PUB ")
                if line == b"PING\r\n":
                    client.sendall(b"PONG\r\n")


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.listener.close()


def test_rows_without_acks_are_sent_again_and_then_an_error(silent: Silent) -> None:
    given = {"servers": silent.url, "ackTimeout": "200ms", "retries": "2"}
    with Publisher(SinkOptions.read(given, "test"), "test") as publisher:
        publisher.publish(rows_of(subject=["a", "b"]))
        with pytest.raises(NotAcked, match=r"row 0 \(subject 'a'\): no ack came for 0.2 s.*2 retr"):
            publisher.flush()
    assert silent.taken == 6


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate for 127.0.0.1 that signs itself; both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_path, path = folder / "key.pem", folder / "cert.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return key_path, path


def test_rows_go_through_tls(servers: Servers, tmp_path: Path) -> None:
    """While the server stands still, more than a socket holds: TLS is offered some bytes twice."""
    key, cert = certificate(tmp_path)
    server = servers.peer(jetstream=True, args=["--tls", f"--tlscert={cert}", f"--tlskey={key}"])
    given = {"tls.caFile": str(cert)}
    js = JetStream(options(server, **given))
    js.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "duplicate_window": 600 * SECOND})
    rows = rows_of(subject=["S.a"] * 2000, data=[str(i) * 1500 for i in range(2000)])
    with Publisher(options(server, **given), "test", id_prefix="i-") as publisher:
        os.kill(server.pid, signal.SIGSTOP)
        timer = threading.Timer(0.4, os.kill, (server.pid, signal.SIGCONT))
        timer.start()
        for _ in range(8):
            publisher.publish(rows)
        publisher.flush()
        assert (publisher.acked, publisher.duplicates) == (16_000, 0)
    assert js.stream_info("S").state.messages == 16_000
