# What the face of a stream takes and gives: errors, named values, configurations, messages that were copied.

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
    """The environment of an engine; whoever drives it subclasses this."""

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
    DAMAGE_SHORT: "short",
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


cdef Transform* given_transform(SubjectTransform given):
    return NULL if given is None else given.t


cdef int fill_config(StreamConfig* c, object p, Span* subjects) except -1:
    # Borrows from the parameters, which the caller keeps alive. Texts are ready before any number is asked for.
    cdef Py_ssize_t i
    c.name = span_of(p.name)
    for i in range(len(p.subjects)):
        subjects[i] = span_of(p.subjects[i])
    c.subjects = subjects
    c.n_subjects = <uint32_t>len(p.subjects)
    c.retention = int(p.retention)
    c.storage = int(p.storage)
    c.discard_new = int(p.discard) == 1
    c.discard_new_per = p.discard_new_per_subject
    c.max_msgs = p.max_msgs
    c.max_bytes = p.max_bytes
    c.max_msgs_per = p.max_msgs_per_subject
    c.max_msg_size = p.max_msg_size
    c.max_age = p.max_age
    c.window = p.duplicate_window
    c.first_seq = p.first_seq
    c.no_ack = p.no_ack
    c.early_acks = p.early_acks
    c.allow_direct = p.allow_direct
    c.allow_rollup = p.allow_rollup
    c.sealed = p.sealed
    c.deny_delete = p.deny_delete
    c.deny_purge = p.deny_purge
    c.allow_atomic = p.allow_atomic
    c.allow_batched = p.allow_batched
    c.allow_ttl = p.allow_ttl
    c.allow_counter = p.allow_counter
    c.allow_schedules = p.allow_schedules
    c.marker_ttl = p.marker_ttl
    c.origin = span_of(p.origin)
    c.transform = given_transform(p.transform)
    c.republish = given_transform(p.republish)
    c.republish_bare = p.republish_headers_only
    return 0


cdef int fill_place(StreamConfig* c, StreamFace face) except -1:
    c.directory = span_of(face.directory)
    c.domain = span_of(face.domain)
    c.account_hash = span_of(face.account_hash)
    c.long_acks = face.place.long_acks
    c.max_payload = face.place.max_payload
    c.account_usage = face.place.account_usage
    c.server_usage = face.place.server_usage
    c.requests = face.place.requests
    c.batch_room = face.place.batch_room
    return 0
