"""Many objects on their way at once, some of them to receivers that do not take them."""

import json
import socket
import time
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.client.test_object_reload import BEGIN, BUCKET
from tests.servers import Server, Servers

pytestmark = pytest.mark.timeout(60)

CHUNK = 500_000
CHUNKS = 24
OF_ONE, OF_ACCOUNT = 16, 192
CONFIG = 'jetstream { store_dir: "%s", object_requests { max_uploads: 4, upload_timeout: 1h } }\n'


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.under_test(config=CONFIG % (servers.base / "objects"))


def ask(client: RawApp, subject: str, body: object) -> Any:
    return json.loads(client.request(subject, json.dumps(body).encode()).payload)


def test_who_takes_nothing_makes_room_for_others(server: Server) -> None:
    """As many as an account may have go to clients that do not read."""
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        begin = {"nonce": "n", "size": CHUNK * CHUNKS, "chunks": CHUNKS}
        assert "error" not in ask(client, "$OBJ.b.info.x", begin)
        for _ in range(CHUNKS):
            last = client.request("$OBJ.b.chunks.n", bytes(CHUNK))
        assert json.loads(last.payload)["digest"]
        stalled = [RawApp(server.port) for _ in range(OF_ACCOUNT // OF_ONE)]
        try:
            answers = client.inbox()
            for one in stalled:
                one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                body = json.dumps({"name": "x", "deliver_subject": one.inbox()}).encode()
                for _ in range(OF_ONE + 1):
                    one.publish("$OBJ.b", body, reply=answers)
            heard = client.messages(OF_ACCOUNT + len(stalled))
            assert sum(b'"error"' in frame.payload for frame in heard) == len(stalled)
            inbox = client.inbox()
            wanted = {"name": "x", "deliver_subject": inbox}
            end = time.monotonic() + 8  # sooner than those who do not read are cut
            while "error" in (answer := ask(client, "$OBJ.b", wanted)):
                assert answer["error"]["err_code"] == 10008
                assert time.monotonic() < end
                time.sleep(0.05)
            frames = client.messages(CHUNKS + 1)
            assert sum(len(frame.payload) for frame in frames) == CHUNK * CHUNKS
            assert frames[-1].status == "204 EOB"
            # One of the others hears why it ends.
            ends = [frame.status for one in stalled for frame in one.messages(CHUNKS)]
            assert [end for end in ends if end] == ["408 Object Not Taken"]
        finally:
            for one in stalled:
                one.close()


def test_an_upload_ends_with_its_connection(server: Server) -> None:
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        with RawApp(server.port) as other:
            for nonce in "abcd":
                assert "error" not in ask(other, f"$OBJ.b.info.{nonce}", {**BEGIN, "nonce": nonce})
                other.request(f"$OBJ.b.chunks.{nonce}", b"12")
            refused = ask(client, "$OBJ.b.info.x", BEGIN)
            assert refused["error"]["err_code"] == 10008
        end = time.monotonic() + 10
        while "error" in ask(client, "$OBJ.b.info.x", BEGIN):
            assert time.monotonic() < end
            time.sleep(0.05)
        while client.api("STREAM.INFO.OBJ_b")["state"]["messages"]:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_streams_that_cannot_be_buckets_say_why(server: Server) -> None:
    with RawApp(server.port) as client:
        moved = {"src": "$O.b.C.>", "dest": "$O.b.D.>"}
        assert "error" not in client.api(
            "STREAM.CREATE.OBJ_b", BUCKET | {"subject_transform": moved}
        )
        begun, listed = ask(client, "$OBJ.b.info.x", BEGIN), ask(client, "$OBJ.b", {})
        for answer in (begun, listed):
            assert "stores under other subjects" in answer["error"]["description"]
        assert client.api("STREAM.DELETE.OBJ_b")["success"]
        assert "error" not in client.api("STREAM.CREATE.OBJ_b", BUCKET)
        assert "error" not in ask(client, "$OBJ.b.info.x", BEGIN)
        for chunk in (b"12", b"34"):
            client.request("$OBJ.b.chunks.n", chunk)
        assert "error" not in client.api("STREAM.UPDATE.OBJ_b", BUCKET | {"no_ack": True})
        gone = ask(client, "$OBJ.b", {"action": "delete", "name": "x"})
        assert "gives no acks" in gone["error"]["description"]
        assert ask(client, "$OBJ.b", {"name": "x"})["size"] == 4
