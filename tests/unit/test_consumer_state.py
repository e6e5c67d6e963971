"""Consumers on disk: answers after durability, restarts, kills, and the state's format."""

import os
import shutil

import pytest

from tests.unit.consumer_disk import Disk, settled, until
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_EXPLICIT,
    ACK_NONE,
    INTEREST,
    LAST_PER_SUBJECT,
    NEW_ONLY,
    SECOND,
    WORKQUEUE,
    World,
    seqs,
    tokens,
)


@pytest.fixture
def disk(tmp_path):
    d = Disk(tmp_path / "data")
    yield d
    for w in list(d.worlds):
        d.close(w)


def test_a_publish_is_acked_when_it_is_on_disk(disk):
    w = disk.open()
    for i in range(100):
        w.env.inject(b"s.a", b"%d" % i, b"ack")
    until(w, lambda: w.stream.state().messages == 100)
    w.env.inject(b"s.a", b"last", b"last")
    until(w, lambda: any(m[0] == b"last" for m in w.env.sent))
    assert [m[4] for m in w.env.take()][-1] == b'{"stream":"S","seq":101}'


def test_acks_come_in_order_and_duplicates_wait(disk):
    w = disk.open(consumers=(), held=True)
    header = b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n"
    w.env.inject(b"s.a", b"1", b"r1", header)
    w.env.inject(b"s.a", b"1", b"r2", header)
    w.env.inject(b"s.a", b"2", b"r3")
    w.env.run()
    w.env.poll()
    assert w.env.sent == []
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 3)
    assert [(m[0], m[4]) for m in w.env.take()] == [
        (b"r1", b'{"stream":"S","seq":1}'),
        (b"r2", b'{"stream":"S","seq":1,"duplicate": true}'),
        (b"r3", b'{"stream":"S","seq":2}'),
    ]


def test_a_clean_restart_keeps_everything(disk):
    w = disk.open()
    w.fill(10)
    got = w.pull(b"6")
    w.ack(got[0])
    w.ack(got[2])
    w.ack(got[4], b"-NAK")
    assert tokens(w.pull(b"1")[0])[:3] == (2, 5, 7)
    before = w.handles[0].state()
    disk.close(w)
    w = disk.open()
    after = w.handles[0].state()
    assert after._replace(delivered_ts=0, floor_ts=0) == before._replace(delivered_ts=0, floor_ts=0)
    assert tokens(w.pull(b"1")[0])[:3] == (1, 7, 8)
    w.env.advance(30 * SECOND)
    assert seqs(w.pull(b"9"))[:4] == [2, 4, 5, 6]


def test_pending_keeps_its_deadline_over_a_restart(disk):
    w = disk.open(consumers=({"ack_wait": 30 * SECOND},))
    w.fill(2)
    got = w.pull(b"2")
    w.env.advance(10 * SECOND)
    w.ack(got[1], b'-NAK {"delay":3000000000}')
    disk.close(w)
    w = disk.open(consumers=({"ack_wait": 30 * SECOND},))
    w.pull(b"9")
    w.env.advance(2 * SECOND)
    assert w.env.take() == []
    w.env.advance(2 * SECOND)
    assert [tokens(m)[:2] for m in w.env.take()] == [(2, 2)]
    w.env.advance(15 * SECOND)
    assert w.env.take() == []
    w.env.advance(3 * SECOND)
    assert [tokens(m)[:2] for m in w.env.take()] == [(2, 1)]


def test_what_was_delivered_just_before_a_restart_is_listed_and_released(disk):
    w = disk.open()
    w.fill(2)
    w.pull(b"2")
    disk.close(w)
    w = disk.open()
    assert [one.seq for one in w.handles[0].pending(0, 9, 0)] == [1, 2]
    assert w.handles[0].release([2], 0, b"") == [2]


def test_an_answered_ack_survives_a_kill(disk):
    w = disk.open()
    w.fill(5)
    got = w.pull(b"5")
    for m in (got[0], got[3]):
        w.env.take()
        w.env.inject(m[2], b"", b"inbox")
        until(w, lambda: len(w.env.sent) == 1)
    left = disk.killed(w, "killed")
    again = disk.open(left)
    s = again.handles[0].state()
    assert (s.num_ack_pending, s.floor_stream, s.delivered_stream) == (3, 1, 5)
    again.env.advance(30 * SECOND)
    assert seqs(again.pull(b"9")) == [2, 3, 5]


