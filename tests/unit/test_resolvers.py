"""Tokens of accounts in a directory: what is kept, dropped, deleted and found again."""

import hashlib
import time
from pathlib import Path

import pytest

from jsserver.access.resolvers import Directory, MemoryResolver, NotFound, NotStored, preload
from jsserver.jwt.tokens import decode
from tests.jwts import Account, Operator
from tests.unit.power_cut import PowerCut, power_cut
from tests.waiting import wait_until

__all__ = ["power_cut"]

OPERATOR = Operator()
A, B, C = (Account(OPERATOR) for _ in range(3))
NOW = int(time.time())


def test_what_is_stored_is_found_by_another_start(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path / "new"))
    assert directory.store(A.public, A.token) and not directory.store(A.public, A.token)
    (tmp_path / "new" / f"{B.public}.jwt.tmp").write_text("half")
    again = Directory(str(tmp_path / "new"))
    assert again.fetch(A.public) == A.token and again.names() == [A.public]
    assert again.digest == directory.digest == hashlib.sha256(A.token.encode()).digest()
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"{A.public}.jwt"]


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "..", "O", "A" * 55 + "B"])
def test_only_accounts_have_files(tmp_path: Path, name: str) -> None:
    directory = Directory(str(tmp_path))
    name = name.replace("O", OPERATOR.public)
    with pytest.raises(NotStored):
        directory.store(name, A.token)
    with pytest.raises(NotStored):
        directory.delete(name)
    with pytest.raises(NotFound):
        directory.fetch(name)
    assert list(tmp_path.iterdir()) == []


def test_an_older_token_never_takes_the_place_of_a_newer_one(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    directory.store(A.public, A.token)
    with pytest.raises(NotStored, match="a newer jwt"):
        directory.store(A.public, A.made(iat=NOW - 100))
    assert directory.fetch(A.public) == A.token
    preload(directory, {A.public: A.made(iat=NOW - 100), B.public: B.token})
    assert directory.fetch(A.public) == A.token and directory.fetch(B.public) == B.token
    as_old = B.made(iat=decode(B.token).iat, name="another")
    preload(directory, {B.public: as_old})
    assert directory.fetch(B.public) == as_old
    (tmp_path / f"{A.public}.jwt").write_text("no token")
    assert Directory(str(tmp_path)).store(A.public, A.made(iat=NOW - 100))


def test_a_full_directory_refuses_and_a_cache_drops_what_was_not_used(tmp_path: Path) -> None:
    full = Directory(str(tmp_path / "full"), limit=2)
    cache = Directory(str(tmp_path / "cache"), cache=True, limit=2)
    for directory in (full, cache):
        directory.store(A.public, A.token)
        directory.store(B.public, B.token)
        directory.fetch(A.public)
    with pytest.raises(NotStored, match="full"):
        full.store(C.public, C.token)
    cache.store(C.public, C.token)
    assert cache.names() == sorted([A.public, C.public])
    assert {p.name for p in (tmp_path / "cache").iterdir()} == {
        f"{A.public}.jwt",
        f"{C.public}.jwt",
    }


def test_what_is_over_is_dropped(tmp_path: Path) -> None:
    full = Directory(str(tmp_path / "full"))
    full.store(A.public, A.made(exp=NOW - 10))
    full.store(B.public, B.token)
    assert [name for name, _ in full.pack()] == [B.public]
    full.expire()
    assert full.names() == [B.public]
    cache = Directory(str(tmp_path / "cache"), cache=True, ttl=0.05)
    cache.store(A.public, A.token)

    def expired() -> bool:
        cache.expire()
        return cache.names() == []

    wait_until(expired, "its time is over")
    assert cache.digest == bytes(32)


@pytest.mark.parametrize("hard", [False, True])
def test_deletes(tmp_path: Path, hard: bool) -> None:
    directory = Directory(str(tmp_path), hard=hard)
    directory.store(A.public, A.token)
    assert directory.delete(A.public) and not directory.delete(A.public)
    assert directory.digest == bytes(32)
    left = [path.name for path in tmp_path.iterdir()]
    assert left == ([] if hard else [f"{A.public}.jwt.deleted"])


def test_what_is_stored_is_there_whole_after_a_power_cut(
    tmp_path: Path, power_cut: PowerCut
) -> None:
    directory = Directory(str(tmp_path))
    newer = A.made(iat=NOW + 10)
    for token in (A.token, newer):
        directory.store(A.public, token)
        assert power_cut.left(tmp_path) == {f"{A.public}.jwt": token.encode()}


@pytest.mark.parametrize("hard", [False, True])
def test_what_is_deleted_stays_deleted_over_a_power_cut(
    tmp_path: Path, power_cut: PowerCut, hard: bool
) -> None:
    directory = Directory(str(tmp_path), hard=hard)
    directory.store(A.public, A.token)
    directory.delete(A.public)
    assert f"{A.public}.jwt" not in power_cut.left(tmp_path)


def test_memory() -> None:
    resolver = MemoryResolver({A.public: A.token})
    assert resolver.fetch(A.public) == A.token
    with pytest.raises(NotFound):
        resolver.fetch(B.public)
