"""Uploads of objects while the disk stands still."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jsserver.objects import writer
from tests.client.raw import RawApp
from tests.client.test_object_reload import BUCKET
from tests.fault.faulty import Faults
from tests.servers import Servers

CONFIG = 'jetstream { store_dir: "%s", object_requests: true }\n'


def put(client: RawApp, data: bytes) -> str:
    """Begins and fills an upload of one chunk; where the answer to that comes."""
    begin = {"nonce": "n", "size": len(data), "chunks": 1}
    begun = client.request("$OBJ.b.info.x", json.dumps(begin).encode())
    assert b'"error"' not in begun.payload
    inbox = client.inbox()
    client.publish("$OBJ.b.chunks.n", data, reply=inbox)
    return inbox


def got(client: RawApp) -> tuple[Any, bytes, str]:
    inbox = client.inbox()
    body = json.dumps({"name": "x", "deliver_subject": inbox}).encode()
    answer = json.loads(client.request("$OBJ.b", body).payload)
    frames = [client.message()]
    while not frames[-1].status:
        frames.append(client.message())
    return answer, b"".join(frame.payload for frame in frames), frames[-1].status


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_meta_that_takes_long_is_no_failure(servers: Servers, tmp_path: Path) -> None:
    """Longer than a stream usually takes to answer: the object is the old one or the new one."""
    faults = Faults(tmp_path, "/OBJ_b/")
    server = servers.under_test(config=CONFIG % (servers.base / "objects"), env=faults.env)
    with RawApp(server.port, timeout=30) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        put(client, b"old")
        assert json.loads(client.message().payload)["digest"]
        faults.fail("sync", 0, after=1, times=1000, held=True)  # the chunk's succeeds
        put(client, b"newer")
        end = time.monotonic() + 10
        while not faults.seen("sync"):
            assert time.monotonic() < end
            time.sleep(0.01)
        heard = client.quiet(writer.PATIENCE + 1)
        assert [frame for frame in heard if frame.verb != "PING"] == []
        faults.mend()
        assert json.loads(client.message().payload)["size"] == 5
        answer, data, status = got(client)
        assert (answer["size"], data, status) == (5, b"newer", "204 EOB")
        assert client.api("STREAM.INFO.OBJ_b")["state"]["messages"] == 2
