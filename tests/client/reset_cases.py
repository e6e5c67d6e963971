"""Sequences of operations on consumers that are reset or acked by flow control, whose every answer
must be the same on two servers."""

import json
from typing import Any

from tests.client.jetstream_cases import Case
from tests.client.raw import Frame, header_block
from tests.client.recorder import Recorder, shown

CASES: list[Case] = []

MS = 1_000_000
SECOND = 1000 * MS


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def reset(r: Recorder, body: object = None, name: str = "C") -> None:
    r.api(f"CONSUMER.RESET.{r.stream}.{name}", body)


def reset_in_part(r: Recorder) -> None:
    """Of a consumer that may have delivered again before the answer; and where nats-server's store
    may tell once in a while what was delivered before."""
    answer = json.loads(r.client_request(f"$JS.API.CONSUMER.RESET.{r.stream}.C", b"").payload)
    r.note(answer["type"], answer["reset_seq"], answer["ack_floor"])


# reset


@case
def reset_of_pull_consumers(r: Recorder) -> None:
    r.create()
    r.fill(6)
    for policy in ("explicit", "all", "none"):
        r.consumer(policy, ack_policy=policy)
        got = r.fetch({"batch": 4}, 4, policy)
        if policy != "none":
            r.ask(got[1].reply)
        reset(r, name=policy)
        r.fetch({"batch": 2}, 2, policy)
        reset(r, {"seq": 5}, policy)
        r.info(policy)
        r.fetch({"batch": 5, "no_wait": True}, 3, policy)
        reset(r, {"seq": 1}, policy)
        r.fetch({"batch": 1}, 1, policy)
        r.info(policy)
        reset(r, {"seq": 100}, policy)
        r.info(policy)


@case
def reset_while_somebody_waits(r: Recorder) -> None:
    """What is said of it is from before it delivers again."""
    r.create()
    r.fill(4)
    r.consumer()
    inbox = r.pull({"batch": 9, "expires": 8 * SECOND})
    r.hear(inbox, 4)
    reset(r, {"seq": 3})
    r.hear(inbox, 2)


