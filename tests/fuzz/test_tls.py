"""Whatever comes before and within TLS: a broken stream gives no message that nobody sent, and what
a PROXY header says does not depend on how it is cut.

Reactors take their turns here, so every run is the same.
"""

import contextlib
import itertools
import os
import random
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority

net = pytest.importorskip("tests.cext.net", reason="the data plane is not built here")
tls = pytest.importorskip("jsserver.cext.tls", reason="the data plane is not built here")

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)
TURNS = 60


class World:
    """A listener of the lines' protocol with TLS, a subscriber in memory that hears what comes."""

    def __init__(self, folder: Path, *, secured: bool = True, proxied: bool = False) -> None:
        self.authority = Authority(folder)
        issued = self.authority.server()
        pair = (issued.cert.read_bytes(), issued.key.read_bytes())
        self.context = tls.SecurityContext(
            [pair], ciphers="DEFAULT", groups="X25519", timeout=5_000_000_000
        )
        self.reactor = net.PyReactor()
        self.ear = self.reactor.open("echo", "router")
        self.reactor.send(self.ear, b"<a\n")
        self.reactor.turn()
        self.reactor.received(self.ear)
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.listener.setblocking(False)
        number = self.reactor.listen(self.listener.fileno(), "echo", "client")
        self.reactor.secure(number, self.context.security() if secured else None, proxied)

    def connect(self) -> socket.socket:
        made = socket.create_connection(self.listener.getsockname(), 5)
        self.reactor.poll(50)
        made.settimeout(5)
        assert made.recv(6) == b"hello\n"  # what is said before the handshake
        made.setblocking(False)
        return made

    def poll(self) -> None:
        self.reactor.poll(1)

    def heard(self) -> bytes:
        taken: bytes = self.reactor.received(self.ear)
        return taken


def read(sock: socket.socket) -> bytes | None:
    """What has come; None at the end."""
    try:
        data = sock.recv(65536)
    except BlockingIOError:
        return b""
    except ConnectionError:
        return None
    return data or None


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("certificates"))


class Talk:
    """A client's end of a handshake and what follows, by which `spoil` may change what is sent."""

    def __init__(self, world: World, rng: random.Random, version: ssl.TLSVersion) -> None:
        self.world = world
        self.rng = rng
        context = world.authority.client_context(least=version, most=version)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.socket = world.connect()
        self.open = True

    def send(self, data: bytes) -> None:
        at = 0
        while at < len(data) and self.open:
            size = self.rng.choice([1, 5, 6, 100, 4096, 1 << 20])
            with contextlib.suppress(BlockingIOError):
                try:
                    at += self.socket.send(data[at : at + size])
                except ConnectionError:
                    self.open = False
            self.turn()

    def turn(self) -> None:
        self.world.poll()
        data = read(self.socket)
        if data is None:
            self.open = False
        elif data:
            self.incoming.write(data)

    def handshake(self, spoilt: int) -> bool:
        """Whether it was made; flight number `spoilt` goes broken."""
        flight = 0
        for _ in range(TURNS):
            done = False
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            data = self.outgoing.read()
            if data:
                self.send(spoil(data, self.rng) if flight == spoilt else data)
                flight += 1
            if done or not self.open:
                return done
            self.turn()
        return False


def spoil(data: bytes, rng: random.Random) -> bytes:
    """The bytes with something wrong."""
    broken = bytearray(data)
    at = rng.randrange(len(broken))
    match rng.randrange(6):
        case 0:
            broken[at] ^= 1 << rng.randrange(8)
        case 1:
            del broken[at:]
        case 2:
            broken[at:at] = rng.randbytes(rng.choice([1, 5, 300]))
        case 3:
            del broken[at : at + rng.choice([1, 5, 300])]
        case 4:
            broken[at:at] = bytes([rng.choice([20, 21, 22, 23, 24, 255]), 3, 3, 0, 1, 0])
        case 5:
            broken[1:5] = rng.randbytes(4)
    return bytes(broken)


