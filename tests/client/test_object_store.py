"""What an application does with object stores."""

import hashlib
import io
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.js.api import ObjectMeta, ObjectMetaOptions, StorageType
from nats.js.errors import BucketNotFoundError, NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from tests.client.aio import asynchronous, connected, unique
from tests.servers import Server

both_storages = pytest.mark.parametrize(
    "storage", [StorageType.FILE, StorageType.MEMORY], ids=lambda s: s.value
)


@asynccontextmanager
async def store(server: Server, **config: Any) -> AsyncIterator[ObjectStore]:
    """A connection and a new object store."""
    async with connected(server) as client:
        yield await client.jetstream().create_object_store(unique("OBJ"), **config)


@both_storages
@asynchronous
async def test_put_get_and_info(js_server: Server, storage: StorageType) -> None:
    async with store(js_server, storage=storage) as objects:
        info = await objects.put("small", b"hello")
        assert (info.name, info.size, info.chunks) == ("small", 5, 1)
        assert (await objects.get("small")).data == b"hello"
        assert (await objects.get_info("small")).nuid == info.nuid
        await objects.put("small", b"replaced")
        assert (await objects.get("small")).data == b"replaced"
        with pytest.raises(NotFoundError):
            await objects.get("missing")


@both_storages
@asynchronous
async def test_an_object_of_ten_megabytes(js_server: Server, storage: StorageType) -> None:
    data = random.Random(10).randbytes(10 * 1024 * 1024)
    async with store(js_server, storage=storage) as objects:
        info = await objects.put("big", io.BytesIO(data))
        assert (info.size, info.chunks) == (len(data), 80)
        received = (await objects.get("big")).data
        assert received is not None
        assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()
        assert (await objects.status()).size > len(data)


@asynchronous
async def test_chunks_of_another_size(js_server: Server) -> None:
    async with store(js_server) as objects:
        data = random.Random(1).randbytes(10_001)
        meta = ObjectMeta(
            name="chunky",
            description="in small pieces",
            headers={"Kind": "test"},
            options=ObjectMetaOptions(max_chunk_size=1000),
        )
        info = await objects.put("chunky", data, meta=meta)
        assert info.chunks == 11
        assert (await objects.get("chunky")).data == data
        assert (await objects.get_info("chunky")).description == "in small pieces"


@asynchronous
async def test_list_and_delete(js_server: Server) -> None:
    async with store(js_server) as objects:
        for n in range(5):
            await objects.put(f"o{n}", b"x" * n * 1000)
        assert sorted(o.name for o in await objects.list()) == [f"o{n}" for n in range(5)]
        await objects.delete("o3")
        left = [o.name for o in await objects.list() if not o.deleted]
        assert sorted(left) == ["o0", "o1", "o2", "o4"]
        with pytest.raises((ObjectNotFoundError, NotFoundError)):
            await objects.get("o3")
        size = (await objects.status()).size
        await objects.delete("o4")
        assert (await objects.status()).size < size


@asynchronous
async def test_watch(js_server: Server) -> None:
    async with store(js_server) as objects:
        await objects.put("first", b"1")
        watcher = await objects.watch()
        assert (await watcher.updates()).name == "first"
        assert await watcher.updates() is None
        await objects.put("second", b"2")
        assert (await watcher.updates()).name == "second"
        await objects.delete("first")
        gone = await watcher.updates()
        assert (gone.name, gone.deleted) == ("first", True)
        await watcher.stop()


@asynchronous
async def test_describe(js_server: Server) -> None:
    async with store(js_server) as objects:
        await objects.put("thing", b"content")
        await objects.update_meta("thing", ObjectMeta(name="thing", description="described"))
        assert (await objects.get("thing")).data == b"content"
        assert (await objects.get_info("thing")).description == "described"


@asynchronous
async def test_stores_come_and_go(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("OBJ")
        await js.create_object_store(name)
        objects = await js.object_store(name)
        await objects.put("a", b"1")
        await objects.seal()
        assert (await objects.status()).sealed
        await js.delete_object_store(name)
        with pytest.raises((BucketNotFoundError, NotFoundError)):
            await js.object_store(name)
