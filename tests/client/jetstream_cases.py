"""Sequences of JetStream operations whose every answer must be the same on two servers."""

import json
from collections.abc import Callable

from tests.client.raw import header_block
from tests.client.recorder import Recorder

Case = Callable[[Recorder], None]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


LEVEL_5 = header_block("Nats-Required-Api-Level: 5")
LEVEL_X = header_block("Nats-Required-Api-Level: x")


# publishing


@case
def pub_ack(r: Recorder) -> None:
    r.create()
    r.store("a", b"1")
    r.store("a", b"")
    r.store("a", b"3", "A: b")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_duplicate(r: Recorder) -> None:
    r.create()
    r.store("a", b"1", "Nats-Msg-Id: x")
    r.store("b", b"2", "Nats-Msg-Id: x")
    r.store("b", b"3", "Nats-Msg-Id: y")
    r.store("b", b"3", "nats-msg-id: y")
    r.store("b", b"4", "Nats-Msg-Id:   y")
    r.store("b", b"4", "Nats-Msg-Id: ")
    r.store("b", b"4", "Nats-Msg-Id: ")


@case
def pub_expected(r: Recorder) -> None:
    r.create()
    r.store("a", b"1", f"Nats-Expected-Stream: {r.stream}")
    r.store("a", b"2", "Nats-Expected-Stream: OTHER")
    r.store("a", b"2", "Nats-Expected-Last-Sequence: 1")
    r.store("a", b"3", "Nats-Expected-Last-Sequence: 1")
    r.store("a", b"3", "Nats-Expected-Last-Sequence: zz")
    r.store("a", b"3", "Nats-Expected-Last-Sequence: ")
    r.store("a", b"3", "Nats-Expected-Last-Sequence: 0")
    r.store("b", b"3", "Nats-Expected-Last-Subject-Sequence: 0")
    r.store("b", b"3", "Nats-Expected-Last-Subject-Sequence: 0")
    r.store("a", b"3", "Nats-Expected-Last-Subject-Sequence: 2")
    r.store("a", b"3", "Nats-Expected-Last-Subject-Sequence: 3")
    both = (
        "Nats-Expected-Last-Subject-Sequence: 4",
        f"Nats-Expected-Last-Subject-Sequence-Subject: {r.stream}.b",
    )
    r.store("c", b"3", *both)
    r.store("c", b"3", both[0], f"Nats-Expected-Last-Subject-Sequence-Subject: {r.stream}.*")
    r.store("c", b"3", both[1])
    r.store("a", b"3", "Nats-Expected-Last-Msg-Id: zz")
    r.store("a", b"3", "Nats-Msg-Id: m")
    r.store("a", b"3", "Nats-Expected-Last-Msg-Id: m")
    r.store("a", b"3", "Nats-Expected-Last-Msg-Id: m")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_rollup(r: Recorder) -> None:
    r.create(allow_rollup_hdrs=True)
    r.fill(3, "a")
    r.fill(2, "b")
    r.store("a", b"sum", "Nats-Rollup: sub")
    r.store("a", b"sum", "Nats-Rollup: SUB")
    r.store("a", b"sum", "Nats-Rollup: zz")
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">", "deleted_details": True})
    r.store("c", b"all", "Nats-Rollup: all")
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">", "deleted_details": True})


@case
def pub_rollup_refused(r: Recorder) -> None:
    r.create()
    r.store("a", b"x", "Nats-Rollup: sub")
    r.store("a", b"x", "Nats-Rollup: all")
    r.store("a", b"x", "Nats-Rollup: zz")


@case
def pub_sizes(r: Recorder) -> None:
    r.create(max_msg_size=50)
    r.store("a", b"x" * 50)
    r.store("a", b"x" * 51)
    r.store("a", b"x" * 30, "A: bcdefghijklmnopqrst")


