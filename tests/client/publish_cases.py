"""What a publish can ask for besides being stored: every answer must be the same on two servers."""

import base64
import re

from tests.client.jetstream_cases import Case
from tests.client.raw import header_block
from tests.client.recorder import Recorder

CASES: list[Case] = []
SECOND = 10**9


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def look(r: Recorder) -> None:
    """All that is stored, and how much that is."""
    answer = r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">", "deleted_details": True})
    for seq in range(answer["state"]["first_seq"], answer["state"]["last_seq"] + 1):
        r.api(f"STREAM.MSG.GET.{r.stream}", {"seq": seq})


# lives


@case
def ttl_spellings(r: Recorder) -> None:
    r.create(allow_msg_ttl=True)
    for value in (
        *("1", "5", "05", "1s", "1.5s", "1h30m", "1000ms", "never", "Never", "NEVER", " 7", ""),
        *("0", "00", "-1", "0s", "999ms", "-5s", "1d", "x", "1.5", "+5", "+5s", "1e3", "5 s", "∞"),
    ):
        r.store("a", b"x", f"Nats-TTL: {value}")
    r.store("a", b"x", "nats-ttl: x")
    r.store("a", b"x", "Nats-TTL: 5", "Nats-TTL: x")
    look(r)


@case
def ttl_not_allowed(r: Recorder) -> None:
    r.create()
    for value in ("1", "never", "0", "00", "x", "", "1s"):
        r.store("a", b"x", f"Nats-TTL: {value}")
    r.store("a", b"x", "Nats-TTL: 1", "Nats-Expected-Last-Sequence: 9")
    r.store("a", b"x", "Nats-TTL: 1", "Nats-Expected-Stream: X")
    r.store("a", b"x", "Nats-TTL: x", "Nats-Expected-Last-Sequence: 9")
    look(r)


@case
def ttl_expires(r: Recorder) -> None:
    r.create(allow_msg_ttl=True)
    r.store("a", b"1", "Nats-TTL: 1")
    r.store("b", b"2", "Nats-TTL: 100")
    r.store("a", b"3", "Nats-TTL: 1s")
    r.store("a", b"4")
    r.stored(2)
    look(r)


@case
def ttl_and_age(r: Recorder) -> None:
    r.create(allow_msg_ttl=True, max_age=SECOND)
    r.store("a", b"1", "Nats-TTL: never")
    r.store("b", b"2", "Nats-TTL: 100")
    r.store("c", b"3")
    r.stored(1)
    look(r)


@case
def ttl_with_a_consumer(r: Recorder) -> None:
    r.create(allow_msg_ttl=True)
    r.consumer(ack_wait=30 * SECOND)
    r.store("a", b"1", "Nats-TTL: 1")
    r.store("a", b"2", "Nats-TTL: 1")
    r.store("a", b"3")
    r.fetch({"batch": 1}, 1)
    r.stored(1)
    r.settled("num_pending", 1)
    r.fetch({"batch": 1}, 1)


@case
def ttl_of_a_memory_stream(r: Recorder) -> None:
    r.create(allow_msg_ttl=True, storage="memory", max_age=2 * SECOND)
    r.store("a", b"1", "Nats-TTL: 1")
    r.store("a", b"2")
    r.store("a", b"3", "Nats-TTL: never")
    r.stored(2)
    look(r)
    r.stored(1)
    look(r)


@case
def ttl_configuration(r: Recorder) -> None:
    r.create(allow_msg_ttl=True)
    name, subjects = r.stream, [f"{r.stream}.>"]
    r.api(f"STREAM.UPDATE.{name}", {"name": name, "subjects": subjects})
    r.api(f"STREAM.INFO.{name}")
    for ttl in (SECOND, 1, -1, 3 * SECOND, 0):
        body = {"name": name, "subjects": subjects, "allow_msg_ttl": True}
        r.api(f"STREAM.UPDATE.{name}", {**body, "subject_delete_marker_ttl": ttl})


@case
def ttl_allowed_later(r: Recorder) -> None:
    r.create()
    r.store("a", b"1", "Nats-TTL: 1")
    body = {"name": r.stream, "subjects": [f"{r.stream}.>"], "allow_msg_ttl": True}
    r.api(f"STREAM.UPDATE.{r.stream}", body)
    r.store("a", b"1", "Nats-TTL: 1")
    r.stored(0)
    look(r)


