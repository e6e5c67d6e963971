"""What large configurations cost: a check with `-t`, a start, a reload, and who waits meanwhile.

Each server gets the same files. Times are wall and processor time; a start lasts until a user of
the configuration has its PONG, a reload of a file in which one user is new until that one is let
in. Meanwhile another user logs in again and again, and its longest wait is told.
"""

import argparse
import json
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.logins import token
from bench.servers import (
    OWN_NAME,
    PEER_NAME,
    MissingServer,
    Server,
    command_of,
    machine,
    version_of,
)
from jsserver.bench.wire import BenchError
from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR
from jsserver.text.nkeys import SigningPair

PATIENCE_SECONDS = 60.0
LOGIN_PAUSE = 0.003
SUBJECTS = 24
"""Of each user's permissions."""


# ---- the files


def user(number: int, subjects: int = SUBJECTS) -> str:
    half = subjects // 2
    publish = ", ".join(f'"app.{number}.pub.{k}.>"' for k in range(half))
    subscribe = ", ".join(f'"app.{number}.sub.{k}.*"' for k in range(subjects - half))
    permissions = f"{{ publish: {{ allow: [{publish}] }}, subscribe: {{ allow: [{subscribe}] }} }}"
    return f'{{ user: "u{number}", password: "p{number}", permissions: {permissions} }}'


def users(count: int) -> str:
    """One account, whose users have permissions."""
    each = "\n".join(map(user, range(count)))
    return f"authorization {{ users: [\n{{ user: u, password: p }}\n{each}\n] }}"


