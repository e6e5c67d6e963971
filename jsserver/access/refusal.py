"""Why a connection is refused: a text for the log, and a reason for monitoring and events."""

from __future__ import annotations

from typing import NamedTuple


class Told(NamedTuple):
    """What an account with an auth callout hears of a login that was refused: a reason (None: that
    of the connection's end) and, where a token said so, who wanted to come in."""

    account: str
    reason: str | None = None
    user: str = ""
    issuer: str = ""
    tags: tuple[str, ...] = ()


class Refused(Exception):
    """Why a login is refused, for the log alone: clients hear the same of all."""

    reason = "Authentication Failure"
    """What monitoring says of the connection's end."""
    told: Told | None = None
    """What the users of an account hear of it, if that is more than the reason."""


class OutsideTimes(Refused):
    """The user may not be there at this time of day."""


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
