"""Configuration files: complete or absent, checked when read, and repaired after a crash."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from jsserver.disk.directories import make_directory
from jsserver.instances import metafiles
from jsserver.instances.metafiles import KEY, DamagedMeta, MetaFiles, is_encrypted
from jsserver.instances.rounds import alone

from .api_server import stub_hash
from .power_cut import PowerCut, power_cut

__all__ = ["power_cut"]

FILES = MetaFiles(stub_hash)


@pytest.fixture
def asset(tmp_path: Path) -> Path:
    directory = tmp_path / "streams" / "S"
    make_directory(directory.parent)
    alone(FILES.create(directory, directory.parent, "S", b'{"a":1}'))
    return directory


def read(asset: Path, name: str = "S") -> bytes:
    """The configuration that a start finds in an asset's directory."""
    return FILES.read(asset, name, os.listdir(asset))


def test_create_and_read(asset: Path) -> None:
    assert read(asset) == b'{"a":1}'
    assert sorted(p.name for p in asset.iterdir()) == ["meta.inf", "meta.sum"]
    assert len((asset / "meta.sum").read_bytes()) == 16
    assert os.stat(asset).st_mode & 0o777 == 0o700
    assert os.stat(asset / "meta.inf").st_mode & 0o777 == 0o600
    assert [p.name for p in asset.parent.iterdir()] == ["S"]


