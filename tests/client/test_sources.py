"""Mirrors and sources over restarts, lost origins and borders of accounts: nothing is missing, and
nothing is there twice.

Rounds and seed of the random histories come from the environment: `SOURCES_ROUNDS` (2) and
`SOURCES_SEED` (1, shown).
"""

import json
import os
import random
import time
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.seeds import seed_of
from tests.servers import Server, Servers
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("SOURCES_ROUNDS", "2"))
SEED = seed_of("SOURCES_SEED")

Stored = tuple[str, bytes, bytes]
"""Subject, headers and body."""


class App:
    """A client that asks the API and looks at what streams hold."""

    def __init__(self, server: Server, **login: str) -> None:
        given = {"verbose": False, "headers": True, "no_responders": True, **login}
        self.raw = RawApp(server.port, timeout=10, options=json.dumps(given).encode())

    def api(self, subject: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else b""
        return json.loads(self.raw.request(f"$JS.API.{subject}", data).payload)

    def create(self, name: str, **config: Any) -> None:
        answer = self.api(f"STREAM.CREATE.{name}", name=name, **config)
        assert "error" not in answer, answer

    def info(self, stream: str) -> Any:
        return self.api(f"STREAM.INFO.{stream}")

    def last(self, stream: str) -> int:
        return int(self.info(stream)["state"]["last_seq"])

    def publish(self, subject: str, body: bytes, header: bytes = b"") -> int:
        return int(json.loads(self.raw.request(subject, body, header=header).payload)["seq"])

    def contents(self, stream: str) -> dict[int, tuple[Stored, str]]:
        """What a stream holds, by sequence, and when it was stored."""
        state = self.info(stream)["state"]
        found = {}
        for seq in range(state["first_seq"], state["last_seq"] + 1):
            message = self.api(f"STREAM.MSG.GET.{stream}", seq=seq).get("message")
            if message is not None:
                headers, body = message.get("hdrs", ""), message.get("data", "")
                stored = message["subject"], b64decode(headers), b64decode(body)
                found[seq] = stored, message["time"]
        return found

    def came_to(self, stream: str, last: int, seconds: float = 30) -> None:
        wait_until(lambda: self.last(stream) >= last, f"{stream} up to {last}", seconds)


@contextmanager
def app(server: Server, **login: str) -> Iterator[App]:
    one = App(server, **login)
    try:
        yield one
    finally:
        one.raw.close()


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.under_test(jetstream=True)


def origin_of(header: bytes) -> int:
    """The origin's sequence that a sourced message tells."""
    line = next(x for x in header.split(b"\r\n") if x.startswith(b"Nats-Stream-Source: "))
    return int(line.split(b" ")[2])


def without_source(header: bytes) -> bytes:
    lines = [x for x in header.split(b"\r\n") if not x.startswith(b"Nats-Stream-Source: ")]
    return b"\r\n".join(lines) if len(lines) > 3 else b""


def check_source(there: dict[int, Stored], taken: list[Stored], wanted: str) -> None:
    """Every message of the origin that matches is in the source once, in order, as it was."""
    numbers = [origin_of(header) for _, header, _ in taken]
    assert numbers == sorted(set(numbers))
    came = {n: (s, without_source(h), b) for n, (s, h, b) in zip(numbers, taken, strict=True)}
    for seq, message in there.items():
        if wanted in (">", message[0]):
            assert came[seq] == message


@pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])
def test_they_go_on_after_a_restart(server: Server, kill: bool) -> None:
    with app(server) as one:
        one.create("O", subjects=["o.*"])
        one.create("M", mirror={"name": "O"})
        one.create("S", sources=[{"name": "O", "filter_subject": "o.1"}])
        for n in range(30):
            one.publish(f"o.{n % 3}", b"%d" % n, b"NATS/1.0\r\nA: b\r\n\r\n" if n % 2 else b"")
        one.came_to("M", 20)
    for turn in range(2):
        server.restart(kill=kill)
        with app(server) as one:
            for n in range(30):
                one.publish(f"o.{n % 3}", b"%d" % n)
            one.came_to("M", 60 + 30 * turn)
            one.came_to("S", 20 + 10 * turn)
            origin = one.contents("O")
            assert one.contents("M") == origin
            taken = [stored for stored, _ in one.contents("S").values()]
            check_source({seq: stored for seq, (stored, _) in origin.items()}, taken, "o.1")