# markers


@case
def marker_by_ttl(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=SECOND, max_msgs_per_subject=1)
    r.store("a", b"1", "Nats-TTL: 1")
    r.store("b", b"2")
    r.stored(2)
    wait_for(r, 3)
    look(r)
    r.stored(1)
    look(r)


def wait_for(r: Recorder, last: int) -> None:
    r._poll(f"STREAM.INFO.{r.stream}", lambda info: info["state"]["last_seq"] == last)


@case
def marker_by_age(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=100 * SECOND, max_age=SECOND, duplicate_window=SECOND)
    r.store("a", b"1")
    r.store("a", b"2")
    r.store("b", b"3", "KV-Operation: PURGE", "Nats-Rollup: sub")
    r.store("c", b"4", "KV-Operation: DEL")
    r.store("d", b"5", "Nats-TTL: never")
    wait_for(r, 7)
    r.stored(3)
    look(r)


@case
def marker_after_a_raised_ttl(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=90 * SECOND)
    for value in ("1", "1s", "2m", "never", "90", "89.9s"):
        r.store("a", b"x", f"Nats-TTL: {value}", "A: b")
    r.store("a", b"x", "B: c", "Nats-TTL: 1", "A: b")
    look(r)


@case
def marker_not_by_requests(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=90 * SECOND)
    r.fill(2, "a")
    r.fill(1, "b")
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 3})
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": f"{r.stream}.a"})
    look(r)


@case
def marker_of_a_consumed_stream(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=60 * SECOND, retention="interest")
    r.consumer()
    r.store("a", b"1", "Nats-TTL: 1")
    r.store("b", b"2")
    r.fetch({"batch": 2}, 2)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def marker_through_expectations(r: Recorder) -> None:
    """As key-value buckets use it."""
    r.create(
        subject_delete_marker_ttl=SECOND, max_msgs_per_subject=1, discard="new", deny_delete=True
    )
    first = "Nats-Expected-Last-Subject-Sequence: 0"
    r.store("a", b"1", first, "Nats-TTL: 1")
    r.store("a", b"1", first)
    wait_for(r, 2)
    r.store("a", b"1", first)
    r.store("a", b"1", "Nats-Expected-Last-Subject-Sequence: 2")
    look(r)


# The headers that expect something, in every form


@case
def expected_forms(r: Recorder) -> None:
    r.create()
    r.fill(3, "a")
    for value in ("3", "03", " 3", "+3", "3x", "-1", "x", "", "18446744073709551615"):
        r.store("b", b"", f"Nats-Expected-Last-Sequence: {value}")
        r.store("b", b"", f"Nats-Expected-Last-Subject-Sequence: {value}")
        r.store("b", b"", f"Nats-Expected-Last-Msg-Id: {value}")
        r.store("b", b"", f"Nats-Expected-Stream: {value}")
    look(r)


@case
def expected_of_another_subject(r: Recorder) -> None:
    r.create()
    r.fill(2, "a.1")
    r.fill(2, "a.2")
    seq, of = "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject"
    for subject in ("a.1", "a.2", "a.*", "a.>", "*.2", "b", "a..1", "", ">", "a.3"):
        for value in (2, 4, 0):
            r.store("c", b"", f"{seq}: {value}", f"{of}: {r.stream}.{subject}")
    r.store("c", b"", f"{of}: {r.stream}.a.1")
    r.store("c", b"", f"{of}: ")
    r.store("c", b"", f"{seq}: ", f"{of}: {r.stream}.a.1")
    look(r)


@case
def no_ack(r: Recorder) -> None:
    r.create(no_ack=True, max_msg_size=10, allow_msg_ttl=True)
    inbox = r.inbox()
    r.publish(f"{r.stream}.a", b"1", reply=inbox)
    r.publish(f"{r.stream}.a", b"x" * 20, reply=inbox)
    r.publish(f"{r.stream}.a", b"1", header=header_block("Nats-TTL: x"), reply=inbox)
    r.publish(f"{r.stream}.a", b"2", reply=inbox)
    r.silence(inbox)
    r.stored(2)
    look(r)


# counters


