"""Where consumers start, what they choose, tell and push: the same on two servers."""

import json
from collections.abc import Callable
from typing import Any

from tests.client.consumer_cases import MS, SECOND
from tests.client.jetstream_cases import Case
from tests.client.recorder import Recorder

CASES: list[Case] = []
Config = dict[str, object]


def case(function: Case) -> Case:
    CASES.append(function)
    return function


# messages that go away while their acks are waited for


def _gone_while_pending(r: Recorder, go: Callable[[], object], **config: object) -> None:
    r.create(max_msgs=3, **config)
    told = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{r.stream}.>")
    r.consumer()
    r.fill(2, "a")
    r.fetch(2, 2)
    go()
    r.hear(told)
    r.settled("num_ack_pending", 1)
    r.info()


@case
def pending_gone_by_limit(r: Recorder) -> None:
    _gone_while_pending(r, lambda: r.fill(2, "b"))


@case
def pending_gone_by_delete(r: Recorder) -> None:
    _gone_while_pending(r, lambda: r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 1}))


@case
def pending_gone_by_purge_of_a_subject(r: Recorder) -> None:
    request = {"filter": f"{r.stream}.a", "seq": 2}
    _gone_while_pending(r, lambda: r.api(f"STREAM.PURGE.{r.stream}", request))


