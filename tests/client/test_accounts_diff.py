"""Several accounts: logins, INFO, limits and isolation, the same said to both servers."""

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.raw import EOF, Frame, RawClient
from tests.client.reloads import password
from tests.client.tokens import told
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

SIGNER = Signer()
HASHED = "$2a$04$1b0NjWBF2jG9/jtceL3zJuXng2odOKJamg1ysuSwZR96ZwH.rB/Vy"  # of "x"
CONFIG = f"""
server_name: one
accounts {{
    A {{
        users: [
            {{ user: a, password: x }}
            {{ nkey: {SIGNER.public}, permissions: {{ publish: ok, subscribe: "in.>" }} }}
        ]
        limits {{ max_connections: 2, max_subscriptions: 2, max_payload: 100 }}
    }}
    B {{ users: [{{ user: b, password: x }}, {{ user: none }}] }}
    "c.d" {{ users: [{{ user: c, password: x }}], default_permissions: {{ publish: ok }} }}
    S {{ users: [{{ user: s, password: x }}] }}
}}
authorization {{ users: [{{ user: g, password: x }}, {{ user: h, password: "{HASHED}" }}] }}
system_account: S
"""


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CONFIG, monitor=True) for start in starts]


def page(server: Server, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(server.monitor_url + path, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


class Client(RawClient):
    """One that logs in as it is told; `said` is what came up to and with the first INFO behind."""

    def __init__(
        self, server: Server, user: str = "", signs: Signer | None = None, **more: object
    ) -> None:
        super().__init__(server.port)
        self.info = self.frame().json
        options: dict[str, object] = {"verbose": False, "protocol": 1, **more}
        options |= {"headers": True, "no_responders": True}
        if user:
            options = {"user": user, "pass": "x", **options}
        if signs is not None:
            sig = signs.signature(str(self.info.get("nonce")))
            options = {"nkey": signs.public, "sig": sig, **options}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        self.said = self.until("INFO")

    def shown(self) -> object:
        return [told(frame) for frame in self.said]


def both(pair: list[Server], **options: object) -> None:
    """The same login is answered alike."""
    shown = []
    for server in pair:
        with Client(server, **options) as client:  # type: ignore[arg-type]
            shown.append([told(Frame("INFO", json=client.info)), client.shown()])
    assert shown[0] == shown[1]


LOGINS: dict[str, dict[str, object]] = {
    **{user: {"user": user} for user in ("a", "b", "c", "g", "h", "s", "nobody")},
    "nkey": {"signs": SIGNER},
    "nkey beside a user": {"signs": SIGNER, "user": "nobody"},
    "stranger": {"signs": Signer()},
    "wrong password": {"user": "a", "pass": "y"},
    "no password": {"user": "a", "pass": ""},
    "a user without one": {"user": "none"},
    "none at all": {"user": "none", "pass": ""},
    "wrong hash": {"user": "h", "pass": "y"},
    "nothing": {},
    "token": {"auth_token": "x"},
    "no signature": {"nkey": SIGNER.public},
    "a foreign signature": {"nkey": SIGNER.public, "sig": SIGNER.signature("else")},
    "an odd signature": {"nkey": SIGNER.public, "sig": "!"},
    "an odd key": {"nkey": "U", "sig": "x"},
    "nkey as user": {"user": SIGNER.public, "pass": ""},
    "user as nkey": {"nkey": "a", "pass": "x"},
    "jwt": {"user": "a", "jwt": "eyJ0.e30.x"},
    "another account": {"user": "a", "account": "B"},
}


@pytest.mark.parametrize("login", LOGINS)
def test_logins(pair: list[Server], login: str) -> None:
    both(pair, **LOGINS[login])


def test_a_signature_is_of_one_connection_alone(pair: list[Server]) -> None:
    for server in pair:
        with RawClient(server.port) as first:
            nonce = str(first.frame().json["nonce"])
        sig = SIGNER.signature(nonce)
        with Client(server, nkey=SIGNER.public, sig=sig) as second:
            assert [frame.verb for frame in second.said] == ["-ERR", EOF]
            assert second.info["nonce"] != nonce


def wait_for_room(server: Server) -> None:
    """Connections of A that were closed are gone."""
    wait_until(lambda: page(server, "/connz?acc=A")["num_connections"] == 0, "room")


def test_limits_of_an_account(pair: list[Server]) -> None:
    shown = []
    for server in pair:
        said: list[object] = []
        wait_for_room(server)
        with Client(server, "a") as one, Client(server, signs=SIGNER) as two:
            with Client(server, "a") as three:
                said += [frame.shown() for frame in three.said]
            one.send(b"SUB p 1\r\nSUB q 2\r\nSUB r 3\r\n")
            two.send(b"SUB in.a 1\r\nSUB in.b 2\r\nPUB no 0\r\n\r\nSUB in.c 3\r\n")
            said += [frame.shown() for client in (one, two) for frame in client.sync()]
            one.send(b"UNSUB 1\r\nSUB r 3\r\n")
            said += [frame.shown() for frame in one.sync()]
            one.send(b"PUB q 100\r\n" + b"x" * 100 + b"\r\n")
            said += [frame.shown() for frame in one.sync()]
            one.send(b"PUB q 101\r\n" + b"x" * 101 + b"\r\n")
            said += [frame.shown() for frame in one.until(EOF)]
        shown.append(said)
    assert shown[0] == shown[1]


def test_who_leaves_makes_room_in_its_account(pair: list[Server]) -> None:
    for server in pair:
        for _ in range(5):
            wait_for_room(server)
            with Client(server, "a") as one, Client(server, "a") as two:
                assert one.said[0].verb == two.said[0].verb == "PONG"


def test_accounts_hear_nothing_of_each_other(pair: list[Server]) -> None:
    users = ("a", "b", "c", "g")
    for server in pair:
        wait_for_room(server)
        clients = {user: Client(server, user) for user in users}
        for client in clients.values():
            client.send(b"SUB > 1\r\nSUB ok q 2\r\n")
            client.sync()
        heard = dict.fromkeys(users, b"")
        for user, client in clients.items():
            client.send(b"PUB ok _R.1 1\r\n" + user.encode() + b"\r\n")
            for other in users:
                heard[other] += b"".join(frame.payload for frame in clients[other].sync())
        assert heard == {user: 2 * user.encode() for user in users}
        for client in clients.values():
            client.close()


def test_the_log_names_the_account(servers: Servers) -> None:
    """Of new servers: for a while nats-server tells of a full account once."""
    logs = []
    for start in (servers.under_test, servers.peer):
        server = start(config=CONFIG)
        before = len(server.log())
        with Client(server, "c") as one, Client(server, signs=SIGNER) as two:
            for client in (one, two):
                client.send(b"PUB no 0\r\n\r\n")
                client.sync()
            with Client(server, "a"), Client(server, "a") as beyond:
                assert beyond.said[-1].verb == EOF
        for refused in (Client(server, **password("a", "y")), Client(server, signs=Signer())):
            refused.close()

        def told() -> list[str]:
            text = server.log()[before:]  # noqa: B023
            text = re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", text)
            text = re.sub(r'Nkey "U\w+', "Nkey", text)
            return sorted(re.sub(r"^\[\d+\] \S+ \S+ ", "", line) for line in text.splitlines())

        wait_until(lambda: len(told()) >= 5, "what both say")
        logs.append(told())
    assert logs[0] == logs[1]


def test_a_flood_of_failed_logins_does_not_fill_the_log(servers: Servers) -> None:
    """The first are told of one by one, the others together once a second."""
    server = servers.under_test(config=CONFIG)
    began = time.monotonic()
    for number in range(50):
        for refused in (
            Client(server, **password("a", f"secret{number}")),
            Client(server, f"nobody{number}"),
            Client(server, auth_token="secret"),
            Client(server, signs=Signer()),
        ):
            assert [frame.verb for frame in refused.said] == ["-ERR", EOF]
            refused.close()
    server.wait_log("200 since the start")
    lines = [line for line in server.log().splitlines() if "authentication error" in line]
    assert 'authentication error - User "a"' in lines[0]
    assert len(lines) <= 10 + 2 * (time.monotonic() - began + 1)
    together = sum(map(int, re.findall(r"(\d+) more failed logins", server.log())))
    assert together + sum("more failed logins" not in line for line in lines) == 200
    assert "secret" not in server.log()


SLOW = "$2b$10$FEaSB/vnrtWmAxAz.mm/Ye/krOd1h/5oxPuzb4/zGkzBwxLlTsc/q"  # of "x", some 50 ms


def test_who_tries_many_passwords_leaves_half_of_the_machine(servers: Servers) -> None:
    """Hashes are computed by few threads, and a login without one does not wait for them."""
    users = f'{{ user: a, password: x }}, {{ user: h, password: "{SLOW}" }}'
    server = servers.under_test(config=f"authorization {{ users: [{users}] }}", monitor=True)
    tries = [RawClient(server.port) for _ in range(40)]
    for client in tries:
        client.frame()
        client.send(b'CONNECT {"user":"h","pass":"y"}\r\n')
    with Client(server, "a") as other:
        assert other.said[0].verb == "PONG"
    with urllib.request.urlopen(server.monitor_url + "/stacksz", timeout=10) as answer:
        hashing = answer.read().decode().count("thread password")
    assert 1 <= hashing <= max((os.cpu_count() or 1) // 2, 1)
    assert any(client.quiet(0) == [] for client in tries), "all were answered before the other one"
    for client in tries:
        client.close()


LIMITED = """
server_name: one
{server}
accounts {{
    A {{ users: [{{ user: a, password: x }}], limits {{ {account} }} }}
    B {{ users: [{{ user: b, password: x }}] }}
}}
"""


def heard(frames: list[Frame]) -> list[object]:
    """What came but for PINGs, whose time has nothing to do with it."""
    return [frame.shown() for frame in frames if frame.verb != "PING"]


def payloads(server: Server) -> list[object]:
    """Messages around the limits, with headers and without."""
    said: list[object] = []
    for size in (0, 1, 10, 11, 100, 101):
        header = b"NATS/1.0\r\n\r\n"
        body = b"x" * max(size - len(header), 0)
        total = len(header) + len(body)
        with Client(server, "a") as client:
            client.send(b"SUB p 1\r\nPUB p %d\r\n%s\r\n" % (size, b"x" * size))
            client.send(b"HPUB p %d %d\r\n%s%s\r\n" % (len(header), total, header, body))
            client.send(b"PING\r\n")
            said += [client.shown(), heard(client.until("PONG"))]
    return said


def connections(server: Server) -> list[object]:
    """One more than there may be, one in another account, and one that takes a free place."""
    open_ones = [Client(server, "a") for _ in range(4)]
    said = [client.shown() for client in open_ones]
    with Client(server, "b") as other:
        said.append(other.shown())
        before = page(server, "/connz?acc=A")["total"]
        open_ones[0].close()
        wait_until(lambda: not before or page(server, "/connz?acc=A")["total"] < before, "a place")
        open_ones.append(Client(server, "a"))
        said.append(open_ones[-1].shown())
        for client in (open_ones[1], other):  # again, and from another account
            client.send(b'CONNECT {"user":"a","pass":"x","verbose":false}\r\nPING\r\n')
            said.append(heard(client.until("PONG")))
    for client in open_ones:
        client.close()
    return said


def subscriptions(server: Server) -> list[object]:
    said: list[object] = []
    with Client(server, "a") as one, Client(server, "a") as two:
        one.send(b"".join(b"SUB p%d %d\r\n" % (n, n) for n in range(5)))
        one.send(b"SUB p1 1\r\nUNSUB 0\r\nSUB q 9\r\nSUB .. 10\r\n")
        said += heard(one.sync())
        two.send(b"SUB a 1\r\nSUB b q 2\r\nSUB c 3\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\nSUB c 3\r\n")
        said += heard(two.sync())
    return said


@pytest.mark.parametrize(
    ("work", "account", "server"),
    [
        (payloads, "max_payload: 10", ""),
        (payloads, "max_payload: 0", ""),
        (payloads, "max_payload: -1", "max_payload: 100"),
        (payloads, "max_payload: 200", "max_payload: 100"),
        (payloads, "max_payload: 100", "max_payload: 200"),
        (connections, "max_conn: 0", ""),
        (connections, "max_conn: -1", "max_connections: 3"),
        (subscriptions, "max_subs: 3", ""),
        (subscriptions, "max_subs: -1", "max_subscriptions: 2"),
        (subscriptions, "max_subs: 3", "max_subscriptions: 2"),
        (subscriptions, "max_subs: 2", "max_subscriptions: 3"),
    ],
)
def test_limits_at_their_edges(
    servers: Servers, work: Callable[[Server], list[object]], account: str, server: str
) -> None:
    config = LIMITED.format(account=account, server=server)
    shown = []
    for start in (servers.under_test, servers.peer):
        one = start(config=config, monitor=True)
        said = work(one)
        wait_until(lambda: page(one, "/connz")["total"] == 0, "the end of all")  # noqa: B023
        ends = page(one, "/connz?state=closed&auth=1")["connections"]
        reasons = {end["reason"] for end in ends if end["reason"] != "Client Closed"}
        shown.append([said, reasons])
    assert shown[0] == shown[1]


def test_an_account_without_subscriptions(servers: Servers) -> None:
    """Nobody stays in it."""
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=LIMITED.format(account="max_subs: 0", server=""), monitor=True)
        with Client(server, "a") as client:
            said = client.said if client.said[-1].verb == EOF else client.said + client.until(EOF)
        closed = "/connz?state=closed&auth=1"
        wait_until(lambda: page(server, closed)["total"] > 0, "the end")  # noqa: B023
        reasons = [end["reason"] for end in page(server, closed)["connections"]]
        shown.append([[frame.line for frame in said if frame.verb == "-ERR"], reasons])
    assert shown[0] == shown[1]


PEOPLE = f"""
server_name: one
accounts {{
    A {{
        users: [
            {{ user: a, password: x }}
            {{ nkey: {SIGNER.public} }}
            {{ user: w, password: x, allowed_connection_types: [WEBSOCKET] }}
            {{ user: t, password: x, allowed_connection_types: [standard] }}
        ]
    }}
    B {{ users: [{{ user: b, password: x, permissions: {{ publish: "$SYS.>" }} }}] }}
    S {{ users: [{{ user: s, password: x }}] }}
}}
system_account: S
"""
WORLDS = {
    "no guests": PEOPLE,
    "guests of b": PEOPLE + "no_auth_user: b",
    "guests with a key": PEOPLE + f"no_auth_user: {SIGNER.public}",
    "guests elsewhere": PEOPLE + "no_auth_user: w",
    "guests of the system account": PEOPLE + "no_auth_user: s",
    "no system account": "server_name: one\nno_system_account: true\n"
    "accounts { A { users: [{ user: a, password: x }] } }\nno_auth_user: a",
    "one user": "server_name: one\nauthorization { user: a, password: x }",
    "a token": "server_name: one\nauthorization { token: x }",
}
WHO: dict[str, dict[str, object]] = {
    "nobody": {},
    **{user: {"user": user} for user in ("a", "b", "s", "w", "t")},
    "wrong password": {"user": "a", "pass": "y"},
    "no password": {"user": "a", "pass": None},
    "no name": {"user": None, "pass": ""},
    "password alone": {"pass": "x"},
    "token": {"auth_token": "x"},
    "wrong token": {"auth_token": "y"},
    "nkey": {"signs": SIGNER},
    "key alone": {"nkey": SIGNER.public},
    "signature alone": {"sig": "x"},
    "jwt": {"jwt": "x"},
}


def whoami(server: Server, **login: object) -> list[object]:
    """How a login ends, and who is behind it. Once there are guests nats-server does not say in the
    first INFO that others have to log in, and does in the second."""
    with Client(server, **login) as client:  # type: ignore[arg-type]
        seen: list[object] = [told(Frame("INFO", json=client.info))]
        for frame in client.said:
            frame.json.pop("auth_required", None)
        seen.append(client.shown())
        if client.said[-1].verb != EOF:
            client.send(b"SUB _I 1\r\nPUB $SYS.REQ.USER.INFO _I 0\r\n\r\nPUB no 0\r\n\r\n")
            heard = client.sync()
            while not any(frame.verb in ("MSG", "HMSG") for frame in heard):
                heard.append(client.frame())
            # Which of them comes first is chance: nats-server answers the request from elsewhere.
            for frame in sorted(heard, key=lambda frame: frame.verb):
                found = json.loads(frame.payload)["data"] if frame.payload else frame.line
                if isinstance(found, dict) and "nkey" in login:
                    found["user"] = ""  # a client without proof has the guests' name here
                seen.append([frame.verb, found] if frame.verb != "PING" else [])
    return seen


@pytest.mark.parametrize("world", WORLDS)
def test_who_may_come_in(servers: Servers, world: str) -> None:
    pair = [start(config=WORLDS[world]) for start in (servers.under_test, servers.peer)]
    for name, login in WHO.items():
        ours, theirs = (whoami(server, **login) for server in pair)
        assert ours == theirs, name
    shown = []
    for server in pair:
        with RawClient(server.port) as client:
            client.frame()
            client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
            shown.append([frame.shown() for frame in client.until("PONG") if frame.verb != "INFO"])
    assert shown[0] == shown[1]


GUESTS = "accounts { $SYS { users: [{ user: s, password: x }] } }"


@pytest.fixture(scope="module")
def guests(module_servers: Servers) -> Iterator[list[Server]]:
    yield [module_servers.under_test(config=GUESTS), module_servers.peer(config=GUESTS)]


@pytest.mark.parametrize(
    "login", [{}, {"user": "s"}, {"user": "x"}, {"auth_token": "x"}, {"pass": "x"}], ids=str
)
def test_users_of_the_system_account_alone(guests: list[Server], login: dict[str, object]) -> None:
    shown = []
    for server in guests:
        with Client(server, **login) as client:  # type: ignore[arg-type]
            accounts = [frame.json.get("remote_account") for frame in client.said]
            shown.append([*accounts, *(frame.verb for frame in client.said)])
    assert shown[0] == shown[1]


def test_who_says_nothing_goes_on_beside_users_of_the_system_account(guests: list[Server]) -> None:
    shown = []
    for server in guests:
        with RawClient(server.port) as client:
            client.frame()
            client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
            shown.append([frame.shown() for frame in client.until("PONG")])
    assert shown[0] == shown[1]