@pytest.mark.parametrize("number", range(5))
def test_a_creation_that_fails_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each sync fails once, the n-th of them."""
    calls = count()
    real = os.fsync

    def sync(descriptor: int) -> None:
        if next(calls) == number:
            raise OSError(5, "Input/output error")
        real(descriptor)

    directory = tmp_path / "S"
    monkeypatch.setattr(os, "fsync", sync)
    if number < 4:
        with pytest.raises(OSError, match="Input/output error"):
            alone(FILES.create(directory, tmp_path, "S", b"{}", ("msgs",)))
        assert list(tmp_path.iterdir()) == []
    else:
        alone(FILES.create(directory, tmp_path, "S", b"{}", ("msgs",)))
        assert sorted(p.name for p in directory.iterdir()) == ["meta.inf", "meta.sum", "msgs"]


def test_the_sum_belongs_to_the_name(asset: Path) -> None:
    with pytest.raises(DamagedMeta, match=r"meta\.sum is not the checksum"):
        read(asset, "T")


def test_update_replaces_both_files(asset: Path) -> None:
    alone(FILES.update(asset, "S", b'{"a":2}'))
    assert read(asset) == b'{"a":2}'
    assert sorted(p.name for p in asset.iterdir()) == ["meta.inf", "meta.sum"]


def test_a_crash_at_any_rename_leaves_the_old_or_the_new(asset: Path) -> None:
    """An update writes two files aside and renames them one after the other."""
    new = b'{"a":2}'
    for renames in (0, 1, 2):
        alone(FILES.update(asset, "S", b'{"a":1}'))
        (asset / "meta.inf.tmp").write_bytes(new)
        (asset / "meta.sum.tmp").write_bytes(FILES.checksum("S", new))
        for name in ("meta.inf", "meta.sum")[:renames]:
            (asset / f"{name}.tmp").rename(asset / name)
        for _ in range(2):  # reading repairs, so that a second reading sees the same
            assert read(asset) == (new if renames else b'{"a":1}')
        assert sorted(p.name for p in asset.iterdir()) == ["meta.inf", "meta.sum"]


@pytest.mark.parametrize("number", range(8))
def test_an_update_that_fails_midway_leaves_the_old(
    asset: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Each call that waits for the disk fails once, the n-th of them."""
    calls = 0

    def once(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number + 1:
                raise OSError(5, "Input/output error")
            return real(*args)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", once(os.fsync))
        patch.setattr(os, "rename", once(os.rename))
        try:
            alone(FILES.update(asset, "S", b'{"a":2}'))
            want = b'{"a":2}'
        except OSError:
            want = b'{"a":1}'
    assert (want == b'{"a":2}') == (calls <= number)
    assert (asset / "meta.inf").read_bytes() == want
    assert read(asset) == want
    assert sorted(p.name for p in asset.iterdir()) == ["meta.inf", "meta.sum"]


@pytest.mark.parametrize("damage", ["meta.inf", "meta.sum"])
def test_damage_is_told_and_nothing_is_changed(asset: Path, damage: str) -> None:
    (asset / damage).write_bytes(b"garbage")
    with pytest.raises(DamagedMeta):
        read(asset)
    assert (asset / damage).read_bytes() == b"garbage"
    (asset / damage).unlink()
    with pytest.raises(DamagedMeta):
        read(asset)


def test_discard_frees_the_name_at_once(asset: Path) -> None:
    trash = alone(metafiles.discard(asset, asset.parent))
    assert not asset.exists() and metafiles.leftovers(asset.parent, [trash.name, "S"]) == [trash]
    metafiles.erase(trash)
    assert list(asset.parent.iterdir()) == []


def test_a_name_that_is_too_long_fails_without_leftovers(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        alone(FILES.create(tmp_path / ("x" * 256), tmp_path, "x", b"{}"))
    assert list(tmp_path.iterdir()) == []


def test_checksum_is_the_one_on_disk() -> None:
    """Vectors of nats-server's files, where the data plane is built."""
    hashes = pytest.importorskip("jsserver.cext.bytes")
    if not hasattr(hashes, "hh64"):
        pytest.skip("the data plane is not built")
    files = MetaFiles(hashes.hh64)
    assert files.checksum("S1", b"{}") == b"6a5ac2723aa60665"
    assert files.checksum("S1/C1", b"{}") == b"baca9464cbfd78b9"


@pytest.mark.parametrize(
    ("body", "encrypted"), [(b"{\x9c\x01random", True), (b"\x9c{}", True), (b'{"name":"S"}', False)]
)
def test_what_nats_server_has_encrypted_may_begin_as_json_does(
    body: bytes, encrypted: bool
) -> None:
    assert is_encrypted(["meta.inf", KEY], body) is encrypted
    assert not is_encrypted(["meta.inf"], body)


def test_what_others_wrote_is_on_disk_once_it_is_synced(
    tmp_path: Path, power_cut: PowerCut
) -> None:
    for name in ("1.blk", "2.blk"):
        (tmp_path / name).write_bytes(name.encode())
    metafiles.sync_files(tmp_path)
    assert power_cut.left(tmp_path) == {"1.blk": b"1.blk", "2.blk": b"2.blk"}


def test_a_repair_is_there_after_a_power_cut(asset: Path, power_cut: PowerCut) -> None:
    """The sum of an update that a crash broke off gets its name when the asset is read."""
    (asset / "meta.sum").rename(asset / "meta.sum.tmp")
    assert read(asset) == b'{"a":1}'
    assert {*power_cut.left(asset)} == {"meta.inf", "meta.sum"}


def test_notes_are_there_after_a_power_cut(tmp_path: Path, power_cut: PowerCut) -> None:
    """Files of positions and of uploads: new ones, and those that replace others."""
    path = tmp_path / "notes" / "a"
    FILES.write_note(path, b"new")
    assert power_cut.left(path.parent) == {"a": b"new"}
    FILES.write_note(path, b"other")
    assert power_cut.left(path.parent) == {"a": b"other"}


def test_a_restored_asset_is_there_after_a_power_cut(tmp_path: Path, power_cut: PowerCut) -> None:
    staged = metafiles.stage(tmp_path / "streams")
    (staged / "obs" / "c").mkdir(parents=True)
    metafiles.place(staged, tmp_path / "streams" / "S")
    assert power_cut.left(tmp_path / "streams") == {"S": None}
    assert power_cut.left(tmp_path / "streams" / "S") == {"obs": None}
    assert power_cut.left(tmp_path / "streams" / "S" / "obs") == {"c": None}
