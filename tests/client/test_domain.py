"""JetStream under the name of its domain: every request that works without it works with it."""

import json

import pytest

from jsserver.client.connection import Connection, ConnectionFailed
from tests.servers import Server, Servers


@pytest.fixture(params=["jsserver", "nats-server"])
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    config = "jetstream { domain: hub }"
    if request.param == "jsserver":
        return servers.under_test(jetstream=True, config=config)
    request.getfixturevalue("peer_present")
    return servers.peer(jetstream=True, config=config)


def test_the_api_answers_under_its_domain(server: Server) -> None:
    with Connection(server.url, name="a") as connection:
        stream = json.dumps({"name": "S", "subjects": ["s"], "allow_direct": True}).encode()
        made = json.loads(connection.request("$JS.hub.API.STREAM.CREATE.S", stream).data)
        assert made["did_create"]
        about = json.loads(connection.request("$JS.hub.API.STREAM.INFO.S").data)
        assert about["domain"] == "hub"
        connection.request("s", b"hello")
        got = connection.request("$JS.hub.API.DIRECT.GET.S", b'{"seq":1}')
        assert (got.data, b"Nats-Sequence: 1\r\n" in got.header) == (b"hello", True)
        assert connection.request("$JS.hub.API.DIRECT.GET.S.s").data == b"hello"
        consumer = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
        body = json.dumps(consumer).encode()
        made = json.loads(connection.request("$JS.hub.API.CONSUMER.CREATE.S.C", body).data)
        assert made["name"] == "C"
        next_one = "$JS.hub.API.CONSUMER.MSG.NEXT.S.C"
        assert connection.request(next_one, b'{"batch":1,"no_wait":true}').data == b"hello"
        for missing in ("$JS.hub.API.DIRECT.GET.T", "$JS.spoke.API.INFO"):
            with pytest.raises(ConnectionFailed, match="nobody answers"):
                connection.request(missing, b'{"seq":1}')


def test_buckets_take_their_messages_under_the_domain(server: Server) -> None:
    """Clients put the domain's prefix before a bucket's subjects, as they do before the API's."""
    with Connection(server.url, name="a") as connection:
        bucket = {"name": "KV_k", "subjects": ["$KV.k.>", "$OBJ.k.>"]}
        create = "$JS.hub.API.STREAM.CREATE.KV_k"
        assert b'"did_create":true' in connection.request(create, json.dumps(bucket).encode()).data
        for seq, subject in enumerate(("$KV.k.a", "$KV.k.b.c", "$OBJ.k.d"), 1):
            answer = json.loads(connection.request(f"$JS.hub.API.{subject}", b"value").data)
            assert answer == {"stream": "KV_k", "domain": "hub", "seq": seq}
            get = json.dumps({"last_by_subj": subject}).encode()
            got = json.loads(connection.request("$JS.hub.API.STREAM.MSG.GET.KV_k", get).data)
            assert got["message"]["subject"] == subject and got["message"]["seq"] == seq


@pytest.mark.parametrize(
    "unknown", ["FOO", "STREAM", "INFO.x", "$KV", "$KV.other.a", "$O.k.a", "DIRECT", "k.a"]
)
def test_what_the_domain_does_not_know_has_no_responder(server: Server, unknown: str) -> None:
    with (
        Connection(server.url, name="a") as connection,
        pytest.raises(ConnectionFailed, match="nobody answers"),
    ):
        connection.request(f"$JS.hub.API.{unknown}", b"")
