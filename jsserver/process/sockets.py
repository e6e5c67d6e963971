"""Listening sockets: opened as nats-server opens them, with its error texts."""

import os
import socket


def host_port(host: str, port: int) -> str:
    """host:port, IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def open_listener(host: str, port: int) -> socket.socket:
    """A non-blocking listening TCP socket; port 0 or below picks a free one.

    0.0.0.0 and :: listen on both IPv4 and IPv6, where the machine has both. Raises OSError whose
    text reads like the one operators know from nats-server.
    """
    wildcard = host in ("", "0.0.0.0", "::")
    wanted = max(port, 0)
    try:
        if wildcard and socket.has_dualstack_ipv6():
            sock = _listen(socket.AF_INET6, "::", wanted, dual=True)
        else:
            target = "0.0.0.0" if wildcard else host
            # As bytes: of a text, Python makes an international name, which nats-server does not,
            # and loads what that needs.
            family, _, _, _, address = socket.getaddrinfo(
                target.encode(), wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            sock = _listen(family, str(address[0]), wanted, dual=False)
    except socket.gaierror as e:
        raise OSError(f"listen tcp: lookup {host}: no such host") from e
    except OSError as e:
        reason = os.strerror(e.errno).lower() if e.errno else str(e)
        raise OSError(f"listen tcp {host_port(host, wanted)}: bind: {reason}") from e
    return sock


def _listen(family: int, host: str, port: int, *, dual: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind((host, port))
        sock.listen(4096)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def bound_port(sock: socket.socket) -> int:
    """The port a socket really listens on."""
    return int(sock.getsockname()[1])


def local_addresses() -> list[str]:
    """This machine's IP addresses for the ports file, 127.0.0.1 first."""
    found = ["127.0.0.1"]
    try:
        infos = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        infos = []
    for family, _, _, _, address in infos:
        text = str(address[0])
        if family in (socket.AF_INET, socket.AF_INET6) and text not in found:
            found.append(text)
    return found
