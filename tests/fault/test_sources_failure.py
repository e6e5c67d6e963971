"""What a stream has taken in when its disk fails: what was refused with it is asked for again."""

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.servers import Server, Servers
from tests.waiting import wait_until

COUNT = 3000
SECONDS = 40


def start(servers: Servers, faults: Faults) -> Server:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port) as app:
        for name, config in (
            ("O", {"subjects": ["o"], "storage": "memory"}),
            ("M", {"mirror": {"name": "O"}}),
            ("S", {"sources": [{"name": "O"}], "allow_direct": True}),
        ):
            assert "error" not in app.api(f"STREAM.CREATE.{name}", {"name": name, **config})
    return server


def bodies(app: RawApp, stream: str) -> list[object]:
    state: Any = app.api(f"STREAM.INFO.{stream}")["state"]
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        message: Any = app.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]
        found.append(message["data"])
    return found


@pytest.mark.parametrize("op", ["sync", "pwrite"])
@pytest.mark.parametrize("name", ["M", "S"])
def test_nothing_is_left_out(servers: Servers, tmp_path: Path, op: str, name: str) -> None:
    faults = Faults(tmp_path, f"/streams/{name}/")
    server = start(servers, faults)
    with RawApp(server.port, timeout=SECONDS) as app:

        def last(stream: str) -> int:
            state: Any = app.api(f"STREAM.INFO.{stream}").get("state", {})
            return int(state.get("last_seq", 0))

        app.publish("o", b"-1")
        wait_until(lambda: last(name) == 1, "the first")
        faults.fail(op, errno.EIO, after=3, times=1)
        for n in range(COUNT):
            app.publish("o", b"%d" % n)
            if n % 100 == 0:
                last(name)
        wait_until(lambda: faults.seen(op) > 0, "it fails", SECONDS)
        server.wait_log(f"Stream '$G > {name}': writing to disk works again", SECONDS)
        app.publish("o", b"last")
        wait_until(lambda: last(name) >= COUNT + 2, f"{name} has all", SECONDS)
        assert bodies(app, name) == bodies(app, "O")
