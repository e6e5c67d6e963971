"""Power cuts at moments that histories met: each for many disks, which keep different things."""

import random
from collections.abc import Iterator

import pytest

from tests.cext.stream import open_test_stream
from tests.sim.disk import messages
from tests.sim.life import DISKS, STORE_ERROR, Life
from tests.unit.stream_world import (
    FILE,
    SECOND,
    WORKQUEUE,
    headers,
    stream_params,
)


@pytest.fixture(params=DISKS)
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


def test_a_purge_of_whole_blocks_right_after_a_start_stays(seed: int) -> None:
    life = Life(seed, max_msgs=200)
    for _ in range(19):
        life.publish(bytes(3000))
    life.commit()
    life.stream.delete(19, False)  # so that the last block can be purged whole
    life.commit()
    life.stop()
    life.start()
    life.stream.purge(None, 19, 0)
    life.commit()
    life.cut()
    assert messages(life.stream) == {}
    assert life.stream.state().last_seq >= 19


def test_what_limits_removed_at_a_start_stays_when_its_first_group_is_cut(seed: int) -> None:
    """That group's deletes bring the rest within the limits, which then remove nothing."""
    life = Life(seed)
    for _ in range(15):
        life.publish(bytes(3000))
    life.commit()
    life.params["max_msgs"] = 10  # an update that a kill interrupted
    life.cut()
    served = set(messages(life.stream))
    assert served == set(range(6, 16))
    for seq in range(6, 13):
        life.stream.delete(seq, False)
    for _ in range(10):
        life.publish(bytes(3000))
    life.cut(seed % 10)
    assert {seq for seq in messages(life.stream) if seq <= 15} <= served


def test_what_a_cut_left_of_a_group_is_not_reported_as_lost(seed: int) -> None:
    """Neither by the next start nor when other blocks follow."""
    life = Life(seed)
    life.publish()
    life.commit()
    for _ in range(12):
        life.publish(b"y" * 700)
    life.cut(1 + seed % 3)
    assert life.stream.lost().sequences == []
    for _ in range(3):
        life.publish(b"z" * 700)
        life.commit()
        life.cut()
        assert life.stream.lost().sequences == []


def test_what_a_start_left_of_a_torn_group_is_not_reported(seed: int) -> None:
    """It is cut short itself, after it cut off an end that a later block may stand behind."""
    rng = random.Random(2 * seed)
    # Of disks that keep sectors whole: part of one may look as if somebody had changed a payload.
    life = Life(2 * seed, together=True, max_msgs=60, max_msgs_per_subject=1)
    life.publish(bytes(60))
    life.commit()
    for _ in range(3):
        for _ in range(6):
            life.publish(bytes(rng.choice([60, 300, 300, 2000, 9000])), b"s.%d" % rng.randrange(3))
        life.cut_twice(rng.choice([1, 2, 3, 4, 5]))
        assert life.stream.lost().sequences == []
        for _ in range(2):
            life.publish(bytes(60), b"s.9")
            life.cut(rng.choice([1, 2, 3, 4, 5, 6]))
            assert life.stream.lost().sequences == []


def test_what_aged_does_not_come_back_when_the_age_is_raised(seed: int) -> None:
    life = Life(seed, max_age=3 * SECOND)
    life.publish()
    life.publish()
    life.commit()
    life.env.advance(4 * SECOND)  # gone, and noted at the end of an idle group
    life.commit()
    life.env.advance(SECOND)
    life.commit()
    life.update(max_age=0)
    life.commit()  # the update is answered
    life.cut()
    assert messages(life.stream) == {}


def test_what_aged_since_the_last_stop_is_not_missed(seed: int) -> None:
    life = Life(seed, max_age=3 * SECOND)
    life.publish()
    life.publish()
    life.commit()
    life.stop()
    life.start()
    life.env.advance(4 * SECOND)
    life.commit()
    life.env.advance(SECOND)
    life.commit()
    life.cut()
    assert life.stream.lost().damage == 0


def test_sequences_left_out_after_a_cut_stay_so_when_a_write_fails(seed: int) -> None:
    life = Life(seed)
    life.publish(bytes(2000))
    life.publish(bytes(2000))
    life.cut(6)
    last = life.stream.state().last_seq
    life.publish()
    life.disk.fail("sync", 5)
    life.commit()
    life.stream.reopen()
    assert life.stream.state().last_seq >= last


