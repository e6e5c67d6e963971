"""Accounts that ask another account's JetStream: what has a responder, on both servers."""

import json

import pytest

from tests.client.reloads import reload
from tests.client.test_account_jetstream_diff import ask, log_in
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
jetstream { domain: hub }
accounts {
    H { users: [{ user: h, password: x }], jetstream: enabled, exports: [
        { service: "$JS.API.>" }, { service: "other.>" } ] }
    INFO { users: [{ user: info, password: x }], imports: [
        { service: { account: H, subject: "$JS.API.INFO" } } ] }
    ALL { users: [{ user: all, password: x }], imports: [
        { service: { account: H, subject: "$JS.API.>" } } ] }
    TO { users: [{ user: to, password: x }], imports: [
        { service: { account: H, subject: "$JS.API.INFO" }, to: "hub.info" } ] }
    OTHER { users: [{ user: other, password: x }], imports: [
        { service: { account: H, subject: "other.>" } } ] }
    S { users: [{ user: s, password: x }] }
}
system_account: S
"""
ASKED = (
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.INFO.W.c", "$JS.API.STREAM.INFO.W"),
    *("$JS.API.STREAM.CREATE.X", "$JS.hub.API.STREAM.NAMES", "$JS.hub.API.INFO", "hub.info"),
)


def told(server: Server, user: str) -> dict[str, object]:
    """Of each request its status, and what the answer says; None where nothing comes at once."""
    with log_in(server, "h") as hub:
        stream = {"name": "W", "subjects": ["w"]}
        hub.request("$JS.API.STREAM.CREATE.W", json.dumps(stream).encode())
    found: dict[str, object] = {}
    with log_in(server, user) as app:
        for subject in ASKED:
            status, answer = ask(app, subject)
            kept = None
            if isinstance(answer, dict):
                kept = {k: answer.get(k) for k in ("type", "error", "streams")}
            found[subject] = status, kept
    return found


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CONFIG, jetstream=True) for start in starts]


@pytest.mark.parametrize("user", ["info", "all", "to", "other"])
def test_what_of_the_api_has_a_responder(pair: list[Server], user: str) -> None:
    ours, theirs = (told(server, user) for server in pair)
    assert ours == theirs


def test_what_is_not_imported_has_no_responder(pair: list[Server]) -> None:
    """Clients go on at once: they take it for a server without JetStream."""
    for server in pair:
        found = told(server, "info")
        assert found["$JS.API.STREAM.NAMES"] == ("503", None)
        assert found["$JS.API.CONSUMER.INFO.W.c"] == ("503", None)


def test_a_reload_that_takes_the_import_away(servers: Servers) -> None:
    """The account is then told that it has no JetStream, as before it imported another's."""
    imported = CONFIG.index("INFO { users")
    server = servers.under_test(config=CONFIG, jetstream=True)
    with log_in(server, "info") as app:
        assert ask(app, "$JS.API.STREAM.NAMES")[0] == "503"
        text = CONFIG[:imported] + CONFIG[imported:].replace(
            'imports: [\n        { service: { account: H, subject: "$JS.API.INFO" } } ]', "", 1
        )
        assert text != CONFIG
        reload(server, text)
        status, answer = ask(app, "$JS.API.STREAM.NAMES")
        assert status == ""
        assert answer["error"]["err_code"] == 10039