def test_an_origin_that_is_made_anew(server: Server) -> None:
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("M", mirror={"name": "O"})
        one.create("S", sources=[{"name": "O"}])
        for _ in range(3):
            one.publish("o", b"old")
        one.came_to("M", 3)
        one.came_to("S", 3)
        assert one.api("STREAM.DELETE.O")["success"]
        wait_until(lambda: "error" in one.info("M")["mirror"], "an error", 30)
        assert one.info("M")["mirror"]["error"]["err_code"] == 10059
        wait_until(lambda: "error" in one.info("S")["sources"][0], "an error", 30)
        one.create("O", subjects=["o"])
        for n in range(5):
            one.publish("o", b"new %d" % n)
        one.came_to("M", 5)
        one.came_to("S", 5)
        bodies = [stored[2] for stored, _ in one.contents("M").values()]
        assert bodies == [b"old"] * 3 + [b"new 3", b"new 4"]


def test_an_origin_that_comes_later(server: Server) -> None:
    """Nobody waits for the next try when the origin is here."""
    with app(server) as one:
        one.create("M", mirror={"name": "O"})
        wait_until(lambda: "error" in one.info("M")["mirror"], "an error")
        one.create("O", subjects=["o"])
        one.publish("o", b"x")
        one.came_to("M", 1, 5)
        assert "error" not in one.info("M")["mirror"]


def test_what_does_not_fit_waits_for_room(server: Server) -> None:
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("S", sources=[{"name": "O"}], max_msgs=2, discard="new")
        for n in range(4):
            one.publish("o", b"%d" % n)
        one.came_to("S", 2)
        said = "S', source O: the message behind sequence 2 of the origin is not stored: the stream"
        server.wait_log(f"{said} is full")
        assert one.api("STREAM.PURGE.S")["purged"] == 2
        one.came_to("S", 4)
        assert [stored[2] for stored, _ in one.contents("S").values()] == [b"2", b"3"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_origins_that_wait_for_acks_lose_nothing(server: Server, retention: str) -> None:
    with app(server) as one:
        one.create("O", subjects=["o"], retention=retention)
        one.create("S", sources=[{"name": "O"}])
        wait_until(lambda: one.info("O")["state"]["consumer_count"] == 1, "the consumer")
        for n in range(20):
            one.publish("o", b"%d" % n)
        one.came_to("S", 5)
    server.restart(kill=True)
    with app(server) as one:
        for n in range(20, 30):
            one.publish("o", b"%d" % n)
        one.came_to("S", 30)
        wait_until(lambda: one.info("O")["state"]["messages"] == 0, "all is acked")
        bodies = [int(stored[2]) for stored, _ in one.contents("S").values()]
        assert bodies == list(range(30))
        assert one.api("STREAM.DELETE.S")["success"]
        wait_until(lambda: one.info("O")["state"]["consumer_count"] == 0, "no consumer is left")


@pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])
def test_what_others_take_away_does_not_come_again(server: Server, kill: bool) -> None:
    """Nor is anything left out that the origin stored meanwhile."""
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("S", sources=[{"name": "O"}], retention="workqueue")
        for n in range(20):
            one.publish("o", b"%d" % n)
        one.came_to("S", 20)
        assert one.api("STREAM.PURGE.S")["purged"] == 20
        if kill:
            time.sleep(6)  # they are written down every five seconds
    server.restart(kill=kill)
    with app(server) as one:
        one.publish("o", b"20")
        one.came_to("S", 21)
        assert [int(stored[2]) for stored, _ in one.contents("S").values()] == [20]
        assert one.last("S") == 21


@pytest.mark.parametrize("forged", ["O 50 > > o", "O 18446744073709551615 > > o", "O 50"])
def test_what_others_write_says_nothing_of_a_source(server: Server, forged: str) -> None:
    """A client that may publish into it can write what its messages tell of their origin."""
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("S", subjects=["s"], sources=[{"name": "O"}])
        one.publish("o", b"0")
        one.came_to("S", 1)
        header = header_block(f"Nats-Stream-Source: {forged}")
        one.publish("s", b"forged", header)
    server.restart()
    with app(server) as one:
        one.publish("o", b"1")
        one.came_to("S", 3)
        assert [stored[2] for stored, _ in one.contents("S").values()] == [b"0", b"forged", b"1"]


