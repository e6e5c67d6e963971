"""Streams that publish again what they store: the same on two servers."""

import base64
import json

from tests.client.batch_cases import put
from tests.client.fast_cases import Fast
from tests.client.jetstream_cases import Case
from tests.client.publish_cases import SECOND, look
from tests.client.recorder import TIME_HEADER, Recorder
from tests.client.transform_cases import SUBJECTS, TRANSFORMS, change, transform

CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def again(r: Recorder, source: str, destination: str, **more: object) -> dict[str, object]:
    return {
        "republish": {
            "src": source.replace("S.", f"{r.stream}."),
            "dest": destination.replace("O.", f"{r.stream}out."),
        }
        | more
    }


def replies(r: Recorder, count: int = 1) -> None:
    r.hear(f"_INBOX.{r.stream}.replies", count)


@case
def republished(r: Recorder) -> None:
    r.create(**again(r, "S.*", "O.$1"))
    out = r.inbox(f"{r.stream}out.>")
    r.store("a", b"1")
    r.store("a", b"2", "A: b", "Nats-Msg-Id: x")
    r.store("b", b"")
    r.store("a.b", b"not these")
    r.store("a", b"dup", "Nats-Msg-Id: x")
    r.store("a", b"refused", "Nats-Expected-Last-Sequence: 77")
    r.store("a", b"3", "Nats-Stream: own", "Nats-Sequence: own")
    r.publish(f"{r.stream}.a", b"no reply")
    r.hear(out, 5)
    r.silence(out)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def republished_before_the_ack(r: Recorder) -> None:
    for storage in ("memory", "file"):
        name = f"{r.stream}{storage}"
        r.api(
            f"STREAM.CREATE.{name}",
            {
                "name": name,
                "subjects": [f"{name}.>"],
                "storage": storage,
                "republish": {"src": ">", "dest": f"_INBOX.{name}.>"},
            },
        )
        both = r.inbox(f"_INBOX.{name}.>")
        for n in range(3):
            r.publish(f"{name}.a", str(n).encode(), reply=f"_INBOX.{name}.ack")
            r.hear(both, 2)


@case
def republished_headers_only(r: Recorder) -> None:
    r.create(**again(r, ">", "O.>", headers_only=True))
    out = r.inbox(f"{r.stream}out.>")
    r.store("a", b"12345")
    r.store("a", b"", "A: b")
    r.store("a", b"123", "A: b")
    r.hear(out, 3)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def republished_by_every_function(r: Recorder) -> None:
    r.create()
    out = r.inbox(f"{r.stream}out.>")
    for source, destination in (*TRANSFORMS, ("S.*", "{{left(1,2)}}"), ("S.*", "{{right(1,2)}}")):
        if not destination:
            continue
        change(r, **again(r, source, f"O.{destination}"))
        for subject in SUBJECTS:
            r.store(subject, b"x")
        r.publish(f"{r.stream}out.end", b"end")
        r.note(source, destination)
        while r.hear(out)[0].payload != b"end":
            pass


@case
def refused_republishing(r: Recorder) -> None:
    name = r.stream
    r.create()
    for source, destination in (
        *(("", ""), ("", "O.>"), (">", "O.>"), ("S.>", "S.>"), ("S.a", "S.b"), ("S.a", f"{name}")),
        *((">", ">"), ("", ">"), ("S.*", "O.$2"), ("S.a", "O.$1"), ("S.>", "O.x"), ("a..b", "O.x")),
        *(("a b", "O.x"), ("S.a", "O. x"), ("S.a", "O..x"), ("S.*", "O.*"), ("S.*", "*.$1")),
        *(("S.*", "$1.x"), ("S.*", "{{nothing(1)}}"), ("x", "$JS.API.INFO"), ("x", "$SYS.x")),
    ):
        for pedantic in (False, True):
            r.api(
                f"STREAM.CREATE.{name}X",
                {
                    "name": f"{name}X",
                    "subjects": [f"{name}X.>"],
                    "pedantic": pedantic,
                }
                | again(r, source, destination),
            )
            r.api(f"STREAM.DELETE.{name}X")
        if destination:
            change(r, **again(r, source, destination))
    r.api(f"STREAM.INFO.{name}")


