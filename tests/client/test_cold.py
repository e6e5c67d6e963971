"""What is asked of messages that are on the disk alone, after a start."""

import json

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers
from tests.unit.test_store_cold import forget

COUNT = 3000
BODY = bytes(4000)


def publish(client: RawApp, number: int) -> dict[str, object]:
    header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
    client.publish("S.a", BODY, reply=client.inbox(), header=header)
    answer: dict[str, object] = json.loads(client.message().payload)
    return answer


@pytest.fixture
def server(servers: Servers) -> Server:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        config = {"name": "S", "subjects": ["S.>"], "duplicate_window": 600 * 10**9}
        client.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
        inbox = client.inbox()
        for number in range(1, COUNT + 1):
            header = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
            client.publish("S.a", BODY, reply=inbox, header=header)
        client.messages(COUNT, 60)
    server.kill()
    forget(server.store)
    return server.start()


def test_ids_are_known(server: Server) -> None:
    with RawApp(server.port) as client:
        for number in (COUNT, 1, COUNT // 2):
            assert publish(client, number)["duplicate"] is True
        assert publish(client, COUNT + 1)["seq"] == COUNT + 1


def test_messages_are_deleted(server: Server) -> None:
    with RawApp(server.port) as client:
        for seq, erases in ((1, True), (2, False), (COUNT // 2, True), (COUNT // 2 + 1, False)):
            body = json.dumps({"seq": seq, "no_erase": not erases}).encode()
            answer = json.loads(client.request("$JS.API.STREAM.MSG.DELETE.S", body).payload)
            assert answer["success"] is True
        info = json.loads(client.request("$JS.API.STREAM.INFO.S").payload)
        assert info["state"]["messages"] == COUNT - 4
        assert info["state"]["first_seq"] == 3
