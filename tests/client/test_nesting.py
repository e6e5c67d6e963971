"""Accounts that hand a message on to each other further than the server follows: it says so."""

import json

from tests.client.raw import RawApp
from tests.client.tls import page
from tests.servers import Server, Servers
from tests.waiting import wait_until

LONG = 40


def chain(length: int) -> str:
    """Accounts of which each imports from the one before what it exports."""
    blocks = []
    for n in range(length):
        users = f'users: [{{user: "u{n}", password: "p"}}]'
        exports = 'exports: [{service: "ask"}, {stream: "tell"}]'
        imports = ""
        if n:
            one = f'{{account: A{n - 1}, subject: "%s"}}'
            imports = f"imports: [{{service: {one % 'ask'}}}, {{stream: {one % 'tell'}}}]"
        blocks.append(f"A{n} {{{users}, {exports}, {imports}}}")
    return "accounts {\n" + "\n".join(blocks) + "\n}\n"


def login(server: Server, number: int) -> RawApp:
    options = {"user": f"u{number}", "pass": "p", "headers": True, "verbose": False}
    return RawApp(server.port, options=json.dumps(options).encode())


def test_a_chain_that_is_too_long_is_cut_and_told(servers: Servers) -> None:
    server = servers.under_test(monitor=True, config=chain(LONG))
    assert "dropped_nested" not in page(server, "/varz")
    with login(server, 0) as first:
        first.subscribe("ask")
        first.sync()
        for n in range(1, LONG):
            with login(server, n) as client:
                client.publish("ask", b"%d" % n)
                client.sync()
        came = [frame.payload for frame in first.sync() if frame.verb in ("MSG", "HMSG")]
        assert 20 < len(came) < LONG - 1
        assert came == [b"%d" % n for n in range(1, len(came) + 1)]
        assert page(server, "/varz")["dropped_nested"] == LONG - 1 - len(came)
    wait_until(lambda: "Dropped a message for 'ask'" in server.log(), "the log says so")
