"""What two servers measure of one answer becomes one report."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.cext.engine import INBOX_LATENCY, INBOX_MEASURED, INBOX_REQUEST, Item
from jsserver.services import measured
from jsserver.services.measured import Measured
from jsserver.text.identity import short_hash

OWN = f"$SYS.LATENCY.M2.{short_hash('one')}".encode()
REPLY = f"_R_.Abc123.0123456789.{short_hash('one')}.T".encode()
RESPONDER = b'{"acc":"A","rtt":7,"server":"two"}'
PATIENCE = 0.05


class Handle:
    """An account that keeps what is published in it."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.published: list[tuple[bytes, Any]] = []

    def serve_requests(self, subject: bytes) -> None:
        assert subject == OWN

    def publish(self, subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        self.published.append((subject, json.loads(body)))


class Accounts(dict[str, Handle]):
    def name_of(self, id: int) -> str:
        return {1: "SYS", 2: "A"}[id]


@pytest.fixture
def accounts() -> Accounts:
    return Accounts(SYS=Handle(1), A=Handle(2))


@pytest.fixture
def joined(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measured]:
    monkeypatch.setattr(measured, "PATIENCE_SECONDS", PATIENCE)
    yield Measured(accounts, "SYS", "one")  # type: ignore[arg-type]


def answered(reply: bytes = REPLY) -> Item:
    texts = (b"lat", b'{"acc":"B"}', b"", b"", reply)
    return Item(INBOX_LATENCY, 0, (2, 200, 10**9, 1000, 1500), texts)


def word(reply: bytes = REPLY, account: str = "A", subject: bytes = OWN) -> Item:
    m2 = {"status": 200, "responder": json.loads(RESPONDER), "service": 900, "total": 907}
    said = json.dumps({"account": account, "req_id": reply.decode(), "m2": m2}).encode()
    return Item(INBOX_REQUEST, 0, (1, 1), (subject, b"", b"", said))


def figures(accounts: Accounts) -> list[Any]:
    keys = ("service", "system", "total", "responder")
    return [tuple(report.get(key) for key in keys) for _, report in accounts["A"].published]


WHOLE = (900, 93, 1500, json.loads(RESPONDER))


@pytest.mark.parametrize("prefix", [b"", b"_GR_.abcdef.ghijkl."])
def test_a_report_waits_for_the_word_of_the_other_server(
    accounts: Accounts, joined: Measured, prefix: bytes
) -> None:
    async def steps() -> None:
        assert joined.report(answered())
        assert figures(accounts) == []
        assert joined.take(word(prefix + REPLY))

    asyncio.run(steps())
    assert figures(accounts) == [WHOLE]


def test_the_word_may_come_first(accounts: Accounts, joined: Measured) -> None:
    assert joined.take(word())
    assert joined.report(answered())
    assert figures(accounts) == [WHOLE]


def test_a_report_goes_out_without_the_word_in_the_end(
    accounts: Accounts, joined: Measured
) -> None:
    async def steps() -> None:
        assert joined.report(answered(b"1" + REPLY))
        await asyncio.sleep(PATIENCE / 2)  # the two do not run out together
        assert joined.report(answered())
        for strange in (word(account="B"), word(b"2" + REPLY)):
            assert joined.take(strange)
        while len(accounts["A"].published) < 2:
            await asyncio.sleep(PATIENCE / 10)

    asyncio.run(asyncio.wait_for(steps(), 10))
    assert figures(accounts) == [(1000, 0, 1500, None)] * 2


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"m2": {"responder": 7}}'])
def test_words_that_make_no_sense(joined: Measured, text: bytes) -> None:
    assert joined.take(Item(INBOX_REQUEST, 0, (1, 1), (OWN, b"", b"", text)))


def test_other_messages_are_left(joined: Measured) -> None:
    assert not joined.take(word(subject=b"$SYS.LATENCY.M2.other"))
    assert not joined.report(answered(b""))


def test_what_waits_has_a_bound(
    accounts: Accounts, joined: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        monkeypatch.setattr(measured, "WAITING_MAX", 2)
        for number in range(3):
            assert joined.report(answered(b"%d" % number))
        assert len(figures(accounts)) == 1
        for number in range(10, 13):
            assert joined.take(word(b"%d" % number))
        assert joined.report(answered(b"12"))
        assert figures(accounts)[1:] == [WHOLE]
        assert joined.report(answered(b"10"))
        assert len(figures(accounts)) == 3

    asyncio.run(steps())


def test_the_other_server_is_told(accounts: Accounts, joined: Measured) -> None:
    numbers = (2, 10**9 + 5, 30, 37)
    joined.tell(Item(INBOX_MEASURED, 0, numbers, (REPLY, RESPONDER)))
    ((subject, said),) = accounts["SYS"].published
    assert (subject, said["account"], said["req_id"]) == (OWN, "A", REPLY.decode())
    assert said["m2"]["responder"] == json.loads(RESPONDER)
    assert (said["m2"]["start"], said["m2"]["service"]) == ("1970-01-01T00:00:01.000000005Z", 30)
