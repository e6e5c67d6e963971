"""Connections of accounts at other servers count as long as these say so."""

import asyncio
import json

import pytest

from jsserver.cext.engine import INBOX_REQUEST, Item
from jsserver.services import elsewhere
from jsserver.services.elsewhere import Elsewhere


class Handle:
    id = 1

    def serve_requests(self, subject: bytes) -> None:
        assert subject == elsewhere.COUNTS


class Accounts(dict[str, Handle]):
    """Accounts, and what counts for their limits."""

    def __init__(self) -> None:
        super().__init__(SYS=Handle())
        self.counted: dict[str, tuple[int, int]] = {}

    def count_elsewhere(self, name: str, clients: int, leafs: int) -> None:
        self.counted[name] = clients, leafs


def said(server: str, account: str, conns: int, leafs: int = 0) -> Item:
    body = {"server": {"id": server * 2, "name": server}, "acc": account}
    text = json.dumps({**body, "conns": conns, "leafnodes": leafs}).encode()
    subject = f"$SYS.ACCOUNT.{account}.SERVER.CONNS".encode()
    return Item(INBOX_REQUEST, 0, (1, 1), (subject, b"", b"", text))


def test_servers_that_say_how_many_and_that_are_lost() -> None:
    async def steps() -> list[tuple[int, int]]:
        accounts = Accounts()
        others = Elsewhere(accounts, "SYS", "oneone")  # type: ignore[arg-type]
        found = []
        for word in (said("two", "A", 2), said("three", "A", 3, 1), said("one", "A", 9)):
            assert others.take(word)
            found.append(accounts.counted["A"])
        others.take(said("two", "A", 0))
        found.append(accounts.counted["A"])
        others.lost("three")
        return [*found, accounts.counted["A"]]

    assert asyncio.run(steps()) == [(2, 0), (5, 1), (5, 1), (3, 1), (0, 0)]


def test_servers_that_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "HEARD_SECONDS", 0.05)

    async def steps() -> None:
        accounts = Accounts()
        others = Elsewhere(accounts, "SYS", "oneone")  # type: ignore[arg-type]
        for _ in range(2):
            others.take(said("two", "A", 2))
            assert accounts.counted["A"] == (2, 0)
            while accounts.counted["A"] != (0, 0):
                await asyncio.sleep(0.01)  # a server says nothing

    asyncio.run(asyncio.wait_for(steps(), 20))
