"""A disk without room, a process without descriptors: publishes are refused with the reason, what
frees room still works, and it goes on by itself."""

import json
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.test_disk_failure import health
from tests.servers import Server, Servers
from tests.waiting import wait_until

NO_SPACE = "writing to disk failed: No space left on device"
ROOM = 12 << 20
BODY = b"x" * 20_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with little room."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def publish(app: RawApp, subject: str, body: bytes = BODY) -> str:
    """Why it was refused, empty when it was not."""
    answer = json.loads(app.request(subject, body).payload or b"{}")
    return str(answer.get("error", {}).get("description", ""))


def fill(app: RawApp, subject: str) -> str:
    for _ in range(2 * ROOM // len(BODY)):
        reason = publish(app, subject)
        if reason:
            return reason
    pytest.fail("the disk does not get full")


def start(servers: Servers, disk: Path, key: str = "") -> Server:
    words = f', key: "{key}"' if key else ""
    config = f'jetstream {{ store_dir: "{disk}", max_file_store: 1GB{words} }}'
    return servers.under_test(config=config, monitor=True)


@pytest.mark.parametrize("key", ["", "secret"])
def test_a_full_disk(servers: Servers, small_disk: Path, key: str) -> None:
    server = start(servers, small_disk, key)
    with RawApp(server.port) as app:
        for name in "SWF":
            retention = "workqueue" if name == "W" else "limits"
            config = {"name": name, "subjects": [f"{name}.>"], "retention": retention}
            assert "error" not in app.api(f"STREAM.CREATE.{name}", config)
        consumer = {"durable_name": "c", "ack_policy": "explicit"}
        app.api("CONSUMER.DURABLE.CREATE.W.c", {"stream_name": "W", "config": consumer})
        for _ in range(20):
            assert publish(app, "W.a", b"work") == ""
            assert publish(app, "S.a") == ""
        assert fill(app, "F.a") == NO_SPACE
        wait_until(lambda: health(server)[0] == 503, "the health page tells of it")
        assert json.loads(health(server)[1])["error"] == f"JetStream {NO_SPACE}"
        assert publish(app, "S.a") == NO_SPACE
        stored = app.api("STREAM.INFO.F")["state"]["messages"]
        # what frees room works, and so do consumers
        for seq in range(1, 6):
            assert app.api("STREAM.MSG.DELETE.S", {"seq": seq})["success"] is True
        for _ in range(20):
            work = app.request("$JS.API.CONSUMER.MSG.NEXT.W.c", b"1")
            assert work.payload == b"work"
            assert app.request(work.reply, b"+ACK").payload == b""
        assert app.api("STREAM.INFO.W")["state"]["messages"] == 0
        assert app.api("STREAM.PURGE.F")["purged"] == stored
        wait_until(lambda: publish(app, "S.a") == "", "it goes on")
        wait_until(lambda: health(server)[0] == 200, "the health page is content again")
        counts = {n: app.api(f"STREAM.INFO.{n}")["state"]["messages"] for n in "SWF"}
    assert counts["W"] == counts["F"] == 0 and counts["S"] >= 16
    log = server.log()
    assert log.count(f"{NO_SPACE}; publishes to streams on disk are refused") == 1
    assert log.count("There is room on disk again") == 1
    server.restart(kill=True)
    with RawApp(server.port) as app:
        after = {n: app.api(f"STREAM.INFO.{n}")["state"]["messages"] for n in "SWF"}
        assert after == counts
        assert fill(app, "F.a") == NO_SPACE
        assert app.api("STREAM.DELETE.F")["success"] is True
        wait_until(lambda: publish(app, "S.a") == "", "it goes on")


def test_creations_on_a_full_disk(servers: Servers, small_disk: Path) -> None:
    server = start(servers, small_disk)
    with RawApp(server.port) as app:
        assert "error" not in app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
        other = small_disk / "other"
        with pytest.raises(OSError, match="No space left"), open(other, "wb", buffering=0) as f:
            while True:
                f.write(bytes(4096))
        refused = app.api("STREAM.CREATE.T", {"name": "T", "subjects": ["T.>"]})
        assert refused["error"]["description"] == (
            "error creating store for stream: No space left on device"
        )
        status, page = health(server)
        assert status == 503
        assert json.loads(page)["error"] == (
            "JetStream cannot make streams and consumers: No space left on device"
        )
        other.unlink()
        wait_until(lambda: health(server)[0] == 200, "the health page is content again")
        assert "error" not in app.api("STREAM.CREATE.T", {"name": "T", "subjects": ["T.>"]})
    assert "[Errno" not in server.log()


def test_a_disk_that_others_fill(servers: Servers, small_disk: Path) -> None:
    server = start(servers, small_disk)
    with RawApp(server.port) as app:
        app.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
        assert publish(app, "S.a") == ""
        other = small_disk / "other"
        with pytest.raises(OSError, match="No space left"), open(other, "wb", buffering=0) as f:
            while True:
                f.write(bytes(65536))
        while publish(app, "S.a", bytes(500_000)) == "":
            pass
        assert publish(app, "S.a") == NO_SPACE
        before = app.api("STREAM.INFO.S")["state"]["messages"]
        other.unlink()
        wait_until(lambda: publish(app, "S.a") == "", "it goes on")
        assert app.api("STREAM.INFO.S")["state"]["messages"] == before + 1


def test_a_process_without_descriptors(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    streams = [f"S{n}" for n in range(60)]
    with RawApp(server.port) as app:
        for name in streams:
            config = {"name": name, "subjects": [f"{name}.>"]}
            assert "error" not in app.api(f"STREAM.CREATE.{name}", config)
            consumer = {"stream_name": name, "config": {"durable_name": "c"}}
            assert "error" not in app.api(f"CONSUMER.DURABLE.CREATE.{name}.c", consumer)
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))
        app.subscribe("ack.*")
        for turn in range(5):
            for name in streams:
                app.publish(f"{name}.a", b"%d" % turn, reply=f"ack.{name}")
            answers = [json.loads(f.payload) for f in app.messages(len(streams))]
            assert [a for a in answers if "error" in a] == []
        # with none at all they are refused, and go on when there are some again
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, used + 4))
        time.sleep(0.3)  # what is still open meets the limit
        reasons = {publish(app, f"{name}.a") for name in streams}
        assert reasons <= {"", "writing to disk failed: Too many open files"}
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))
        for name in streams:
            wait_until(lambda: publish(app, f"{name}.a") == "", "it goes on")  # noqa: B023
    server.restart()
