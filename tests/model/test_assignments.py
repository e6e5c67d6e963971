"""Assignments against replays of their changes, and what runs against the assignments: after any
changes, twice, and after an end between any two steps of one."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.assets import consumers, streams
from jsserver.assets.assignments import Assignments, ConsumerDecision, StreamDecision
from jsserver.assets.changes import (
    ConsumerChange,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PutConsumer,
    StreamChange,
    UpdateStream,
)
from jsserver.assets.limits import AccountLimits, Reservations, ServerSettings
from jsserver.assets.patterns import PatternIndex
from jsserver.cext.bytes import subjects_overlap
from jsserver.instances import metafiles
from jsserver.instances.account import Account
from jsserver.instances.backend import Accounts
from jsserver.instances.metafiles import MetaFiles
from jsserver.instances.recovery import recover
from jsserver.instances.running import Stream, encode_meta
from jsserver.instances.shared import Shared
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerAction, ConsumerConfig, StreamConfig
from tests.unit.api_server import stub_hash
from tests.unit.fake_backend import FakeAccount, FakeConsumer, FakeStream

T = TypeVar("T")
Change = StreamChange | ConsumerChange

LIMITS = AccountLimits(max_streams=2, max_storage=100, max_consumers=2)
SETTINGS = ServerSettings(server_name="srv", max_storage=90)
SUBJECTS = ("a", "b.*", "b.c", "c.>", "d")


#: What an update may not change is the name's, so that many updates are none of those refused.
KINDS: dict[str, dict[str, Any]] = {
    "A": {"storage": "file", "retention": "limits"},
    "B": {"storage": "file", "retention": "workqueue"},
    "C": {"storage": "memory", "retention": "limits"},
}
DURABLE = {"c": True, "d": False}


def stream_config(name: str, **options: Any) -> StreamConfig:
    asked = StreamConfig(name=name, **KINDS[name], **options)
    return streams.normalise(asked, streams.Terms(SETTINGS, LIMITS, False, lambda name: None))


def put_consumer(stream: str, name: str, action: ConsumerAction, **options: Any) -> PutConsumer:
    durable = name if DURABLE[name] else ""
    asked = ConsumerConfig(name=name, durable_name=durable, ack_policy="explicit", **options)
    config = consumers.normalise(asked, stream_config(stream), SETTINGS, LIMITS, False)
    return PutConsumer(stream, name, config, 0, action)


def drawn(random: Random) -> Change:
    """A change, more likely of the kinds that others need."""
    stream, consumer = random.choice("AAABBC"), random.choice("ccd")
    config = stream_config(
        stream,
        subjects=random.choice([["a"], ["a", "b.*"], ["b.c"], ["c.>", "d"], ["d"]]),
        max_bytes=random.choice([-1, -1, 20, 60]),
        description=random.choice(["", "x"]),
    )
    put = put_consumer(
        stream,
        consumer,
        random.choice(("", "", "", "create", "update")),
        filter_subject=random.choice(["a", "b.c", "c.>", ""]),
        description=random.choice(["", "x"]),
    )
    pause = PauseConsumer(stream, consumer, random.choice(["", "2101-01-01T00:00:00Z"]))
    create, update = CreateStream(config, 0), UpdateStream(config)
    deletes: list[Change] = [DeleteStream(stream), DeleteConsumer(stream, consumer)]
    delete = random.choice(deletes)
    kinds: list[Change] = [create, update, put, pause, delete]
    return random.choices(kinds, [3, 2, 6, 2, 2])[0]


def sequence(seed: int) -> list[Change]:
    random = Random(seed)
    return [drawn(random) for _ in range(random.randrange(30))]


# Not drawn one by one: of changes that know nothing of each other most would be refused.
changes = st.integers(0, 1 << 32).map(sequence)


def at(change: Change, number: int) -> Change:
    """The change with its place in the sequence as the time of what it makes."""
    if isinstance(change, CreateStream | PutConsumer):
        return msgspec.structs.replace(change, created=number)
    return change


def decided(assignments: Assignments, change: Change) -> StreamDecision | ConsumerDecision | None:
    """None: refused."""
    try:
        if isinstance(change, StreamChange):
            return assignments.propose(change)
        return assignments.propose(change)
    except ApiError:
        return None


def contents(assignments: Assignments) -> dict[str, object]:
    return {
        name: (stream.config, stream.created, dict(stream.consumers))
        for name, stream in assignments.streams.items()
    }


def claimed(index: PatternIndex, subject: str) -> int:
    """How often a subject is claimed; -1: something else is that overlaps with it."""
    count = 0
    with suppress(KeyError):
        while True:
            index.remove([subject])
            count += 1
    other = index.meets([subject])
    index.add([subject] * count)
    return -1 if other and not count else count


def claims(assignments: Assignments) -> object:
    """All that is counted and claimed, as others see it."""
    reserved = assignments.claims.reserved
    return (
        (reserved.streams, reserved.consumers, reserved.memory, reserved.storage),
        {s: claimed(assignments.claims.subjects, s) for s in SUBJECTS},
        {
            name: {s: claimed(stream.filters, s) for s in SUBJECTS}
            for name, stream in assignments.streams.items()
        },
    )


def fresh() -> Assignments:
    return Assignments(LIMITS, SETTINGS, Reservations())


def check_claims(assignments: Assignments) -> None:
    """Claims are those of what there is, whatever led to it."""
    again = fresh()
    for stream in assignments.streams.values():
        copy = type(stream)(stream.config, stream.created)
        copy.consumers = dict(stream.consumers)
        again.adopt(copy)
    assert claims(assignments) == claims(again)
    held = list(assignments.streams.values())
    for n, one in enumerate(held):
        for other in held[:n]:
            assert not any(
                subjects_overlap(a, b) for a in one.config.subjects for b in other.config.subjects
            )
    assert assignments.claims.reserved.storage <= 90


@given(changes, st.randoms(use_true_random=False))
def test_the_same_changes_give_the_same_assignments(todo: list[Change], random: Any) -> None:
    first, second = fresh(), fresh()
    log = []
    for number, change in enumerate(todo):
        change = at(change, number)
        before, claimed = contents(first), claims(first)
        decision = decided(first, change)
        if decision is None:
            assert (contents(first), claims(first)) == (before, claimed)
        elif decision.is_open and random.random() < 0.3:
            first.undo(decision)
            assert (contents(first), claims(first)) == (before, claimed)
        else:
            log.append(change)
            if decision.is_open:
                first.settle(decision)
        check_claims(first)
    for change in log:
        decision = decided(second, change)
        assert decision is not None
        if decision.is_open:
            second.settle(decision)
    assert contents(second) == contents(first) and claims(second) == claims(first)


@given(changes, changes)
def test_what_an_undo_brings_back_is_nobody_elses_meanwhile(
    todo: list[Change], others: list[Change]
) -> None:
    """While a decision is carried out, another stream gets neither what was nor what shall be."""
    assignments = fresh()
    for number, change in enumerate(todo):
        decision = decided(assignments, at(change, number))
        if decision is None or not decision.is_open:
            continue
        for other in others if isinstance(decision, StreamDecision) else []:
            if isinstance(other, CreateStream) and other.config.name != decision.name:
                another = decided(assignments, at(other, number))
                if another is not None and another.is_open:
                    assignments.settle(another)
        if number % 2:
            assignments.undo(decision)
        else:
            assignments.settle(decision)
        check_claims(assignments)


# ---- what runs -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The process has ended: nothing that comes after takes effect."""


