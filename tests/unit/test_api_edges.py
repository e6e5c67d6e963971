"""Limits of the API: what has just the size or number that is allowed, and what has one more."""

import asyncio
import math
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jsserver.api import transfers
from jsserver.api.consumer_admin import PAGE
from jsserver.api.transfers import Incoming, Outgoing, Transfers
from jsserver.assets.streams import HIGHEST_START
from jsserver.config.options import AssetLimits
from jsserver.disk.storage import Storage
from jsserver.objects import requests, sending
from jsserver.objects.buckets import NAME_LIMIT, check_name
from jsserver.objects.sending import Sendings
from jsserver.objects.uploads import CHUNKS_MOST, _read
from jsserver.wire.errors import ApiError
from jsserver.wire.types import SnapshotRequest, StreamConfig

from .api_server import ApiServer
from .fake_backend import FakeConsumer

RELEASE = "JSSERVER.CONSUMER.RELEASE.S.c"


@pytest.fixture
def consumer_api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as api:
        api.stream("S")
        api.consumer("S", "c", durable_name="c", ack_policy="explicit")
        yield api


def test_a_release_names_up_to_a_page_of_messages(consumer_api: ApiServer) -> None:
    consumer_api.ok(RELEASE, {"seqs": [*range(1, PAGE + 1)]})
    error = consumer_api.refused(RELEASE, {"seqs": [*range(1, PAGE + 2)]})
    assert error[1].endswith(f"more than {PAGE} sequences in one request")


@pytest.mark.parametrize(
    ("limit", "taken"), [(None, PAGE), (0, PAGE), (-1, PAGE), (7, 7), (PAGE + 1, PAGE)]
)
def test_a_release_of_what_is_idle_takes_up_to_a_page(
    consumer_api: ApiServer, monkeypatch: pytest.MonkeyPatch, limit: int | None, taken: int
) -> None:
    asked: list[tuple[int, int, int]] = []

    def pending(self: FakeConsumer, start: int, limit: int, idle: int) -> list[object]:
        asked.append((start, limit, idle))
        return []

    monkeypatch.setattr(FakeConsumer, "pending", pending)
    consumer_api.ok(RELEASE, {"idle": 5} if limit is None else {"idle": 5, "limit": limit})
    assert asked == [(0, taken, 5)]


def test_a_purge_goes_up_to_the_highest_sequence_that_may_start(consumer_api: ApiServer) -> None:
    consumer_api.ok("STREAM.PURGE.S", {"seq": HIGHEST_START})
    assert consumer_api.refused("STREAM.PURGE.S", {"seq": HIGHEST_START + 1})[0] == 10110


def test_names_of_objects_have_a_length() -> None:
    assert check_name("n" * NAME_LIMIT)
    with pytest.raises(ApiError, match="up to"):
        check_name("n" * (NAME_LIMIT + 1))


def test_objects_have_a_number_of_chunks() -> None:
    bucket = cast(Any, SimpleNamespace(name="b"))

    def begun(chunks: int) -> int:
        body = b'{"name":"x","nonce":"n","size":%d,"chunks":%d}' % (chunks, chunks)
        return _read(body, bucket, "x").chunks

    assert begun(CHUNKS_MOST) == CHUNKS_MOST
    with pytest.raises(ApiError, match="chunks"):
        begun(CHUNKS_MOST + 1)


class Sent:
    """An object that is being sent, as far as its place among the others goes."""

    def __init__(self, connection: int, account: str, waits_since: float = math.inf) -> None:
        self.connection = connection
        self.bucket = SimpleNamespace(account=account)
        self.waits_since = waits_since
        self.given_up = False


def all_begin(sendings: Sendings, sent: list[Sent]) -> None:
    for one in sent:
        sendings.begin(cast(Any, one))


@pytest.mark.parametrize(
    ("most", "accounts"),
    [
        (sending.SENDINGS_OF_ACCOUNT, ["A"]),
        (sending.SENDINGS, ["A", "B"]),
    ],
)
def test_so_many_objects_are_sent_at_once(most: int, accounts: list[str]) -> None:
    async def played() -> None:
        sendings = Sendings(cast(Any, None))
        all_begin(sendings, [Sent(n, accounts[n % len(accounts)]) for n in range(most)])
        with pytest.raises(ApiError, match=f"{most} objects are being sent"):
            all_begin(sendings, [Sent(-1, "A")])

    asyncio.run(played())


def test_one_client_is_sent_a_few_objects_at_once() -> None:
    async def played() -> None:
        sendings = Sendings(cast(Any, None))
        all_begin(sendings, [Sent(1, "A") for _ in range(sending.SENDINGS_OF_ONE)])
        all_begin(sendings, [Sent(2, "A")])
        with pytest.raises(ApiError, match="to this client"):
            all_begin(sendings, [Sent(1, "A")])

    asyncio.run(played())


