"""Why a connection is refused: a text for the log, and a reason for monitoring and events."""

from __future__ import annotations


class Refused(Exception):
    """Why a login is refused, for the log alone: clients hear the same of all."""

    reason = "Authentication Failure"
    """What monitoring says of the connection's end."""


class ProxyRequired(Refused):
    """The user has to come by a proxy that is trusted."""

    reason = "Proxy Required"

    def __init__(self) -> None:
        super().__init__("proxy connection required")


class ProxyNotTrusted(Refused):
    """The proxy that it comes by is none of those that are trusted."""

    reason = "Proxy Not Trusted"

    def __init__(self) -> None:
        super().__init__("proxy is not trusted")
