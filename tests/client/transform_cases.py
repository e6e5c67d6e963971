"""Streams that store under other subjects: the same on two servers."""

from tests.client.batch_cases import contents, put
from tests.client.fast_cases import Fast
from tests.client.jetstream_cases import Case
from tests.client.publish_cases import SECOND, look, wait_for
from tests.client.recorder import Recorder

CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def change(r: Recorder, **config: object) -> None:
    """Updates the case's stream, which has its default subjects."""
    r.api(
        f"STREAM.UPDATE.{r.stream}",
        {"name": r.stream, "subjects": [f"{r.stream}.>"]} | config,
    )


def transform(r: Recorder, source: str, destination: str) -> dict[str, object]:
    """Of subjects under the stream's own; nothing is put before `>`."""
    return {"subject_transform": {"src": source.replace("S.", f"{r.stream}."), "dest": destination}}


# ---- what is stored


TRANSFORMS = (
    *(("S.a", "b"), ("S.*", "c.$1"), ("S.*", "$1"), ("S.*.*", "c.$2.$1"), ("S.>", "d.>")),
    *(("", "d.>"), (">", "d.>"), (">", ">"), ("", ""), ("other.>", "d.>"), ("S.a", "")),
    *(("S.*", "p.{{partition(5,1)}}"), ("S.*.*", "p.{{partition(7,2,1)}}.$1"), ("S.*", "$1.x.$1")),
    *(("S.>", "p.{{partition(5)}}.>"), ("S.a", "p.{{partition(9)}}"), ("S.*", "r.{{random(1)}}")),
    *(("S.*", "{{split(1,-)}}"), ("S.*", "x.{{split(1,-)}}.y"), ("S.*", "{{split(1,)}}")),
    *(("S.*", "{{splitFromLeft(1,1)}}"), ("S.*", "{{SplitFromRight(1,2)}}.x")),
    *(("S.*", "{{sliceFromLeft(1,2)}}"), ("S.*", "{{ SliceFromRight( 1 , 2 ) }}")),
    *(("S.*.*", "{{wildcard(2)}}.{{wildcard(1)}}"), ("S.*", "{{wildcard(0)}}"), ("S.*", "$x.$")),
    *(("S.*", "{{partition(0,1)}}"), ("S.*", "{{random(0)}}"), ("S.*", "{{partition(-3,1)}}")),
    *(("S.*.>", "e.$1.>"), ("S.*.>", "e.>"), ("S.>", "d.d.d.>"), ("S.*", "$1.{{wildcard(1)}}")),
)
SUBJECTS = ("a", "b.c", "a-b", "-", "--a--b-", "abcde", "aé", "x.y.z", "*", "a.*", "a.>", "$1")


@case
def transformed_by_every_function(r: Recorder) -> None:
    r.create()
    for source, destination in TRANSFORMS:
        change(r, **transform(r, source, destination))
        for subject in SUBJECTS:
            r.store(subject, b"x")
    look(r)


@case
def transformed_in_memory(r: Recorder) -> None:
    r.create(storage="memory", **transform(r, "S.*", "{{split(1,-)}}"))
    for subject in SUBJECTS:
        r.store(subject, b"x")
    look(r)


@case
def refused_transforms(r: Recorder) -> None:
    r.create()
    for source, destination in (
        *(("a..b", "x"), ("a", "x..y"), ("S.*", "$2"), ("S.a", "$1"), ("S.*", "x.*")),
        *(("S.>", "x"), ("S.*", "x.>"), ("S.*", "{{left(1,1)}}"), ("S.*", "{{nothing(1)}}")),
        *(("S.*", "{{split(1)}}"), ("S.*", "{{split(1,.)}}"), ("S.*", "{{random(x)}}")),
        *(("a b", "x"), ("a", "x y"), ("a.>.b", "x"), ("a.**", "x"), ("a.**", "x.$1")),
    ):
        change(r, **transform(r, source, destination))
        r.api(
            f"STREAM.CREATE.{r.stream}X",
            {"name": f"{r.stream}X"} | transform(r, source, destination),
        )
    r.api(f"STREAM.INFO.{r.stream}")


