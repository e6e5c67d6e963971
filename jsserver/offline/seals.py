"""Opens what is encrypted in the folder of a stream, with the key that was given."""

from __future__ import annotations

from pathlib import Path

from jsserver.disk.keys import KEY_FILE_SIZES, SHEET, Keys, Seed

from .places import KEY_FILE, Place, Unreadable, found, whole


class Locked(Exception):
    """It cannot be opened; the text says why."""


def server_key(path: str) -> Keys:
    """The key of a server, out of a file that holds nothing else; Unreadable."""
    try:
        secret = whole(Path(path).absolute()).strip()
    except FileNotFoundError:
        raise Unreadable(f"{path}: no such file") from None
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None
    if not secret:
        raise Unreadable(f"{path}: it is empty")
    return Keys(secret)


def is_encrypted(folder: Path) -> bool:
    """Whether the stream or consumer of this folder has a key."""
    return (folder / KEY_FILE).exists()


def seed_of(place: Place, key_file: Path, context: str) -> Seed:
    """What a key file holds; Locked, Unreadable."""
    if place.keys is None:
        raise Locked("encrypted, and no key was given (--key-file)")
    data = found(key_file)
    if data is None:
        raise Locked(f"its key {key_file.name} is missing")
    if len(data) not in KEY_FILE_SIZES:
        sizes = " or ".join(map(str, sorted(KEY_FILE_SIZES)))
        raise Locked(f"its key {key_file.name} has {len(data)} bytes, where a key has {sizes}")
    seed = place.keys.seed(place.account, context, data)
    if seed is None:
        raise Locked(f"the key that was given does not open {key_file.name}")
    return seed


def of_stream(place: Place) -> Seed:
    """The seed of a stream's meta.inf and index.db; Locked, Unreadable."""
    return seed_of(place, place.folder / KEY_FILE, place.name)


def of_consumer(place: Place, name: str) -> Seed:
    """The seed of a consumer's meta.inf and o.dat; Locked, Unreadable."""
    return seed_of(place, place.folder / "obs" / name / KEY_FILE, f"{place.name}.{name}")


def of_block(place: Place, number: int) -> Seed:
    """The seed of a block; Locked, Unreadable."""
    folder, _ = place.messages()
    key_file = folder / f"{number}.key"
    redo = folder / f"{number}.key.redo"
    if redo.exists() and not (folder / f"{number}.blk.new").exists():
        key_file = redo  # a crash came after the block got its name, and before its key did
    return seed_of(place, key_file, f"{place.name}:{number}")


def sheet(place: Place, data: bytes, name: str) -> bytes:
    """What a file of jsserver's own holds, which is encrypted where the stream is; Locked."""
    if not data.startswith(SHEET):
        return data
    if place.keys is None:
        raise Locked("encrypted, and no key was given (--key-file)")
    text = place.keys.sheet(place.account, place.name, data)
    if text is None:
        raise Locked(f"the key that was given does not open {name}")
    return text


def opened(seed: Seed, sealed: bytes, what: str) -> bytes:
    """What is sealed as a whole; Locked names `what` was changed since."""
    data = seed.unseal(sealed)
    if data is None:
        raise Locked(f"{what} is not what was sealed with its key")
    return data