@case
def pub_features_that_are_off(r: Recorder) -> None:
    r.create()
    r.store("a", b"", "Nats-TTL: 5s")
    r.store("a", b"", "Nats-TTL: zz")
    r.store("a", b"", "Nats-Incr: 1")
    r.store("a", b"", "Nats-Incr: zz")
    r.store("a", b"", "Nats-Schedule: @every 5s")
    r.store("a", b"", "Nats-Batch-Id: x", "Nats-Batch-Sequence: 1")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_headers_stored(r: Recorder) -> None:
    r.create(allow_direct=True)
    for header in (
        b"NATS/1.0 503 Gone\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nA:b\r\nA: c\r\n A: d\r\n\r\n",
        b"NATS/1.0\r\nNats-Expected-Stream: " + r.stream.encode() + b"\r\n\r\n",
        b"garbage without an end",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 503",
        b"NATS/1.0\r\n",
        b"NATS/1.0\r\nNats-Request-Info: x\r\n\r\n",
        b"NATS/1.0\r\nNats-Request-Info: x\r\nA: b\r\nNats-Request-Info: y\r\n\r\n",
        b"ab",
    ):
        r.ask(f"{r.stream}.a", b"body", header=header)
    for seq in range(1, 12):
        r.direct({"seq": seq})
        r.api(f"STREAM.MSG.GET.{r.stream}", {"seq": seq})


@case
def pub_limits_discard_new(r: Recorder) -> None:
    r.create(discard="new", max_msgs=2)
    for _ in range(3):
        r.store("a", b"x")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_limits_discard_new_bytes(r: Recorder) -> None:
    r.create(discard="new", max_bytes=200)
    for _ in range(4):
        r.store("a", b"x" * 40)
    r.store("a", b"x" * 400)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_limits_discard_new_at_subject_limit(r: Recorder) -> None:
    r.create(discard="new", max_msgs=3, max_msgs_per_subject=2)
    for subject in "aaabbc":
        r.store(subject, b"x")
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})


@case
def pub_limits_discard_new_per_subject(r: Recorder) -> None:
    r.create(
        discard="new",
        max_msgs_per_subject=1,
        discard_new_per_subject=True,
        allow_rollup_hdrs=True,
    )
    r.store("a", b"x")
    r.store("a", b"x")
    r.store("a", b"x", "Nats-Rollup: sub")
    r.api(f"STREAM.INFO.{r.stream}", {"subjects_filter": ">"})


@case
def pub_limits_discard_old(r: Recorder) -> None:
    r.create(max_bytes=300, max_msgs=5)
    for n in range(8):
        r.store("a", b"x" * n)
    r.api(f"STREAM.INFO.{r.stream}")
    r.store("a", b"x" * 290)
    r.store("a", b"x" * 400)
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_interest(r: Recorder) -> None:
    r.create(retention="interest")
    r.store("a", b"1", "Nats-Msg-Id: x")
    r.store("a", b"1", "Nats-Msg-Id: x")
    r.api(f"STREAM.INFO.{r.stream}")
    r.consumer(filter_subject=f"{r.stream}.b")
    r.store("a", b"2")
    r.store("b", b"3")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def pub_no_ack_and_sealed(r: Recorder) -> None:
    r.create(no_ack=True)
    inbox = r.inbox()
    r.publish(f"{r.stream}.a", b"x", reply=inbox)
    r.silence(inbox)
    r.stored(1)
    settings = {"name": r.stream, "subjects": [f"{r.stream}.>"], "sealed": True}
    r.api(f"STREAM.UPDATE.{r.stream}", settings)
    r.store("a", b"x")
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 1})
    r.api(f"STREAM.PURGE.{r.stream}")


# reading


def mixed(r: Recorder, **config: object) -> None:
    """Twelve messages over three subjects, two of them deleted."""
    r.create(allow_direct=True, **config)
    for n in range(1, 13):
        r.store("abc"[n % 3], b"%d" % n, *([f"N: {n}"] if n % 2 else []))
    for seq in (5, 6):
        r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": seq})