@case
def pending_gone_by_purge(r: Recorder) -> None:
    r.create()
    told = r.inbox(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{r.stream}.>")
    r.consumer()
    r.fill(2, "a")
    r.fetch(2, 2)
    r.api(f"STREAM.PURGE.{r.stream}")
    r.silence(told)
    r.info()


@case
def requests_while_paused(r: Recorder) -> None:
    r.create()
    r.fill(1)
    r.consumer()
    r.api(f"CONSUMER.PAUSE.{r.stream}.C", {"pause_until": "2200-01-01T00:00:00Z"})
    r.fetch({"batch": 1, "no_wait": True}, 1)
    r.pull({"batch": 1, "expires": 3600 * SECOND})
    r.fetch({"batch": 1, "no_wait": True}, 1)


@case
def requests_while_paused_and_many_wait(r: Recorder) -> None:
    r.create()
    r.fill(3)
    r.consumer(max_waiting=1)
    r.api(f"CONSUMER.PAUSE.{r.stream}.C", {"pause_until": "2200-01-01T00:00:00Z"})
    r.pull({"batch": 1, "expires": 3600 * SECOND})
    r.settled("num_waiting", 1)
    r.fetch({"batch": 1, "no_wait": True}, 1)


# starting points, filters, information


@case
def start_points(r: Recorder) -> None:
    r.create()
    r.info("none")
    starts: dict[str, dict[str, Any]] = {
        "empty_all": {},
        "empty_new": {"deliver_policy": "new"},
        "empty_last": {"deliver_policy": "last"},
        "empty_seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 7},
    }
    for name, start in starts.items():
        r.consumer(name, **start)
    for n in range(1, 9):
        r.store("ab"[n % 2], b"%d" % n)
    r.api(f"STREAM.PURGE.{r.stream}", {"seq": 3})
    every = {"filter_subject": f"{r.stream}.*"}
    later: dict[str, dict[str, Any]] = {
        "all": {},
        "new": {"deliver_policy": "new"},
        "last": {"deliver_policy": "last"},
        "last_filtered": {"deliver_policy": "last", "filter_subject": f"{r.stream}.b"},
        "last_none": {"deliver_policy": "last", "filter_subject": f"{r.stream}.zz"},
        "seq": {"deliver_policy": "by_start_sequence", "opt_start_seq": 5},
        "seq_below": {"deliver_policy": "by_start_sequence", "opt_start_seq": 1},
        "seq_above": {"deliver_policy": "by_start_sequence", "opt_start_seq": 50},
        "past": {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        "future": {"deliver_policy": "by_start_time", "opt_start_time": "2099-01-01T00:00:00Z"},
        "per_subject": {"deliver_policy": "last_per_subject", **every},
        "per_subject_none": {
            "deliver_policy": "last_per_subject",
            "filter_subject": f"{r.stream}.zz",
        },
    }
    for name, start in later.items():
        r.consumer(name, **start)
        r.fetch({"batch": 10, "no_wait": True}, 1, name)
        r.info(name)
    r.consumer("per_subject2", deliver_policy="last_per_subject", **every)
    r.store("a", b"later")
    r.fetch({"batch": 3}, 3, "per_subject2")


@case
def filters_with_a_wildcard_inside_their_last_token(r: Recorder) -> None:
    """The tree of subjects takes them for beginnings; what is delivered as it comes, literally."""
    r.create(allow_direct=True)
    for key in ("ab", "b", "ac.d", "ab", "a", "ad"):
        r.store(key)
    for number, ending in enumerate(("a*", "a>")):
        pattern = f"{r.stream}.{ending}"
        name = f"list{number}"
        r.consumer(name, deliver_policy="last_per_subject", filter_subject=pattern)
        r.fetch({"batch": 9, "no_wait": True}, 2 + 2 * number, name)
        r.store("ae")
        r.fetch({"batch": 9, "no_wait": True}, 1, name)
        r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": pattern})
        r.direct({"multi_last": [pattern]})
        r.direct({"next_by_subj": pattern})
        r.api(f"STREAM.MSG.GET.{r.stream}", {"last_by_subj": pattern})
        r.api(f"STREAM.PURGE.{r.stream}", {"filter": pattern})


@case
def filters(r: Recorder) -> None:
    r.create()
    for n in range(1, 10):
        r.store("abc"[n % 3], b"%d" % n)
    a, b = f"{r.stream}.a", f"{r.stream}.b"
    r.consumer("one", filter_subject=a)
    r.consumer("two", filter_subjects=[a, b])
    r.consumer("wide", filter_subject="other.>")
    r.consumer("all", filter_subject=f"{r.stream}.*")
    r.fetch({"batch": 3}, 3, "one")
    r.fetch({"batch": 6}, 6, "two")
    r.fetch({"batch": 7}, 7, "all")
    for name in ("one", "two", "wide", "all"):
        r.info(name)
    r.consumer("one", filter_subject=b)
    r.store("b", b"10")
    r.fetch({"batch": 1}, 1, "one")
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": a})
    r.settled("num_ack_pending", 5, "all")
    r.fetch({"batch": 9, "no_wait": True}, 3, "all")
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": f"{r.stream}.*"})
    r.info("all")


@case
def filters_and_purges(r: Recorder) -> None:
    r.create()
    for n in range(1, 10):
        r.store("abc"[n % 3], b"%d" % n)
    a, b, every = (f"{r.stream}.{token}" for token in "ab*")
    config = {"one": a, "two": b, "all": every, "late": every}
    for name, subject in config.items():
        r.consumer(name, filter_subject=subject)
    for name in ("one", "two"):
        r.fetch({"batch": 2}, 2, name)
    for body in ({"seq": 2}, {"filter": a, "keep": 2}, {"filter": a}, {"filter": b}, {}):
        r.api(f"STREAM.PURGE.{r.stream}", body)
        for name in config:
            r.info(name)


@case
def pedantic_consumers(r: Recorder) -> None:
    """Of several values that would be corrected, one after the other is the one that is told."""
    r.create(consumer_limits={"max_ack_pending": 10, "inactive_threshold": 60 * SECOND})
    wrong: dict[str, object] = {
        "backoff": [SECOND],
        "inactive_threshold": -1,
        "max_ack_pending": -5,
        "priority_timeout": -1,
        "idle_heartbeat": -1,
        "max_bytes": -1,
        "max_expires": -1,
        "max_batch": -1,
        "max_waiting": -1,
        "max_deliver": -5,
    }
    right = {
        "inactive_threshold": SECOND,
        "max_ack_pending": 5,
        "backoff": [30 * SECOND],
    }
    while True:
        config = {"durable_name": "C", "ack_policy": "explicit", **wrong}
        body = {"stream_name": r.stream, "config": config, "pedantic": True}
        answer = r.api(f"CONSUMER.DURABLE.CREATE.{r.stream}.C", body)
        if "error" not in answer:
            return
        text = answer["error"]["description"]
        field = next((f for f in [*wrong, *right] if f in text), "backoff")
        if field in right:
            wrong[field] = right.pop(field)
        else:
            del wrong[field]


@case
def consumer_numbers(r: Recorder) -> None:
    """What the extremes of numbers become, and that one message is still delivered once."""
    r.create()
    r.fill(1)
    for number in (-(2**63), -1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64):
        for field in (
            *("ack_wait", "max_deliver", "max_waiting", "max_ack_pending", "max_batch"),
            *("max_expires", "max_bytes", "inactive_threshold", "rate_limit_bps"),
        ):
            config: dict[str, Any] = {field: number}
            answer = r.consumer(**config)
            if "error" not in answer:
                r.fetch({"batch": 1}, 1)
                r.info()
                r.api(f"CONSUMER.DELETE.{r.stream}.C")


@case
def consumer_errors(r: Recorder) -> None:
    r.create()
    a = f"{r.stream}.a"
    r.consumer("C", description="first")
    r.consumer("C", ack_policy="none")
    r.consumer("C", deliver_subject="x.y")
    r.consumer("C", deliver_policy="new")
    r.consumer("C", description="x" * 4097)
    r.consumer("D", ack_policy="bogus")
    r.consumer("D", deliver_policy="by_start_sequence")
    r.consumer("D", opt_start_seq=5)
    r.consumer("D", deliver_policy="last_per_subject")
    r.consumer("D", filter_subject=a, filter_subjects=[a])
    r.consumer("D", filter_subjects=[a, a])
    r.consumer("D", filter_subjects=[a, ""])
    r.consumer("D", filter_subjects=[" ", a, ""])
    r.consumer("D", filter_subjects=[a, ">", " "])
    r.consumer("D", filter_subjects=[a, "a b"])
    r.consumer("D", filter_subject="a..b")
    r.consumer("D", backoff=[1, 2, 3], max_deliver=2)
    r.consumer("D", ack_wait=-1)
    r.consumer("D", idle_heartbeat=SECOND)
    r.consumer("D", flow_control=True)
    r.consumer("D", rate_limit_bps=5)
    r.consumer("D", deliver_subject="a.*")
    r.consumer("D", deliver_subject=a)
    r.consumer("D", deliver_subject="x", idle_heartbeat=MS)
    r.consumer("D", deliver_subject="x", flow_control=True)
    r.consumer("D", deliver_subject="x", max_waiting=5)
    r.consumer("D", sample_freq="abc")
    r.consumer("D", num_replicas=3)
    r.consumer("D", unknown=1)
    r.api(f"CONSUMER.INFO.{r.stream}.D")
    r.api(f"CONSUMER.DELETE.{r.stream}.D")
    r.api("CONSUMER.INFO.MISSING.D")


@case
def consumer_actions(r: Recorder) -> None:
    r.create()

    def named(action: str, **config: object) -> None:
        settings = {"durable_name": "C", "ack_policy": "explicit"} | config
        body = {"stream_name": r.stream, "config": settings, "action": action}
        r.api(f"CONSUMER.CREATE.{r.stream}.C", body)

    named("update")
    named("create")
    named("create")
    named("create", description="other")
    named("update", description="other")
    named("")
    named("bogus")
    r.api(f"CONSUMER.CREATE.{r.stream}.C", {"stream_name": "OTHER", "config": {}})
    r.api(f"CONSUMER.CREATE.{r.stream}.C", b"")
    body = {"stream_name": r.stream, "config": {"filter_subject": "x.y"}}
    r.api(f"CONSUMER.CREATE.{r.stream}.F.x.y", body)
    r.api(f"CONSUMER.CREATE.{r.stream}.F.x.z", body)


@case
def thresholds_of_consumers_that_become_durable(r: Recorder) -> None:
    """And back: an ephemeral one is given a threshold only where the update changes it."""
    r.create()
    durable: Config = {"durable_name": "C"}
    nine: Config = {"inactive_threshold": 9 * SECOND}
    histories: tuple[tuple[Config, ...], ...] = (
        ({}, durable, {}),
        (durable, {}, durable),
        (durable | nine, {}, durable),
        (nine, durable, {}),
        (durable, {}, nine, durable),
        (nine, {}),
    )
    for history in histories:
        for config in history:
            body = {"stream_name": r.stream, "config": {"ack_policy": "explicit"} | config}
            r.api(f"CONSUMER.CREATE.{r.stream}.C", body)
        r.api(f"CONSUMER.DELETE.{r.stream}.C")
    body = {"stream_name": r.stream, "config": {"name": "a/b"} | durable}
    r.api(f"CONSUMER.CREATE.{r.stream}", body)


@case
def pause(r: Recorder) -> None:
    r.create()
    r.fill(1)
    r.consumer()
    r.api(f"CONSUMER.PAUSE.{r.stream}.C", {"pause_until": "2099-01-01T00:00:00Z"})
    r.fetch({"batch": 1, "no_wait": True}, 1)
    r.fetch({"batch": 1, "expires": 200 * MS}, 1)
    r.info()
    r.api(f"CONSUMER.PAUSE.{r.stream}.C", {})
    r.fetch({"batch": 1}, 1)
    r.info()
    r.api(f"CONSUMER.PAUSE.{r.stream}.NONE", {})


# push


@case
def push_messages(r: Recorder) -> None:
    r.create()
    r.fill(3)
    inbox = r.inbox()
    r.consumer(deliver_subject=inbox)
    frames = r.hear(inbox, 3)
    r.info()
    r.store("b", b"4")
    r.hear(inbox, 1)
    r.ask(frames[0].reply, b"+ACK")
    r.info()
    r.forget(inbox)
    r.info()


@case
def push_waits_for_its_subscriber(r: Recorder) -> None:
    target = f"_INBOX.{r.stream}.push"
    r.create()
    r.fill(2)
    r.consumer(deliver_subject=target)
    r.info()
    wild = r.inbox(f"_INBOX.{r.stream}.*")
    r.silence(wild)
    inbox = r.inbox(target)
    r.hear(inbox, 2)
    r.info()


@case
def push_to_a_group(r: Recorder) -> None:
    target = f"_INBOX.{r.stream}.group"
    r.create()
    r.fill(2)
    r.consumer(deliver_subject=target, deliver_group="g")
    plain = r.inbox(target)
    r.silence(plain)
    member = r.inbox(target, "other")
    r.silence(member)


@case
def push_heartbeats(r: Recorder) -> None:
    r.create()
    r.store("b", b"not matching")
    r.store("a", b"1")
    r.store("b", b"not matching")
    inbox = r.inbox()
    r.consumer(deliver_subject=inbox, idle_heartbeat=300 * MS, filter_subject=f"{r.stream}.a")
    r.hear(inbox, 4)


@case
def push_flow_control(r: Recorder) -> None:
    r.create()
    r.fill(40, size=100_000)
    inbox = r.inbox()
    r.consumer(deliver_subject=inbox, flow_control=True, idle_heartbeat=400 * MS, ack_policy="none")
    request = last = ""
    while last != "40":
        frame = r.next(inbox)
        stalled = frame.headers.get("Nats-Consumer-Stalled", "")
        if stalled:  # repeated until the answer has arrived
            assert stalled == request
            r.publish(stalled)
            continue
        last = frame.payload[:2].decode()
        r.note(frame.status, last)
        request = frame.reply if frame.status.endswith("Request") else request


@case
def push_ordered(r: Recorder) -> None:
    r.create()
    r.fill(5)
    inbox = r.inbox()
    config = {
        "deliver_subject": inbox,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 3,
        "ack_policy": "none",
        "max_deliver": 1,
        "mem_storage": True,
        "num_replicas": 1,
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND,
        "name": "ordered",
    }
    body = {"stream_name": r.stream, "config": config}
    r.api(f"CONSUMER.CREATE.{r.stream}.ordered", body)
    r.hear(inbox, 3)
    r.info("ordered")


@case
def push_name_in_use(r: Recorder) -> None:
    r.create()
    first = r.inbox()
    r.consumer(deliver_subject=first)
    r.fill(1)
    r.hear(first, 1)
    second = r.inbox()
    r.consumer(deliver_subject=second)
    r.forget(first)
    r.consumer(deliver_subject=second)
    r.hear(second, 1)
    r.info()


@case
def push_name_in_use_by_others(r: Recorder) -> None:
    r.create()
    wildcard = f"_INBOX.{r.stream}.*.d"
    for group in ({}, {"deliver_group": "g"}):
        for new_group in ({}, {"deliver_group": "g"}, {"deliver_group": "h"}):
            for number, (pattern, queue) in enumerate(
                (("", ""), ("", "g"), ("", "h"), (wildcard, ""), (wildcard, "h"))
            ):
                first = f"_INBOX.{r.stream}.{number}.d"
                r.consumer(deliver_subject=first, **group)
                inbox = r.inbox(pattern or first, queue)
                r.consumer(deliver_subject="taken", **new_group)
                r.forget(inbox)
                r.consumer(deliver_subject="taken", **new_group)
                r.api(f"CONSUMER.DELETE.{r.stream}.C")


# streams that capture what the server sends


def other(r: Recorder, *subjects: str) -> str:
    """A second stream of the case on these subjects; returns its name."""
    name = f"{r.stream}T"
    r.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects)})
    return name