def test_who_takes_nothing_for_long_makes_room_for_another() -> None:
    async def played() -> None:
        sendings, now = Sendings(cast(Any, None)), asyncio.get_running_loop().time()
        waiting = [Sent(n, "A", now) for n in range(sending.SENDINGS_OF_ACCOUNT)]
        all_begin(sendings, waiting)
        waiting[7].waits_since = now - sending.STALLED
        all_begin(sendings, [Sent(-1, "A")])
        assert [n for n, one in enumerate(waiting) if one.given_up] == [7]

    asyncio.run(played())


class World:
    """What a transfer knows of the server."""

    def __init__(self) -> None:
        self.accounts = {name: self for name in "ABC"}
        self.clock = time.time_ns

    def serve_requests(self, pattern: bytes) -> None:
        """They come from now on."""


def incoming(world: Any, account: str, number: int) -> Incoming:
    config = StreamConfig(name=f"S{number}")
    return Incoming(world, cast(Any, None), account_of(account), config, None)


def outgoing(world: Any, account: str, number: int) -> Outgoing:
    stream = cast(Any, SimpleNamespace(name=f"S{number}"))
    request = SnapshotRequest(deliver_subject="d")
    return Outgoing(world, cast(Any, None), account_of(account), stream, request, None)


ACCOUNTS = {name: cast(Any, SimpleNamespace(name=name)) for name in "ABC"}


def account_of(name: str) -> Any:
    return ACCOUNTS[name]


@pytest.mark.parametrize(
    ("make", "of_account", "in_all"),
    [
        (incoming, transfers.RESTORES_OF_ACCOUNT, transfers.RESTORES),
        (outgoing, transfers.SNAPSHOTS_OF_ACCOUNT, transfers.SNAPSHOTS),
    ],
)
def test_so_many_streams_are_restored_or_backed_up_at_once(
    make: Any, of_account: int, in_all: int
) -> None:
    async def played() -> None:
        world: Any = World()
        under_way = Transfers(world, cast(Any, None), cast(Any, None))
        for n in range(of_account):
            under_way.begin(make(world, "A", n))
        with pytest.raises(ApiError, match=f"{of_account} [a-z ]*of this account"):
            under_way.begin(make(world, "A", of_account))
        for n in range(in_all - of_account):
            under_way.begin(make(world, "B", n))
        with pytest.raises(ApiError, match=f"{in_all} in all"):
            under_way.begin(make(world, "C", 0))

    asyncio.run(played())


def test_chunks_of_a_restore_wait_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def played() -> None:
        monkeypatch.setattr(transfers, "WAITING", 2 * (100 + transfers.CHUNK_OWN))
        restore = incoming(World(), "A", 0)
        for _ in range(2):
            restore.receive(b"reply", bytes(100))
        assert restore._chunks.qsize() == 2
        restore.receive(b"reply", b"")
        assert restore._broken == "more chunks at once than can wait"

    asyncio.run(played())


@pytest.mark.parametrize(
    ("there_is", "wanted", "enough"), [(-1, 9, True), (0, 0, True), (0, 1, False), (9, 9, True)]
)
def test_accounts_are_granted_no_more_than_there_is(
    there_is: int, wanted: int, enough: bool
) -> None:
    granted = [AssetLimits(max_memory=wanted, max_store=-1)]
    assert (Storage.lacks(granted, there_is, -1) == "") is enough
    granted = [AssetLimits(max_memory=-1, max_store=wanted)]
    assert (Storage.lacks(granted, -1, there_is) == "") is enough


def test_a_checked_backup_reads_every_message() -> None:
    read: list[int] = []

    def pack(body: bytes, at: int, upto: int, most: int) -> tuple[int, int]:
        assert upto == 3
        read.append(at)
        return 1, at + 1

    state, lost = SimpleNamespace(last_seq=3), SimpleNamespace(sequences=[])
    handle = SimpleNamespace(state=lambda: state, lost=lambda: lost, pack=pack)
    stream = cast(Any, SimpleNamespace(handle=handle))
    transfers._check(stream)
    assert read == [0, 1, 2, 3]
    lost.sequences.append(3)
    with pytest.raises(ApiError, match="1 messages are damaged"):
        transfers._check(stream)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("a.b", ""),
        ("a.*", "without wildcards"),
        ("a..b", "without wildcards"),
        ("a b", "without wildcards"),
        ("$JS.API.INFO", "does not begin with"),
        ("$x", "does not begin with"),
        ("_R_.x", "does not begin with"),
        ("forbidden", "no permission"),
        ("stored", "stream S stores"),
    ],
)
def test_where_chunks_of_an_object_may_go(
    monkeypatch: pytest.MonkeyPatch, subject: str, said: str
) -> None:
    async def capturing(call: object, subject: str) -> list[str]:
        return ["S"] * (subject == "stored")

    monkeypatch.setattr(requests, "capturing", capturing)
    handle = SimpleNamespace(may_receive=lambda connection, subject: subject != b"forbidden")
    call = cast(Any, SimpleNamespace(account=SimpleNamespace(handle=handle), connection=7))
    if not said:
        asyncio.run(requests._check_deliver(call, subject))
        return
    with pytest.raises(ApiError) as error:
        asyncio.run(requests._check_deliver(call, subject))
    assert said in error.value.body.description
