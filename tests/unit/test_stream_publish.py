"""Publishing into a stream: its checks in order, its acks, deduplication, limits and retention."""

import json

import pytest

from tests.unit.stream_world import (
    ACK_NONE,
    INTEREST,
    NEW,
    SECOND,
    WORKQUEUE,
    World,
    headers,
    stream_params,
)

LONGEST = 1 << 61  # ns: what durations that are longer are taken as


def error(answer):
    return json.loads(answer)["error"]


def test_an_ack_is_exactly_the_servers():
    w = World()
    assert w.publish() == '{"stream":"S","seq":1}'
    assert w.publish() == '{"stream":"S","seq":2}'
    assert w.stream.state().messages == 2


def test_an_ack_names_the_domain_and_escapes_names():
    w = World(place={"domain": b"hub"}, name=b'A"<b')
    assert w.publish() == '{"stream":"A\\"\\u003cb","domain":"hub","seq":1}'


def test_no_ack_without_reply_or_with_no_ack():
    w = World(no_ack=True, max_msg_size=5)
    assert w.publish() is None
    assert w.publish(data=b"too long") is None
    assert w.stream.state().messages == 1


def test_an_error_names_the_stream():
    w = World(max_msg_size=3)
    assert w.publish(data=b"1234") == (
        '{"error":{"code":400,"err_code":10054,'
        '"description":"message size exceeds maximum allowed"},'
        '"stream":"S","seq":0}'
    )


def test_duplicates_are_acked_with_the_first_sequence():
    w = World()
    assert w.publish(header=headers(Nats_Msg_Id="a")) == '{"stream":"S","seq":1}'
    w.publish()
    assert w.publish(header=headers(Nats_Msg_Id="a")) == '{"stream":"S","seq":1,"duplicate": true}'
    assert w.publish(header=headers(nats_msg_id="a")) == '{"stream":"S","seq":3}'
    assert w.stream.state().messages == 3


