"""Changes that one connection asks for at once: answered in order and when they are on disk,
refused where that fails, and there after a kill if they were answered."""

import contextlib
import errno
import json
import random
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.client.raw import RawApp
from tests.fault.faulty import Faults
from tests.seeds import seed_of
from tests.servers import Server, Servers
from tests.waiting import wait_until

SEED = seed_of("AT_ONCE_SEED")
ROUNDS = 3
COUNT = 60

Requests = list[tuple[str, object]]


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path, "/store/jetstream/")


def publish(client: RawApp, requests: Requests) -> None:
    """All at once, the answers on `done.N`."""
    for number, (subject, body) in enumerate(requests):
        data = json.dumps(body).encode() if body is not None else b""
        client.publish(f"$JS.API.{subject}", data, reply=f"done.{number}")


def answers(client: RawApp, count: int) -> dict[int, dict[str, object]]:
    """By the number of the request, in the order in which they came."""
    frames = client.messages(count)
    return {int(f.subject.removeprefix("done.")): json.loads(f.payload) for f in frames}


def durable(name: str) -> dict[str, object]:
    config = {"durable_name": name, "ack_policy": "explicit"}
    return {"stream_name": "S", "config": config}


def creations(count: int) -> Requests:
    return [(f"CONSUMER.CREATE.S.c{n}", durable(f"c{n}")) for n in range(count)]


def deletions(count: int) -> Requests:
    return [(f"CONSUMER.DELETE.S.c{n}", None) for n in range(count)]


def stream_creations(count: int) -> Requests:
    return [
        (f"STREAM.CREATE.T{n}", {"name": f"T{n}", "subjects": [f"t{n}.>"]}) for n in range(count)
    ]


def stream_deletions(count: int) -> Requests:
    return [(f"STREAM.DELETE.T{n}", None) for n in range(count)]


def purges(count: int) -> Requests:
    return [("STREAM.PURGE.S", {"filter": f"s.{n}"}) for n in range(count)]


KINDS = {
    "consumers made": ([], creations(COUNT)),
    "consumers deleted": (creations(COUNT), deletions(COUNT)),
    "streams made": ([], stream_creations(COUNT)),
    "streams deleted": (stream_creations(COUNT), stream_deletions(COUNT)),
    "subjects purged": ([], purges(COUNT)),
}


def prepare(client: RawApp, requests: Requests) -> None:
    client.subscribe("done.*")
    assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    for number in range(COUNT):
        assert b'"seq"' in client.request(f"s.{number}", b"x").payload
    publish(client, requests)
    for answer in answers(client, len(requests)).values():
        assert "error" not in answer, answer


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_answered_before_it_is_on_disk_and_then_in_order(
    servers: Servers, faults: Faults, kind: str
) -> None:
    before, requests = KINDS[kind]
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port, timeout=30) as client, RawApp(server.port) as other:
        prepare(client, before)
        faults.fail("sync", 0, times=1 << 40, held=True)
        publish(client, requests)
        assert [f for f in client.quiet(1.0) if f.verb == "MSG"] == []
        assert other.request("$JS.API.STREAM.NAMES").payload, "others are heard meanwhile"
        faults.mend()
        found = answers(client, len(requests))
        assert all("error" not in answer for answer in found.values()), found
        assert list(found) == list(range(len(requests)))


