"""What clients of a cluster are told of its other members, so that they may go there: by ours as by
nats-server in the same place."""

import json
import signal
import socket
from typing import Any

import pytest

from tests.client.aio import asynchronous, until
from tests.client.mesh import NAMES, Cluster, mixtures, page
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")


class Listener:
    """A client that hears INFO, of a server as it comes and whenever it changes."""

    def __init__(self, server: Server, protocol: int = 1) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), 20)
        self.socket.settimeout(20)
        self._input = self.socket.makefile("rb")
        self.first = self.info()
        options = json.dumps({"protocol": protocol, "verbose": False, "lang": "x", "version": "1"})
        self.socket.sendall(f"CONNECT {options}\r\nPING\r\n".encode())
        while not self._input.readline().startswith(b"PONG"):
            pass
        if protocol:
            self.info()  # the one with connect_info

    def info(self) -> dict[str, Any]:
        """The next INFO that comes."""
        while True:
            line = self._input.readline()
            assert line, "the server has closed"
            if line.startswith(b"INFO "):
                found: dict[str, Any] = json.loads(line[5:])
                return found

    def sync(self) -> list[str]:
        """The verbs of what has come by now, behind a PONG for this PING."""
        self.socket.sendall(b"PING\r\n")
        verbs = []
        while True:
            verb = self._input.readline().split(b" ")[0].strip().decode()
            verbs.append(verb)
            if verb == "PONG":
                return verbs

    def ends(self) -> bool:
        """Whether the server closes, however long that takes."""
        while self._input.readline():
            pass
        return True

    def close(self) -> None:
        self._input.close()
        self.socket.close()


def told(server: Server) -> list[str]:
    """What who comes now is told of where else clients may connect."""
    listener = Listener(server)
    listener.close()
    return sorted(listener.first.get("connect_urls", []))


def urls(*members: Server) -> list[str]:
    return sorted(f"127.0.0.1:{member.port}" for member in members)


@pytest.mark.parametrize("kinds", mixtures("oop", "pop", soak=["ppp"]))
@asynchronous
async def test_clients_hear_of_members_that_come_and_go(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds[0], monitor=True)
    first = cluster.members[0]
    listener, mute = Listener(first), Listener(first, protocol=0)
    assert "connect_urls" not in listener.first
    cluster.add(kinds[1], monitor=True)
    assert sorted(listener.info()["connect_urls"]) == urls(*cluster.members)
    cluster.add(kinds[2], monitor=True)
    info = listener.info()
    assert sorted(info["connect_urls"]) == urls(*cluster.members)
    assert "nonce" not in info and "connect_info" not in info and "ldm" not in info
    for member in cluster.members:
        await until(lambda m=member: told(m) == urls(*cluster.members), 20)  # type: ignore[misc]
        assert sorted(page(member, "varz")["connect_urls"]) == urls(*cluster.members)
    cluster.members[2].kill()
    assert sorted(listener.info()["connect_urls"]) == urls(*cluster.members[:2])
    await until(lambda: told(cluster.members[1]) == urls(*cluster.members[:2]), 20)
    cluster.members[1].kill()
    assert listener.info()["connect_urls"] == urls(first)
    assert set(mute.sync()) <= {"PING", "PONG"}


@pytest.mark.parametrize("kinds", ["op", "po", "oo"])
@asynchronous
async def test_members_that_do_not_advertise(servers: Servers, kinds: str) -> None:
    """Neither tells its clients of the other."""
    cluster = Cluster(servers)
    cluster.add(kinds[0], block="no_advertise: true", monitor=True)
    cluster.add(kinds[1], monitor=True)
    await until(lambda: all(page(one, "routez")["num_routes"] == 4 for one in cluster.members), 20)
    assert [told(member) for member in cluster.members] == [[], []]


