"""Messages with a life of their own, and markers in the place of a subject's last one."""

import pytest

from tests.unit.stream_world import (
    FILE,
    INTEREST,
    MS,
    NEW,
    SECOND,
    World,
    headers,
    refusal,
    seqs,
    stream_params,
)

MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n"


def ttl(value: object, **more: object) -> bytes:
    return headers(Nats_TTL=value, **more)


def left(world: World) -> list[int]:
    state = world.stream.state()
    stored = (world.stream.get(s) for s in range(state.first_seq, state.last_seq + 1))
    return [m.seq for m in stored if m is not None]


def allowing(**given) -> World:
    return World(allow_msg_ttl=True, **given)


def params(**given) -> object:
    return stream_params(allow_msg_ttl=True, **given)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 1), ("7", 7), ("1s", 1), ("1.9s", 1), ("1m30s", 90), ("2h", 7200), ("1000ms", 1)],
)
def test_each_spelling(value: str, seconds: int) -> None:
    w = allowing()
    assert w.publish(header=ttl(value)) == '{"stream":"S","seq":1}'
    w.env.advance(seconds * SECOND - MS)
    assert left(w) == [1]
    w.env.advance(300 * MS)
    assert left(w) == []


#: When something is stored, ms after a whole second: on the grid of a clock and off it.
OFFSETS = (0, 1, 3, 4, 100, 267, 268, 700, 999)


