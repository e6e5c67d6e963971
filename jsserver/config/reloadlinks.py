"""What a reload may change of the blocks `leafnodes` and `gateway`, as nats-server does, and what
the log is told of that."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.text.goformat import duration, quote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from jsserver.config.gateways import Gateway
    from jsserver.config.leafs import Leafnodes, LeafRemote
    from jsserver.config.options import Tls

_THRESHOLDS = "10ms 50ms 100ms"
_TAKEN_OF_LEAFNODES = ("compression", "rtt_thresholds", "remotes", "tls")
_TAKEN_OF_REMOTE = ("compression", "rtt_thresholds", "disabled", "tls")


def differing(old: Any, new: Any, taken: tuple[str, ...]) -> Iterator[str]:
    """The options of a block that are other ones, but for those that a reload may change."""
    for name in sorted(vars(old)):
        if name not in taken and getattr(old, name) != getattr(new, name):
            yield name


def refused_of_leafnodes(old: Leafnodes, new: Leafnodes) -> Iterator[str]:
    """Options of the block that may not change."""
    yield from differing(old, new, _TAKEN_OF_LEAFNODES)
    if not _may_follow(old.tls, new.tls) or _pins(old.tls) != _pins(new.tls):
        yield "tls"
    for before, after in _kept(old, new):
        names = list(differing(before, after, _TAKEN_OF_REMOTE))
        names += [] if _may_follow(before.tls, after.tls) else ["tls"]
        for name in names:
            yield f"remotes ({_named(after)}): {name}"


def refused_of_gateway(old: Gateway, new: Gateway) -> Iterator[str]:
    """Likewise: only what connections are secured by may."""
    yield from differing(old, new, ("tls", "gateways"))
    if not _may_follow(old.tls, new.tls):
        yield "tls"
    if len(old.gateways) != len(new.gateways):
        yield "gateways"
        return
    for before, after in zip(old.gateways, new.gateways, strict=True):
        others = any(True for _ in differing(before, after, ("tls",)))
        if others or not _may_follow(before.tls, after.tls):
            yield "gateways"
            return


def told_of_leafnodes(old: Leafnodes, new: Leafnodes) -> Iterator[str]:
    """A line for each change."""
    if _compression(old) != _compression(new):
        yield f"Reloaded: LeafNode Compression value is: {_compression(new)}"
    had, has = old.tls, new.tls
    if had and has and (had.first, had.fallback) != (has.first, has.fallback):
        first = "true" if has.first else "false"
        yield f"Reloaded: LeafNode TLS HandshakeFirst value is: {first}"
        yield f"Reloaded: LeafNode TLS HandshakeFirstFallback value is: {duration(has.fallback)}"
    present = {remote.identity for remote in new.remotes}
    for remote in old.remotes:
        if remote.identity not in present:
            yield f"Reloaded: LeafNode Remote {_named(remote)} removed"
    for before, after in _kept(old, new):
        start = f"Reloaded: LeafNode Remote {_named(after)}"
        if _first(before) != _first(after):
            yield f"{start} TLS HandshakeFirst value is: {'true' if _first(after) else 'false'}"
        if _compression(before) != _compression(after):
            yield f"{start} Compression value is: {_compression(after)}"
        if before.disabled != after.disabled:
            yield f"{start} Disabled value is: {'true' if after.disabled else 'false'}"


def _kept(old: Leafnodes, new: Leafnodes) -> Iterator[tuple[LeafRemote, LeafRemote]]:
    """The remotes that stay, as they were and as they are."""
    before = {remote.identity: remote for remote in old.remotes}
    for remote in new.remotes:
        if remote.identity in before:
            yield before[remote.identity], remote


def _may_follow(old: Tls | None, new: Tls | None) -> bool:
    """Whether connections may be secured another way: as long as they are, and in the same time."""
    if old is None or new is None:
        return old is new
    return old.timeout == new.timeout


def _pins(tls: Tls | None) -> list[str]:
    return sorted(tls.pinned_certs or ()) if tls is not None else []


def _first(remote: LeafRemote) -> bool:
    return remote.tls is not None and remote.tls.first


def _compression(block: Leafnodes | LeafRemote) -> str:
    thresholds = " ".join(map(duration, block.rtt_thresholds))
    if block.compression == "s2_auto" and not thresholds:
        thresholds = _THRESHOLDS
    return f"{{{block.compression} [{thresholds}]}}"


def _named(remote: LeafRemote) -> str:
    """As the log names it, without secrets."""
    urls = " ".join(map(quote, remote.shown_urls))
    return f"urls=[{urls}], account={quote(remote.shown_account)}"
