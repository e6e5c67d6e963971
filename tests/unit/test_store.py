"""The store through its Python face: format, recovery of damaged files, logs, locks, groups."""

import os
import shutil
import struct
import time

import pytest

from jsserver.cext.bytes import hh64, sha256
from jsserver.cext.store import lock_directory
from tests.cext.store import PyFilter, PyLog, PyStore
from tests.unit.records import records

MARKER = 104


def key_of(name: bytes) -> bytes:
    return sha256(name)


def messages(data: bytes) -> list[tuple[int, int, int, bytes]]:
    return [r for r in records(data) if 0 < r[1] < 1 << 62]


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "S"
    path.mkdir()
    return path


def block(directory, n=1):
    return directory / "msgs" / f"{n}.blk"


def test_record_format(directory):
    """A message stands on disk as the format wants it, checksum included."""
    s = PyStore(directory, "S1")
    s.append("s1.a", b"hello", ts=1_700_000_000_000_000_000)
    s.append("s1.a", b"hello", b"NATS/1.0\r\nA: b\r\n\r\n", ts=1_700_000_000_000_000_001)
    s.close()
    first, second = (r[3] for r in messages(block(directory).read_bytes()))
    assert first[:22] == struct.pack("<IQqH", 39, 1, 1_700_000_000_000_000_000, 4)
    assert first[22:31] == b"s1.ahello"
    covered = first[4:20] + first[22:31]
    assert first[31:] == struct.pack("<Q", hh64(key_of(b"S1-1"), covered))
    assert struct.unpack_from("<I", second)[0] == 61 | 1 << 31
    assert second[22:30] == b"s1.a" + struct.pack("<I", 18)
    assert second[30:53] == b"NATS/1.0\r\nA: b\r\n\r\nhello"
    covered = second[4:20] + second[22:26] + second[30:53]
    assert second[53:] == struct.pack("<Q", hh64(key_of(b"S1-1"), covered))


def test_known_vectors():
    """Records that nats-server wrote: their checksums are ours."""
    message = bytes.fromhex(
        "27000000010000000000000000002a36fe9c9717040073312e6168656c6c6f98a64c71c674b6e6"
    )
    assert message[-8:] == struct.pack("<Q", hh64(key_of(b"S1-1"), message[4:20] + message[22:-8]))


def test_every_group_ends_in_a_marker(directory):
    s = PyStore(directory, commit="manual")
    for i in range(3):
        s.append("a", b"%d" % i)
        s.commit()
    s.close()
    seqs = [r[1] for r in records(block(directory).read_bytes())]
    tomb = 1 << 62
    assert [q for q in seqs if q != tomb] == [1, 2, 3]
    assert seqs[-1] == tomb and seqs.count(tomb) >= 4


def test_the_changes_of_a_turn_are_one_group(directory):
    s = PyStore(directory, commit="manual")
    s.hold()
    for i in range(3):
        s.append("a", b"%d" % i)
        s.commit()
        assert s.durable_seq() == 0, "the group is not closed within the turn"
    s.let()
    s.commit()
    assert s.durable_seq() == 3
    tomb = 1 << 62
    seqs = [r[1] for r in records(block(directory).read_bytes())]
    assert seqs[-4:] == [1, 2, 3, tomb]
    s.append("a", b"later")
    s.commit()
    assert s.durable_seq() == 4, "and what comes after it is one of its own"
    s.close()


def test_groups_of_every_size_share_pages(directory):
    """Small groups are written past the page cache, large ones through it, into the same pages."""
    sizes = [1, 3000, 100_000, 7, 5000, 65_400, 2, 70_000, 4000, 1, 1] * 3
    s = PyStore(directory, commit="manual")
    for i, size in enumerate(sizes):
        s.append(f"a.{i}", bytes([i]) * size)
        if i % 5 == 4:
            s.remove(i - 1, erase=True)
        s.commit()
    s.abandon()
    s = PyStore(directory, commit="manual")
    assert s.figures()["damage"] == 0
    gone = {i for i in range(len(sizes)) if i % 5 == 2 and i + 2 < len(sizes)}
    for i, size in enumerate(sizes):
        if i in gone:
            with pytest.raises(KeyError):
                s.load(i + 1)
        else:
            assert s.load(i + 1)[4] == bytes([i]) * size
    s.close()


