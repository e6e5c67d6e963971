"""Fast batches, whose every answer must be the same on two servers (ADR-50)."""

from tests.client.batch_cases import (
    ON_SUBJECT,
    OTHER_WRONGS,
    WHICH,
    Case,
    contents,
    make,
    of_each_storage,
)
from tests.client.recorder import Recorder

CASES: list[Case] = []
case = of_each_storage(CASES)


class Fast:
    """A publisher of a fast batch; everything that it hears comes to one inbox."""

    def __init__(self, r: Recorder, id: str, flow: object = 10, gap: str = "fail") -> None:
        self.r, self.id, self.flow, self.gap = r, id, flow, gap
        r.counted += 1
        self.prefix = f"_INBOX.{r.stream}.{r.counted}"
        self.heard = r.inbox(f"{self.prefix}.>")

    def send(
        self, number: int, op: int = 1, *lines: str, subject: str = "a", data: bytes | None = None
    ) -> None:
        header = ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()
        self.r.publish(
            f"{self.r.stream}.{subject}",
            f"{self.id} {number}".encode() if data is None else data,
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
def fast_counters(r: Recorder, storage: str) -> None:
    make(r, storage, allow_msg_counter=True, max_msg_size=60)
    digits = "Nats-Incr: " + "9" * 23
    for gap in ("ok", "fail"):
        f = Fast(r, f"one-{gap}", 1, gap)
        f.send(1, 0, "Nats-Incr: 5", data=b"")
        f.hear(2)
        f.send(2, 1, digits, data=b"")
        f.hear(1 if gap == "ok" else 2)
        if gap == "ok":
            f.send(3, 2, "Nats-Incr: -2", data=b"")
            f.hear()
        f = Fast(r, f"two-{gap}", 1, gap)
        f.send(1, 2, digits, data=b"")
        f.hear(2 if gap == "ok" else 1)
        f.quiet()
    contents(r)
    f = Fast(r, "wrong", 1, "ok")
    f.send(1, 0, "Nats-Incr: 5", data=b"")
    f.hear(2)
    number = 1
    for line in OTHER_WRONGS:
        for lines in ((line,), ("Nats-Incr: 1", line)):
            number += 1
            f.send(number, 1, *lines, data=b"")
            f.hear()
    contents(r)