@case
def counter_adds(r: Recorder) -> None:
    r.create(allow_msg_counter=True)
    for value in ("1", "+5", "-10", "0", "007", "-0", "99999999999999999999999999", "-1", "+0"):
        r.store("a", b"", f"Nats-Incr: {value}")
    r.store("b", b"", "Nats-Incr: -1", "A: b")
    r.store("b", b"", "Nats-Incr: 1", "Nats-Msg-Id: x")
    r.store("b", b"", "Nats-Incr: 1", "Nats-Msg-Id: x")
    look(r)


@case
def counter_refuses(r: Recorder) -> None:
    r.create(allow_msg_counter=True, allow_rollup_hdrs=True)
    for value in ("", " ", "x", "+", "-", "1.5", "1e3", "0x10", "1_000", "--1", "+-1", "1 ", "٣"):
        r.store("a", b"", f"Nats-Incr: {value}")
    r.store("a")
    r.store("a", b"5")
    r.store("a", b"x", "Nats-Incr: 1")
    r.store("a", b"", "A: b")
    for line in (
        *("Nats-Rollup: sub", "Nats-Rollup: zz", "Nats-Expected-Stream: " + r.stream),
        *("Nats-Expected-Last-Msg-Id: x", "Nats-Expected-Last-Sequence: 0"),
        *("Nats-Expected-Last-Subject-Sequence: 0", "Nats-TTL: 5", "Nats-TTL: x"),
        *("Nats-Expected-Last-Subject-Sequence-Subject: x", "Nats-Schedule: @every 1s"),
        *("Nats-Stream-Source: A 1 > > a", "Nats-Expected-Last-Sequence: "),
    ):
        r.store("a", b"", "Nats-Incr: 1", line)
    r.store("a", b"", "Nats-Rollup: sub")
    look(r)


@case
def counter_sizes(r: Recorder) -> None:
    r.create(allow_msg_counter=True, max_msg_size=60)
    r.store("a", b"", f"Nats-Incr: {'9' * 20}")
    r.store("a", b"", f"Nats-Incr: {'9' * 21}")
    r.store("a", b"", "Nats-Incr: 1")
    look(r)


@case
def counter_limits(r: Recorder) -> None:
    r.create(allow_msg_counter=True, max_msgs_per_subject=1, max_msgs=2)
    for subject in "aabbccab":
        r.store(subject, b"", "Nats-Incr: 3")
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": f"{r.stream}.b"})
    r.store("b", b"", "Nats-Incr: 3")
    look(r)


@case
def counter_sources_of_a_client(r: Recorder) -> None:
    r.create(allow_msg_counter=True)
    name = "Nats-Counter-Sources"
    r.store("a", b"", "Nats-Incr: 1", f'{name}: {{"X":{{"y":"5"}}}}')
    r.store("a", b"", "Nats-Incr: 2")
    r.store("a", b"", "Nats-Incr: 3", "A: b")
    r.store("b", b"", "Nats-Incr: 1", f"{name}: nonsense")
    r.store("b", b"", "Nats-Incr: 1")
    look(r)


@case
def counter_configuration(r: Recorder) -> None:
    name = r.stream
    base = {"name": name, "subjects": [f"{name}.>"]}
    for wrong in (
        *({"discard": "new"}, {"allow_msg_ttl": True}, {"retention": "workqueue"}),
        *({"subject_delete_marker_ttl": SECOND}, {"retention": "interest"}),
    ):
        r.api(f"STREAM.CREATE.{name}", {**base, "allow_msg_counter": True, **wrong})
    r.create()
    r.api(f"STREAM.UPDATE.{name}", {**base, "allow_msg_counter": True})
    r.store("a", b"", "Nats-Incr: 1")
    r.store("a", b"", "Nats-Incr: x")
    r.store("a", b"", "Nats-Incr: ")
    r.api(f"STREAM.DELETE.{name}")
    r.create(allow_msg_counter=True, storage="memory")
    r.api(f"STREAM.UPDATE.{name}", base)
    r.store("a", b"", "Nats-Incr: 1")
    look(r)


# schedules


def planned(pattern: str, target: str, *lines: str) -> tuple[str, ...]:
    return (f"Nats-Schedule: {pattern}", f"Nats-Schedule-Target: {target}", *lines)


