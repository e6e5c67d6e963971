"""`jsserver store repair`: what is good stays, what it did is sound, and both servers serve it."""

import asyncio
import json
import os
import random
import shutil
from pathlib import Path

import nats
import pytest

from jsserver.cext.bytes import hh64
from jsserver.disk.directories import sync_directory
from jsserver.instances.metafiles import MetaFiles
from jsserver.offline import places, repair
from tests.client import offline
from tests.client.offline import Made, flip, run, stream_of
from tests.servers import Server, Servers, command_of_peer, command_under_test

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

FLIPS = 8


@pytest.fixture(scope="module")
def directories(module_servers: Servers) -> dict[str, Made]:
    return {way: offline.make(module_servers, way) for way in offline.WAYS}


@pytest.fixture(params=offline.WAYS)
def made(directories: dict[str, Made], request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """A copy of a directory, to be damaged."""
    whole = directories[request.param]
    shutil.copytree(whole.path, tmp_path / "store")
    return Made(tmp_path / "store", whole.served)


def block_with(store: Path, number: int) -> tuple[Path, int]:
    """The block with a message, and where its payload begins."""
    for path in sorted((stream_of(store) / "msgs").glob("*.blk")):
        at = path.read_bytes().find(offline.payload(number))
        if at >= 0:
            return path, at
    raise AssertionError(number)


def test_a_dry_run_changes_nothing(made: Made) -> None:
    path, at = block_with(made.path, 60)
    flip(path, at * 8)
    before = {p: p.read_bytes() for p in made.path.rglob("*") if p.is_file()}
    code, out, _ = run("repair", made.path)
    assert code == 1
    assert "changed back" in out
    assert "--yes does it" in out
    assert {p: p.read_bytes() for p in made.path.rglob("*") if p.is_file()} == before


def test_single_bits_are_changed_back(made: Made) -> None:
    rng = random.Random(5)
    files = [p for p in sorted(stream_of(made.path).rglob("*.blk"))]
    files += sorted(stream_of(made.path).rglob("meta.*"))
    for path in files:
        data = path.read_bytes()
        for bit in rng.sample(range(len(data) * 8), FLIPS):
            flip(path, bit)
            finding = next((f for f in offline.check(made.path) if not f.sound), None)
            if finding is None:
                path.write_bytes(data)
                continue
            layout = places.layout(str(made.path))
            (place,) = layout.chosen("", "S")
            repair.carry_out(repair.plan(place, MetaFiles(hh64)))
            unknown = path.suffix == ".blk" and "length" in str(finding.found)
            assert path.read_bytes() == data or unknown, (path.name, bit)
            path.write_bytes(data)


def lose(path: Path, at: int, size: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + os.urandom(size) + data[at + size :])


@pytest.mark.parametrize("where", [60, offline.COUNT - 1])
def test_what_stands_around_lost_bytes_is_served_by_both(
    made: Made, where: int, tmp_path: Path
) -> None:
    path, at = block_with(made.path, where)
    lose(path, at + 3, 4)
    code, out, _ = run("repair", made.path, "--yes", "--json")
    assert code == 0, out
    told = json.loads(out)
    lost = {
        seq
        for s in told["streams"]
        for x in s["steps"]
        for a, b in x["lost"]
        for seq in range(a, b + 1)
    }
    code, out, _ = run("check", made.path)
    assert code == 0, out
    code, out, _ = run("repair", made.path, "--yes")
    assert (code, out) == (0, "nothing to do\n")
    expected = dict(made.served["S"])
    del expected[where + 1]
    assert lost <= {where + 1}
    for who in ("ours", "peer"):
        served = offline.served_by(who, made.path, tmp_path / who)
        assert served == {**made.served, "S": expected}, who
    assert len(list(stream_of(made.path).glob("quarantine-*"))) == 1


@pytest.mark.parametrize("who", ["ours", "peer"])
def test_a_server_goes_on_behind_the_end_of_a_repaired_stream(
    made: Made, who: str, tmp_path: Path
) -> None:
    path, at = block_with(made.path, offline.COUNT - 2)
    lose(path, at + 3, 4)
    assert run("repair", made.path, "--yes")[0] == 0
    command = command_under_test() if who == "ours" else command_of_peer()
    assert command is not None
    server = Server(command, tmp_path / who, jetstream=True)
    shutil.copytree(made.path, server.store)
    server.start()
    try:
        assert asyncio.run(publish(server.url)) == [offline.COUNT + 1, offline.COUNT + 2]
        server.kill()
        server.start()
        served = asyncio.run(offline.contents(server.url))["S"]
    finally:
        server.kill()
    expected = dict(made.served["S"])
    del expected[offline.COUNT - 1]
    assert {seq: m for seq, m in served.items() if seq <= offline.COUNT} == expected
    assert served[offline.COUNT + 2] == ("k.new", b"1")


async def publish(url: str) -> list[int]:
    client = await nats.connect(url)
    seqs = [(await client.jetstream().publish("k.new", b"%d" % i)).seq for i in range(2)]
    await client.close()
    return seqs


def test_a_missing_block_and_damaged_caches(made: Made, tmp_path: Path) -> None:
    stream = stream_of(made.path)
    block = min((stream / "msgs").glob("*.blk"))
    block.unlink()
    for name in ("subjects.jsd", "sequence.jsr"):
        if (stream / name).exists():
            flip(stream / name, 100)
    run("repair", made.path, "--yes")
    code, out, _ = run("check", made.path)
    if "peer-killed" not in str(made.path):
        assert code == 0, out
    for who in ("ours", "peer"):
        served = offline.served_by(who, made.path, tmp_path / who)
        assert {n: m for n, m in served.items() if n != "S"} == {
            n: m for n, m in made.served.items() if n != "S"
        }
        assert served["S"].items() <= made.served["S"].items()


def test_an_interrupted_repair_is_finished_by_the_next(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, at = block_with(made.path, 60)
    lose(path, at + 3, 4)
    real = sync_directory
    for stop in range(1, 12):
        store = tmp_path / f"stop{stop}"
        shutil.copytree(made.path, store)
        calls = iter(range(1, 1000))

        def cut(folder: os.PathLike[str], calls=calls, stop=stop) -> None:
            if next(calls) == stop:
                raise KeyboardInterrupt
            real(folder)

        monkeypatch.setattr(repair, "sync_directory", cut)
        (place,) = places.layout(str(store)).chosen("", "S")
        ended = True
        try:
            repair.carry_out(repair.plan(place, MetaFiles(hh64)))
        except KeyboardInterrupt:
            ended = False
        monkeypatch.setattr(repair, "sync_directory", real)
        repair.carry_out(repair.plan(place, MetaFiles(hh64)))
        assert all(findings.sound for findings in offline.check(store)), stop
        if ended:
            break
    else:
        raise AssertionError("it never ended")


def test_what_a_kill_tore_is_left_to_a_start(made: Made) -> None:
    path, at = block_with(made.path, offline.COUNT - 1)
    path.write_bytes(path.read_bytes()[: at + 5])
    (stream_of(made.path) / "msgs" / "index.db").unlink(missing_ok=True)
    (stream_of(made.path) / "msgs" / "checkpoint.jss").unlink(missing_ok=True)
    code, out, _ = run("check", made.path, "--stream", "S", "--notes")
    assert code == 0, out
    assert "a write that never ended" in out
    before = path.read_bytes()
    assert run("repair", made.path, "--stream", "S", "--yes")[:2] == (0, "nothing to do\n")
    assert path.read_bytes() == before


def test_a_running_server_keeps_it_off(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    code, _, error = run("repair", server.store, "--yes")
    assert code == 2
    assert f"(pid {server.pid}) runs on this directory: stop it first" in error
