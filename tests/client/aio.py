"""Runs asynchronous tests of an application that uses nats-py."""

import asyncio
import contextlib
import functools
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.servers import Server

TEST_SECONDS = 240.0
WAIT_SECONDS = 60.0

P = ParamSpec("P")

_numbers = itertools.count(1)


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes an ordinary test of a coroutine function; it may take `TEST_SECONDS`."""

    @functools.wraps(test)
    def ordinary(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), TEST_SECONDS))

    return ordinary


class Flushing(Client):
    """Its flush() covers what was subscribed and published before.

    nats-py writes the PING at once and the rest soon after. By the first PONG all of it is
    written, and the second PING comes behind it: where each connection has a thread of its own at
    the server, a message from another one could otherwise be faster than the SUB.
    """

    async def flush(self, timeout: int = 60) -> None:
        await super().flush(timeout)
        await super().flush(timeout)


@contextlib.asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[Client]:
    """A nats-py connection that reconnects fast and is closed at the end of the block."""
    settings: dict[str, Any] = {
        "max_reconnect_attempts": 200,
        "reconnect_time_wait": 0.05,
        "connect_timeout": 60,
        "error_cb": _silent,
    }
    client = Flushing()
    await client.connect(server.url, **(settings | options))
    try:
        yield client
    finally:
        with contextlib.suppress(ConnectionError):
            await client.close()


async def _silent(_: Exception) -> None:
    """Errors are what tests look at; they need no lines on the terminal."""


async def restart(client: Client, server: Server, *, kill: bool = False) -> None:
    """Restarts the server and waits until the client has found it again."""
    before = client.stats["reconnects"]
    await asyncio.to_thread(server.restart, kill=kill)
    await until(lambda: client.stats["reconnects"] > before and client.is_connected)
    await client.flush()


async def until(
    condition: Callable[[], bool | Awaitable[bool]], seconds: float = WAIT_SECONDS
) -> None:
    """Waits until the condition holds, and fails when it does not hold in time."""
    end = time.monotonic() + seconds
    while True:
        held = condition()
        if isinstance(held, bool):
            result = held
        else:
            result = await held
        if result:
            return
        assert time.monotonic() < end, "the condition did not come true in time"
        await asyncio.sleep(0.01)


async def take(subscription: Any, count: int, timeout: float = WAIT_SECONDS) -> list[Msg]:
    """The next `count` messages of a subscription."""
    end = time.monotonic() + timeout
    return [await subscription.next_msg(end - time.monotonic()) for _ in range(count)]


async def nothing(subscription: Any, seconds: float = 0.15) -> None:
    """Fails when a message arrives within the time."""
    try:
        message = await subscription.next_msg(seconds)
    except (TimeoutError, nats.errors.TimeoutError):
        return
    raise AssertionError(f"an unexpected message: {message}")


def unique(prefix: str) -> str:
    """A name that no other test of this run uses."""
    return f"{prefix}{next(_numbers)}"


async def api(
    client: Client, subject: str, body: object = None, seconds: float = 30
) -> dict[str, Any]:
    """A request to `$JS.API.<subject>`."""
    data = b"" if body is None else json.dumps(body).encode()
    answer = json.loads((await client.request(f"$JS.API.{subject}", data, timeout=seconds)).data)
    assert isinstance(answer, dict)
    return answer


async def fill(js: JetStreamContext, subject: str, count: int) -> None:
    """Publishes `count` messages with the bodies 1, 2, 3…"""
    acks = [await js.publish_async(subject, str(n + 1).encode()) for n in range(count)]
    await asyncio.gather(*acks)
