"""Atomic batches, whose every answer must be the same on two servers (ADR-50)."""

from collections.abc import Callable
from functools import partial, update_wrapper

from tests.client.raw import Frame
from tests.client.recorder import Recorder

Case = Callable[[Recorder], None]
CASES: list[Case] = []
ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED."


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def of_each_storage(cases: list[Case]) -> Decorator:
    """Makes two cases of a function: on a stream in files, and on one in memory."""

    def case(function: Callable[..., None]) -> Callable[..., None]:
        for storage in ("file", "memory"):
            one = partial(function, storage=storage)
            update_wrapper(one, function)
            vars(one)["__name__"] = f"{function.__name__}_{storage}"
            cases.append(one)
        return function

    return case


case = of_each_storage(CASES)


def make(r: Recorder, storage: str, **config: object) -> None:
    r.create(**{"allow_atomic": True, "allow_batched": True, "storage": storage} | config)


def put(
    r: Recorder,
    id: str,
    number: object,
    *lines: str,
    subject: str = "a",
    data: bytes = b"",
    commit: str | None = None,
) -> Frame:
    """One message of an atomic batch; its answer is noted."""
    more = [f"Nats-Batch-Id: {id}"]
    if number is not None:
        more.append(f"Nats-Batch-Sequence: {number}")
    if commit is not None:
        more.append(f"Nats-Batch-Commit: {commit}")
    return r.store(subject, data or f"{id} {number}".encode(), *more, *lines)


def contents(r: Recorder) -> None:
    """Notes what the stream holds."""
    info = r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})
    state = info["state"]
    for seq in range(state["first_seq"] if state["messages"] else 1, state["last_seq"] + 1):
        r.api(f"STREAM.MSG.GET.{r.stream}", {"seq": seq})


@case
def atomic_one_after_another(r: Recorder, storage: str) -> None:
    make(r, storage)
    r.store("a", b"before")
    put(r, "one", 1)
    put(r, "one", 2, "A: b", subject="b")
    r.store("a", b"between")
    put(r, "one", 3, commit="1")
    contents(r)
    put(r, "one", 4, commit="1")
    put(r, "one", 1)
    put(r, "one", 2, subject="c", data=b"xyz")
    put(r, "one", 3, data=b"not stored", commit="eob")
    put(r, "alone", 1, commit="1")
    put(r, "<&>", 1, commit="1")
    contents(r)


@case
def atomic_what_it_is_refused_for(r: Recorder, storage: str) -> None:
    make(r, storage, max_msg_size=300)
    put(r, "x" * 64, 1, commit="1")
    put(r, "x" * 65, 1, commit="1")
    put(r, "a", None)
    for number in ("", "x", "-1", "1.0", "18446744073709551616", "0", "2", "1000", "1001"):
        put(r, "a", number)
        put(r, "a", number, commit="eob")
    put(r, "a", "18446744073709551615", commit="1")
    for commit in ("0", "", "true", "EOB", "1 "):
        put(r, "c", 1, commit=commit)
        put(r, "c", 1)
        put(r, "c", 2, commit=commit)
        put(r, "c", 3, commit="1")
    put(r, "eob", 1, commit="eob")
    put(r, "large", 1)
    put(r, "large", 2, data=bytes(300))
    put(r, "large", 2, commit="1")
    for numbers in ((1, 3), (1, 2, 2), (1, 2, 1), (1, 1)):
        for k in numbers:
            put(r, "gap", k)
        put(r, "gap", 3, commit="1")
    contents(r)


@case
def atomic_levels(r: Recorder, storage: str) -> None:
    make(r, storage)
    for level in ("5", "x", "", "-1", "4"):
        put(r, "one", 1, f"Nats-Required-Api-Level: {level}")
        put(r, "one", 2, "Nats-Required-Api-Level: 1", "A: b", commit="1")
    contents(r)


