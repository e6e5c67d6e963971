"""What both servers tell about API requests, and about who asked."""

import json

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT
from tests.client.raw import RawApp
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, UNLIMITED, Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

AUDIT = "$JS.EVENT.ADVISORY.API"
#: A server's configuration, and what a client says of itself.
CLIENTS: dict[str, tuple[str, dict[str, object]]] = {
    "nobody": ("", {}),
    "claimed": ("", {"user": "a", "pass": "b", "name": "n", "lang": "go", "version": "1"}),
    "claimed_token": ("", {"auth_token": "b"}),
    "user": ('authorization { user: a, password: "b" }\n', {"user": "a", "pass": "b"}),
    "token": ('authorization { token: "b" }\n', {"auth_token": "b"}),
}


def audit(server: Server, options: dict[str, object]) -> list[tuple[str, object]]:
    """The client of an audit, with the order of its fields; numbers and times are left out."""
    connect = {"verbose": False, "headers": True, "no_responders": True, **options}
    with RawApp(server.port, options=json.dumps(connect).encode()) as client:
        client.subscribe(AUDIT)
        client.publish("$JS.API.INFO")
        event = json.loads(client.message().payload)
        assert 0 < event["client"]["rtt"] < 5_000_000_000
    changing = ("start", "id", "rtt")
    return [(k, None if k in changing else v) for k, v in event["client"].items()]


def test_who_asked_by_a_token(servers: Servers) -> None:
    """But for the token itself."""
    operator, key = Operator(), Signer(PREFIX_ACCOUNT)
    limits = {**ACCOUNT_LIMITS, "mem_storage": -1, "disk_storage": -1, "streams": -1}
    account = Account(operator, name="A", limits={**limits, "consumer": -1})
    account.token = account.made(signing_keys=[key.public], limits=account.nats["limits"])
    users = (
        User(account),
        User(account, claims={"name": "me"}, tags=["a:b"], bearer_token=True),
        User(account, key, {"name": "signed"}, **UNLIMITED),
    )
    told = []
    for start in (servers.under_test, servers.peer):
        server = start(config=configured(operator, [account]), jetstream=True)
        shown = []
        for user in users:
            with Client(server, user, name="n") as client:
                client.send(f"SUB {AUDIT} 1\r\nSUB in 2\r\nPUB $JS.API.INFO in 0\r\n\r\n".encode())
                events = [json.loads(frame.payload) for frame in client.messages(2)]
                (event,) = (event for event in events if "client" in event)
            changing = ("start", "id", "rtt")
            shown.append([(k, v) for k, v in event["client"].items() if k not in changing])
        told.append(shown)
    assert told[0] == told[1]


@pytest.mark.parametrize("name", CLIENTS)
def test_who_asked(servers: Servers, name: str) -> None:
    """At once: the round trip is known from the connection's start on."""
    config, options = CLIENTS[name]
    both = (servers.under_test, servers.peer)
    ours, theirs = (
        audit(start(config=config, jetstream=True, args=["-n", "one"]), options) for start in both
    )
    assert ours == theirs
