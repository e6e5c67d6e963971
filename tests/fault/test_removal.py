"""What comes while a stream is removed: it is stored before, or finds no responders, and nothing is
said of the disk."""

import errno
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.servers import Server, Servers
from tests.waiting import wait_until

STREAM = {"name": "S", "subjects": ["s.>"]}
ALARMS = ("No such file", "writing to disk failed", "[ERR]")


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path, "/store/jetstream/")


def begin(client: RawApp, messages: int) -> None:
    assert "error" not in client.api("STREAM.CREATE.S", STREAM)
    for _ in range(messages):
        assert b'"error"' not in client.request("s.x", b"x").payload
    client.subscribe("done")


def check_log(server: Server) -> None:
    assert not [line for line in server.log().splitlines() if any(a in line for a in ALARMS)]


@pytest.mark.parametrize("messages", [0, 3])
def test_what_comes_during_a_removal_is_stored_before_it(
    servers: Servers, faults: Faults, messages: int
) -> None:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port, timeout=30) as client, RawApp(server.port, timeout=30) as other:
        begin(client, messages)
        other.subscribe("told")
        faults.fail("sync", 0, times=1 << 40, held=True)
        client.publish("$JS.API.STREAM.DELETE.S", reply="done")
        wait_until(lambda: faults.seen("sync") > 0, "the removal waits for the disk")
        wait_until(lambda: not (server.store / "jetstream/$G/streams/S").exists(), "it is away")
        for number in range(3):
            other.publish("s.y", b"y", reply="told")
            if number < messages:
                body = b'{"seq":%d}' % (number + 1)
                other.publish("$JS.API.STREAM.MSG.DELETE.S", body, reply="told")
        other.sync()
        faults.mend()
        told = other.messages(3 + messages)
        assert all(not f.status and b'"error"' not in f.payload for f in told), told
        assert b'"success":true' in client.message().payload
        assert other.request("s.y", b"y").status.startswith("503")
    check_log(server)


def test_what_comes_during_a_removal_that_fails_stays(servers: Servers, faults: Faults) -> None:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port, timeout=30) as client, RawApp(server.port, timeout=30) as other:
        begin(client, 0)
        other.subscribe("told")
        faults.fail("sync", errno.EIO, held=True)
        client.publish("$JS.API.STREAM.DELETE.S", reply="done")
        wait_until(lambda: faults.seen("sync") > 0, "the removal waits for the disk")
        other.publish("s.y", b"y", reply="told")
        other.sync()
        faults.mend()
        assert b'"error"' in client.message().payload
        assert b'"seq":1' in other.message().payload
    server.restart(kill=True)
    with RawApp(server.port) as client:
        state = client.api("STREAM.INFO.S")["state"]
        assert isinstance(state, dict) and state["messages"] == 1