@pytest.mark.parametrize("kinds", ["op", "po", "oo"])
@asynchronous
async def test_what_a_member_advertises(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.add(kinds[0], rest='client_advertise: "a.example:1234"', monitor=True)
    cluster.add(kinds[1], rest='client_advertise: "b.example"', monitor=True)
    wanted = sorted(["a.example:1234", f"b.example:{cluster.members[1].port}"])
    for member in cluster.members:
        await until(lambda m=member: told(m) == wanted, 20)  # type: ignore[misc]


@asynchronous
async def test_addresses_of_a_listener_on_all(servers: Servers) -> None:
    """A listener on all addresses is reached at each of the machine's that is not for itself."""
    found = []
    for kind in "op":
        cluster = Cluster(servers, kind)
        cluster.start(kind + "p", rest='host: "0.0.0.0"', monitor=True)
        port = cluster.members[0].port
        await until(lambda c=cluster: bool(told(c.members[1])), 20)  # type: ignore[misc]
        shown = told(cluster.members[1])
        found.append(sorted(u.rpartition(":")[0] for u in shown if u.endswith(f":{port}")))
    assert found[0] == found[1]


@asynchronous
async def test_clients_of_websocket_hear_of_ports_for_websocket(servers: Servers) -> None:
    found = []
    for kinds in ("oo", "op", "po", "pp"):
        cluster = Cluster(servers, kinds)
        for kind in kinds:
            name = f'advertise: "{NAMES[len(cluster.members)]}.example:7"'
            cluster.add(
                kind,
                rest=f'websocket {{ listen: "127.0.0.1:-1", no_tls: true, {name} }}',
                monitor=True,
            )

        def shown(cluster: Cluster = cluster) -> list[list[str]]:
            return [page(one, "varz").get("ws_connect_urls", []) for one in cluster.members]

        await until(lambda see=shown: all(see()), 20)  # type: ignore[misc]
        found.append(shown())
    assert found == [[["A.example:7", "B.example:7"], ["B.example:7", "A.example:7"]]] * 4


DUCK = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"'


@pytest.mark.parametrize("kinds", ["op", "po", "oo", "pp"])
@asynchronous
async def test_a_lame_duck_sends_its_clients_elsewhere(servers: Servers, kinds: str) -> None:
    """Its own clients hear where else to go, those of others that they had better not come."""
    cluster = Cluster(servers)
    cluster.start(kinds, rest=DUCK, monitor=True)
    duck, other = cluster.members
    for member in cluster.members:
        await until(lambda m=member: told(m) == urls(duck, other), 20)  # type: ignore[misc]
    guest, stranger = Listener(duck), Listener(other)
    assert duck.process is not None
    duck.process.send_signal(signal.SIGUSR2)
    info = guest.info()
    assert (info["ldm"], info["connect_urls"]) == (True, urls(other))
    info = stranger.info()
    assert (info.get("ldm"), info["connect_urls"]) == (None, urls(other))
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", duck.port), 5)
    assert guest.ends()
    assert duck.process.wait(20) == 0
    assert "Entering lame duck mode, stop accepting new clients" in duck.log()
    assert stranger.sync() == ["PONG"]


@pytest.mark.parametrize("kind", ["o", "p"])
def test_a_lame_duck_alone(servers: Servers, kind: str) -> None:
    """Its clients hear of that, and each is served until it is cut; without clients it ends."""
    make = servers.under_test if kind == "o" else servers.peer
    server = make(config=DUCK)
    guests = [Listener(server) for _ in range(2)]
    assert server.process is not None
    server.process.send_signal(signal.SIGUSR2)
    for guest in guests:
        info = guest.info()
        assert info["ldm"] is True and "connect_urls" not in info
        assert guest.sync() == ["PONG"]
    assert all(guest.ends() for guest in guests)
    assert server.process.wait(20) == 0
    alone = make(config=DUCK)
    assert alone.process is not None
    alone.process.send_signal(signal.SIGUSR2)
    assert alone.process.wait(20) == 0
