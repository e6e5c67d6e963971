# A log of a PyStore.

cdef int note_entry(void* ctx, Span entry) noexcept nogil:
    with gil:
        if entry.n:
            (<list>ctx).append(span_bytes(entry))
    return 0


cdef class PyLog:
    """A log of a PyStore."""
    cdef Log* log
    cdef PyStore store
    cdef readonly list replayed

    def __init__(self, PyStore store, path):
        cdef bytes name = os.fsencode(path)
        cdef char err[512]
        self.replayed = []
        self.store = store
        self.log = log_open(store.s, span_of(name), span_of(b""), False, note_entry, <void*>self.replayed, err, sizeof(err))
        if self.log == NULL:
            raise OSError(err.decode("utf-8", "replace"))

    def append(self, entry) -> None:
        cdef bytes e = face_bytes(entry)
        self.store._enter()
        rc = log_append(self.log, span_of(e))
        self.store._leave()
        face_result(rc, store_error(self.store.s))

    def rewrite(self, entry) -> None:
        cdef bytes e = face_bytes(entry)
        self.store._enter()
        rc = log_rewrite(self.log, span_of(e))
        self.store._leave()
        face_result(rc, store_error(self.store.s))

    def cut_tail(self, uint64_t at) -> None:
        self.store._enter()
        rc = log_cut_tail(self.log, at)
        self.store._leave()
        face_result(rc, store_error(self.store.s))

    def cut_head(self, uint64_t at) -> None:
        self.store._enter()
        rc = log_cut_head(self.log, at)
        self.store._leave()
        face_result(rc, store_error(self.store.s))

    def end(self) -> int:
        return log_end(self.log)

    def size(self) -> int:
        return log_size(self.log)

    def damage(self) -> int:
        """Damaged places in it that its store knows of."""
        cdef Lost t
        cdef uint32_t i
        self.store._enter()
        store_lost(self.store.s, &t)
        count = sum(t.places[i].kind == DAMAGE_LOG for i in range(t.n_places))
        self.store._leave()
        return count

    def close(self) -> None:
        self.store._enter()
        log_close(self.log)
        self.store._leave()
        self.log = NULL
