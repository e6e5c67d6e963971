"""The sublist alone: `pytest bench/micro_sublist.py`. A round is BATCH operations."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.cext.core import PySublist

BATCH = 100_000
SIZES = [10_000, 1_000_000]


def filled(n: int) -> PySublist:
    """Half literals, a quarter each with a `*` inside and a `>` at the end, four words wide."""
    lst = PySublist()
    for i in range(n // 4):
        lst.insert(b"orders.%d.new" % i)
        lst.insert(b"_INBOX.%x" % (i * 7919))
        lst.insert(b"orders.%d.*.paid" % i)
        lst.insert(b"devices.%d.>" % i)
    return lst


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_subs")
def lst(request: pytest.FixtureRequest) -> PySublist:
    return filled(request.param)


def test_cached(benchmark: BenchmarkFixture, lst: PySublist) -> None:
    """One subject again and again."""
    assert benchmark(lst.count, b"orders.77.new", BATCH) == BATCH


def test_cached_thousand(benchmark: BenchmarkFixture, lst: PySublist) -> None:
    """A thousand subjects in turn, all of them in the cache."""
    subjects = [b"orders.%d.new" % (i % 1000) for i in range(BATCH)]
    lst.count_each(subjects)
    assert benchmark(lst.count_each, subjects) == BATCH


@pytest.mark.parametrize("kind", [b"_INBOX.%x", b"orders.%d.eu.paid", b"devices.%d.a.b.c"])
def test_uncached(benchmark: BenchmarkFixture, lst: PySublist, kind: bytes) -> None:
    """Subjects that come once in a while, each with one subscription."""
    n = int(lst.stats()["subs"]) // 4
    step = 7919 if kind.startswith(b"_INBOX") else 1
    subjects = [kind % (i * 31 % n * step) for i in range(BATCH)]
    assert benchmark(lst.count_each, subjects) == BATCH


def test_uncached_without_interest(benchmark: BenchmarkFixture, lst: PySublist) -> None:
    subjects = [b"nobody.%d.here" % i for i in range(BATCH)]
    assert benchmark(lst.count_each, subjects) == 0


@pytest.mark.parametrize("kind", [b"_INBOX.other.%d", b"orders.%d.*.other"])
def test_insert_and_remove(benchmark: BenchmarkFixture, lst: PySublist, kind: bytes) -> None:
    subjects = [kind % i for i in range(BATCH // 10)]

    def turn() -> None:
        numbers = [lst.insert(s) for s in subjects]
        for n in numbers:
            lst.remove(n)
        lst.gc()

    benchmark(turn)