def test_a_torn_erasure_costs_no_removal_of_its_group(seed: int) -> None:
    life = Life(seed, max_msgs_per_subject=1)
    for _ in range(3):
        life.publish(bytes(2000))
    life.stream.delete(3, True)
    life.commit()
    life.cut()
    assert messages(life.stream) == {}
    assert life.stream.lost().damage == 0


def with_a_full_block(seed: int, count: int = 10, size: int = 2700) -> Life:
    """A life whose first block has hardly room for more, and messages 1 and the last one."""
    life = Life(seed, max_msgs=60, max_msgs_per_subject=1)  # blocks of 32,000 bytes
    life.publish(subject=b"s.b")
    for _ in range(count):
        life.publish(bytes(size))  # each removes the one before
    life.commit()
    return life


def test_a_torn_erasure_in_a_closed_block_costs_no_removal(seed: int) -> None:
    life = with_a_full_block(seed)
    life.publish(bytes(9000), b"s.c")  # does not fit
    life.stream.delete(11, True)
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == {1, 12}
    assert life.stream.lost().sequences == []


def test_a_torn_erasure_in_a_block_that_could_not_be_closed_costs_no_removal(seed: int) -> None:
    life = with_a_full_block(seed)
    life.publish(bytes(9000), b"s.c")  # does not fit
    life.disk.fail("write", 5, 1)  # of the marker that closes the block
    life.commit()
    life.disk.mend()
    life.stream.delete(11, True)
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == {1, 12}
    assert life.stream.lost().sequences == []


def test_a_torn_erasure_in_a_block_of_an_earlier_life_costs_no_removal(seed: int) -> None:
    life = with_a_full_block(seed, 11, 2750)
    life.cut()  # there is no room in that block for more
    life.publish(bytes(9000), b"s.c")
    life.stream.delete(12, True)
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == {1, 13}
    assert life.stream.lost().sequences == []


def test_a_torn_erasure_at_the_head_of_a_block_costs_nothing_of_the_block_before(seed: int) -> None:
    """That is gone, and what it had is known by nothing but this block's first record."""
    life = Life(seed, max_msgs=60)  # blocks of 32,000 bytes
    for _ in range(7):  # two in each block
        life.publish(bytes(14_000))
    life.stream.delete(3, False)
    life.stream.delete(4, False)
    for _ in range(3):
        life.publish(bytes(14_000))
    life.commit()
    life.stream.delete(7, False)
    life.stream.delete(8, False)
    life.commit()  # with the fourth block the tombstones of the second one go
    assert {b"2.blk", b"4.blk"}.isdisjoint(life.disk.names(b"/S/msgs"))
    life.stream.delete(5, True)  # its tombstone stands in the last block
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == {1, 2, 6, 9, 10}
    assert life.stream.lost().sequences == []


@pytest.mark.parametrize("before", [False, True])
def test_a_torn_erasure_in_a_block_that_could_not_be_synced_costs_no_removal(
    seed: int, before: bool
) -> None:
    """A sync that failed once says nothing when it is made again."""
    life = with_a_full_block(seed)
    life.publish(bytes(9000), b"s.c")  # does not fit
    life.commit()
    if before:  # for the block's sidecar
        life.disk.fail("sync", 5)
        life.disk.upkeep(life.env)
    else:  # for the erasure itself
        life.disk.fail("sync", 5, 1)
    life.stream.delete(11, True)
    life.commit()
    life.disk.mend()
    life.cut()
    assert set(messages(life.stream)) == {1, 12}
    assert life.stream.lost().sequences == []


def test_a_stream_whose_first_group_fails_while_it_is_opened_hears_of_it() -> None:
    life = Life(1)
    for _ in range(15):
        life.publish(bytes(300))
    life.stop()
    life.params["max_msgs"] = 10  # what that removes is written at the start
    life.disk.fail("write", 5)
    life.start()
    life.commit()
    assert any(event[0] == STORE_ERROR for event in life.env.events)
    life.stream.reopen()
    life.stream.resume()
    life.publish()
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == set(range(7, 17))


