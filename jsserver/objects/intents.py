"""Intents on disk to remove chunks: a start finds by them what a crash has cut off.

An intent is a file in the folder `uploads` beside an account's streams, named like the place of an
object's chunks. It is there before an upload may begin, or before an object is replaced or
deleted, and goes when the chunks went or an object has them; one that stays too long does no harm.

Everything here waits for the disk.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jsserver.instances.account import Account
from jsserver.instances.metafiles import Locked

from .buckets import Bucket, is_token

log = logging.getLogger(__name__)

FOLDER = "uploads"


class Intent(msgspec.Struct, frozen=True):
    """Chunks, and the object whose they are to be, or were."""

    bucket: str
    name: str
    nuid: str


def folder_of(account: Account) -> Path | None:
    """Where the intents of an account are."""
    return None if account.directory is None else account.directory.parent / FOLDER


def write(bucket: Bucket, name: str, nuid: str) -> None:
    """Writes down chunks durably; OSError. What a stream in memory has is gone after a crash."""
    folder = folder_of(bucket.account)
    if folder is None or bucket.stream.directory is None:
        return
    intent = msgspec.json.encode(Intent(bucket.name, name, nuid))
    bucket.account.shared.files.write_note(folder / nuid, intent)


def remove(account: Account, nuid: str) -> None:
    """The chunks are gone, or an object's."""
    folder = folder_of(account)
    if folder is not None and is_token(nuid):
        with contextlib.suppress(OSError):
            (folder / nuid).unlink(missing_ok=True)


def left(account: Account) -> Iterator[Intent]:
    """The intents that are there; those that cannot be read are removed."""
    folder = folder_of(account)
    if folder is None or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.suffix == ".tmp":  # it got no name before the crash, so its upload has not begun
            path.unlink(missing_ok=True)
            continue
        try:
            intent = msgspec.json.decode(account.shared.files.read_note(path), type=Intent)
        except Locked as error:
            log.warning("The note of an upload, %s, stays: %s", path, error)
            continue
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("The note of an upload, %s, is damaged: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if intent.nuid == path.name:
            yield intent
