"""Batches, atomic and fast, whose every answer must be the same on two servers (ADR-50)."""

from collections.abc import Callable
from functools import partial, update_wrapper

from tests.client.raw import Frame
from tests.client.recorder import Recorder

Case = Callable[[Recorder], None]
CASES: list[Case] = []
ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED."


def case(function: Callable[..., None]) -> Callable[..., None]:
    """On a stream in files, and on one in memory."""
    for storage in ("file", "memory"):
        one = partial(function, storage=storage)
        update_wrapper(one, function)
        one.__name__ = f"{function.__name__}_{storage}"
        CASES.append(one)
    return function


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


# atomic


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
        for number in numbers:
            put(r, "gap", number)
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


# fast


class Fast:
    """A publisher of a fast batch; everything that it hears comes to one inbox."""

    def __init__(self, r: Recorder, id: str, flow: object = 10, gap: str = "fail") -> None:
        self.r, self.id, self.flow, self.gap = r, id, flow, gap
        r.counted += 1
        self.prefix = f"_INBOX.{r.stream}.{r.counted}"
        self.heard = r.inbox(f"{self.prefix}.>")

    def send(
        self, number: int, op: int = 1, *lines: str, subject: str = "a", data: bytes = b""
    ) -> None:
        header = ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()
        self.r.publish(
            f"{self.r.stream}.{subject}",
            data or f"{self.id} {number}".encode(),
            reply=f"{self.prefix}.{self.id}.{self.flow}.{self.gap}.{number}.{op}.$FI",
            header=header if lines else b"",
        )

    def hear(self, count: int = 1) -> None:
        self.r.hear(self.heard, count)

    def quiet(self) -> None:
        """Notes that nothing more came before a later request was answered, or what did."""
        self.r.client_request("$JS.API.INFO", b"")
        self.r.silence(self.heard, 0.1)


@case
def fast_one_after_another(r: Recorder, storage: str) -> None:
    make(r, storage)
    f = Fast(r, "one", 2)
    f.send(1, 0)
    f.hear()
    f.send(2, 1, "A: b")
    f.hear()
    f.send(3, 1, "Nats-Batch-Id: x", "Nats-Batch-Sequence: 7")
    f.send(4, subject="b")
    f.hear()
    f.send(5, 2)
    f.hear()
    f.send(6)
    f.hear()
    f.send(1, 0)
    f.hear()
    f.send(2, 3)
    f.hear()
    f.send(1, 2)
    f.hear()
    f.quiet()
    contents(r)


@case
def fast_malformed(r: Recorder, storage: str) -> None:
    make(r, storage)
    heard = r.inbox("_F.>")
    for reply in (
        "_F.p.id.10.ok.1.5.$FI",
        "_F.p.id.10.ok.1.x.$FI",
        "_F.p.id.10.ok.1.-1.$FI",
        "_F.p.id.10.ok.0.0.$FI",
        "_F.p.id.10.ok.2.0.$FI",
        "_F.p.id.10.ok.1.1.$FI",
        "_F.p.id.10.ok.1.3.$FI",
        "_F.p.id.10.ok.x.1.$FI",
        "_F.p.id.10.ok.18446744073709551615.1.$FI",
        "_F.p.id.10.maybe.1.0.$FI",
        "_F.p.id.10.OK.1.0.$FI",
        "_F.$FI",
        "_F.0.$FI",
        "_F.1.0.$FI",
        "_F.ok.1.0.$FI",
        "_F.10.ok.1.0.$FI",
        f"_F.p.{'i' * 65}.10.ok.1.0.$FI",
        "_F.p.unknown.10.ok.2.1.$FI",
        "_F.p.unknown.10.ok.2.2.$FI",
        "_F.p.unknown.10.ok.2.4.$FI",
        "_F.id.10.ok.1.0.$FI",
        f"_F.p.{'i' * 64}.x.ok.1.00.$FI",
        "_F.p.id2.-1.ok.1.0.$FI",
        "_F.p.id3.0.ok.1.0.$FI",
        "_F.p.id4.70000.ok.1.0.$FI",
        "_F.a.b.c.id5.3.fail.01.0.$FI",
    ):
        r.publish(f"{r.stream}.a", b"x", reply=reply)
        r.hear(heard)
    r.stored(6)


