"""Removes all that an account has in JetStream, as a user of the system account asks for."""

import logging
from collections.abc import Mapping
from pathlib import Path

from jsserver.assets.changes import DeleteStream
from jsserver.instances import metafiles
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.instances.rounds import alone
from jsserver.instances.shared import Shared
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

from .advisories import Advisories
from .responses import AccountPurgeResponse

log = logging.getLogger(__name__)


class AccountPurge:
    """ACCOUNT.PURGE of the accounts of one server."""

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        accounts: Mapping[str, Account],
        directory: Path | None,
    ) -> None:
        """`accounts`: those that have JetStream; `directory`: where any account's files are."""
        self._shared = shared
        self._advisories = advisories
        self._accounts = accounts
        self._directory = directory

    async def purge(self, name: str) -> AccountPurgeResponse:
        """Answers when everything is gone, also what an account left that has no JetStream now."""
        if "/" in name or "\\" in name:
            raise errcodes.STREAM_GENERAL(err="account name can not contain path separators")
        account = self._accounts.get(name)
        streams = [] if account is None else [*account.streams]
        known = "true" if name in self._shared.accounts else "false"
        log.info(
            "Purge request for account %s (streams: %d, hasAccount: %s)", name, len(streams), known
        )
        try:
            if account is not None:
                for stream in streams:
                    await self._delete(account, stream)
                for stream in [*account.offline]:
                    await self._erase_offline(account, stream)
            elif self._directory is not None:
                await self._shared.run(self._erase, self._directory / name / "streams")
        except OSError as error:
            raise errcodes.STREAM_GENERAL(err=str(error)) from None
        return AccountPurgeResponse(initiated=True)

    async def _delete(self, account: Account, name: str) -> None:
        async with account.lock(name):
            stream = account.streams.get(name)
            if stream is None:
                return
            consumers = [*stream.consumers]
            try:
                await account.change_stream(DeleteStream(name))
            except (ApiError, StoreError) as error:
                raise errcodes.STREAM_DELETE(err=str(error)) from None
        for consumer in consumers:
            self._advisories.consumer(account.name, name, consumer, "delete")
        self._advisories.stream(account.name, name, "delete")

    async def _erase_offline(self, account: Account, name: str) -> None:
        """One that is on disk and is not served."""
        async with account.lock(name):
            if name not in account.offline:
                return  # somebody else has removed it
            assert account.directory is not None  # where the start has found it
            await self._shared.run(self._erase, account.directory / name)
            account.offline.pop(name, None)

    def _erase(self, directory: Path) -> None:
        if directory.is_dir():
            self._shared.erase_later(alone(metafiles.discard(directory, directory.parent)))
