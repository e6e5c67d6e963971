"""What an application does with core NATS, by nats-py against the real process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.client.aio import asynchronous, connected, nothing, restart, take, until
from tests.servers import Server, Servers


@contextlib.asynccontextmanager
async def several(server: Server, count: int) -> AsyncIterator[list[Client]]:
    """This many connections."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(server)) for _ in range(count)]


@asynchronous
async def test_publish_and_subscribe(core_server: Server) -> None:
    async with connected(core_server) as a, connected(core_server) as b:
        subscription = await b.subscribe("greet.*")
        await b.flush()
        for n in range(100):
            await a.publish("greet.joe", f"hello {n}".encode())
        messages = await take(subscription, 100)
        assert [m.data for m in messages] == [f"hello {n}".encode() for n in range(100)]
        assert {m.subject for m in messages} == {"greet.joe"}


@asynchronous
async def test_server_tells_about_itself(core_server: Server) -> None:
    async with connected(core_server) as client:
        assert client.max_payload == 1024 * 1024
        assert client.client_id is not None and client.client_id > 0
        assert str(client.client_ip) == "127.0.0.1"
        assert client.connected_server_version.major == 2
        assert client.connected_server_version.minor >= 14
        assert await client.rtt() < 5


@asynchronous
async def test_request_and_reply(core_server: Server) -> None:
    async with connected(core_server) as service, connected(core_server) as client:

        async def double(message: Msg) -> None:
            await message.respond(str(int(message.data) * 2).encode())

        await service.subscribe("double", cb=double)
        await service.flush()
        answers = await asyncio.gather(
            *(client.request("double", str(n).encode(), timeout=30) for n in range(200))
        )
        assert [int(a.data) for a in answers] == [n * 2 for n in range(200)]
        old_style = await client.request("double", b"21", old_style=True, timeout=30)
        assert old_style.data == b"42"


@asynchronous
async def test_request_without_responder_fails_at_once(core_server: Server) -> None:
    async with connected(core_server) as client:
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody.home", b"?", timeout=30)


@asynchronous
async def test_request_that_nobody_answers_times_out(core_server: Server) -> None:
    async with connected(core_server) as client:
        await client.subscribe("silent")
        with pytest.raises(nats.errors.TimeoutError):
            await client.request("silent", b"?", timeout=0.2)


@asynchronous
async def test_queue_group_shares_the_work(core_server: Server) -> None:
    async with several(core_server, 4) as (client, *workers):
        subscriptions = [await w.subscribe("work", queue="crew") for w in workers]
        for worker in workers:
            await worker.flush()
        for n in range(300):
            await client.publish("work", str(n).encode())
        await client.flush()
        await until(lambda: sum(s.pending_msgs for s in subscriptions) == 300)
        seen = [await take(s, s.pending_msgs) for s in subscriptions]
        assert all(len(part) > 30 for part in seen), "one worker got nearly nothing"
        assert sorted(int(m.data) for part in seen for m in part) == list(range(300))


@asynchronous
async def test_headers_arrive_unchanged(core_server: Server) -> None:
    async with connected(core_server) as client:
        subscription = await client.subscribe("h")
        await client.publish("h", b"body", headers={"One": "1", "Zwei": "zwei words"})
        await client.publish("h", b"", headers={"Only": "header"})
        await client.publish("h", b"plain")
        first, second, third = await take(subscription, 3)
        assert (first.data, first.headers) == (b"body", {"One": "1", "Zwei": "zwei words"})
        assert (second.data, second.headers) == (b"", {"Only": "header"})
        assert (third.data, third.headers) == (b"plain", None)


@asynchronous
async def test_wildcards(core_server: Server) -> None:
    async with connected(core_server) as client:
        star = await client.subscribe("orders.*.new")
        full = await client.subscribe("orders.>")
        for subject in ("orders.1.new", "orders.2.old", "orders.1.2.new", "orders"):
            await client.publish(subject, b"")
        await client.flush()
        assert [m.subject for m in await take(star, 1)] == ["orders.1.new"]
        assert [m.subject for m in await take(full, 3)] == [
            "orders.1.new",
            "orders.2.old",
            "orders.1.2.new",
        ]
        await nothing(star)
        await nothing(full)


@asynchronous
async def test_unsubscribe_and_limits(core_server: Server) -> None:
    async with connected(core_server) as client:
        limited = await client.subscribe("x")
        await limited.unsubscribe(limit=2)
        plain = await client.subscribe("x")
        for n in range(4):
            await client.publish("x", str(n).encode())
        await client.flush()
        assert [m.data for m in await take(plain, 4)] == [b"0", b"1", b"2", b"3"]
        assert limited.pending_msgs == 2
        await plain.unsubscribe()
        await client.flush()
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("x", b"", timeout=30)


@asynchronous
async def test_no_echo(core_server: Server) -> None:
    async with connected(core_server, no_echo=True) as a, connected(core_server) as b:
        own, other = await a.subscribe("e"), await b.subscribe("e")
        await b.flush()
        await a.publish("e", b"x")
        await take(other, 1)
        await nothing(own)


