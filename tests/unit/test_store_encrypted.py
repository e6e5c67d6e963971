"""Stores behind the table that encrypts their files."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from jsserver.cext import cipher
from tests.cext.store import PyLog, PyStore

SECRET, ACCOUNT = b"secret", b"$G"
PAGE = 4096
WORDS = [b"subject-of-messages", b"payload-of-messages"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "$G" / "streams" / "S"
    made.mkdir(parents=True)
    (made / "meta.key").write_bytes(b"a key")  # a stream without it may be plain
    return made


@pytest.fixture(params=["chacha", "aes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def filled(directory: Path, kind: str, count: int = 100, **options: Any) -> PyStore:
    store = PyStore(directory, cipher=kind, commit="manual", **options)
    for i in range(count):
        store.append(f"subject-of-messages.{i % 7}", b"payload-of-messages %d" % i * 20)
    store.commit()
    return store


def served(store: PyStore) -> dict[int, tuple[str, bytes]]:
    state = store.state()
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        try:
            message = store.load(seq)
        except (KeyError, ValueError):  # it is gone, or damaged
            continue
        found[seq] = message[2], message[4]
    return found


def plain_block(directory: Path, number: int, kind: str) -> bytes:
    """A block as nats-server would decrypt it."""
    number_of = cipher.KINDS[kind]
    sealed = (directory / "msgs" / f"{number}.key").read_bytes()
    key = cipher.unseal(number_of, cipher.derive(SECRET, ACCOUNT, b"S:%d" % number), sealed)
    assert key is not None
    block = (directory / "msgs" / f"{number}.blk").read_bytes()
    return cipher.crypt_file(number_of, key, sealed[: cipher.NONCES[number_of]], 0, block)


def test_nothing_in_clear_is_left_in_any_file(directory: Path, kind: str) -> None:
    store = filled(directory, kind, 1000, max_bytes=100_000)
    for seq in range(900, 950):
        store.remove(seq)
    store.commit()
    before = served(store)
    store.close()
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".blk", ".key", ".jss"}
    for path in files:
        for word in WORDS:
            assert word not in path.read_bytes(), path
    again = PyStore(directory, cipher=kind, commit="manual")
    assert served(again) == before
    again.close()


def test_blocks_are_nats_servers(directory: Path, kind: str) -> None:
    filled(directory, kind).close()
    plain = plain_block(directory, 1, kind)
    assert plain.count(b"subject-of-messages.3") > 10
    assert int.from_bytes(plain[4:12], "little") == 1


def test_another_key_opens_nothing_and_changes_nothing(directory: Path) -> None:
    filled(directory, "chacha").close()
    (directory / "msgs" / "1.key").write_bytes(bytes(72))
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    (directory / "msgs" / "checkpoint.jss").unlink()
    with pytest.raises(OSError, match="Key was rejected"):
        PyStore(directory, cipher="chacha", commit="manual")
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert after.items() <= before.items()


def test_a_key_that_a_power_cut_left_two_names_is_not_written_over(
    directory: Path, kind: str
) -> None:
    """A rename may be half on disk: then the name that a new key is written under is the old one's,
    too."""
    store = filled(directory, kind)
    before = served(store)
    store.close()
    key = directory / "msgs" / "1.key"
    os.link(key, key.with_name("1.key.tmp"))
    in_the_way = directory / "msgs" / "1.blk.new"
    in_the_way.mkdir()
    with pytest.raises(OSError):
        PyStore(directory, cipher=kind, secret=b"another", before=SECRET, commit="manual")
    in_the_way.rmdir()
    again = PyStore(directory, cipher=kind, commit="manual")
    assert served(again) == before
    again.close()


class Seen:
    """What was seen of each key's ciphertext: no place of it may ever hold something else."""

    def __init__(self, kind: str) -> None:
        self.head = 5 + cipher.NONCES[cipher.KINDS[kind]] + 8
        self.texts: dict[bytes, bytes] = {}

    def look(self, directory: Path) -> None:
        for path in directory.rglob("*"):
            if not path.is_file() or path.suffix == ".key" or path.name == "sequence.jsr":
                continue
            data = path.read_bytes()
            if path.suffix == ".blk":
                key, text = path.with_suffix(".key").read_bytes(), data
            else:
                key, text = data[: self.head], data[self.head :]
            had = self.texts.get(key, b"")
            same = min(len(had), len(text))
            assert had[:same] == text[:same], f"{path}: a keystream was used twice"
            if len(text) > len(had):
                self.texts[key] = text


