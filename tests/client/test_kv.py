"""What an application does with key-value buckets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.js.api import StorageType
from nats.js.errors import (
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
)
from nats.js.kv import KeyValue

from tests.client.aio import asynchronous, connected, unique, until
from tests.servers import Server, Servers

both_storages = pytest.mark.parametrize(
    "storage", [StorageType.FILE, StorageType.MEMORY], ids=lambda s: s.value
)


@asynccontextmanager
async def bucket(server: Server, **config: Any) -> AsyncIterator[KeyValue]:
    """A connection and a new bucket."""
    async with connected(server) as client:
        yield await client.jetstream().create_key_value(bucket=unique("KV"), **config)


@both_storages
@asynchronous
async def test_put_and_get(js_server: Server, storage: StorageType) -> None:
    async with bucket(js_server, storage=storage) as kv:
        assert await kv.put("a", b"1") == 1
        assert await kv.put("b.c", b"2") == 2
        assert await kv.put("a", b"3") == 3
        entry = await kv.get("a")
        assert (entry.key, entry.value, entry.revision) == ("a", b"3", 3)
        assert (await kv.get("b.c")).value == b"2"
        with pytest.raises(KeyNotFoundError):
            await kv.get("missing")
        with pytest.raises(KeyNotFoundError):
            await kv.get("a", revision=1)
        status = await kv.status()
        assert (status.values, status.history) == (2, 1)


@both_storages
@asynchronous
async def test_update_and_create_compare(js_server: Server, storage: StorageType) -> None:
    async with bucket(js_server, storage=storage) as kv:
        assert await kv.create("a", b"1") == 1
        with pytest.raises(KeyWrongLastSequenceError, match="wrong last sequence: 1"):
            await kv.create("a", b"x")
        assert await kv.update("a", b"2", last=1) == 2
        with pytest.raises(KeyWrongLastSequenceError, match="wrong last sequence: 2"):
            await kv.update("a", b"x", last=1)
        await kv.delete("a")
        assert await kv.create("a", b"again") == 4
        with pytest.raises(BadRequestError, match="wrong last sequence: 4"):
            await kv.delete("a", last=2)
        assert await kv.delete("a", last=4)
        await kv.purge("a")
        assert await kv.create("a", b"once more") == 7


@both_storages
@asynchronous
async def test_delete_and_purge(js_server: Server, storage: StorageType) -> None:
    async with bucket(js_server, storage=storage, history=5) as kv:
        for n in range(3):
            await kv.put("a", b"%d" % n)
        await kv.put("b", b"stays")
        await kv.delete("a")
        with pytest.raises(KeyNotFoundError):
            await kv.get("a")
        history = await kv.history("a")
        assert [(e.value, e.operation) for e in history] == [
            (b"0", None),
            (b"1", None),
            (b"2", None),
            (b"", "DEL"),
        ]
        await kv.purge("a")
        assert [e.operation for e in await kv.history("a")] == ["PURGE"]
        assert await kv.keys() == ["b"]
        await kv.purge_deletes(olderthan=0)
        assert (await kv.status()).values == 1


@both_storages
@asynchronous
async def test_history_keeps_the_newest(js_server: Server, storage: StorageType) -> None:
    async with bucket(js_server, storage=storage, history=3) as kv:
        for n in range(1, 8):
            await kv.put("a", b"%d" % n)
            await kv.put("b", b"%d" % (n * 10))
        assert [(e.revision, e.value) for e in await kv.history("a")] == [
            (9, b"5"),
            (11, b"6"),
            (13, b"7"),
        ]
        assert (await kv.get("a", revision=11)).value == b"6"


@asynchronous
async def test_keys(js_server: Server) -> None:
    async with bucket(js_server) as kv:
        with pytest.raises(NoKeysError):
            await kv.keys()
        for n in range(300):
            await kv.put(f"key.{n}", b"x")
        await kv.delete("key.7")
        assert sorted(await kv.keys()) == sorted(f"key.{n}" for n in range(300) if n != 7)


@asynchronous
async def test_watch_sees_values_then_changes(js_server: Server) -> None:
    async with bucket(js_server) as kv:
        for key in ("a.1", "a.2", "b.1"):
            await kv.put(key, key.encode())
        watcher = await kv.watch("a.*")
        assert [(await watcher.updates()).key for _ in range(2)] == ["a.1", "a.2"]
        assert await watcher.updates() is None
        await kv.put("b.1", b"elsewhere")
        await kv.put("a.3", b"new")
        await kv.delete("a.1")
        new, gone = await watcher.updates(), await watcher.updates()
        assert (new.key, new.value, new.revision) == ("a.3", b"new", 5)
        assert (gone.key, gone.operation, gone.revision) == ("a.1", "DEL", 6)
        await watcher.stop()


@asynchronous
async def test_watch_of_an_empty_bucket_says_so(js_server: Server) -> None:
    async with bucket(js_server) as kv:
        watcher = await kv.watchall()
        assert await watcher.updates() is None
        await kv.put("first", b"1")
        assert (await watcher.updates()).key == "first"
        await watcher.stop()


@asynchronous
async def test_watch_with_history_and_without_values(js_server: Server) -> None:
    async with bucket(js_server, history=4) as kv:
        for n in range(3):
            await kv.put("a", b"%d" % n)
        watcher = await kv.watch("a", include_history=True)
        assert [(await watcher.updates()).value for _ in range(3)] == [b"0", b"1", b"2"]
        await watcher.stop()
        watcher = await kv.watch("a", meta_only=True)
        entry = await watcher.updates()
        assert (entry.value, entry.revision) == (b"", 3)
        await watcher.stop()


@both_storages
@asynchronous
async def test_values_expire_with_the_bucket(js_server: Server, storage: StorageType) -> None:
    async with bucket(js_server, ttl=0.4, storage=storage) as kv:
        await kv.put("a", b"1")
        assert (await kv.get("a")).value == b"1"

        async def expired() -> bool:
            try:
                await kv.get("a")
            except KeyNotFoundError:
                return True
            return False

        await until(expired)
        assert (await kv.status()).values == 0


@asynchronous
async def test_buckets_come_and_go(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("KV")
        await js.create_key_value(bucket=name, history=2, description="mine")
        kv = await js.key_value(name)
        await kv.put("a", b"1")
        info = await js.stream_info(f"KV_{name}")
        assert info.config.subjects == [f"$KV.{name}.>"]
        assert info.config.max_msgs_per_subject == 2
        assert await js.delete_key_value(name)
        with pytest.raises(BucketNotFoundError):
            await js.key_value(name)


@asynchronous
async def test_big_values_and_odd_keys(js_server: Server) -> None:
    async with bucket(js_server, max_value_size=600_000) as kv:
        value = bytes(range(256)) * 2000
        keys = ["a", "A", "a/b", "a=b", "a-b_c", "1.2.3.4.5.6.7.8"]
        for key in keys:
            await kv.put(key, key.encode() + value)
        for key in keys:
            assert (await kv.get(key)).value == key.encode() + value


async def keys_that_begin(server: Server, history: int) -> dict[str, list[str]]:
    """What a client hears that lists keys by prefixes."""
    listed: dict[str, list[str]] = {}
    async with bucket(server, history=history) as kv:
        for key in ("apple", "pear", "apricot", "apple.red", "apple", "a"):
            await kv.put(key, b"1")
        for pattern in ("a*", "ap>", "apple>", "x*"):
            watcher = await kv.watch(pattern, ignore_deletes=True, meta_only=True)
            listed[pattern] = []
            while (entry := await watcher.updates(timeout=30)) is not None:
                listed[pattern].append(entry.key)
            await watcher.stop()
    return listed


@pytest.mark.parametrize("history", [1, 5])
@asynchronous
async def test_keys_that_begin_with_something_are_listed(js_server: Server, history: int) -> None:
    assert await keys_that_begin(js_server, history) == {
        "a*": ["apricot", "apple"],
        "ap>": ["apricot", "apple.red", "apple"],
        "apple>": ["apple.red", "apple"],
        "x*": [],
    }


@pytest.mark.usefixtures("peer_present")
@asynchronous
async def test_keys_that_begin_with_something_are_listed_as_by_the_peer(
    js_server: Server, module_servers: Servers
) -> None:
    """Where subjects part at the prefix, in a bucket with a history: elsewhere it lists nothing."""
    peer = module_servers.peer(jetstream=True)
    assert await keys_that_begin(js_server, 5) == await keys_that_begin(peer, 5)
