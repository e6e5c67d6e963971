"""The addresses of this machine that others may reach it at."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

from jsserver.process.sockets import host_port

ANY = ("0.0.0.0", "::")
_NETLINK_ROUTE = 0
_ERROR, _DONE, _GET_ADDRESSES = 2, 3, 22
_REQUEST_ALL = 0x301
"""NLM_F_REQUEST and NLM_F_DUMP: every entry of the table."""
_ADDRESS, _LOCAL = 1, 2
"""IFA_ADDRESS is that of the other end where there is one, and then IFA_LOCAL is the own one."""
_HEADER = struct.Struct("=IHHII")
_ENTRY = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_BYTES = 1 << 16
_SECONDS = 1.0


def reached_at(host: str, port: int) -> list[str]:
    """What a listener on this host and port is reached at, each as `host:port`: of one on all
    addresses, every address of the machine that is not for itself or its link alone."""
    hosts = machine_addresses() if host in ANY else []
    return [host_port(one, port) for one in hosts or [host]]


def machine_addresses() -> list[str]:
    """The addresses of all interfaces that others may reach; none where that cannot be known.

    The kernel is asked by rtnetlink(7): the library call for it would need all of ctypes.
    """
    request = _ENTRY.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    head = _HEADER.pack(_HEADER.size + len(request), _GET_ADDRESSES, _REQUEST_ALL, 1, 0)
    found = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as asked:
            asked.settimeout(_SECONDS)
            asked.send(head + request)
            kind = 0
            while kind not in (_ERROR, _DONE):
                for kind, body in _parts(asked.recv(_ANSWER_BYTES), _HEADER, 4):
                    found.append("" if kind in (_ERROR, _DONE) else _address(body))
    except OSError:
        return []
    return list(dict.fromkeys(one for one in found if one))


def _parts(data: bytes, head: struct.Struct, align: int) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message, or of each attribute; both begin with their length."""
    at = 0
    while at + head.size <= len(data):
        size, kind = head.unpack_from(data, at)[:2]
        if size < head.size:
            return
        yield kind, data[at + head.size : at + size]
        at += (size + align - 1) // align * align


def _address(entry: bytes) -> str:
    """The address in an entry of the table; "" if it is not one that others may reach."""
    attributes = dict(_parts(entry[_ENTRY.size :], _ATTRIBUTE, 4))
    raw = attributes.get(_LOCAL, attributes.get(_ADDRESS, b""))
    if len(raw) not in (4, 16):
        return ""
    found = ipaddress.ip_address(raw)
    local = found.is_loopback or found.is_link_local or found.is_multicast
    return "" if local or found.is_unspecified else str(found)
