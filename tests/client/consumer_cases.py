"""Sequences of consumer operations whose every answer must be the same on two servers."""

from typing import Any

from tests.client.jetstream_cases import LEVEL_5, LEVEL_X, Case
from tests.client.raw import Frame, header_block
from tests.client.recorder import Recorder

CASES: list[Case] = []

MS = 1_000_000
SECOND = 1000 * MS


def case(function: Case) -> Case:
    CASES.append(function)
    return function


# pauses


@case
def pause_told_again(r: Recorder) -> None:
    r.create()
    told = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.{r.stream}.C")
    r.consumer(pause_until="2200-01-01T00:00:00Z")
    r.hear(told)
    r.consumer()
    r.hear(told)
    r.consumer(description="d")
    r.hear(told)
    r.api(f"CONSUMER.PAUSE.{r.stream}.C", {})
    r.hear(told)
    r.consumer(description="e")
    r.silence(told)


# pull requests


@case
def pull_messages(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer()
    r.fetch({"batch": 2}, 2)
    r.fetch(b"", 1)
    r.fetch(b"1", 1)
    r.fetch(b"junk", 1)
    r.info()


@case
def pull_headers(r: Recorder) -> None:
    r.create()
    r.store("a", b"1", "A: b", "A: c")
    r.store("a", b"", "Only: header")
    r.ask(f"{r.stream}.a", b"x", header=b"no proper header")
    r.consumer()
    r.fetch({"batch": 3}, 3)


@case
def pull_no_wait(r: Recorder) -> None:
    r.create()
    r.consumer()
    r.fetch({"batch": 5, "no_wait": True}, 1)
    r.fill(2)
    r.settled("num_pending", 2)
    r.fetch({"batch": 5, "no_wait": True}, 3)
    r.fill(2)
    r.settled("num_pending", 2)
    inbox = r.pull({"batch": 2, "no_wait": True})
    r.hear(inbox, 2)
    r.silence(inbox)
    r.info()


@case
def pull_no_wait_with_expiry(r: Recorder) -> None:
    r.create()
    r.consumer()
    inbox = r.pull({"batch": 5, "no_wait": True, "expires": 3 * SECOND})
    r.silence(inbox)
    r.fill(1)
    r.hear(inbox, 2)


@case
def pull_expires(r: Recorder) -> None:
    r.create()
    r.fill(2)
    r.consumer()
    r.fetch({"batch": 5, "expires": 300 * MS}, 3)
    r.fetch({"batch": 5, "expires": 200 * MS, "max_bytes": 1000}, 1)
    r.fetch({"expires": 100 * MS}, 1)
    r.fetch({"batch": -5, "expires": 100 * MS}, 1)
    r.info()


@case
def pull_no_wait_stalled(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer(max_ack_pending=2)
    heartbeat = {"expires": 3 * SECOND, "idle_heartbeat": 300 * MS}
    r.fetch({"batch": 5, "no_wait": True, **heartbeat}, 3)
    r.info()


@case
def pull_no_wait_stalled_beside_others(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer(max_ack_pending=2)
    first = r.pull({"batch": 5, "no_wait": True, "expires": 3 * SECOND})
    r.hear(first, 2)
    second = r.pull({"batch": 1, "expires": 200 * MS})
    r.hear(first)
    r.hear(second)
    third = r.pull({"batch": 2, "no_wait": True})
    r.silence(third)
    r.pull({"batch": 2, "expires": 300 * MS, "idle_heartbeat": 100 * MS})
    r.hear(third)


@case
def pull_no_wait_beside_one_that_wants_more(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer(max_ack_pending=2)
    first = r.pull({"batch": 10, "expires": 60 * SECOND})
    held = r.hear(first, 2)
    for expires in (0, SECOND):
        r.fetch({"batch": 1, "no_wait": True, "expires": expires}, 1)
    r.forget(first)
    second = r.pull({"batch": 1, "no_wait": True})
    r.settled("num_waiting", 1)
    r.publish(held[0].reply, b"+ACK")
    r.hear(second, 1)


@case
def pull_numbers(r: Recorder) -> None:
    """The ends of each type; those of the next larger one are refused as JSON of a wrong type."""
    r.create()
    r.fill(1)
    r.consumer(ack_policy="none", deliver_policy="by_start_sequence", opt_start_seq=2)
    for number in (-(2**63), -(2**63) + 1, -(2**31), -1, 0, 1, 2**31, 2**62 - 1, 2**63 - 1):
        for field in ("batch", "max_bytes", "idle_heartbeat", "expires"):
            too_long = {"expires": number > 0, "idle_heartbeat": number >= 2**62}
            if not too_long.get(field):
                r.fetch({"no_wait": True, field: number}, 1)
    for number in (-(2**63) - 1, 2**63, 2**64):
        for field in ("batch", "max_bytes", "idle_heartbeat", "expires"):
            r.fetch({field: number}, 1)


@case
def pull_max_bytes(r: Recorder) -> None:
    r.create()
    r.fill(6, size=100)
    r.consumer()
    r.fetch({"batch": 10, "max_bytes": 50}, 1)
    r.fetch({"batch": 10, "max_bytes": 450}, 3)
    r.fetch({"batch": 1, "max_bytes": 1000}, 2)
    r.fetch({"max_bytes": 1000}, 2)
    r.fill(1, size=100)
    r.fetch({"batch": -2, "max_bytes": 1000, "expires": SECOND}, 2)
    r.info()


@case
def pull_refused(r: Recorder) -> None:
    r.create()
    r.fill(1)
    r.consumer(max_batch=2, max_expires=SECOND, max_bytes=50)
    for body in (
        {"batch": 3},
        {"batch": 1, "expires": 2 * SECOND},
        {"batch": 1, "max_bytes": 51},
        {"batch": 1, "expires": SECOND, "idle_heartbeat": 600 * MS},
        {"batch": 1, "idle_heartbeat": 100 * MS},
        {"batch": 1, "min_pending": 1},
        {"batch": 1, "min_ack_pending": 1},
        {"batch": 1, "id": "x"},
        {"batch": 1, "priority": 10},
        {"batch": 1, "priority": -1},
    ):
        r.fetch(body, 1)
    r.info()


@case
def pull_bad_json(r: Recorder) -> None:
    r.create()
    r.consumer()
    for body in (b"{", b'{"batch":"x"}', b'{"batch":1.5}', b'{"expires":true}'):
        frame = r.next(r.pull(body))
        r.note(frame.status.partition(" - ")[0])


@case
def pull_batch_of_zero_and_less(r: Recorder) -> None:
    r.create()
    r.fill(3)
    r.consumer()
    for body in ({"batch": 0, "no_wait": True}, {"batch": -5, "no_wait": True}, b"0"):
        inbox = r.pull(body)
        r.hear(inbox, 1)
        r.silence(inbox)


@case
def pull_unknown_fields(r: Recorder) -> None:
    r.create()
    r.fill(2)
    r.consumer()
    r.fetch({"batch": 1, "zzz": 1}, 1)
    r.fetch({"batch": 1, "group": "ignored"}, 1)


@case
def pull_of_a_push_consumer(r: Recorder) -> None:
    r.create()
    r.consumer(deliver_subject="push.here")
    r.fetch({"batch": 1}, 1)
    r.fetch(b"1", 1)
    r.ask(f"$JS.API.CONSUMER.MSG.NEXT.{r.stream}.C", b"1", header=LEVEL_5)


@case
def pull_api_level(r: Recorder) -> None:
    r.create()
    r.fill(1)
    r.consumer()
    for header in (LEVEL_5, LEVEL_X):
        r.ask(f"$JS.API.CONSUMER.MSG.NEXT.{r.stream}.C", b"1", header=header)
    r.api(f"CONSUMER.INFO.{r.stream}.C", header=LEVEL_5)
    level = header_block("Nats-Required-Api-Level: 4")
    r.ask(f"$JS.API.CONSUMER.MSG.NEXT.{r.stream}.C", b"1", header=level)


@case
def pull_queue_full(r: Recorder) -> None:
    r.create()
    r.consumer(max_waiting=2)
    waiting = [r.pull({"batch": 1, "expires": 5 * SECOND}) for _ in range(2)]
    r.settled("num_waiting", 2)
    r.fetch({"batch": 1, "expires": SECOND}, 1)
    silent = r.pull({"batch": 1, "expires": SECOND, "idle_heartbeat": 400 * MS})
    r.silence(silent)
    r.info()
    for inbox in waiting:
        r.fill(1)
        r.hear(inbox, 1)


@case
def pull_waiting_ones_take_turns(r: Recorder) -> None:
    r.create()
    r.consumer()
    three, one, two = (r.pull({"batch": n, "expires": 8 * SECOND}) for n in (3, 1, 2))
    r.settled("num_waiting", 3)
    for n, inbox in enumerate((three, one, two, three, two, three)):
        r.store("a", b"%d" % n)
        r.hear(inbox, 1)
    r.info()


@case
def pull_that_nobody_hears_is_dropped(r: Recorder) -> None:
    r.create()
    r.consumer()
    gone, stays = (r.pull({"batch": 1, "expires": 8 * SECOND}) for _ in range(2))
    r.settled("num_waiting", 2)
    r.forget(gone)
    r.fill(1)
    r.hear(stays, 1)
    r.info()


@case
def pull_heartbeats(r: Recorder) -> None:
    r.create()
    r.fill(2)
    r.consumer()
    inbox = r.pull({"batch": 5, "expires": 4 * SECOND, "idle_heartbeat": SECOND})
    r.hear(inbox, 4)


@case
def pull_consumer_deleted(r: Recorder) -> None:
    r.create()
    r.consumer()
    inboxes = [r.pull({"batch": n, "expires": 8 * SECOND}) for n in (1, 5)]
    r.settled("num_waiting", 2)
    r.api(f"CONSUMER.DELETE.{r.stream}.C")
    for inbox in inboxes:
        r.hear(inbox, 1)
    r.fetch(b"1", 1)


@case
def pull_stream_deleted(r: Recorder) -> None:
    r.create()
    r.consumer()
    inbox = r.pull({"batch": 1, "expires": 8 * SECOND})
    r.settled("num_waiting", 1)
    r.api(f"STREAM.DELETE.{r.stream}")
    r.hear(inbox, 1)


@case
def pull_while_acks_are_pending(r: Recorder) -> None:
    r.create()
    r.fill(5)
    r.consumer(max_ack_pending=2)
    held = r.fetch({"batch": 2}, 2)
    r.info()
    inbox = r.pull({"batch": 3, "no_wait": True, "expires": 8 * SECOND})
    r.silence(inbox)
    r.publish(held[0].reply, b"+ACK")
    r.hear(inbox, 1)
    r.info()


@case
def pull_headers_only(r: Recorder) -> None:
    r.create()
    r.store("a", b"12345")
    r.store("a", b"", "A: b")
    r.store("a", b"1", "Nats-Msg-Size: 99")
    r.consumer(headers_only=True)
    r.fetch({"batch": 3}, 3)


@case
def pull_ack_none(r: Recorder) -> None:
    r.create()
    r.fill(3)
    r.consumer(ack_policy="none")
    first = r.fetch({"batch": 2}, 2)[0]
    r.info()
    r.ask(first.reply, b"+ACK")


# acknowledgements


def replies(r: Recorder, count: int, **config: Any) -> list[str]:
    """The ack subjects of `count` delivered messages."""
    r.create()
    r.fill(count)
    r.consumer(**config)
    return [f.reply for f in r.fetch({"batch": count}, count)]


def answer(r: Recorder, subject: str, body: bytes) -> Frame:
    return r.ask(subject, body)


@case
def ack_forms(r: Recorder) -> None:
    subjects = replies(r, 6)
    for subject, body in zip(subjects, (b"", b"+ACK", b"+OK", b"+ACK x"), strict=False):
        r.ask(subject, body)
        r.info()
    r.ask(subjects[4], b"+WPI")
    r.ask(subjects[5], b"junk")
    r.info()


@case
def ack_out_of_order(r: Recorder) -> None:
    subjects = replies(r, 6)
    for number in (4, 2, 1, 3, 6, 5):
        r.ask(subjects[number - 1], b"+ACK")
        r.info()


@case
def ack_twice(r: Recorder) -> None:
    subjects = replies(r, 2)
    for body in (b"+ACK", b"+ACK", b"", b"-NAK", b"+WPI", b"+TERM"):
        r.ask(subjects[0], body)
    r.info()


@case
def ack_all(r: Recorder) -> None:
    subjects = replies(r, 6, ack_policy="all")
    for number in (3, 2, 6):
        r.ask(subjects[number - 1], b"+ACK")
        r.info()


@case
def ack_of_what_was_not_delivered(r: Recorder) -> None:
    replies(r, 2)
    base = f"$JS.ACK.{r.stream}.C"
    inbox = r.inbox()
    r.publish(f"{base}.1.9.9.1.0", b"+ACK", reply=inbox)
    r.publish(f"{base}.1.x.y.1.0", b"+ACK", reply=inbox)
    r.silence(inbox)
    for place in ("9.9", "0.0", "x.y"):
        for body in (b"-NAK", b"-NAK 1s", b"+WPI", b"+TERM", b"junk", b"+ACK"):
            inbox = r.inbox()
            r.publish(f"{base}.1.{place}.1.0", body, reply=inbox)
            r.silence(inbox, 0.1)
    r.ask(f"{base}.1.1.1.1", b"+ACK")
    r.ask(f"{base}.1.1.1.1.0.9", b"+ACK")
    r.info()


@case
def ack_with_headers(r: Recorder) -> None:
    subjects = replies(r, 2)
    r.ask(subjects[0], b"+ACK", header=header_block("A: b"))
    r.ask(subjects[1], b"", header=header_block("A: b"))
    r.info()


@case
def nak(r: Recorder) -> None:
    subjects = replies(r, 3)
    advisories = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.*.{r.stream}.>")
    r.ask(subjects[1], b"-NAK")
    r.ask(subjects[1], b"-NAK")
    r.info()
    r.ask(subjects[0], b"-NAK ")
    r.fetch({"batch": 5, "no_wait": True}, 3)
    r.hear(advisories, 3)
    r.info()


@case
def nak_with_delay(r: Recorder) -> None:
    subjects = replies(r, 4)
    for subject, body in zip(
        subjects,
        (b'-NAK {"delay":1200000000}', b"-NAK 700ms", b"-NAK zz", b'-NAK {"delay":0}'),
        strict=True,
    ):
        r.ask(subject, body)
    r.fetch({"batch": 2}, 2)
    r.fetch({"batch": 1, "expires": 5 * SECOND}, 1)
    r.fetch({"batch": 1, "expires": 5 * SECOND}, 1)
    r.info()


@case
def nak_with_no_delay_to_speak_of(r: Recorder) -> None:
    """An ack that comes at once is in time; without it the message comes after others."""
    subjects = replies(r, 6)
    for subject, delay in zip(subjects, ("-1s", '{"delay":-1}', '{"delay":0}', "{}"), strict=False):
        r.publish(subject, f"-NAK {delay}".encode())
        r.publish(subject, b"+ACK")
    r.publish(subjects[4], b"-NAK 0")
    r.publish(subjects[5], b"-NAK")
    r.fetch({"batch": 2}, 2)
    r.info()


@case
def progress_of_what_is_to_come_again(r: Recorder) -> None:
    subjects = replies(r, 2)
    for subject in subjects:
        r.ask(subject, b"-NAK")
        r.ask(subject, b"+WPI")
    r.fetch({"batch": 2, "no_wait": True}, 2)
    r.info()


@case
def nak_with_delay_over_an_update(r: Recorder) -> None:
    subjects = replies(r, 2, ack_wait=500 * MS)
    r.ask(subjects[0], b"-NAK 1h")
    r.consumer(ack_wait=500 * MS, description="another")
    (again,) = r.fetch({"batch": 1, "expires": 5 * SECOND}, 1)
    r.ask(again.reply, b"+ACK")
    r.fetch({"batch": 1, "expires": SECOND}, 1)
    r.info()


@case
def term(r: Recorder) -> None:
    subjects = replies(r, 3)
    advisories = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.*.{r.stream}.>")
    r.ask(subjects[0], b"+TERM")
    r.ask(subjects[1], b"+TERM because of this ")
    r.hear(advisories, 2)
    r.info()


@case
def next_forms(r: Recorder) -> None:
    subjects = replies(r, 4)
    r.fill(6, "b")
    for subject, body, count in (
        (subjects[0], b"+NXT", 1),
        (subjects[1], b"+NXT 2", 2),
        (subjects[2], b'+NXT {"batch":2,"no_wait":true}', 2),
        (subjects[3], b"+NXT junk", 1),
    ):
        inbox = r.inbox()
        r.publish(subject, body, reply=inbox)
        r.hear(inbox, count)
    inbox = r.inbox()
    r.publish(subjects[3], b'+NXT {"batch":2,"no_wait":true}', reply=inbox)
    r.hear(inbox, 1)
    r.info()


@case
def redelivery(r: Recorder) -> None:
    subjects = replies(r, 3, ack_wait=700 * MS)
    r.ask(subjects[1], b"+ACK")
    r.fetch({"batch": 1, "expires": 5 * SECOND}, 1)
    r.fetch({"batch": 1, "expires": 5 * SECOND}, 1)
    r.info()


@case
def redelivery_comes_first(r: Recorder) -> None:
    subjects = replies(r, 2)
    r.fill(2, "b")
    r.ask(subjects[1], b"-NAK")
    r.ask(subjects[0], b"-NAK")
    r.fetch({"batch": 4}, 4)


@case
def max_deliver(r: Recorder) -> None:
    advisories = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{r.stream}.>")
    r.create()
    r.fill(2)
    r.consumer(max_deliver=2, ack_wait=200 * MS)
    r.fetch({"batch": 4, "expires": 4 * SECOND}, 4)
    waiting = r.pull({"batch": 4, "expires": 6 * SECOND})
    r.hear(advisories, 2)
    r.info()
    r.silence(waiting)


@case
def removed_messages_leave_pending(r: Recorder) -> None:
    advisories = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{r.stream}.>")
    replies(r, 4)
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 2})
    r.hear(advisories, 1)
    r.api(f"STREAM.PURGE.{r.stream}", {"seq": 4})
    r.settled("num_ack_pending", 1)
    r.info()


@case
def work_queue(r: Recorder) -> None:
    r.create(retention="workqueue")
    r.fill(3)
    r.consumer("C")
    r.consumer("D")
    r.consumer("E", filter_subject=f"{r.stream}.a")
    subjects = [f.reply for f in r.fetch({"batch": 3}, 3)]
    r.ask(subjects[1], b"+ACK")
    r.ask(subjects[0], b"+TERM")
    r.api(f"STREAM.INFO.{r.stream}", {"deleted_details": True})
    r.info()


@case
def interest(r: Recorder) -> None:
    r.create(retention="interest")
    r.consumer("C")
    r.consumer("D", filter_subject=f"{r.stream}.b")
    r.fill(2, "a")
    r.fill(2, "b")
    subjects = [f.reply for f in r.fetch({"batch": 4}, 4)]
    for number in (0, 1, 2):
        r.ask(subjects[number], b"+ACK")
    r.api(f"STREAM.INFO.{r.stream}")
    r.fetch({"batch": 2}, 2, "D")
    r.api(f"CONSUMER.DELETE.{r.stream}.D")
    r.info()
