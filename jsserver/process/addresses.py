"""The addresses of this machine that others may reach it at."""

from __future__ import annotations

import ctypes
import ipaddress
import socket

from jsserver.process.sockets import host_port

ANY = ("0.0.0.0", "::")
IPV4_AT, IPV4_BYTES = 4, 4
IPV6_AT, IPV6_BYTES = 8, 16
"""Where the address lies in a sockaddr_in and a sockaddr_in6."""


class _Interface(ctypes.Structure):
    """struct ifaddrs, as far as it is read."""


_Interface._fields_ = [
    ("next", ctypes.POINTER(_Interface)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def reached_at(host: str, port: int) -> list[str]:
    """What a listener on this host and port is reached at, each as `host:port`: of one on all
    addresses, every address of the machine that is not for itself or its link alone."""
    hosts = machine_addresses() if host in ANY else []
    return [host_port(one, port) for one in hosts or [host]]


def machine_addresses() -> list[str]:
    """The addresses of all interfaces that others may reach; none where that cannot be known."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Interface)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return []
    found = []
    try:
        at = first
        while at:
            if at.contents.address:
                found.append(_address(at.contents.address))
            at = at.contents.next
    finally:
        libc.freeifaddrs(first)
    return list(dict.fromkeys(one for one in found if one))


def _address(at: int) -> str:
    """The address of a sockaddr; "" if it is not one that others may reach."""
    family = ctypes.c_ushort.from_address(at).value
    if family == socket.AF_INET:
        raw = ctypes.string_at(at + IPV4_AT, IPV4_BYTES)
    elif family == socket.AF_INET6:
        raw = ctypes.string_at(at + IPV6_AT, IPV6_BYTES)
    else:
        return ""
    found = ipaddress.ip_address(raw)
    local = found.is_loopback or found.is_link_local or found.is_multicast
    return "" if local or found.is_unspecified else str(found)
