"""`jsserver store check` on directories of both servers, whole and damaged in every way."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.client import offline
from tests.client.offline import Made, flip, run, stream_of
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

FLIPS = 10
"""Bits that are changed in each file."""
LENGTH_OF_SUBJECT = (20, 21)
"""Bytes of a record that its checksum leaves out."""


@pytest.fixture(scope="module")
def directories(module_servers: Servers) -> dict[str, Made]:
    return {way: offline.make(module_servers, way) for way in offline.WAYS}


@pytest.fixture
def copied(directories: dict[str, Made], request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the directory that the test names, `ours-clean` if none."""
    way = getattr(request, "param", "ours-clean")
    shutil.copytree(directories[way].path, tmp_path / "store")
    return tmp_path / "store"


def store_files(store: Path) -> list[Path]:
    files = sorted(path for path in store.rglob("*") if path.is_file())
    return [path for path in files if not path.name.startswith(".")]


@pytest.mark.parametrize("way", offline.WAYS)
def test_what_a_server_left_is_sound(directories: dict[str, Made], way: str) -> None:
    before = {p: p.stat().st_mtime_ns for p in directories[way].path.rglob("*")}
    code, out, error = run("check", directories[way].path, "--json")
    assert (code, error) == (0, ""), out
    told = json.loads(out)
    assert told["findings"] == []
    figures = {s["stream"]: s["messages"] for s in told["streams"]}
    served = {name: len(m) for name, m in directories[way].served.items()}
    if way != "peer-killed":  # only a start applies limits there
        assert figures == served
    assert figures["S"] == served["S"] == offline.COUNT - len(offline.DELETED)
    assert {p: p.stat().st_mtime_ns for p in directories[way].path.rglob("*")} == before


def is_unknown(path: Path, data: bytes, bit: int) -> bool:
    """Whether a bit is one of a subject's length, which no checksum has: of a block that the peer
    began, where its index.db is older than the block, nothing knows that length."""
    at = 0
    while path.suffix == ".blk" and at < len(data):
        if bit // 8 - at in LENGTH_OF_SUBJECT:
            return True
        at += max(int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF, 1)
    return False


@pytest.mark.parametrize("way", offline.WAYS)
def test_each_changed_bit_is_found_or_harmless(
    directories: dict[str, Made], way: str, tmp_path: Path
) -> None:
    made, rng = directories[way], random.Random(way)
    store = tmp_path / "store"
    shutil.copytree(made.path, store)
    for path in store_files(store):
        data, status = path.read_bytes(), path.stat()
        bits = rng.sample(range(len(data) * 8), min(FLIPS, len(data) * 8))
        missed = []
        for bit in bits:
            flip(path, bit)
            if all(findings.sound for findings in offline.check(store)):
                missed += [bit] if way != "moved-clean" or not is_unknown(path, data, bit) else []
            path.write_bytes(data)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        if path.name == "o.dat" and way.startswith("peer"):
            continue  # it has no checksum, and no log beside it
        for bit in missed[:2]:
            flip(path, bit)
            who = way.partition("-")[0]
            now = offline.served_by(who, store, tmp_path / f"{path.name}-{bit}")
            assert now == made.served, f"{path.name}, bit {bit}"
            path.write_bytes(data)


@pytest.mark.parametrize("copied", offline.WAYS, indirect=True)
def test_files_that_are_cut_or_missing_are_named(copied: Path) -> None:
    rng = random.Random(3)
    for path in store_files(copied):
        data = path.read_bytes()
        for cut in {0, 1, len(data) // 2, rng.randrange(len(data))}:
            path.write_bytes(data[:cut])
            offline.check(copied)
        path.write_bytes(data)
    block = stream_of(copied) / "msgs" / "1.blk"
    data = block.read_bytes()
    block.write_bytes(data[:5000] + b"\xff" * 400 + data[5400:])
    code, out, _ = run("check", copied, "--stream", "S")
    assert code == 1
    assert "msgs/1.blk at " in out
    assert "no good record" in out
    assert "messages: at most " in out
    assert "not sound" in out


def test_a_missing_block_and_a_missing_configuration_are_named(copied: Path) -> None:
    (stream_of(copied) / "msgs" / "1.blk").unlink()
    (stream_of(copied, "LIM") / "meta.sum").unlink()
    code, out, _ = run("check", copied, "--json")
    assert code == 1
    told = {(f["stream"], f["file"].rpartition("/")[2]): f for f in json.loads(out)["findings"]}
    assert told["S", "1.blk"]["severity"] == "damage"
    assert told["S", "1.blk"]["lost"].startswith("1-")
    assert told["LIM", "meta.sum"]["kind"] == "meta"


def test_foreign_files_links_and_what_cannot_be_read(copied: Path, tmp_path: Path) -> None:
    stream = stream_of(copied)
    (stream / "msgs" / "notes.txt").write_text("mine")
    (stream / "msgs" / "77.blk").mkdir()
    (copied / "jetstream" / "lost+found").mkdir()
    code, out, _ = run("check", copied, "--notes")
    assert "note: $G/streams/S/msgs/notes.txt: no file of a server" in out
    assert "77.blk: cannot be read: no regular file" in out
    assert code == 2
    (stream / "msgs" / "77.blk").rmdir()
    outside = tmp_path / "outside"
    shutil.move(stream / "msgs" / "1.blk", outside)
    (stream / "msgs" / "1.blk").symlink_to(outside)
    code, out, _ = run("check", copied)
    assert code == 2
    assert "a symbolic link" in out


def test_empty_and_wrong_directories(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, out, _ = run("check", tmp_path / "empty")
    assert (code, out.splitlines()[-1]) == (0, "sound")
    assert run("check", tmp_path / "none")[0] == 2
    (tmp_path / "other" / "photos").mkdir(parents=True)
    code, _, error = run("check", tmp_path / "other")
    assert code == 2
    assert "no store directory" in error
    assert run("check")[0] == 2
    assert "--stream S" in run("check", "--help")[1]


def test_a_running_server_is_named(servers: Servers) -> None:
    for server in (servers.under_test(jetstream=True), servers.peer(jetstream=True)):
        code, _, error = run("check", server.store)
        assert code == 0
        assert f"(pid {server.pid})" in error or not any(server.store.rglob("*.blk"))


def test_an_unknown_stream_is_answered_with_those_that_are_there(copied: Path) -> None:
    code, _, error = run("check", copied, "--stream", "NOPE")
    assert code == 2
    assert "there is no stream NOPE; there are: $G KV_B, $G LIM, $G S, $G TTL" in error