def test_a_number_beyond_all_says_nothing_of_a_source(server: Server) -> None:
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("S", subjects=["s"], sources=[{"name": "O"}])
        one.publish("o", b"0")
        one.came_to("S", 1)
        for number in (2**61, 2**63 - 1, 2**64 - 2, 2**64 - 1, 2**64):
            header = header_block(f"Nats-Stream-Source: O {number} > > o")
            last = one.publish("s", b"forged", header)
    server.restart(kill=True)
    with app(server) as one:
        one.publish("o", b"1")
        one.came_to("S", last + 1)
        assert one.contents("S")[last + 1][0][2] == b"1"


ACCOUNTS = """
accounts {
    A {
        jetstream: enabled, users: [{ user: a, password: x }]
        exports [
            { service: "$JS.API.CONSUMER.>" }
            { service: "$JS.FC.>" }
            { stream: "deliver.>" }
        ]
    }
    B {
        jetstream: enabled, users: [{ user: b, password: x }]
        imports [
            { service: { account: A, subject: "$JS.API.CONSUMER.>" }, to: "a.api.CONSUMER.>" }
            { service: { account: A, subject: "$JS.FC.>" } }
            { stream: { account: A, subject: "deliver.>" } }
        ]
    }
}
"""
EXTERNAL = {"api": "a.api", "deliver": "deliver"}


def test_origins_of_another_account(servers: Servers) -> None:
    server = servers.under_test(config=ACCOUNTS, jetstream=True)
    with app(server, user="a", **{"pass": "x"}) as a, app(server, user="b", **{"pass": "x"}) as b:
        a.create("O", subjects=["o.*"])
        a.create("W", subjects=["w"], retention="workqueue")
        b.create("M", mirror={"name": "O", "external": EXTERNAL})
        b.create("S", sources=[{"name": "O", "filter_subject": "o.1", "external": EXTERNAL}])
        b.create("T", sources=[{"name": "W", "external": EXTERNAL}])
        for n in range(3000):
            a.raw.publish(f"o.{n % 2}", b"x" * 1000)
        a.publish("w", b"work")
        a.came_to("O", 3000)
        b.came_to("M", 3000)
        b.came_to("S", 1500)
        b.came_to("T", 1)
        assert b.info("M")["mirror"]["external"] == EXTERNAL
        assert b.info("M")["mirror"]["lag"] == 0
        wait_until(lambda: a.info("W")["state"]["messages"] == 0, "all is acked")


# ---- random histories


PURGES: list[dict[str, Any]] = [{"keep": 5}, {"filter": "o.2"}]


class History:
    """Publishes, deletes and purges of an origin, and ends of the server."""

    def __init__(self, server: Server, values: random.Random) -> None:
        self.server = server
        self.values = values
        self.sent: dict[int, Stored] = {}

    def publish(self, one: App) -> None:
        for _ in range(self.values.randrange(1, 60)):
            subject = f"o.{self.values.randrange(3)}"
            body = self.values.randbytes(self.values.choice([0, 5, 100, 3000]))
            header = b"NATS/1.0\r\nA: b\r\n\r\n" if self.values.random() < 0.4 else b""
            self.sent[one.publish(subject, body, header)] = subject, header, body

    def take_away(self, one: App) -> None:
        state = one.info("O")["state"]
        if self.values.random() < 0.3:
            one.api("STREAM.PURGE.O", **self.values.choice(PURGES))
        for _ in range(3):
            first, last = state["first_seq"], state["last_seq"]
            seq = self.values.randint(first, max(first, last, 1))  # all may be gone: first > last
            one.api("STREAM.MSG.DELETE.O", seq=seq)

    def run(self) -> None:
        for turn in range(6):
            with app(self.server) as one:
                for _ in range(self.values.randrange(1, 5)):
                    self.values.choice([self.publish, self.publish, self.take_away])(one)
                if turn % 2 and self.values.random() < 0.8:
                    self.burst(one)
                    self.server.restart(kill=True)
                elif turn % 2:
                    self.server.restart()

    def burst(self, one: App) -> None:
        """Publishes for whose acks nobody waits, of which the end of the server cuts some."""
        for n in range(self.values.randrange(3000)):
            one.raw.publish(f"o.{n % 3}", self.values.randbytes(self.values.choice([1, 200])))
        time.sleep(self.values.random() / 20)  # when it is killed


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_histories(server: Server, number: int) -> None:
    values = random.Random(SEED + number)
    print(f"SOURCES_SEED={SEED + number}")
    with app(server) as one:
        one.create("O", subjects=["o.*"])
        one.create("M", mirror={"name": "O"})
        both = [{"name": "O", "filter_subject": f"o.{n}"} for n in (0, 1)]
        one.create("S", sources=both)
        one.create("T", sources=[{"name": "M"}])
    history = History(server, values)
    history.run()
    with app(server) as one:
        last = one.publish("o.0", b"last")
        history.sent[last] = "o.0", b"", b"last"
        one.publish("o.1", b"last but one")
        history.sent[last + 1] = "o.1", b"", b"last but one"
        one.came_to("M", last + 1)
        there = {seq: stored for seq, (stored, _) in one.contents("O").items()}
        assert all(history.sent.get(seq, stored) == stored for seq, stored in there.items())
        mirror = {seq: stored for seq, (stored, _) in one.contents("M").items()}
        assert all(there.get(seq, stored) == stored for seq, stored in mirror.items())
        assert all(history.sent.get(seq, stored) == stored for seq, stored in mirror.items())
        assert there.keys() <= mirror.keys()

        def taken(stream: str, subject: str) -> list[Stored]:
            found = [stored for stored, _ in one.contents(stream).values()]
            return [stored for stored in found if subject in (">", stored[0])]

        def has_come(stream: str, subject: str, seq: int) -> bool:
            return max((origin_of(h) for _, h, _ in taken(stream, subject)), default=0) >= seq

        for stream, subject in (("S", "o.0"), ("S", "o.1"), ("T", ">")):
            wanted = [seq for seq, stored in there.items() if subject in (">", stored[0])]
            wait_until(partial(has_come, stream, subject, wanted[-1]), f"{subject} in {stream}", 30)
            check_source(there, taken(stream, subject), subject)