@pytest.mark.parametrize("verb", ["CREATE", "DELETE"])
def test_only_those_are_refused_whose_files_the_disk_does_not_take(
    servers: Servers, faults: Faults, verb: str
) -> None:
    server = servers.under_test(jetstream=True, env=faults.env)
    pairs = [(stream, f"c{n}") for n in range(COUNT) for stream in ("GOOD", "BAD")]
    requests: dict[str, Requests] = {"CREATE": [], "DELETE": []}
    for stream, name in pairs:
        body = durable(name) | {"stream_name": stream}
        requests["CREATE"].append((f"CONSUMER.CREATE.{stream}.{name}", body))
        requests["DELETE"].append((f"CONSUMER.DELETE.{stream}.{name}", None))
    with RawApp(server.port, timeout=30) as client:
        client.subscribe("done.*")
        for stream in ("GOOD", "BAD"):
            assert "error" not in client.api(f"STREAM.CREATE.{stream}", {"name": stream})
        if verb == "DELETE":
            publish(client, requests["CREATE"])
            answers(client, len(pairs))
        faults.aim("/streams/BAD/")
        faults.fail("sync", errno.EIO, times=1 << 40)
        publish(client, requests[verb])
        found = answers(client, len(pairs))
        faults.mend()
    for number, (stream, _) in enumerate(pairs):
        assert ("error" in found[number]) == (stream == "BAD"), found[number]
    for _ in range(2):
        with RawApp(server.port) as client:
            for stream in ("GOOD", "BAD"):
                names = client.api(f"CONSUMER.NAMES.{stream}")["consumers"]
                assert isinstance(names, list)
                made = (stream == "GOOD") == (verb == "CREATE")
                assert len(names) == (COUNT if made else 0)
        server.restart(kill=True)


def there(client: RawApp) -> set[str]:
    """The names of all streams and of the consumers of S."""
    found: set[str] = set()
    for subject, field in (("STREAM.NAMES", "streams"), ("CONSUMER.NAMES.S", "consumers")):
        names = client.api(subject)[field]
        assert isinstance(names, list)
        found.update(names)
    return found


