"""The accounts of a server: handles by name, and names by what the data plane calls them."""

from __future__ import annotations

from collections.abc import Iterator

from jsserver.cext.engine import AccountHandle, DataPlane
from jsserver.text.identity import short_hash


class Accounts:
    """The data plane's accounts, by name, in the order in which they were made."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._handles: dict[str, AccountHandle] = {}
        self._names: dict[int, str] = {}
        self._tags: dict[str, str] = {}
        self._leafs: dict[str, int] = {}
        self._clients: dict[str, tuple[int, int, int]] = {}
        self._elsewhere: dict[str, tuple[int, int]] = {}
        """Connections of clients and of leaf nodes at other servers, by account."""

    def __getitem__(self, name: str) -> AccountHandle:
        return self._handles[name]

    def __contains__(self, name: object) -> bool:
        return name in self._handles

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._handles))  # pages look at it from other threads

    def items(self) -> list[tuple[str, AccountHandle]]:
        """Names and accounts as they are now."""
        return list(self._handles.items())

    def open(self, name: str) -> AccountHandle:
        """The account of this name, made if it is new."""
        handle = self._handles.get(name)
        if handle is None:
            handle = self._plane.account(name, short_hash(name).encode())
            self._names[handle.id] = name
            self._handles[name] = handle
        return handle

    def name_of(self, account: int) -> str:
        """The name of the account with this id, of a closed one too."""
        return self._names[account]

    def tag_of(self, name: str) -> str:
        """What people call an account: where its token says nothing else, that is its name."""
        return self._tags.get(name) or name

    def call(self, name: str, tag: str) -> None:
        """From now on people call the account so."""
        self._tags[name] = tag

    def label_of(self, account: int) -> str:
        """How the log names the account with this id."""
        name = self._names[account]
        tag = self.tag_of(name)
        return name if tag == name else f"{name}/{tag}"

    def limit_clients(self, name: str, most: int, subscriptions: int, payload: int) -> None:
        """How many clients the account may have, at all servers together, and what each may; -1: no
        limit."""
        self._clients[name] = most, subscriptions, payload
        self._limit_here(name)

    def limit_leafs(self, name: str, most: int) -> None:
        """How many leaf nodes and hubs the account may have, at all servers together; -1: no
        limit."""
        self._leafs[name] = most

    def count_elsewhere(self, name: str, clients: int, leafs: int) -> None:
        """How many connections the account has at other servers; it may be open here only later."""
        if (clients, leafs) == self._elsewhere.get(name, (0, 0)):
            return
        if clients or leafs:
            self._elsewhere[name] = clients, leafs
        else:
            del self._elsewhere[name]
        if name in self:
            self._limit_here(name)

    def _limit_here(self, name: str) -> None:
        most, *others = self._clients.get(name, (-1, -1, -1))
        there, _ = self._elsewhere.get(name, (0, 0))
        self[name].limit_clients(max(most - there, 0) if most >= 0 else most, *others)

    def most_leafs(self, name: str) -> int:
        """How many leaf nodes and hubs the account may have here now; -1: no limit."""
        most = self._leafs.get(name, -1)
        return max(most - self._elsewhere.get(name, (0, 0))[1], 0) if most >= 0 else most

    def close(self, name: str) -> None:
        """Ends an account, whose streams were closed before: its clients are cut."""
        for of_all in (self._leafs, self._clients):
            of_all.pop(name, None)
        self._handles.pop(name).close()
