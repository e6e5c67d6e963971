"""Sequences of operations on consumers with priority groups, whose every answer must be the same on
two servers; pins have other ids on each, so they are noted by the order in which they came."""

import re
from typing import Any

from tests.client.jetstream_cases import Case
from tests.client.raw import Frame
from tests.client.recorder import Recorder

CASES: list[Case] = []

MS = 1_000_000
SECOND = 1000 * MS
PIN = re.compile(rb"Nats-Pin-Id: ([^\r]*)")


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def grouped(r: Recorder, policy: str, **config: Any) -> None:
    settings: dict[str, Any] = {"priority_policy": policy, "priority_groups": ["A"]} | config
    r.consumer(**settings)


def ask(batch: int = 1, **more: object) -> dict[str, object]:
    return {"batch": batch, "expires": 5 * SECOND, "group": "A"} | more


def pinned(frame: Frame) -> str:
    found = PIN.search(frame.header)
    assert found, frame
    return found[1].decode()


def numbers(r: Recorder, inbox: str, count: int) -> list[str]:
    """Takes messages and notes their payloads; returns the pins that they name."""
    frames = [r.next(inbox) for _ in range(count)]
    r.note(*(frame.payload or frame.header for frame in frames))
    return [pinned(frame) for frame in frames if PIN.search(frame.header)]


