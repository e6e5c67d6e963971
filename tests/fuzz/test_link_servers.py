"""Servers that shake hands with ours and then say what no server says: ours stays, and serves its
clients. `$FUZZ_SECONDS` is how long this goes on, for each kind of link."""

import contextlib
import itertools
import json
import os
import random
import socket
import time

import pytest

from tests.client.raw import RawClient
from tests.fuzz.transport import SEED
from tests.servers import Server, Servers, free_port

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
BIG = "9" * 12
WORDS = [
    *("$G", "A", "$SYS", "a", "a.b", ">", "*", "a.*", "a.>", "..", "a..b", "$LDS.x", "_GR_.aaaaaa"),
    *("_GR_.aaaaaa.bbbbbb.x", "_R_.x.y.z.T", "$JS.ACK.S.D.1.2.3.4.5@s", "@", "+", "|", "q", "0"),
    *("1", "2", "12", "40", "-1", BIG, "x" * 300, "x" * 5000, "\x00", "\xff", ""),
]
VERBS = {
    "route": ["RS+", "RS-", "LS+", "LS-", "RMSG", "HMSG", "LMSG", "A+", "A-"],
    "leaf": ["LS+", "LS-", "LMSG", "HMSG", "A+", "RS+"],
    "gateway": ["RS+", "RS-", "RMSG", "HMSG", "A+", "A-"],
}
COMMON = ["PING", "PONG", "INFO {}", "INFO {", "-ERR 'x'", "+OK", "CONNECT {}", "", "\x00"]
SAID = {"server_id": "NX", "server_name": "X", "version": "2.14.5", "proto": 3, "headers": True}
numbers = itertools.count(1)


def lines_of(rand: random.Random, kind: str) -> bytes:
    """Some lines of a kind of link, most of which it has."""
    found = b""
    for _ in range(rand.randint(1, 30)):
        verb = rand.choice(VERBS[kind] if rand.random() < 0.95 else COMMON)
        words = [rand.choice(WORDS) for _ in range(rand.randint(0, 6))]
        if "MSG" in verb and rand.random() < 0.8:
            size = rand.randint(0, 40)
            start = ["$G"] if kind != "leaf" else []
            words = [*start, rand.choice(WORDS[3:8]), *words[:2], str(size)]
            if verb == "HMSG":
                words.insert(-1, str(rand.randint(0, size)))
            found += " ".join([verb, *words]).encode("latin-1") + b"\r\n"
            found += rand.randbytes(size if rand.random() < 0.95 else size // 2) + b"\r\n"
        else:
            found += " ".join([verb, *words]).encode("latin-1") + b"\r\n"
    if rand.random() < 0.2:
        at = rand.randrange(len(found))
        found = found[:at] + rand.randbytes(rand.randint(1, 8)) + found[at + 1 :]
    return found


def greeting(kind: str) -> bytes:
    """What another server says first; each time it is another one."""
    said = SAID | {"server_id": f"NX{next(numbers)}", "server_name": f"X{next(numbers)}"}
    connect = {"name": said["server_id"], "verbose": False, "headers": True, "cluster": "C"}
    more: dict[str, object] = {"cluster": "C", "route_pool_size": 0, "lnoc": True, "ln": True}
    if kind == "leaf":
        connect |= {"cluster": f"L{rand_name()}", "version": "2.14.5", "remote_account": "$G"}
        return f"CONNECT {json.dumps(connect)}\r\n".encode()
    if kind == "gateway":
        more = {"gateway": "OTHER", "gateway_iom": True, "gateway_url": "127.0.0.1:1"}
        connect |= {"gateway": "OTHER"}
    return f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(said | more)}\r\n".encode()


def rand_name() -> int:
    return next(numbers) % 50


def is_served(server: Server) -> None:
    with RawClient(server.port) as client:
        client.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n')
        assert [frame.verb for frame in client.until("PONG")].count("MSG") >= 1


def talk(rand: random.Random, port: int, kind: str) -> None:
    """One connection, from its handshake to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as there:
        there.settimeout(0.05)
        with contextlib.suppress(OSError):
            there.sendall(greeting(kind))
            for _ in range(rand.randint(1, 10)):
                there.sendall(lines_of(rand, kind))
                with contextlib.suppress(TimeoutError):
                    while there.recv(65536):
                        pass


@pytest.mark.parametrize("kind", VERBS)
def test_noise_behind_the_handshake(servers: Servers, kind: str) -> None:
    ports = {one: free_port() for one in VERBS}
    config = f"""
        server_name: OURS
        cluster {{ name: C, listen: "127.0.0.1:{ports["route"]}" }}
        leafnodes {{ listen: "127.0.0.1:{ports["leaf"]}" }}
        gateway {{ name: C, listen: "127.0.0.1:{ports["gateway"]}" }}
        accounts {{ SYS {{}}, A {{}} }}
        system_account: SYS
    """
    server = servers.under_test(config=config)
    rand, until = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < until:
        for _ in range(5):
            talk(rand, ports[kind], kind)
        is_served(server)
