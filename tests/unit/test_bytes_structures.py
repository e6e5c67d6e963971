"""Timers, tasks, tables and files against plain models."""

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.cext.bytes as jb

I64_MAX = 2**63 - 1


# ---- timers and tasks ----------------------------------------------------------------------------

timer_steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 39), st.integers(-50, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 39), st.just(0)),
        st.tuples(st.just("run"), st.integers(0, 10), st.integers(-50, 50)),
    ),
    max_size=120,
)


@given(timer_steps)
@settings(max_examples=300)
def test_timers_fire_by_deadline(steps: list[tuple[str, int, int]]) -> None:
    driver = jb.PyDriver(40)
    model: dict[int, int] = {}
    for step, a, b in steps:
        if step == "set":
            driver.set(a, b)
            model[a] = b
        elif step == "cancel":
            driver.cancel(a)
            model.pop(a, None)
        else:
            due = sorted(d for d in model.values() if d <= b)[:a]
            fired = driver.run(b, a)
            assert [model.pop(i) for i in fired] == due
        assert driver.next() == min(model.values(), default=I64_MAX)
        assert {i for i in range(40) if driver.is_set(i)} == set(model)


def test_many_timers() -> None:
    n = 10_000
    driver = jb.PyDriver(n)
    for i in range(n):
        driver.set(i, (i * 7919) % n)
    for i in range(0, n, 2):
        driver.cancel(i)
    fired = driver.run(n, n)
    assert sorted(fired) == list(range(1, n, 2))
    assert [(i * 7919) % n for i in fired] == sorted((i * 7919) % n for i in fired)
    assert driver.next() == I64_MAX


def test_a_timer_that_sets_itself_is_bounded_by_the_limit() -> None:
    driver = jb.PyDriver(2)
    driver.set(0, 10, again=5)
    driver.set(1, 12)
    assert driver.run(12, 10) == [0, 1]
    assert driver.next() == 17
    driver.set(0, 0, again=-1)
    assert driver.run(20, 6) == [0] * 6


def test_tasks_run_once_in_order_and_may_post() -> None:
    driver = jb.PyDriver(5)
    for i in (2, 0, 2, 1):
        driver.post(i)
    driver.unpost(0)
    driver.unpost(4)
    assert driver.run_tasks(10) == [2, 1]
    driver.post(0, posts=1)
    driver.post(3)
    assert driver.run_tasks(10) == [0, 3, 1]
    driver.post(4, posts=4)
    assert driver.run_tasks(7) == [4] * 7
    driver.unpost(4)
    assert driver.run_tasks(7) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60))
def test_tasks_posted_and_taken_back(steps: list[tuple[bool, int]]) -> None:
    driver = jb.PyDriver(8)
    model: list[int] = []
    for post, i in steps:
        if post:
            driver.post(i)
            if i not in model:
                model.append(i)
        else:
            driver.unpost(i)
            if i in model:
                model.remove(i)
    assert driver.run_tasks(3) == model[:3]
    assert driver.run_tasks(100) == model[3:]


# ---- tables --------------------------------------------------------------------------------------

verbs = st.sampled_from(["put", "put", "delete", "get"])
table_steps = st.lists(
    st.tuples(verbs, st.integers(1, 60), st.integers(1, 2**63)),
    max_size=200,
)


@given(table_steps)
def test_u64map(steps: list[tuple[str, int, int]]) -> None:
    table = jb.PyU64Map()
    model: dict[int, int] = {}
    for step, key, val in steps:
        if step == "put":
            table.put(key, val)
            model[key] = val
        elif step == "delete":
            assert table.delete(key) == (model.pop(key, None) is not None)
        assert table.get(key) == model.get(key)
        assert len(table) == len(model)
    assert table.items() == model


def test_u64map_refuses_zero_and_takes_the_largest() -> None:
    table = jb.PyU64Map()
    with pytest.raises(ValueError, match="key 0"):
        table.put(0, 1)
    assert table.get(0) is None and not table.delete(0)
    table.put(2**64 - 1, 2**64 - 1)
    assert table.get(0) is None and not table.delete(0)
    assert table.get(2**64 - 1) == 2**64 - 1


@given(st.integers(0, 2**32), st.sampled_from([700, 1600, 7000]))
@settings(max_examples=60, deadline=None)
def test_u64map_while_it_is_moved(seed: int, size: int) -> None:
    """Tables that are moved over in small steps, at every moment of their moves."""
    rng = random.Random(seed)
    table = jb.PyU64Map()
    model: dict[int, int] = {}
    moved = 0
    for _ in range(6):
        growing = rng.random() < 0.5
        for _ in range(rng.randrange(size)):
            key = rng.randrange(1, 2 * size)
            if rng.random() < (0.9 if growing else 0.05):
                table.put(key, key * 7)
                model[key] = key * 7
            else:
                key = rng.choice(list(model)) if model and rng.random() < 0.1 else key
                assert table.delete(key) == (model.pop(key, None) is not None)
            moved += table.moving > 0
            key = rng.randrange(1, 2 * size)
            assert table.get(key) == model.get(key)
            assert len(table) == len(model)
        assert table.items() == model
    assert moved or size < 1600 or len(model) < 2000