def advisories(r: Recorder, *kinds: str) -> list[str]:
    return [r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{r.stream}.C") for kind in kinds]


# prioritized


@case
def prioritized_requests_in_order(r: Recorder) -> None:
    r.create()
    grouped(r, "prioritized")
    wanted = [r.pull(ask(priority=priority)) for priority in (5, 0, 9, 5, 1)]
    r.settled("num_waiting", 5)
    r.fill(5)
    for inbox in wanted:
        numbers(r, inbox, 1)


@case
def prioritized_requests_take_turns(r: Recorder) -> None:
    r.create()
    grouped(r, "prioritized")
    low, first, second = (r.pull(ask(3, priority=p)) for p in (7, 2, 2))
    r.settled("num_waiting", 3)
    r.fill(9)
    for inbox in (first, second, low):
        numbers(r, inbox, 3)


@case
def prioritized_requests_that_name_no_priority(r: Recorder) -> None:
    r.create()
    grouped(r, "prioritized")
    bare = r.pull(b"2")
    named = r.pull(ask(2, priority=9))
    default = r.pull(ask(2))
    r.settled("num_waiting", 3)
    r.fill(6)
    for inbox in (bare, named, default):
        numbers(r, inbox, 2)


@case
def prioritized_requests_that_end(r: Recorder) -> None:
    r.create()
    grouped(r, "prioritized")
    short = r.pull(ask(2, priority=1, expires=150 * MS))
    lasting = r.pull(ask(2, priority=4))
    r.hear(short)
    r.fill(1, size=100)
    numbers(r, lasting, 1)
    small = r.pull(ask(2, priority=0, max_bytes=20))
    r.settled("num_waiting", 2)
    r.fill(1, size=100)
    r.hear(small)
    numbers(r, lasting, 1)
    r.info()


# overflow


@case
def overflow_by_what_is_pending(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    inbox = r.pull(ask(5, min_pending=3))
    r.settled("num_waiting", 1)
    r.fill(2)
    r.silence(inbox)
    r.fill(2)
    numbers(r, inbox, 2)
    r.silence(inbox)
    r.info()


@case
def overflow_by_what_is_not_acked(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(6)
    spare = r.pull(ask(2, min_ack_pending=2))
    r.silence(spare)
    main = r.pull(ask(2))
    numbers(r, main, 2)
    numbers(r, spare, 2)
    r.info()


@case
def overflow_by_either(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(3)
    inbox = r.pull(ask(4, min_pending=2, min_ack_pending=10))
    numbers(r, inbox, 2)
    r.silence(inbox)
    r.info()


@case
def overflow_of_nothing_and_less(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(3)
    for more in ({"min_pending": 0}, {"min_pending": -5}, {"min_ack_pending": -1}):
        numbers(r, r.pull(ask(**more)), 1)


@case
def overflow_serves_others_first(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    spare = r.pull(ask(3, min_pending=4))
    main = r.pull(ask(3))
    bare = r.pull(b"1")
    r.settled("num_waiting", 3)
    r.fill(4)
    numbers(r, main, 3)
    numbers(r, bare, 1)
    r.silence(spare)
    r.fill(5)
    numbers(r, spare, 2)
    r.info()


@case
def overflow_without_waiting(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(2)
    r.fetch({"batch": 2, "no_wait": True, "group": "A", "min_pending": 9}, 1)
    r.fetch({"batch": 2, "no_wait": True, "group": "A", "min_pending": 2}, 2)
    r.info()


@case
def overflow_that_expires_with_heartbeats(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(1)
    r.fetch(ask(2, min_pending=5, expires=500 * MS, idle_heartbeat=200 * MS), 3)


@case
def overflow_of_redeliveries(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow", ack_wait=200 * MS)
    r.fill(1)
    numbers(r, r.pull(ask()), 1)
    numbers(r, r.pull(ask(min_pending=1)), 1)
    numbers(r, r.pull(ask(min_ack_pending=1)), 1)
    r.silence(r.pull(ask(min_pending=2)))


# pinned


@case
def pinned_client_keeps_the_pin(r: Recorder) -> None:
    r.create()
    heard, unheard = advisories(r, "PINNED", "UNPINNED")
    grouped(r, "pinned_client")
    r.fill(2)
    first = r.pull(ask(2))
    pins = numbers(r, first, 2)
    r.note(pins[0] == pins[1], len(pins[0]))
    told = r.next(heard)
    r.note(pins[0].encode() in told.payload, told.payload.count(b'"group":"A"'))
    r.silence(unheard, 0.1)
    standby = r.pull(ask(2))
    r.settled("num_waiting", 1)
    r.fill(2)
    r.silence(standby)
    again = r.pull(ask(1, id=pins[0]))
    r.note(numbers(r, again, 1) == pins[:1])
    r.fetch(ask(1, id="x" * 22), 1)
    r.fetch(ask(1, id="short"), 1)
    info = r.client_request(f"$JS.API.CONSUMER.INFO.{r.stream}.C", b"")
    r.note(pins[0].encode() in info.payload)


@case
def pinned_client_times_out(r: Recorder) -> None:
    r.create()
    heard, unheard = advisories(r, "PINNED", "UNPINNED")
    grouped(r, "pinned_client", priority_timeout=400 * MS)
    first = r.pull(ask(1))
    standby = r.pull(ask(5))
    other = r.pull(ask(5))
    r.settled("num_waiting", 3)
    r.fill(1)
    old = numbers(r, first, 1)
    r.hear(unheard)
    r.fill(1)
    new = numbers(r, standby, 1)
    r.note(old != new)
    for _ in range(2):
        r.next(heard)
    r.fill(2)
    r.note(numbers(r, standby, 2) == new * 2)
    r.silence(other, 0.1)
    r.fetch(ask(1, id=old[0]), 1)


@case
def pinned_client_stays_by_asking(r: Recorder) -> None:
    r.create()
    grouped(r, "pinned_client", priority_timeout=500 * MS)
    (unheard,) = advisories(r, "UNPINNED")
    r.fill(1)
    pin = numbers(r, r.pull(ask(1)), 1)[0]
    for _ in range(4):
        r.hear(r.pull(ask(1, id=pin, expires=300 * MS)))
    r.silence(unheard, 0.05)
    r.fill(1)
    r.note(numbers(r, r.pull(ask(1, id=pin)), 1) == [pin])


@case
def unpinned_by_an_admin(r: Recorder) -> None:
    r.create()
    unheard = advisories(r, "UNPINNED")[0]
    grouped(r, "pinned_client", priority_groups=["A", "B"])
    r.fill(3)
    pin = numbers(r, r.pull(ask(1)), 1)
    held = r.pull(ask(3, id=pin[0]))
    numbers(r, held, 2)
    standby = r.pull(ask(1))
    r.settled("num_waiting", 2)
    r.api(f"CONSUMER.UNPIN.{r.stream}.C", {"group": "A"})
    r.hear(unheard)
    r.fill(1)
    r.note(numbers(r, standby, 1) != pin)
    r.hear(held)
    r.api(f"CONSUMER.UNPIN.{r.stream}.C", {"group": "B"})
    r.hear(unheard)
    r.info()
    r.api(f"CONSUMER.UNPIN.{r.stream}.C", {"group": "C"})
    r.api(f"CONSUMER.UNPIN.{r.stream}.C", {"group": "A"})
    r.hear(unheard)


@case
def an_id_while_nobody_is_pinned(r: Recorder) -> None:
    r.create()
    grouped(r, "pinned_client")
    late = r.pull(ask(2, id="x" * 22, max_bytes=1000))
    r.settled("num_waiting", 1)
    r.fill(1)
    r.hear(late)
    numbers(r, r.pull(ask(1)), 1)


@case
def a_pinned_request_with_too_little_room(r: Recorder) -> None:
    r.create()
    heard = advisories(r, "PINNED")[0]
    grouped(r, "pinned_client")
    r.fill(2, size=200)
    small = r.pull(ask(1, max_bytes=50))
    r.hear(small)
    r.next(heard)
    r.info()
    numbers(r, r.pull(ask(1)), 1)
    r.next(heard)


@case
def pinned_headers(r: Recorder) -> None:
    r.create()
    grouped(r, "pinned_client", headers_only=True)
    r.store("a", b"12345", "A: b")
    r.fill(1)
    for frame in [r.next(inbox) for inbox in [r.pull(ask(2))] for _ in range(2)]:
        r.note(PIN.sub(b"Nats-Pin-Id: PIN", frame.header), frame.payload)


@case
def bare_requests_of_a_pinned_consumer(r: Recorder) -> None:
    r.create()
    grouped(r, "pinned_client")
    r.fill(3)
    r.fetch(b"1", 1)
    numbers(r, r.pull(ask(1)), 1)
    r.silence(r.pull(b"1"))


@case
def next_message_by_ack_in_a_group(r: Recorder) -> None:
    r.create()
    grouped(r, "prioritized")
    r.fill(3)
    frame = r.next(r.pull(ask(1)))
    inbox = r.inbox()
    r.publish(frame.reply, b'+NXT {"batch":1,"group":"A","priority":3}', reply=inbox)
    numbers(r, inbox, 1)
    frame = r.next(r.pull(ask(1)))
    inbox = r.inbox()
    r.publish(frame.reply, b'+NXT {"batch":1}', reply=inbox)
    r.hear(inbox)


@case
def requests_refused_by_groups(r: Recorder) -> None:
    r.create()
    for policy in ("overflow", "pinned_client", "prioritized"):
        grouped(r, policy, priority_groups=["A", "b/c"])
        for more in (
            {"group": ""},
            {"group": None},
            {"group": "B"},
            {"group": "a"},
            {"group": "A" * 16},
            {"group": "A" * 40},
            {"id": "x", "no_wait": True},
            {"min_pending": 1, "no_wait": True},
            {"min_ack_pending": -1, "no_wait": True},
            {"priority": 10},
            {"priority": -1},
            {"priority": 9, "no_wait": True},
            {"group": "b/c", "no_wait": True},
        ):
            r.fetch({"batch": 1, "group": "A", "expires": 100 * MS} | more, 1)
        escaped = b'{"batch":1,"no_wait":true,"group":"b\\/c"}'
        r.fetch(escaped, 1)
        r.fetch({"batch": 1}, 1)
    r.info()


@case
def policies_that_change(r: Recorder) -> None:
    r.create()
    grouped(r, "overflow")
    r.fill(1)
    spare = r.pull(ask(2, min_pending=5))
    r.silence(spare)
    grouped(r, "prioritized")
    r.fill(1)
    numbers(r, spare, 2)
    r.consumer()
    r.fill(1)
    numbers(r, r.pull({"batch": 1}), 1)
    r.info()