@case
def transform_that_is_updated(r: Recorder) -> None:
    r.create(**transform(r, "S.*", "one.$1"))
    r.create(**transform(r, "S.*", "two.$1"))
    r.create(**transform(r, "S.*", "one.$1"))
    r.store("a", b"1")
    change(r, **transform(r, "S.*", "two.$1"))
    r.store("a", b"2")
    change(r, **transform(r, "S.b", "two"))
    r.store("a", b"3")
    change(r)
    r.store("a", b"4")
    change(r, subject_transform={})
    r.store("a", b"5")
    r.api(f"STREAM.INFO.{r.stream}")
    look(r)


# ---- checks see the stored subject


@case
def transformed_and_expected(r: Recorder) -> None:
    r.create(**transform(r, "S.*", "t.$1"))
    expect, of = (
        "Nats-Expected-Last-Subject-Sequence: ",
        "Nats-Expected-Last-Subject-Sequence-Subject: ",
    )
    r.store("a", b"1", expect + "0")
    r.store("a", b"2", expect + "0")
    r.store("a", b"2", expect + "1")
    for subject in ("t.a", f"{r.stream}.a", "t.*", f"{r.stream}.*", "t.b"):
        for seq in (0, 2, 3):
            r.store("b.c", b"3", expect + str(seq), of + subject)
    r.store("a", b"4", "Nats-Msg-Id: x")
    r.store("b", b"4", "Nats-Msg-Id: x")
    r.store("b", b"4", "Nats-Expected-Last-Msg-Id: x")
    look(r)


@case
def transformed_and_limited(r: Recorder) -> None:
    one = transform(r, "S.*", "t.{{partition(2,1)}}")
    r.create(max_msgs_per_subject=2, allow_rollup_hdrs=True, **one)
    for subject in "abcdefgh":
        r.store(subject, subject.encode())
    look(r)
    r.store("a", b"rolled", "Nats-Rollup: sub")
    look(r)
    r.store("x.y", b"not transformed")
    r.store("b", b"all", "Nats-Rollup: all")
    look(r)
    change(r, max_msgs_per_subject=1, discard="new", discard_new_per_subject=True, **one)
    for subject in "abcd":
        r.store(subject, subject.encode())
    look(r)


@case
def transformed_for_interest(r: Recorder) -> None:
    r.create(retention="interest", **transform(r, "S.*", "t.$1"))
    r.consumer("C", filter_subject="t.a")
    r.consumer("D", filter_subject=f"{r.stream}.b")
    for subject in ("a", "b", "c", "a.a"):
        r.store(subject, subject.encode())
    look(r)
    r.fetch({"batch": 3, "no_wait": True}, 2)


@case
def transformed_for_consumers(r: Recorder) -> None:
    r.create(allow_direct=True, **transform(r, "S.*.>", "t.$1.>"))
    for subject in ("a.x", "b.y", "a.z", "q"):
        r.store(subject, subject.encode())
    r.consumer("C", filter_subject="t.a.*")
    r.fetch({"batch": 3, "no_wait": True}, 3)
    for subject in ("t.a.x", f"{r.stream}.a.x", f"{r.stream}.q", "t.>"):
        r.direct({"last_by_subj": subject})
        r.api(f"STREAM.MSG.GET.{r.stream}", {"last_by_subj": subject})
    r.direct(b"", subject=".t.b.y")
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": f"{r.stream}.a.>"})
    r.api(f"STREAM.PURGE.{r.stream}", {"filter": "t.a.>"})
    look(r)


@case
def transformed_in_atomic_batches(r: Recorder) -> None:
    r.create(
        allow_atomic=True,
        allow_rollup_hdrs=True,
        max_msgs_per_subject=2,
        discard="new",
        discard_new_per_subject=True,
        **transform(r, "S.*", "t.{{partition(2,1)}}"),
    )
    expect = "Nats-Expected-Last-Subject-Sequence: "
    put(r, "one", 1, subject="a")
    put(r, "one", 2, subject="b")
    put(r, "one", 3, subject="x.y", commit="1")
    contents(r)
    put(r, "two", 1, expect + "0", subject="c", commit="1")
    put(r, "two", 1, expect + "1", subject="a")
    put(r, "two", 2, expect + "1", subject="c", commit="1")
    put(r, "two", 1, expect + "2", subject="b", commit="1")
    put(r, "full", 1, subject="a")
    put(r, "full", 2, subject="c")
    put(r, "full", 3, subject="e", commit="1")
    put(r, "roll", 1, "Nats-Rollup: sub", subject="a")
    put(r, "roll", 2, "Nats-Rollup: sub", subject="c", commit="1")
    put(r, "roll", 1, "Nats-Rollup: sub", subject="a", commit="1")
    contents(r)