def tenants(count: int, accounts: int) -> str:
    """Accounts that share services and streams, with users who have permissions."""
    parts = ["T: { users: [{ user: u, password: p }] }"]
    for a in range(accounts):
        b = (a + 1) % accounts
        exports = ", ".join(
            f'{{ service: "svc.{a}.{k}" }}, {{ stream: "ev.{a}.{k}.>" }}' for k in range(5)
        )
        imports = ", ".join(
            f'{{ service: {{ account: A{b}, subject: "svc.{b}.{k}" }} }},'
            f' {{ stream: {{ account: A{b}, subject: "ev.{b}.{k}.>" }} }}'
            for k in range(5)
        )
        each = "\n".join(map(user, range(a * count // accounts, (a + 1) * count // accounts)))
        parts.append(f"A{a}: {{\nexports: [{exports}]\nimports: [{imports}]\nusers: [\n{each}\n]}}")
    return "accounts {\n" + "\n".join(parts) + "\n}"


def shares(count: int) -> str:
    """Two accounts, one of which imports all that the other exports."""
    exports = "\n".join(f'{{ service: "svc.{k}" }}\n{{ stream: "ev.{k}.>" }}' for k in range(count))
    imports = "\n".join(
        f'{{ service: {{ account: A, subject: "svc.{k}" }} }}\n'
        f'{{ stream: {{ account: A, subject: "ev.{k}.>" }} }}'
        for k in range(count)
    )
    return (
        f"accounts {{\nT: {{ users: [{{ user: u, password: p }}] }}\n"
        f"A: {{ exports: [\n{exports}\n] }}\nB: {{ imports: [\n{imports}\n] }}\n}}"
    )


def mappings(count: int) -> str:
    each = "\n".join(f'"from.{k}.*": "to.{k}.{{{{wildcard(1)}}}}"' for k in range(count))
    return f"authorization {{ users: [ {{ user: u, password: p }} ] }}\nmappings {{\n{each}\n}}"


def tokens(count: int) -> str:
    """Operator mode with the tokens of many accounts; nobody logs in."""
    operator = SigningPair(PREFIX_OPERATOR)
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    body = {"limits": {**limits, "wildcards": True}}
    keys = [SigningPair(PREFIX_ACCOUNT).public for _ in range(count)]
    each = "\n".join(f"{key}: {token(operator, key, 'account', body)}" for key in keys)
    own = token(operator, operator.public, "operator", {"system_account": keys[0]})
    return f"operator: {own}\nresolver: MEMORY\nresolver_preload {{\n{each}\n}}"


FORMS: dict[str, Callable[[], str]] = {
    "few": lambda: users(2),
    "users": lambda: users(1000),
    "accounts": lambda: tenants(5000, 50),
    "shares": lambda: shares(3000),
    "mappings": lambda: mappings(5000),
    "tokens": lambda: tokens(2000),
}


# ---- what is measured


class Configured(Server):
    """A server of a file of ours alone; ready is who says INFO, or lets a user in."""

    def __init__(self, name: str, folder: Path, text: str) -> None:
        super().__init__(name, folder)
        self.file = folder / "server.conf"
        self.by_token = text.startswith("operator")
        self.write(text)

    def write(self, text: str) -> None:
        self.file.write_text(f'listen: "127.0.0.1:{self.port}"\n{text}\n')

    def logs_in(self, name: str, password: str) -> bool:
        """Whether a user is let in; OSError where nobody listens."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as client:
            client.sendall(b'CONNECT {"user":"%b","pass":"%b"}\r\nPING\r\n' % (
                name.encode(), password.encode(),
            ))  # fmt: skip
            said = b""
            while not (b"PONG\r\n" in said or b"-ERR" in said):
                try:
                    data = client.recv(4096)
                except ConnectionResetError:
                    return False
                if not data:
                    return False
                said += data
                if self.by_token and b"INFO" in said:
                    return True
            return b"PONG\r\n" in said

    def _wait_ready(self, end: float) -> None:
        while time.monotonic() < end:
            assert self.process is not None
            if self.process.poll() is not None:
                raise BenchError(f"it ended with code {self.process.returncode}")
            try:
                if self.logs_in("u", "p"):
                    return
            except OSError:
                time.sleep(0.0005)
        raise BenchError("nobody is let in")

    def start(self, seconds: float = PATIENCE_SECONDS) -> float:
        return self.start_with(self.file, seconds)

    def reload(self, end: float) -> None:
        """Returns when the log says that it is done."""
        log = self.folder / "log"
        place = log.stat().st_size
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)
        while time.monotonic() < end:
            with open(log, "rb") as file:
                file.seek(place)
                said = file.read()
            if b"Reloaded server configuration" in said:
                return
            if b"Failed to reload" in said:
                raise BenchError(said.decode(errors="replace"))
            time.sleep(0.001)
        raise BenchError("the reload does not end")


class Waits:
    """Logs in again and again in a thread; `longest` wait in seconds."""

    def __init__(self, server: Configured) -> None:
        self.longest = 0.0
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Waits":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOGIN_PAUSE):
            began = time.monotonic()
            self._server.logs_in("u", "p")
            self.longest = max(self.longest, time.monotonic() - began)


def check(name: str, file: Path) -> float:
    """Processor seconds of `-t`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command_of(name), "-t", "-c", str(file)], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def changed(text: str) -> str:
    """The same with one user more; as it is where there are none."""
    one = "{ user: u, password: p }"
    return text.replace(one, f"{one}, {one.replace('u,', 'n,')}")


def measure(name: str, text: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Configured(name, Path(folder), text)
        found = {"check, processor": check(name, server.file)}
        try:
            found["start"] = server.start()
            found["start, processor"] = server.cpu_seconds()
            time.sleep(0.3)  # what a start leaves for later
            server.write(changed(text))
            with Waits(server) as waits:
                time.sleep(0.1)
                waits.longest, before = 0.0, server.cpu_seconds()
                began = time.monotonic()
                server.reload(began + PATIENCE_SECONDS)
                found["reload"] = time.monotonic() - began
                found["reload, processor"] = server.cpu_seconds() - before
            found["login meanwhile"] = waits.longest
        finally:
            server.kill()
    return {key: 1000 * value for key, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/configurations.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of both servers in turn")
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--form", choices=FORMS, action="append", help="these alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        versions = [version_of(name) for name in names]
        for form in given.form or FORMS:
            text = FORMS[form]()
            rounds = [[measure(name, text) for name in names] for _ in range(given.rounds)]
            for name, runs in zip(names, zip(*rounds, strict=True), strict=True):
                found.setdefault(form, {})[name] = {
                    key: {
                        "min": round(min(run[key] for run in runs), 1),
                        "median": round(statistics.median(run[key] for run in runs), 1),
                    }
                    for key in runs[0]
                }
    except (MissingServer, BenchError) as error:
        print(f"bench/configurations.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    print(machine(), *versions, f"milliseconds, least and median of {given.rounds}", sep="\n")
    for form, by_server in found.items():
        for key in next(iter(by_server.values())):
            row = "  ".join(
                f"{name} {value[key]['min']:8.1f} {value[key]['median']:8.1f}"
                for name, value in by_server.items()
            )
            print(f"{form:9} {key:18} {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