@case
def atomic_advisories(r: Recorder, storage: str) -> None:
    make(r, storage)
    heard = r.inbox(f"{ABANDONED}{r.stream}")
    put(r, "one", 1)
    put(r, "one", 3)
    r.hear(heard)
    put(r, "two", 1, "Nats-Required-Api-Level: 5")
    r.hear(heard)
    put(r, "three", 1, commit="eob")
    r.hear(heard)
    put(r, "four", 1, commit="x")
    put(r, "five", 2)
    r.silence(heard)


@case
def atomic_too_many_messages(r: Recorder, storage: str) -> None:
    make(r, storage)
    heard = r.inbox(f"{ABANDONED}{r.stream}")
    for ending in ({"commit": "1"}, {"commit": "eob"}, {}):
        for number in range(1, 1001):
            header = f"NATS/1.0\r\nNats-Batch-Id: big\r\nNats-Batch-Sequence: {number}\r\n\r\n"
            r.publish(f"{r.stream}.a", b"", header=header.encode())
        put(r, "big", 1001, **ending)  # type: ignore[arg-type]
        if ending != {"commit": "eob"}:
            r.hear(heard)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def atomic_too_many_open(r: Recorder, storage: str) -> None:
    make(r, storage)
    for number in range(50):
        put(r, f"b{number}", 1)
    put(r, "last", 1)
    put(r, "last", 1, commit="1")
    put(r, "b7", 2, commit="1")
    put(r, "last", 1, commit="1")
    put(r, "b8", 3)
    put(r, "last", 1)
    put(r, "more", 1)
    r.api(f"STREAM.DELETE.{r.stream}")
    make(r, storage)
    put(r, "b9", 2)
    put(r, "b9", 1, commit="1")


EXPECTED = "Nats-Expected-Last-Sequence: "
ON_SUBJECT = "Nats-Expected-Last-Subject-Sequence: "
WHICH = "Nats-Expected-Last-Subject-Sequence-Subject: "


def both(r: Recorder, first: tuple[str, ...], second: tuple[str, ...], subject: str = "b") -> None:
    """A batch of two, on two subjects."""
    put(r, "pair", 1, *first)
    put(r, "pair", 2, *second, subject=subject, commit="1")


@case
def atomic_expected_sequences(r: Recorder, storage: str) -> None:
    make(r, storage)
    r.fill(3)
    for first, second in (
        ("3", "4"),
        ("3", "3"),
        ("2", "3"),
        ("3", ""),
        ("x", "0"),
        ("0", "0"),
    ):
        both(r, (EXPECTED + first,), (EXPECTED + second,))
    both(r, (EXPECTED + "5",), ())
    both(r, (), (EXPECTED + "8",))
    both(r, (), (EXPECTED + "7",))
    for line in ("0", "7", "6", "5", "x", ""):
        both(r, (ON_SUBJECT + line,), ())
        both(r, (), (ON_SUBJECT + line,), "a")
        both(r, (), (ON_SUBJECT + line,), "b")
    for which in (f"{r.stream}.a", f"{r.stream}.c", f"{r.stream}.*", ">", "x"):
        for line in ("0", "9", "8"):
            both(r, (ON_SUBJECT + line, WHICH + which), ())
            both(r, (), (ON_SUBJECT + line, WHICH + which))
    both(r, (WHICH + f"{r.stream}.a",), ())
    both(
        r, (ON_SUBJECT + "0", WHICH + f"{r.stream}.z"), (ON_SUBJECT + "0", WHICH + f"{r.stream}.z")
    )
    contents(r)


@case
def atomic_ids(r: Recorder, storage: str) -> None:
    make(r, storage)
    both(r, ("Nats-Msg-Id: x",), ("Nats-Msg-Id: y",))
    both(r, ("Nats-Msg-Id: z",), ("Nats-Msg-Id: z",))
    both(r, ("Nats-Msg-Id: y",), ("Nats-Msg-Id: w",))
    both(r, ("Nats-Msg-Id: w",), ("Nats-Msg-Id: x",))
    r.store("a", b"", "Nats-Msg-Id: x")
    r.store("a", b"", "Nats-Expected-Last-Msg-Id: y")
    r.store("a", b"", "Nats-Msg-Id: w")
    both(r, ("Nats-Expected-Last-Msg-Id: w",), ())
    both(r, (), ("Nats-Expected-Last-Msg-Id: w",))
    both(r, ("Nats-Msg-Id: new",), ("Nats-Msg-Id: ",))
    contents(r)