def newest(directory: Path) -> Path | None:
    blocks = sorted(directory.glob("msgs/*.blk"), key=lambda path: int(path.stem))
    return blocks[-1] if blocks else None


@pytest.mark.parametrize("seed", range(12))
def test_no_keystream_is_used_twice_whatever_happens(directory: Path, kind: str, seed: int) -> None:
    rng = random.Random(seed)
    seen = Seen(kind)
    options: dict[str, Any] = {"max_bytes": 100_000, "compress": seed % 3 == 0}
    store = filled(directory, kind, 50, **options)
    model = served(store)
    for _ in range(60):
        step = rng.random()
        if step < 0.5:
            for _ in range(rng.randrange(1, 60)):
                store.append(f"subject-of-messages.{rng.randrange(9)}", rng.randbytes(200))
        elif step < 0.7 and model:
            for seq in rng.sample(sorted(model), min(len(model), 20)):
                store.remove(seq)
        elif step < 0.75:
            store.purge() if rng.random() < 0.5 else store.truncate(max(0, *model, 3) - 3)
        elif step < 0.85:
            store.commit()
            store.close()
            seen.look(directory)
            store = PyStore(directory, cipher=kind, commit="manual", **options)
        elif step < 0.95:
            store.commit()
            torn = newest(directory)
            size = torn.stat().st_size if torn else 0
            for _ in range(rng.randrange(90)):
                store.append("subject-of-messages.0", rng.randbytes(rng.randrange(300)))
            store.commit()
            seen.look(directory)
            store.abandon()
            if torn and torn == newest(directory):
                pages = range(-(-size // PAGE) * PAGE, torn.stat().st_size, PAGE)
                if pages:  # some pages of the last group are there
                    os.truncate(torn, rng.choice(pages))
            store = PyStore(directory, cipher=kind, commit="manual", **options)
        else:
            store.upkeep()
        store.commit()
        model = served(store)
        seen.look(directory)
    store.close()
    seen.look(directory)
    again = PyStore(directory, cipher=kind, commit="manual", **options)
    assert served(again) == model
    again.close()
    for path in directory.rglob("*"):
        if path.is_file():
            for word in WORDS:
                assert word not in path.read_bytes(), path


def test_a_block_that_was_put_aside_stops_no_later_start(directory: Path, kind: str) -> None:
    """Not when the key changes either; then it has the new one, too, as far as its own opens."""
    filled(directory, kind, 1000, max_bytes=100_000).close()
    blocks = sorted((directory / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    blocks[1].write_bytes(os.urandom(blocks[1].stat().st_size))
    for path in directory.rglob("*.js[sx]"):
        path.unlink()
    before, secret = b"", SECRET
    for life in range(3):
        store = PyStore(directory, cipher=kind, secret=secret, before=before, commit="manual")
        assert len(served(store)) > 100
        store.close()
        (aside,) = (directory / "msgs").glob("damaged-*.blk")
        if life == 1:
            aside.with_suffix(".key").unlink()
        before, secret = secret, b"another %d" % life


def test_what_is_cut_off_the_log_of_consumers_is_encrypted(directory: Path, kind: str) -> None:
    path = directory / "consumers.log"
    for damaged in (False, True):
        store = filled(directory, kind)
        log = PyLog(store, path)
        assert len(log.replayed) == damaged
        log.append(b"subject-of-messages " * 20)
        log.append(b"payload-of-messages " * 20)
        store.commit()
        log.close()
        store.close()
        if not damaged:
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 200)
                file.write(os.urandom(40))
    aside = path.with_name("consumers.log.damaged").read_bytes()
    assert len(aside) > 400
    assert not any(word in aside for word in WORDS)


BLOCKS: dict[str, Any] = {"max_bytes": 100_000, "trim": False}
"""Options of a store with blocks of 32,000 bytes."""


def keyed(directory: Path, kind: str, count: int, sided: bool) -> dict[int, tuple[str, bytes]]:
    """Fills a stream whose own key is good, as a kill leaves it; what it serves."""
    seed = cipher.seal(
        cipher.KINDS[kind], cipher.derive(SECRET, ACCOUNT, directory.name.encode()), bytes(32)
    )
    (directory / "meta.key").write_bytes(seed)
    store = filled(directory, kind, count, **BLOCKS)
    if sided:
        store.upkeep()
    had = served(store)
    store.abandon()
    return had


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
        return
    for at in range(30, 40):
        data[at] ^= 0x55
    path.write_bytes(data[:20] if how == "short" else data)


@pytest.mark.parametrize("sided", [True, False])
@pytest.mark.parametrize("how", ["changed", "short", "missing"])
def test_a_damaged_key_costs_its_block(directory: Path, kind: str, how: str, sided: bool) -> None:
    """Which is put aside with that key. Its messages are told as lost, the others served."""
    had = keyed(directory, kind, 300, sided)
    msgs = directory / "msgs"
    block, key = msgs / "2.blk", msgs / "2.key"
    assert len(list(msgs.glob("*.blk"))) > 3
    damaged(key, how)
    bytes_of = {path.suffix: path.read_bytes() for path in (block, key) if path.exists()}
    store = PyStore(directory, cipher=kind, commit="manual", **BLOCKS)
    rest = served(store)
    lost = store.lost()
    gone = sorted(had.keys() - rest.keys())
    assert rest.items() < had.items()
    assert 0 < len(gone) < len(had) // 2
    if sided:
        assert lost["msgs"] == gone
    assert any(place[4] <= gone[0] and gone[-1] <= place[5] for place in lost["places"])
    for suffix, data in bytes_of.items():
        assert (msgs / f"damaged-2{suffix}").read_bytes() == data
    assert store.append("subject-of-messages.9", b"more") == max(had) + 1
    store.commit()
    store.close()
    store = PyStore(
        directory, cipher="aes", secret=b"new", before=SECRET, commit="manual", **BLOCKS
    )
    again = served(store)
    assert again.pop(max(had) + 1) == ("subject-of-messages.9", b"more")
    assert again == rest
    store.close()


@pytest.mark.parametrize("how", ["changed", "short"])
@pytest.mark.parametrize("count", [20, 300])
def test_a_damaged_key_of_the_last_block_lets_no_sequence_be_used_again(
    directory: Path, kind: str, count: int, how: str
) -> None:
    had = keyed(directory, kind, count, sided=False)
    last = max((directory / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    damaged(last.with_suffix(".key"), how)
    store = PyStore(directory, cipher=kind, commit="manual", **BLOCKS)
    assert served(store).items() < had.items()
    assert store.lost()["places"]
    assert store.append("subject-of-messages.9", b"more") > max(had)
    store.close()


def test_keys_that_are_all_damaged_are_taken_for_another_servers(
    directory: Path, kind: str
) -> None:
    keyed(directory, kind, 300, sided=True)
    for path in (directory / "msgs").glob("*.key"):
        damaged(path, "changed")
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="its files cannot be made ready"):
        PyStore(directory, cipher=kind, commit="manual", **BLOCKS)
    assert files == {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", [0, PAGE])
def test_a_key_without_its_block_stops_no_start(directory: Path, kind: str, size: int) -> None:
    """A crash came between both, and the server has had two other keys since."""
    had = keyed(directory, kind, 20, sided=False)
    (directory / "msgs" / "2.key").write_bytes(os.urandom(72))
    (directory / "msgs" / "2.blk").write_bytes(bytes(size))
    store = PyStore(directory, cipher=kind, commit="manual", **BLOCKS)
    assert served(store) == had
    assert store.lost()["places"] == []
    store.close()
