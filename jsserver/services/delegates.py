"""What lets users in by tokens, put together for one server: operator mode, or an auth callout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jsserver.access.callout import Caller
from jsserver.cext.engine import Item
from jsserver.services.callouts import Callouts, ConfiguredCallout
from jsserver.services.door import Door
from jsserver.services.operated import Operated
from jsserver.services.replies import Replies

if TYPE_CHECKING:
    from jsserver.server import Server
    from jsserver.services.tenants import Tenants


class Delegates:
    """Its parts, and which of them takes what comes."""

    def __init__(self, server: Server) -> None:
        options, front = server.options, server.front
        assert front.keys is not None, "a server that lets in by tokens has keys"
        signer, box = front.keys
        self._door = Door(server.plane, server.log, server.inbox.decide)
        self._replies = Replies(server.accounts)
        timeout = options.auth_timeout
        verifies = options.tls is not None and options.tls.verify
        identity = (server.name, options.host, options.server_tags, signer, box)
        caller = Caller(*identity, timeout, verifies)
        self._callouts = Callouts(
            caller, server.accounts, self._replies, server.log, self._door.settle
        )
        self._operated: Operated | None = None
        if options.operators.enabled:
            self._operated = Operated(
                options,
                server.plane,
                server.accounts,
                server.inbox,
                server.log,
                jetstream=server.jetstream,
                serve=front.offer_services,
                info=server.identity.info,
                door=self._door,
                replies=self._replies,
                callouts=self._callouts,
            )
        elif options.authorization.callout is not None:
            configured = ConfiguredCallout(self._callouts, options.authorization.callout)
            server.inbox.on_delegate = configured.ask

    @property
    def tenants(self) -> Tenants | None:
        """The accounts of operator mode."""
        return None if self._operated is None else self._operated.tenants

    @property
    def pinned_account_fails(self) -> int:
        """Logins to accounts that are none of those that are pinned."""
        return 0 if self._operated is None else self._operated.mode.pinned_fails

    async def start(self, with_streams: Iterable[str]) -> None:
        """Brings the accounts that the server cannot be without, those with streams among them.
        ValueError, if it is none with these."""
        if self._operated is not None:
            await self._operated.start(with_streams)

    async def reload(self) -> None:
        """The options have changed."""
        if self._operated is not None:
            await self._operated.reload()

    def close(self) -> None:
        """Lets nobody in any more, and answers nothing."""
        if self._operated is not None:
            self._operated.close()
        self._callouts.close()
        self._door.close()

    def closed(self, cid: int) -> None:
        """A connection ended."""
        self._door.closed(cid)

    def take(self, item: Item) -> bool:
        """Whether a request out of the inbox is for this."""
        if self._replies.take(item):
            return True
        return self._operated is not None and self._operated.take(item)