def test_u64map_grows_and_shrinks_in_small_steps() -> None:
    """No put or delete of a large table moves more than some slots of it."""
    table = jb.PyU64Map()
    n = 0
    while table.moving < 50_000:
        n += 1
        table.put(n, n + 1)
    left = table.moving
    for key in range(n + 1, n + 5001):
        table.put(key, key + 1)
        assert left - 64 <= table.moving < left
        left = table.moving
    assert table.items() == {key: key + 1 for key in range(1, n + 5001)}
    before = table.capacity
    keys = iter(range(1, n + 5001))
    while table.capacity == before:
        assert table.delete(next(keys))
    left = table.moving
    assert left > 50_000
    for key in list(keys)[:2000]:
        assert table.get(key) == key + 1
        assert table.delete(key)
        assert left - 64 <= table.moving < left
        left = table.moving


def test_u64map_gives_memory_back() -> None:
    table = jb.PyU64Map()
    for i in range(1, 100_001):
        table.put(i, i)
    assert table.capacity >= 100_000
    for i in range(1, 100_001):
        assert table.delete(i)
    assert len(table) == 0 and table.capacity <= 64


@given(table_steps)
def test_strmap(steps: list[tuple[str, int, int]]) -> None:
    table = jb.PyStrMap()
    model: dict[bytes, int] = {}
    for step, n, val in steps:
        key = b"k" * (n - 1)
        if step == "put":
            table.put(key, val)
            model[key] = val
        elif step == "delete":
            assert table.delete(key) == model.pop(key, 0)
        assert table.get(key) == model.get(key, 0)
        assert len(table) == len(model)


def test_strmap_gives_memory_back() -> None:
    table = jb.PyStrMap()
    for i in range(20_000):
        table.put(b"name-%d" % i, i + 1)
    assert all(table.get(b"name-%d" % i) == i + 1 for i in range(20_000))
    for i in range(20_000):
        assert table.delete(b"name-%d" % i) == i + 1
    assert len(table) == 0 and table.capacity <= 64


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_buffer(pieces: list[bytes]) -> None:
    buf = jb.PyBuffer()
    for p in pieces:
        buf.add(p)
    assert bytes(buf) == b"".join(pieces)


@pytest.mark.parametrize("more", [2**63 - 1, 2**63, 2**64 - 1])
def test_buffer_refuses_absurd_sizes_and_keeps_its_content(more: int) -> None:
    buf = jb.PyBuffer()
    buf.add(b"kept")
    with pytest.raises(MemoryError):
        buf.reserve(more)
    assert bytes(buf) == b"kept"


# ---- files ---------------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    files = jb.PyFiles()
    path = tmp_path / "a"
    fd = files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    assert not os.get_inheritable(fd)
    data = os.urandom(300_000)
    assert files.pwrite(fd, data, 5) == len(data)
    assert files.pwrite(fd, b"", 0) == 0
    assert files.size(fd) == len(data) + 5
    assert files.pread(fd, len(data) + 100, 5) == data  # short only at the end
    assert files.pread(fd, 10, 10**9) == b""
    files.datasync(fd)
    files.truncate(fd, 7)
    assert files.pread(fd, 100, 0) == b"\0" * 5 + data[:2]
    files.close(fd)
    files.rename(path, tmp_path / "b")
    files.sync_dir(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["b"]
    files.unlink(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_file_errors_are_errno(tmp_path: Path) -> None:
    files = jb.PyFiles()
    cases = [
        (errno.ENOENT, lambda: files.open(tmp_path / "none", os.O_RDONLY)),
        (errno.ENOENT, lambda: files.unlink(tmp_path / "none")),
        (errno.ENOENT, lambda: files.rename(tmp_path / "none", tmp_path / "x")),
        (errno.ENOENT, lambda: files.sync_dir(tmp_path / "none")),
        (errno.EBADF, lambda: files.close(-1)),
        (errno.EBADF, lambda: files.pwrite(-1, b"x", 0)),
        (errno.EBADF, lambda: files.pread(-1, 1, 0)),
        (errno.EBADF, lambda: files.datasync(-1)),
        (errno.EBADF, lambda: files.truncate(-1, 0)),
        (errno.EBADF, lambda: files.size(-1)),
        (errno.EINVAL, lambda: files.pwrite(0, b"x", -1)),
        (errno.EINVAL, lambda: files.pread(0, 1, -1)),
    ]
    for want, call in cases:
        with pytest.raises(OSError) as e:
            call()
        assert e.value.errno == want


def test_writing_past_the_size_limit_fails(tmp_path: Path) -> None:
    """A full device tells so: what was not written whole is an error, not a short count."""
    if not os.path.exists("/dev/full"):
        pytest.skip("/dev/full is missing")
    files = jb.PyFiles()
    fd = files.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError) as e:
        files.pwrite(fd, b"x" * 100, 0)
    assert e.value.errno == errno.ENOSPC
    files.close(fd)