@case
def schedule_patterns(r: Recorder) -> None:
    r.create(allow_msg_schedules=True)
    target = f"{r.stream}.out"
    for pattern in (
        *(
            "@at 2099-01-01T00:00:00Z",
            "@at 2099-01-01T00:00:00.5+05:30",
            "@at 2099-02-30T00:00:00Z",
        ),
        *("@at 2099-01-01 00:00:00", "@at tomorrow", "@at", "@at ", "@every 1h", "@every 999ms"),
        *("@every 1s500ms", "@every 5", "@every -1s", "@every", "@every ", "@every never", "now"),
        *(
            "@yearly",
            "@annually",
            "@monthly",
            "@weekly",
            "@Weekly",
            "@daily ",
            "@ daily",
            "@reboot",
        ),
        *("0 0 0 1 1 *", "0 0 0 1 1", "0 0 0 1 1 * *", "0 0 0 1 jan ?", "0 0 0 ? JAN Mon-Fri"),
        *(
            "0 0 0 1 13 *",
            "0 0 0 0 1 *",
            "0 0 0 1 1 7",
            "0 0 24 1 1 *",
            "0 60 0 1 1 *",
            "60 0 0 1 1 *",
        ),
        *("0 0 0 30 2 *", "0 0 0 29 2 *", "0 0 0 1-5/2,20 1 *", "0 0 0 5-1 1 *", "0 0 0 1/0 1 *"),
        *("0 0 0 1//2 1 *", "0 0 0 1-2-3 1 *", "0 0 0 ,1, 1 *", "0 0 0 , 1 *", "0 0 0 *-5 1 *"),
        *("+0 00 0 1 1 *", "-0 0 0 1 1 *", "0 0 0 1 1 sun,mon", "0 0 0 1 january *", "x 0 0 1 1 *"),
    ):
        r.store("plan", b"x", *planned(pattern, target))
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})


@case
def schedule_zones(r: Recorder) -> None:
    r.create(allow_msg_schedules=True)
    target = f"{r.stream}.out"
    for zone in (
        *("UTC", "Europe/Berlin", "America/New_York", "Local", "europe/berlin", "Mars/Base", ""),
        *("Europe", "../UTC", "/UTC", "utc", "Etc/GMT+5", " UTC", "EST5EDT", "+01:00"),
    ):
        line = f"Nats-Schedule-Time-Zone: {zone}"
        r.store("plan", b"x", *planned("0 0 0 1 1 *", target, line))
        r.store("plan", b"x", line)
    for pattern in ("@every 5h", "@at 2099-01-01T00:00:00Z", "@daily"):
        r.store("plan", b"x", *planned(pattern, target, "Nats-Schedule-Time-Zone: UTC"))
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})


@case
def schedule_headers(r: Recorder) -> None:
    r.create(allow_msg_schedules=True)
    never, name = "@at 2099-01-01T00:00:00Z", r.stream
    out = f"{name}.out"
    for target in (out, "", f"{name}.plan", f"{name}.*", f"{name}.>", "other", f"{name}..x", name):
        r.store("plan", b"x", *planned(never, target))
    r.store("plan", b"x", f"Nats-Schedule: {never}")
    for source in (f"{name}.in", "", out, f"{name}.plan", f"{name}.*", "other", f"{name}..x"):
        r.store("plan", b"x", *planned(never, out, f"Nats-Schedule-Source: {source}"))
    for ttl in ("5s", "x", "0", "never", ""):
        r.store("plan", b"x", *planned(never, out, f"Nats-Schedule-TTL: {ttl}"))
    for rollup in ("sub", "all", "SUB", "x", ""):
        r.store("plan", b"x", *planned(never, out, f"Nats-Schedule-Rollup: {rollup}"))
        if rollup:
            r.store("plan", b"x", *planned(never, out, f"Nats-Rollup: {rollup}"))
    wrong = "Nats-Schedule-TTL: x", "Nats-Schedule-Rollup: x", "Nats-Schedule-Source: other"
    r.store("plan", b"x", *planned("x", "other", *wrong, "Nats-Schedule-Time-Zone: x"))
    r.store("plan", b"x", *planned("x", "other", *wrong))
    for at in range(4):
        r.store("plan", b"x", *planned(never, "other", *wrong[at:]))
    r.store("plan", b"x", *planned("x", out, "Nats-Expected-Last-Sequence: 99"))
    look(r)


