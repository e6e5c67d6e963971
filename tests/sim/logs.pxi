# A log beside the blocks of a stream on a simulated disk, as a test uses it.

cdef int note_entry(void* ctx, Span entry) noexcept nogil:
    with gil:
        if entry.n:
            (<list>ctx).append(span_bytes(entry))
    return 0


cdef class SimLog:
    """Goes with its stream."""
    cdef StreamFace stream
    cdef Log* log
    cdef readonly list replayed

    def __init__(self, StreamFace stream not None, bytes path not None):
        cdef char err[512]
        self.stream = stream
        self.replayed = []
        self.log = log_open(stream.s.store, span_of(path), span_of(b""), False, note_entry, <void*>self.replayed, err,
                            sizeof(err))
        if self.log == NULL:
            raise OSError(err.decode("utf-8", "replace"))

    def append(self, bytes entry not None) -> int:
        env_lock(self.stream.box.env)
        rc = log_append(self.log, span_of(entry))
        env_unlock(self.stream.box.env)
        return rc

    def cut_tail(self, uint64_t at) -> int:
        env_lock(self.stream.box.env)
        rc = log_cut_tail(self.log, at)
        env_unlock(self.stream.box.env)
        return rc

    def cut_head(self, uint64_t at) -> int:
        env_lock(self.stream.box.env)
        rc = log_cut_head(self.log, at)
        env_unlock(self.stream.box.env)
        return rc

    def end(self) -> int:
        return log_end(self.log)
