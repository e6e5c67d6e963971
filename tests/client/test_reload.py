"""Reloads of a server that goes on: nothing is lost, all changes or none, whatever comes at
once."""

import asyncio
import contextlib
import json
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from tests.client.raw import RawClient
from tests.client.reloads import DONE, FAILED, Client, password, reload, rewrite
from tests.servers import Server, Servers
from tests.waiting import wait_until

Start = Callable[..., Server]


def page(server: Server, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(server.monitor_url + path, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def login(server: Server, name: str, secret: str = "x") -> Client:
    return Client(server, **password(name, secret))


def accounts(*blocks: str) -> str:
    return "accounts {\n" + "\n".join(blocks) + "\n}\n"


def account(name: str, user: str, more: str = "") -> str:
    return f"{name} {{ users: [{{ user: {user}, password: x }}], {more} }}"


@pytest.fixture
def both(servers: Servers, peer_present: None) -> list[Start]:
    """How to start the server and its peer."""
    return [servers.under_test, servers.peer]


def test_monitoring_shows_whether_there_is_a_login_now(both: list[Start]) -> None:
    shown = []
    for start in both:
        server = start(config="max_payload: 1000", monitor=True)
        shown.append([page(server, "/varz").get("auth_required")])
        for text in ("authorization { user: u, password: p }", "max_payload: 1000"):
            reload(server, text)
            shown[-1].append(page(server, "/varz").get("auth_required"))
    assert shown[0] == shown[1] == [None, True, None]


# ---- options that are only looked at where they are needed


def test_limits_hold_for_who_is_connected(servers: Servers) -> None:
    server = servers.under_test(config="max_payload: 100", monitor=True)
    loaded = page(server, "/varz")["config_load_time"]
    with RawClient(server.port) as client:
        client.send(b"CONNECT {}\r\nSUB a 1\r\n")
        client.sync()
        reload(server, "max_payload: 10, max_control_line: 1000, ping_interval: '7s', ping_max: 5")
        client.send(b"PUB a 10\r\n0123456789\r\n")
        assert client.message().payload == b"0123456789"
        client.send(b"PUB a 11\r\n0123456789A\r\n")
        assert b"Maximum Payload Violation" in client.until("EOF")[0].line
    with RawClient(server.port) as client:
        assert client.frame().json["max_payload"] == 10
    log = server.log()
    for line in (
        *("max_payload = 10", "max_control_line = 1000", "ping_interval = 7s", "ping_max = 5"),
    ):
        assert f"[INF] Reloaded: {line}\n" in log
    varz = page(server, "/varz")
    assert (varz["ping_interval"], varz["ping_max"]) == (7_000_000_000, 5)
    assert varz["config_load_time"] > loaded


def test_the_youngest_go_where_there_are_too_many(servers: Servers) -> None:
    server = servers.under_test(config="max_connections: 10")
    clients = [Client(server) for _ in range(5)]
    reload(server, "max_connections: 2")
    for client in clients[:2]:
        client.sync()
    for client in clients[2:]:
        assert b"maximum connections exceeded" in client.until("EOF")[0].line
    with Client(server) as more:
        assert not more.is_in
    assert "Closed 3 connections to fall within max_connections" in server.log()
    reload(server, "max_connections: 3")
    reload(server, "max_connections: 2")  # as many as there are
    assert server.log().count("to fall within max_connections") == 1
    for client in clients:
        client.close()


def test_the_log_changes(servers: Servers, tmp_path: Path) -> None:
    server = servers.under_test(config="debug: false")
    file = tmp_path / "new.log"
    rewrite(server, f"debug: true, trace: true, logtime: false, log_file: '{file}'")
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: file.exists() and DONE in file.read_text(), "the line in the new file")
    with Client(server) as client:
        client.sync()
    wait_until(lambda: "<<- [PING]" in file.read_text(), "a traced line")
    line = next(line for line in file.read_text().splitlines() if DONE in line)
    assert line.startswith(f"[{server.pid}] [INF] {DONE}")
    reload(server, "debug: false")
    size = file.stat().st_size
    with Client(server) as client:
        client.sync()
    assert file.stat().st_size == size


def test_files_for_scripts_are_written_anew(servers: Servers, tmp_path: Path) -> None:
    server = servers.under_test(config=f"ports_file_dir: '{tmp_path}'")
    wait_until(lambda: any(tmp_path.glob("[!.]*.ports")), "the ports file")
    (first,) = tmp_path.glob("[!.]*.ports")
    other = tmp_path / "other"
    other.mkdir()
    reload(server, f"ports_file_dir: '{other}', pid_file: '{tmp_path}/pid'")
    assert not first.exists()
    assert str(server.port) in next(other.glob("[!.]*.ports")).read_text()
    assert (tmp_path / "pid").read_text() == str(server.pid)


# ---- all or nothing

SOCKET = "websocket { port: -1, no_tls: true%s }"
REFUSED = {
    "max_pending": ("", "max_pending: 2000000"),
    "server_name": ("server_name: one", "server_name: other"),
    "lame_duck_duration": ("", "lame_duck_duration: '60s'"),
    "websocket.compression": (SOCKET % "", SOCKET % ", compression: true"),
    "no_auth_user": ("", "no_auth_user: b"),
    "disable_sublist_cache": ("", "disable_sublist_cache: true"),
    "logfile_size_limit": ("", "logfile_size_limit: 100000"),
    "jetstream": ("", "jetstream: enabled"),
    "system_account": ("", "system_account: A"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_change_is_refused_by_name(both: list[Start], name: str) -> None:
    before, after = REFUSED[name]
    for start in both[:1] if name in ("jetstream", "logfile_size_limit") else both:
        server = start(config=accounts(account("A", "a")) + before, monitor=True)
        loaded = page(server, "/varz")["config_load_time"]
        with login(server, "a") as client:
            reload(server, accounts(account("A", "b")) + after, FAILED)
            client.sync()
        log = server.log()
        assert DONE not in log
        named = rf"{FAILED}: config reload not supported for {re.escape(name)}: old=\S+, new=\S+\n"
        assert re.search(named, log) or start is both[1]
        with login(server, "a") as again, login(server, "b") as nobody:
            assert (again.is_in, nobody.is_in) == (True, False)
        assert page(server, "/varz")["config_load_time"] == loaded


@pytest.mark.parametrize(
    "text",
    [
        "authorization { users: [{ user: b",
        "max_payload: 'x'",
        "accounts { A { imports: [{ stream: { account: B, subject: a } }] } }",
        "tls { cert_file: '/nowhere', key_file: '/nowhere' }",
        "log_file: '/nowhere/log'",
        "authorization { users: [] }\nno_auth_user: b",
    ],
)
def test_a_file_that_is_wrong_changes_nothing(servers: Servers, text: str) -> None:
    config = "authorization { users: [{ user: a, password: x }] }"
    server = servers.under_test(config=config)
    with login(server, "a") as client:
        client.send(b"SUB a 1\r\n")
        reload(server, text, FAILED)
        client.send(b"PUB a 0\r\n\r\n")
        assert client.message().subject == "a"
    with login(server, "a") as again:
        assert again.is_in
    reload(server, config)


def test_everything_that_cannot_be_taken_is_told(servers: Servers) -> None:
    config = "jetstream: {max_file: 64M}\naccounts { A { jetstream: {max_file: 1M} } }"
    server = servers.under_test(config=config, jetstream=True)
    reload(server, config.replace("1M", "1G") + "\nlog_file: '/nowhere/log'", FAILED)
    server.wait_log("/nowhere/log")
    told = [line for line in server.log().splitlines() if FAILED in line]
    assert len(told) == 2
    assert "Error enabling jetstream on configured accounts" in told[0]
    reload(server, config)


def test_a_file_that_is_gone_changes_nothing(servers: Servers) -> None:
    server = servers.under_test(config="debug: false")
    (server.folder / "server.conf").unlink()
    reload(server, says=FAILED)
    with Client(server) as client:
        assert client.is_in


# ---- where nats-server does otherwise


def test_the_one_user_stays(servers: Servers) -> None:
    """nats-server cuts it at every reload."""
    config = "authorization { user: a, password: x }\n"
    server = servers.under_test(config="debug: false")
    with login(server, "a") as client, login(server, "a", "y") as other:
        reload(server, config)
        client.sync()
        assert other.heard()[-1].verb == "EOF"
        reload(server, config + "max_payload: 1000")
        client.sync()


def test_users_of_before_are_gone_where_a_token_takes_their_place(servers: Servers) -> None:
    """nats-server lets them in still."""
    server = servers.under_test(config=users("a"))
    with login(server, "a") as client:
        reload(server, "authorization { token: t }")
        assert client.heard()[-1].verb == "EOF"
    with login(server, "a") as client, Client(server, auth_token="t") as bearer:
        assert (client.is_in, bearer.is_in) == (False, True)


# ---- what comes at once


def users(*names: str, password: str = "x") -> str:
    rows = [f"{{ user: {name}, password: {password} }}" for name in names]
    return f"authorization {{ users: [{', '.join(rows)}] }}"


def test_a_removed_user_is_out_before_slow_hashes_are_computed(servers: Servers) -> None:
    def config(password: str, *more: str) -> str:
        rows = [f"{{ user: kept, password: '{password}' }}", *more]
        return f"authorization {{ users: [{', '.join(rows)}] }}"

    slow = bcrypt.hashpw(b"x", bcrypt.gensalt(14)).decode()  # a second, or several
    server = servers.under_test(config=config("x", "{ user: gone, password: x }"))
    with login(server, "kept") as kept, login(server, "gone") as gone:
        rewrite(server, config(slow))
        os.kill(server.pid, signal.SIGHUP)
        assert gone.until("EOF")[-1].verb == "EOF"
        assert DONE not in server.log()
        wait_until(lambda: DONE in server.log(), DONE)
        kept.sync()


def test_who_does_not_know_the_new_hash_is_out(servers: Servers) -> None:
    server = servers.under_test(config=users("a", password="y"))
    with login(server, "a", "y") as client:
        reload(server, users("a", password=HASHED))  # of "x"
        assert client.heard()[-1].verb == "EOF"


def test_the_last_of_many_signals_is_obeyed(servers: Servers) -> None:
    server = servers.under_test(config=users("a"))
    for number in range(20):
        rewrite(server, users(f"a{number}"))
        os.kill(server.pid, signal.SIGHUP)

    def last_is_in() -> bool:
        with login(server, "a19") as client:
            return client.is_in

    wait_until(last_is_in, "the last file")
    with login(server, "a18") as client:
        assert not client.is_in


HASHED = '"$2a$04$1b0NjWBF2jG9/jtceL3zJuXng2odOKJamg1ysuSwZR96ZwH.rB/Vy"'  # of "x"


@pytest.mark.parametrize("stored", ["x", HASHED])
def test_clients_log_in_while_users_go(servers: Servers, stored: str) -> None:
    def config(*names: str) -> str:
        return users(*names, password=stored)

    server = servers.under_test(config=config("a", "b"))
    stop = threading.Event()
    kept: list[Client] = []
    refused: list[str] = []

    def come(name: str) -> None:
        while not stop.is_set():
            client = login(server, name)
            if client.is_in:
                kept.append(client)
            else:
                refused.append(name)
                client.close()
                if name == "b":
                    return
            if len(kept) > 150:
                return

    comers = [threading.Thread(target=come, args=(name,)) for name in "ab" * 4]
    for comer in comers:
        comer.start()
    wait_until(lambda: len(kept) > 20, "clients")
    reload(server, config("a"))
    for comer in comers:
        comer.join(20)
    stop.set()
    assert "a" not in refused
    with contextlib.ExitStack() as ends:
        for client in kept:
            ends.callback(client.close)
        alive = sum(client.heard()[-1].verb == "PONG" for client in kept)
        with login(server, "b") as late:
            assert not late.is_in
        reload(server, config("b"))  # who is there now are those of a alone
        assert not any(
            client.closed is False and client.heard()[-1].verb == "PONG" for client in kept
        )
    assert 0 < alive < len(kept)


# ---- nothing is lost for those who stay


def shared(number: int, *, more: bool) -> str:
    """What X offers and Y takes, one thing more at times."""
    extra = "{ stream: { account: X, subject: e } }, { service: { account: X, subject: f } }"
    imports = "{ stream: { account: X, subject: s } }, { service: { account: X, subject: q } }"
    exports = "[{ stream: s }, { stream: e }, { service: q }, { service: f }]"
    return accounts(
        account("X", "a", f"exports: {exports}"),
        account("Y", "b", f"imports: [{imports}{', ' + extra if more else ''}]"),
        account(f"Z{number}", "z"),
    )


def test_messages_and_requests_between_accounts_go_on(servers: Servers) -> None:
    server = servers.under_test(config=shared(0, more=False))

    async def run() -> None:
        import nats

        def connect(user: str) -> Any:
            return nats.connect(server.url, user=user, password="x", allow_reconnect=False)

        a, b = await connect("a"), await connect("b")
        heard: list[int] = []
        done = asyncio.Event()

        async def hear(message: Any) -> None:
            heard.append(int(message.data))
            if message.data == b"-1":
                done.set()

        async def answer(message: Any) -> None:
            await asyncio.sleep(0.005)  # many are under way at a reload
            await message.respond(message.data)

        await b.subscribe("s", cb=hear)
        await a.subscribe("q", cb=answer)
        await asyncio.gather(a.flush(), b.flush())
        stop = False
        sent = 0

        async def publish() -> None:
            nonlocal sent
            while not stop:
                await a.publish("s", str(sent).encode())
                sent += 1
                await asyncio.sleep(0.0005)

        async def ask() -> None:
            while not stop:
                answers = await asyncio.gather(
                    *(b.request("q", b"?", timeout=30) for _ in range(5))
                )
                assert [message.data for message in answers] == [b"?"] * 5

        work = [asyncio.create_task(publish()), *(asyncio.create_task(ask()) for _ in range(3))]
        loop = asyncio.get_running_loop()
        for number in range(1, 16):
            config = shared(number, more=bool(number % 2))
            await loop.run_in_executor(None, reload, server, config)
        stop = True
        await asyncio.gather(*work)
        await a.publish("s", b"-1")
        await asyncio.wait_for(done.wait(), 10)
        assert heard == [*range(sent), -1]
        await asyncio.gather(a.close(), b.close())

    asyncio.run(run())
    assert FAILED not in server.log()


def test_nothing_crosses_by_halves_of_two_configurations(servers: Servers) -> None:
    exported = account("X", "x", "exports: [{ service: s }]")
    chain = "imports: [{ service: { account: %s, subject: s } }]"
    offers = "exports: [{ service: s }]"
    first = accounts(
        exported,
        account("Y", "y", f"{offers}, {chain % 'X'}"),
        account("Z", "z"),
    )
    second = accounts(exported, account("Y", "y", offers), account("Z", "z", chain % "Y"))
    server = servers.under_test(config=first)
    with login(server, "x") as x, login(server, "z") as z:
        x.send(b"SUB s 1\r\n")
        x.sync()
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                z.send(b"PUB s 1\r\nz\r\n" * 50)

        asker = threading.Thread(target=ask)
        asker.start()
        for number in range(20):
            reload(server, first if number % 2 else second)
        stop.set()
        asker.join()
        z.sync()
        assert x.sync() == []


# ---- JetStream


def with_streams(**blocks: str) -> str:
    return accounts(*(account(name, name.lower(), more) for name, more in blocks.items()))


def ask(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    client.send(b"SUB in.* in\r\n")
    client.send(b"PUB %s in.1 %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
    found: dict[str, Any] = json.loads(client.message().payload)
    client.send(b"UNSUB in\r\n")
    return found


def test_accounts_get_and_lose_jetstream_and_keep_their_streams(both: list[Start]) -> None:
    shown = []
    on, off = "jetstream: enabled", ""
    for start in both:
        server = start(config=with_streams(A=on, B=on), jetstream=True)
        said: list[object] = []

        def look(server: Server = server, said: list[object] = said) -> None:
            for name in ("a", "b", "c"):
                with login(server, name) as client:
                    if client.is_in:
                        info = ask(client, "$JS.API.INFO")
                        error = info.get("error")
                        said.append((name, info.get("streams"), error and error["err_code"]))

        for name in ("a", "b"):
            with login(server, name) as client:
                stream = {"name": "S", "subjects": ["s"]}
                assert "error" not in ask(client, "$JS.API.STREAM.CREATE.S", stream)
                assert ask(client, "s", "1")["seq"] == 1
        look()
        for config in (
            with_streams(A=on, B=on, C=on),
            with_streams(A=on, B=off, C=on),
            with_streams(A="jetstream: { max_streams: 1, max_mem: 1M, max_file: 1M }", B=on),
        ):
            reload(server, config)
            look()
        for name in ("a", "b"):
            with login(server, name) as client:
                said.append((name, ask(client, "s", "2").get("seq")))
        shown.append(said)
    assert shown[0] == shown[1]


def test_streams_of_an_account_that_comes_back_are_there(servers: Servers) -> None:
    """nats-server lists them and takes no messages for them before its next start."""
    on = "jetstream: enabled"
    server = servers.under_test(config=with_streams(A=on, B=on), jetstream=True)
    with login(server, "b") as client:
        ask(client, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert ask(client, "s", "1")["seq"] == 1
        reload(server, with_streams(A=on))
        assert client.heard()[-1].verb == "EOF"
    reload(server, with_streams(A=on, B=on))
    with login(server, "b") as client:
        assert ask(client, "s", "2")["seq"] == 2


def test_streams_of_the_global_account_stay(both: list[Start]) -> None:
    shown = []
    for start in both:
        server = start(config=users("g"), jetstream=True)
        with login(server, "g") as client:
            ask(client, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert ask(client, "s", "1")["seq"] == 1
            more = with_streams(A="jetstream: enabled")
            reload(server, f"{users('g')}\n{more}")
            shown.append([ask(client, "s", "2").get("seq"), ask(client, "$JS.API.INFO")["streams"]])
    assert shown[0] == shown[1]


def test_what_is_stored_goes_on_over_reloads(servers: Servers) -> None:
    server = servers.under_test(config=with_streams(A="jetstream: enabled"), jetstream=True)

    async def run() -> None:
        import nats

        client = await nats.connect(server.url, user="a", password="x", allow_reconnect=False)
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, change)
        count = 0
        while not work.done():
            count += 1
            assert (await stream.publish("s", b"%d" % count)).seq == count
        await work
        await client.close()

    def change() -> None:
        for number in range(10):
            limits = f"jetstream: {{ max_streams: {number + 1} }}"
            reload(server, with_streams(A=limits, **{f"B{number}": "jetstream: enabled"}))

    asyncio.run(run())


def test_jetstream_may_only_get_more(servers: Servers) -> None:
    def config(memory: str, file: str, more: str = "") -> str:
        return f"jetstream {{ max_mem: {memory}, max_file: {file} }}\n" + with_streams(
            A=f"jetstream: {{ max_mem: 1M, max_file: {more or '1M'} }}"
        )

    server = servers.under_test(config=config("1M", "1M"), jetstream=True, monitor=True)
    reload(server, config("1M", "1M", "2M"), FAILED)
    assert f"{FAILED}: Error enabling jetstream on configured accounts: insufficient storage" in (
        server.log()
    )
    reload(server, config("1M", "3M", "2M"))
    assert page(server, "/jsz")["config"]["max_storage"] == 3_000_000
    reload(server, config("1M", "2M", "2M"), FAILED)
    refused = "config reload not supported for jetstream.max_file: old=3000000, new=2000000"
    assert refused in server.log()


# ---- asked for over the wire


def test_the_system_account_asks_for_it(both: list[Start]) -> None:
    shown = []
    for start in both:
        base = "SYS { users: [{ user: s, password: x }] }"
        server = start(config=accounts(base) + "system_account: SYS")
        with login(server, "s") as asker:
            subject = f"$SYS.REQ.SERVER.{asker.info['server_id']}.RELOAD"
            said: list[object] = []
            for text in (
                accounts(base, account("A", "a")) + "system_account: SYS",
                accounts(base) + "system_account: SYS\nserver_name: other",
                "accounts {",
            ):
                rewrite(server, text)
                answer = ask(asker, subject)
                answer["server"] = type(answer["server"]).__name__
                if "error" in answer:
                    answer["error"]["description"] = ""
                said.append(answer)
                with login(server, "a") as client:
                    said.append(client.is_in)
            ignored = ask(asker, subject.replace("RELOAD", "IDZ"))
            assert ignored["id"] == asker.info["server_id"]
            shown.append(said)
    assert shown[0] == shown[1]