@case
def stream_captures_advisories(r: Recorder) -> None:
    letters = other(
        r,
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{r.stream}.>",
        f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{r.stream}.>",
        f"$JS.EVENT.ADVISORY.STREAM.*.{r.stream}",
        f"$JS.EVENT.METRIC.CONSUMER.ACK.{r.stream}.>",
    )
    r.create()
    r.fill(3)
    r.consumer(ack_wait=2 * SECOND, max_deliver=1, sample_freq="100")
    frames = r.fetch({"batch": 3}, 3)
    r.publish(frames[0].reply, b"+TERM broken")
    r.publish(frames[1].reply)
    r.stored(4, letters)
    # The rest of the state is left out: how long an advisory is depends on the times in it.
    info = r.client_request(f"$JS.API.STREAM.INFO.{letters}", b'{"subjects_filter":">"}')
    r.note("captured", json.loads(info.payload)["state"]["subjects"])


@case
def stream_captures_pushes(r: Recorder) -> None:
    r.create(subjects=[f"{r.stream}.a"])
    target = other(r, f"{r.stream}.t")
    r.fill(2)
    r.consumer(deliver_subject=f"{r.stream}.t", ack_wait=300 * MS, max_deliver=2)
    r.stored(4, target)
    r.info()
    for seq in (1, 4):
        r.api(f"STREAM.MSG.GET.{target}", {"seq": seq})
    r.api(f"STREAM.INFO.{target}", {"subjects_filter": ">"})


