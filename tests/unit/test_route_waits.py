"""How long the data plane waits for the first words of another server."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from jsserver.cext import engine
from jsserver.cext.engine import DataPlane, ListenerConfig, MeshHandle, PlaneConfig
from jsserver.process.sockets import bound_port, open_listener
from tests.unit.test_dataplane import LIMITS
from tests.waiting import wait_until

AUTH_TIMEOUT = 100 * 10**6


@pytest.fixture
def accepted() -> Iterator[tuple[DataPlane, MeshHandle, int, socket.socket]]:
    """A data plane whose control plane has said nothing yet, and a route to it, with its number."""
    plane = DataPlane()
    plane.configure(PlaneConfig(**LIMITS))  # type: ignore[arg-type]
    mesh = plane.mesh(3)
    listener = plane.listener(engine.LISTEN_ROUTES)
    listener.configure(
        ListenerConfig(
            handshake_timeout=0,
            ping_interval=0,
            auth_timeout=AUTH_TIMEOUT,
            auth_required=True,
            no_auth_user=False,
            nonce=False,
            info=None,
            later_head=b"",
        )
    )
    sock = open_listener("127.0.0.1", 0)
    listener.listen(sock.fileno())
    thread = threading.Thread(target=plane.run, daemon=True)
    thread.start()
    with (
        contextlib.closing(sock),
        socket.create_connection(("127.0.0.1", bound_port(sock))) as peer,
    ):
        peer.settimeout(30)
        items: list[engine.Item] = []

        def told() -> bool:
            items.extend(plane.drain())
            return bool(items)

        wait_until(told, "a route is told")
        yield plane, mesh, items[0].cid, peer
    plane.stop()
    thread.join(30)
    plane.close()


def test_time_begins_with_the_first_word(
    accepted: tuple[DataPlane, MeshHandle, int, socket.socket],
) -> None:
    """A start that takes longer than a login may is no reason to refuse whoever waits for it."""
    _, mesh, number, peer = accepted
    peer.settimeout(5 * AUTH_TIMEOUT / 1e9)
    with pytest.raises(TimeoutError):
        peer.recv(100)
    peer.settimeout(30)
    assert mesh.write(number, b"INFO {}\r\n")
    with peer.makefile("rb") as lines:
        assert lines.readline() == b"INFO {}\r\n"
        assert lines.readline() == b"-ERR 'Authentication Timeout'\r\n"
        assert lines.readline() == b""
