"""The requests to the system that every client may make, answered as nats-server answers them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import NoRespondersError

from tests.peer import find_peer
from tests.servers import Server, Servers, servers_in

CONFIG = """
    authorization {
        users = [{
            user: ann, password: secret,
            permissions: { publish: ">", subscribe: { allow: ["_INBOX.>", "a.*"], deny: "b" } }
        }]
    }
    server_name: one
    server_tags: [east]
"""
SERVICES = [
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ",
]
OTHERS = ["$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.$G.CONNZ"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with servers_in(tmp_path) as started:
        yield started


def shape(value: Any) -> Any:
    """What stays when everything that differs from run to run is left out."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value]
    return type(value).__name__


async def ask(server: Server, subject: str, body: bytes = b"") -> Any:
    client = await nats.connect(server.url, user="ann", password="secret")
    try:
        answer = await client.request(subject, body, timeout=30)
        return json.loads(answer.data)
    finally:
        await client.close()


def test_who_am_i(servers: Servers) -> None:
    answer = asyncio.run(ask(servers.under_test(config=CONFIG), "$SYS.REQ.USER.INFO"))
    assert answer["server"]["name"] == "one"
    assert answer["data"] == {
        "user": "ann",
        "account": "$G",
        "account_name": "$G",
        "permissions": {
            "publish": {"allow": [">"]},
            "subscribe": {"allow": ["_INBOX.>", "a.*"], "deny": ["b"]},
        },
    }


def test_connections_are_paged_and_filtered(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG)
    subject = "$SYS.REQ.SERVER.PING.CONNZ"

    def page(**options: Any) -> Any:
        return asyncio.run(ask(server, subject, json.dumps(options).encode()))

    (connection,) = page(subscriptions=True, auth=True, user="ann")["data"]["connections"]
    assert connection["authorized_user"] == "ann"
    assert len(connection["subscriptions_list"]) == 1
    assert page(user="bob")["data"]["connections"] == []
    assert page(sort="size")["error"] == {
        "code": 500,
        "description": "invalid sorting option: size",
    }
    assert page(state=7)["data"]["connections"] == []
    assert asyncio.run(ask(server, subject, b"{"))["error"]["code"] == 400


def test_connections_that_ended_are_counted_without_monitoring(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG)
    for _ in range(3):
        asyncio.run(ask(server, "$SYS.REQ.USER.INFO"))
    (account,) = asyncio.run(ask(server, "$SYS.REQ.ACCOUNT.PING.STATZ"))["data"]["account_statz"]
    assert account["conns"] == 1
    assert account["received"]["msgs"] == account["sent"]["msgs"] + 1 == 4


def test_connections_that_ended_are_listed_without_monitoring(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG)
    asyncio.run(ask(server, "$SYS.REQ.USER.INFO"))
    body = json.dumps({"state": 1, "acc": "$G"}).encode()
    (ended,) = asyncio.run(ask(server, "$SYS.REQ.SERVER.PING.CONNZ", body))["data"]["connections"]
    assert ended["reason"] == "Client Closed"


ODD = [
    *(
        b'{"user":"\xff"}',
        b'{"user":"\\ud83d"}',
        b'{"user":"\\ud83d\\ude00"}',
        b"null",
        b'{"OFFSET":1}',
    ),
    *(b'{"offset":%s}' % n for n in (b"-1", b"9" * 4000, b"9" * 5000)),
    *(b"\xff", b"5", b'{"cid":-1}', b"[" * 100_000, b'{"offset":"1"}', b'{"sort":null}'),
    *(b'{"sort":"size"}', b'{"state":7}', b'{"filter_subject":"x"}', b'{"acc":"NOPE"}'),
]


def test_odd_requests_are_answered_as_by_nats_server(servers: Servers, peer_present: None) -> None:
    sides = [servers.under_test(config=CONFIG), servers.peer(config=CONFIG)]
    for body in ODD:
        ours, theirs = (
            asyncio.run(ask(side, "$SYS.REQ.SERVER.PING.CONNZ", body)) for side in sides
        )
        assert ours.get("error", {}).get("code") == theirs.get("error", {}).get("code"), body
        for field in ("num_connections", "total", "offset"):
            assert (ours.get("data") or {}).get(field) == (theirs.get("data") or {}).get(field), (
                body
            )


def test_only_the_servers_that_are_asked_answer(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG)

    def answers(**options: Any) -> bool:
        body = json.dumps(options).encode()
        try:
            asyncio.run(asyncio.wait_for(ask(server, "$SYS.REQ.ACCOUNT.PING.STATZ", body), 1))
        except TimeoutError:
            return False
        return True

    assert answers(server_name="one", tags=["east"])
    assert not answers(server_name="two")


@pytest.mark.skipif(find_peer() is None, reason="no nats-server to compare with")
@pytest.mark.parametrize("jetstream", [False, True])
def test_answers_have_the_shape_of_nats_servers(servers: Servers, jetstream: bool) -> None:
    ours = servers.under_test(config=CONFIG, jetstream=jetstream)
    peer = servers.peer(config=CONFIG, jetstream=jetstream)
    for subject in SERVICES:
        own = asyncio.run(ask(ours, subject))
        other = asyncio.run(ask(peer, subject))
        assert shape(own) == shape(other), subject
        assert own["server"]["flags"] & 0xFFFF == other["server"]["flags"]
    for subject in OTHERS:
        for server in (ours, peer):
            with pytest.raises(NoRespondersError):
                asyncio.run(ask(server, subject))