@case
def schedule_ended_by_clients(r: Recorder) -> None:
    r.create(allow_msg_schedules=True)
    never, name = "@at 2099-01-01T00:00:00Z", r.stream
    r.store("plan", b"x", *planned(never, f"{name}.out"))
    for scheduler in ("plan", "none", "", "*", "out", "x..y"):
        for what in ("purge", "Purge", "2099-01-01T00:00:00Z", ""):
            lines = f"Nats-Scheduler: {name}.{scheduler}", f"Nats-Schedule-Next: {what}"
            r.store("out", b"x", *lines)
    r.store("out", b"x", f"Nats-Scheduler: {name}.plan")
    r.store("out", b"x", "Nats-Schedule-Next: purge")
    r.store("out", b"x", "Nats-Scheduler: ", "Nats-Schedule-Next: purge")
    r.store("plan", b"plain")
    lines = f"Nats-Scheduler: {name}.plan", "Nats-Schedule-Next: purge"
    r.store("out", b"x", *lines)
    look(r)


@case
def schedule_not_allowed(r: Recorder) -> None:
    r.create()
    name = r.stream
    for pattern in ("@every 5h", "x", "", "@at 2099-01-01T00:00:00Z"):
        r.store("plan", b"x", *planned(pattern, f"{name}.out"))
        r.store("plan", b"x", *planned(pattern, "other", "Nats-Schedule-Time-Zone: /"))
    for zone in ("UTC", "Europe/Berlin", "X/Y", "Europe", "utc", "x" * 300, "", "/", "+01:00"):
        r.store("plan", b"x", f"Nats-Schedule-Time-Zone: {zone}")
    r.store("plan", b"x", "Nats-Schedule-TTL: x", "Nats-Schedule-Target: other")
    r.store("plan", b"x", "Nats-Scheduler: x")
    r.store("plan", b"x", "Nats-Schedule-Next: purge", f"Nats-Scheduler: {name}.x")
    r.store("plan", b"x", "Nats-Schedule-Next: x", f"Nats-Scheduler: {name}.x")
    look(r)


@case
def schedule_configuration(r: Recorder) -> None:
    name = r.stream
    base = {"name": name, "subjects": [f"{name}.>"]}
    for wrong in ({"discard": "new"}, {"pedantic": True}, {"allow_msg_counter": True}):
        r.api(f"STREAM.CREATE.{name}", {**base, "allow_msg_schedules": True, **wrong})
    r.create(deny_purge=True)
    r.api(f"STREAM.UPDATE.{name}", {**base, "allow_msg_schedules": True, "deny_purge": True})
    r.api(f"STREAM.UPDATE.{name}", {**base, "allow_msg_schedules": True})
    r.api(f"STREAM.UPDATE.{name}", base)
    r.api(f"STREAM.DELETE.{name}")
    r.create(allow_msg_schedules=True, storage="memory", allow_msg_ttl=True)


@case
def schedule_once(r: Recorder) -> None:
    r.create(allow_msg_schedules=True, allow_msg_ttl=True)
    name = r.stream
    r.store("in", b"other", "A: b", "Nats-Msg-Id: m", "Nats-TTL: 1h")
    past = "@at 2020-01-01T00:00:00Z"
    r.store("out", b"old")
    more = "Nats-Schedule-TTL: 5m", "Nats-Schedule-Rollup: sub", "B: c", "Nats-TTL: 1h"
    r.store("plan", b"x", *planned(past, f"{name}.out", *more, "Nats-Expected-Stream: " + name))
    wait_for(r, 4)
    r.store("plan", b"y", *planned(past, f"{name}.out.2", f"Nats-Schedule-Source: {name}.in"))
    wait_for(r, 6)
    r.store("plan", b"z", *planned(past, f"{name}.out.3", f"Nats-Schedule-Source: {name}.none"))
    wait_for(r, 8)
    look(r)