def test_a_nak_survives_a_kill(disk):
    w = disk.open()
    w.fill(3)
    got = w.pull(b"3")
    w.ack(got[1], b"-NAK")
    settled(w)
    again = disk.open(disk.killed(w, "killed"))
    again.env.advance(SECOND)  # the others wait for 30 s
    assert seqs(again.pull(b"9")) == [2, 4]  # and one came to settle it


def test_an_ack_is_answered_only_when_it_is_on_disk(disk):
    w = disk.open()
    w.fill(2)
    settled(w)
    disk.close(w)
    w = disk.open(held=True)
    (got,) = w.pull(b"1")
    w.env.inject(got[2], b"", b"inbox")
    w.env.run()
    w.env.poll()
    assert w.env.take() == []
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 1)
    assert w.env.take()[0][0] == b"inbox"


def test_where_a_purge_led_survives_a_kill(disk):
    w = disk.open()
    w.fill(5)
    w.pull(b"2")
    w.stream.purge(None, 4, 0)
    before = w.handles[0].state()
    assert (before.delivered_stream, before.floor_consumer, before.floor_stream) == (3, 2, 3)
    settled(w)
    after = disk.open(disk.killed(w, "killed")).handles[0].state()
    assert after[:2] + after[3:5] == before[:2] + before[3:5]
    assert (after.num_ack_pending, after.num_pending) == (0, 3)  # one came to settle it


@pytest.mark.parametrize(("keep", "left"), [(3, [6, 7, 8]), (0, [])])
def test_a_purge_of_what_is_not_acked_survives_a_kill(disk, keep, left):
    w = disk.open()
    w.fill(8)
    got = w.pull(b"8")
    w.ack(got[2])
    for n in (1, 6):
        w.ack(got[n], b"-NAK")
    assert seqs(w.pull(b"2")) == [2, 7]
    assert w.stream.purge(None, 0, keep) == 8 - keep
    before = w.handles[0].state()
    assert [one.seq for one in w.handles[0].pending(0, 100, 0)] == left
    assert before.num_redelivered == (7 in left)
    assert (before.floor_consumer, before.floor_stream) == ((5, 5) if left else (10, 8))
    settled(w)
    again = disk.open(disk.killed(w, "killed"))
    after = again.handles[0].state()
    assert after[:2] + after[3:5] == before[:2] + before[3:5]
    assert (after.num_ack_pending, after.num_redelivered) == (len(left), before.num_redelivered)


@pytest.mark.parametrize("policy", [ACK_NONE, ACK_ALL])
def test_other_policies_survive(disk, policy):
    w = disk.open(consumers=({"ack_policy": policy},))
    w.fill(5)
    got = w.pull(b"4")
    if policy == ACK_ALL:
        w.ack(got[1])
    settled(w)
    left = disk.killed(w, "killed")
    s = disk.open(left, consumers=({"ack_policy": policy},)).handles[0].state()
    assert (s.delivered_stream, s.num_ack_pending) == (4, 2 if policy == ACK_ALL else 0)
    assert s.floor_stream == (2 if policy == ACK_ALL else 4)


def test_a_work_queue_after_a_kill(disk):
    w = disk.open(retention=WORKQUEUE)
    w.fill(4)
    got = w.pull(b"3")
    w.env.inject(got[1][2], b"", b"inbox")
    until(w, lambda: len(w.env.sent) == 1)
    left = disk.killed(w, "killed")
    again = disk.open(left, retention=WORKQUEUE)
    assert again.stream.state().messages == 3 and again.stream.get(2) is None
    assert again.handles[0].state().num_ack_pending == 2


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_end_while_very_many_are_acked_at_once(disk, end):
    asked = ({"ack_policy": ACK_ALL, "max_ack_pending": -1},)
    w = disk.open(retention=WORKQUEUE, consumers=asked)
    w.fill(3000)
    got = w.pull(b"3000")
    settled(w)
    w.env.inject(got[2899][2], b"", b"", run=False)
    left = None
    if end == "closed":
        disk.close(w)
    else:
        settled(w)
        left = disk.killed(w, "killed")
    again = disk.open(left, retention=WORKQUEUE, consumers=asked)
    state = again.handles[0].state()
    assert again.stream.state().messages == state.num_ack_pending + state.num_pending
    waiting = state.num_ack_pending
    assert waiting == 100 if end == "closed" else 100 <= waiting < 3000


