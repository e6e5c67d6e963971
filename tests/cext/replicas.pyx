"""Reads and writes the states of streams in snapshots."""

from libc.stdint cimport uint64_t

from jsserver.cext.bytes cimport Bytes, bytes_free, env_lock, env_unlock, span_of
from jsserver.cext.replicas cimport (
    HoleWalk, StateHead, holes_begin, holes_next, state_head_get, stream_state_put, stream_state_refused,
)
from jsserver.cext.stream cimport StreamFace


def state_of(StreamFace face not None) -> bytes:
    """The state of a stream that is a member of a group, as a snapshot has it."""
    cdef Bytes b
    cdef int rc
    b.data, b.n, b.cap = NULL, 0, 0
    env_lock(face.box.env)
    rc = stream_state_put(face.s, &b)
    env_unlock(face.box.env)
    found = (<const char*>b.data)[:b.n] if b.n else b""
    bytes_free(&b)
    if rc:
        raise MemoryError
    return found


def read_state(bytes state not None, uint64_t most=1000) -> dict[str, object] | None:
    """Its figures and the runs of deleted sequences, each (first, count), at most so many; None: it is damaged."""
    cdef StateHead head
    cdef HoleWalk w
    cdef uint64_t refused = 0, first, count
    if not stream_state_refused(span_of(state), &refused):
        return None
    state_head_get(span_of(state), &head)
    runs = []
    holes_begin(&w, &head)
    while len(runs) < most and holes_next(&w, &first, &count) == 1:
        runs.append((first, count))
    return {"msgs": head.msgs, "bytes": head.bytes, "first": head.first, "last": head.last, "refused": refused,
            "runs": runs}
