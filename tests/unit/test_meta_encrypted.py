"""Configuration files that are encrypted: with which keys they open, and what a crash leaves of a
conversion from one key to another."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsserver.cext.bytes import hh64, sha256
from jsserver.disk.directories import make_directory
from jsserver.disk.keys import Keys
from jsserver.instances.metafiles import INDEX, KEY, STATE, DamagedMeta, Locked, MetaFiles
from jsserver.instances.rounds import alone

BODY, POSITION = b'{"name":"S"}', b"a position"
OLD, NEW = Keys(b"old"), Keys(b"new", b"old", "aes")

Asset = tuple[Path, str, str]
"""A directory, the asset's name, and the file beside its configuration."""


class Crash(BaseException):
    """The process ends."""


@pytest.fixture(params=["stream", "consumer"])
def asset(request: pytest.FixtureRequest, tmp_path: Path) -> Asset:
    stream = tmp_path / "$G" / "streams" / "S"
    if request.param == "stream":
        return stream, "S", INDEX
    return stream / "obs" / "C", "S/C", STATE


def made(asset: Asset, keys: Keys | None) -> None:
    """As a server with these keys leaves it."""
    directory, name, beside = asset
    files = MetaFiles(hh64, keys)
    make_directory(directory.parent)
    alone(files.create(directory, directory.parent, name, BODY))
    body, seed = POSITION, seed_of(asset, keys)
    if seed is not None:
        body = seed.seal(body)
    if beside == INDEX:
        body += hh64(sha256(b"S"), body).to_bytes(8, "little")
    (directory / beside).parent.mkdir(exist_ok=True)
    (directory / beside).write_bytes(body)


def seed_of(asset: Asset, keys: Keys | None) -> Any:
    directory, name, _ = asset
    if keys is None or not (directory / KEY).exists():
        return None
    return keys.seed("$G", name.replace("/", "."), (directory / KEY).read_bytes())


def read(asset: Asset, keys: Keys | None) -> bytes:
    """What a start finds."""
    directory, name, _ = asset
    return MetaFiles(hh64, keys).read(directory, name, os.listdir(directory))


def position(asset: Asset, keys: Keys | None) -> bytes:
    """What is sealed beside the configuration, in clear."""
    directory, _, beside = asset
    body = (directory / beside).read_bytes()
    if beside == INDEX:
        assert hh64(sha256(b"S"), body[:-8]).to_bytes(8, "little") == body[-8:]
        body = body[:-8]
    seed = seed_of(asset, keys)
    if seed is None:
        return body
    found = seed.unseal(body)
    # The store takes what does not open for a file in clear.
    return body if found is None else bytes(found)


@pytest.mark.parametrize("before", [None, OLD], ids=["clear", "previous"])
def test_a_crash_at_any_step_of_a_conversion_loses_nothing(
    asset: Asset, monkeypatch: pytest.MonkeyPatch, before: Keys | None
) -> None:
    """Each sync and each name that a file gets, in turn, is the last that there was; and the start
    after that crashes at its first, second, ... step as well."""
    directory = asset[0]
    made(asset, before)
    there = asset_files(directory)
    steps = 0
    while ends_early(monkeypatch, steps, lambda: convert(asset)):
        crashed = asset_files(directory)
        more = 0
        while ends_early(monkeypatch, more, lambda: convert(asset)):
            check(asset)
            restore(directory, crashed)
            more += 1
        restore(directory, crashed)
        check(asset)
        restore(directory, there)
        steps += 1
    assert steps > 8
    assert read(asset, Keys(b"new", cipher="aes")) == BODY
    assert position(asset, Keys(b"new", cipher="aes")) == POSITION


def convert(asset: Asset) -> None:
    directory, name, beside = asset
    body = read(asset, NEW)
    MetaFiles(hh64, NEW).convert(directory, name, body, beside)


def ends_early(monkeypatch: pytest.MonkeyPatch, steps: int, call: Callable[[], None]) -> bool:
    """Whether the process ended, after so many steps, before the call did."""
    left = steps

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return real(*args, **named)

        return step

    with monkeypatch.context() as patch:
        for word in ("fsync", "rename", "unlink"):
            patch.setattr(os, word, counted(getattr(os, word)))
        try:
            call()
        except Crash:
            return True
    return False


def check(asset: Asset) -> None:
    """A server that has both keys finds all, and jsserver check would; afterwards it is clean."""
    directory, name, _ = asset
    there = asset_files(directory)
    assert MetaFiles(hh64, NEW).look(directory, name, os.listdir(directory)) == BODY
    assert asset_files(directory) == there
    assert read(asset, NEW) == BODY
    assert position(asset, NEW) == POSITION
    convert(asset)
    assert read(asset, NEW) == BODY
    assert position(asset, NEW) == POSITION
    assert not list(directory.glob("*.tmp"))


def asset_files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def restore(directory: Path, files: dict[Path, bytes]) -> None:
    for path in asset_files(directory):
        path.unlink()
    for path, body in files.items():
        path.write_bytes(body)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 71, 72, 73, 200])
def test_a_damaged_key_file_is_named_and_changes_nothing(asset: Asset, size: int) -> None:
    directory, name, beside = asset
    made(asset, NEW)
    (directory / KEY).write_bytes(os.urandom(size))
    there = asset_files(directory)
    for _ in range(2):
        with pytest.raises(Locked, match=r"opens meta\.key of S"):
            read(asset, NEW)
        with pytest.raises(Locked, match=r"opens meta\.key of S"):
            MetaFiles(hh64, NEW).convert(directory, name, BODY, beside)
    assert asset_files(directory) == there


def test_a_changed_configuration_is_told(asset: Asset) -> None:
    directory, name, _ = asset
    made(asset, NEW)
    sealed = bytearray((directory / "meta.inf").read_bytes())
    sealed[20] ^= 1
    (directory / "meta.inf").write_bytes(sealed)
    with pytest.raises(DamagedMeta, match=r"meta\.sum is not the checksum"):
        read(asset, NEW)
    files = MetaFiles(hh64, NEW)
    (directory / "meta.sum").write_bytes(files.checksum(name, bytes(sealed)))
    with pytest.raises(DamagedMeta, match=r"meta\.inf is not what was sealed with meta\.key"):
        read(asset, NEW)


def test_notes_are_encrypted_and_follow_the_key(tmp_path: Path) -> None:
    path = tmp_path / "uploads" / "a"
    plain, old, new = (MetaFiles(hh64, keys) for keys in (None, OLD, NEW))
    plain.write_note(path, BODY)
    plain.convert_note(path)
    assert path.read_bytes() == BODY
    for files in (old, new):
        assert files.read_note(path) == BODY
        files.convert_note(path)
        sealed = path.read_bytes()
        assert BODY not in sealed
        assert files.read_note(path) == BODY
        files.convert_note(path)
        assert path.read_bytes() == sealed
    for files in (plain, old):
        with pytest.raises(Locked, match="opens a"):
            files.read_note(path)
    assert path.read_bytes() == sealed