def test_ids_are_forgotten_after_the_window():
    w = World(duplicate_window=2 * SECOND)
    w.publish(header=headers(Nats_Msg_Id="a"))
    w.env.advance(SECOND)
    w.publish(header=headers(Nats_Msg_Id="b"))
    w.env.advance(SECOND + SECOND // 5)
    assert w.publish(header=headers(Nats_Msg_Id="a")) == '{"stream":"S","seq":3}'
    assert "duplicate" in w.publish(header=headers(Nats_Msg_Id="b"))
    w.env.advance(3 * SECOND)
    assert "duplicate" not in w.publish(header=headers(Nats_Msg_Id="a"))


def test_ids_are_forgotten_after_the_window_when_the_clock_is_set():
    """A clock that was ahead keeps no id until then, and one that is set ahead drops none."""
    w = World(duplicate_window=2 * SECOND)
    right = w.env.now
    w.env.set_now(right + 10**9 * SECOND)
    w.publish(header=headers(Nats_Msg_Id="a"))
    w.env.set_now(right)
    assert "duplicate" in w.publish(header=headers(Nats_Msg_Id="a"))
    w.env.advance(3 * SECOND)
    assert "duplicate" not in w.publish(header=headers(Nats_Msg_Id="a"))
    w.env.set_now(right + 10**9 * SECOND)
    w.env.advance(SECOND)
    assert "duplicate" in w.publish(header=headers(Nats_Msg_Id="a"))


@pytest.mark.parametrize("stored", [-(2**63), -SECOND, 2**63 - 1])
@pytest.mark.timeout(20)
def test_messages_of_any_time_age_and_their_ids_are_known(stored):
    """A clock or a file may give a message any time: it is too old, or will be."""
    for age in (SECOND, LONGEST):
        w = World(max_age=age, duplicate_window=age)
        right = w.env.now
        w.env.set_now(stored)
        w.publish(header=headers(Nats_Msg_Id="a"))
        w.env.set_now(right)
        w.publish(header=headers(Nats_Msg_Id="b"))
        assert "duplicate" in w.publish(header=headers(Nats_Msg_Id="b"))
        w.stream.update(stream_params(max_age=age, duplicate_window=age, max_msgs=9))
        w.env.advance(2 * SECOND)
        left = w.stream.state().messages
        if stored > 0:  # Nobody overtakes the first one.
            assert left == 2
        elif age == SECOND:
            assert left == 0
        else:
            assert left == (1 if stored < -LONGEST else 2)


def test_many_ids_expire_and_leave_nothing():
    w = World(duplicate_window=SECOND)
    for i in range(30_000):
        w.env.inject(b"s.a", b"", b"", headers(Nats_Msg_Id=i))
    assert "duplicate" in w.publish(header=headers(Nats_Msg_Id=29_999))
    w.env.advance(2 * SECOND)
    assert "duplicate" not in w.publish(header=headers(Nats_Msg_Id=29_999))


@pytest.mark.parametrize(
    ("header", "err_code", "text"),
    [
        (headers(Nats_Expected_Stream="X"), 10060, "expected stream does not match"),
        (headers(Nats_Expected_Last_Sequence=7), 10071, "wrong last sequence: 2"),
        (headers(Nats_Expected_Last_Sequence="x"), 10071, "wrong last sequence: 2"),
        (headers(Nats_Expected_Last_Subject_Sequence=2), 10071, "wrong last sequence: 1"),
        (
            headers(Nats_Expected_Last_Subject_Sequence_Subject="s.a"),
            10193,
            "missing sequence for expected last sequence per subject",
        ),
        (headers(Nats_Expected_Last_Msg_Id="zz"), 10070, "wrong last msg ID: two"),
        (headers(Nats_TTL="5"), 10166, "per-message TTL is disabled"),
        (headers(Nats_TTL="1d"), 10165, "invalid per-message TTL"),
        (headers(Nats_Incr="x"), 10171, "message counter increment is invalid"),
        (headers(Nats_Incr="+1"), 10168, "message counters is disabled"),
        (headers(Nats_Schedule="@every 1s"), 10188, "message schedules is disabled"),
        (headers(Nats_Scheduler="s.x"), 10212, "message schedules invalid scheduler"),
        (headers(Nats_Schedule_Next="purge"), 10212, "message schedules invalid scheduler"),
        (headers(Nats_Batch_Id="b"), 10174, "atomic publish is disabled"),
        (headers(Nats_Rollup="sub"), 10111, "rollup not permitted"),
    ],
)
def test_each_check_has_its_error(header, err_code, text):
    w = World()
    w.publish()
    w.publish(b"s.b", header=headers(Nats_Msg_Id="two"))
    e = error(w.publish(header=header))
    assert (e["err_code"], e["description"]) == (err_code, text)
    assert w.stream.state().last_seq == 2


def test_expectations_that_hold():
    w = World()
    assert "error" not in w.publish(header=headers(Nats_Expected_Last_Subject_Sequence=0))
    w.publish(b"s.b", header=headers(Nats_Msg_Id="id"))
    good = headers(
        Nats_Expected_Stream="S",
        Nats_Expected_Last_Sequence=2,
        Nats_Expected_Last_Msg_Id="id",
        Nats_Expected_Last_Subject_Sequence=2,
        Nats_Expected_Last_Subject_Sequence_Subject="s.*",
    )
    assert w.publish(header=good) == '{"stream":"S","seq":3}'
    assert "error" not in w.publish(header=headers(Nats_Expected_Last_Sequence=""))


def test_a_sealed_stream_takes_nothing():
    assert error(World(sealed=True).publish())["err_code"] == 10109


def test_fast_batches_are_refused():
    assert error(World().publish(reply=b"in.id.10.ok.1.0.$FI"))["err_code"] == 10205


def test_rollup_of_a_subject_and_of_all():
    w = World(allow_rollup_hdrs=True)
    for subject in (b"s.a", b"s.b", b"s.a", b"s.b"):
        w.publish(subject)
    w.publish(b"s.a", b"new", headers(Nats_Rollup="SUB"))
    assert w.stream.subjects(b">")[1] == {b"s.a": 1, b"s.b": 2}
    assert w.last_for(b"s.a").data == b"new"
    assert (
        'rollup value invalid: "zz"'
        in error(w.publish(header=headers(Nats_Rollup="zz")))["description"]
    )
    w.publish(b"s.c", b"only", headers(Nats_Rollup="all"))
    assert w.stream.subjects(b">")[1] == {b"s.c": 1}


def test_headers_are_stored_without_status_and_request_info():
    w = World()
    w.publish(header=b"NATS/1.0 503 x\r\nA: b\r\n\r\n")
    w.publish(header=b"NATS/1.0\r\n\r\n")
    w.publish(header=b"NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\nC: d\r\n\r\n")
    assert w.message(1).headers == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert w.message(2).headers == b"NATS/1.0\r\n\r\n"
    assert w.message(3).headers == b"NATS/1.0\r\nA: b\r\nC: d\r\n\r\n"
    w.publish(header=b"NATS/1.0 100\r\n\r\n")
    w.publish(header=b"not a header")
    assert [w.message(seq).headers for seq in (4, 5)] == [b"", b"not a header"]


def test_discard_new_refuses():
    w = World(discard=NEW, max_msgs=2)
    w.fill(2)
    e = error(w.publish())
    assert (e["code"], e["err_code"], e["description"]) == (503, 10077, "maximum messages exceeded")
    w = World(discard=NEW, max_bytes=100)
    assert "error" in w.publish(data=b"x" * 100)
    assert "maximum bytes exceeded" in w.publish(data=b"x" * 100)


def test_discard_new_replaces_at_the_limit_of_a_subject():
    w = World(discard=NEW, max_msgs=2, max_msgs_per_subject=1)
    w.publish(b"s.a")
    w.publish(b"s.b")
    assert w.publish(b"s.a") == '{"stream":"S","seq":3}'
    assert "maximum messages exceeded" in w.publish(b"s.c")
    w = World(
        discard=NEW, max_msgs_per_subject=1, discard_new_per_subject=True, allow_rollup_hdrs=True
    )
    w.publish(b"s.a")
    assert "maximum messages per subject exceeded" in w.publish(b"s.a")
    assert "error" not in w.publish(b"s.a", header=headers(Nats_Rollup="sub"))


def test_discard_old_trims():
    w = World(max_msgs=3)
    w.fill(5)
    st = w.stream.state()
    assert (st.messages, st.first_seq, st.last_seq) == (3, 3, 5)


def test_interest_without_consumers_uses_a_sequence_up():
    w = World(retention=INTEREST)
    assert w.publish(header=headers(Nats_Msg_Id="a")) == '{"stream":"S","seq":1}'
    assert w.stream.state().messages == 0
    assert w.stream.state().last_seq == 1
    assert w.publish(header=headers(Nats_Msg_Id="a")) == '{"stream":"S","seq":1,"duplicate": true}'


def test_an_interest_message_goes_with_its_last_ack():
    w = World(retention=INTEREST)
    w.consumer(name=b"A")
    w.consumer(name=b"B", filters=(b"s.a",))
    w.publish(b"s.a")
    w.publish(b"s.b")
    assert w.stream.state().messages == 2
    both = w.pull(b"2", b"A")
    w.ack(both[1])
    assert w.stream.get(2) is None and w.stream.get(1) is not None
    w.ack(both[0])
    assert w.stream.get(1) is not None
    w.ack(w.pull(b"1", b"B")[0])
    assert w.stream.state().messages == 0


def test_interest_ends_with_the_consumer():
    w = World(retention=INTEREST)
    a = w.consumer(name=b"A")
    b = w.consumer(name=b"B", filters=(b"s.a",))
    w.fill(3, b"s.a")
    w.fill(2, b"s.b")
    w.pull(b"2", b"A")
    a.close(True)
    assert w.stream.state().messages == 3
    b.close(True)
    assert w.stream.state().messages == 0


def test_a_late_consumer_claims_what_is_stored():
    w = World(retention=INTEREST)
    w.consumer(name=b"A")
    w.fill(2)
    w.consumer(name=b"B")
    for m in w.pull(b"2", b"A"):
        w.ack(m)
    assert w.stream.state().messages == 2
    for m in w.pull(b"2", b"B"):
        w.ack(m)
    assert w.stream.state().messages == 0


def test_ack_none_releases_on_delivery():
    w = World(retention=INTEREST)
    w.consumer(ack_policy=ACK_NONE)
    w.fill(3)
    w.pull(b"2")
    assert w.stream.state().messages == 1


def test_a_work_queue_message_goes_with_its_ack():
    w = World(retention=WORKQUEUE)
    w.consumer()
    w.fill(3)
    got = w.pull(b"3")
    w.ack(got[1])
    w.ack(got[0], b"+TERM")
    w.ack(got[2], b"-NAK")
    st = w.stream.state()
    assert (st.messages, st.first_seq) == (1, 3)


def test_limits_to_interest_removes_what_is_acked_and_keeps_what_nobody_wanted():
    w = World()
    w.consumer(filters=(b"s.a",))
    w.fill(2, b"s.a")
    w.fill(2, b"s.b")
    w.ack(w.pull(b"1")[0])
    w.stream.update(stream_params(retention=INTEREST))
    assert w.stream.state().messages == 3
    late = w.consumer(name=b"D")
    assert late.state().num_pending == 3


def test_many_messages_are_looked_through_in_turns():
    w = World()
    w.consumer(name=b"D", filters=(b"s.a",), ack_policy=ACK_NONE, max_ack_pending=-1)
    w.fill(30_000)
    assert len(w.pull(b"25000", b"D")) == 25_000
    w.stream.update(stream_params(retention=INTEREST))
    assert w.stream.state().messages > 5000
    w.env.run()
    assert w.stream.state().messages == 5000


def test_while_a_consumer_is_out_of_service_nothing_leaves():
    """Nobody knows what it needs."""
    w = World(active=False, retention=INTEREST)
    w.consumer()
    w.stream.activate(hold=True)
    w.fill(2)
    for m in w.pull(b"2"):
        w.ack(m)
    assert w.stream.state().messages == 2


def test_the_last_of_many_consumers_removes():
    w = World(retention=INTEREST)
    names = [b"C%d" % n for n in range(20)]
    for name in names:
        w.consumer(name=name, filters=(b"s.a", b"s.b") if name != b"C7" else ())
    w.fill(3)
    got = {name: w.pull(b"3", name) for name in names}
    for at in (1, 0, 2):
        before = w.stream.state().messages
        for _, name in sorted((hash((name, at)), name) for name in names):
            assert w.stream.state().messages == before
            w.ack(got[name][at])
        assert w.stream.state().messages == before - 1


LISTS = ["a b c d", "a b d", "a x b c d", "a b c d e", "e a b c d", "b a c d", "", "x y"]


@pytest.mark.parametrize("before", LISTS)
@pytest.mark.parametrize("after", LISTS)
def test_an_update_hears_each_of_its_subjects_once(before: str, after: str) -> None:
    """Those that both lists have, wherever they stand, too."""

    def heard() -> list[bytes]:
        return sorted(s for s in w.env.subscriptions if not s.startswith(b"$JS.API."))

    was, now = before.encode().split(), after.encode().split()
    w = World(subjects=was)
    assert heard() == sorted(was)
    for subjects in now, was, now:
        w.stream.update(stream_params(subjects=subjects))
        assert heard() == sorted(subjects)
    for subject in {*was, *now}:
        w.publish(subject)
    assert w.stream.state().messages == len(now)
    w.stream.close(delete=False)
    assert w.env.subscriptions == []


def test_update_moves_subscriptions():
    w = World()
    assert b"s.>" in w.env.subscriptions
    w.stream.update(stream_params(subjects=(b"t.*", b"u"), allow_direct=False))
    taken = [s for s in w.env.subscriptions if not s.startswith(b"$JS.API.")]
    assert taken == [b"t.*", b"u"]
    assert w.publish(b"u") == '{"stream":"S","seq":1}'
    w.stream.close(True)
    assert w.env.subscriptions == [] and w.env.timers == 0
