"""What is large and comes at once: a file that is read again, an account's token, what one consumer
asks for. No step of the event loop takes long for it, nor is the engine lock held for long.

Steps are measured in time of the processor: other programs on the machine do not make them longer.
"""

import itertools
import json
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.client.tokens import Client, configured
from tests.jwts import Account, Operator, User
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.alone

MOST = 0.1
"""Seconds of the processor that a step takes at most."""
MOST_OF_RELOAD = 0.06
"""As above: a reload looks at all accounts and users in a thread, and at few in a step."""
MOST_HELD = 0.3
"""Seconds that the engine lock is held at most, in which others may have the processor."""
MOST_HELD_OF_MANY = 0.04
"""Where many small things are looked at: all of them at once take longer than this."""
ATTEMPTS = 10
"""Of which one is within that."""
RELOADED, REFUSED = "Reloaded server configuration", "Failed to reload"


class Watched:
    """A server that tells of its longest step and hold."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.socket = folder / "watched"
        command = [sys.executable, "-m", "tests.watched"]
        env = {"WATCHED": str(self.socket)}
        self.server = Server(command, folder / "server", env=env, **options).start()

    def take(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self.socket))
            found: dict[str, Any] = json.loads(b"".join(iter(lambda: asking.recv(4096), b"")))
            return found

    def nobody_waits(
        self,
        request: Callable[[int], None],
        *,
        step: float = MOST,
        held: float = MOST_HELD,
        turn: float = math.inf,
    ) -> None:
        """Makes a request, a few times at most, each with another number."""
        found = []
        for attempt in range(ATTEMPTS):
            self.take()
            request(attempt)
            found.append(self.take())
            last = found[-1]
            if last["step"] < step and last["held"] < held and last["turn"] < turn:
                return
        pytest.fail(f"others waited: {found}")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One with a short name, as that of a socket has to be."""
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


def login(user: str) -> bytes:
    return json.dumps({"verbose": False, "user": user, "pass": user}).encode()


def lines(text: str, count: int) -> str:
    """The text so many times, with a number of its own in place of each `#`."""
    return "\n".join(text.replace("#", str(number)) for number in range(count))


# ---- files that are read again -------------------------------------------------------------------

CONFIG = """
accounts {
    A {
        jetstream: enabled
        users: [ { user: a, password: a } ]
        %s
    }
    %s
}
"""
USERS = lines("{ user: u#, password: p }", 28_000)
EXPORTS = lines("{ stream: e.# }", 13_000)
IMPORTS = lines("{ stream: { account: C, subject: e.# } }", 13_000)
MAPPINGS = "mappings {\n" + lines("m#: n#", 60_000) + "\n}\n"
FILES = {
    "users": CONFIG % ("", f"C {{ users: [\n{USERS}\n] }}"),
    "accounts": CONFIG % ("", lines("C# { users: [ { user: u#, password: p } ] }", 18_000)),
    "accounts with JetStream": CONFIG
    % ("", lines("C# { jetstream: { max_mem: 1, max_file: 1, max_streams: 1 } }", 13_000)),
    "mappings": CONFIG % (MAPPINGS, ""),
    "mappings of patterns": CONFIG
    % ("mappings {\n" + lines('"m.#.*": "n.#.$1"', 35_000) + "\n}\n", ""),
    "mappings of the global account": MAPPINGS,
    "exports and imports": CONFIG
    % (f"imports: [\n{IMPORTS}\n]", f"C {{ exports: [\n{EXPORTS}\n] }}"),
}


@pytest.fixture(scope="module")
def reloading(folder: Path) -> Iterator[Watched]:
    (folder / "file").mkdir()
    watched = Watched(folder / "file", config=CONFIG % ("", ""), jetstream=True)
    yield watched
    watched.server.stop()


def reload(server: Server, config: str) -> None:
    (server.folder / "server.conf").write_text(config)
    done = server.log().count(RELOADED)
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.log().count(RELOADED) > done, "the reload", seconds=60)
    assert REFUSED not in server.log()


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_read_again(reloading: Watched, kind: str) -> None:
    """It comes, comes again with one more comment, and goes."""
    assert 700_000 < len(FILES[kind]) < 1 << 20

    def request(attempt: int) -> None:
        reload(reloading.server, FILES[kind])
        reload(reloading.server, f"{FILES[kind]}\n# {attempt}")
        reload(reloading.server, CONFIG % ("", ""))

    reloading.nobody_waits(request, step=MOST_OF_RELOAD)


# ---- tokens of accounts --------------------------------------------------------------------------

