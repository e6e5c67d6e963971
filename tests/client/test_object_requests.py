"""Requests to buckets of objects that the server answers, beside nats-py's object store."""

import asyncio
import base64
import contextlib
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ObjectMeta, ObjectMetaOptions, StorageType
from nats.js.errors import NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from tests.client.aio import asynchronous, connected
from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.timeout(120)

CONFIG = 'jetstream { store_dir: "%s", object_requests { upload_timeout: 1s, max_uploads: 4 } }\n'
both_storages = pytest.mark.parametrize(
    "storage", [StorageType.FILE, StorageType.MEMORY], ids=lambda s: s.value
)
CUT = 100_000


def started(servers: Servers, extra: str = "") -> Server:
    folder = servers.base / "objects"
    return servers.under_test(config=CONFIG % folder + extra)


@pytest.fixture
def server(servers: Servers) -> Iterator[Server]:
    yield started(servers)


def token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


class Asker:
    """An application that asks the server, and has nats-py's object store of the same bucket."""

    def __init__(self, client: Client, store: ObjectStore) -> None:
        self.client = client
        self.store = store

    async def ask(self, subject: str, body: Any = b"") -> Any:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return json.loads((await self.client.request(subject, payload, timeout=10)).data)

    async def get(self, name: str, bucket: str = "b") -> tuple[Any, bytes, str]:
        """The answer, what came, and how it ended."""
        inbox = self.client.new_inbox()
        sub = await self.client.subscribe(inbox)
        answer = await self.ask(f"$OBJ.{bucket}", {"name": name, "deliver_subject": inbox})
        got = bytearray()
        while True:
            message = await sub.next_msg(timeout=10)
            if not message.data:
                await sub.unsubscribe()
                headers = message.headers or {}
                return answer, bytes(got), f"{headers['Status']} {headers['Description']}"
            got += message.data

    async def put(self, name: str, data: bytes, nonce: str = "n", **more: Any) -> Any:
        """The last answer."""
        chunks = [data[at : at + CUT] for at in range(0, len(data), CUT)]
        begin = {"nonce": nonce, "size": len(data), "chunks": len(chunks), "name": name, **more}
        answer = await self.ask(f"$OBJ.b.info.{token(name)}", begin)
        for chunk in chunks:
            if "error" in answer:
                break
            answer = await self.ask(f"$OBJ.b.chunks.{nonce}", chunk)
        return answer

    async def messages(self) -> int:
        return (await self.client.jetstream().stream_info("OBJ_b")).state.messages


@asynccontextmanager
async def asker(server: Server, **config: Any) -> AsyncIterator[Asker]:
    async with connected(server) as client:
        yield Asker(client, await client.jetstream().create_object_store("b", **config))


@both_storages
@asynchronous
async def test_what_a_client_put_is_got_listed_and_deleted(
    server: Server, storage: StorageType
) -> None:
    data = random.Random(1).randbytes(3_000_001)
    async with asker(server, storage=storage) as app:
        meta = ObjectMeta(
            name="big file.bin",
            description="a file",
            options=ObjectMetaOptions(max_chunk_size=60_000),
        )
        put = await app.store.put("big file.bin", data, meta)
        await app.store.put("empty", b"")
        answer, got, end = await app.get("big file.bin")
        assert (got == data, end) == (True, "204 EOB")
        assert answer["type"] == "io.nats.jetstream.api.v1.jsserver_object_response"
        info = await app.ask("$OBJ.b", {"name": "big file.bin"})
        assert info == answer
        assert {k: info[k] for k in ("name", "nuid", "size", "chunks", "digest", "deleted")} == {
            "name": "big file.bin",
            "nuid": put.nuid,
            "size": len(data),
            "chunks": put.chunks,
            "digest": digest(data),
            "deleted": False,
        }
        assert info["description"] == "a file"
        assert info["options"] == {"max_chunk_size": 60_000}
        assert (await app.get("empty"))[1:] == (b"", "204 EOB")
        listed = await app.ask("$OBJ.b")
        assert sorted(one["name"] for one in listed["objects"]) == ["big file.bin", "empty"]
        assert listed == await app.ask("$OBJ.b", {}) == await app.ask("$OBJ.b", {"action": "list"})
        gone = await app.ask("$OBJ.b", {"action": "delete", "name": "big file.bin"})
        assert gone["success"] is True
        with pytest.raises((NotFoundError, ObjectNotFoundError)):
            await app.store.get("big file.bin")
        assert (await app.store.get_info("big file.bin", show_deleted=True)).deleted
        assert await app.messages() == 2
        assert [one["name"] for one in (await app.ask("$OBJ.b"))["objects"]] == ["empty"]
        again = await app.ask("$OBJ.b", {"action": "delete", "name": "big file.bin"})
        assert (again["error"]["code"], again["error"]["err_code"]) == (404, 10037)
        answer, got, end = await app.get("big file.bin")
        assert (answer["error"]["code"], got, end) == (404, b"", "404 Object Not Found")