def test_interest_is_counted_anew(disk):
    both = ({"name": b"C"}, {"name": b"D", "filters": (b"s.a",)})
    w = disk.open(retention=INTEREST, consumers=both)
    w.fill(2, b"s.a")
    w.fill(1, b"s.b")
    w.ack(w.pull(b"1")[0])
    disk.close(w)
    w = disk.open(retention=INTEREST, consumers=both)
    assert w.stream.state().messages == 3
    for m in w.pull(b"2", b"D"):
        w.ack(m)
    assert w.stream.state().messages == 2
    for m in w.pull(b"2"):
        w.ack(m)
    assert w.stream.state().messages == 0


def test_last_per_subject_goes_on_after_a_restart(disk):
    w = disk.open(consumers=())
    for s in (b"s.a", b"s.b", b"s.a", b"s.c", b"s.b"):
        w.fill(1, s)
    disk.close(w)
    given = ({"deliver_policy": LAST_PER_SUBJECT, "filters": (b"s.*",), "ack_policy": ACK_NONE},)
    w = disk.open(consumers=given)
    assert seqs(w.pull(b"1")) == [3]
    disk.close(w)
    w = disk.open(consumers=given)
    w.fill(1)
    assert w.handles[0].state().num_pending == 3
    assert seqs(w.pull(b"9")) == [4, 5, 6]


def test_a_deleted_consumer_starts_anew_under_its_name(disk):
    w = disk.open()
    w.fill(3)
    w.pull(b"3")
    w.handles[0].close(True)
    w.handles[0] = w.consumer(str(disk.folder / "S" / "obs" / "C"))
    assert w.handles[0].state().num_pending == 3
    w.ack(w.pull(b"1")[0])
    disk.close(w)
    w = disk.open()
    assert w.handles[0].state().floor_stream == 1 and w.handles[0].state().num_pending == 2


def test_a_long_log_is_started_anew(disk):
    w = disk.open(consumers=({"max_ack_pending": -1},))
    w.fill(2000, b"s.a")
    for _ in range(150):
        got = w.pull(b"2000")
        assert len(got) == 2000
        for m in got:
            w.env.inject(m[2], b"-NAK")
        w.env.advance(SECOND)
    assert (disk.folder / "S" / "consumers.log").stat().st_size < 16 << 20
    w.ack(w.pull(b"1")[0])
    settled(w)
    left = disk.killed(w, "killed")
    again = disk.open(left, consumers=({"max_ack_pending": -1},))
    s = again.handles[0].state()
    assert (s.num_ack_pending, s.num_redelivered, s.floor_stream) == (1999, 1999, 1)


def test_the_state_in_nats_servers_format():
    w = World()
    c = w.consumer()
    assert c.encode_state() == bytes([22, 2, 0, 0, 0, 0, 0, 0])
    w.fill(3)
    got = w.pull(b"3")
    w.ack(got[0])
    state = c.encode_state()
    assert state[:6] == bytes([22, 2, 1, 1, 3, 3]) and state[6] == 2


