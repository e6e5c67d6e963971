"""How long the data plane waits for the first words of another server."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from jsserver.cext import engine
from jsserver.cext.engine import DataPlane, LinkHandle, ListenerConfig, PlaneConfig
from jsserver.process.sockets import bound_port, open_listener
from tests.unit.test_dataplane import LIMITS
from tests.waiting import wait_until

AUTH_TIMEOUT = 100 * 10**6


@pytest.fixture(params=[engine.LISTEN_ROUTES, engine.LISTEN_LEAFS], ids=["route", "leaf"])
def accepted(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[DataPlane, LinkHandle, int, socket.socket]]:
    """A data plane whose control plane has said nothing yet, and a link to it, with its number."""
    plane = DataPlane()
    plane.configure(PlaneConfig(**LIMITS))  # type: ignore[arg-type]
    routed = request.param == engine.LISTEN_ROUTES
    links = plane.mesh(3) if routed else plane.leaf_links()
    listener = plane.listener(request.param)
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

        wait_until(told, "a link is told")
        yield plane, links, items[0].cid, peer
    plane.stop()
    thread.join(30)
    plane.close()


def test_time_begins_with_the_first_word(
    accepted: tuple[DataPlane, LinkHandle, int, socket.socket],
) -> None:
    """A start that takes longer than a login may is no reason to refuse members that wait."""
    _, links, number, peer = accepted
    peer.settimeout(5 * AUTH_TIMEOUT / 1e9)
    with pytest.raises(TimeoutError):
        peer.recv(100)
    peer.settimeout(30)
    assert links.write(number, b"INFO {}\r\n")
    with peer.makefile("rb") as lines:
        assert lines.readline() == b"INFO {}\r\n"
        assert lines.readline() == b"-ERR 'Authentication Timeout'\r\n"
        assert lines.readline() == b""