@case
def transform_that_changes_in_an_open_batch(r: Recorder) -> None:
    r.create(allow_atomic=True)
    made = [transform(r, "S.*", to) for to in ("one.$1", "two.$1", "x")]
    for number, one in enumerate((*made[:2], {}, made[2]), 1):
        put(r, "all", number, subject="a")
        change(r, allow_atomic=True, **one)
    expect = "Nats-Expected-Last-Subject-Sequence: 0"
    put(r, "all", 5, expect, subject="b.c", commit="1")
    contents(r)


@case
def transformed_in_fast_batches(r: Recorder) -> None:
    r.create(
        allow_batched=True,
        max_msgs_per_subject=2,
        discard="new",
        discard_new_per_subject=True,
        **transform(r, "S.*", "t.{{partition(2,1)}}"),
    )
    f = Fast(r, "one", 1, "ok")
    expect = "Nats-Expected-Last-Subject-Sequence: "
    f.send(1, 0, expect + "0", subject="a")
    f.hear(2)
    f.send(2, 1, expect + "0", subject="c")
    f.hear()
    f.send(3, 1, subject="e")
    f.hear()
    f.send(4, 1, subject="g")
    f.hear()
    f.send(5, 1, subject="x.y")
    f.hear()
    f.send(6, 2, subject="x.y")
    f.hear()
    f.quiet()
    contents(r)


@case
def transformed_counters(r: Recorder) -> None:
    r.create(allow_msg_counter=True, **transform(r, "S.*", "t.{{partition(2,1)}}"))
    for subject in ("a", "b", "c", "a.b"):
        for _ in range(2):
            r.store(subject, b"", "Nats-Incr: 5")
    look(r)


@case
def transformed_lives(r: Recorder) -> None:
    one = transform(r, "S.*", "t.$1")
    age = {"max_age": SECOND, "duplicate_window": SECOND}
    r.create(allow_msg_ttl=True, subject_delete_marker_ttl=100 * SECOND, **age, **one)
    r.store("a", b"1")
    wait_for(r, 2)
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})
    r.api(f"STREAM.MSG.GET.{r.stream}", {"last_by_subj": "t.a"})


@case
def transformed_schedules(r: Recorder) -> None:
    name = r.stream
    r.create(allow_msg_schedules=True, **transform(r, "S.*", "t.$1"))
    plan = "Nats-Schedule: @at 2000-01-01T00:00:00Z"
    later = plan.replace("2000", "2099")
    r.store("later", b"x", later, f"Nats-Schedule-Target: {name}.later")
    r.store("plan", b"x", plan, "Nats-Schedule-Target: t.plan")
    r.store("plan", b"x", plan, "Nats-Schedule-Target: t.out")
    r.store("plan", b"1", plan, f"Nats-Schedule-Target: {name}.out")
    r.at_least("t.out", 1)
    r.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
    r.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": "t.out"})
    r.store("b.c", b"2", plan, f"Nats-Schedule-Target: {name}.plain.x")
    r.at_least(f"{name}.plain.x", 1)
    r.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})


@case
def transformed_for_another_stream(r: Recorder) -> None:
    """What consumers push into it has the subject that it was stored under."""
    name = r.stream
    r.create(**transform(r, "S.*", "t.$1"))
    into = f"{name}into"
    r.api(
        f"STREAM.CREATE.{into}",
        {
            "name": into,
            "subjects": [f"{into}.>"],
            "no_ack": True,
            "subject_transform": {"src": f"{into}.*", "dest": "wrong.$1"},
        },
    )
    r.inbox(f"{into}.x")
    r.consumer("P", deliver_subject=f"{into}.x", ack_policy="none")
    r.store("a", b"1")
    r.store("b.c", b"2")
    r.stored(2, into)
    for seq in (1, 2):
        r.api(f"STREAM.MSG.GET.{into}", {"seq": seq})