@pytest.mark.parametrize("calls", range(1, 9))
def test_what_is_kept_of_a_torn_group_stays_so_when_the_next_one_is_torn(
    seed: int, calls: int
) -> None:
    life = Life(seed, max_msgs_per_subject=1)
    life.publish(bytes(300))
    life.commit()
    for _ in range(3):
        life.publish(bytes(300))
    life.cut(calls)
    kept = set(messages(life.stream))
    last = life.stream.state().last_seq
    for number in range(12):
        life.publish(bytes(200), b"s.%d" % number)
    life.cut(calls)
    assert {seq for seq in messages(life.stream) if seq <= last} == kept


def test_a_marker_that_a_cut_tears_at_the_end_of_a_closed_block_is_no_damage(seed: int) -> None:
    life = Life(seed, max_msgs=60)  # blocks of 32,000 bytes
    for size in (9000, 9000, 9000, 3946):
        life.publish(bytes(size))
    life.commit()
    life.publish(bytes(9000))  # in the next block: the marker that closes this one is not synced
    life.commit()
    life.cut()
    assert set(messages(life.stream)) == {1, 2, 3, 4, 5}
    assert life.stream.lost().damage == 0


@pytest.mark.parametrize("calls", range(1, 9))
def test_no_message_is_passed_over_for_a_rollup_that_is_not_there(seed: int, calls: int) -> None:
    life = Life(seed)
    for _ in range(5):
        life.publish()
    life.commit()
    assert life.pull(2) == [1, 2]
    life.env.advance(SECOND)
    life.commit()
    life.publish(header=headers(Nats_Rollup="all"))
    life.stream.purge(b"s.a", 6, 0)
    life.env.advance(SECOND)
    life.cut(calls)
    live = set(messages(life.stream))
    life.env.advance(31 * SECOND)
    assert live <= set(life.pull())


@pytest.mark.parametrize("calls", range(1, 6))
def test_no_message_is_passed_over_for_a_delete_that_is_not_there(seed: int, calls: int) -> None:
    life = Life(seed, retention=WORKQUEUE)
    for _ in range(3):
        life.publish()
    life.commit()
    life.stream.delete(1, False)
    assert life.pull(1) == [2]
    life.cut(calls)
    live = set(messages(life.stream))
    life.env.advance(31 * SECOND)
    assert live <= set(life.pull())


def test_a_block_of_which_nothing_arrived_leaves_the_one_before_as_it_is(seed: int) -> None:
    life = Life(seed, max_msgs=60)  # blocks of 32,000 bytes
    for _ in range(8):
        life.publish(bytes(2800))
    life.commit()
    life.publish(bytes(9000))  # does not fit
    life.cut(5)
    assert set(range(1, 9)) <= set(messages(life.stream))
    life.publish()
    life.commit()
    life.cut()
    assert max(messages(life.stream)) > 8


@pytest.mark.parametrize("calls", range(12))
def test_a_stream_that_is_cut_before_its_first_ack_leaves_no_sequence_out(
    seed: int, calls: int
) -> None:
    life = Life(seed)
    life.publish()
    life.cut(calls)
    kept = len(messages(life.stream))
    life.publish()
    life.commit()
    assert list(messages(life.stream)) == list(range(1, kept + 2))


@pytest.mark.parametrize("calls", range(2))
def test_a_cache_that_cannot_be_removed_is_not_believed_later(seed: int, calls: int) -> None:
    life = Life(seed, max_age=3 * SECOND)
    life.publish()
    life.commit()
    life.stop()
    life.start()
    life.disk.fail("unlink", 5, calls)
    life.publish()
    life.commit()
    life.disk.mend()
    life.stream.reopen()
    life.stream.resume()
    life.publish()
    life.commit()
    life.env.advance(4 * SECOND)
    life.commit()
    life.env.advance(SECOND)
    life.commit()
    life.cut()
    assert messages(life.stream) == {}
    assert life.stream.lost().sequences == []


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("opens", range(3))
def test_a_first_message_is_stored_though_descriptors_ran_out(seed: int, opens: int) -> None:
    life = Life(seed)
    life.publish()
    life.disk.fail("open", 24, opens)  # EMFILE
    life.commit()
    assert life.env.events == []  # no error of the disk
    life.cut()
    assert set(messages(life.stream)) == {1}