@case
def direct_single(r: Recorder) -> None:
    mixed(r)
    for subject in ("a", "b", "c", "none", "*"):
        r.direct(b"", subject=f".{r.stream}.{subject}")
    r.direct({"no_hdr": True}, subject=f".{r.stream}.a")
    r.direct({"seq": 1}, subject=f".{r.stream}.a")
    for request in (
        {"seq": 1},
        {"seq": 3, "no_hdr": True},
        {"seq": 5},
        {"seq": 13},
        {"seq": 0},
        {"last_by_subj": f"{r.stream}.a"},
        {"last_by_subj": f"{r.stream}.*"},
        {"last_by_subj": f"{r.stream}.none"},
        {"next_by_subj": f"{r.stream}.a"},
        {"next_by_subj": f"{r.stream}.a", "seq": 4},
        {"next_by_subj": f"{r.stream}.>", "seq": 5},
        {"next_by_subj": f"{r.stream}.a", "seq": 13},
        {"start_time": "2020-01-01T00:00:00Z"},
        {"start_time": "2099-01-01T00:00:00Z"},
        {"seq": 1, "unknown": "ignored"},
    ):
        r.direct(request)


@case
def direct_refused(r: Recorder) -> None:
    mixed(r)
    subject = f"{r.stream}.a"
    for body in (b"", b"{}", b"null", b"zz", b"{", b'{"seq":"x"}', b"[]", b'{"seq":-1}'):
        r.direct(body)
    for request in (
        {"seq": 1, "last_by_subj": subject},
        {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
        {"last_by_subj": subject, "start_time": "2020-01-01T00:00:00Z"},
        {"last_by_subj": subject, "next_by_subj": subject},
        {"last_by_subj": subject, "batch": 2},
        {"last_by_subj": subject, "multi_last": [subject]},
        {"next_by_subj": subject, "multi_last": [subject]},
        {"multi_last": [subject], "up_to_seq": 3, "up_to_time": "2020-01-01T00:00:00Z"},
    ):
        r.direct(request)
    for own in ("batch", "up_to_seq", "seq"):
        r.direct({own: 3}, subject=f".{subject}")
    r.direct({"batch": -1}, subject=f".{subject}")
    r.direct({"up_to_time": "2020-01-01T00:00:00Z"}, subject=f".{subject}")
    r.direct({"seq": 1}, header=LEVEL_5)
    r.direct({"seq": 1}, header=LEVEL_X)
    r.direct(b"", subject=f".{r.stream}.a", header=LEVEL_5)


@case
def direct_batch(r: Recorder) -> None:
    mixed(r)
    for request in (
        {"seq": 1, "batch": 1},
        {"seq": 1, "batch": 3},
        {"seq": 4, "batch": 4},
        {"seq": 10, "batch": 10},
        {"seq": 13, "batch": 2},
        {"seq": 3, "batch": 2, "no_hdr": True},
        {"seq": 1, "batch": 20, "no_hdr": True},
        {"next_by_subj": f"{r.stream}.a", "batch": 10},
        {"next_by_subj": f"{r.stream}.a", "seq": 4, "batch": 2},
        {"next_by_subj": f"{r.stream}.none", "batch": 2},
        {"start_time": "2020-01-01T00:00:00Z", "batch": 2},
        {"seq": 1, "batch": 10, "max_bytes": 1},
        {"seq": 1, "batch": 10, "max_bytes": 40},
        {"seq": 1, "batch": 10, "max_bytes": -1},
        {"next_by_subj": f"{r.stream}.a", "batch": 10, "max_bytes": -40},
        {"seq": 1, "batch": -1},
        {"seq": 13, "batch": -1},
        {"seq": 1, "batch": -1, "max_bytes": 5},
        {"next_by_subj": f"{r.stream}.a", "batch": -1},
        {"last_by_subj": f"{r.stream}.a", "batch": -1},
        {"start_time": "2020-01-01T00:00:00Z", "batch": -5},
        {"seq": 1, "max_bytes": -1},
    ):
        r.direct(request)


@case
def direct_multi(r: Recorder) -> None:
    mixed(r)
    a, b = f"{r.stream}.a", f"{r.stream}.b"
    for request in (
        {"multi_last": [a]},
        {"multi_last": [a, b], "max_bytes": -1},
        {"multi_last": [a, b], "batch": -1},
        {"multi_last": [f"{r.stream}.none"], "batch": -1},
        {"multi_last": [a, b]},
        {"multi_last": [b, a, "other"]},
        {"multi_last": [f"{r.stream}.>"]},
        {"multi_last": [f"{r.stream}.*"], "batch": 2},
        {"multi_last": [f"{r.stream}.*"], "seq": 11},
        {"multi_last": [f"{r.stream}.*"], "up_to_seq": 4},
        {"multi_last": [f"{r.stream}.*"], "up_to_seq": 7, "batch": 1},
        {"multi_last": [f"{r.stream}.*"], "up_to_time": "2099-01-01T00:00:00Z"},
        {"multi_last": [f"{r.stream}.*"], "up_to_time": "2020-01-01T00:00:00Z"},
        {"multi_last": [f"{r.stream}.*"], "no_hdr": True},
        {"multi_last": [f"{r.stream}.*"], "seq": 13},
        {"multi_last": ["none"]},
    ):
        r.direct(request)


@case
def direct_many_patterns(r: Recorder) -> None:
    r.create(allow_direct=True)
    for number in range(1030):
        r.publish(f"{r.stream}.{number}", b"x")
    r.stored(1030)
    there = [f"{r.stream}.{number}" for number in range(1030)]
    none = [f"{r.stream}.none.{number}" for number in range(5000)]
    for patterns in (
        there[:1024],
        there[:1025],
        there,
        there[:1023] + none,
        none[:1024],
        none,
        none[:2000] + there[5:7] + none[2000:],
        there[:1] * 5000,
        [f"{pattern}.*" for pattern in none],
        [f"{r.stream}..{number}" for number in range(1025)],
        ["other"] * 1025,
        [*there[:3], ""],
        [*there[:3], None],
        [""],
        [None],
        [*there[:3], 4],
        [*none, 4],
    ):
        r.direct({"multi_last": patterns})
        r.direct({"multi_last": patterns, "up_to_seq": 10, "batch": 3})
    first, second = json.dumps(there[:2]), json.dumps(there[2:5])
    for last in (second, "[]", "null", '["x"]'):
        body = f'{{"multi_last": {first}, "MULTI_LAST": {last}, "batch": 1}}'
        r.direct(body.encode())


@case
def direct_off(r: Recorder) -> None:
    r.create()
    r.fill(1)
    r.direct({"seq": 1})
    r.direct(b"", subject=f".{r.stream}.a")


@case
def direct_memory(r: Recorder) -> None:
    mixed(r, storage="memory")
    r.direct({"seq": 1})
    r.direct({"seq": 5})
    r.direct({"seq": 3, "batch": 4})
    r.direct({"multi_last": [f"{r.stream}.*"]})
    r.api(f"STREAM.INFO.{r.stream}", {"deleted_details": True, "subjects_filter": ">"})


@case
def msg_get(r: Recorder) -> None:
    mixed(r)
    subject = f"{r.stream}.a"
    for request in (
        {"seq": 1},
        {"seq": 2},
        {"seq": 5},
        {"seq": 99},
        {"last_by_subj": subject},
        {"last_by_subj": f"{r.stream}.>"},
        {"last_by_subj": "none"},
        {"next_by_subj": subject},
        {"next_by_subj": subject, "seq": 5},
        {"seq": 1, "no_hdr": True},
        {"start_time": "2020-01-01T00:00:00Z"},
        {"start_time": "2099-01-01T00:00:00Z"},
        {},
        {"batch": 2, "seq": 1},
        {"max_bytes": 2, "seq": 1},
        {"seq": 1, "last_by_subj": subject},
        {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
        {"last_by_subj": subject, "next_by_subj": subject},
        {"seq": 1, "bogus": 1},
    ):
        r.api(f"STREAM.MSG.GET.{r.stream}", request)
    r.api(f"STREAM.MSG.GET.{r.stream}", b"")
    r.api(f"STREAM.MSG.GET.{r.stream}", b"zz")
    r.api("STREAM.MSG.GET.MISSING", {"seq": 1})


@case
def msg_delete(r: Recorder) -> None:
    mixed(r)
    for request in ({"seq": 2}, {"seq": 2}, {"seq": 1, "no_erase": True}, {}, {"bogus": 1}):
        r.api(f"STREAM.MSG.DELETE.{r.stream}", request)
    r.api(f"STREAM.MSG.DELETE.{r.stream}", b"")
    r.api(f"STREAM.MSG.DELETE.{r.stream}", {"seq": 12})
    r.api(f"STREAM.INFO.{r.stream}", {"deleted_details": True})


@case
def purge(r: Recorder) -> None:
    mixed(r)
    for request in (
        {"seq": 1},
        {"seq": 3},
        {"keep": 7},
        {"filter": f"{r.stream}.a", "keep": 1},
        {"filter": f"{r.stream}.b", "seq": 11},
        {"filter": "none"},
        {"seq": 4, "keep": 1},
        {"bogus": 1},
        {"keep": 0},
    ):
        r.api(f"STREAM.PURGE.{r.stream}", request)
        r.api(f"STREAM.INFO.{r.stream}", {"deleted_details": True})
    r.store("a", b"x")
    r.api(f"STREAM.PURGE.{r.stream}", {"seq": 50})
    r.store("a", b"x")
    r.api(f"STREAM.PURGE.{r.stream}", b"null")
    r.api(f"STREAM.INFO.{r.stream}")


@case
def api_that_is_silent(r: Recorder) -> None:
    for subject in ("FOO", f"STREAM.INFO.{r.stream}.x", "CONSUMER.INFO.S.a.b", "STREAM"):
        inbox = r.inbox()
        r.publish(f"$JS.API.{subject}", b"", reply=inbox)
        r.silence(inbox, 0.15)
    for subject in ("DIRECT.GET.NONE", "CONSUMER.MSG.NEXT.NONE.C"):
        r.ask(f"$JS.API.{subject}", b"{}")
    r.ask(f"$JS.ACK.{r.stream}.C.1.1.1.1.1", b"+ACK")


@case
def listings(r: Recorder) -> None:
    r.create()
    for name in ("b", "a", "c"):
        r.consumer(name)
    for request in (None, {"offset": 1}, {"offset": 9}, {"offset": -1}, {"limit": 1}):
        names = json.loads(
            r.client_request(
                f"$JS.API.CONSUMER.NAMES.{r.stream}",
                b"" if request is None else json.dumps(request).encode(),
            ).payload
        )
        names.get("error", {}).pop("description", None)
        r.note(names)
        r.api(f"CONSUMER.LIST.{r.stream}", request)
    r.api("CONSUMER.NAMES.MISSING")
    r.api("STREAM.NAMES", {"subject": f"{r.stream}.x"})
    r.api("STREAM.NAMES", {"subject": "nothing.like.it"})
    for odd in ("..b", ".>.b", ".", "..", ".a b", "> "):
        r.api("STREAM.NAMES", {"subject": f"{r.stream}{odd}"})
        r.api("STREAM.NAMES", {"subject": f"{odd}{r.stream}"})
    r.api("STREAM.LIST", {"subject": "nothing.like.it"})
    r.api(f"STREAM.INFO.{r.stream}")