@case
def fast_switched_off(r: Recorder, storage: str) -> None:
    make(r, storage)
    f = Fast(r, "one", 2)
    f.send(1, 0)
    f.hear()
    config = {"name": r.stream, "subjects": [f"{r.stream}.>"], "storage": storage}
    r.api(f"STREAM.UPDATE.{r.stream}", config)
    f.send(2)
    f.hear()
    r.api(f"STREAM.UPDATE.{r.stream}", {**config, "allow_batched": True})
    f.send(2)
    f.hear()
    r.api(f"STREAM.UPDATE.{r.stream}", {**config, "allow_batched": True, "sealed": True})
    f.send(1, 0)
    f.hear()


@case
def fast_gaps(r: Recorder, storage: str) -> None:
    make(r, storage)
    for gap in ("fail", "ok"):
        f = Fast(r, f"forward-{gap}", 2, gap)
        f.send(1, 0)
        f.send(2)
        f.hear(2)
        f.send(5)
        f.send(6)
        f.send(7, 2)
        f.hear(4)
        f.quiet()
        f = Fast(r, f"back-{gap}", 3, gap)
        f.send(1, 0)
        f.send(2)
        f.send(1)
        f.hear(2)
        f.send(3)
        f.hear()
        f = Fast(r, f"end-{gap}", 3, gap)
        f.send(1, 0)
        f.send(4, 3)
        f.hear(3)
        f = Fast(r, f"last-{gap}", 3, gap)
        f.send(1, 0)
        f.send(4, 2)
        f.hear(3)
        f.quiet()
    contents(r)


@case
def fast_pings(r: Recorder, storage: str) -> None:
    make(r, storage)
    for gap in ("fail", "ok"):
        f = Fast(r, f"ping-{gap}", 3, gap)
        f.send(1, 0)
        f.hear()
        f.send(1, 4)
        f.hear()
        f.send(2)
        f.send(3)
        f.hear()
        f.send(3, 4)
        f.hear()
        f.send(2, 4)
        f.hear()
        f.send(9, 4)
        f.hear(2)
        f.send(10, 2)
        f.hear()
        f.quiet()
        f = Fast(r, f"first-{gap}", 1, gap)
        f.send(1, 4)
        f.hear(2)
        f.send(2, 1)
        f.hear()
        f.quiet()
    contents(r)


@case
def fast_refusals(r: Recorder, storage: str) -> None:
    make(r, storage)
    wrong = "Nats-Expected-Last-Sequence: 99"
    for gap in ("fail", "ok"):
        f = Fast(r, f"first-{gap}", 2, gap)
        f.send(1, 0, wrong)
        f.hear(2)
        f.send(2)
        f.hear()
        f.send(3, 2)
        f.hear()
        f = Fast(r, f"second-{gap}", 2, gap)
        f.send(1, 0)
        f.send(2, 1, wrong)
        f.hear(3 if gap == "fail" else 2)
        f.send(3, 1)
        f.hear()
        f.send(4, 3)
        f.hear()
        f = Fast(r, f"last-{gap}", 2, gap)
        f.send(1, 0)
        f.send(2)
        f.send(3, 2, wrong)
        f.hear(4)
        f = Fast(r, f"only-{gap}", 2, gap)
        f.send(1, 2, wrong)
        f.hear(1 if gap == "fail" else 2)
        f.quiet()
    contents(r)


@case
def fast_what_is_checked(r: Recorder, storage: str) -> None:
    make(r, storage)
    r.fill(2)
    f = Fast(r, "one", 100, "ok")
    f.send(1, 0)
    f.hear()
    lines = (
        "Nats-Expected-Last-Sequence: 0",
        "Nats-Expected-Last-Subject-Sequence: 0",
        f"{WHICH}{r.stream}.a",
        "Nats-Expected-Stream: OTHER",
        "Nats-TTL: 5",
        "Nats-TTL: x",
        "Nats-Incr: 1",
        "Nats-Incr: x",
        "Nats-Schedule: @at 2099-01-01T00:00:00Z",
        "Nats-Rollup: sub",
        "X: " + "y" * 65530,
    )
    for number, line in enumerate(lines, 2):
        f.send(number, 1, line)
        f.hear()
    after = len(lines) + 2
    f.send(after, 1, "Nats-Expected-Last-Sequence: 3")
    f.send(after + 1, 1, "Nats-Expected-Last-Subject-Sequence: 4")
    f.send(after + 2, 1, ON_SUBJECT + "5", WHICH + f"{r.stream}.*")
    f.send(after + 3, 2)
    f.hear()
    contents(r)


