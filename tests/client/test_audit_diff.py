"""What both servers tell about API requests, and about who asked."""

import json

import pytest

from tests.client.raw import RawApp
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


@pytest.mark.parametrize("name", CLIENTS)
def test_who_asked(servers: Servers, name: str) -> None:
    """At once: the round trip is known from the connection's start on."""
    config, options = CLIENTS[name]
    both = (servers.under_test, servers.peer)
    ours, theirs = (
        audit(start(config=config, jetstream=True, args=["-n", "one"]), options) for start in both
    )
    assert ours == theirs
