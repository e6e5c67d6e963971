"""Which requests of a connection wait for which, and until when."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

import pytest

from jsserver.api.endpoints import ENDPOINTS
from jsserver.instances.order import Effect, Order, Place, Stage

LOOKS, CHANGES, CLAIMS = Effect.LOOKS, Effect.CHANGES, Effect.CLAIMS


def entered(
    order: Order,
    stream: str | None,
    consumer: str | None = None,
    effect: Effect = LOOKS,
    connection: int = 7,
) -> Place:
    place = Place(stream, consumer, effect, nullcontext)
    order.enter(connection, place)
    return place


@pytest.mark.parametrize(
    ("name", "args", "told"),
    [
        ("STREAM.CREATE", ["S"], ("S", None, CLAIMS)),
        ("STREAM.PURGE", ["S"], ("S", None, CHANGES)),
        ("STREAM.INFO", ["S"], ("S", None, LOOKS)),
        ("INFO", [], (None, None, LOOKS)),
        ("CONSUMER.CREATE", ["S"], ("S", None, CHANGES)),  # its name is not known yet
        ("CONSUMER.CREATE", ["S", "c", "a", "b"], ("S", "c", CLAIMS)),
        ("CONSUMER.DURABLE.CREATE", ["S", "c"], ("S", "c", CLAIMS)),
        ("CONSUMER.INFO", ["S", "c"], ("S", "c", LOOKS)),
    ],
)
def test_what_requests_are_among_those_of_their_connection(
    name: str, args: list[str], told: tuple[str | None, str | None, Effect]
) -> None:
    place = ENDPOINTS[name].place(args, nullcontext)
    assert (place.stream, place.consumer, place.effect) == told


Told = tuple[str | None, str | None, Effect]


@pytest.mark.parametrize(
    ("earlier", "later", "until"),
    [
        (("S", None, LOOKS), ("S", None, LOOKS), Stage.ASKED),
        (("S", None, LOOKS), ("S", None, CHANGES), Stage.ENDED),
        (("S", None, CHANGES), ("S", None, LOOKS), Stage.ENDED),
        (("S", None, CLAIMS), ("S", None, CLAIMS), Stage.ENDED),
        (("S", None, CLAIMS), ("T", None, CLAIMS), Stage.JUDGED),
        (("S", None, CLAIMS), ("T", None, CHANGES), Stage.ASKED),
        (("S", None, CHANGES), ("T", None, CLAIMS), Stage.ASKED),
        (("S", None, CHANGES), ("T", None, LOOKS), Stage.ASKED),
        ((None, None, LOOKS), ("S", None, CHANGES), Stage.ENDED),
        (("S", "c", CHANGES), (None, None, LOOKS), Stage.ENDED),
        ((None, None, LOOKS), ("S", None, LOOKS), Stage.ASKED),
        (("S", "c", CLAIMS), ("S", "c", LOOKS), Stage.ENDED),
        (("S", "c", CLAIMS), ("S", "d", CLAIMS), Stage.JUDGED),
        (("S", "c", CLAIMS), ("S", "d", LOOKS), Stage.ASKED),
        (("S", "c", CHANGES), ("S", "d", CLAIMS), Stage.ASKED),
        (("S", "c", LOOKS), ("S", None, CHANGES), Stage.ENDED),
        (("S", "c", CLAIMS), ("S", None, LOOKS), Stage.ENDED),
        (("S", "c", CLAIMS), ("T", "c", CLAIMS), Stage.ASKED),
        (("S", "c", CLAIMS), ("T", None, CLAIMS), Stage.ASKED),
    ],
)
def test_what_a_request_waits_for(earlier: Told, later: Told, until: Stage) -> None:
    order = Order()
    first, second = entered(order, *earlier), entered(order, *later)
    other = entered(order, *later, connection=8)
    assert not first.waits and not other.waits
    assert second.waits == (until > Stage.ASKED)
    first.reach(Stage.JUDGED)
    assert second.waits == (until > Stage.JUDGED)
    order.leave(7, first)
    assert not second.waits


def run(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(check(), 30))


def test_a_refusal_that_an_earlier_request_may_be_the_reason_of_is_no_last_word() -> None:
    async def check() -> None:
        order = Order()
        removed = entered(order, "S", None, CLAIMS)
        removed.reach(Stage.JUDGED)
        made = entered(order, "T", None, CLAIMS)
        behind = entered(order, "U", None, CLAIMS)
        assert not made.waits and behind.waits
        assert made.refused()
        turn = asyncio.ensure_future(made.turn())
        await asyncio.sleep(0)
        assert not turn.done()
        order.leave(7, removed)
        await turn
        assert not made.refused(), "nothing before it is under way"
        assert behind.waits, "it is still to be judged"
        made.reach(Stage.JUDGED)
        assert not behind.waits and behind.refused()
        behind.reach(Stage.JUDGED)
        order.leave(7, made)
        assert not behind.waits

    run(check)


def test_what_fails_after_it_was_judged_is_not_judged_again() -> None:
    order = Order()
    entered(order, "S", None, CLAIMS).reach(Stage.JUDGED)
    made = entered(order, "T", None, CLAIMS)
    made.reach(Stage.JUDGED)
    assert not made.refused()


def test_who_gives_up_keeps_nobody_waiting() -> None:
    async def check() -> None:
        order = Order()
        first = entered(order, "S", None, CHANGES)
        second = entered(order, "S", None, CHANGES)
        third = entered(order, "S")
        turns = [asyncio.ensure_future(place.turn()) for place in (second, third)]
        await asyncio.sleep(0)
        turns[0].cancel()
        await asyncio.sleep(0)
        order.leave(7, second)
        assert third.waits
        order.leave(7, first)
        await turns[1]
        order.leave(7, third)
        assert not order._lines and not order._lone, (
            "nothing is kept of a connection without requests"
        )

    run(check)
