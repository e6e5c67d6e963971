"""Names with blanks, quotes, tabs, dots and wildcards, given to both servers: of accounts, users,
the server, its tags, and the folder of the store."""

import contextlib
import json
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp, TimedOut
from tests.client.test_monitor_accounts_diff import log_in
from tests.client.test_monitor_diff import page
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SERVICES = (
    *("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ"),
    *("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"),
)
ACCOUNTS = ["My Team", 'a"b', "a\tb", "x.>", "*", "a..b", ".a", "a*", "a\\b", "it\u2019s"]
IN_NO_SUBJECT = {"My Team", "a\tb", "x.>", "*", "a..b", ".a"}


def answered(app: RawApp, seconds: float) -> list[bool]:
    """Which services answer within a time; they are asked all at once."""
    inboxes = {}
    for subject in SERVICES:
        app.publish(subject, b"", reply=app.inbox())
        inboxes[str(app.last_sid)] = False
    end = time.monotonic() + seconds
    with contextlib.suppress(TimedOut):
        while not all(inboxes.values()):
            frame = app.message(end - time.monotonic())
            inboxes[frame.sid] = bool(frame.payload)
    return [*inboxes.values()]


def asked(server: Server, path: str, account: str) -> Any:
    return page(server, f"{path}acc={urllib.parse.quote(account)}")


def used(server: Server, account: str) -> list[object]:
    """What a user of the account finds, before and after a restart."""
    with log_in(server, "system") as listener, log_in(server, "a") as app:
        listener.subscribe("$SYS.ACCOUNT.>")
        listener.sync()
        found: list[object] = [*answered(app, 1.0 if account in IN_NO_SUBJECT else 30.0)]
        created = app.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
        found += [created["config"]["name"], app.request("p", b"x").payload]
        with log_in(server, "importer") as other:
            app.subscribe("svc")
            app.sync()
            other.publish("svc", b"", reply="r")
            info = json.loads(app.message().headers["Nats-Request-Info"])
            found += [info["acc"], info["user"]]
    jsz = asked(server, "/jsz?streams=1&", account)
    found += [[a["name"] for a in jsz.get("account_details", [])]]
    server.restart()
    with log_in(server, "a") as app:
        found += [app.api("STREAM.NAMES", {})["streams"]]
    return found


@pytest.mark.parametrize("account", ACCOUNTS)
def test_names_of_accounts(servers: Servers, account: str) -> None:
    quoted = f"'{account}'"
    config = f"""
        accounts {{
            {quoted}: {{
                jetstream: enabled
                users: [{{user: a, password: x}}]
                exports: [{{service: svc, accounts: [I]}}]
            }}
            I: {{
                users: [{{user: importer, password: x}}]
                imports: [{{service: {{account: {quoted}, subject: svc}}, share: true}}]
            }}
            S: {{ users: [{{user: system, password: x}}] }}
        }}
        system_account: S
    """
    starts = (servers.under_test, servers.peer)
    ours, theirs = (start(config=config, jetstream=True, monitor=True) for start in starts)
    found = used(ours, account)
    assert found == used(theirs, account)
    assert found[:4] == [account not in IN_NO_SUBJECT] * 4
    assert ("its name cannot be part of a subject" in ours.log()) == (account in IN_NO_SUBJECT)


def test_no_event_has_a_subject_that_a_client_cannot_read(servers: Servers) -> None:
    server = servers.under_test(
        config="""
        accounts {
            "My Team": { users: [{user: a, password: x}] }
            A: { users: [{user: b, password: x}] }
            S: { users: [{user: system, password: x}] }
        }
        system_account: S
        """
    )
    with log_in(server, "system") as listener:
        listener.subscribe("$SYS.ACCOUNT.*.CONNECT")
        listener.subscribe("$SYS.ACCOUNT.*.SERVER.CONNS")
        listener.sync()
        with log_in(server, "a"), log_in(server, "b"):
            frames = [listener.message()]
            while frames[-1].subject != "$SYS.ACCOUNT.A.CONNECT":
                frames.append(listener.message())
        assert all(len(frame.line.split()) == 4 for frame in frames), frames


NAMES = ["a b", 'a"b', "a\tb", "a\\b", "a.b", "*", ">", "it's", "\u00e9", " a "]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_users_and_what_they_are_told_as(servers: Servers, name: str) -> None:
    mark = '"' if "'" in name else "'"
    config = f"authorization {{ users: [{{user: {mark}{name}{mark}, password: x}}] }}\n"
    for start in (servers.under_test, servers.peer):
        server = start(config=config, monitor=True)
        with log_in(server, name) as app:
            told = json.loads(app.request("$SYS.REQ.USER.INFO", b"").payload)
            assert told["data"]["user"] == name
            shown = page(server, "/connz?auth=1")["connections"]
            assert [each["authorized_user"] for each in shown] == [name]
            asked_for = page(server, f"/connz?auth=1&user={urllib.parse.quote(name)}")
            assert len(asked_for["connections"]) == 1


@pytest.mark.parametrize("name", ['a"b', "a\tb", "a\\b", "a.b", "*", "it's", "\u00e9", "a b", ""])
def test_names_of_the_server_and_its_tags(servers: Servers, name: str) -> None:
    mark = '"' if "'" in name else "'"
    quoted = f"{mark}{name}{mark}"
    config = f"server_tags: [{quoted}, 'x y']\nserver_metadata: {{{quoted}: {quoted}}}\n"
    config += "" if " " in name else f"server_name: {quoted}\n"
    found = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config, jetstream=True, monitor=True)
        varz = page(server, "/varz")
        with RawApp(server.port) as app:
            told = [app.info["server_name"], varz["server_name"]]
            told = ["its id" if each == varz["server_id"] else each for each in told]
        found.append([told, varz.get("tags"), varz.get("metadata")])
    assert found[0] == found[1]


def test_a_folder_with_a_blank(tmp_path: Path, servers: Servers) -> None:
    for start in (servers.under_test, servers.peer):
        server = start()
        server.stop()
        server.config = f'jetstream {{ store_dir: "{tmp_path}/a b {server.folder.name}" }}\n'
        server.start()
        with RawApp(server.port) as app:
            app.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
            app.request("p", b"x")
        server.restart()
        with RawApp(server.port) as app:
            assert app.api("STREAM.INFO.P", {})["state"]["messages"] == 1
