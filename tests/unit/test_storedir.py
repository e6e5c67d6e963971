"""The store directory of a server that names none: which one it takes, and what it leaves."""

import tempfile
from pathlib import Path

import pytest

from jsserver.disk.storedir import InUse, StoreDir


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