@case
def schedule_repeats(r: Recorder) -> None:
    """The times differ, but not what else is published."""
    r.create(allow_msg_schedules=True)
    zone = "Nats-Schedule-Time-Zone: Asia/Kolkata"
    r.store("plan.1", b"x", *planned("@every 1s", f"{r.stream}.out.1"), "A: b")
    r.store("plan.2", b"y", *planned("* * * * * *", f"{r.stream}.out.2", zone))
    for n in (1, 2):
        subject = f"{r.stream}.out.{n}"
        r.at_least(subject, 2)
        found = r.client.api(f"STREAM.MSG.GET.{r.stream}", {"last_by_subj": subject})
        header = base64.b64decode(found["message"]["hdrs"])
        r.note(re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", b"TIME", header))
    r.publish(f"{r.stream}.plan.1", b"no schedule")  # its sequence is as the times were
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": f"{r.stream}.plan.2"})


# the same in atomic batches


def batched(r: Recorder, *messages: tuple[str, bytes, tuple[str, ...]]) -> None:
    """One batch; its id is of no other."""
    r.counted += 1
    for n, (subject, data, lines) in enumerate(messages, 1):
        own = [f"Nats-Batch-Id: {r.counted}", f"Nats-Batch-Sequence: {n}"]
        if n == len(messages):
            own.append("Nats-Batch-Commit: 1")
        r.store(subject, data, *own, *lines)


@case
def batch_of_counters(r: Recorder) -> None:
    r.create(allow_msg_counter=True, allow_atomic=True)
    r.store("a", b"", "Nats-Incr: 5")
    one: tuple[str, ...] = ("Nats-Incr: 1",)
    batched(r, ("a", b"", one), ("b", b"", ("Nats-Incr: -3",)), ("a", b"", one), ("a", b"", one))
    batched(r, ("a", b"", one), ("a", b"", ()))
    batched(r, ("a", b"", one), ("a", b"x", one))
    batched(r, ("a", b"", one), ("a", b"", ("Nats-Incr: x",)))
    batched(r, ("a", b"", ("Nats-Incr: 1", "Nats-Expected-Last-Sequence: 5")))
    batched(r, ("b", b"", one))
    look(r)


@case
def batch_of_lives(r: Recorder) -> None:
    r.create(allow_msg_ttl=True, allow_atomic=True)
    r.store("a", b"first")
    for value in ("5", "1h", "never", "x", "0", "00", "", "999ms"):
        batched(r, ("a", b"1", ()), ("a", b"2", (f"Nats-TTL: {value}",)))
    batched(r, ("b", b"1", ("Nats-TTL: 1",)), ("b", b"2", ("Nats-TTL: 1s",)))
    look(r)


@case
def batch_of_lives_not_allowed(r: Recorder) -> None:
    r.create(allow_atomic=True)
    r.store("a", b"first")
    for value in ("5", "never", "x", "0", "00", ""):
        batched(r, ("a", b"1", ()), ("a", b"2", (f"Nats-TTL: {value}",)))
    look(r)


@case
def batch_of_lives_and_markers(r: Recorder) -> None:
    r.create(subject_delete_marker_ttl=60 * SECOND, allow_atomic=True)
    batched(r, ("a", b"1", ("Nats-TTL: 1", "A: b")), ("b", b"2", ("Nats-TTL: 90s",)))
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})


@case
def lives_as_long_as_a_duration(r: Recorder) -> None:
    r.create(allow_msg_ttl=True)
    for value in ("2562046h", "2562047h", "2562047h47m16s", "2562047h47m16.8s", "2562047h47m17s"):
        r.store("a", b"x", f"Nats-TTL: {value}")


@case
def batch_of_schedules(r: Recorder) -> None:
    r.create(allow_msg_schedules=True, allow_atomic=True)
    name = r.stream
    plan = planned("@at 2099-01-01T00:00:00Z", f"{name}.out")
    batched(r, ("plan", b"1", plan), ("other", b"2", ()))
    batched(r, ("plan", b"1", plan), ("plan", b"2", plan))
    batched(r, ("plan", b"1", ()), ("other", b"2", planned("x", f"{name}.out")))
    batched(r, ("other", b"2", planned("@every 5h", "elsewhere")))
    ends = f"Nats-Scheduler: {name}.plan", "Nats-Schedule-Next: purge"
    batched(r, ("done", b"3", ends), ("done", b"4", ()))
    batched(r, ("done", b"3", ("Nats-Scheduler: x",)))
    r.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})


@case
def acks_that_do_not_wait(r: Recorder) -> None:
    name = r.stream
    base = {"name": name, "subjects": [f"{name}.>"], "persist_mode": "async"}
    for wrong in ({"storage": "memory"}, {"allow_atomic": True}):
        r.api(f"STREAM.CREATE.{name}", {**base, **wrong})
    r.create(persist_mode="async")
    r.fill(3)
    r.store("a", b"x", "Nats-Msg-Id: a")
    r.store("a", b"x", "Nats-Msg-Id: a")
    r.api(f"STREAM.UPDATE.{name}", {**base, "persist_mode": "default"})
    r.api(f"STREAM.UPDATE.{name}", {**base, "description": "x"})
    look(r)