def test_the_state_read_from_a_file(disk):
    w = disk.open(consumers=())
    w.fill(5)
    (disk.folder / "S" / "obs" / "C" / "o.dat").write_bytes(_state(w.env.now // SECOND))
    disk.now = w.env.now
    c = w.consumer(str(disk.folder / "S" / "obs" / "C"))
    s = c.state()
    assert (s.floor_consumer, s.floor_stream, s.delivered_consumer, s.delivered_stream) == (
        1,
        1,
        4,
        4,
    )
    assert (s.num_ack_pending, s.num_redelivered, s.num_pending) == (2, 1, 1)
    w.pull(b"9")
    w.env.advance(30 * SECOND)
    assert [tokens(m)[:2] for m in w.env.take()] == [(3, 2), (2, 4), (2, 5)]


def _state(now):
    """Floor 1/1, delivered 4/4, pending 2 and 4, message 2 delivered twice."""
    base = b""
    value = now << 1
    while value >= 0x80:
        base += bytes([value & 0x7F | 0x80])
        value >>= 7
    base += bytes([value])
    return bytes([22, 2, 1, 1, 4, 4, 2]) + base + bytes([1, 1, 0, 3, 3, 0]) + bytes([1, 1, 1])


@pytest.mark.parametrize(
    "bad", [b"x", b"\x16\x03\0\0\0\0\0\0", b"\x16\x02\x01", b"\x16\x02\0\0\0\0\xff\xff\x03\0"]
)
def test_a_damaged_state_starts_anew(disk, bad):
    w = disk.open(consumers=())
    w.fill(2)
    (disk.folder / "S" / "obs" / "C" / "o.dat").write_bytes(bad)
    c = w.consumer(str(disk.folder / "S" / "obs" / "C"))
    assert c.state().num_pending == 2 and seqs(w.pull(b"2")) == [1, 2]
    assert [e[0] for e in w.env.events] == [5] and b"damaged" in w.env.events[0][1][0]


def test_a_state_ahead_of_the_stream_is_pulled_back(disk):
    w = disk.open(consumers=())
    w.fill(2)
    (disk.folder / "S" / "obs" / "C" / "o.dat").write_bytes(_state(w.env.now // SECOND))
    c = w.consumer(str(disk.folder / "S" / "obs" / "C"))
    s = c.state()
    assert (s.delivered_stream, s.num_ack_pending, s.num_pending) == (2, 1, 0)
    w.pull(b"3")
    w.env.inject(b"s.a")
    w.stream.wait_durable()
    w.env.run()
    assert seqs(w.env.take()) == [3]


# ---- the state for nats-server -------------------------------------------------------------------


def state_file(disk, name="C"):
    return disk.folder / "S" / "obs" / name / "o.dat"


def numbers(w, of=0):
    return w.handles[of].state()._replace(delivered_ts=0, floor_ts=0)


def test_a_clean_stop_leaves_the_state_for_nats_server(disk):
    w = disk.open()
    w.fill(3)
    w.ack(w.pull(b"3")[0])
    settled(w)
    assert not state_file(disk).exists()
    want = w.handles[0].encode_state()
    disk.close(w)
    assert state_file(disk).read_bytes() == want
    assert [p.name for p in state_file(disk).parent.iterdir()] == ["o.dat"]
    before = state_file(disk).stat()
    disk.close(disk.open())  # nothing happened: it stays
    after = state_file(disk).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_the_log_is_newer_than_the_state_of_an_earlier_stop(disk):
    w = disk.open()
    w.fill(9)
    w.ack(w.pull(b"1")[0])
    disk.close(w)
    w = disk.open()
    for m in w.pull(b"4")[:3]:
        w.ack(m)
    settled(w)
    before = numbers(w)
    assert numbers(disk.open(disk.killed(w, "killed"))) == before
    again = disk.open(disk.killed(w, "again"))
    disk.close(again)
    assert numbers(disk.open(disk.folder.parent / "again")) == before


def test_a_state_that_nats_server_wrote_since_is_newer_than_the_log(disk):
    """Also where it delivered nothing, but acks came."""
    w = disk.open()
    w.fill(6)
    got = w.pull(b"4")
    disk.close(w)
    shutil.copy(state_file(disk), state_file(disk).with_name("kept"))
    w = disk.open()
    w.ack(got[0])
    w.ack(got[1])
    after = numbers(w)
    foreign = w.handles[0].encode_state()
    left = disk.killed(w, "stopped")
    disk.close(w)
    path = left / "S" / "obs" / "C" / "o.dat"
    path.write_bytes(foreign)
    assert numbers(disk.open(left)) == after


def test_a_state_written_by_a_stop_that_was_cut_short(disk):
    w = disk.open()
    w.fill(6)
    got = w.pull(b"4")
    settled(w)
    left = disk.killed(w, "left")  # the log does not know the file yet
    w.ack(got[0])
    after = numbers(w)
    disk.close(w)
    shutil.copy(state_file(disk), left / "S" / "obs" / "C" / "o.dat")
    assert numbers(disk.open(left)) == after


def test_a_state_whose_file_decayed_is_not_believed(disk):
    w = disk.open()
    w.fill(6)
    w.ack(w.pull(b"4")[0])
    before = numbers(w)
    disk.close(w)
    data = bytearray(state_file(disk).read_bytes())
    written = state_file(disk).stat()
    data[3] ^= 2
    state_file(disk).write_bytes(data)
    os.utime(state_file(disk), ns=(written.st_atime_ns, written.st_mtime_ns))
    w = disk.open()
    assert numbers(w) == before
    assert b"o.dat is damaged" in w.env.events[0][1][0]


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\x16\x02\x01"])
def test_a_state_of_nats_server_that_cannot_be_read(disk, data):
    w = disk.open()
    w.fill(6)
    w.ack(w.pull(b"4")[0])
    before = numbers(w)
    disk.close(w)
    state_file(disk).write_bytes(data)
    assert numbers(disk.open()) == before


def test_a_lost_log_leaves_the_state_of_the_last_stop(disk):
    w = disk.open()
    w.fill(6)
    w.ack(w.pull(b"4")[0])
    before = numbers(w)
    disk.close(w)
    (disk.folder / "S" / "consumers.log").unlink()
    assert numbers(disk.open()) == before


def test_many_states(disk):
    given = [{"name": b"C%d" % i} for i in range(40)]
    w = disk.open(consumers=given)
    w.fill(3)
    for c in given:
        w.ack(w.pull(b"2", c["name"])[0])
    before = [numbers(w, i) for i in range(40)]
    disk.close(w)
    assert all(state_file(disk, f"C{i}").exists() for i in range(40))
    (disk.folder / "S" / "consumers.log").unlink()
    w = disk.open(consumers=given)
    assert [numbers(w, i) for i in range(40)] == before


def test_a_state_that_cannot_be_written_keeps_nothing_from_stopping(disk, caplog):
    w = disk.open()
    w.fill(3)
    w.ack(w.pull(b"2")[0])
    before = numbers(w)
    (state_file(disk).parent / "o.dat.tmp").mkdir()
    disk.close(w)
    assert "o.dat" in caplog.text
    assert numbers(disk.open()) == before


# ---- acks of messages that were lost with their stream's end ------------------------------------


@pytest.mark.parametrize("policy", [ACK_EXPLICIT, ACK_ALL, ACK_NONE])
def test_a_floor_is_never_ahead_of_the_stream(disk, policy):
    """A power cut may leave consumers that know of messages which never became durable."""
    params = {"consumers": ({"ack_policy": policy}, {"name": b"N", "deliver_policy": NEW_ONLY})}
    w = disk.open(**params)
    w.fill(3)
    settled(w)
    left = disk.killed(w, "left")
    w.fill(5)
    last_one = {"name": b"L", "deliver_policy": NEW_ONLY}
    late = {"consumers": (*params["consumers"], last_one)}
    (disk.folder / "S" / "obs" / "L").mkdir()
    w.handles.append(w.consumer(str(disk.folder / "S" / "obs" / "L"), **last_one))
    got = w.pull(b"9")
    if policy != ACK_NONE:
        for m in got[:4] + got[5:6]:
            w.ack(m)
    settled(w)
    shutil.copy(disk.folder / "S" / "consumers.log", left / "S" / "consumers.log")
    w = disk.open(left, **late)
    last = w.stream.state().last_seq
    assert last == 4
    for handle in w.handles:
        state = handle.state()
        assert state.delivered_stream <= last and state.floor_stream <= last
        assert state.floor_consumer <= state.delivered_consumer
    w.fill(2)
    assert seqs(w.pull(b"9"))[-2:] == [5, 6]
    assert seqs(w.pull(b"9", b"L")) == [5, 6]
    assert w.handles[0].state().floor_stream == (6 if policy == ACK_NONE else 4)


@pytest.mark.parametrize("acked", [None, 0, 2])
def test_what_a_hole_in_the_log_held_is_delivered_again(disk, acked):
    """No message is missed because what stands behind the hole knows of later ones."""
    w = disk.open()
    w.fill(9)
    path = disk.folder / "S" / "consumers.log"
    entries = [path.stat().st_size]
    pulled = []
    for _ in range(3):
        pulled.append(w.pull(b"3"))
        settled(w)
        entries.append(path.stat().st_size)
    if acked is not None:  # one of those in the hole, or of those behind it
        w.ack(pulled[1 if acked == 0 else 2][acked])
        settled(w)
    left = disk.killed(w, "left")
    log = left / "S" / "consumers.log"
    data = bytearray(log.read_bytes())
    data[entries[1] : entries[2]] = bytes(entries[2] - entries[1])
    log.write_bytes(data)
    w = disk.open(left)
    w.env.advance(31 * SECOND)
    again = {seq for _ in range(9) for seq in seqs(w.pull(b"9"))}
    wanted = set(range(1, 10)) - {None: set(), 0: {4}, 2: {9}}[acked]
    assert {seq for seq in again if seq <= 9} == wanted
