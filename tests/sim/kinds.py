"""What worlds there are to simulate."""

from dataclasses import dataclass
from typing import NamedTuple

from jsserver.cext.cipher import CHACHA
from tests.unit.stream_world import SECOND


@dataclass(frozen=True)
class Kind:
    """What is simulated."""

    sync_interval: int = 0
    memory: float = 0
    """The part of the streams that are kept in memory. In such a world some consumers are, too."""
    threads: bool = False
    batches: bool = False
    published: bool = False
    """Atomic and fast batches come as publishers send them."""
    sizes: tuple[int, ...] = (0, 5, 60, 300, 300, 2000, 9000)
    journal: tuple[int, ...] = ()
    """Bytes that a segment of the journal may have, which each round goes through."""
    turnover: bool = False
    """Many messages come and go, so that blocks are sealed and subjects leave and come back."""
    compress: bool = False
    encrypted: bool = False
    rotates: bool = False
    """Streams are in clear first; now and then a start has another key, or another cipher."""


class Keys(NamedTuple):
    """What the server encrypts with; without a secret it does not."""

    secret: bytes
    before: bytes = b""
    cipher: int = CHACHA


MIDDLING = (60, 2000, 9000, 9000)
SEGMENTS = (40_000, 400_000, 400_000, 4_000_000)
LARGE = (0, 5, 60, 300, 300, 2000, 9000, 40_000)
KINDS = {
    "synced": Kind(),
    "memory": Kind(memory=0.6),
    "threads": Kind(memory=0.1, threads=True, sizes=LARGE),
    "lazy": Kind(sync_interval=2 * SECOND),
    "lazy threads": Kind(sync_interval=2 * SECOND, memory=0.1, threads=True, sizes=LARGE),
    "batches": Kind(memory=0.1, batches=True),
    "batches, threads": Kind(threads=True, batches=True, sizes=LARGE),
    "lazy batches": Kind(sync_interval=2 * SECOND, memory=0.1, batches=True),
    "published": Kind(memory=0.1, published=True),
    "published, threads": Kind(threads=True, published=True, sizes=LARGE),
    "published, lazy": Kind(sync_interval=2 * SECOND, published=True),
    "turnover": Kind(turnover=True, sizes=MIDDLING),
    "compressed": Kind(turnover=True, compress=True, sizes=MIDDLING),
    "compressed, threads": Kind(threads=True, batches=True, compress=True, sizes=LARGE),
    "compressed, lazy": Kind(
        sync_interval=2 * SECOND, turnover=True, compress=True, sizes=MIDDLING
    ),
    "encrypted": Kind(encrypted=True),
    "encrypted, lazy": Kind(sync_interval=2 * SECOND, encrypted=True),
    "encrypted, threads": Kind(threads=True, batches=True, encrypted=True, sizes=LARGE),
    "encrypted, turnover": Kind(turnover=True, compress=True, encrypted=True, sizes=MIDDLING),
    "encrypted, new keys": Kind(rotates=True, batches=True),
    "encrypted, new keys, threads": Kind(rotates=True, threads=True, sizes=LARGE),
    "encrypted, new keys, turnover": Kind(
        rotates=True, turnover=True, compress=True, sizes=MIDDLING
    ),
    "turnover, lazy": Kind(sync_interval=2 * SECOND, turnover=True, sizes=MIDDLING),
    "turnover, threads": Kind(threads=True, turnover=True, sizes=MIDDLING),
    "journal": Kind(journal=SEGMENTS, memory=0.1),
    "journal, threads": Kind(journal=SEGMENTS, threads=True, sizes=LARGE),
    "journal, batches": Kind(journal=SEGMENTS, batches=True, threads=True, sizes=LARGE),
    "journal, encrypted": Kind(journal=SEGMENTS, threads=True, rotates=True, sizes=LARGE),
    "journal, turnover": Kind(journal=SEGMENTS, turnover=True, sizes=MIDDLING),
    "journal, turnover, threads": Kind(
        journal=SEGMENTS, threads=True, turnover=True, sizes=MIDDLING
    ),
}
