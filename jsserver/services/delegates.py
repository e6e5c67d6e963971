"""Logins that tokens decide: operator mode, or an auth callout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jsserver.access.accounts import Accounts
from jsserver.access.callout import Caller
from jsserver.cext.engine import DataPlane, Item
from jsserver.config.options import Options
from jsserver.process.logs import Logger
from jsserver.services.answers import Identity
from jsserver.services.callouts import Callouts, ConfiguredCallout
from jsserver.services.door import Door
from jsserver.services.inbox import Inbox
from jsserver.services.operated import Operated
from jsserver.services.replies import Replies

if TYPE_CHECKING:
    from jsserver.services.jetstream import JetStream
    from jsserver.services.tenants import Tenants
    from jsserver.text.nkeys import BoxPair, SigningPair


class Delegates:
    """The parts for such logins; hands each request to the part in charge."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        accounts: Accounts,
        inbox: Inbox,
        log: Logger,
        *,
        identity: Identity,
        keys: tuple[SigningPair, BoxPair],
        jetstream: JetStream | None,
        offer: Callable[[str], None],
    ) -> None:
        """`keys`: the server's keys for signing and for opening sealed messages; `offer`: offers a
        new account the server's services."""
        signer, box = keys
        self._door = Door(plane, log, inbox.decide)
        self._replies = Replies(accounts)
        caller = Caller(
            identity.name,
            options.host,
            options.server_tags,
            signer,
            box,
            options.auth_timeout,
            options.tls is not None and options.tls.verify,
        )
        self._callouts = Callouts(caller, accounts, self._replies, log, self._door.settle)
        self._operated: Operated | None = None
        if options.operators.enabled:
            self._operated = Operated(
                options,
                plane,
                accounts,
                inbox,
                log,
                jetstream=jetstream,
                serve=offer,
                info=identity.info,
                door=self._door,
                replies=self._replies,
                callouts=self._callouts,
            )
        elif options.authorization.callout is not None:
            configured = ConfiguredCallout(self._callouts, options.authorization.callout)
            inbox.on_delegate = configured.ask

    @property
    def tenants(self) -> Tenants | None:
        """The accounts of operator mode."""
        return None if self._operated is None else self._operated.tenants

    @property
    def pinned_account_fails(self) -> int:
        """Refused logins to accounts that are not pinned."""
        return 0 if self._operated is None else self._operated.mode.pinned_fails

    async def start(self, with_streams: Iterable[str]) -> None:
        """Fetches the accounts that the server needs, those with streams among them. ValueError:
        the server cannot run with these."""
        if self._operated is not None:
            await self._operated.start(with_streams)

    async def reload(self) -> None:
        """Takes new options."""
        if self._operated is not None:
            await self._operated.reload()

    def close(self) -> None:
        """Admits and answers nobody any more."""
        if self._operated is not None:
            self._operated.close()
        self._callouts.close()
        self._door.close()

    def closed(self, cid: int) -> None:
        """A connection was closed."""
        self._door.closed(cid)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if it is for one of the parts; whether it was."""
        if self._replies.take(item):
            return True
        return self._operated is not None and self._operated.take(item)
