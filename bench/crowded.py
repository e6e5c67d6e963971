"""Decisions on a crowded machine: how long creations, deletions and logins take.

Each server in turn; beside none, four and twenty processes that never rest. The clients whose time
is taken run before the busy ones (nice -10 where the system allows it), so that what is measured is
the server's own wait for a processor.

api       STREAM.CREATE and STREAM.DELETE in turn by one client
login     a connection with user and password, from its first byte to its PONG
request   request and reply between two clients, while nobody asks the control plane for anything
hammered  the same, while another client makes and deletes streams and asks for their state
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.latency import beside
from bench.servers import OWN_NAME, PEER_NAME, MissingServer, Server, machine, version_of
from jsserver.bench.wire import BenchError, Connection, new_inbox, publish_frame

BUSY = (0, 4, 20)
AHEAD = -10
USERS = 'authorization { users: [ { user: "bench", password: "secret" } ] }\nno_auth_user: bench'
FORK = multiprocessing.get_context("fork")
Times = list[float]


def spin() -> None:
    while True:
        pass


@contextmanager
def ahead() -> Iterator[None]:
    """This process goes before those that are busy."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, AHEAD)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def api(server: Server, seconds: float) -> Times:
    connection = Connection(server.url)
    # nats-server removes the folder of an account's last stream later, from below the next one.
    connection.api("STREAM.CREATE.KEEP", {"name": "KEEP", "subjects": ["keep"]})
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for subject, body in (("CREATE", {"name": "T", "subjects": ["t.>"]}), ("DELETE", None)):
            begin = time.monotonic()
            connection.api(f"STREAM.{subject}.T", body)
            times.append(time.monotonic() - begin)
    connection.close()
    return times


def login(server: Server, seconds: float) -> Times:
    options = b'CONNECT {"user":"bench","pass":"secret","verbose":false}\r\nPING\r\n'
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            said = b""
            while not said.endswith(b"\r\n"):
                said += sock.recv(65536)
            sock.sendall(options)
            said = b""
            while b"PONG" not in said:
                data = sock.recv(65536)
                if not data:
                    raise BenchError(f"a login was refused: {said!r}")
                said += data
        times.append(time.monotonic() - begin)
    return times


def answer(url: str) -> None:
    connection = Connection(url)
    connection.subscribe("echo")
    while True:
        data = connection.receive()
        for line in data.split(b"\r\n"):
            if line.startswith(b"MSG echo "):
                connection.send(publish_frame(line.split(b" ")[3].decode(), b"x"))


def hammer(url: str) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    connection = Connection(url)
    inbox = new_inbox()
    sid = connection.subscribe(inbox)
    body = json.dumps({"name": "H", "subjects": ["h.>"]}).encode()
    frames = [
        publish_frame("$JS.API.STREAM.CREATE.H", body, inbox),
        *[publish_frame("$JS.API.STREAM.INFO.H", b"", inbox)] * 48,
        publish_frame("$JS.API.STREAM.DELETE.H", b"", inbox),
    ]
    while True:
        connection.send(b"".join(frames))
        connection.count_until(f"MSG {inbox} {sid} ".encode(), len(frames))


def request(server: Server, seconds: float) -> Times:
    with beside(lambda: answer(server.url)):
        connection = Connection(server.url)
        inbox = new_inbox()
        connection.subscribe(inbox)
        frame = publish_frame("echo", b"x", inbox)
        times: Times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            try:
                connection.ask(frame)
            except BenchError:  # the one that answers is not there yet
                time.sleep(0.02)
                continue
            times.append(time.monotonic() - begin)
        connection.close()
    return times


def hammered(server: Server, seconds: float) -> Times:
    with beside(lambda: hammer(server.url)):
        return request(server, seconds)


SCENARIOS: dict[str, Callable[[Server, float], Times]] = {
    "api": api,
    "login": login,
    "request": request,
    "hammered": hammered,
}


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    names = [given.server] if given.server else [OWN_NAME, PEER_NAME]
    with tempfile.TemporaryDirectory(prefix="bench-crowded-") as folder:
        servers = [Server(name, Path(folder) / name, config=USERS) for name in names]
        try:
            for server in servers:
                server.start()
            for scenario in given.scenarios or SCENARIOS:
                for count in given.busy:
                    with ExitStack() as busy:
                        for _ in range(count):
                            busy.enter_context(beside(spin))
                        times: dict[str, Times] = {name: [] for name in names}
                        for _ in range(given.rounds):
                            for server in servers:
                                share = given.seconds / given.rounds
                                with ahead():
                                    times[server.name] += SCENARIOS[scenario](server, share)
                    for name in names:
                        taken = statistics.quantiles(times[name], n=1000)
                        yield {
                            "scenario": scenario,
                            "busy": count,
                            "server": name,
                            "count": len(times[name]),
                            **{f"p{n}": taken[int(n * 10) - 1] * 1000 for n in (50, 90, 99, 99.9)},
                        }
        finally:
            for server in servers:
                server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.crowded",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=" ".join(SCENARIOS))
    parser.add_argument("--busy", type=lambda t: [int(n) for n in t.split(",")], default=BUSY)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    found = []
    try:
        if not given.json:
            print(machine(), *map(version_of, [OWN_NAME, PEER_NAME]), sep="\n")
            print(f"{'milliseconds':10} {'busy':>4} {'server':12} {'P50':>8} {'P90':>8} {'P99':>8}")
        for row in rows(given):
            found.append(row)
            if not given.json:
                print(
                    f"{row['scenario']:12} {row['busy']:4} {row['server']:12}"
                    f" {row['p50']:8.2f} {row['p90']:8.2f} {row['p99']:8.2f}",
                    flush=True,
                )
    except (BenchError, MissingServer) as error:
        print(f"bench/crowded.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
