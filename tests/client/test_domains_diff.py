"""`default_js_domain`: requests of an account without JetStream go to a domain, on both servers."""

from pathlib import Path

import pytest

from tests.client.test_monitor_accounts_diff import log_in
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
jetstream { domain: D, store_dir: "%s" }
accounts {
    JS { jetstream: enabled, users: [{user: j, password: x}],
         exports: [{service: "$JS.D.API.>"}] }
    A { users: [{user: a, password: x}],
        imports: [{service: {account: JS, subject: "$JS.D.API.>"}}] }
}
default_js_domain: { A: D }
"""


def test_requests_go_to_the_domain(servers: Servers, tmp_path: Path) -> None:
    found = []
    for start in (servers.under_test, servers.peer):
        server = start(config=CONFIG % (tmp_path / start.__name__))
        with log_in(server, "j") as owner, log_in(server, "a") as app:
            owner.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
            names = app.api("STREAM.NAMES", {})
            made = app.api("STREAM.CREATE.Q", {"name": "Q", "subjects": ["q"]})
            found.append((names["streams"], made["config"]["name"]))
            warned = [line for line in server.log().splitlines() if "default_js_domain" in line]
            assert len(warned) == 1 and "[WRN]" in warned[0]
    assert found == [(["P"], "Q")] * 2
