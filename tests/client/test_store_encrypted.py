"""`jsserver store` on directories that either server has encrypted, with and without the key."""

import asyncio
import base64
import json
import os
import shutil
from pathlib import Path

import nats
import pytest
from nats.js.api import StorageType, StoreCompression, StreamConfig

from jsserver.cext.bytes import hh64
from jsserver.disk.directories import sync_directory
from jsserver.instances.metafiles import MetaFiles
from jsserver.offline import blocks, repair, sealing
from jsserver.offline.places import Place, layout
from jsserver.offline.seals import server_key
from tests.client import offline
from tests.client.offline import Made, flip, run, stream_of
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

SECRET = "a secret: $%&"
PACKED = 100


async def fill(url: str) -> None:
    """As offline.make does, and a stream of several blocks that are compressed, too."""
    await offline.begin(url)
    await offline.finish(url)
    client = await nats.connect(url)
    js = client.jetstream()
    config = StreamConfig(
        name="PACKED",
        subjects=["p.>"],
        storage=StorageType.FILE,
        compression=StoreCompression.S2,
        max_bytes=127_000,  # so blocks of 32,000 bytes
    )
    await js.add_stream(config)
    for i in range(PACKED):
        await js.publish(f"p.{i % 10}", b"%d " % i * 300)
    await client.close()


