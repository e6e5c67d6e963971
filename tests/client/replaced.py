"""A load on a cluster of three servers while they are replaced one by one, and checks of the
result.

Publishers, readers, and writers of keys and objects go on through every stop, as applications do: a
request without an answer is repeated with the same id.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as ClientError
from nats.errors import TimeoutError as NoAnswer
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, ObjectStoreConfig
from nats.js.errors import Error as JetStreamError

from tests.client.aio import api, until
from tests.client.mesh import NAMES, Cluster
from tests.servers import Server

REPLICATED = ("ORDERS", "WORK", "MEMORY")
"""Streams with three replicas."""
SINGLE = tuple(f"ONE{name}" for name in NAMES[:3])
"""Streams with one replica, each on another server."""
BUCKETS = ("KV_keys", "OBJ_things")
TOGETHER = 10
"""Publishes that a publisher has under way at a time."""
PAUSE = 0.02
"""Seconds between two turns of a worker, so that the servers get processor time."""
REFUSED = (ClientError, JetStreamError, OSError, TimeoutError)
"""Errors of a client while an asset has no leader."""
OBJECT_BYTES = 100_000
END_SECONDS = 60.0
"""Seconds for readers to read the rest, once publishers have stopped."""


class Load:
    """Workers on all streams of a cluster, and notes of what was acked to them.

    `forgets`: streams whose consumers may lose acks: with one replica on a nats-server that is
    killed, or in memory when members are killed shortly one after another.
    """

    def __init__(self, members: list[Server], forgets: tuple[str, ...] = ()) -> None:
        self.members = members
        self.forgets = forgets
        self.acked: dict[str, dict[str, int]] = {name: {} for name in REPLICATED + SINGLE}
        self.gaps: dict[str, float] = dict.fromkeys(REPLICATED + SINGLE, 0.0)
        self.read: dict[str, Counter[bytes]] = {name: Counter() for name in REPLICATED + SINGLE}
        self.floors: dict[str, int] = {}
        self.values: dict[str, tuple[int, int]] = {}
        self.objects: dict[str, bytes] = {}
        self.wrong: list[str] = []
        self._confirmed: dict[str, set[bytes]] = {name: set() for name in self.read}
        self._over = asyncio.Event()
        """Set when no more publishes begin."""
        self._written = asyncio.Event()

    async def client(self) -> Client:
        """A client that knows the URLs of all members, as an application's does."""
        client = Client()
        options: dict[str, Any] = {
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.05,
            "connect_timeout": 5,
            "error_cb": _silent,
        }
        await client.connect([member.url for member in self.members], **options)
        return client

    async def make(self) -> None:
        """Creates all streams, consumers and buckets."""
        client = await self.client()
        js = client.jetstream(timeout=10)
        configs: list[dict[str, Any]] = [
            {"name": "ORDERS", "num_replicas": 3, "duplicate_window": 120 * 10**9},
            {"name": "WORK", "num_replicas": 3, "retention": "workqueue"},
            {"name": "MEMORY", "num_replicas": 3, "storage": "memory"},
            *(
                {"name": name, "num_replicas": 1, "placement": {"tags": [name[-1].lower()]}}
                for name in SINGLE
            ),
        ]
        for config in configs:
            name = config["name"]
            about = {"subjects": [f"{name}.>"], **config}
            durable = {"durable_name": "D", "ack_policy": "explicit", "ack_wait": 10 * 10**9}

            async def made(name: str = name, about: object = about) -> bool:
                body, subject = json.dumps(about).encode(), f"$JS.API.STREAM.CREATE.{name}"
                with contextlib.suppress(NoAnswer):  # as the servers' first leader steps down
                    return b'"error"' not in (await client.request(subject, body, timeout=5)).data
                return False

            await until(made)
            body = {"stream_name": name, "config": durable | {"max_ack_pending": 1000}}
            answer = await api(client, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
            assert "error" not in answer, answer
        await js.create_key_value(KeyValueConfig(bucket="keys", replicas=3, history=5))
        await js.create_object_store("things", ObjectStoreConfig(replicas=3))
        await client.close()

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Runs all workers. At the end publishers stop first, and readers read the rest."""
        writers = [self._publish(name) for name in self.acked]
        writers += [self._keep_values(), self._put_objects(), self._watch_floors()]
        readers = [self._read(name) for name in self.read]
        tasks = [asyncio.create_task(worker) for worker in writers + readers]
        try:
            yield
            self._over.set()
            await asyncio.wait(tasks[: len(writers)], timeout=END_SECONDS)
            self._written.set()
            _, late = await asyncio.wait(tasks, timeout=END_SECONDS)
            assert not late, (self.missing(), late)
            for task in tasks:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- workers

    async def _publish(self, stream: str) -> None:
        client = await self.client()
        js = client.jetstream(timeout=1)
        last = time.monotonic()
        number = 0

        async def one(id_: str) -> None:
            nonlocal last
            while id_ not in self.acked[stream]:
                try:
                    ack = await js.publish(
                        f"{stream}.{id_[-1]}", id_.encode(), headers={"Nats-Msg-Id": id_}
                    )
                except REFUSED:
                    await asyncio.sleep(0.05)  # the stream has no leader at the moment
                    continue
                self.acked[stream][id_] = ack.seq
                now = time.monotonic()
                self.gaps[stream] = max(self.gaps[stream], now - last)
                last = now

        while not self._over.is_set():
            await asyncio.gather(*(one(f"{stream}-{number + n}") for n in range(TOGETHER)))
            number += TOGETHER
            await asyncio.sleep(PAUSE)
        await client.close()

    async def _read(self, stream: str) -> None:
        """Reads and acks each message. Once its ack is answered, a message must not come again."""
        client = await self.client()
        js = client.jetstream(timeout=5)
        pull: JetStreamContext.PullSubscription | None = None
        while not (self._written.is_set() and await self._all_read(js, stream)):
            try:
                if pull is None:
                    pull = await js.pull_subscribe_bind("D", stream)
                messages = await pull.fetch(50, timeout=1)
            except REFUSED:
                await asyncio.sleep(0.05)  # no leader at the moment, or no messages
                continue
            for message in messages:
                if message.data in self._confirmed[stream] and stream not in self.forgets:
                    self.wrong.append(f"{stream}: {message.data!r} came again after its ack")
                self.read[stream][message.data] += 1
            await asyncio.gather(*(self._confirm(stream, message) for message in messages))
        await client.close()

    async def _all_read(self, js: JetStreamContext, stream: str) -> bool:
        with contextlib.suppress(*REFUSED):
            info = await js.consumer_info(stream, "D")
            return bool(info.num_pending == 0 and info.num_ack_pending == 0)
        return False

    async def _confirm(self, stream: str, message: Any) -> None:
        with contextlib.suppress(*REFUSED):  # then the message may come again
            await message.ack_sync(timeout=2)
            self._confirmed[stream].add(message.data)

    async def _keep_values(self) -> None:
        """Counts up in several keys, by compare and set."""
        client = await self.client()
        js = client.jetstream(timeout=1)
        keys = await self._until_answered(lambda: js.key_value("keys"))
        number = 0
        while not self._over.is_set():
            key = f"k{number % 5}"
            number += 1
            try:
                revision, value = self.values.get(key, (0, -1))
                revision = await keys.update(key, b"%d" % (value + 1), last=revision)
                self.values[key] = (revision, value + 1)
            except REFUSED:
                # Unknown whether it was stored: the key has the old or the new value.
                entry = await self._latest(js, key)
                if entry is not None:
                    if entry[1] not in (value, value + 1):
                        self.wrong.append(f"{key}: {entry} after {(revision, value)}")
                    self.values[key] = entry
            await asyncio.sleep(PAUSE)
        await client.close()

    async def _latest(self, js: JetStreamContext, key: str) -> tuple[int, int] | None:
        """A key's revision and value, from the leader."""
        while True:
            try:
                found = await js.get_last_msg("KV_keys", f"$KV.keys.{key}")
            except nats.js.errors.NotFoundError:
                return None
            except REFUSED:
                await asyncio.sleep(0.05)  # the bucket has no leader at the moment
                continue
            assert found.seq is not None and found.data is not None
            return found.seq, int(found.data)

    async def _put_objects(self) -> None:
        client = await self.client()
        js = client.jetstream(timeout=2)
        store = await self._until_answered(lambda: js.object_store("things"))
        number = 0
        while not self._over.is_set():
            name = f"o{number}"
            data = number.to_bytes(4, "big") * (OBJECT_BYTES // 4)
            with contextlib.suppress(*REFUSED):
                await store.put(name, data)
                self.objects[name] = data
            number += 1
            await asyncio.sleep(0.5)
        await client.close()

    async def _watch_floors(self) -> None:
        """Watches that no consumer's ack floor, as its leader tells it, ever goes back."""
        client = await self.client()
        js = client.jetstream(timeout=1)
        while not self._over.is_set():
            for stream in self.read:
                with contextlib.suppress(*REFUSED):
                    info = await js.consumer_info(stream, "D")
                    assert info.ack_floor is not None
                    floor = info.ack_floor.stream_seq
                    if floor < self.floors.get(stream, 0) and stream not in self.forgets:
                        was = self.floors[stream]
                        who = info.cluster and info.cluster.leader
                        self.wrong.append(f"{stream}: {who} has floor {floor}, it was {was}")
                    self.floors[stream] = floor
            await asyncio.sleep(0.2)
        await client.close()

    async def _until_answered(self, what: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            with contextlib.suppress(*REFUSED):
                return await what()
            await asyncio.sleep(0.05)  # until the cluster answers

    # ---- checks

    def missing(self) -> dict[str, list[str]]:
        """Ids by stream that were acked to publishers but never reached readers."""
        came = {of: {data.decode() for data in read} for of, read in self.read.items()}
        found = {of: sorted(acked.keys() - came[of]) for of, acked in self.acked.items()}
        return {of: ids for of, ids in found.items() if ids}

    async def hold(self) -> None:
        """Checks that every acked message is there, once, and was read."""
        assert self.wrong == [], self.wrong[:10]
        assert self.missing() == {}, self.missing()
        client = await self.client()
        js = client.jetstream(timeout=10)
        for stream, acked in self.acked.items():
            assert len(set(acked.values())) == len(acked), f"{stream}: a sequence for two messages"
            info = await js.stream_info(stream)
            if stream == "WORK":
                assert info.state.messages == 0
            else:
                assert info.state.messages == len(acked), stream
                assert info.state.last_seq == max(acked.values()), stream
        for key, at in self.values.items():
            assert await self._latest(js, key) == at
        store = await js.object_store("things")
        for name, data in self.objects.items():
            assert (await store.get(name)).data == data, name
        await client.close()


async def _silent(_: Exception) -> None:
    """Ignores lost connections: these clients are made for them."""


async def all_current(load: Load) -> None:
    """Waits until all members of replicated assets are current."""
    client = await load.client()

    async def current(stream: str) -> bool:
        with contextlib.suppress(*REFUSED):
            info = await api(client, f"STREAM.INFO.{stream}")
            replicas = (info.get("cluster") or {}).get("replicas", [])
            if len(replicas) == 2 and all(one["current"] for one in replicas):
                return True
        await asyncio.sleep(0.1)  # between two checks
        return False

    for stream in (*REPLICATED, *BUCKETS):
        await until(lambda s=stream: current(s))  # type: ignore[misc]
    await client.close()


def dumped(member: Server, stream: str) -> list[dict[str, Any]]:
    """All messages of a stream in the store of a stopped member."""
    words = [sys.executable, "-m", "jsserver.cli", "store", "dump", "--json", "--stream", stream]
    done = subprocess.run(
        [*words, str(member.store)], capture_output=True, text=True, timeout=60, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def stores_are_equal(cluster: Cluster) -> None:
    """Checks that the stores of stopped members are equal."""
    for stream in ("ORDERS", "WORK", *BUCKETS):
        first, *others = (dumped(member, stream) for member in cluster.members)
        for other in others:
            differing = [one for one in first if one not in other]
            differing += [one for one in other if one not in first]
            assert differing == [], (stream, differing[0], len(first), len(other))
