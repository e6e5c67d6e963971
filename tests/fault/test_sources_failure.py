"""What a stream has taken in when its disk fails: what was refused with it is asked for again."""

import errno
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.servers import Server, Servers
from tests.waiting import wait_until

COUNT = 1000
SECONDS = 40
CONFIGS: dict[str, dict[str, Any]] = {
    "M": {"mirror": {"name": "O"}},
    "S": {"sources": [{"name": "O"}]},
}


def start(servers: Servers, faults: Faults, name: str, retention: str) -> Server:
    """The origin is in memory: its disk cannot fail."""
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port) as app:
        origin = {"subjects": ["o"], "storage": "memory", "retention": retention}
        for stream, config in (("O", origin), (name, CONFIGS[name])):
            assert "error" not in app.api(f"STREAM.CREATE.{stream}", {"name": stream, **config})
    return server


def state(app: RawApp, stream: str) -> dict[str, int]:
    """Empty while it fails."""
    found: Any = app.api(f"STREAM.INFO.{stream}").get("state", {})
    return dict(found)


def bodies(app: RawApp, stream: str) -> list[int]:
    found = []
    for seq in range(1, state(app, stream)["last_seq"] + 1):
        answer: Any = app.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        found.append(int(b64decode(answer["message"]["data"])))
    return found


@pytest.mark.parametrize("op", ["sync", "pwrite"])
@pytest.mark.parametrize(
    ("name", "retention"), [("M", "limits"), ("S", "limits"), ("S", "workqueue")]
)
def test_nothing_is_left_out(
    servers: Servers, tmp_path: Path, op: str, name: str, retention: str
) -> None:
    faults = Faults(tmp_path, f"/streams/{name}/")
    server = start(servers, faults, name, retention)
    with RawApp(server.port, timeout=SECONDS) as app:
        app.publish("o", b"0")
        wait_until(lambda: state(app, name).get("last_seq") == 1, "the first")
        faults.fail(op, errno.EIO, after=3, times=1)
        for n in range(1, COUNT):
            app.publish("o", b"%d" % n)
            if n % 100 == 0:
                state(app, name)
        wait_until(lambda: faults.seen(op) > 0, "it fails", SECONDS)
        server.wait_log(f"Stream '$G > {name}': writing to disk works again", SECONDS)
        app.publish("o", b"%d" % COUNT)
        wait_until(lambda: state(app, name).get("last_seq", 0) > COUNT, "all is here", SECONDS)
        assert bodies(app, name) == list(range(COUNT + 1))
        if retention == "workqueue":
            wait_until(lambda: state(app, "O")["messages"] == 0, "all is acked", SECONDS)