@both_storages
@asynchronous
async def test_what_is_uploaded_is_got_by_a_client(server: Server, storage: StorageType) -> None:
    data = random.Random(2).randbytes(1_234_567)
    async with asker(server, storage=storage) as app:
        done = await app.put("up", data, digest=digest(data), description="d", metadata={"a": "b"})
        assert (done["stream"], done["seq"], done["nonce"]) == ("OBJ_b", 14, "n")
        assert (done["digest"], done["chunks"], done["size"]) == (digest(data), 13, len(data))
        got = await app.store.get("up")
        assert got.data == data
        assert (got.info.nuid, got.info.description) == (done["nuid"], "d")
        assert await app.ask("$OBJ.b", {"name": "up"}) == {
            **{k: v for k, v in done.items() if k not in ("stream", "seq", "nonce")},
            "type": "io.nats.jetstream.api.v1.jsserver_object_response",
        }
        # Each replaces what the other one wrote, and leaves none of its chunks.
        second = await app.put("up", b"second", "m")
        assert (await app.store.get("up")).data == b"second"
        assert second["seq"] > done["seq"]
        assert await app.messages() == 2
        await app.store.put("up", b"third")
        assert (await app.get("up"))[1] == b"third"
        assert await app.messages() == 2
        assert (await app.put("up", b"", "o"))["chunks"] == 0
        assert (await app.store.get("up")).data == b""
        assert await app.messages() == 1
        assert (await app.ask("$OBJ.b"))["total"] == 1
        await app.store.delete("up")
        assert (await app.ask("$OBJ.b"))["objects"] == []


@asynchronous
async def test_an_upload_that_ends_early_leaves_nothing(server: Server) -> None:
    data = bytes(250_000)
    async with asker(server) as app:
        await app.put("kept", b"kept")
        wrong = await app.put("kept", data, digest=digest(b"other"))
        assert wrong["error"]["err_code"] == 10003
        assert "digest" in wrong["error"]["description"]
        short = await app.put("kept", data, size=250_001)
        assert "250001 bytes were promised, and 250000 came" in short["error"]["description"]
        much = await app.put("kept", data, size=249_999)
        assert "249999 bytes in 3 chunks" in much["error"]["description"]
        begin = {"nonce": "cut", "size": len(data), "chunks": 3}
        assert "error" not in await app.ask("$OBJ.b.info.kept", begin)
        assert (await app.ask("$OBJ.b.chunks.cut", data[:CUT]))["seq"] > 1
        assert (await app.ask("$OBJ.b.info.kept", begin))["error"]["err_code"] == 10003
        async with connected(server) as other:
            answer = await other.request("$OBJ.b.chunks.cut", b"x", timeout=10)
            assert "another connection" in json.loads(answer.data)["error"]["description"]
        until = time.monotonic() + 10
        while await app.messages() > 2:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        late = await app.ask("$OBJ.b.chunks.cut", data[CUT:])
        assert (late["error"]["code"], late["error"]["err_code"]) == (404, 10037)
        assert (await app.store.get("kept")).data == b"kept"
        assert len((await app.ask("$OBJ.b"))["objects"]) == 1


