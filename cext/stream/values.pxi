# What the face of a stream takes and gives: errors, named values, texts of configurations, messages that were copied.

class StoreError(Exception):
    """The store could not do what was asked; the text is for the client."""


class StreamClosed(StoreError):
    """The stream was closed, by its deletion or with the server."""


StreamState = namedtuple(
    "StreamState", "messages bytes first_seq first_ts last_seq last_ts num_subjects num_deleted")
Damage = namedtuple("Damage", "kind block at size first last count")
Lost = namedtuple("Lost", "sequences bytes damage places")
Message = namedtuple("Message", "subject seq ts headers data")


cdef class EnvBox:
    """The environment of an engine; its driver subclasses this."""

    cdef bint enter(self) noexcept nogil:
        env_lock(self.env)
        return True

    cdef void leave(self) noexcept nogil:
        env_unlock(self.env)

    cdef int lock(self) except -1 nogil:
        if self.enter():
            return 0
        self.leave()
        with gil:
            raise StreamClosed("the engine is closed")


cdef dict STORE_TEXTS = {
    ST_NO_MEMORY: "out of memory",
    ST_TOO_LARGE: "message too large",
    ST_IO: "reading or writing the disk failed",
    ST_NOT_FOUND: "not found",
    ST_DAMAGED: "the message is damaged",
    ST_CLOSED: "the store is closed",
}


cdef dict DAMAGE_KINDS = {
    DAMAGE_RECORDS: "records", DAMAGE_MESSAGE: "message", DAMAGE_BLOCK: "block", DAMAGE_ASIDE: "aside", DAMAGE_TAIL: "tail",
    DAMAGE_SEQUENCES: "sequences", DAMAGE_LOG: "log", DAMAGE_BATCH: "batch",
    DAMAGE_SHORT: "short", DAMAGE_RESERVE: "reserve", DAMAGE_KEY: "key",
}


cdef int store_checked(int64_t rc) except -1:
    if rc < 0:
        raise StoreError(STORE_TEXTS.get(rc, f"store error {rc}"))
    return 0


cdef int copy_record(Copied* c, const Record* r) noexcept nogil:
    c.seq = r.seq
    c.ts = r.ts
    c.n_subject = r.subject.n
    c.n_header = r.header.n
    if add_span(&c.b, r.subject) < 0 or add_span(&c.b, r.header) < 0 or add_span(&c.b, r.data) < 0:
        return ST_NO_MEMORY
    return ST_OK


cdef object copied_message(Copied* c, int rc):
    cdef const char* p = <const char*>c.b.data
    cdef size_t body = <size_t>c.n_subject + c.n_header
    try:
        if rc == ST_NOT_FOUND:
            return None
        store_checked(rc)
        return Message(p[:c.n_subject], c.seq, c.ts, p[c.n_subject:body], p[body:c.b.n])
    finally:
        bytes_free(&c.b)


cdef class Patterns:
    """A compiled filter, held while it is used."""
    cdef Filter f
    cdef bint made

    def __cinit__(self, patterns):
        cdef Py_ssize_t i, n = len(patterns)
        cdef Span* spans = <Span*>malloc((n + 1) * sizeof(Span))
        if spans == NULL:
            raise MemoryError()
        try:
            for i in range(n):
                spans[i] = span_of(patterns[i])
            if filter_init(&self.f, spans, <uint32_t>n) != ST_OK:
                raise MemoryError()
            self.made = True
        finally:
            free(spans)

    def __dealloc__(self):
        if self.made:
            filter_free(&self.f)


cdef int compare_found(const void* a, const void* b) noexcept nogil:
    # What a sweep found: count, length, text.
    cdef const uint8_t* x = (<const uint8_t**>a)[0]
    cdef const uint8_t* y = (<const uint8_t**>b)[0]
    cdef uint32_t n, m
    cdef int order
    memcpy(&n, x + 8, 4)
    memcpy(&m, y + 8, 4)
    order = memcmp(x + 12, y + 12, min(n, m))
    return order if order else <int>(n > m) - <int>(n < m)


cdef const uint8_t** found_in_order(const Bytes* b, uint64_t n) noexcept nogil:
    # Where each subject that a sweep found stands, by their texts; NULL: no memory
    cdef const uint8_t** places = <const uint8_t**>malloc((n + 1) * sizeof(uint8_t*))
    cdef size_t at = 0
    cdef uint64_t i
    cdef uint32_t size
    if places == NULL:
        return NULL
    for i in range(n):
        places[i] = b.data + at
        memcpy(&size, b.data + at + 8, 4)
        at += 12 + <size_t>size
    qsort(places, n, sizeof(uint8_t*), compare_found)
    return places


cdef class ConfigTexts:
    """What a configuration in C borrows: its texts, and the arrays of its lists."""

    def __cinit__(self):
        self.kept = []

    cdef void* room(self, size_t n) except NULL:
        cdef bytearray array = bytearray(n + 1)
        self.kept.append(array)
        return <char*>array

    cdef Span one(self, str text) except *:
        cdef bytes encoded = text.encode()
        self.kept.append(encoded)
        return span_of(encoded)

    cdef int many(self, object texts, const Span** to, uint32_t* n) except -1:
        cdef list given = list(texts)
        cdef Span* spans = <Span*>self.room(len(given) * sizeof(Span))
        cdef Py_ssize_t i
        for i in range(len(given)):
            spans[i] = self.one(given[i])
        to[0] = spans
        n[0] = <uint32_t>len(given)
        return 0

    cdef int durations(self, object given, const int64_t** to, uint32_t* n) except -1:
        cdef list durations = list(given)
        cdef int64_t* array = <int64_t*>self.room(len(durations) * sizeof(int64_t))
        cdef Py_ssize_t i
        for i in range(len(durations)):
            array[i] = duration_of(durations[i])
        to[0] = array
        n[0] = <uint32_t>len(durations)
        return 0
