"""Compression of links between servers: negotiates each link's mode by nats-server's rules
(docs/links.md)."""

from typing import Protocol

from jsserver.text.goformat import MILLISECOND, quote

NOT_SUPPORTED = "not supported"
"""The mode of servers that are too old for compression."""
OFF = "off"
ACCEPT = "accept"
AUTO = "s2_auto"
FAST = "s2_fast"
SENDING = (AUTO, "s2_uncompressed", FAST, "s2_better", "s2_best")
"""Modes in which a server compresses what it sends."""

THRESHOLDS = (10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND)
"""The default round trips in ns for s2_auto: up to the first one it does not compress, up to the
second it compresses fast, up to the third better."""


def negotiates(mode: str) -> bool:
    """Whether a server in this mode negotiates compression."""
    return mode not in ("", OFF, NOT_SUPPORTED)


def select(own: str, others: str) -> str:
    """The mode in which a negotiating server sends to another one; `others`: the other server's
    mode, in which that one may send. ValueError: unknown mode."""
    if others in ("", NOT_SUPPORTED):
        return NOT_SUPPORTED
    if others == OFF or own == others == ACCEPT:
        return OFF
    if others not in (ACCEPT, *SENDING):
        raise ValueError(f"unsupported route compression mode {quote(others)}")
    if own != ACCEPT:
        return own
    return FAST if others == AUTO else others


class Compressible(Protocol):
    """A link that can be compressed."""

    compression: str
    """The negotiated mode; "" before the negotiation."""


def begins(link: Compressible, own: str, others: str) -> bool:
    """Negotiates a link's mode, once; `others`: the mode that the other side announces. Whether
    both sides compress from here on. ValueError: unknown mode."""
    if link.compression:
        return False
    if negotiates(own):
        link.compression = select(own, others)
    else:
        link.compression = OFF if others and own != NOT_SUPPORTED else NOT_SUPPORTED
    return negotiates(link.compression)


def changes(link: Compressible, new: str) -> bool:
    """Takes another mode for a link that has negotiated one. False: that needs a new connection,
    because both sides have to negotiate again."""
    if link.compression == OFF or new in (OFF, ACCEPT, NOT_SUPPORTED):
        return False
    link.compression = new
    return True


def announced(own: str, chosen: str = "") -> str:
    """The mode to announce in INFO: the one negotiated for the link, or the server's own."""
    return own if own == AUTO or not chosen else chosen