class Steps:
    """Counts what reaches the disk or the data plane, and ends the process before one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None

    def step(self) -> None:
        if self.last is not None and self.count >= self.last:
            raise Killed
        self.count += 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in (
                (os, "fsync"),
                (os, "rename"),
                (Path, "mkdir"),
                (metafiles, "erase"),
                (FakeAccount, "open_stream"),
                (FakeStream, "activate"),
                (FakeStream, "update"),
                (FakeStream, "open_consumer"),
                (FakeStream, "close"),
                (FakeConsumer, "update"),
                (FakeConsumer, "pause"),
                (FakeConsumer, "close"),
            ):
                patch.setattr(owner, name, self._before(getattr(owner, name)))
            yield

    def _before(self, real: Callable[..., T]) -> Callable[..., T]:
        def call(*args: Any, **kwargs: Any) -> T:
            self.step()
            return real(*args, **kwargs)

        return call


class World:
    """An account over the fake data plane with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = FakeAccount()
        self.loop = asyncio.new_event_loop()
        self.start()

    def start(self) -> None:
        engine = FakeAccount()
        engine.disks = self.engine.disks
        self.engine = engine
        self.shared = Shared(cast(Accounts, {"$G": engine}), SETTINGS, stub_hash)
        self.account = Account("$G", self.shared, self.folder, LIMITS)
        self.run(recover(self.account))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def end(self) -> None:
        self.run(self.shared.close())

    def apply(self, change: Change) -> None:
        if isinstance(change, StreamChange):
            self.run(self.account.change_stream(change))
        else:
            self.run(self.account.change_consumer(change))

    def follow(self, wanted: Assignments) -> None:
        """Every stream becomes what it shall be, as of a member that learns of it afterwards."""
        for name in {*self.account.streams, *wanted.streams}:
            self.run(self.account.follow(name, wanted.streams.get(name)))
        self.run(self.shared.erased())

    def check(self, wanted: Assignments) -> None:
        """Runs and lies on disk as it shall."""
        files = MetaFiles(stub_hash)
        running = self.account.streams
        assert running.keys() == wanted.streams.keys()
        on_disk = set()
        for name, stream in wanted.streams.items():
            assert_stream(running[name], self.engine)
            if stream.config.storage == "file":
                directory = self.folder / "streams" / name
                on_disk.add(directory)
                assert files.read(directory, name, os.listdir(directory)) == encode_meta(stream)
                for consumer in stream.consumers.values():
                    place = directory / "obs" / consumer.name
                    asset, names = f"{name}/{consumer.name}", os.listdir(place)
                    assert files.read(place, asset, names) == encode_meta(consumer)
                kept = directory / "obs"
                found = {p.name for p in kept.iterdir()} if kept.exists() else set()
                assert found == stream.consumers.keys()
            assert running[name].config == stream.config
            assert running[name].created == stream.created
            served = {c.name: (c.config, c.created) for c in running[name].consumers.values()}
            assert served == {c.name: (c.config, c.created) for c in stream.consumers.values()}
        streams_folder = self.folder / "streams"
        there = set(streams_folder.iterdir()) if streams_folder.exists() else set()
        assert {p for p in there if not p.name.startswith(".")} == on_disk