@pytest.mark.parametrize("marked", [False, True])
def test_each_leaves_within_five_milliseconds_of_its_time(marked: bool) -> None:
    w = allowing(allow_rollup_hdrs=True, subject_delete_marker_ttl=SECOND) if marked else allowing()
    for offset in OFFSETS:
        w.env.set_now(w.env.now // SECOND * SECOND + SECOND + offset * MS)
        w.publish(b"s.%d" % offset, b"x", ttl("1h" if offset == 999 else 2))
        w.env.advance(2 * SECOND - MS)
        assert w.last_for(b"s.%d" % offset).data == b"x"
        w.env.advance(6 * MS)
        last = w.stream.last_for(b"s.%d" % offset)
        if offset == 999:
            assert last is not None and last.data == b"x"
        elif marked:
            assert last is not None
            assert 0 <= last.ts % SECOND - offset * MS <= 5 * MS
        else:
            assert last is None


@pytest.mark.parametrize("value", ["never", "NEVER", "00"])
def test_what_never_ends(value: str) -> None:
    w = allowing()
    w.publish(header=ttl(value))
    w.env.advance(10**6 * SECOND)
    assert left(w) == [1]


@pytest.mark.parametrize("value", ["0", "-1", "0s", "999ms", "1d", "x", "1.5", "+5", "9" * 30])
def test_what_is_no_time(value: str) -> None:
    for w in (allowing(), World()):
        assert refusal(w.publish(header=ttl(value))) == 10165


@pytest.mark.parametrize("value", ["5", "1h", "never"])
def test_where_it_is_not_allowed(value: str) -> None:
    w = World()
    assert refusal(w.publish(header=ttl(value))) == 10166


def test_messages_leave_in_any_order() -> None:
    w = allowing()
    for seconds in (5, 1, 3, "never", 2, 4):
        w.publish(header=ttl(seconds))
    w.publish()
    gone = []
    for _ in range(6):
        before = left(w)
        w.env.advance(SECOND + 50 * MS)
        gone += [s for s in before if s not in left(w)]
    assert gone == [2, 5, 3, 6, 1]
    assert left(w) == [4, 7]


def test_the_earlier_of_age_and_ttl_counts_and_never_ages() -> None:
    w = allowing(max_age=3 * SECOND)
    w.publish(header=ttl(1))
    w.publish(header=ttl("never"))
    w.publish(header=ttl(100))
    w.publish()
    w.env.advance(2 * SECOND)
    assert left(w) == [2, 3, 4]
    w.publish()
    w.env.advance(1500 * MS)
    assert left(w) == [2, 5]
    w.env.advance(3 * SECOND)
    assert left(w) == [2]


def test_ages_change_with_the_configuration() -> None:
    w = allowing(max_age=100 * SECOND)
    w.publish(header=ttl("never"))
    w.publish()
    w.publish(header=ttl(50))
    w.env.advance(10 * SECOND)
    w.stream.update(params(max_age=5 * SECOND))
    w.env.run()
    assert left(w) == [1]
    w.publish()
    w.stream.update(params(max_age=0))
    w.env.advance(1000 * SECOND)
    assert left(w) == [1, 4]


def test_a_stream_that_allows_it_later_looks_at_what_it_has() -> None:
    """Nothing with a TTL comes in before, but a message that came from elsewhere may have one."""
    w = World(active=False)
    change = (1, 1, w.env.now, 0, 0, False, b"s.a", ttl(2), b"", b"")
    assert w.env.apply(w.stream, change) == 0
    w.stream.activate()
    w.env.advance(5 * SECOND)
    assert left(w) == [1]
    w.stream.update(params())
    w.env.run()
    assert left(w) == []


def test_consumers_do_not_wait_for_what_is_gone() -> None:
    w = allowing()
    w.publish(header=ttl(2))
    w.publish()
    consumer = w.consumer(ack_wait=60 * SECOND)
    assert seqs(w.pull(b"1")) == [1]
    w.publish(header=ttl(1))
    w.env.advance(3 * SECOND)
    state = consumer.state()
    assert (state.num_ack_pending, state.num_pending) == (0, 1)
    assert seqs(w.pull(b"5")) == [2]


# markers


def marked(**given) -> World:
    return allowing(allow_rollup_hdrs=True, subject_delete_marker_ttl=5 * SECOND, **given)


def test_a_marker_stands_for_the_last_message() -> None:
    w = marked()
    w.publish(b"s.a", header=ttl(5))
    w.publish(b"s.b")
    w.env.advance(5300 * MS)
    assert left(w) == [2, 3]
    m = w.message(3)
    assert (m.subject, m.headers, m.data) == (b"s.a", MARKER % b"5s", b"")
    w.env.advance(5300 * MS)
    assert left(w) == [2]


def test_a_marker_stands_only_for_the_last() -> None:
    w = marked(max_age=10 * SECOND)
    w.publish(b"s.a", header=ttl(5))
    w.publish(b"s.a", header=ttl("never"))
    w.publish(b"s.b")
    w.publish(b"s.b")
    w.env.advance(5300 * MS)
    assert left(w) == [2, 3, 4]
    w.env.advance(5000 * MS)
    assert left(w) == [2, 5]
    assert w.message(5).subject == b"s.b"


def test_a_purge_of_a_key_leaves_none() -> None:
    w = marked(max_age=10 * SECOND)
    w.publish(b"s.a", b"", headers(KV_Operation="PURGE", Nats_Rollup="sub"))
    w.publish(b"s.b", b"", headers(KV_Operation="PURGE", Nats_TTL=6))
    w.publish(b"s.c", b"", headers(KV_Operation="DEL"))
    w.env.advance(11 * SECOND)
    assert [w.message(s).subject for s in left(w)] == [b"s.c"]


def test_deletes_purges_and_limits_leave_none() -> None:
    w = marked(max_msgs=1)
    w.publish(b"s.a")
    w.publish(b"s.b")
    w.stream.delete(2, False)
    w.publish(b"s.c")
    w.stream.purge(b"s.c", 0, 0)
    assert left(w) == []


def test_a_short_life_becomes_as_long_as_a_markers() -> None:
    w = marked()
    w.publish(header=headers(A="b", Nats_TTL="1s", C="d"))
    w.publish(header=headers(Nats_TTL="6s"))
    w.publish(header=headers(Nats_TTL="never"))
    assert [w.message(s).headers for s in (1, 2, 3)] == [
        b"NATS/1.0\r\nA: b\r\nC: d\r\nNats-TTL: 5\r\n\r\n",
        headers(Nats_TTL="6s"),
        headers(Nats_TTL="never"),
    ]
    single = marked(max_msgs_per_subject=1)
    single.publish(header=headers(Nats_TTL="1s"))
    assert single.message(1).headers == headers(Nats_TTL="1s")


def test_a_marker_comes_into_a_full_stream() -> None:
    w = marked(max_msgs=2, discard=NEW)
    w.publish(b"s.a", header=ttl(5))
    w.publish(b"s.b")
    w.env.advance(5300 * MS)
    assert left(w) == [2, 3]


def test_without_interest_only_the_sequence_is_used() -> None:
    w = marked(retention=INTEREST)
    consumer = w.consumer(filters=(b"s.a",))
    w.publish(b"s.a", header=ttl(5))
    consumer.close(True)
    w.env.advance(6 * SECOND)
    assert left(w) == []


# restarts


def test_after_a_restart_each_leaves_in_its_time(tmp_path) -> None:
    w = kept(tmp_path)
    w.publish(b"s.a", header=ttl(5))
    w.publish(b"s.b", header=ttl(50))
    w.publish(b"s.c", header=ttl("never"))
    w.publish(b"s.d")
    w.stream.wait_durable()
    w.stream.close(False)
    w.env.advance(20 * SECOND)
    again = World(w.env, bytes(tmp_path), allow_msg_ttl=True, storage=FILE)
    again.env.run()
    assert left(again) == [2, 3, 4]
    again.env.advance(31 * SECOND)
    assert left(again) == [3, 4]
    again.stream.close(False)
    again.env.stop_commits()


def kept(path) -> World:
    w = World(directory=None, active=False)
    w.stream.close(False)
    env = w.env
    env.start_commits()
    return World(env, bytes(path), allow_msg_ttl=True, storage=FILE)


def test_what_expired_is_written_as_removed(tmp_path) -> None:
    """A start derives nothing: with a clock that is behind, what is gone stays gone."""
    w = kept(tmp_path)
    for seconds in (100, 2, 3, 200):
        w.publish(header=ttl(seconds))
    w.env.advance(4 * SECOND)
    assert left(w) == [1, 4]
    w.stream.wait_durable()
    w.stream.close(False)
    w.env.set_now(w.env.now - 3600 * SECOND)
    again = World(w.env, bytes(tmp_path), allow_msg_ttl=True, storage=FILE)
    again.env.run()
    assert left(again) == [1, 4]
    again.stream.close(False)
    again.env.stop_commits()


def test_a_clock_that_was_ahead_delays_nothing() -> None:
    w = allowing()
    right = w.env.now
    w.env.set_now(right + 10**6 * SECOND)
    w.publish(header=ttl(1))
    w.env.advance(2 * SECOND)
    assert left(w) == []
    w.env.set_now(right)
    w.publish(header=ttl(3))
    w.env.advance(4 * SECOND)
    assert left(w) == []


def test_a_truncation_forgets_what_it_takes() -> None:
    w = allowing()
    w.publish()
    w.publish(header=ttl(2))
    w.env.apply(w.stream, (6, 1, w.env.now, 0, 0, False, b"", b"", b"", b""))
    w.publish()
    w.env.advance(5 * SECOND)
    assert left(w) == [1, 2]


def test_replaced_messages_do_not_pile_up() -> None:
    """The wheel forgets what is gone when it has much more than there is."""
    w = allowing(max_msgs_per_subject=1)
    for _ in range(20_000):
        w.env.inject(b"s.a", b"", b"", ttl(3600))
    w.env.advance(3601 * SECOND)
    assert left(w) == []