class Load(threading.Thread):
    """Asks for everything at once until the server is gone, and notes what was answered."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__()
        self.client = RawApp(server.port, timeout=30)
        self.client.subscribe("done.*")
        self.number = number
        self.asked: list[tuple[str, str]] = []
        """What is asked for, and of whom: make, remove, and a name of a consumer or stream, or
        purge and a subject."""
        self.answered: set[int] = set()

    def run(self) -> None:
        waiting = 0
        while True:
            while waiting < COUNT:
                self._ask()
                waiting += 1
            frame = self.client.frame()
            if frame.verb == "EOF":
                return
            if frame.verb == "MSG":
                assert b'"error"' not in frame.payload, frame
                self.answered.add(int(frame.subject.removeprefix("done.")))
                waiting -= 1

    def _ask(self) -> None:
        number = len(self.asked)
        step, turn = divmod(number, 5)
        name = f"r{self.number}n{step}"
        verb, what, subject, body = [
            ("make", name, f"CONSUMER.CREATE.S.{name}", durable(name)),
            ("make", f"T{name}", f"STREAM.CREATE.T{name}", {"name": f"T{name}"}),
            ("remove", name, f"CONSUMER.DELETE.S.{name}", None),
            ("remove", f"T{name}", f"STREAM.DELETE.T{name}", None),
            ("purge", f"s.{step}", "STREAM.PURGE.S", {"filter": f"s.{step}"}),
        ][turn]
        if verb == "remove" and step % 3:  # most of them stay
            verb, subject, body = "look", f"CONSUMER.NAMES.{'S' if turn == 2 else what}", None
        self.asked.append((verb, what))
        data = json.dumps(body).encode() if body is not None else b""
        with contextlib.suppress(OSError):  # it is gone, which the next frame says
            self.client.publish(f"$JS.API.{subject}", data, reply=f"done.{number}")


def check(server: Server, load: Load) -> None:
    """What was answered is so, and what was not asked for is not."""
    with RawApp(server.port, timeout=30) as client:
        names = there(client)
        subjects = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
        assert isinstance(subjects, dict)
        stored = set(subjects.get("subjects") or {})
    asked = {wanted: number for number, wanted in enumerate(load.asked)}
    for (verb, what), number in asked.items():
        answered = number in load.answered
        if verb == "make" and answered and ("remove", what) not in asked:
            assert what in names, f"{what} was made"
        if verb == "remove" and answered:
            assert what not in names, f"{what} was removed"
        if verb == "purge" and answered:
            assert what not in stored, f"{what} was purged"
    known = {what for verb, what in asked if verb == "make"}
    assert {name for name in names if f"r{load.number}n" in name} <= known


def has_answers(load: Load) -> bool:
    return bool(load.answered)


@pytest.mark.timeout(120)
def test_what_was_answered_is_there_after_a_kill(servers: Servers) -> None:
    chance = random.Random(SEED)
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        prepare(client, [])
    for number in range(ROUNDS):
        load = Load(server, number)
        load.start()
        wait_until(partial(has_answers, load), "the first answers")
        load.join(chance.uniform(0.0, 0.7))
        server.restart(kill=True)
        load.join(30)
        assert not load.is_alive() and load.answered
        try:
            check(server, load)
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, round {number}: {error}") from error


def test_a_stream_whose_disk_has_failed_can_be_removed(servers: Servers, faults: Faults) -> None:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port, timeout=30) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        faults.aim("/streams/S/msgs/")
        for operation in ("pwrite", "open"):  # it does not come back
            faults.fail(operation, errno.EIO, times=1 << 40)
        assert b'"error"' in client.request("s.x", b"x").payload
        assert client.api("STREAM.DELETE.S").get("success")
        faults.mend()
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        assert b'"error"' not in client.request("s.x", b"x").payload


def test_no_start_finds_what_was_refused_where_the_disk_takes_nothing_back(
    servers: Servers, faults: Faults
) -> None:
    """Whichever sync is the first of those that fail."""
    server = servers.under_test(jetstream=True, env=faults.env)
    made: set[str] = set()
    for number in range(10):
        with RawApp(server.port, timeout=30) as client:
            client.subscribe("done.*")
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            client.api("CONSUMER.CREATE.S.first", durable("first"))
            name = f"c{number}"
            config = {"durable_name": name, "deliver_policy": "last"}
            faults.aim("/streams/S/")
            faults.fail("sync", errno.EIO, after=number, times=1 << 40)
            client.publish("s.x", b"x", reply="done.0")
            body = json.dumps({"stream_name": "S", "config": config}).encode()
            client.publish(f"$JS.API.CONSUMER.CREATE.S.{name}", body, reply="done.1")
            if "error" not in answers(client, 2)[1]:
                made.add(name)
        server.kill()
        faults.mend()
        server.start()
        with RawApp(server.port) as client:
            names = client.api("CONSUMER.NAMES.S")["consumers"]
            assert isinstance(names, list)
            assert set(names) == made | {"first"}, number
    assert 0 < len(made) < 10


def test_a_stream_whose_disk_has_failed_hides_no_other_one_in_a_list(
    servers: Servers, faults: Faults
) -> None:
    server = servers.under_test(jetstream=True, env=faults.env)
    with RawApp(server.port, timeout=30) as client:
        for name in ("A", "B", "C"):
            config = {"name": name, "subjects": [f"{name}.>"]}
            assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
        faults.aim("/streams/B/msgs/")
        for operation in ("pwrite", "open"):  # it does not come back
            faults.fail(operation, errno.EIO, times=1 << 40)
        assert b'"error"' in client.request("B.x", b"x").payload
        # The refused publisher may hear of the failure before the list does, and the stream is
        # listed again while it is opened: all that is asserted is looked at in one answer.
        listed: dict[str, object] = {}

        def is_missing() -> bool:
            listed.clear()
            listed.update(client.api("STREAM.LIST"))
            return "missing" in listed

        wait_until(is_missing, "one is missing")
        assert "error" not in listed, listed
        streams = listed["streams"]
        assert isinstance(streams, list)
        assert [s["config"]["name"] for s in streams] == ["A", "C"]
        assert listed["total"] == 3 and listed["missing"] == ["B"]
        reason = "writing to disk failed: Input/output error"
        assert listed["offline"] == {"B": reason}
        faults.mend()
        wait_until(lambda: "missing" not in client.api("STREAM.LIST"), "the stream is back")