def test_broken_streams(world: World) -> None:
    end = time.monotonic() + FUZZ_SECONDS
    made = broken = 0
    for seed in range(1_000_000):
        if time.monotonic() > end:
            break
        rng = random.Random(seed)
        version = rng.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
        spoilt = rng.choice([0, 1, 2, 2, 3])  # 2: what is sent behind the handshake, 3: nothing
        talk = Talk(world, rng, version)
        try:
            if not talk.handshake(spoilt):
                broken += 1
                continue
            made += 1
            payload = rng.randbytes(rng.choice([1, 100, 16384, 20000])).hex().encode()
            talk.tls.write(b"a " + payload + b"\n")
            sent = talk.outgoing.read()
            talk.send(spoil(sent, rng) if spoilt == 2 else sent)
            heard = b""
            for _ in range(TURNS):
                talk.turn()
                heard += world.heard()
                if heard.endswith(b"\n") or not talk.open:
                    break
            heard += world.heard()
            assert heard in (b"", b"a " + payload + b"\n"), seed
            if spoilt == 3:
                assert heard, seed
        finally:
            talk.socket.close()
            world.poll()
    print(f"{made} handshakes, and {broken} that were broken")
    assert made > 20 and broken > 5


@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 70, 1000, 70000])
def test_noise(world: World, length: int) -> None:
    for seed in range(8):
        rng = random.Random(seed * 1000 + length)
        begin = rng.choice(
            [b"", b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x00\x40\x01", b"\x80\x2e"]
        )
        sock = world.connect()
        with contextlib.suppress(OSError):
            sock.send(begin + rng.randbytes(length))
        for _ in range(5):
            world.poll()
        sock.close()
        world.poll()
    assert world.heard() == b""


def test_records_that_mean_nothing_end_the_connection(world: World) -> None:
    talk = Talk(world, random.Random(1), ssl.TLSVersion.TLSv1_3)
    assert talk.handshake(-1)
    talk.send(b"\x14\x03\x03\x00\x01\x01" * 5000)  # change_cipher_spec, which 1.3 has no use for
    for _ in range(TURNS):
        talk.turn()
    assert not talk.open
    talk.socket.close()


# ---- PROXY headers


def headers(rng: random.Random) -> bytes:
    """Something near a header."""
    signature = b"\r\n\r\n\x00\r\nQUIT\n"
    words = [b"TCP4", b"TCP6", b"UNKNOWN", b"1.2.3.4", b"::1", b"99999", b"80", b"", b"\t", b"x"]
    if rng.random() < 0.5:
        line = b"PROXY " + b" ".join(rng.choices(words, k=rng.randrange(8)))
        return (line + rng.choice([b"\r\n", b"\n", b"\r", b""]))[: rng.choice([200, 200, 8])]
    size = rng.choice([0, 5, 11, 12, 13, 35, 36, 40, 300])
    head = bytes([rng.choice([0x20, 0x21, 0x22, 0x31]), rng.choice([0, 1, 0x11, 0x12, 0x21, 0x31])])
    return signature + head + size.to_bytes(2, "big") + rng.randbytes(size)


def outcome(world: World, data: bytes, pieces: list[bytes]) -> tuple[bool, bytes, str]:
    """Whether the connection lives, what was heard, and what the control plane is told of it."""
    world.reactor.items()
    sock = world.connect()
    for piece in pieces:
        with contextlib.suppress(OSError):
            sock.send(piece)
        world.poll()
    for _ in range(8):
        world.poll()
    alive = read(sock) is not None and read(sock) is not None
    heard = world.heard()
    told = [item.texts[2] for item in world.reactor.items() if item.kind == 107]
    sock.close()
    world.poll()
    world.reactor.items()
    return alive, heard, repr(told)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield World(tmp_path_factory.mktemp("certificates"), secured=False, proxied=True)


def test_a_header_means_the_same_however_it_is_cut(proxied: World) -> None:
    end = time.monotonic() + FUZZ_SECONDS
    for seed in range(1_000_000):
        if time.monotonic() > end:
            break
        rng = random.Random(seed)
        data = headers(rng) + b"a hello\n"
        places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(5)))
        edges = [0, *places, len(data)]
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        whole = outcome(proxied, data, [data])
        assert outcome(proxied, data, pieces) == whole, (seed, data)
        assert whole[1] in (b"", b"a hello\n"), (seed, data)
    print(f"{seed} headers, each whole and cut")
