# Searches that go in pieces, for tests.


cdef class PySweep:
    """A look at every subject that matches; of these the counts, or with `upto` the last sequences up to there."""
    cdef PyStore store
    cdef PyFilter f
    cdef Sweep* w
    cdef bint lasts

    def __init__(self, PyStore store not None, patterns=(), upto=None, uint64_t most=1 << 40, bint loose=False):
        self.store = store
        self.f = face_filter(patterns)
        self.lasts = upto is not None
        if loose:
            filter_loosen(&self.f.f)
        store._enter()
        if self.lasts:
            self.w = sweep_lasts(store.s, &self.f.f, upto, most)
        else:
            self.w = sweep_subjects(store.s, &self.f.f)
        store._leave()
        if self.w == NULL:
            raise MemoryError

    def step(self) -> bool:
        """Whether there is more to do."""
        self.store._enter()
        rc = sweep_step(self.w)
        self.store._leave()
        face_result(rc)
        return rc == 1

    def result(self):
        cdef Bytes b
        cdef uint64_t count, of, i, at = 0
        cdef uint32_t n
        while self.step():
            pass
        count = sweep_take(self.w, &b)
        try:
            if self.lasts:
                return [(<uint64_t*>b.data)[i] for i in range(count)]
            found = {}
            while at < b.n:
                memcpy(&of, b.data + at, sizeof(of))
                memcpy(&n, b.data + at + 8, sizeof(n))
                text = (<const char*>b.data)[at + 12:at + 12 + n]
                assert text not in found
                found[text.decode("utf-8", "surrogateescape")] = of
                at += 12 + n
            assert len(found) == count
            return found
        finally:
            bytes_free(&b)

    def __dealloc__(self):
        sweep_free(self.w)      # no thread of the store looks at it


cdef class PySearch:
    """The way to an answer, piece by piece: kind is "next" (from a sequence on), "last" or "count" (from a sequence on)."""
    cdef PyStore store
    cdef PyFilter f
    cdef str kind
    cdef readonly uint64_t at
    cdef LastLook look
    cdef readonly uint64_t found    # a sequence or 0; a number

    def __init__(self, PyStore store not None, str kind not None, patterns=(), uint64_t start=1):
        self.store = store
        self.kind = kind
        self.f = face_filter(patterns)
        self.at = start

    def step(self) -> bool:
        """Whether there is more to do."""
        cdef StoreState state
        cdef int rc
        self.store._enter()
        store_state(self.store.s, &state)
        if self.kind == "next":
            rc = store_next_some(self.store.s, &self.f.f, &self.at, &self.found)
        elif self.kind == "last":
            rc = store_last_some(self.store.s, &self.f.f, &self.look, &self.found)
        else:
            rc = store_count_some(self.store.s, &self.f.f, &self.at, state.last_seq + 1, &self.found)
        self.store._leave()
        face_result(rc)
        return rc == 1
