"""Stores and backups of real servers: the same rows as they serve after a restart."""

import shutil
from pathlib import Path

import pytest

from jsserver_spark.errors import NatsError, OptionError
from pipeline.tests.site import Site
from pipeline.tests.store_world import fill, options, read, served, snapshot, state_of
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(120)]

CONFIGS = {
    "plain": {},
    "s2": {"compression": True},
    "kv": {"max_msgs_per_subject": 3},
    "last": {"max_msgs_per_subject": 1, "compression": True},
    "msgs": {"max_msgs": 900},
    "bytes": {"max_bytes": 120_000, "compression": True},
    "both": {"max_msgs": 700, "max_msgs_per_subject": 15},
    "new": {"max_msgs": 100_000, "discard": "new"},
}


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
@pytest.mark.parametrize("config", CONFIGS)
def test_of_nats_server(servers: Servers, tmp_path: Path, config: str, kill: bool) -> None:
    server = servers.peer(jetstream=True)
    fill(server, CONFIGS[config])
    server.kill() if kill else server.stop()
    shutil.copytree(server.store, tmp_path / "copy")
    before = state_of(tmp_path / "copy")
    found, planned = read(options(tmp_path / "copy", splitBytes="64k"))
    assert state_of(tmp_path / "copy") == before
    assert planned.source == ("blocks" if kill else "index.db")
    server.start()
    assert found == served(server)


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
@pytest.mark.parametrize("config", ["plain", "s2", "kv", "msgs", "bytes"])
def test_of_ours(servers: Servers, tmp_path: Path, config: str, kill: bool) -> None:
    server = servers.under_test(jetstream=True)
    fill(server, CONFIGS[config])
    server.kill() if kill else server.stop()
    shutil.copytree(server.store, tmp_path / "copy")
    before = state_of(tmp_path / "copy")
    found, planned = read(options(tmp_path / "copy", splitBytes="64k"))
    assert state_of(tmp_path / "copy") == before
    assert planned.source == ("blocks" if kill else "checkpoint.jss")
    server.start()
    assert found == served(server)


