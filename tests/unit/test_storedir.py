"""The store directory: which one a server takes that names none, what it leaves, its ballast."""

import errno
import os
import pwd
import tempfile
from pathlib import Path

import pytest

from jsserver.disk import storedir
from jsserver.disk.ballast import Ballast
from jsserver.disk.directories import make_directory
from jsserver.disk.storedir import InUse, StoreDir, StoreDirError
from tests.unit.power_cut import PowerCut, power_cut

__all__ = ["power_cut"]


def test_servers_without_a_store_directory_have_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = tmp_path / "nats"
    first, second = StoreDir("", 4222), StoreDir("", 4223)
    passing = [StoreDir("", 0), StoreDir("", -1), StoreDir("", 0)]
    every = [first, second, *passing]
    assert [Path(each.path).name for each in every[:2]] == ["jetstream", "jetstream-4223"]
    assert len({each.path for each in every}) == 5
    with pytest.raises(InUse, match="in use by another server"):
        StoreDir("", 4223)
    for each in every:
        each.close()
    left = {path.name for path in root.iterdir()}
    assert left == {"jetstream", "jetstream-4223"}  # what a port finds again


def test_who_has_a_store_directory_is_told_with_its_process(tmp_path: Path) -> None:
    one = StoreDir(str(tmp_path))
    with pytest.raises(InUse, match=r"in use by another server \(pid \d+\)"):
        StoreDir(str(tmp_path))
    one.close()
    StoreDir(str(tmp_path)).close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "made"),
            "read-only file system ({mount} is read-only for this server; under systemd name"
            " {folder} in ReadWritePaths=)",
        ),
        (
            OSError(errno.EACCES, "Permission denied", "made"),
            "permission denied (the server runs as user {me}, {folder} belongs to {me})",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "made"), "no space left on device"),
    ],
)
def test_why_there_is_no_store_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise error

    monkeypatch.setattr(storedir, "make_directory", refuse)
    mount = tmp_path
    while not os.path.ismount(mount):
        mount = mount.parent
    me = pwd.getpwuid(os.geteuid()).pw_name
    with pytest.raises(StoreDirError) as caught:
        StoreDir(str(tmp_path / "not" / "there"))
    assert str(caught.value).endswith(said.format(folder=tmp_path, mount=mount, me=me))


def test_a_directory_is_there_after_a_power_cut(tmp_path: Path, power_cut: PowerCut) -> None:
    make_directory(tmp_path / "a" / "b")
    assert power_cut.left(tmp_path) == {"a": None}
    assert power_cut.left(tmp_path / "a") == {"b": None}


def test_a_ballast_is_made_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems say that a quota is used up only when the file is synced."""

    def sync(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    ballast = Ballast(str(tmp_path))
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="quota"):
        ballast.make()
    assert list(tmp_path.iterdir()) == []