@pytest.mark.parametrize("seed", DISKS)
def test_an_ack_stays_though_the_last_stop_was_just_before(seed: int) -> None:
    """The state that a stop leaves for nats-server replaces an older one for good."""
    life = Life(seed)
    for _ in range(3):
        life.publish()
    life.commit()
    life.stop()
    life.start()
    seqs = life.pull()
    assert seqs == [1, 2, 3]
    life.ack(1)
    life.commit()
    life.stop()
    state = life.disk.read(b"/S/obs/C/o.dat")
    life.disk.cut()
    assert life.disk.read(b"/S/obs/C/o.dat") == state
    life.start()
    assert life.consumer.state().floor_stream == 1


@pytest.mark.timeout(60)
def test_a_block_that_is_sealed_while_its_stream_is_opened_gets_one_sidecar() -> None:
    """Listed twice, it made the closing of another stream go round for ever."""
    life = Life(1, max_bytes=127_000)  # blocks of 32,000 bytes
    life.publish(subject=b"s.b")
    for _ in range(200):
        life.publish(bytes(100))
    life.commit()
    life.params["max_msgs_per_subject"] = 1
    life.cut()
    for path in (b"/T", b"/T/obs"):
        life.disk.mkdir(path)
    other = open_test_stream(life.env, stream_params(name=b"T", storage=FILE), b"/T")
    other.close(False)
    life.disk.upkeep(life.env)
    assert any(name.endswith(b".jsx") for name in life.disk.names(b"/S/msgs"))


@pytest.mark.parametrize("calls", range(16))
@pytest.mark.parametrize("again", [0, 2, 5])
def test_a_truncation_is_there_or_not_and_no_consumer_passes_over_what_follows(
    seed: int, calls: int, again: int
) -> None:
    """again: the next life is cut as well, after so many calls."""
    life = Life(seed)
    for number in range(6):
        life.publish(b"old %d" % number)
    life.commit()
    assert life.pull() == [1, 2, 3, 4, 5, 6]
    for seq in (1, 2, 4, 5, 6):
        life.ack(seq)
    life.env.advance(SECOND)
    life.commit()
    before = messages(life.stream)
    life.truncate(3)
    for number in range(2):
        life.publish(b"new %d" % number)
    life.cut(calls)
    live = messages(life.stream)
    if live.get(4, (b"", b"", b"new"))[2].startswith(b"old"):
        assert live == before
        return
    assert {seq: m for seq, m in live.items() if seq <= 3} == {s: before[s] for s in (1, 2, 3)}
    assert all(m[2].startswith(b"new") for seq, m in live.items() if seq > 3)
    for number in range(4):
        life.publish(b"newer %d" % number)
    if again:
        life.cut(again)
    else:
        life.commit()
    life.env.advance(31 * SECOND)
    assert set(messages(life.stream)) - {1, 2} <= set(life.pull())


@pytest.mark.parametrize("calls", range(0, 24, 2))
@pytest.mark.parametrize("second", [2, 5, 8])
def test_of_two_truncations_the_first_is_there_before_the_second(
    seed: int, calls: int, second: int
) -> None:
    """Each of them whole, whatever of both waits for the disk when the power goes."""
    life = Life(seed, max_msgs_per_subject=4)
    for number in range(9):
        life.publish(b"old %d" % number, b"s.%d" % (number % 2))
    life.commit()
    states = [messages(life.stream)]
    for seq in (6, second):
        life.truncate(seq)
        states.append(messages(life.stream))
        for number in range(4):
            life.publish(b"%d behind %d" % (number, seq), b"s.2")
            states.append(messages(life.stream))
    life.cut(calls)
    assert messages(life.stream) in states
    life.publish()
    life.commit()
    found = messages(life.stream)
    life.cut()
    assert messages(life.stream) == found


