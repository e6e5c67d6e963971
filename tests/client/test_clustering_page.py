"""The commands of docs/clustering.md start a first cluster, which keeps what it acked."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

from nats.errors import Error as ClientError
from nats.js.errors import Error as JetStreamError

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import page
from tests.client.raw import RawApp, TimedOut
from tests.servers import Servers, free_port
from tests.waiting import wait_until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "clustering.md").read_text()
PID = re.compile(r"^\[(\d+)\]", re.MULTILINE)


def block(heading: str, language: str) -> str:
    """The first block of code of a section."""
    found = re.search(rf"\n## {heading}\n.*?```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def free_ports() -> str:
    """The first digits of three free ports that end in 1, 2 and 3."""
    while True:
        start = str(free_port() // 10)
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for n in "123":
                probe = probes.enter_context(socket.socket())
                probe.bind(("127.0.0.1", int(start + n)))
            return start


def killed(log: Path) -> None:
    """Kills the server of this log; its process id begins each line."""
    if log.exists() and (found := PID.search(log.read_text())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(found[1]), signal.SIGKILL)


def test_the_three_that_one_tries(tmp_path: Path) -> None:
    """On other ports; one server is killed, and the others go on."""
    starts = {start: free_ports() for start in ("422", "622", "822")}
    script = re.sub("[468]22", lambda found: starts[found[0]], block("Try it", "sh"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    logs = [tmp_path / f"n{n}.log" for n in (1, 2, 3)]
    try:
        subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=20,
        )
        for log in logs:
            wait_until(partial(ready, log), f"{log} says that its server is ready")
        with RawApp(int(starts["422"] + "1")) as app:
            config = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 3}
            create = "$JS.API.STREAM.CREATE.ORDERS", json.dumps(config).encode()
            wait_until(lambda: says(app, *create, b'"did_create"'), "a stream")
            wait_until(lambda: says(app, "orders.new", b"one table", b'"seq"'), "an ack")
            killed(logs[1])
            # Another server may lead now: the killed one may have been the stream's leader.
            wait_until(lambda: says(app, "orders.new", b"two chairs", b'"seq"'), "another ack")
    finally:
        for log in logs:
            killed(log)


def ready(log: Path) -> bool:
    return log.exists() and "Server is ready" in log.read_text()


def says(app: RawApp, subject: str, body: bytes, word: bytes) -> bool:
    """Whether the answer has the word; without a leader there may be no answer."""
    with contextlib.suppress(TimedOut):
        return word in app.request(subject, body, timeout=2).payload
    return False


@asynchronous
async def test_the_configuration_of_three_servers(servers: Servers) -> None:
    ports = {name: free_port() for name in ("n1", "n2", "n3")}
    members = []
    for name, own in ports.items():
        config = block("Three servers", "").replace("server_name: n1", f"server_name: {name}")
        config = config.replace("0.0.0.0:6222", f"127.0.0.1:{own}").replace("10GB", "1MB")
        for other, port in ports.items():
            config = config.replace(f"{other}:6222", f"127.0.0.1:{port}")
        members.append(servers.under_test(config=config, jetstream=True, monitor=True))

    def led() -> bool:
        found = [page(one, "jsz")["meta_cluster"] for one in members]
        return all(one.get("leader") and one["cluster_size"] == 3 for one in found)

    await until(led)
    async with connected(members[2], user="shop", password="secret") as client:
        js = client.jetstream(timeout=10)

        async def made() -> bool:
            try:
                await js.add_stream(name="S", subjects=["s"], num_replicas=3)
            except (ClientError, JetStreamError):
                await asyncio.sleep(0.1)  # until all servers know each other
                return False
            return True

        await until(made)
        assert (await js.publish("s", b"x")).seq == 1
