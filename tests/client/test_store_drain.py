"""`jsserver store drain`, and what the other tools say of a journal that is not in the files."""

import json
from pathlib import Path

import pytest

from tests.cext.store import PyStore
from tests.client.offline import run
from tests.servers import Servers
from tests.unit.journals import FOLDER, PAGE, WITNESS, WRITE, journal, segment
from tests.unit.records import records

BLOCK = "$G/streams/S/msgs/1.blk"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory whose last group only the journal has, as a power cut leaves it."""
    root = tmp_path / "jetstream"
    folder = root / "$G" / "streams" / "S"
    folder.mkdir(parents=True)
    store = PyStore(folder, commit="manual")
    store.append("k", b"first")
    store.commit()
    written = (root / BLOCK).stat().st_size
    store.append("k", b"second")
    store.commit()
    store.abandon()
    data = (root / BLOCK).read_bytes()
    at = next(at for at, seq, _, _ in records(data) if seq == 2)
    assert at < written
    (root / BLOCK).write_bytes(data[:at])
    journal(root, segment(1, [[(WRITE, BLOCK.encode(), at, data[at:])]]))
    (tmp_path / "whole").write_bytes(data)
    return root


def messages(root: Path) -> list[int]:
    store = PyStore(root / "$G" / "streams" / "S", commit="manual")
    last = store.state()["last_seq"]
    store.abandon()
    return list(range(1, last + 1))


@pytest.mark.parametrize("given", ["", "jetstream"])
def test_what_the_journal_holds_comes_into_the_files(root: Path, given: str) -> None:
    code, out, err = run("drain", root.parent / given)
    assert (code, err) == (0, "")
    assert out.startswith("1 rounds: ")
    assert (root / BLOCK).read_bytes() == (root.parent / "whole").read_bytes()
    assert not (root / FOLDER).exists()
    assert run("drain", root) == (0, "nothing to do\n", "")
    assert messages(root) == [1, 2]


def test_for_programs(root: Path) -> None:
    _, out, _ = run("drain", root, "--json")
    told = json.loads(out)
    assert (told["rounds"], told["files"], told["damaged"]) == (1, 1, False)
    assert told["bytes"] > PAGE // 100


@pytest.mark.parametrize("words", [["check"], ["du"], ["dump", "--stream", "S"]])
def test_tools_warn_of_what_is_not_in_the_files(root: Path, words: list[str]) -> None:
    _, _, err = run(*words[:1], root, *words[1:])
    assert "the journal holds 1 rounds that files may lack" in err
    run("drain", root)
    _, _, err = run(*words[:1], root, *words[1:])
    assert "journal" not in err


def test_repair_is_refused_before(root: Path) -> None:
    code, out, err = run("repair", root, "--yes")
    assert (code, out) == (2, "")
    assert "`jsserver store drain` first" in err


def test_a_damaged_journal_is_kept(root: Path) -> None:
    segment_one = root / FOLDER / "1"
    data = bytearray(segment_one.read_bytes())
    data += segment(1, [[], [(WRITE, BLOCK.encode(), 0, b"")]])[2 * PAGE :]
    data[PAGE + 40] ^= 1
    segment_one.write_bytes(data)
    code, _, err = run("drain", root)
    assert code == 1
    assert "a part of the journal cannot be read" in err
    assert (root / FOLDER / "kept-1").read_bytes() == data


def test_a_journal_from_before_nats_server_ran_is_left_out(root: Path) -> None:
    (root / WITNESS).unlink()
    assert "journal" not in run("check", root)[2]
    was = (root / BLOCK).read_bytes()
    code, out, err = run("drain", root)
    assert (code, out) == (1, "1 rounds: 0 bytes are in 0 files\n")
    assert "nats-server has started here since" in err
    assert (root / BLOCK).read_bytes() == was
    assert run("drain", root) == (0, "nothing to do\n", "")


def test_a_running_server_is_let_alone(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    code, _, err = run("drain", server.store)
    assert code == 2
    assert "runs on this directory: stop it first" in err
