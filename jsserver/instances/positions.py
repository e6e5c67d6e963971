"""How far a stream has taken in its sources, in a file beside its messages.

What is stored tells it too, until that is removed: by the consumers of a stream that others empty,
or by time. A position is written when the messages up to it are durable. So a start after a kill
may take in again what was removed since the last writing, and misses nothing.
"""

import contextlib
import logging
from pathlib import Path

import msgspec

from . import metafiles
from .backend import StoreError
from .running import Stream

log = logging.getLogger(__name__)

FILE = "sources.json"


def read(directory: Path | None) -> dict[str, int]:
    """The last sequences of the origins by source; a file that is none says nothing."""
    if directory is None:
        return {}
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s: %s", directory / FILE, error)
        return {}


def write(stream: Stream, positions: dict[str, int]) -> bool:
    """Writes them down; False where the stream cannot be written at the moment."""
    directory = stream.directory
    if directory is None:
        return True
    with contextlib.suppress(OSError, StoreError):
        stream.handle.wait_durable()
        metafiles.replace(directory / FILE, msgspec.json.encode(positions))
        return True
    return False
