"""Leads of streams that a server gives up while a hub cannot be reached, so that members of its
cluster that may reach the hub take over."""

from __future__ import annotations

from collections.abc import Iterable

from .leafmodel import LeafTransport, Remote


class Yielding:
    """Decides when, for the hubs of a server that have `migrate`."""

    def __init__(self, remotes: list[Remote], transport: LeafTransport) -> None:
        self._remotes = remotes
        self._transport = transport

    def failed(self, remote: Remote, now: float) -> None:
        """An attempt to reach the hub has failed."""
        if remote.migrate is None:
            return
        if remote.yields:
            self._transport.may_lead(remote.account, may=False)  # there may be new streams
        elif remote.yields_at is None:
            remote.yields_at = now + remote.migrate

    def tick(self, now: float) -> Iterable[float]:
        """Gives up what is due; when to call again."""
        for remote in self._remotes:
            if remote.yields_at is None:
                continue
            if remote.yields_at > now:
                yield remote.yields_at
                continue
            remote.yields_at, remote.yields = None, True
            name = f"hub {remote.label}"
            text = f"Streams of account {remote.account} are led elsewhere: {name} is not reached"
            self._transport.log("warn", text)
            self._transport.may_lead(remote.account, may=False)

    def over(self, remote: Remote) -> None:
        """The hub is there, or this server does not want it any more."""
        remote.yields_at = None
        if not remote.yields:
            return
        remote.yields = False
        if not any(r.yields and r.account == remote.account for r in self._remotes):
            text = f"Streams of account {remote.account} may be led here again"
            self._transport.log("info", text)
            self._transport.may_lead(remote.account, may=True)
