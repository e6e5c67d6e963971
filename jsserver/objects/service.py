"""The service behind `$OBJ.>`, put together: requests to buckets, uploads, objects on their way.

It works on streams as any client of the account does: it publishes messages and hears their acks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jsserver.api.endpoints import Endpoint
from jsserver.api.responder import Request, Responder
from jsserver.instances.account import Account
from jsserver.instances.shared import Shared

from .buckets import PREFIX, STREAM, ObjectResponse
from .requests import Requests
from .sending import Sendings
from .uploads import Limits, Uploads
from .writer import Writer


class Objects(Responder):
    """That of a server. In the event loop's thread alone."""

    def __init__(
        self,
        shared: Shared,
        accounts: Mapping[str, Account],
        limits: Limits,
        finished: Callable[[int, int], None],
    ) -> None:
        """`accounts` and `finished`: see `Uploads`."""
        self._writer = Writer(shared)
        self._sendings = Sendings(shared)
        self._uploads = Uploads(shared, accounts, self._writer, limits, finished)
        self._endpoint = Endpoint(
            *("$OBJ", "jsserver_object_response"),
            Requests(self._writer, self._sendings).serve,
            ObjectResponse,
            audited=False,
            errors_audited=False,
            prefix=STREAM,
        )

    def receive(self, request: Request, subject: str) -> bool:
        """Takes acks of streams, and what is of an upload."""
        if self._writer.receive(request.account, subject, request.payload):
            return True
        return self._uploads.receive(request, subject)

    def route(self, subject: str) -> tuple[Endpoint, list[str]] | None:
        """A request to a bucket is served among the requests to the API, which may be to its
        stream: those of one connection keep their order."""
        if not subject.startswith(PREFIX):
            return None
        return self._endpoint, [subject[len(PREFIX) :]]

    async def recover(self, account: Account) -> None:
        """Of an account that was opened: what a crash has cut off goes."""
        await self._uploads.recover(account)

    async def forget_account(self, account: Account) -> None:
        """Ends what is under way in an account."""
        await self._sendings.forget_account(account)
        await self._uploads.forget_account(account)

    def connection_gone(self, connection: int) -> None:
        """Nobody sends the rest of its uploads."""
        self._uploads.connection_gone(connection)

    async def close(self) -> None:
        """Ends all."""
        self._uploads.refuse()
        await self._sendings.close()
        await self._uploads.close()