@asynchronous
async def test_verbose_and_pedantic_connections_work(core_server: Server) -> None:
    async with connected(core_server, verbose=True, pedantic=True) as client:
        subscription = await client.subscribe("v")
        for n in range(20):
            await client.publish("v", str(n).encode())
        assert len(await take(subscription, 20)) == 20


@asynchronous
async def test_payload_sizes(core_server: Server) -> None:
    async with connected(core_server) as client:
        subscription = await client.subscribe("big")
        sizes = [0, 1, 511, 512, 4096, 65535, 65536, 65537, 300_000, client.max_payload]
        for size in sizes:
            await client.publish("big", bytes([size % 251]) * size)
        messages = await take(subscription, len(sizes))
        assert [len(m.data) for m in messages] == sizes
        assert all(set(m.data) <= {len(m.data) % 251} for m in messages)
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish("big", b"x" * (client.max_payload + 1))


@asynchronous
async def test_drain_handles_what_is_on_its_way(core_server: Server) -> None:
    handled = []
    async with connected(core_server) as a, connected(core_server) as b:

        async def slow(message: Msg) -> None:
            await asyncio.sleep(0.002)  # slower than they come
            handled.append(int(message.data))

        own = await a.subscribe("d")
        await b.subscribe("d", cb=slow)
        await b.flush()
        for n in range(100):
            await a.publish("d", str(n).encode())
        await take(own, 100)
        await b.drain()
        assert handled == list(range(100))
        assert b.is_closed


@asynchronous
async def test_subscriptions_come_back_after_a_restart(servers: Servers) -> None:
    server = servers.under_test()
    async with connected(server) as client:
        subscription = await client.subscribe("r")
        for kill in (True, False):
            await client.publish("r", b"before")
            await take(subscription, 1)
            await restart(client, server, kill=kill)
            await client.publish("r", b"after")
            assert [m.data for m in await take(subscription, 1)] == [b"after"]


@asynchronous
async def test_many_subscriptions_on_many_connections(core_server: Server) -> None:
    async with several(core_server, 20) as clients:
        subscriptions = [
            (n, await client.subscribe(f"many.{n}.*")) for client in clients for n in range(25)
        ]
        for client in clients:
            await client.flush()
        for n in range(25):
            await clients[0].publish(f"many.{n}.x", str(n).encode())
        for n, subscription in subscriptions:
            assert [m.data for m in await take(subscription, 1)] == [str(n).encode()]


@asynchronous
async def test_a_burst_arrives_whole_and_in_order(core_server: Server) -> None:
    count = 20_000
    async with connected(core_server) as a, connected(core_server) as b:
        seen = []

        async def keep(message: Msg) -> None:
            seen.append(int(message.data))

        await b.subscribe("burst", cb=keep, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await b.flush()
        for n in range(count):
            await a.publish("burst", str(n).encode())
        await a.flush(timeout=20)
        await until(lambda: len(seen) == count, 20)
        assert seen == list(range(count))


CREDENTIALS = """
authorization {
  users: [
    { user: "admin", password: "secret" }
    { user: "reader", password: "r", permissions: {
        subscribe: ["news.>", "_INBOX.>"], publish: { deny: ">" } } }
  ]
}
"""


@asynchronous
async def test_user_and_password(servers: Servers) -> None:
    server = servers.under_test(config=CREDENTIALS)
    async with (
        connected(server, user="admin", password="secret") as admin,
        connected(server, user="reader", password="r") as reader,
    ):
        news = await reader.subscribe("news.today")
        await reader.flush()
        await admin.publish("news.today", b"rain")
        assert [m.data for m in await take(news, 1)] == [b"rain"]


@asynchronous
async def test_wrong_credentials_are_refused(servers: Servers) -> None:
    server = servers.under_test(config=CREDENTIALS)
    for wrong in ({"user": "admin", "password": "no"}, {}, {"token": "secret"}):
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
            async with connected(server, allow_reconnect=False, **wrong):
                pass


@asynchronous
async def test_permission_violation_is_reported_and_the_connection_lives(
    servers: Servers,
) -> None:
    server = servers.under_test(config=CREDENTIALS)
    errors: list[str] = []

    async def keep(error: Exception) -> None:
        errors.append(str(error))

    async with connected(server, user="reader", password="r", error_cb=keep) as reader:
        await reader.publish("forbidden", b"x")
        await until(lambda: len(errors) == 1)
        await reader.subscribe("other")
        await until(lambda: len(errors) == 2)
        assert 'permissions violation for publish to "forbidden"' in errors[0].lower()
        assert 'permissions violation for subscription to "other"' in errors[1].lower()
        assert reader.is_connected


@asynchronous
async def test_token_by_flag(servers: Servers) -> None:
    server = servers.under_test(args=["--auth", "tok"])
    async with connected(server, token="tok") as client:
        await client.flush()
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
        async with connected(server, allow_reconnect=False, token="tak"):
            pass


@asynchronous
async def test_user_and_password_by_flag(servers: Servers) -> None:
    server = servers.under_test(args=["--user", "joe", "--pass", "s3/cr\\et"])
    async with connected(server, user="joe", password="s3/cr\\et") as client:
        await client.flush()