@case
def fast_duplicates(r: Recorder, storage: str) -> None:
    make(r, storage)
    x, y = "Nats-Msg-Id: x", "Nats-Msg-Id: y"
    r.store("a", b"", x)
    for gap in ("fail", "ok"):
        f = Fast(r, f"first-{gap}", 1, gap)
        f.send(1, 0, x)
        f.hear(2)
        f.send(2, 1, y + gap)
        f.hear()
        f.send(3, 1, y + gap)
        f.hear()
        f.send(4, 2)
        f.hear()
        f = Fast(r, f"last-{gap}", 10, gap)
        f.send(1, 0)
        f.send(2)
        f.send(3, 2, x)
        f.hear(2)
        f = Fast(r, f"only-{gap}", 10, gap)
        f.send(1, 2, x)
        f.hear()
        f = Fast(r, f"end-{gap}", 10, gap)
        f.send(1, 0, x)
        f.send(2, 1, x)
        f.send(3, 3)
        f.hear(2)
        f.quiet()
    contents(r)


@case
def fast_levels(r: Recorder, storage: str) -> None:
    make(r, storage)
    f = Fast(r, "one", 10)
    f.send(1, 0, "Nats-Required-Api-Level: 5")
    f.hear()
    f.send(1, 0, "Nats-Required-Api-Level: 4", "A: b")
    f.hear()
    f.send(2, 1, "Nats-Required-Api-Level: 0")
    f.send(3, 1, "Nats-Required-Api-Level: x")
    f.hear()
    f.send(4, 1)
    f.hear()
    contents(r)


@case
def fast_flow(r: Recorder, storage: str) -> None:
    make(r, storage)
    one = Fast(r, "one", 600)
    one.send(1, 0)
    one.hear()
    two = Fast(r, "two", 8)
    two.send(1, 0)
    two.hear(2)
    for number in range(2, 30):
        two.send(number)
    two.hear(4)
    for number in range(2, 1000):
        one.send(number)
    one.hear(2)
    two.send(30, 2)
    two.hear()
    for number in range(1000, 2000):
        one.send(number)
    one.hear(3)
    one.send(2000, 2)
    one.hear()
    one.quiet()
    r.api(f"STREAM.INFO.{r.stream}")


@case
def fast_limits(r: Recorder, storage: str) -> None:
    more = {"max_msgs_per_subject": 2, "discard_new_per_subject": True, "max_msgs": 4}
    make(r, storage, discard="new", **more)
    f = Fast(r, "one", 10, "ok")
    f.send(1, 0)
    f.hear()
    f.send(2)
    f.send(3)
    f.hear()
    f.send(4, subject="b")
    f.send(5, subject="b")
    f.send(6, subject="c")
    f.hear()
    f.send(7, 3)
    f.hear()
    f = Fast(r, "two")
    f.send(1, 0)
    f.hear(2)
    f.quiet()
    contents(r)


@case
def fast_and_consumers(r: Recorder, storage: str) -> None:
    make(r, storage, retention="interest")
    r.consumer(filter_subject=f"{r.stream}.a")
    f = Fast(r, "one", 2)
    f.send(1, 0, subject="b")
    f.send(2, subject="a")
    f.hear(2)
    f.send(3, subject="b")
    f.send(4, 2, subject="b")
    f.hear()
    r.fetch({"batch": 5, "no_wait": True}, 2)
    contents(r)


@case
def fast_without_acks(r: Recorder, storage: str) -> None:
    make(r, storage, no_ack=True)
    f = Fast(r, "one", 2)
    for number in range(1, 6):
        f.send(number, 0 if number == 1 else 1)
    r.stored(5)
    f.hear(2)
    f.send(8)
    f.hear(2)
    f.quiet()


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
