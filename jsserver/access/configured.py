"""The accounts of a configuration as they run: opened at the start, changed by reloads."""

from __future__ import annotations

from collections.abc import Sequence

from jsserver import TYPE_CHECKING
from jsserver.access.accounts import Accounts
from jsserver.config.block import Block, each
from jsserver.config.options import GLOBAL_ACCOUNT, Mapping, Options

if TYPE_CHECKING:
    from jsserver.access.links import Links, Wanted
    from jsserver.config.links import Sharing


class Shared(Block):
    """What accounts share (None: nothing), and what they import, ready to be compared."""

    sharing: Sharing | None = None
    imports: Wanted = each(dict)


class Configured:
    """What accounts may and share, put into the data plane; their JetStream is not its matter."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._links: Links | None = None
        self.sharing: Sharing | None = None
        """What accounts share; None: nothing."""
        self._mapped: dict[str, Sequence[Mapping]] = {}

    def narrow(self, shared: Shared) -> None:
        """No account imports any more what it does not import by this."""
        if self._links is not None:
            self._links.narrow(shared.imports)

    def follow(self, options: Options, shared: Shared) -> None:
        """The accounts are from now on as these options have them, and share this. Those that are
        in them no more are open still."""
        self._map(GLOBAL_ACCOUNT, options.mappings)
        for account in options.accounts:
            self._accounts.open(account.name).limit_clients(
                account.max_connections, account.max_subscriptions, account.max_payload
            )
            self._map(account.name, account.mappings)
        if options.system:
            self._accounts.open(options.system)
        self.sharing = shared.sharing
        if shared.imports and self._links is None:
            from jsserver.access.links import Links  # a server without them starts without it

            self._links = Links(self._accounts)
        if self._links is not None:
            self._links.follow(shared.imports)

    def close(self, name: str) -> None:
        """Ends an account, whose streams were closed before."""
        self._mapped.pop(name, None)
        self._accounts.close(name)

    def _map(self, name: str, mappings: Sequence[Mapping]) -> None:
        handle = self._accounts.open(name)
        if mappings == self._mapped.get(name, []):
            return
        from jsserver.config.mappings import weighed  # a server without them starts without it

        handle.map_subjects([(m.source.encode(), weighed(m)) for m in mappings])
        self._mapped[name] = mappings


def shared_by(options: Options) -> Shared:
    """What the accounts of a configuration share. From any thread."""
    if not any(account.imports or account.exports for account in options.accounts):
        return Shared()
    from jsserver.access.links import keyed  # a server without it starts without it
    from jsserver.config.links import share

    sharing, _ = share(options.accounts)
    names = [account.name for account in options.accounts if account.imports]
    return Shared(sharing=sharing, imports={name: keyed(sharing.routes(name)) for name in names})