# ---- what others see and may do


def test_the_monitoring_page_shows_them(servers: Servers) -> None:
    server = servers.under_test(jetstream=True, monitor=True)
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("M", mirror={"name": "O"})
        one.create("S", sources=[{"name": "O"}])
        one.publish("o", b"x")
        one.came_to("M", 1)
        one.came_to("S", 1)
        query = "streams=1&consumers=1&direct-consumers=1&config=1"
        with urllib.request.urlopen(f"{server.monitor_url}/jsz?{query}") as page:
            details = json.load(page)["account_details"][0]["stream_detail"]
    of = {detail["name"]: detail for detail in details}
    assert of["M"]["mirror"]["name"] == of["S"]["sources"][0]["name"] == "O"
    made = of["O"]["direct_consumer_detail"]
    assert {c["name"].split("-")[0][:7] for c in made} == {"JS_MIRR", "JS_SRC_"}
    assert "consumer_detail" not in of["O"] and of["O"]["state"]["consumer_count"] == 0


def test_whoever_sends_to_a_mirror_makes_it_ask_for_nothing(servers: Servers) -> None:
    """A confirmation goes where flow control is heard, wherever a request for it wants it."""
    server = servers.under_test(jetstream=True, monitor=True)
    with app(server) as one:
        one.create("O", subjects=["o"])
        one.create("M", mirror={"name": "O"})
        one.publish("o", b"x")
        one.came_to("M", 1)
        query = "streams=1&consumers=1&direct-consumers=1&config=1"
        with urllib.request.urlopen(f"{server.monitor_url}/jsz?{query}") as page:
            details = json.load(page)["account_details"][0]["stream_detail"]
        made = next(d for d in details if d["name"] == "O")["direct_consumer_detail"][0]
        deliver = made["config"]["deliver_subject"]
        request = header_block(status="100 FlowControl Request")
        for reply in ("$JS.API.STREAM.DELETE.O", "$JS.FC.>", "told", "$JS.FCX"):
            one.raw.subscribe(reply)
            one.raw.publish(deliver, b"", header=request, reply=reply)
        forged = (f"$JS.ACK.O.{made['name']}.1.2.2.{n}.0" for n in ("x", 2**70, -1, ""))
        for reply in ("$JS.ACK.O.other.1.2.2.2.0", "$JS.ACK.O", "", *forged):
            one.raw.publish(deliver, b"forged", reply=reply)
        one.raw.sync()
        assert not one.raw.quiet(0.3)
        assert one.last("O") == 1 and one.last("M") == 1
        one.publish("o", b"y")
        one.came_to("M", 2)
        assert [stored[2] for stored, _ in one.contents("M").values()] == [b"x", b"y"]