@asynchronous
async def test_two_uploads_of_a_name_at_once(server: Server) -> None:
    first, second = bytes(300_000), b"\1" * 200_000
    async with asker(server) as app:
        for nonce, data in (("one", first), ("two", second)):
            begin = {"nonce": nonce, "size": len(data), "chunks": len(data) // CUT, "name": "x"}
            assert "error" not in await app.ask("$OBJ.b.info.x", begin)
        for at in (0, 1):
            await app.ask("$OBJ.b.chunks.one", first[:CUT])
            done = await app.ask("$OBJ.b.chunks.two", second[:CUT])
            assert ("digest" in done) == (at == 1)
        assert (await app.store.get("x")).data == second
        assert (await app.ask("$OBJ.b.chunks.one", first[:CUT]))["digest"] == digest(first)
        assert (await app.store.get("x")).data == first
        assert await app.messages() == 4
        # All at the same moment, with a client's: one of them is there, and nothing else.
        whole = [bytes([n]) * CUT for n in range(4)]
        await asyncio.gather(
            *(app.put("y", data, f"n{n}") for n, data in enumerate(whole)),
        )
        assert (await app.store.get("y")).data in whole
        assert await app.messages() == 6


@asynchronous
async def test_an_object_that_goes_while_it_is_sent(server: Server) -> None:
    data = random.Random(3).randbytes(20_000_000)
    async with asker(server) as app:
        await app.store.put("big", data)
        with RawApp(server.port) as slow:
            inbox = slow.inbox()
            body = json.dumps({"name": "big", "deliver_subject": inbox}).encode()
            answer = slow.request("$OBJ.b", body)
            assert json.loads(answer.payload)["size"] == len(data)
            await asyncio.sleep(0.5)  # more than the window and the sockets' buffers do not come
            await app.store.delete("big")
            frames = await asyncio.to_thread(until_end, slow)
        assert frames[-1].status == "410 Object Gone"
        got = b"".join(frame.payload for frame in frames)
        assert 0 < len(got) < len(data)
        assert data.startswith(got)


def until_end(client: RawApp) -> list[Frame]:
    frames = [client.message()]
    while frames[-1].payload:
        frames.append(client.message())
    return frames


@asynchronous
async def test_memory_stays_within_a_window_whoever_receives(server: Server) -> None:
    data = bytes(100_000_000)
    async with asker(server) as app:
        await app.store.put("big", data)
        before = resident(server)
        with contextlib.ExitStack() as opened:
            for _ in range(6):
                slow = opened.enter_context(RawApp(server.port))
                inbox = slow.inbox()
                body = json.dumps({"name": "big", "deliver_subject": inbox}).encode()
                assert "error" not in json.loads(slow.request("$OBJ.b", body).payload)
            await asyncio.sleep(1)  # for what a server without a window would have read by then
            assert resident(server) - before < 60 << 20
        _, got, end = await app.get("big")
        assert (got == data, end) == (True, "204 EOB")


def resident(server: Server) -> int:
    """Bytes of memory that are the process's own: pages of files are the system's."""
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssAnon"].split()[0]) << 10


NONSENSE: dict[str, tuple[str, Any, int]] = {
    "no JSON": ("$OBJ.b", b"{", 10025),
    "no object": ("$OBJ.b", b"[]", 10025),
    "no UTF-8": ("$OBJ.b", b'{"name":"\xff"}', 10037),
    "unknown field": ("$OBJ.b", {"nam": "a"}, 10025),
    "unknown action": ("$OBJ.b", {"action": "purge"}, 10025),
    "number for a name": ("$OBJ.b", {"name": 5}, 10025),
    "offset of an info": ("$OBJ.b", {"name": "a", "offset": 5}, 10003),
    "negative offset": ("$OBJ.b", {"offset": -5}, 10025),
    "name of a list": ("$OBJ.b", {"action": "list", "name": "a"}, 10003),
    "nothing to delete": ("$OBJ.b", {"action": "delete"}, 10003),
    "nowhere to send": ("$OBJ.b", {"action": "get", "name": "a"}, 10003),
    "nothing to send": ("$OBJ.b", {"action": "get", "deliver_subject": "a"}, 10003),
    "wildcard": ("$OBJ.b", {"name": "a", "deliver_subject": "a.*"}, 10003),
    "blank": ("$OBJ.b", {"name": "a", "deliver_subject": "a b"}, 10003),
    "system subject": ("$OBJ.b", {"name": "a", "deliver_subject": "$JS.API.INFO"}, 10003),
    "stored subject": ("$OBJ.b", {"name": "a", "deliver_subject": "orders.new"}, 10003),
    "long name": ("$OBJ.b", {"name": "a" * 5000}, 10003),
    "digest of nothing": (
        "$OBJ.b.info.a",
        {"nonce": "n", "size": 1, "chunks": 1, "digest": "SHA-256=AAAA"},
        10003,
    ),
    "other digest": (
        "$OBJ.b.info.a",
        {"nonce": "n", "size": 1, "chunks": 1, "digest": "MD5=AAAA"},
        10003,
    ),
    "no bucket": ("$OBJ.none", b"", 10059),
    "no name of a bucket": ("$OBJ.b.c", b"", 10003),
    "no object store": ("$OBJ.other", b"", 10003),
    "empty begin": ("$OBJ.b.info.a", b"", 10025),
    "begin without nonce": ("$OBJ.b.info.a", {"size": 1, "chunks": 1}, 10025),
    "begin with a bad nonce": ("$OBJ.b.info.a", {"nonce": "a.b", "size": 1, "chunks": 1}, 10003),
    "other name": ("$OBJ.b.info.a", {"nonce": "n", "size": 1, "chunks": 1, "name": "b"}, 10003),
    "other bucket": ("$OBJ.b.info.a", {"nonce": "n", "size": 1, "chunks": 1, "bucket": "c"}, 10003),
    "more chunks than bytes": ("$OBJ.b.info.a", {"nonce": "n", "size": 1, "chunks": 2}, 10003),
    "bytes without chunks": ("$OBJ.b.info.a", {"nonce": "n", "size": 1, "chunks": 0}, 10003),
    "negative size": ("$OBJ.b.info.a", {"nonce": "n", "size": -1, "chunks": 1}, 10025),
    "huge size": ("$OBJ.b.info.a", {"nonce": "n", "size": 1 << 64, "chunks": 1}, 10025),
    "huge number": ("$OBJ.b.info.a", {"nonce": "n", "size": 1 << 50, "chunks": 1 << 40}, 10003),
    "bool for a size": ("$OBJ.b.info.a", {"nonce": "n", "size": True, "chunks": 1}, 10025),
    "begin with deleted": (
        "$OBJ.b.info.a",
        {"nonce": "n", "size": 1, "chunks": 1, "deleted": True},
        10025,
    ),
    "a link": (
        "$OBJ.b.info.a",
        {"nonce": "n", "size": 1, "chunks": 1, "options": {"link": {"bucket": "x"}}},
        10003,
    ),
    "upload to no bucket": ("$OBJ.none.info.a", {"nonce": "n", "size": 1, "chunks": 1}, 10059),
    "chunk of nothing": ("$OBJ.b.chunks.n", b"x", 10037),
    "chunk of no bucket": ("$OBJ.none.chunks.n", b"x", 10037),
    "another place": ("$OBJ.b.other.n", b"x", 10003),
    "two tokens": ("$OBJ.b.info", b"x", 10003),
}


@asynchronous
async def test_nonsense_is_refused_with_a_code(server: Server) -> None:
    async with asker(server) as app:
        js = app.client.jetstream()
        await js.add_stream(name="ORDERS", subjects=["orders.>"])
        await js.add_stream(name="OBJ_other", subjects=["other.>"])
        for what, (subject, body, code) in NONSENSE.items():
            answer = await app.ask(subject, body)
            assert answer.get("error", {}).get("err_code") == code, (what, answer)
            assert answer["error"]["description"], what
            assert answer["type"].startswith("io.nats.jetstream.api.v1.jsserver_object"), what
        assert await app.messages() == 0
        assert (await app.ask("$OBJ.b"))["objects"] == []


@asynchronous
async def test_what_others_wrote_is_not_believed(server: Server) -> None:
    """A meta says anything: nothing else is read or removed for it."""
    async with asker(server) as app:
        await app.store.put("good", b"good")
        metas: dict[str, Any] = {
            "wild": {"name": "wild", "nuid": ">", "chunks": 1, "size": 4, "digest": ""},
            "dots": {"name": "dots", "nuid": "a.b", "chunks": 1, "size": 4},
            "none": {"name": "none", "chunks": 1, "size": 4},
            "other": {"name": "good", "nuid": "x", "chunks": 1, "size": 4},
            "text": "text",
            "list": [],
            "negative": {"name": "negative", "nuid": "x", "chunks": -1, "size": 4},
            "link": {"name": "link", "options": {"link": {"bucket": "b", "name": "good"}}},
            "more": {"name": "more", "nuid": "x", "chunks": 1 << 62, "size": 1 << 62},
        }
        for name, meta in metas.items():
            body = json.dumps(meta).encode()
            await app.client.jetstream().publish(f"$O.b.M.{token(name)}", body)
        for name in metas:
            answer, got, end = await app.get(name)
            assert got == b"", name
            assert "error" in answer or end == "410 Object Gone", name
        link = await app.ask("$OBJ.b", {"name": "link"})
        assert link["options"]["link"] == {"bucket": "b", "name": "good"}
        for name in metas:
            await app.ask("$OBJ.b", {"action": "delete", "name": name})
            assert "digest" in await app.put(name, b"new"), name
        listed = await app.ask("$OBJ.b")
        assert sorted(one["name"] for one in listed["objects"]) == sorted([*metas, "good"])
        assert (await app.get("good"))[1] == b"good"


@asynchronous
async def test_limits_of_the_bucket_and_of_uploads(server: Server) -> None:
    async with asker(server, max_bytes=500_000) as app:
        full = await app.put("big", bytes(700_000))
        assert (full["error"]["err_code"], full["error"]["code"]) == (10077, 503)
        assert await until_messages(app, 0)
        begin = {"size": 5, "chunks": 1}
        for n in range(4):
            answer = await app.ask("$OBJ.b.info.a", {"nonce": f"n{n}", **begin})
            assert "error" not in answer
        busy = await app.ask("$OBJ.b.info.a", {"nonce": "n", **begin})
        assert (busy["error"]["code"], busy["error"]["err_code"]) == (503, 10008)
        await app.store.seal()
        sealed = await app.ask("$OBJ.b.chunks.n0", b"12345")
        assert sealed["error"]["err_code"] == 10109
        refused = await app.ask("$OBJ.b.info.a", {"nonce": "m", **begin})
        assert refused["error"]["err_code"] == 10109


async def until_messages(app: Asker, count: int) -> bool:
    until = time.monotonic() + 10
    while await app.messages() != count:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    return True


@asynchronous
async def test_many_objects_are_listed_in_pages(server: Server) -> None:
    async with asker(server) as app:
        names = [f"object {n}" for n in range(600)]
        js = app.client.jetstream()
        for name in names:
            meta = {"name": name, "nuid": "x", "chunks": 0, "size": 0, "description": "d" * 500}
            meta["deleted"] = name.endswith("7")
            await js.publish(f"$O.b.M.{token(name)}", json.dumps(meta).encode())
        found, offset, pages = [], 0, 0
        while True:
            page = await app.ask("$OBJ.b", {"offset": offset})
            assert (page["total"], page["limit"], page["offset"]) == (600, 256, offset)
            found += [one["name"] for one in page["objects"]]
            pages += 1
            offset = page.get("next", 0)
            if offset == 0:
                break
        assert sorted(found) == sorted(name for name in names if not name.endswith("7"))
        assert pages == 3
        beyond = await app.ask("$OBJ.b", {"offset": 1 << 62})
        assert (beyond["objects"], beyond["offset"]) == ([], 600)


ACCOUNTS = """
accounts {
  A {
    jetstream: enabled
    users: [
      {user: a, password: p}
      {user: reader, password: p, permissions {
        publish: ["$OBJ.b"], subscribe: ["_INBOX.>"] }}
      {user: writer, password: p, permissions {
        publish: ["$OBJ.b.info.mine", "$OBJ.b.chunks.>"], subscribe: ["_INBOX.>"] }}
    ]
  }
  B { jetstream: enabled, users: [{user: b, password: p}] }
  C { users: [{user: c, password: p}] }
}
"""


@asynchronous
async def test_requests_are_answered_by_the_account_and_the_permissions_of_who_asks(
    servers: Servers,
) -> None:
    server = started(servers, ACCOUNTS)
    async with (
        connected(server, user="a", password="p") as a,
        connected(server, user="b", password="p") as b,
        connected(server, user="c", password="p") as c,
        connected(server, user="reader", password="p") as reader,
        connected(server, user="writer", password="p") as writer,
    ):
        in_a = Asker(a, await a.jetstream().create_object_store("b"))
        in_b = Asker(b, await b.jetstream().create_object_store("b"))
        await in_a.store.put("secret", b"of A")
        await in_b.store.put("other", b"of B")
        assert (await in_b.ask("$OBJ.b", {"name": "secret"}))["error"]["code"] == 404
        assert (await in_b.get("other"))[1] == b"of B"
        heard = await b.subscribe("_INBOX.>")
        nothing = Asker(c, in_a.store)
        assert (await nothing.ask("$OBJ.b"))["error"]["err_code"] == 10039
        begin = {"nonce": "n", "size": 1, "chunks": 1}
        assert (await nothing.ask("$OBJ.b.info.x", begin))["error"]["err_code"] == 10039
        assert (await nothing.ask("$OBJ.b.chunks.n", b"x"))["error"]["err_code"] == 10039
        reads = Asker(reader, in_a.store)
        assert (await reads.get("secret"))[1] == b"of A"
        await a.subscribe("elsewhere")
        body = {"name": "secret", "deliver_subject": "elsewhere"}
        refused = await reads.ask("$OBJ.b", body)
        assert "no permission" in refused["error"]["description"]
        with pytest.raises(asyncio.TimeoutError):
            await reader.request("$OBJ.b.info.mine", json.dumps(begin).encode(), timeout=0.3)
        writes = Asker(writer, in_a.store)
        assert "error" not in await writes.ask("$OBJ.b.info.mine", begin)
        other = {**begin, "name": "secret", "nonce": "m"}
        assert (await writes.ask("$OBJ.b.info.mine", other))["error"]["err_code"] == 10003
        assert "digest" in await writes.ask("$OBJ.b.chunks.n", b"x")
        assert (await in_a.store.get("mine")).data == b"x"
        with pytest.raises(asyncio.TimeoutError):
            await writer.request("$OBJ.b", b"", timeout=0.3)
        assert heard.pending_msgs == 0


@asynchronous
async def test_without_the_option_nobody_answers(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    async with asker(server) as app:
        with pytest.raises(Exception, match="no responders"):
            await app.ask("$OBJ.b")


@asynchronous
async def test_acks_are_the_streams_alone(server: Server) -> None:
    """A client that hears where the server waits for acks cannot give one."""
    async with asker(server) as app:
        heard = await app.client.subscribe("$JS.OBJECT.>")
        await app.put("a", b"a")
        ack = await heard.next_msg(timeout=30)
        prefix, _, number = ack.subject.rpartition(".")
        begin = {"nonce": "n", "size": 2, "chunks": 2}
        assert "error" not in await app.ask("$OBJ.b.info.b", begin)
        for ahead in range(1, 20):
            forged = f"{prefix}.{int(number) + ahead}"
            await app.client.publish(forged, b'{"stream":"OBJ_b","seq":1}')
        await app.client.flush()
        assert "digest" not in await app.ask("$OBJ.b.chunks.n", b"1")
        assert (await app.ask("$OBJ.b.chunks.n", b"2"))["digest"] == digest(b"12")
        assert (await app.store.get("b")).data == b"12"


@asynchronous
async def test_chunks_that_follow_each_other_without_a_wait(server: Server) -> None:
    """Begin and chunks in one write; only the last answer is looked at."""
    data = random.Random(4).randbytes(5_000_000)
    async with asker(server) as app:
        with RawApp(server.port) as client:
            chunks = [data[at : at + 20_000] for at in range(0, len(data), 20_000)]
            begin = {"nonce": "n", "size": len(data), "chunks": len(chunks)}
            client.publish("$OBJ.b.info.fast", json.dumps(begin).encode())
            for chunk in chunks[:-1]:
                client.publish("$OBJ.b.chunks.n", chunk)
            answer = client.request("$OBJ.b.chunks.n", chunks[-1])
            assert json.loads(answer.payload)["digest"] == digest(data)
        assert (await app.store.get("fast")).data == data


@asynchronous
async def test_what_a_crash_cuts_off_is_gone_after_the_next_start(server: Server) -> None:
    data = bytes(250_000)
    async with asker(server) as app:
        await app.put("whole", data, "w")
        with RawApp(server.port) as client:
            for nonce in ("one", "two"):
                begin = {"nonce": nonce, "size": len(data), "chunks": 3, "name": "cut"}
                client.request("$OBJ.b.info.cut", json.dumps(begin).encode())
                client.request(f"$OBJ.b.chunks.{nonce}", data[:CUT])
            assert await app.messages() == 6
            server.kill()
        server.start()
        async with connected(server) as again:
            app.client = again
            assert await app.messages() == 4
            assert (await app.get("whole"))[1] == data
            assert len((await app.ask("$OBJ.b"))["objects"]) == 1
            assert "digest" in await app.put("cut", data)
    uploads = server.folder.parent / "objects" / "jetstream" / "$G" / "uploads"
    until = time.monotonic() + 10
    while [*uploads.iterdir()]:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


@asynchronous
async def test_a_stop_ends_uploads_and_what_is_sent(server: Server) -> None:
    data = bytes(20_000_000)
    async with asker(server) as app:
        await app.store.put("big", data)
        before = await app.messages()
        begin = {"nonce": "n", "size": 2, "chunks": 2}
        with RawApp(server.port) as client, RawApp(server.port) as slow:
            client.request("$OBJ.b.info.cut", json.dumps(begin).encode())
            client.request("$OBJ.b.chunks.n", b"1")
            body = json.dumps({"name": "big", "deliver_subject": slow.inbox()}).encode()
            assert b"error" not in slow.request("$OBJ.b", body).payload
            server.stop()
        server.start()
        async with connected(server) as again:
            app.client = again
            assert await app.messages() == before


@asynchronous
async def test_the_bucket_goes_during_an_upload(server: Server) -> None:
    async with asker(server) as app:
        begin = {"nonce": "n", "size": 3, "chunks": 3}
        assert "error" not in await app.ask("$OBJ.b.info.a", begin)
        await app.ask("$OBJ.b.chunks.n", b"1")
        js = app.client.jetstream()
        await js.delete_object_store("b")
        gone = await app.ask("$OBJ.b.chunks.n", b"2")
        assert gone["error"]["err_code"] == 10059
        await js.create_object_store("b")
        assert (await app.ask("$OBJ.b.chunks.n", b"2"))["error"]["err_code"] == 10037
        assert await app.messages() == 0
        assert "digest" in await app.put("a", b"new")
