"""The queue of API requests: order, turns, and what is dropped."""

from jsserver.api.queue import RequestQueue


def taken(queue: RequestQueue[str], count: int) -> list[str]:
    return [queue.take()[1] for _ in range(count)]


def test_connections_have_their_turns() -> None:
    queue: RequestQueue[str] = RequestQueue(100, 100, 50)
    for n in range(10):
        queue.put(1, f"a{n}", False)
    queue.put(2, "b0", True)
    queue.put(3, "c0", False)
    queue.put(3, "c1", True)
    assert taken(queue, 6) == ["a0", "b0", "c0", "a1", "c1", "a2"]
    assert taken(queue, 7) == [f"a{n}" for n in range(3, 10)]
    assert not queue


def test_one_connection_does_not_keep_all_busy() -> None:
    queue: RequestQueue[str] = RequestQueue(100, 100, 2)
    for n in range(5):
        queue.put(1, f"a{n}", False)
    assert taken(queue, 2) == ["a0", "a1"] and not queue
    queue.put(1, "a5", False)
    assert not queue
    queue.put(2, "b0", False)
    assert taken(queue, 1) == ["b0"] and not queue
    queue.done(1)
    assert taken(queue, 1) == ["a2"] and not queue
    for _ in range(2):
        queue.done(1)
    queue.done(2)
    assert taken(queue, 2) == ["a3", "a4"] and not queue
    queue.done(1)
    queue.done(1)
    assert taken(queue, 1) == ["a5"]
    queue.done(1)
    assert not queue


def test_whose_requests_are_all_begun_waits_with_the_next_one() -> None:
    queue: RequestQueue[str] = RequestQueue(100, 100, 2)
    for n in range(2):
        queue.put(1, f"a{n}", False)
    assert taken(queue, 2) == ["a0", "a1"]
    queue.put(1, "a2", False)
    assert not queue
    queue.done(1)
    assert taken(queue, 1) == ["a2"]


def test_too_many_are_dropped_where_most_wait() -> None:
    queue: RequestQueue[str] = RequestQueue(5, 3, 50)
    assert not queue.put(9, "own", False)
    for n in range(3):
        assert not queue.put(1, f"look{n}", True)
    assert not queue.put(1, "made", False)
    assert queue.put(2, "late", True) == ["look0", "look1", "look2"]
    assert taken(queue, 3) == ["own", "made", "late"]
    for n in range(5):
        assert not queue.put(3, str(n), False)
    assert queue.put(4, "more", False) == list("01234")
    assert taken(queue, 1) == ["more"] and not queue
    assert not queue.put(3, "again", False)
    assert taken(queue, 1) == ["again"] and not queue


def test_one_that_waits_aside_leaves_its_place_to_the_next() -> None:
    queue: RequestQueue[str] = RequestQueue(100, 100, 2)
    for n in range(6):
        queue.put(1, f"a{n}", False)
    assert taken(queue, 2) == ["a0", "a1"] and not queue
    queue.done(1)  # a0 and a1 wait aside
    queue.done(1)
    assert taken(queue, 2) == ["a2", "a3"] and not queue
    queue.again(1)
    queue.again(1)
    queue.done(1)
    queue.done(1)
    assert not queue, "two are in progress again"
    queue.done(1)
    assert taken(queue, 1) == ["a4"] and not queue
