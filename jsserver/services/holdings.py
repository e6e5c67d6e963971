"""What this server holds of its cluster's assets: for monitoring pages, for answers to requests
and for advisories about leaders.

begin() and close() run in the event loop; what pages read may be asked for in any thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jsserver.cluster.meta import Name, group_of, peers_of
from jsserver.services.answering import Answering
from jsserver.services.asking import Asking
from jsserver.services.elections import Elections
from jsserver.services.usages import Usages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.access.accounts import Accounts
    from jsserver.cluster.groups import RaftMember
    from jsserver.cluster.meta import MetaState
    from jsserver.cluster.moves import Usage
    from jsserver.services.held import Held
    from jsserver.services.jetstream import JetStream
    from jsserver.services.unheld import Unheld


LOOP_SECONDS = 10.0
"""Seconds for which a request waits for the event loop."""


class Holdings:
    """The holdings of one server."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        jetstream: JetStream,
        held: Held | None,
        *,
        id: str,
        name: str,
        cluster: Callable[[], str],
        names: Callable[[], Iterable[str]],
        state: Callable[[], MetaState],
        meta: Callable[[], RaftMember | None],
    ) -> None:
        """`held`: the assets that run here, None where none can; `id`, `name`: this server's;
        `cluster`: the cluster's present name; `names`: of the servers that this one is connected
        to; `state`: the meta group's; `meta`: this server's member of the meta group."""
        dispatcher = jetstream.dispatcher
        self._held = held
        self._id = id
        self._state = state
        self._meta = meta
        self._unheld: Unheld | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that assets are changed in; None: not begun yet."""
        self.usages = Usages(accounts, system_account, dispatcher.accounts, own=id)
        """What accounts use on all members."""
        self.elections = Elections(
            dispatcher.advisories,
            name=name,
            cluster=cluster,
            names=names,
            leaderless=(lambda: []) if held is None else held.replicas.leaderless,
        )
        """Sends the advisories about leaders."""
        self.answering = (
            Answering(accounts, system_account, dispatcher) if held is None else held.answering
        )
        """Answers requests."""
        self.asking = Asking(accounts[system_account], id) if held is None else held.asking
        """Asks other servers before this one answers."""

    def begin(self, unheld: Unheld) -> None:
        """Begins once the meta group is open. `unheld`: assets that are assigned to this server
        and cannot run here."""
        self._unheld = unheld
        self._loop = asyncio.get_running_loop()
        self.usages.begin()
        self.elections.begin()
        if self._held is not None:
            self._held.replicas.elected = self.elections.asset

    def close(self) -> None:
        """Sends no more advisories and usages."""
        self.usages.close()
        self.elections.close()

    def may_lead(self, account: str, *, may: bool) -> None:
        """Sets whether this server may lead streams and consumers of an account."""
        if self._held is not None:
            self._held.replicas.may_lead(account, may=may)

    def rebuild(self, account: str, stream: str) -> str:
        """Has a stream's replica built anew; why that cannot be, "" where it is begun. For threads
        other than the event loop's, which this waits for."""
        held, loop = self._held, self._loop
        if held is None or loop is None:
            return "this server holds no streams"

        async def begun() -> str:
            return held.rebuild(Name(account, stream))

        return asyncio.run_coroutine_threadsafe(begun(), loop).result(LOOP_SECONDS)

    # ---- what pages read

    def groups(self) -> list[RaftMember]:
        """All Raft groups that this server is a member of, the meta group first."""
        meta = self._meta()
        held = [] if self._held is None else self._held.replicas.groups()
        return held if meta is None else [meta, *held]

    def count(self) -> int:
        """The length of groups(), without making the list."""
        held = 0 if self._held is None else self._held.replicas.count()
        return held + (self._meta() is not None)

    def group_of(self, account: str, stream: str, consumer: str = "") -> str:
        """The name of the Raft group of a stream or consumer, "" where none is assigned."""
        found = self._state().streams.get(account, {}).get(stream)
        if found is None or not consumer:
            return "" if found is None else found.group
        return str(group_of(found.consumers.get(consumer, {})).get("name", ""))

    def assigned(self, account: str) -> dict[str, frozenset[str]]:
        """The streams of an account that this server is to run; with each, the consumers of it
        that this server is to run."""
        unheld = self._unheld
        if self._held is None or unheld is None:
            return {}

        def is_mine(asset: Name, said: dict[str, Any]) -> bool:
            return self._id in peers_of(said) and not unheld.has(asset)

        return {
            name: frozenset(
                consumer
                for consumer, said in list(stream.consumers.items())
                if is_mine(Name(account, name, consumer), said)
            )
            for name, stream in list(self._state().streams.get(account, {}).items())
            if is_mine(Name(account, name), stream.said)
        }

    def usage(self, account: str) -> Usage:
        """What an account uses on all members."""
        return self.usages.of(account)