@case
def stream_captures_pushes_later(r: Recorder) -> None:
    r.create(subjects=[f"{r.stream}.a"])
    r.consumer(deliver_subject=f"{r.stream}.t", ack_policy="none")
    target = other(r, f"{r.stream}.t")
    r.fill(2)
    r.stored(2, target)
    r.info()
    r.api(f"STREAM.UPDATE.{target}", {"name": target, "subjects": [f"{r.stream}.*.t"]})
    r.fill(1)
    r.info()
    r.api(f"STREAM.UPDATE.{target}", {"name": target, "subjects": [f"{r.stream}.t"]})
    r.stored(3, target)
    r.api(f"STREAM.DELETE.{target}")
    r.info()


@case
def stream_captures_pulled_messages(r: Recorder) -> None:
    r.create(subjects=[f"{r.stream}.a"])
    target = other(r, f"{r.stream}.t")
    r.fill(2)
    r.consumer()
    body = b'{"batch":3,"expires":400000000}'
    r.publish(f"$JS.API.CONSUMER.MSG.NEXT.{r.stream}.C", body, reply=f"{r.stream}.t")
    r.stored(2, target)
    r.info()
    r.stored(3, target)
    for seq in (1, 2, 3):
        r.api(f"STREAM.MSG.GET.{target}", {"seq": seq})
    r.info()