@case
def republish_that_is_updated(r: Recorder) -> None:
    r.create(**again(r, ">", "O.one.>"))
    r.create(**again(r, "", "O.one.>"))
    out = r.inbox(f"{r.stream}out.>")
    r.store("a", b"1")
    r.hear(out)
    change(r, **again(r, "S.a", "O.two"))
    r.store("a", b"2")
    r.store("b", b"2")
    r.hear(out)
    change(r, **again(r, "S.a", "O.two", headers_only=True))
    r.store("a", b"3")
    r.hear(out)
    change(r)
    r.store("a", b"4")
    r.silence(out)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def republished_under_the_stored_subject(r: Recorder) -> None:
    both = transform(r, "S.*", "t.$1") | again(r, "t.*", "O.$1")
    r.create(**both)
    out = r.inbox(f"{r.stream}out.>")
    for subject in ("a", "b", "b.c"):
        r.store(subject, b"x")
    r.hear(out, 2)
    r.silence(out, 0.1)


@case
def republished_as_it_is_transformed(r: Recorder) -> None:
    name = r.stream
    for pedantic in (True, False):
        r.api(
            f"STREAM.CREATE.{name}",
            {
                "name": name,
                "subjects": [f"{name}.*"],
                "pedantic": pedantic,
                "subject_transform": {"src": f"{name}.*", "dest": f"{name}out.$1"},
                "republish": {"src": ">", "dest": ">"},
            },
        )
    r.inbox(f"{name}out.>")
    r.store("a", b"x")
    r.api(f"STREAM.INFO.{name}")
    r.api(
        f"STREAM.CREATE.{name}Y",
        {
            "name": f"{name}Y",
            "subjects": [f"{name}Y.>"],
            "subject_transform": {"src": f"{name}Y.>", "dest": f"{name}out.>"},
            "republish": {"src": ">", "dest": ">"},
        },
    )
    out = r.inbox(f"{name}out.b")
    r.ask(f"{name}Y.b", b"x")
    r.hear(out)
    r.api(f"STREAM.INFO.{name}Y")


@case
def republished_from_batches(r: Recorder) -> None:
    r.create(allow_atomic=True, allow_batched=True, **again(r, "S.>", "O.>"))
    out = r.inbox(f"{r.stream}out.>")
    put(r, "one", 1, subject="a")
    put(r, "one", 2, subject="b")
    r.silence(out, 0.1)
    put(r, "one", 3, subject="a", commit="1")
    r.hear(out, 3)
    put(r, "two", 1, subject="a")
    put(r, "two", 2, commit="eob")
    r.hear(out)
    put(r, "bad", 1, subject="a")
    put(r, "bad", 2, "Nats-Expected-Last-Sequence: 0", commit="1")
    f = Fast(r, "fast", 2)
    f.send(1, 0)
    f.hear()
    f.send(2, 2)
    f.hear()
    r.hear(out, 2)
    r.silence(out, 0.1)


@case
def republished_rollups_and_limits(r: Recorder) -> None:
    r.create(allow_rollup_hdrs=True, max_msgs_per_subject=1, **again(r, "S.>", "O.>"))
    out = r.inbox(f"{r.stream}out.>")
    for subject in "aabbaac":
        r.store(subject, b"x")
    r.store("a", b"x", "Nats-Rollup: sub")
    r.store("b", b"x", "Nats-Rollup: all")
    r.store("a", b"x")
    r.hear(out, 10)
    change(r, discard="new", max_msgs=1, **again(r, "S.>", "O.>"))
    r.store("c", b"refused")
    r.silence(out, 0.1)


@case
def republished_counters_and_lives(r: Recorder) -> None:
    r.create(allow_msg_counter=True, **again(r, "S.>", "O.>"))
    out = r.inbox(f"{r.stream}out.>")
    r.store("a", b"", "Nats-Incr: 5")
    r.store("a", b"", "Nats-Incr: -7")
    r.hear(out, 2)
    name = f"{r.stream}L"
    r.api(
        f"STREAM.CREATE.{name}",
        {
            "name": name,
            "subjects": [f"{name}.>"],
            "max_age": SECOND,
            "duplicate_window": SECOND,
            "subject_delete_marker_ttl": 100 * SECOND,
            "republish": {"dest": f"{name}out.>"},
        },
    )
    out = r.inbox(f"{name}out.>")
    r.ask(f"{name}.a", b"x")
    r.hear(out, 2)