@case
def reset_of_acks_out_of_order(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer()
    got = r.fetch({"batch": 5}, 5)
    for n in (3, 1, 0):
        r.ask(got[n].reply)
    r.info()
    reset(r)
    r.info()
    r.fetch({"batch": 5, "no_wait": True}, 4)


@case
def acks_of_before_a_reset(r: Recorder) -> None:
    r.create()
    r.fill(4)
    r.consumer()
    got = r.fetch({"batch": 3}, 3)
    reset(r)
    r.ask(got[0].reply, b"-NAK")
    r.info()
    new = r.fetch({"batch": 2}, 2)
    r.ask(got[1].reply)
    r.info()
    r.ask(new[0].reply)
    r.info()


@case
def reset_with_redeliveries(r: Recorder) -> None:
    r.create()
    r.fill(2)
    r.consumer(ack_wait=500 * MS)
    r.fetch({"batch": 2}, 2)
    r.fetch({"batch": 2}, 2)
    reset_in_part(r)
    r.info()
    r.fetch({"batch": 2}, 2)


@case
def reset_of_a_push_consumer(r: Recorder) -> None:
    r.create()
    inbox = r.inbox()
    r.consumer(deliver_subject=inbox)
    r.fill(3)
    got = r.hear(inbox, 3)
    r.ask(got[0].reply)
    reset_in_part(r)
    got = r.hear(inbox, 2)
    r.ask(got[1].reply)
    r.info()


@case
def reset_of_last_messages(r: Recorder) -> None:
    r.create()
    for _ in range(2):
        for subject in "abc":
            r.fill(1, subject)
    r.consumer(deliver_policy="last_per_subject", filter_subject=f"{r.stream}.>")
    r.fetch({"batch": 3}, 3)
    reset(r)
    r.info()
    r.fetch({"batch": 4, "no_wait": True}, 4)
    reset(r, {"seq": 2})


@case
def reset_of_filters(r: Recorder) -> None:
    r.create()
    for subject in "abcabc":
        r.fill(1, subject)
    r.consumer(filter_subjects=[f"{r.stream}.a", f"{r.stream}.c"])
    got = r.fetch({"batch": 4}, 4)
    r.ask(got[0].reply)
    reset(r)
    r.info()
    r.fetch({"batch": 3}, 3)
    reset(r, {"seq": 4})
    r.info()


@case
def reset_in_an_interest_stream(r: Recorder) -> None:
    r.create(retention="interest")
    r.consumer("one")
    r.consumer("two")
    r.fill(6)
    got = r.fetch({"batch": 6}, 6, "one")
    r.ask(got[0].reply)
    r.ask(got[2].reply)
    got = r.fetch({"batch": 6}, 6, "two")
    for frame in got[:4]:
        r.ask(frame.reply)
    r.stored(4)
    reset(r, name="one")
    r.info("one")
    reset(r, {"seq": 6}, "one")
    reset(r, {"seq": 5}, "two")
    r.stored(2)
    r.info("one")
    r.info("two")


@case
def reset_in_a_workqueue(r: Recorder) -> None:
    r.create(retention="workqueue")
    r.consumer()
    r.fill(5)
    got = r.fetch({"batch": 3}, 3)
    r.ask(got[1].reply)
    reset(r)
    r.info()
    got = r.fetch({"batch": 9, "no_wait": True}, 5)
    r.ask(got[0].reply)
    reset(r, {"seq": 4})
    r.info()
    r.api(f"STREAM.INFO.{r.stream}")


# acks by flow control


def flowing(r: Recorder, inbox: str, **config: Any) -> None:
    r.consumer(ack_policy="flow_control", deliver_subject=inbox, **config)


def asked(r: Recorder, inbox: str) -> Frame:
    """The next request of flow control; heartbeats come when they come."""
    frame = r.next(inbox)
    for _ in range(10):
        if frame.reply:
            break
        frame = r.next(inbox)
    r.note(*shown(frame))
    return frame


def confirm(r: Recorder, subject: str, *lines: str) -> None:
    r.publish(subject, header=header_block(*lines))


@case
def acked_by_flow_control(r: Recorder) -> None:
    r.create()
    inbox = r.inbox()
    flowing(r, inbox, max_ack_pending=3)
    r.fill(7)
    r.hear(inbox, 3)
    request = asked(r, inbox)
    r.info()
    confirm(r, request.reply, "Nats-Last-Consumer: 2", "Nats-Last-Stream: 2")
    r.hear(inbox, 2)
    request = asked(r, inbox)
    r.info()
    confirm(r, request.reply, "Nats-Last-Consumer: 5", "Nats-Last-Stream: 5")
    r.hear(inbox, 2)
    request = asked(r, inbox)
    confirm(r, request.reply, "Nats-Last-Consumer: 7", "Nats-Last-Stream: 7")
    r.settled("num_ack_pending", 0)
    r.info()


@case
def confirmations_that_ack_nothing(r: Recorder) -> None:
    r.create()
    inbox = r.inbox()
    flowing(r, inbox, max_ack_pending=2)
    r.fill(3)
    r.hear(inbox, 2)
    for lines in (
        (),
        ("Nats-Last-Consumer: 2",),
        ("Nats-Last-Stream: 2",),
        ("Nats-Last-Stream: x", "Nats-Last-Consumer: 2"),
        ("Nats-Last-Stream: 0", "Nats-Last-Consumer: 2"),
        ("Nats-Last-Stream: 2", "Nats-Last-Consumer: x"),
        ("Nats-Last-Stream: 2", "Nats-Last-Consumer: 0"),
    ):
        request = asked(r, inbox)
        confirm(r, request.reply, *lines)
    request = asked(r, inbox)
    r.info()
    confirm(r, request.reply, "nats-last-stream: 2", "Nats-Last-Consumer: 2")
    request = asked(r, inbox)
    confirm(r, request.reply, "Nats-Last-Stream: 2", "Nats-Last-Consumer: 2")
    r.hear(inbox)
    r.info()


@case
def acks_that_flow_control_takes_no_notice_of(r: Recorder) -> None:
    r.create()
    inbox = r.inbox()
    flowing(r, inbox, max_ack_pending=5)
    r.fill(2)
    got = r.hear(inbox, 2)
    r.ask(got[0].reply)
    r.ask(got[1].reply, b"-NAK")
    r.info()


@case
def flow_control_of_a_workqueue(r: Recorder) -> None:
    r.create(retention="workqueue")
    inbox = r.inbox()
    flowing(r, inbox, max_ack_pending=4)
    r.fill(4)
    r.hear(inbox, 4)
    request = asked(r, inbox)
    confirm(r, request.reply, "Nats-Last-Stream: 3", "Nats-Last-Consumer: 3")
    r.stored(1)
    r.info()
    reset_in_part(r)
    r.hear(inbox)
    r.settled("num_ack_pending", 1)
    r.info()