@case
def atomic_other_headers(r: Recorder, storage: str) -> None:
    make(r, storage)
    for line in (
        "Nats-Expected-Stream: OTHER",
        f"Nats-Expected-Stream: {r.stream}",
        "Nats-TTL: 5",
        "Nats-TTL: x",
        "Nats-TTL: never",
        "Nats-Incr: 1",
        "Nats-Incr: x",
        "Nats-Schedule: @at 2099-01-01T00:00:00Z",
        "Nats-Rollup: sub",
        "Nats-Rollup: x",
    ):
        both(r, (line,), ())
        both(r, (), (line,))
    both(r, (), ("X: " + "y" * 65500,))
    contents(r)


@case
def atomic_rollups(r: Recorder, storage: str) -> None:
    make(r, storage, allow_rollup_hdrs=True)
    r.fill(3)
    r.fill(2, "b")
    sub, all = "Nats-Rollup: sub", "Nats-Rollup: all"
    both(r, (sub,), ())
    contents(r)
    both(r, (sub,), (sub,))
    contents(r)
    both(r, (sub,), (sub,), "a")
    both(r, (), ("Nats-Rollup: SUB",), "a")
    both(r, (), (all,))
    both(r, (), ("Nats-Rollup: zz",))
    both(r, (all,), ())
    contents(r)
    both(r, (), (sub,))
    contents(r)


@case
def atomic_limits_old(r: Recorder, storage: str) -> None:
    make(r, storage, max_msgs=5, max_msgs_per_subject=2)
    for _ in range(3):
        put(r, "many", 1)
        put(r, "many", 2)
        put(r, "many", 3, subject="b")
        put(r, "many", 4, subject="c", commit="1")
        contents(r)


@case
def atomic_limits_new(r: Recorder, storage: str) -> None:
    make(r, storage, discard="new", max_msgs=4, max_bytes=600)
    both(r, (), ())
    put(r, "many", 1)
    put(r, "many", 2)
    put(r, "many", 3, commit="1")
    put(r, "many", 1, data=bytes(250))
    put(r, "many", 2, commit="1")
    both(r, (), ())
    both(r, (), ())
    put(r, "one", 1, commit="1")
    contents(r)


@case
def atomic_limits_new_per_subject(r: Recorder, storage: str) -> None:
    more = {"max_msgs_per_subject": 2, "discard_new_per_subject": True, "allow_rollup_hdrs": True}
    make(r, storage, discard="new", **more)
    put(r, "many", 1)
    put(r, "many", 2)
    put(r, "many", 3, commit="1")
    both(r, (), ())
    both(r, (), (), "a")
    both(r, (), ())
    both(r, ("Nats-Rollup: sub",), (), "c")
    contents(r)


#: One of them is wrong on any stream that allows nothing.
OTHER_WRONGS = (
    *("Nats-Expected-Last-Sequence: 9", "Nats-Expected-Last-Subject-Sequence: 9"),
    *("Nats-Expected-Stream: OTHER", "Nats-TTL: 5", "Nats-Msg-Id: x", f"{WHICH}x"),
    *("Nats-Schedule: @at 2099-01-01T00:00:00Z", "Nats-Scheduler: x", "Nats-Rollup: zz"),
    *("Nats-Incr: x", "Nats-Incr: 1", "Nats-Expected-Last-Msg-Id: x"),
)


def count(r: Recorder, id: str, *more: tuple[str, ...]) -> None:
    """An atomic batch of messages to one counter, each with these header lines."""
    for number, lines in enumerate(more, 1):
        ends = ("Nats-Batch-Commit: 1",) if number == len(more) else ()
        where = (f"Nats-Batch-Id: {id}", f"Nats-Batch-Sequence: {number}")
        r.store("a", b"", *where, *ends, *lines)


