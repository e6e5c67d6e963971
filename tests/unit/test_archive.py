"""Archives of streams: which are taken, and how large their files may be."""

from pathlib import Path

import pytest

from jsserver.instances import archive
from jsserver.instances.archive import Unpacked
from jsserver.instances.metafiles import MetaFiles
from jsserver.instances.recovery import NotRestorable
from tests.client.archives import Files, archive_of

from .api_server import stub_hash
from .power_cut import PowerCut, power_cut

__all__ = ["power_cut"]

META: Files = {"meta.inf": b"{}", "meta.sum": b""}
CONSUMER: Files = {"obs/c/meta.inf": b"{}", "obs/c/meta.sum": b""}


class Whole:
    """An archive that comes at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self) -> bytes:
        data, self.data = self.data, b""
        return data


def unpacked(directory: Path, files: Files, room: int = -1) -> set[str]:
    """The files that a restore leaves in the directory of the stream."""
    directory.mkdir()
    made = Unpacked(directory, MetaFiles(stub_hash), "S", room, "file")
    made.unpack(Whole(archive_of(files, "S")))
    assert made.meta == files["meta.inf"]
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_a_file_may_be_empty(tmp_path: Path) -> None:
    files = {"msgs/1.blk": b"", "note": b""}
    assert unpacked(tmp_path / "S", META | files) == {"msgs/1.blk"}


def test_a_consumer_needs_its_configuration_and_no_state(tmp_path: Path) -> None:
    made = {"obs/c/meta.inf", "obs/c/meta.sum"}
    assert unpacked(tmp_path / "a", META | CONSUMER) == made
    state = {"obs/c/o.dat": b"state"}
    assert unpacked(tmp_path / "b", META | CONSUMER | state) == {*made, *state}
    with pytest.raises(NotRestorable, match="has no configuration"):
        unpacked(tmp_path / "c", META | state)


@pytest.mark.parametrize(("limit", "name"), [("META_LIMIT", "meta.inf"), ("STATE_LIMIT", "o.dat")])
def test_files_have_a_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, name: str
) -> None:
    files = META | CONSUMER | {"obs/c/o.dat": b""}
    (path,) = (each for each in files if each.endswith(f"c/{name}"))
    monkeypatch.setattr(archive, limit, 10)
    assert path in unpacked(tmp_path / "a", files | {path: b"{12345678}"})
    with pytest.raises(NotRestorable, match="of 11 bytes"):
        unpacked(tmp_path / "b", files | {path: b"{123456789}"})


def test_files_have_the_room_that_there_is(tmp_path: Path) -> None:
    blocks = {"msgs/1.blk": bytes(6), "msgs/2.blk": bytes(4)}
    assert unpacked(tmp_path / "a", META | blocks, room=10) == {*blocks}
    with pytest.raises(NotRestorable, match="insufficient storage"):
        unpacked(tmp_path / "b", META | blocks, room=9)
    empty = {"msgs/1.blk": b""}
    assert unpacked(tmp_path / "c", META | empty, room=0) == {*empty}


def test_what_is_unpacked_is_there_after_a_power_cut(tmp_path: Path, power_cut: PowerCut) -> None:
    files = META | CONSUMER | {"msgs/1.blk": b"block", "obs/c/o.dat": b"state"}
    for name in unpacked(tmp_path / "S", files):
        path = tmp_path / "S" / name
        assert power_cut.whole(path) == path.read_bytes(), name
