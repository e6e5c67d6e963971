"""Sidecars and the dictionary of their subjects: what a start reads in place of blocks."""

import random

import pytest

from tests.cext.store import PyStore
from tests.seeds import seed_of


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "S"
    path.mkdir()
    return path


def block(directory, n):
    return directory / "msgs" / f"{n}.blk"


def test_sidecars_replace_blocks(directory):
    """After a kill, sealed blocks come from their sidecars: their files are not read."""
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    for i in range(3000):
        s.append(f"k.{i % 100}", b"%08d" % i * 4)
        if i % 50 == 0:
            s.commit()
    s.commit()
    s.upkeep()
    want = (s.state(), s.subjects(), s.last_per_subject())
    sealed = s.numbers()[:-1]
    s.abandon()
    assert len(sealed) >= 3
    for n in sealed:  # damaged where no one looks: behind the first record
        path = block(directory, n)
        assert path.with_suffix(".jsx").exists()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    s = PyStore(directory, max_bytes=100_000, trim=False)
    assert (s.state(), s.subjects(), s.last_per_subject()) == want
    assert s.figures()["damage"] == 0
    s.close()


def test_a_subject_that_took_over_an_id_survives(directory):
    """A sidecar may list a message that was removed since, and whose id went to another subject."""
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    s.append("gone", b"x")
    for i in range(1000):
        s.append(f"k.{i % 10}", b"%08d" % i * 8)
    s.commit()
    s.upkeep()
    assert block(directory, 1).with_suffix(".jsx").exists()
    s.remove(1)
    s.append("new", b"first")
    for i in range(1000):
        s.append(f"k.{i % 10}", b"%08d" % i * 8)
    s.commit()
    s.upkeep()
    want = (s.state(), s.subjects(), s.last_per_subject())
    s.abandon()
    s = PyStore(directory, max_bytes=100_000, trim=False)
    assert (s.state(), s.subjects(), s.last_per_subject()) == want
    s.close()


def test_subjects_that_come_and_go_leave_no_dictionary_behind(directory):
    """What the sidecars need of it stays, whatever had the same ids before."""
    s = PyStore(directory, max_bytes=127_000, commit="manual")
    for i in range(30_000):
        s.append(f"k.{i}.{'x' * 200}", b"%08d" % i)
        if i % 100 == 0:
            s.commit()
            s.upkeep()
    s.commit()
    s.upkeep()
    want = (s.state(), s.subjects(), s.last_per_subject())
    sealed = s.numbers()[:-1]
    s.abandon()
    assert (directory / "subjects.jsd").stat().st_size < 3_000_000
    for n in sealed:
        path = block(directory, n)
        assert path.with_suffix(".jsx").exists()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF  # nobody looks: the sidecars are taken
        path.write_bytes(data)
    s = PyStore(directory, max_bytes=127_000)
    assert (s.state(), s.subjects(), s.last_per_subject()) == want
    assert s.figures()["damage"] == 0
    s.close()


def test_a_block_with_a_sidecar_is_not_appended_to(directory):
    """Though this start cannot use it, because the dictionary has too few words for another one."""
    s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")
    i = 0
    while len(s.numbers()) < 4:
        s.append(f"k.{i}", b"%08d" % i * 4)
        s.commit()
        i += 1
    s.upkeep()  # the newest block comes first
    s.abandon()
    words = directory / "subjects.jsd"
    data = words.read_bytes()
    first = 32 + int.from_bytes(data[16:20], "little")
    assert first < len(data)
    words.write_bytes(data[:first])
    block(directory, 4).unlink()  # the power went before it had its name
    s = PyStore(directory, max_bytes=100_000_000, trim=False, commit="manual")  # larger blocks
    s.append("late", b"x")
    s.commit()
    want = (s.state(), s.subjects())
    s.abandon()
    s = PyStore(directory, max_bytes=100_000_000, trim=False)
    assert (s.state(), s.subjects()) == want
    s.close()


def test_a_dictionary_that_lost_words_is_begun_again(directory):
    """Else other words in their places would make a sidecar believed that means the lost ones."""

    def fill(token, blocks):
        """Seals blocks until there are so many; returns the last sealed one's sidecar."""
        i = 0
        while len(s.numbers()) < blocks:
            s.append(f"{token}.{i}", b"%08d" % i * 4)
            s.commit()
            i += 1
        s.upkeep()
        return block(directory, s.numbers()[-2]).with_suffix(".jsx")

    s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")
    fill("k", 2)
    words = directory / "subjects.jsd"
    short = words.read_bytes()
    side = fill("l", 3)
    late = side.read_bytes()
    s.abandon()
    words.write_bytes(short)
    s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")
    fill("m", 4)
    want = (s.state(), s.subjects())
    s.abandon()
    side.write_bytes(late)  # as if the server had been killed before it was written again
    s = PyStore(directory, max_bytes=127_000, trim=False)
    assert (s.state(), s.subjects()) == want
    s.close()


def test_a_subject_that_had_two_ids_is_found_under_either(directory):
    """It comes back under another id, then under the first: the dictionary has no news of that."""
    s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")

    def short_lived(first: str) -> int:
        """One subject takes the next id and leaves; one stays in a block with a sidecar."""
        short = s.append(first, b"x")
        seq = s.append("again", b"%d" % short)
        s.remove(short)
        blocks = len(s.numbers())
        while len(s.numbers()) == blocks:
            s.append("stays", b"x" * 1000)
            s.commit()
        s.upkeep()
        return seq

    s.append("stays", b"x")
    s.commit()
    s.remove(short_lived("one"))
    s.remove(short_lived("two"))
    seq = short_lived("three")
    want = (s.state(), s.subjects(), s.load(seq)[2::2])
    s.abandon()
    s = PyStore(directory, max_bytes=127_000, trim=False)
    assert (s.state(), s.subjects(), s.load(seq)[2::2]) == want
    assert s.figures()["damage"] == 0
    s.close()


def test_subjects_that_come_and_go_are_the_same_after_every_kill(directory):
    """Ids wander between subjects; what a start reads from sidecars is what there was."""
    rng = random.Random(seed_of("SIDECARS_SEED"))
    s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")
    live: dict[int, tuple[str, bytes]] = {}
    for _ in range(40):
        for _ in range(rng.randrange(600)):
            subject, data = f"k.{rng.randrange(6)}", rng.randbytes(rng.randrange(8000))
            live[s.append(subject, data)] = (subject, data)
            while len(live) > rng.randrange(1, 6):  # few, so that subjects leave
                seq = rng.choice(list(live))
                s.remove(seq)
                del live[seq]
            if rng.random() < 0.3:
                s.commit()
                s.upkeep()
        s.commit()
        s.upkeep()
        s.abandon()
        s = PyStore(directory, max_bytes=127_000, trim=False, commit="manual")
        assert s.figures()["damage"] == 0
        assert s.state()["msgs"] == len(live)
        assert {seq: s.load(seq)[2::2] for seq in live} == live
    s.close()