@case
def atomic_counters(r: Recorder, storage: str) -> None:
    make(r, storage, allow_msg_counter=True, max_msg_size=100)
    count(r, "one", ("Nats-Incr: 5",), ("Nats-Incr: -7",), ("Nats-Incr: 0",))
    digits = "Nats-Incr: " + "9" * 23
    count(r, "much", (digits,))
    count(r, "much", ("Nats-Incr: 1",), (digits,))
    count(r, "more", (digits, "A: b"))
    count(r, "grows", ("Nats-Incr: " + "9" * 8,))
    count(r, "grows", ("Nats-Incr: " + "9" * 8,), ("Nats-Incr: " + "9" * 9,))
    for line in OTHER_WRONGS:
        count(r, "wrong", (line,))
        count(r, "wrong", ("Nats-Incr: 1", line))
        count(r, "wrong", ("Nats-Incr: 1",), (line,))
    contents(r)


@case
def atomic_schedules_and_sizes(r: Recorder, storage: str) -> None:
    make(r, storage, allow_msg_schedules=True, allow_rollup_hdrs=True)
    plan = ("Nats-Schedule: @at 2099-01-01T00:00:00Z", f"Nats-Schedule-Target: {r.stream}.t")
    put(r, "one", 1, *plan)
    put(r, "one", 2, *plan, subject="b", commit="1")
    put(r, "one", 1, *plan)
    put(r, "one", 2, *plan, commit="1")
    contents(r)


@case
def atomic_switched_off(r: Recorder, storage: str) -> None:
    make(r, storage)
    put(r, "one", 1)
    config = {"name": r.stream, "subjects": [f"{r.stream}.>"], "storage": storage}
    r.api(f"STREAM.UPDATE.{r.stream}", config)
    put(r, "one", 2, commit="1")
    r.api(f"STREAM.UPDATE.{r.stream}", {**config, "allow_atomic": True})
    put(r, "one", 2, commit="1")
    put(r, "one", 1, commit="1")
    contents(r)


@case
def atomic_sealed(r: Recorder, storage: str) -> None:
    make(r, storage)
    put(r, "one", 1)
    config = {"name": r.stream, "subjects": [f"{r.stream}.>"], "storage": storage, "sealed": True}
    r.api(f"STREAM.UPDATE.{r.stream}", {**config, "allow_atomic": True})
    put(r, "one", 2, commit="1")


@case
def atomic_without_acks(r: Recorder, storage: str) -> None:
    make(r, storage, no_ack=True)
    heard = r.inbox()
    for number, more in enumerate(("", "", "Nats-Batch-Commit: 1\r\n"), 1):
        header = f"NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Batch-Sequence: {number}\r\n{more}\r\n"
        r.publish(f"{r.stream}.a", b"x", header=header.encode(), reply=heard)
    r.stored(3)
    r.silence(heard)


@case
def atomic_and_consumers(r: Recorder, storage: str) -> None:
    make(r, storage, retention="interest")
    r.consumer(filter_subject=f"{r.stream}.a")
    put(r, "one", 1)
    r.fetch({"batch": 5, "no_wait": True}, 1)
    put(r, "one", 2, subject="b")
    put(r, "one", 3, subject="a")
    put(r, "one", 4, subject="b", commit="1")
    r.fetch({"batch": 5, "no_wait": True}, 3)
    contents(r)


@case
def batches_in_the_configuration(r: Recorder, storage: str) -> None:
    make(r, storage)
    mirror = {"name": f"{r.stream}M", "mirror": {"name": r.stream}}
    for option in ("allow_atomic", "allow_batched"):
        r.api(f"STREAM.CREATE.{r.stream}M", {**mirror, option: True})
    config = {"name": r.stream, "subjects": [f"{r.stream}.>"], "storage": storage}
    for options in ({}, {"allow_atomic": True}, {"allow_batched": True}):
        r.api(f"STREAM.UPDATE.{r.stream}", {**config, **options})
    r.api(f"STREAM.INFO.{r.stream}")
