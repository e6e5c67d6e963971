"""Compression between servers: the mode that a link gets. The rules are nats-server's
(docs/links.md)."""

from typing import Protocol

from jsserver.text.goformat import MILLISECOND, quote

NOT_SUPPORTED = "not supported"
"""Behaves as old servers, which know nothing of compression."""
OFF = "off"
ACCEPT = "accept"
AUTO = "s2_auto"
FAST = "s2_fast"
SENDING = (AUTO, "s2_uncompressed", FAST, "s2_better", "s2_best")
"""Modes in which a server compresses."""

THRESHOLDS = (10 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND)
"""Round trips, in ns, up to which s2_auto does not compress, or compresses fast or better, where a
configuration has no others."""


def negotiates(mode: str) -> bool:
    """Whether a server of that mode would compress, if the other one does."""
    return mode not in ("", OFF, NOT_SUPPORTED)


def select(own: str, others: str) -> str:
    """The mode in which a server that negotiates sends to another one, which may send in a mode of
    its own; ValueError."""
    if others in ("", NOT_SUPPORTED):
        return NOT_SUPPORTED
    if others == OFF or own == others == ACCEPT:
        return OFF
    if others not in (ACCEPT, *SENDING):
        raise ValueError(f"unsupported route compression mode {quote(others)}")
    if own != ACCEPT:
        return own
    return FAST if others == AUTO else others


def needs_another(agreed: str, new: str) -> bool:
    """Whether a link whose mode was agreed on has to come anew for its server to send in another
    mode: both sides would have to agree on that."""
    return agreed == OFF or new in (OFF, ACCEPT, NOT_SUPPORTED)


class Compressible(Protocol):
    """A link."""

    compression: str
    """The mode that was agreed on, once it was."""


def begins(link: Compressible, own: str, others: str) -> bool:
    """Settles a link's mode, once, by what the other side says of it; ValueError. Whether both
    sides compress from here on."""
    if link.compression:
        return False
    if negotiates(own):
        link.compression = select(own, others)
    else:
        link.compression = OFF if others and own != NOT_SUPPORTED else NOT_SUPPORTED
    return negotiates(link.compression)


def announced(own: str, chosen: str = "") -> str:
    """What INFO says: the mode that was chosen for the link, if it was, else the server's own."""
    return own if own == AUTO or not chosen else chosen