OPERATOR = Operator()
SYSTEM = User(OPERATOR.sys)
TENANT, EXPORTER = Account(OPERATOR, name="A"), Account(OPERATOR, name="B")
TIMES = itertools.count(int(time.time()))
"""When tokens were issued: each later than the one before."""
CLAIMS: dict[str, dict[str, Any]] = {
    "mappings": {
        "mappings": {f"m.{n}": [{"subject": f"n.{n}", "weight": 100}] for n in range(15_000)}
    },
    "mappings of patterns": {
        "mappings": {f"m.{n}.*": [{"subject": "n.$1"}] for n in range(18_000)}
    },
    "exports": {
        "exports": [
            {"name": f"{n}", "subject": f"e.*.{n}", "type": "service"} for n in range(11_000)
        ]
    },
    "imports": {
        "imports": [
            {
                **{"name": f"{n}", "subject": f"s.{n}", "type": "service"},
                **{"account": EXPORTER.public, "local_subject": f"l.{n}"},
            }
            for n in range(4500)
        ]
    },
    "default permissions": {
        "default_permissions": {"pub": {"allow": [f"x.{n}" for n in range(60_000)]}}
    },
}


@pytest.fixture(scope="module")
def operated(folder: Path) -> Iterator[Watched]:
    (folder / "claims").mkdir()
    resolver = f"resolver: {{ dir: '{folder / 'claims' / 'tokens'}', type: full }}"
    config = configured(OPERATOR, []).replace("resolver: MEMORY", resolver)
    watched = Watched(folder / "claims", config=config, monitor=True)
    update(watched, TENANT.token)
    exports = [{"name": "s", "subject": "s.>", "type": "service"}]
    update(watched, EXPORTER.made(exports=exports))
    for user in (User(TENANT), User(EXPORTER)):
        Client(watched.server, user).close()
    yield watched
    watched.server.stop()


def update(watched: Watched, token: str) -> None:
    assert len(token) < 1 << 20
    with Client(watched.server, SYSTEM) as client:
        client.send(
            f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(token)}\r\n{token}\r\n".encode()
        )
        assert json.loads(client.message(60).payload)["data"]["code"] == 200


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_token_of_an_account(operated: Watched, kind: str) -> None:
    """It is pushed, looked at, pushed again and replaced by a small one."""

    def request(attempt: int) -> None:
        update(operated, TENANT.made(**CLAIMS[kind], iat=next(TIMES)))
        page = f"{operated.server.monitor_url}/accountz?acc={TENANT.public}"
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert json.load(answer)["account_detail"]["account_name"] == TENANT.public
        update(operated, TENANT.made(**CLAIMS[kind], iat=next(TIMES)))
        update(operated, TENANT.made(iat=next(TIMES)))

    operated.nobody_waits(request)


# ---- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["all", "last_per_subject"])
def test_filters_of_a_consumer(reloading: Watched, policy: str) -> None:
    with RawApp(reloading.server.port, options=login("a"), timeout=60) as client:
        assert "error" not in client.api(f"STREAM.CREATE.{policy}", {"name": policy})
        config = {"durable_name": "c", "deliver_policy": policy}

        def request(attempt: int) -> None:
            for word in ("a", "b"):
                filters = [f"{word}.{number}" for number in range(80_000)]
                asked = {"stream_name": policy, "config": {**config, "filter_subjects": filters}}
                assert "error" not in client.api(f"CONSUMER.CREATE.{policy}.c", asked)
            assert "error" not in client.api(f"CONSUMER.DELETE.{policy}.c")

        reloading.nobody_waits(request)


# ---- what many large streams say of themselves ---------------------------------------------------

MOST_OF_A_PAGE = 0.06
"""Seconds that a step takes, or that Python's lock is kept, where 30 MB are answered."""
MOST_OF_A_SEARCH = 0.02
"""Seconds of a step, where millions of subjects are looked at."""
LARGE_STREAMS = 30


@pytest.fixture(scope="module")
def large_streams(folder: Path) -> Iterator[Watched]:
    (folder / "large").mkdir()
    config = """
        system_account: S
        accounts {
            A { jetstream: enabled, users: [ { user: a, password: a } ] }
            S { users: [ { user: s, password: s } ] }
        }
        jetstream { object_requests: true }
    """
    watched = Watched(folder / "large", config=config, jetstream=True, monitor=True)
    with RawApp(watched.server.port, options=login("a"), timeout=60) as client:
        for number in range(LARGE_STREAMS):
            subjects = [f"s{number}.{n}" for n in range(80_000)]
            asked = {"name": f"S{number}", "subjects": subjects}
            assert "error" not in client.api(f"STREAM.CREATE.S{number}", asked)
        bucket = {"name": "OBJ_B", "subjects": ["$O.B.C.>", "$O.B.M.>"], "allow_rollup_hdrs": True}
        assert "error" not in client.api("STREAM.CREATE.OBJ_B", bucket)
    yield watched
    watched.server.stop()