@case
def republished_without_interest(r: Recorder) -> None:
    r.create(retention="interest", **again(r, "S.>", "O.>"))
    r.consumer("C", filter_subject=f"{r.stream}.a")
    out = r.inbox(f"{r.stream}out.>")
    r.store("b", b"x")
    r.store("a", b"x")
    r.hear(out)
    r.silence(out, 0.1)


@case
def republished_into_another_stream(r: Recorder) -> None:
    name = r.stream
    r.create(**again(r, "S.>", "O.>"))
    r.api(
        f"STREAM.CREATE.{name}B",
        {
            "name": f"{name}B",
            "subjects": [f"{name}out.>"],
            "republish": {"dest": f"{name}third.>"},
        },
    )
    third = r.inbox(f"{name}third.>")
    r.store("a", b"1")
    r.store("a", b"2", "A: b")
    r.hear(third, 2)
    r.stored(2, f"{name}B")
    for seq in (1, 2):
        found = r.client_request(f"$JS.API.STREAM.MSG.GET.{name}B", b'{"seq":%d}' % seq)
        message = json.loads(found.payload)["message"]
        header = base64.b64decode(message["hdrs"])
        r.note(message["subject"], message["data"], TIME_HEADER.sub(rb"\1TIME", header))


@case
def republished_to_queues(r: Recorder) -> None:
    r.create(**again(r, "S.>", "O.>"))
    one = r.inbox(f"{r.stream}out.*", "q")
    for n in range(3):
        r.store("a", str(n).encode())
    r.hear(one, 3)


@case
def long_transformed_subjects(r: Recorder) -> None:
    name = r.stream
    r.create(**transform(r, "S.*", "t.{{sliceFromLeft(1,1)}}") | again(r, "t.>", "O.>"))
    out = r.inbox(f"{name}out.>")
    for size in (200, 1000, 2000, 3900):
        r.store("x" * size, b"data")
        r.hear(out)
    look(r)
    r.consumer("C")
    r.fetch({"batch": 4, "no_wait": True}, 4)
    many = ".".join(f"t{i}" for i in range(255))
    r.store(many, b"tokens")
    change(r, **transform(r, "S.>", "t.>") | again(r, "t.>", "O.>"))
    r.store(many, b"tokens")
    r.hear(out)
    look(r)


# ---- streams that take in others


@case
def taken_in_and_published_again(r: Recorder) -> None:
    """By a mirror, which has no subjects of its own, and by a stream that sources."""
    name = r.stream
    r.create()
    r.fill(2)
    transform = {"src": f"{name}.>", "dest": f"{name}taken.>"}
    r.api(
        f"STREAM.CREATE.{name}M",
        {
            "name": f"{name}M",
            "mirror": {"name": name, "subject_transforms": [transform]},
            "republish": {"src": ">", "dest": ">"},
        },
    )
    r.api(
        f"STREAM.CREATE.{name}T",
        {
            "name": f"{name}T",
            "subjects": [f"{name}T.>"],
            "sources": [{"name": name}],
            "subject_transform": {"src": f"{name}.*", "dest": f"{name}stored.$1"},
            "republish": {"src": f"{name}stored.>", "dest": f"{name}again.>", "headers_only": True},
        },
    )
    for out in (f"{name}M", f"{name}T"):
        r.stored(2, out)
    mirrored, sourced = r.inbox(f"{name}taken.>"), r.inbox(f"{name}again.>")
    r.store("a", b"3", "A: b")
    r.store("b", b"4")
    r.hear(mirrored, 2)
    r.hear(sourced, 2)
    for taker in (f"{name}M", f"{name}T"):
        for seq in (3, 4):
            r.api(f"STREAM.MSG.GET.{taker}", {"seq": seq})