def assert_stream(stream: Stream, engine: FakeAccount) -> None:
    """The data plane has what the configuration says."""
    handle = stream.handle
    assert isinstance(handle, FakeStream) and handle.active and handle.closed is None
    assert handle.config.subjects == stream.config.subjects
    for consumer in stream.consumers.values():
        assert isinstance(consumer.handle, FakeConsumer) and consumer.handle.closed is None
        assert consumer.handle.prepared.filters == consumers.filters(consumer.config)
        assert consumer.handle.paused_until == consumers.pause_time(consumer.config)


def decide_all(wanted: Assignments, todo: list[Change], since: int) -> None:
    for number, change in enumerate(todo):
        decision = decided(wanted, at(change, since + number))
        if decision is not None and decision.is_open:
            wanted.settle(decision)


@settings(max_examples=40, deadline=None)
@given(changes, changes)
def test_what_runs_is_what_shall_and_a_second_time_nothing_is_done(
    todo: list[Change], rest: list[Change]
) -> None:
    """What is decided here and carried out at once, then what others decided meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        world, wanted = World(Path(folder)), fresh()
        for number, change in enumerate(todo):
            change = at(change, number)
            decision = decided(wanted, change)
            if decision is None:
                with pytest.raises(ApiError):
                    world.apply(change)
                continue
            if decision.is_open:
                wanted.settle(decision)
            world.apply(change)
        assert contents(world.account.assignments) == contents(wanted)
        assert claims(world.account.assignments) == claims(wanted)
        world.check(wanted)
        decide_all(wanted, rest, len(todo))
        world.follow(wanted)
        world.check(wanted)
        steps = Steps()
        with steps.watched():
            world.follow(wanted)
        assert steps.count == 0
        world.end()


# What a work would still do when it is thrown away, the end of the process spares.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=60, deadline=None)
@given(changes, changes, st.integers(0, 60))
def test_an_end_between_any_two_steps_is_made_good(
    todo: list[Change], rest: list[Change], last: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, wanted = World(Path(folder)), fresh()
        decide_all(wanted, todo, 0)
        world.follow(wanted)
        decide_all(wanted, rest, len(todo))
        steps = Steps()
        steps.last = last
        try:
            with steps.watched():
                world.follow(wanted)
        except Killed:
            world.end()
            world.start()
            world.follow(wanted)
        world.check(wanted)
        world.end()
