"""Digests of what a replica of a stream holds, by which replicas are compared.

An extension of jsserver: `$SYS.REQ.SERVER.<id>.JSSERVER.DIGEST`. Each request reads a part of a
stream, message by message, so that the data plane goes on meanwhile.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import msgspec

from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsserver.instances.backend import StreamHandle

SECONDS = 0.1
"""How long one request reads."""
CHUNK = 4096
CHUNKS_MOST = 4096


class Wanted(msgspec.Struct):
    """A part of a stream. `chunk`: how many sequences make up one digest."""

    first: int
    last: int
    chunk: int


class Chunk(Wire):
    """The messages of some sequences. Digests are equal where the messages are: their sequences,
    times, subjects, headers and bodies."""

    first: int
    """The first sequence of the chunk, whether there is a message or not."""
    messages: int
    digest: str


class Digests(Wire):
    """The chunks that have messages. `next`: where the next request goes on; 0: this was all."""

    first_seq: int = always(0)
    last_seq: int = always(0)
    chunks: list[Chunk] = msgspec.field(default_factory=list)
    next: int = 0


def digests(handle: StreamHandle, wanted: Wanted) -> Digests:
    """Reads from `wanted.first` on for a while, whole chunks only; StoreError."""
    state = handle.state()
    size = min(max(wanted.chunk, 1), CHUNK)
    found = Digests(first_seq=state.first_seq, last_seq=state.last_seq)
    end, seq = time.monotonic() + SECONDS, max(wanted.first, 1)
    while seq <= wanted.last:
        if found.chunks and (time.monotonic() > end or len(found.chunks) >= CHUNKS_MOST):
            found.next = seq
            break
        upto = min(_begins(seq, size) + size - 1, wanted.last)
        hashed, messages = hashlib.blake2b(digest_size=16), 0
        for part in _parts(handle, seq, upto):
            hashed.update(part)
            messages += 1
        if messages:
            found.chunks.append(Chunk(seq, messages, hashed.hexdigest()))
            seq = upto + 1
        else:
            there = handle.next_for(b"", seq)
            seq = wanted.last + 1 if there is None else _begins(there.seq, size)
    return found


def _begins(seq: int, size: int) -> int:
    """The first sequence of the chunk that a sequence is in: the same on all replicas."""
    return (seq - 1) // size * size + 1


def _parts(handle: StreamHandle, seq: int, upto: int) -> Iterator[bytes]:
    """The content of each message from `seq` to `upto`."""
    while seq <= upto:
        message = handle.next_for(b"", seq)
        if message is None or message.seq > upto:
            return
        lengths = (message.seq, message.ts, len(message.subject), len(message.headers))
        head = b"".join(number.to_bytes(8, "little") for number in lengths)
        yield head + message.subject + message.headers + message.data
        seq = message.seq + 1