@pytest.mark.parametrize("kind", ["peer", "under_test"])
def test_a_block_that_is_lost(
    servers: Servers, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Removed, or emptied, when the files were copied; others are behind it."""
    site = Site(getattr(servers, kind)(jetstream=True))
    site.create("S", max_bytes=120_000)  # in blocks of 32,000
    site.fill("S", 800, 100)
    site.server.stop()
    (blocks,) = site.server.store.glob("jetstream/$G/streams/S/msgs")
    numbers = sorted(int(path.stem) for path in blocks.glob("*.blk"))
    assert len(numbers) >= 3
    middle = numbers[len(numbers) // 2]
    whole = read(options(site.server.store))[0]
    for name, harm, words in (
        (
            "removed",
            Path.unlink,
            rf"{middle}\.blk is damaged .* it is gone, and (index|checkpoint)",
        ),
        (
            "emptied",
            lambda path: path.write_bytes(b""),
            rf"{middle}\.blk is damaged .* it is empty",
        ),
    ):
        copy = tmp_path / name
        shutil.copytree(site.server.store, copy)
        (harmed,) = copy.glob(f"jetstream/$G/streams/S/msgs/{middle}.blk")
        harm(harmed)
        with pytest.raises(NatsError, match=words):
            read(options(copy))
        found = read(options(copy, mode="PERMISSIVE"))[0]
        assert 0 < len(found) < len(whole) and found.items() <= whole.items()
        for cache in [*copy.rglob("index.db"), *copy.rglob("checkpoint.jss")]:
            cache.unlink()
        caplog.clear()
        if name == "emptied":
            with pytest.raises(NatsError, match="it is empty, and others are behind it"):
                read(options(copy))
        else:
            assert read(options(copy))[0] == found
            assert f"there are no blocks {middle} to {middle}" in caplog.text


@pytest.mark.parametrize("kind", ["peer", "under_test"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_a_block_that_is_cut_at_the_end_of_a_record(
    servers: Servers, tmp_path: Path, kind: str, which: str
) -> None:
    """When the files were copied: every record in it is good, and some are missing."""
    site = Site(getattr(servers, kind)(jetstream=True))
    site.create("S", max_bytes=120_000)  # in blocks of 32,000
    site.fill("S", 800, 100)
    site.server.stop()
    (blocks,) = site.server.store.glob("jetstream/$G/streams/S/msgs")
    numbers = sorted(int(path.stem) for path in blocks.glob("*.blk"))
    number = {"first": numbers[0], "middle": numbers[len(numbers) // 2], "last": numbers[-1]}[which]
    block = blocks / f"{number}.blk"
    whole = read(options(site.server.store))[0]
    ends, data = [0], block.read_bytes()
    while size := int.from_bytes(data[ends[-1] : ends[-1] + 4], "little") & 0x7FFFFFFF:
        ends.append(ends[-1] + size)
    block.write_bytes(data[: ends[-8]])
    with pytest.raises(NatsError, match=rf"{number}\.blk is damaged .* ends behind sequence \d+,"):
        read(options(site.server.store))
    found = read(options(site.server.store, mode="PERMISSIVE"))[0]
    assert found.items() < whole.items() and len(found) >= len(whole) - 8


@pytest.mark.parametrize("kind", ["peer", "under_test"])
@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_after_a_purge_of_everything(
    servers: Servers, tmp_path: Path, kind: str, kill: bool
) -> None:
    server = getattr(servers, kind)(jetstream=True)
    fill(server, {}, purged=True)
    server.kill() if kill else server.stop()
    shutil.copytree(server.store, tmp_path / "copy")
    found, _ = read(options(tmp_path / "copy"))
    server.start()
    assert found == served(server)
    assert found


@pytest.mark.parametrize("kind", ["peer", "under_test"])
def test_while_the_server_runs(servers: Servers, kind: str) -> None:
    server = getattr(servers, kind)(jetstream=True)
    fill(server, {"max_age": 3600})
    found, _ = read(options(server.store))
    assert found == served(server)


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
@pytest.mark.parametrize("config", ["plain", "s2", "kv"])
@pytest.mark.parametrize("cipher", ["chacha", "aes"])
def test_encrypted(servers: Servers, tmp_path: Path, cipher: str, config: str, kill: bool) -> None:
    store = tmp_path / "store"
    text = f'jetstream {{ store_dir: "{store}", key: "a secret", cipher: {cipher} }}'
    server = servers.peer(config=text)
    fill(server, CONFIGS[config])
    server.kill() if kill else server.stop()
    key = tmp_path / "key"
    key.write_text("a secret\n")
    shutil.copytree(store, tmp_path / "copy")
    found, planned = read(options(tmp_path / "copy", encryptionKeyFile=str(key)))
    assert planned.source == ("blocks" if kill else "index.db")
    server.start()
    assert found == served(server)
    with pytest.raises(OptionError, match="is encrypted: option 'encryptionKeyFile'"):
        read(options(tmp_path / "copy"))
    key.write_text("another")
    with pytest.raises(NatsError, match=r"key does not open .*meta\.key"):
        read(options(tmp_path / "copy", encryptionKeyFile=str(key)))
    key.write_text("a secret")
    streams = tmp_path / "copy" / "jetstream" / "$G" / "streams" / "S"
    shutil.copytree(streams, tmp_path / "S")
    alone, planned = read(options(tmp_path / "S", encryptionKeyFile=str(key)))
    assert alone == found
    number = planned.splits[0].blocks[0].number
    (tmp_path / "S" / "msgs" / f"{number}.key").unlink()
    with pytest.raises(NatsError, match=rf"{number}\.blk is damaged .*{number}\.key: No such file"):
        read(options(tmp_path / "S", encryptionKeyFile=str(key)))


@pytest.mark.parametrize("index", [True, False], ids=["index", "blocks"])
@pytest.mark.parametrize("config", ["plain", "s2", "kv", "msgs"])
def test_backup(servers: Servers, tmp_path: Path, config: str, index: bool) -> None:
    server = servers.peer(jetstream=True)
    fill(server, CONFIGS[config])
    backup = snapshot(server, tmp_path / "backup")
    if not index:
        without_index(backup / "stream.tar.s2")
    want = served(server)
    found, planned = read(options(backup))
    assert planned.source == ("index.db" if index else "blocks")
    assert len(planned.splits) == 1
    if index or config in ("plain", "s2"):
        assert found == want
    else:  # what a limit took away leaves no record
        assert want.items() <= found.items()
    assert read(options(backup / "stream.tar.s2"))[0] == found
    part, _ = read(options(backup, startingOffsets="500", endingOffsets="1000"))
    assert part == {seq: row for seq, row in found.items() if 500 <= seq < 1000}
    with pytest.raises(OptionError, match="is a backup of stream 'S'"):
        read(options(backup, stream="OTHER"))


def without_index(path: Path) -> None:
    """Writes a backup anew, without its index.db."""
    import io
    import tarfile

    from jsserver_spark.cext.bytes import S2Stream
    from tests.unit.test_bytes_s2 import START, stored

    stream = S2Stream()
    plain = stream.feed(path.read_bytes())
    while piece := stream.feed(b""):
        plain += piece
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(plain)) as old,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            if not member.name.endswith("index.db"):
                new.addfile(member, old.extractfile(member))
    code = out.getvalue()
    chunks = [stored(code[at : at + 65536]) for at in range(0, len(code), 65536)]
    path.write_bytes(START + b"".join(chunks))