def test_delete_leaves_a_tombstone_and_noise(directory):
    s = PyStore(directory)
    for i in range(3):
        s.append("secret", b"payload-%d" % i)
    s.wait_durable()
    s.remove(2, erase=True)
    s.wait_durable()
    assert b"payload-1" not in block(directory).read_bytes()
    s.append("more", b"behind it, and written with the page that they share")
    s.wait_durable()
    assert b"payload-1" not in block(directory).read_bytes()
    s.close()
    data = block(directory).read_bytes()
    assert b"payload-1" not in data and b"payload-0" in data
    raw = [r[1] for r in records(data)]
    assert 2 | 1 << 63 in raw and 2 | 1 << 62 in raw


def test_what_is_durably_deleted_is_erased(directory):
    """The commit thread runs beside the deletes; on one processor it often starts within one."""
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        s = PyStore(directory)
        for seq in range(1, 1501):
            s.append("secret", b"payload-%d;" % seq)
            s.wait_durable()
            s.remove(seq, erase=True)
            s.wait_durable()
            assert b"payload-%d;" % seq not in block(directory).read_bytes()
        s.close()
    finally:
        os.sched_setaffinity(0, processors)


def test_errors_are_clear(directory, tmp_path):
    s = PyStore(directory)
    with pytest.raises(KeyError):
        s.load(1)
    with pytest.raises(ValueError, match="32 MiB"):
        s.append("a", b"x" * (33 << 20))
    with pytest.raises(ValueError, match="65535"):
        s.append("a" * 65536)
    assert s.state()["msgs"] == 0
    s.close()
    with pytest.raises(RuntimeError, match="closed"):
        s.append("a")
    with pytest.raises(OSError, match="cannot be made"):
        PyStore(tmp_path / "missing" / "dir")


def test_an_encrypted_block_is_refused_without_a_key_and_left_alone(directory):
    msgs = directory / "msgs"
    msgs.mkdir()
    data = b"x" * 100
    (msgs / "1.blk").write_bytes(data)
    (msgs / "1.key").write_bytes(b"k" * 72)
    with pytest.raises(OSError, match="encrypted, and the configuration has no key"):
        PyStore(directory)
    assert (msgs / "1.blk").read_bytes() == data