@pytest.fixture(scope="module", params=["chacha-clean", "aes-clean", "chacha-killed", "aes-killed"])
def made(
    module_servers: Servers,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    cipher, _, how = request.param.partition("-")
    store = tmp_path_factory.mktemp("encrypted")
    (store / "key").write_text(f"{SECRET}\n")
    (store / "wrong").write_text("another")
    text = f'jetstream {{ store_dir: "{store}", key: "{SECRET}", cipher: {cipher} }}'
    server = module_servers.peer(config=text)
    asyncio.run(fill(server.url))
    served = asyncio.run(offline.contents(server.url))
    assert len(list(stream_of(store, "PACKED").glob("msgs/*.blk"))) > 2
    if how == "clean":
        server.stop()
    else:
        server.kill()
    return Made(store, served)


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    shutil.copytree(made.path, tmp_path / "store")
    return tmp_path / "store"


def with_key(made: Path) -> tuple[str, str]:
    return "--key-file", str(made / "key")


def test_a_check_reads_every_record(made: Made) -> None:
    code, out, error = run("check", made.path, "--json", *with_key(made.path))
    assert (code, error) == (0, ""), out
    told = json.loads(out)
    assert told["findings"] == []
    for stream in told["streams"]:
        assert (stream["encrypted"], stream["sealed"]) == (True, False)
        assert stream["messages"] >= len(made.served[stream["stream"]])
        assert stream["records"] >= stream["messages"] > 0
    assert "encrypted" in run("check", made.path, *with_key(made.path))[1]


def test_a_dump_shows_what_the_server_served(made: Made) -> None:
    for stream in ("S", "PACKED", "TTL"):
        words = ["--stream", stream, "--json", *with_key(made.path)]
        code, out, error = run("dump", made.path, *words)
        assert (code, error) == (0, "")
        told = [json.loads(line) for line in out.splitlines()]
        found = {m["seq"]: (m["subject"], base64.b64decode(m["data"])) for m in told}
        assert found == made.served[stream]


def test_consumers_stand_where_the_server_had_them(made: Made) -> None:
    words = ["--stream", "S", "--limit", 0, "--consumers", "--json", *with_key(made.path)]
    code, out, error = run("dump", made.path, *words)
    assert (code, error) == (0, "")
    (told,) = (json.loads(line) for line in out.splitlines())
    assert told["consumer"] == "C"
    assert told["state"]["delivered"]["consumer_seq"] <= 40


def test_usage_counts_messages(made: Made) -> None:
    code, out, _ = run("du", made.path, "--json", *with_key(made.path))
    assert code == 0
    told = {one["stream"]: one for one in json.loads(out)["streams"]}
    assert told["S"]["messages"] == len(made.served["S"])
    assert all(one["encrypted"] and not one["sealed"] for one in told.values())


def test_without_the_key_it_is_said_that_nothing_was_looked_at(made: Made) -> None:
    code, out, _ = run("check", made.path, "--json")
    told = json.loads(out)
    assert (code, told["findings"][0]["kind"]) == (0, "unseen")
    assert all(s["encrypted"] and s["sealed"] and not s["messages"] for s in told["streams"])
    assert "encrypted: records not looked at" in run("check", made.path)[1]
    code, _, error = run("dump", made.path, "--stream", "S")
    assert code == 2
    assert "stream S: encrypted, and no key was given (--key-file)" in error
    code, out, _ = run("du", made.path)
    assert code == 0 and "encrypted" in out


def test_another_key_is_named_and_changes_nothing(made: Made) -> None:
    before = {p: p.stat().st_mtime_ns for p in made.path.rglob("*")}
    code, out, _ = run("check", made.path, "--key-file", made.path / "wrong")
    assert code == 2
    assert "meta.inf: cannot be read: the key that was given does not open meta.key" in out
    code, _, error = run("dump", made.path, "--stream", "S", "--key-file", made.path / "wrong")
    assert code == 2
    assert "stream S: the key that was given does not open meta.key" in error
    assert {p: p.stat().st_mtime_ns for p in made.path.rglob("*")} == before


def test_a_key_file_that_cannot_be_used_is_named(made: Made, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for name, why in (("none", "no such file"), ("empty", "it is empty"), (".", "no regular file")):
        code, _, error = run("check", made.path, "--key-file", tmp_path / name)
        assert code == 2
        assert f"{tmp_path / name}: {why}" in error


def test_one_changed_bit_is_found_in_each_kind_of_file(copied: Path) -> None:
    stream, packed = stream_of(copied), stream_of(copied, "PACKED")
    consumer = stream / "obs" / "C"
    files = [stream / "msgs" / "1.blk", stream / "msgs" / "1.key", packed / "msgs" / "1.blk"]
    files += [consumer / "o.dat", consumer / "meta.key", stream / "meta.inf", stream / "meta.key"]
    for path in files:
        bit = 8 * (path.stat().st_size // 2) + 3
        flip(path, bit)
        name = path.relative_to(copied / "jetstream")
        code, out, _ = run("check", copied, "--stream", name.parts[2], *with_key(copied))
        assert code != 0, path
        if path.suffix == ".key" and path.name != "meta.key":
            assert f"damage: {name.with_suffix('.blk')}: the key that was given" in out
        elif path == consumer / "meta.key":
            assert f"damage: {name.parent}/o.dat: the key that was given does not open" in out
        elif path.parent.name == "msgs" or path.name == "o.dat":
            assert f"damage: {name}" in out
        flip(path, bit)


def test_a_block_without_its_key_costs_that_block_alone(copied: Path) -> None:
    folder = stream_of(copied, "PACKED") / "msgs"
    (folder / "2.key").unlink()
    (folder / "index.db").unlink(missing_ok=True)
    code, out, _ = run("check", copied, "--stream", "PACKED", *with_key(copied))
    assert code == 1
    assert "msgs/2.blk: its key 2.key is missing" in out
    words = ["--stream", "PACKED", "--json", *with_key(copied)]
    code, out, error = run("dump", copied, *words)
    assert code == 1
    assert "2.blk: its key 2.key is missing" in error
    found = [json.loads(line)["seq"] for line in out.splitlines()]
    assert found[0] == 1 and found[-1] == PACKED
    assert 0 < PACKED - len(found) < PACKED


def test_a_repair_of_what_is_sound_does_nothing(copied: Path) -> None:
    assert run("repair", copied, *with_key(copied)) == (0, "nothing to do\n", "")


@pytest.mark.parametrize("how", ["clean", "killed"])
@pytest.mark.parametrize("cipher", ["chacha", "aes"])
def test_a_directory_of_this_server_is_read_as_well(
    servers: Servers, tmp_path: Path, cipher: str, how: str
) -> None:
    """Its files beside the blocks, too: each changed bit in one of them is told."""
    (tmp_path / "key").write_text(SECRET)
    text = f'jetstream {{ store_dir: "{tmp_path}", key: "{SECRET}", cipher: {cipher} }}'
    server = servers.under_test(config=text)
    asyncio.run(fill(server.url))
    served = asyncio.run(offline.contents(server.url))
    if how == "clean":
        server.stop()
    else:
        server.kill()
    code, out, error = run("check", tmp_path, "--json", *with_key(tmp_path))
    assert (code, error) == (0, ""), out
    told = {one["stream"]: one for one in json.loads(out)["streams"]}
    assert {name: one["messages"] for name, one in told.items()} == {
        name: len(messages) for name, messages in served.items()
    }
    words = ["--stream", "PACKED", "--json", *with_key(tmp_path)]
    code, out, error = run("dump", tmp_path, *words)
    assert (code, error) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    dumped = {m["seq"]: (m["subject"], base64.b64decode(m["data"])) for m in found}
    assert dumped == served["PACKED"]
    assert run("du", tmp_path, *with_key(tmp_path))[0] == 0
    assert run("repair", tmp_path, *with_key(tmp_path))[1] == "nothing to do\n"
    code, out, _ = run("check", tmp_path, "--json")
    assert (code, json.loads(out)["findings"][0]["kind"]) == (0, "unseen")
    stream = stream_of(tmp_path)
    for file in ("consumers.log", "msgs/checkpoint.jss") if how == "clean" else ("consumers.log",):
        assert b"consumer" not in (stream / file).read_bytes()
        flip(stream / file, 8 * 70)
        code, out, _ = run("check", tmp_path, *with_key(tmp_path))
        assert code == 1 and file in out
        flip(stream / file, 8 * 70)


def keyed_place(store: Path, stream: str) -> Place:
    (place,) = layout(str(store), server_key(str(store / "key"))).chosen("", stream)
    return place


def lose(store: Path, stream: str, number: int) -> int:
    """Spoils bytes of a message's payload on the disk; its sequence."""
    place = keyed_place(store, stream)
    folder, _ = place.messages()
    block = blocks.read(place, number, True)
    row = [row for row in block.rows() if row[6] == blocks.Kind.RECORD and row[3] > 60][3]
    path = folder / f"{number}.blk"
    data = bytearray(path.read_bytes())
    at = row[0] + row[3] - 20
    data[at : at + 6] = os.urandom(6)
    path.write_bytes(data)
    return int(row[1] & blocks.SEQUENCE)


def files_of(store: Path) -> dict[Path, bytes]:
    files = [path for path in store.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


def numbers_of(store: Path, stream: str) -> list[int]:
    return sorted(int(path.stem) for path in stream_of(store, stream).glob("msgs/*.blk"))


@pytest.mark.parametrize("words", [(), ("--key-file", "wrong")], ids=["no key", "another key"])
def test_a_repair_without_the_key_changes_nothing(copied: Path, words: tuple[str, ...]) -> None:
    lose(copied, "S", numbers_of(copied, "S")[0])
    before = files_of(copied)
    given = tuple(str(copied / word) if word == "wrong" else word for word in words)
    code, out, _ = run("repair", copied, "--yes", *given)
    assert code == 1
    assert "left as it is: its blocks: " in out
    assert files_of(copied) == before


def test_a_repair_contains_damage_of_encrypted_blocks(
    servers: Servers, made: Made, copied: Path
) -> None:
    """A record costs one message, a damaged key its block; what was there is in the quarantine."""
    number = numbers_of(copied, "S")[0]
    gone = lose(copied, "S", number)
    block = stream_of(copied) / "msgs" / f"{number}.blk"
    replaced = block.read_bytes(), block.with_suffix(".key").read_bytes()
    packed = stream_of(copied, "PACKED") / "msgs"
    key = packed / f"{numbers_of(copied, 'PACKED')[1]}.key"
    data = bytearray(key.read_bytes())
    data[30] ^= 0xFF
    key.write_bytes(data)
    code, out, error = run("repair", copied, "--yes", *with_key(copied))
    assert (code, error) == (0, ""), out
    assert "is written anew without its damaged places" in out
    assert f"{key.stem}.blk: goes to the quarantine: " in out
    (kept,) = stream_of(copied).glob("quarantine-*/msgs")
    assert replaced == ((kept / block.name).read_bytes(), (kept / f"{number}.key").read_bytes())
    assert not key.exists()
    code, out, _ = run("check", copied, *with_key(copied))
    assert code == 0, out
    again = copied.parent / "again"
    shutil.copytree(copied, again)
    assert run("repair", again, "--yes", *with_key(again))[1] == "nothing to do\n"
    for who, store in (("peer", again), ("ours", copied)):
        text = f'jetstream {{ store_dir: "{store}", key: "{SECRET}" }}'
        server = servers.peer(config=text) if who == "peer" else servers.under_test(config=text)
        served = asyncio.run(offline.contents(server.url))
        assert made.served["S"].keys() - served["S"].keys() == {gone}, who
        assert 0 < len(served["PACKED"]) < len(made.served["PACKED"])
        for name in made.served:
            assert served[name].items() <= made.served[name].items(), (who, name)
        server.stop()


def test_an_interrupted_repair_of_encrypted_blocks_is_finished_by_the_next(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = lose(copied, "S", numbers_of(copied, "S")[0])
    real = sync_directory
    for stop in range(1, 20):
        store = copied.parent / f"stop{stop}"
        shutil.copytree(copied, store)
        calls = iter(range(1, 1000))

        def cut(folder: os.PathLike[str], calls=calls, stop=stop) -> None:
            if next(calls) == stop:
                raise KeyboardInterrupt
            real(folder)

        for module in (repair, sealing):
            monkeypatch.setattr(module, "sync_directory", cut)
        place, ended = keyed_place(store, "S"), True
        try:
            repair.carry_out(repair.plan(place, MetaFiles(hh64)))
        except KeyboardInterrupt:
            ended = False
        for module in (repair, sealing):
            monkeypatch.setattr(module, "sync_directory", real)
        repair.carry_out(repair.plan(place, MetaFiles(hh64)))
        there = {
            int(row[1] & blocks.SEQUENCE)
            for number in numbers_of(store, "S")
            for row in blocks.read(place, number, True).rows()
            if row[6] == blocks.Kind.RECORD and not row[1] & blocks.TOMB
        }
        assert gone not in there
        assert len(there) > 20, stop
        assert repair.plan(place, MetaFiles(hh64)).steps == []
        if ended:
            break
    else:
        raise AssertionError("it never ended")
