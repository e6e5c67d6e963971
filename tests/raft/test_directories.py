"""Groups in directories: what is said is on disk, and what is damaged is put aside."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cext.raft import append_entry, write_append_entry, write_peer_state, write_vote_request
from tests.cext.raftlog import Directory, Machine, read_snapshot, write_snapshot
from tests.cext.stream import TestEnv
from tests.sim.disk import SimDisk

GROUP, A, B, C = b"S-R3F-GROUPAAA", b"memberAA", b"memberBB", b"memberCC"
ALL = write_peer_state(3, [A, B, C])
ALONE = write_peer_state(1, [A])
NORMAL, PEER_STATE, SNAPSHOT = 0, 2, 6


def entry(index: int, term: int = 1, pterm: int = 1, commit: int = 0, data: bytes = b"") -> bytes:
    body = data or b"p%d" % index
    return write_append_entry(
        B, term, commit, pterm if index > 1 else 0, index - 1, [(NORMAL, body)]
    )


def follower(tmp_path: Path, machine: Machine, records: int = 0) -> Directory:
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    for index in range(1, records + 1):
        d.call("append", entry(index), b"inbox")
    machine.write()
    machine.commit()
    d.call("look")
    return d


def acts(actions: list[dict[str, Any]], what: str) -> list[int]:
    return [a["index"] for a in actions if a["act"] == what]


def again(tmp_path: Path, name: str) -> Path:
    """The directory as it is on disk now: what a power cut would leave at the most."""
    to = tmp_path.parent / name
    shutil.copytree(tmp_path, to)
    return to


def leader(tmp_path: Path, machine: Machine) -> Directory:
    d = Directory(machine, tmp_path, GROUP, A, ALONE)
    d.call("campaign")
    d.call("tick", 10**10)
    machine.write()
    d.call("look")
    machine.commit()
    d.call("look")
    d.call("applied", 1)
    return d


def test_a_vote_is_told_when_its_file_is_on_disk(tmp_path: Path) -> None:
    machine = Machine()
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    assert d.found["fresh"]
    assert not d.call("vote_request", write_vote_request(7, 0, 0, B), b"votes")
    assert not (tmp_path / "tav.idx").exists()
    assert machine.write() == 2
    assert [a["act"] for a in d.call("look")] == ["send"]
    assert (tmp_path / "peers.idx").read_bytes() == ALL
    assert (tmp_path / "tav.idx").read_bytes() == (7).to_bytes(8, "little") + B
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert d.state()["term"] == 7
    assert not d.found["fresh"]
    # It has voted for B in that term.
    d.call("vote_request", write_vote_request(7, 0, 0, C), b"votes")
    assert machine.write() == 0
    d.close()


def test_an_entry_is_confirmed_after_the_commit_round(tmp_path: Path) -> None:
    machine = Machine()
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    d.call("append", entry(1), b"inbox")
    machine.write()
    assert not acts(d.call("look"), "send")
    machine.commit()
    assert len(acts(d.call("look"), "send")) == 1
    assert d.load(1) == entry(1)
    d.close()


def test_members_that_a_leader_says_again_are_not_written_again(tmp_path: Path) -> None:
    """Each leader says the members anew, in its own order."""

    def said(index: int, members: list[bytes]) -> bytes:
        body = write_peer_state(len(members), members)
        pterm = min(index - 1, 1)
        return write_append_entry(B, 1, index - 1, pterm, index - 1, [(PEER_STATE, body)])

    machine = Machine()
    d = follower(tmp_path, machine)
    for index in (1, 2):
        d.call("append", said(index, [C, A, B]), b"inbox")
        machine.write()
        machine.commit()
        d.call("look")
    d.call("append", said(3, [B, A]), b"inbox")  # commits the second one
    assert machine.write() == 0
    assert (tmp_path / "peers.idx").read_bytes() == ALL
    d.call("append", said(4, [B, A]), b"inbox")  # commits the third one
    assert machine.write() == 1
    assert (tmp_path / "peers.idx").read_bytes() == write_peer_state(2, [B, A])
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert d.state()["members"] == 2
    assert machine.write() == 0
    d.close()


def test_all_groups_share_a_round(tmp_path: Path) -> None:
    machine = Machine()
    groups = []
    for n in range(20):
        path = tmp_path / str(n)
        path.mkdir()
        groups.append(Directory(machine, path, b"G%d" % n, A, ALONE))
    for d in groups:
        d.call("campaign")
        d.call("tick", 10**10)
    assert machine.write() == 40  # votes and members
    for d in groups:
        d.call("look")
    machine.commit()
    assert all(acts(d.call("look"), "commit") == [1] for d in groups)
    for d in groups:
        d.close()


def test_what_is_cut_off_is_gone_after_a_start(tmp_path: Path) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 5)
    d.call("append", entry(4, term=2, data=b"another"), b"inbox")
    machine.write()
    machine.commit()
    d.call("look")
    assert d.state()["last"] == 4
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert d.found["records"] == 4
    m = append_entry(d.load(4) or b"")
    assert m is not None
    assert m["entries"] == [(NORMAL, b"another")]
    assert (d.load(5), d.state()["last_term"], d.found["lost"]) == (None, 2, False)
    d.close()


def test_a_snapshot_lets_the_log_go_when_it_is_on_disk(tmp_path: Path) -> None:
    machine = Machine()
    d = leader(tmp_path, machine)
    for n in range(5):
        d.call("propose", 1, b"p%d" % n)
        d.call("turn_end")
    machine.commit()
    d.call("look")
    assert d.snapshot(1, 3, ALONE, b"STATE") == 0
    assert d.load(3) is not None
    machine.write()
    assert d.load(3) is None
    assert os.listdir(tmp_path / "snapshots") == ["snap.1.3"]
    d.snapshot(1, 5, ALONE, b"LATER")
    machine.write()
    machine.commit()
    assert os.listdir(tmp_path / "snapshots") == ["snap.1.5"]
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert (d.found["state"], d.found["snapshot"], d.found["records"]) == (b"LATER", 5, 1)
    d.close()


def test_a_damaged_snapshot_is_put_aside_for_an_older_one(tmp_path: Path) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 5)
    d.close()
    folder = tmp_path / "snapshots"
    (folder / "snap.1.2").write_bytes(write_snapshot(GROUP, 1, 2, ALL, b"OLD"))
    bad = write_snapshot(GROUP, 1, 4, ALL, b"NEW")
    (folder / "snap.1.4").write_bytes(bad[:-20] + b"!" + bad[-19:])
    d = Directory(machine, tmp_path, GROUP, A)
    assert (d.found["state"], d.found["records"]) == (b"OLD", 3)
    assert d.found["lost"]
    assert d.state()["lost"]
    assert (tmp_path / "damaged-snap.1.4").stat().st_size == len(bad)
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert d.found["lost"]  # until it has all again
    assert d.found["aside"] == 0
    # A leader's message says where the log ends; the member is whole when it has that on disk.
    d.call("append", entry(6), b"inbox")
    machine.write()
    machine.commit()
    d.call("look")
    machine.write()
    assert not d.state()["lost"]
    assert not (tmp_path / "lost").exists()
    d.close()


def test_of_a_snapshot_of_another_group_nothing_is_taken(tmp_path: Path) -> None:
    assert read_snapshot(GROUP, write_snapshot(GROUP, 1, 2, ALL, b"x")) == (1, 2, ALL, b"x")
    assert read_snapshot(b"S-R3F-OTHERAAA", write_snapshot(GROUP, 1, 2, ALL, b"x")) is None
    whole = write_snapshot(GROUP, 1, 2, ALL, b"x")
    for n in range(len(whole)):
        assert read_snapshot(GROUP, whole[:n]) is None
        assert read_snapshot(GROUP, whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :]) is None


def test_a_damaged_record_ends_the_log_and_is_kept_aside(tmp_path: Path) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 9)
    d.close()
    (block,) = tmp_path.glob("msgs/*.blk")
    data = bytearray(block.read_bytes())
    at = data.index(b"p5")
    data[at] ^= 0xFF
    block.write_bytes(data)
    for cache in tmp_path.glob("msgs/*.js*"):
        cache.unlink()
    d = Directory(machine, tmp_path, GROUP, A)
    assert d.found["lost"]
    assert (d.found["records"], d.state()["last"]) == (4, 4)
    assert [p.read_bytes()[: len(data)] for p in tmp_path.glob("damaged-*.blk")] == [bytes(data)]
    d.call("vote_request", write_vote_request(7, 9, 9, B), b"votes")
    machine.write()
    (vote,) = d.call("look")
    assert vote["body"][-1] == 3  # granted, and counts as an empty member's
    d.close()


@pytest.mark.parametrize("name", ["tav.idx", "peers.idx"])
def test_a_short_file_is_put_aside(tmp_path: Path, name: str) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 2)
    d.close()
    (tmp_path / name).write_bytes(b"abc")
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    assert d.found["lost"]
    assert (tmp_path / f"damaged-{name}").read_bytes() == b"abc"
    assert d.state()["members"] == 3
    d.close()


def catching_up(tmp_path: Path, machine: Machine) -> Directory:
    """A member of three entries that was sent a state up to 10, and 11 behind it."""
    d = follower(tmp_path, machine, 3)
    far = write_append_entry(B, 2, 10, 2, 11, [], 0)
    (asks,) = [a for a in d.call("append", far, b"inbox") if a["act"] == "send"]
    assert asks["reply"] == 3  # to a catch-up inbox
    entries = [(SNAPSHOT, b"THE STATE"), (PEER_STATE, ALL)]
    state = write_append_entry(B, 2, 10, 2, 10, entries, 0)
    assert acts(d.call("append", state, b"inbox", 1), "install") == [10]
    d.call("applied", 10)
    d.call("append", write_append_entry(B, 2, 10, 2, 10, [(NORMAL, b"p11")], 2), b"inbox", 1)
    assert append_entry(d.load(11) or b"") is not None
    machine.commit()
    return d


def test_a_leaders_state_takes_the_place_of_the_log(tmp_path: Path) -> None:
    machine = Machine()
    d = catching_up(tmp_path, machine)
    assert d.state()["stored"] == 0
    machine.write()
    machine.commit()
    d.call("look")
    assert d.state()["stored"] == 11
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert (d.found["snapshot"], d.found["records"], d.found["state"]) == (10, 1, b"THE STATE")
    assert (d.state()["last"], d.found["lost"]) == (11, False)
    d.close()


def test_a_replaced_disk_says_so_before_it_has_a_part_of_the_log(tmp_path: Path) -> None:
    """With a part only, the member would vote as one that has all that it ever confirmed."""
    machine = Machine()
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    assert not acts(d.call("append", entry(4), b"inbox"), "send")
    assert d.state()["lost"]
    machine.write()
    assert (tmp_path / "lost").exists()
    asked = [a for a in d.call("look") if a["act"] == "send"]
    assert [a["to"] for a in asked] == [b"inbox"]
    for index in (1, 2):
        catch_up = write_append_entry(
            B, 1, 0, int(index > 1), index - 1, [(NORMAL, b"p%d" % index)], 1
        )
        d.call("append", catch_up, b"inbox", asked[0]["index"])
    machine.commit()
    d.close()
    d = Directory(machine, tmp_path, GROUP, A)
    assert (d.found["lost"], d.state()["last"]) == (True, 2)
    d.close()


def test_until_a_leaders_state_is_on_disk_the_log_stays(tmp_path: Path) -> None:
    machine = Machine()
    d = catching_up(tmp_path, machine)
    other = Machine()
    before = Directory(other, again(tmp_path, "before"), GROUP, A)
    assert (before.found["snapshot"], before.found["records"], before.found["lost"]) == (
        0,
        3,
        False,
    )
    before.close()
    machine.write()  # the snapshot is there, and nothing of the log has changed on disk
    between = Directory(other, again(tmp_path, "between"), GROUP, A)
    assert (between.found["snapshot"], between.found["records"]) == (10, 0)
    assert (between.state()["last"], between.found["lost"]) == (10, False)
    between.close()
    d.close()


def test_a_log_that_begins_behind_its_snapshot_is_put_aside(tmp_path: Path) -> None:
    machine = Machine()
    d = leader(tmp_path, machine)
    for n in range(5):
        d.call("propose", 1, b"p%d" % n)
        d.call("turn_end")
    machine.commit()
    d.call("look")
    d.snapshot(1, 4, ALONE, b"STATE")
    machine.write()
    machine.commit()
    d.close()
    (tmp_path / "snapshots" / "snap.1.4").unlink()
    d = Directory(machine, tmp_path, GROUP, A)
    assert (d.found["lost"], d.found["records"], d.state()["last"]) == (True, 0, 0)
    assert list(tmp_path.glob("damaged-*.blk"))
    d.call("append", entry(1, term=2), b"inbox")
    machine.write()
    machine.commit()
    assert d.state()["stored"] == 1
    d.close()


def test_a_group_whose_vote_cannot_be_written_is_stopped(tmp_path: Path) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 2)
    other_path = tmp_path.parent / "other"
    other_path.mkdir()
    other = Directory(machine, other_path, b"G", A, ALL)
    (tmp_path / "tav.idx.new").mkdir()  # which no file can be written over
    for each in (d, other):
        each.call("vote_request", write_vote_request(7, 9, 9, B), b"votes")
    machine.write()
    assert not acts(d.call("look"), "send")
    assert d.state()["role"] == "stopped"
    assert len(acts(other.call("look"), "send")) == 1  # the others go on
    d.close()
    other.close()


def test_of_two_votes_that_wait_the_later_one_is_written(tmp_path: Path) -> None:
    machine = Machine()
    d = Directory(machine, tmp_path, GROUP, A, ALL)
    d.call("vote_request", write_vote_request(7, 0, 0, B), b"votes of B")
    d.call("vote_request", write_vote_request(8, 0, 0, C), b"votes of C")
    assert machine.write() == 2  # and the members
    assert [a["to"] for a in d.call("look")] == [b"votes of C"]
    assert (tmp_path / "tav.idx").read_bytes() == (8).to_bytes(8, "little") + C
    d.close()


@pytest.mark.parametrize(
    ("call", "error"), [("write", "EIO"), ("sync", "EIO"), ("write", "ENOSPC")]
)
def test_a_group_whose_log_cannot_be_written_is_stopped(call: Any, error: str) -> None:
    disk = SimDisk(1)
    env = TestEnv()
    disk.attach(env)
    machine = Machine(env)
    groups = []
    for name in (b"/G", b"/H"):
        disk.mkdir(name)
        groups.append(Directory(machine, name, GROUP, A, ALL))
        groups[-1].call("append", entry(1), b"inbox")
    machine.write()
    machine.commit()
    for d in groups:
        assert len(acts(d.call("look"), "send")) == 1
        d.call("append", entry(2), b"inbox")
    disk.fail(call, getattr(errno, error))
    machine.commit()
    said = [acts(d.call("look"), "send") for d in groups]
    assert sorted(d.state()["error"] for d in groups) == ["", error]
    assert sorted(len(s) for s in said) == [0, 1]
    assert sorted(d.state()["role"] for d in groups) == ["follower", "stopped"]
    # It is opened again, with what it had said, and goes on.
    at = [d.state()["error"] for d in groups].index(error)
    groups[at].close()
    groups[at] = Directory(machine, (b"/G", b"/H")[at], GROUP, A, ALL)
    assert (groups[at].found["lost"], groups[at].found["aside"]) == (False, 0)
    assert groups[at].state()["last"] == 1
    groups[at].call("append", entry(2), b"inbox")
    machine.commit()
    assert len(acts(groups[at].call("look"), "send")) == 1
    for d in groups:
        d.close()
    machine.close()
    disk.detach(env)


def test_a_snapshot_that_the_disk_refuses_may_be_asked_for_again(tmp_path: Path) -> None:
    machine = Machine()
    d = follower(tmp_path, machine, 5)
    (tmp_path / "snapshot.new").mkdir()  # which no file can be written over
    assert d.snapshot(1, 2, ALL, b"state") == 0
    machine.write()
    s = d.state()
    assert (s["role"], s["error"], s["first"]) == ("follower", "", 1)
    (tmp_path / "snapshot.new").rmdir()
    assert d.snapshot(1, 2, ALL, b"state") == 0
    machine.write()
    assert d.state()["first"] == 3
    d.close()


def test_a_group_in_memory_keeps_its_vote_and_not_its_log(tmp_path: Path) -> None:
    machine = Machine()
    d = Directory(machine, tmp_path, GROUP, A, ALL, memory=True)
    assert (d.found["fresh"], d.found["lost"]) == (True, False)
    for index in (1, 2, 3):
        d.call("append", entry(index, commit=2), b"inbox")
    machine.turn()  # no disk is waited for
    assert len(acts(d.call("look"), "send")) == 3
    assert d.snapshot(1, 2, ALL, b"state") == 0
    d.call("vote_request", write_vote_request(7, 9, 9, B), b"votes")
    machine.write()
    assert d.state()["first"] == 3
    d.close()
    d = Directory(machine, tmp_path, GROUP, A, memory=True)
    assert (d.found["lost"], d.found["snapshot"], d.found["records"]) == (True, 0, 0)
    assert not list((tmp_path / "snapshots").iterdir())
    assert (d.state()["term"], d.state()["last"], d.state()["lost"]) == (7, 0, True)
    # It has voted for B.
    d.call("vote_request", write_vote_request(7, 9, 9, C), b"votes")
    assert machine.write() == 0
    d.close()