def filled(directory, n=20, groups=4):
    s = PyStore(directory, commit="manual")
    for i in range(n):
        s.append(f"a.{i % 3}", b"%03d" % i * 5)
        if i % (n // groups) == n // groups - 1:
            s.commit()
    s.commit()
    s.abandon()
    data = block(directory).read_bytes()
    last = records(data)[-1]
    return data[: last[0] + last[2]]


def exists(store, seq):
    try:
        return bool(store.load(seq))
    except KeyError:
        return False


@pytest.mark.slow
def test_truncation_at_every_byte(directory, tmp_path):
    """Whatever is left of the file's end, the messages before it are served, and nothing else."""
    data = filled(directory, 6, 2)
    image = tmp_path / "image"
    shutil.copytree(directory, image)
    ends = [at + size for at, _, size, _ in records(data)]
    sizes = [(at + size, raw) for at, raw, size, _ in messages(data)]
    for cut in range(len(data) + 1):
        block(directory).write_bytes(data[:cut])
        s = PyStore(directory, commit="manual")
        want = sum(1 for end, _ in sizes if end <= cut)
        state = s.state()
        assert state["msgs"] == want, cut
        # An end that no crash leaves may have had more, which was acked.
        whole = cut in ends or (cut and cut % 4096 == 0)
        assert state["last_seq"] == want if whole else state["last_seq"] > 6, cut
        seq = s.append("b", b"next")
        assert seq == state["last_seq"] + 1
        s.commit()
        s.abandon()
        again = PyStore(directory, commit="manual")
        assert again.state()["last_seq"] == seq
        assert again.load(seq)[4] == b"next"
        assert sum(1 for q in range(1, 7) if q != seq and exists(again, q)) == want
        again.close()
        shutil.rmtree(directory)
        shutil.copytree(image, directory)


def test_zero_tail_is_cut_silently(directory):
    data = filled(directory)
    block(directory).write_bytes(data + bytes(10000))
    s = PyStore(directory)
    assert s.state()["msgs"] == 20 and s.figures()["damage"] == 0
    assert s.append("a") == 21
    s.close()


def test_damage_costs_only_its_record(directory):
    """A flipped byte in a synced group: that message goes, the rest and the file stay."""
    data = bytearray(filled(directory))
    at, _, _, _ = messages(bytes(data))[4]
    data[at + 30] ^= 0x40
    block(directory).write_bytes(data)
    s = PyStore(directory)
    assert s.figures()["damage"] == 1
    assert s.state()["msgs"] == 19
    with pytest.raises(KeyError):
        s.load(5)
    assert s.load(6)[4] == b"005" * 5
    assert s.append("new") == 21
    s.close()
    assert block(directory).read_bytes()[: len(data)] == bytes(data)


def test_hole_in_the_last_group_costs_what_was_there(directory):
    """Torn by a crash or acked and damaged later: nobody can tell, so nothing is cut."""
    s = PyStore(directory, commit="manual")
    s.append("a", b"x" * 100)
    s.commit()
    for _ in range(5):
        s.append("a", b"y" * 100)
    s.commit()
    s.abandon()
    data = bytearray(block(directory).read_bytes())
    at = messages(bytes(data))[2][0]
    data[at : at + 40] = bytes(40)
    block(directory).write_bytes(data)
    s = PyStore(directory)
    assert (s.state()["msgs"], s.state()["last_seq"]) == (5, 6)
    assert s.lost()["msgs"] == [3]
    s.close()
    assert block(directory).read_bytes() == data


def test_flipped_length_is_noticed(directory):
    """A record's checksum leaves its lengths out; the group's marker tells which record it is."""
    data = bytearray(filled(directory))
    at, _, _, _ = messages(bytes(data))[1]
    data[at + 20] ^= 1
    block(directory).write_bytes(data)
    s = PyStore(directory)
    assert s.lost()["msgs"] == [2] and s.state()["msgs"] == 19
    s.close()


@pytest.mark.parametrize("what", ["side", "dict", "both", "bits"])
def test_caches_are_never_trusted_over_blocks(directory, what):
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    for i in range(3000):
        s.append(f"k.{i % 100}", b"%08d" % i * 4)
    s.commit()
    s.upkeep()
    want = (s.state(), s.subjects(), s.last_per_subject(), s.pending("k.7", 1500))
    s.abandon()
    for path in [*(directory / "msgs").glob("*.jsx"), directory / "subjects.jsd"]:
        if what == "bits":
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 1
            path.write_bytes(data)
        elif what in ("both", "dict" if path.suffix == ".jsd" else "side"):
            path.unlink()
    s = PyStore(directory, max_bytes=100_000, trim=False)
    assert (s.state(), s.subjects(), s.last_per_subject(), s.pending("k.7", 1500)) == want
    s.close()


@pytest.mark.slow
def test_every_bit_of_the_heads_of_caches(directory, tmp_path):
    """A flipped bit in a cache costs nothing: its block is read instead."""
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    for i in range(700):
        s.append(f"k.{i % 100}", b"%08d" % i * 8)
    s.commit()
    s.upkeep()
    want = (s.state(), s.subjects(), s.last_per_subject())
    s.abandon()
    image = tmp_path / "image"
    for path in (directory / "subjects.jsd", block(directory).with_suffix(".jsx")):
        name = path.relative_to(directory)
        for bit in range(0, 64 * 8):
            shutil.copytree(directory, image)
            data = bytearray(path.read_bytes())
            data[bit // 8] ^= 1 << bit % 8
            (image / name).write_bytes(data)
            s = PyStore(image, max_bytes=100_000, trim=False, commit="manual")
            assert (s.state(), s.subjects(), s.last_per_subject()) == want, (name, bit)
            s.close()
            shutil.rmtree(image)


def test_a_file_that_shrinks_under_its_readers(directory):
    """What is no longer there reads as damage, not as the end of the process."""
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    for i in range(100):
        s.append("k", b"%08d" % i * 100)
    s.commit()
    s.upkeep()
    assert s.load(1)[4] == b"%08d" % 0 * 100
    os.truncate(block(directory), 8192)
    with pytest.raises(ValueError, match="damaged"):
        s.load(20)
    assert s.load(5)[4] == b"%08d" % 4 * 100
    s.close()


@pytest.mark.parametrize("flip", [None, 8, 200, -4])
def test_checkpoint(directory, flip):
    """A clean stop writes it, a start uses it; damaged it is passed over; a change removes it."""
    s = PyStore(directory)
    for i in range(500):
        s.append(f"k.{i % 50}", b"%d" % i)
    s.remove(7)
    want = (s.state(), s.subjects(), s.last_per_subject("k.*"), s.deleted())
    s.close()
    path = directory / "msgs" / "checkpoint.jss"
    data = bytearray(path.read_bytes())
    if flip is not None:
        data[flip] ^= 1
        path.write_bytes(data)
    s = PyStore(directory, commit="manual")
    assert (s.state(), s.subjects(), s.last_per_subject("k.*"), s.deleted()) == want
    s.append("k.new")
    s.commit()
    assert not path.exists()
    s.abandon()
    s = PyStore(directory)
    assert s.state()["msgs"] == 500 and s.last_of("k.new") == 501
    s.close()


@pytest.mark.timeout(60)
def test_a_block_of_one_small_message_is_compacted_once(directory):
    """It cannot become smaller, though what frames it is more than the message."""
    s = PyStore(directory, max_bytes=120_000, trim=False, commit="manual")
    for i in range(2600):
        s.append(f"a{i}", b"x" * 5)
    s.commit()
    for q in range(800, 1700):  # of blocks of 32,000 bytes, one in the middle
        if q != 1200:
            s.remove(q)
    s.upkeep()
    assert s.load(1200)[2] == "a1199"
    assert (directory / "msgs" / "2.blk").stat().st_size < 1000
    s.close()


def test_compaction(directory):
    """Blocks that are mostly deleted shrink; what is alive stays readable, also after a restart."""
    s = PyStore(directory, max_bytes=4_000_000_000, commit="manual")
    n = 60_000
    for i in range(n):
        s.append(f"k.{i % 10}", b"%06d" % i * 100)
    for q in range(1, n, 1):
        if q % 10:
            s.remove(q)
    s.commit()
    before = s.figures()["used"]
    s.upkeep()
    assert s.figures()["used"] < before * 0.6
    for q in range(10, n, 1000):
        assert s.load(q)[4] == b"%06d" % (q - 1) * 100
    want = s.state()
    s.commit()
    s.abandon()
    s = PyStore(directory, max_bytes=4_000_000_000)
    assert s.state() == want
    assert s.load(50_000)[4] == b"049999" * 100
    s.close()


def test_limits_that_were_lifted_do_not_bring_messages_back(directory):
    s = PyStore(directory, max_msgs_per=1, commit="manual")
    for _ in range(5):
        s.append("a")
    s.update(max_msgs_per=-1)
    s.append("a")
    s.commit()
    s.abandon()
    s = PyStore(directory)
    assert s.state()["msgs"] == 2
    s.close()


def test_first_sequence(directory):
    s = PyStore(directory, first_seq=100)
    assert s.append("a") == 100
    s.purge(seq=500)
    assert s.append("a") == 500
    s.reopen()
    assert s.state()["last_seq"] == 500
    s.close()


def test_durable_reports(directory):
    """Every change is reported on disk once, in order, without error."""
    s = PyStore(directory)
    for i in range(200):
        s.append("a", b"%d" % i)
    s.wait_durable()
    seqs = [d[0] for d in s.durable]
    assert seqs == sorted(seqs) and seqs[-1] == 200
    assert all(d[2] == 0 for d in s.durable)
    s.remove(5)
    s.wait_durable()
    assert [r[:2] for r in s.removed] == [(5, "a")]
    s.close()


def test_write_errors_poison_the_store(directory):
    """When a file cannot be written the error is reported, appends are refused and reads go on."""
    s = PyStore(directory, commit="manual")
    s.append("a", b"good")
    s.commit()
    os.rename(directory / "msgs", directory / "away")
    (directory / "msgs").write_bytes(b"not a directory")
    time.sleep(0)
    s.append_many("a", 20, 1, 500_000, batch=20)
    s.commit()
    assert s.durable[-1][2] != 0
    with pytest.raises(OSError):
        s.append("a")
    assert s.load(1)[4] == b"good"
    s.abandon()


def test_log(directory):
    s = PyStore(directory)
    path = directory / "o.log"
    log = PyLog(s, path)
    for i in range(50):
        log.append(b"entry-%d" % i)
    s.wait_durable()
    s.close()
    data = path.read_bytes()
    for cut, want in ((len(data), 50), (len(data) - 1, 49), (0, 0), (13, 0)):
        path.write_bytes(data[:cut])
        s = PyStore(directory)
        log = PyLog(s, path)
        assert log.replayed == [b"entry-%d" % i for i in range(want)]
        log.append(b"more")
        s.wait_durable()
        s.close()
        s = PyStore(directory)
        assert PyLog(s, path).replayed[-1:] == [b"more"]
        s.close()


def test_log_rewrite(directory):
    s = PyStore(directory)
    path = directory / "o.log"
    log = PyLog(s, path)
    for i in range(50):
        log.append(b"entry-%d" % i)
    log.rewrite(b"all fifty")
    log.append(b"and one")
    s.wait_durable()
    assert log.size() == path.stat().st_size == 2 * 12 + 16
    s.close()
    s = PyStore(directory)
    assert PyLog(s, path).replayed == [b"all fifty", b"and one"]
    s.close()


def test_lock_directory(tmp_path):
    fd = lock_directory(tmp_path)
    with pytest.raises(BlockingIOError, match="in use"):
        lock_directory(tmp_path)
    os.close(fd)
    os.close(lock_directory(tmp_path))


@pytest.mark.parametrize("turn", range(20))
def test_removed_store_leaves_nothing(directory, turn):
    """Whatever its threads were about when it was removed."""
    s = PyStore(directory, max_bytes=100_000, trim=False)
    for i in range(2000):
        s.append(f"a.{i}", b"x" * 100)
    s.close(remove=True)
    assert os.listdir(directory) == []


def test_filter_cache_follows_new_subjects():
    """A cached filter knows subjects that come, go and come back under another id."""
    s = PyStore()
    f = PyFilter(["a.*", "b.>"])
    for i in range(100):
        s.append(f"a.{i}")
        s.append(f"c.{i}")
    assert s.pending(f, 50) == len([i for i in range(100) if 2 * i + 1 >= 50])
    for seq in range(1, 201):
        s.remove(seq)
    assert s.next(f) == 0
    for i in range(100):
        s.append(f"c.x{i}")
    assert s.next(f, 200) == 0 and s.pending(f, 250) == 0
    assert s.append("b.1.2") == 301
    assert s.next(f, 200) == 301 and s.pending(f, 250) == 1
    s.close()