def test_what_a_cut_left_of_a_group_behind_an_idle_one_is_not_reported(seed: int) -> None:
    """The marker that closed the idle group is not synced, and may be missing with what follows."""
    life = Life(seed)
    life.publish(bytes(3300))
    for _ in range(3):
        life.commit()
        life.env.advance(SECOND)
    life.publish(bytes(200))
    life.cut(1)
    assert life.stream.lost().sequences == []
    assert 1 in messages(life.stream)


def test_a_group_in_the_journal_behind_an_idle_one_leaves_no_hole(seed: int) -> None:
    """The journal has the marker that closed the idle group, too, which no sync waited for."""
    life = Life(seed, journal=1 << 20)
    for _ in range(3):
        life.publish()
        life.commit()
        life.env.advance(SECOND)
        life.commit()
    life.publish()
    life.cut()
    for _ in range(2):
        assert set(messages(life.stream)) >= {1, 2, 3}
        assert life.stream.lost().damage == 0
        life.cut()


def test_a_block_whose_end_was_not_synced_is_no_damage(seed: int) -> None:
    """It was cut to its size, which its sidecar knows; the power cut takes the size back."""
    life = Life(seed, max_bytes=20_000)
    life.publish(bytes(40_000))
    life.commit()
    life.cut()
    life.disk.upkeep(life.env)
    for _ in range(3):
        life.cut()
        assert life.stream.state().last_seq == 1
        assert life.stream.lost().damage == 0


@pytest.mark.parametrize("seed", [1])
def test_a_block_that_cannot_be_unlinked_brings_nothing_back(seed: int) -> None:
    """Tombstones for what stands in it are not left out while it is there."""
    life = Life(seed, max_msgs=60)  # blocks of 32,000 bytes
    for subject in (b"s.1", b"s.2", b"s.3"):
        for _ in range(3):
            life.publish(bytes(9000), subject)
    life.commit()
    for seq in (4, 5, 6):
        life.stream.delete(seq, False)
    life.disk.fail("unlink", 5, 0, 9)
    life.commit()
    life.disk.mend()
    for seq in (7, 8):
        life.stream.delete(seq, False)
    for _ in range(4):
        life.publish(bytes(9000), b"s.4")
        life.commit()
        life.disk.upkeep(life.env)
    live = messages(life.stream)
    life.cut(0)
    assert messages(life.stream) == live


@pytest.mark.parametrize("calls", range(6))
def test_what_a_start_after_a_kill_shows_no_power_cut_takes(seed: int, calls: int) -> None:
    life = Life(seed)
    life.publish(bytes(2000))
    life.kill(calls)
    live = messages(life.stream)
    life.cut()
    assert messages(life.stream) == live


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("unlinks", range(4))
def test_a_block_is_not_compacted_while_its_old_sidecar_stays(seed: int, unlinks: int) -> None:
    life = Life(seed, max_msgs=60)  # blocks of 32,000 bytes
    for _ in range(9):
        life.publish(bytes(9000))
    life.commit()
    life.disk.upkeep(life.env)
    for seq in (4, 5):
        life.stream.delete(seq, False)
    life.commit()
    life.disk.fail("unlink", 5, unlinks, 1)
    life.disk.upkeep(life.env)
    life.disk.mend()
    live = messages(life.stream)
    life.kill()
    assert messages(life.stream) == live
    assert life.stream.lost().damage == 0


@pytest.mark.parametrize("calls", range(20))
def test_a_purge_that_a_start_after_a_kill_shows_stays(seed: int, calls: int) -> None:
    life = Life(seed, consumer=False)
    life.publish()
    life.commit()
    life.stream.purge(None, 0, 0)
    life.kill(calls)
    live = messages(life.stream)
    last = life.stream.state().last_seq
    life.cut()
    assert messages(life.stream) == live
    assert life.stream.state().last_seq >= last


def test_what_follows_a_purge_stays_when_an_idle_group_ends_meanwhile(seed: int) -> None:
    """The commit thread comes to close the group before it knows of the purge."""
    life = Life(seed, consumer=False, threads=True)
    for n in range(8):
        life.publish()
        life.commit()
        life.env.advance(SECOND)
        life.stream.purge(None, 0, 0)
        life.publish(b"behind")
        life.commit()
        if n % 4 == 3:
            life.cut()
        assert [m[2] for m in messages(life.stream).values()] == [b"behind"]
    life.stop()
