"""What clients of linked servers send each other, the same whether routes, leaf nodes or gateways
link the servers. Each client is of another server, and hears of the others' subscriptions."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.client.aio import until
from tests.client.mesh import Heard, meet


async def plain_messages_reach_all_in_order(members: list[Client], count: int) -> None:
    """Each client publishes `count` messages, every other one with a header."""
    heard = Heard()
    for number, client in enumerate(members):
        await heard.listen(client, f"plain{number}", "plain.*")
    await meet(members)
    for number, client in enumerate(members):
        for n in range(count):
            headers = {"Nth": str(n)} if n % 2 else None
            await client.publish(f"plain.{number}", b"%d" % n, headers=headers)
        await client.flush()
    every = len(members)
    await until(lambda: heard.counts("plain") == [count * every] * every)
    await meet(members)  # whatever was sent twice has come by now
    for messages in heard.messages.values():
        for number in range(every):
            of = [m for m in messages if m.subject == f"plain.{number}"]
            assert [m.data for m in of] == [b"%d" % n for n in range(count)]
            expected = [{"Nth": str(n)} if n % 2 else None for n in range(count)]
            assert [m.headers or None for m in of] == expected


async def requests_are_answered_from_everywhere(members: list[Client], each: int) -> list[str]:
    """Each client sends `each` requests to every client's service, and one that nobody answers.
    Returns the reply subjects that the services have seen."""
    replies: list[str] = []
    for number, client in enumerate(members):

        async def answer(message: Any, number: int = number) -> None:
            replies.append(message.reply)
            await message.respond(b"%d:%s" % (number, message.data))

        await client.subscribe(f"service.{number}", cb=answer)
    await meet(members)
    for client in members:
        for number in range(len(members)):
            subject = f"service.{number}"
            asked = [client.request(subject, b"%d" % n, timeout=10) for n in range(each)]
            answers = await asyncio.gather(*asked)
            expected = [b"%d:%d" % (number, n) for n in range(each)]
            assert [found.data for found in answers] == expected
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"", timeout=10)
    return replies


async def publish_to_all_but(members: list[Client], silent: int) -> Counter[int]:
    """All clients listen, then the one of this number stops; after that the first client publishes
    one message. Returns how many messages each client gets, by number: more may still come."""
    got: Counter[int] = Counter()
    subscriptions = []
    for number, client in enumerate(members):

        async def take(_: Any, number: int = number) -> None:
            got[number] += 1

        subscriptions.append(await client.subscribe("news", cb=take))
    await meet(members)
    await subscriptions[silent].unsubscribe()
    await members[silent].flush()
    await meet(members)
    await members[0].publish("news", b"")
    await members[0].flush()
    return got
