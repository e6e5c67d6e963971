"""How long a server takes from its execution to the first PONG of a client that keeps trying.

Medians of wall and processor time over some starts, each in a folder of its own: plain, with
JetStream on an empty store, and with monitoring.
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.servers import (
    OWN_NAME,
    PEER_NAME,
    MissingServer,
    command_of,
    free_port,
    machine,
    process_tree,
    version_of,
)
from jsserver.process.procs import die_with_parent

PATIENCE_SECONDS = 30.0
FORMS: dict[str, list[str]] = {
    "plain": [],
    "-js": ["-js", "-sd", "{folder}"],
    "-m": ["-m", "{port}"],
}


def first_pong(port: int, end: float) -> None:
    """Returns when a client on this port has its PONG; TimeoutError after `end`."""
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as client:
                client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                answer = b""
                while b"PONG\r\n" not in answer:
                    answer += client.recv(4096)
                return
        except ConnectionRefusedError:
            time.sleep(0.0005)
    raise TimeoutError("nobody answers")


def processor_ms(pid: int) -> float:
    """What all threads of a process and of its children have used, in milliseconds."""
    used = 0
    for process in process_tree(pid):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
                used += int((task / "schedstat").read_text().split()[0])
    return used / 1e6


def start(name: str, form: str) -> tuple[float, float]:
    """One start: milliseconds of wall time, and of processor time."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"start-{name}-") as folder:
        words = [word.format(folder=folder, port=free_port()) for word in FORMS[form]]
        command = [*command_of(name), "-a", "127.0.0.1", "-p", str(port), *words]
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        try:
            first_pong(port, begin + PATIENCE_SECONDS)
            wall = (time.monotonic() - begin) * 1e3
            return wall, processor_ms(process.pid)
        finally:
            process.terminate()
            process.wait()


def medians(name: str, form: str, starts: int) -> dict[str, float]:
    start(name, form)  # brings the files into memory
    walls, processors = zip(*(start(name, form) for _ in range(starts)), strict=True)
    return {"wall_ms": statistics.median(walls), "processor_ms": statistics.median(processors)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/start.py", description=__doc__)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    try:
        versions = [version_of(name) for name in names]
        found = {n: {form: medians(n, form, given.starts) for form in FORMS} for n in names}
    except (MissingServer, TimeoutError) as error:
        print(f"bench/start.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    print(machine(), *versions, f"medians of {given.starts} starts", sep="\n")
    for name, forms in found.items():
        for form, taken in forms.items():
            wall, processor = taken["wall_ms"], taken["processor_ms"]
            print(f"{name:12} {form:6} {wall:7.1f} ms, {processor:7.1f} ms of processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
