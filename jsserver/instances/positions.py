"""How far a stream has taken in its sources, in a file beside its messages.

What is stored tells it too, until that is removed: by the consumers of a stream that others empty,
or by time. A position is written when the messages up to it are durable. So a start after a kill
may take in again what was removed since the last writing, and misses nothing. Only messages stored
since then are asked: anybody who may publish into the stream can write what they tell.
"""

import contextlib
import logging
from pathlib import Path
from typing import Annotated

import msgspec

from .backend import StoreError
from .metafiles import Locked, MetaFiles
from .running import Stream

log = logging.getLogger(__name__)

FILE = "sources.json"
Sequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""That files hold."""


class Positions(msgspec.Struct, frozen=True):
    """What the file says."""

    stream_seq: Sequence = 0
    """Of the stream itself: what its messages up to here tell is in `origins`."""
    origins: dict[str, Sequence] = {}
    """The last sequence of each origin, by source."""


def read(files: MetaFiles, directory: Path | None) -> Positions:
    """What is written there; a file that is none says nothing."""
    if directory is None:
        return Positions()
    try:
        return msgspec.json.decode(files.read_note(directory / FILE), type=Positions)
    except FileNotFoundError:
        return Positions()
    except (OSError, Locked, msgspec.DecodeError) as error:
        log.warning("%s: %s", directory / FILE, error)
        return Positions()


def write(files: MetaFiles, stream: Stream, positions: Positions) -> bool:
    """Writes them down; False where the stream cannot be written at the moment."""
    directory = stream.directory
    if directory is None:
        return True
    with contextlib.suppress(OSError, StoreError):
        stream.handle.wait_durable()
        files.write_note(directory / FILE, msgspec.json.encode(positions))
        return True
    return False