def test_a_search_among_large_streams(large_streams: Watched) -> None:
    with RawApp(large_streams.server.port, options=login("a"), timeout=60) as client:

        def request(attempt: int) -> None:
            assert client.api("STREAM.NAMES", {"subject": "s7.*"})["streams"] == ["S7"]

        large_streams.nobody_waits(request, step=MOST_OF_A_SEARCH)


def test_an_object_is_sent_where_no_large_stream_hears(large_streams: Watched) -> None:
    wanted = json.dumps({"name": "a", "deliver_subject": "here"}).encode()
    with RawApp(large_streams.server.port, options=login("a"), timeout=60) as client:

        def request(attempt: int) -> None:
            answer = json.loads(client.request("$OBJ.B", wanted, timeout=60).payload)
            assert answer["error"]["code"] == 404

        large_streams.nobody_waits(request, step=MOST_OF_A_SEARCH)


def test_the_system_is_told_of_large_streams(large_streams: Watched) -> None:
    wanted = json.dumps({"streams": True, "config": True}).encode()
    with RawApp(large_streams.server.port, options=login("s"), timeout=60) as client:

        def request(attempt: int) -> None:
            answer = client.request("$SYS.REQ.SERVER.PING.JSZ", wanted, timeout=60)
            accounts = json.loads(answer.payload)["data"]["account_details"]
            assert len(accounts[0]["stream_detail"]) > LARGE_STREAMS

        large_streams.nobody_waits(request, turn=MOST_OF_A_PAGE)


def test_the_page_of_large_streams(large_streams: Watched) -> None:
    page = f"{large_streams.server.monitor_url}/jsz?streams=1&config=1"

    def request(attempt: int) -> None:
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert len(json.load(answer)["account_details"][0]["stream_detail"]) > LARGE_STREAMS

    large_streams.nobody_waits(request, step=MOST_OF_A_PAGE)


# ---- subscriptions -------------------------------------------------------------------------------

SUBSCRIBED = """
max_subscriptions: 0
system_account: S
accounts {
    A { users: [ { user: a, password: a } ] }
    S { users: [ { user: s, password: s } ] }
}
"""
SUBSCRIPTIONS = {
    "many subjects": lambda n: f"orders.{n}.new",
    "many patterns": lambda n: f"orders.{n}.*",
    "one subject": lambda n: "orders.1.new",
}
SUBSCRIPTION_PAGES = (
    *("/subsz?subs=1", "/subsz?subs=1&limit=300000", "/subsz?subs=1&test=orders.1.new"),
    *("/connz?subs=1", "/connz?subs=detail"),
)
SUBSCRIPTION_REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("s", "$SYS.REQ.SERVER.PING.SUBSZ", {"subscriptions": True}),
    ("s", "$SYS.REQ.ACCOUNT.A.SUBSZ", {}),
    ("s", "$SYS.REQ.ACCOUNT.A.CONNZ", {"filter_subject": "orders.*.new"}),
    ("s", "$SYS.REQ.ACCOUNT.NSUBS", {"acc": "A", "subject": "orders.>"}),
    ("a", "$SYS.REQ.SERVER.PING.CONNZ", {"subscriptions": True}),
)


@pytest.fixture(scope="module")
def subscribed(folder: Path) -> Iterator[Watched]:
    (folder / "subs").mkdir()
    watched = Watched(folder / "subs", config=SUBSCRIBED, monitor=True)
    yield watched
    watched.server.stop()


@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
def test_a_page_of_many_subscriptions(subscribed: Watched, kind: str) -> None:
    """One connection has them; another one, and monitoring, ask for what there is."""
    server, subject = subscribed.server, SUBSCRIPTIONS[kind]
    with RawApp(server.port, options=login("a"), timeout=60) as client:
        lines = (f"SUB {subject(number)} {number}\r\n" for number in range(300_000))
        client.send("".join(lines).encode() + b"PING\r\n")
        client.until("PONG")
        for page in SUBSCRIPTION_PAGES:

            def ask(attempt: int, page: str = page) -> None:
                urllib.request.urlopen(server.monitor_url + page, timeout=60).read()

            subscribed.nobody_waits(ask, held=MOST_HELD_OF_MANY)
        for user, service, body in SUBSCRIPTION_REQUESTS:
            with RawApp(server.port, options=login(user), timeout=60) as asking:

                def request(
                    attempt: int,
                    asking: RawApp = asking,
                    service: str = service,
                    body: dict[str, Any] = body,
                ) -> None:
                    assert asking.request(service, json.dumps(body).encode()).payload

                subscribed.nobody_waits(request, held=MOST_HELD_OF_MANY)
