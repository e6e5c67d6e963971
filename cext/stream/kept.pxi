# Publishes that are kept for later, in their order: those that wait for ids to be read or for a look of the first of them,
# and what an intake cannot take at the moment.

cdef struct WaitingHead:
    # A publish; subject, reply, header and data follow.
    uint64_t cid
    int kind
    uint32_t n_subject
    uint32_t n_reply
    uint32_t n_header
    uint32_t n_data


cdef int publish_keep(Fifo* q, const Msg* m) noexcept nogil:
    # 0 | -1 no memory
    cdef WaitingHead h
    cdef uint8_t* p = fifo_add(q, sizeof(WaitingHead) + <size_t>m.subject.n + m.reply.n + m.header.n + m.data.n)
    if p == NULL:
        return -1
    h.cid = m.cid
    h.kind = m.kind
    h.n_subject = m.subject.n
    h.n_reply = m.reply.n
    h.n_header = m.header.n
    h.n_data = m.data.n
    memcpy(p, &h, sizeof(WaitingHead))
    p = put_bytes(p + sizeof(WaitingHead), m.subject)
    p = put_bytes(p, m.reply)
    p = put_bytes(p, m.header)
    put_bytes(p, m.data)
    return 0


cdef uint8_t* publish_taken(Fifo* q) noexcept nogil:
    # The first that waits, taken out; NULL without memory: nobody hears of it, and its sender tries again.
    cdef WaitingHead h
    cdef size_t n
    cdef uint8_t* p
    memcpy(&h, q.b.data + q.head, sizeof(WaitingHead))
    n = sizeof(WaitingHead) + <size_t>h.n_subject + h.n_reply + h.n_header + h.n_data
    p = <uint8_t*>malloc(n)
    if p != NULL:
        memcpy(p, q.b.data + q.head, n)
    fifo_drop(q, n)
    return p


cdef void publish_read(Stream* s, const uint8_t* p, Msg* m) noexcept nogil:
    # Views of what publish_taken gave.
    cdef WaitingHead h
    memcpy(&h, p, sizeof(WaitingHead))
    memset(m, 0, sizeof(Msg))
    m.dest = span(p + sizeof(WaitingHead), h.n_subject)
    m.subject = m.dest
    m.reply = span(m.dest.p + h.n_subject, h.n_reply)
    m.header = span(m.reply.p + h.n_reply, h.n_header)
    m.data = span(m.header.p + h.n_header, h.n_data)
    m.cid = h.cid
    m.kind = h.kind
    m.account = s.account


cdef uint8_t* publish_first(Stream* s) noexcept nogil:
    # The first that waits in the stream, taken out: one that was begun, or publish_taken.
    cdef uint8_t* p = <uint8_t*>s.dedupe.first
    s.dedupe.first = NULL
    return p if p != NULL else publish_taken(&s.dedupe.waiting)


cdef inline bint publishes_wait(const Stream* s) noexcept nogil:
    return s.dedupe.first != NULL or s.dedupe.waiting.head < s.dedupe.waiting.b.n


# ---- a look for the last message on a pattern ------------------------------------------------------------------------

cdef bint pattern_piece(Stream* s) noexcept nogil:
    # For what the first that waits expects; whether it takes more.
    cdef PatternLook* look = s.dedupe.look
    if look != NULL and not look.known:
        look.known = store_last_some(s.store, &look.filter, &look.at, &look.seq) != 1
        return not look.known
    return False


cdef bint pattern_keep(Stream* s, const PatternLook* look) noexcept nogil:
    # It goes on in turns; False: no memory.
    s.dedupe.look = <PatternLook*>malloc(sizeof(PatternLook))
    if s.dedupe.look == NULL:
        return False
    s.dedupe.look[0] = look[0]
    return True


cdef void pattern_free(Stream* s) noexcept nogil:
    if s.dedupe.look != NULL:
        filter_free(&s.dedupe.look.filter)
    free(s.dedupe.look)
    s.dedupe.look = NULL


cdef enum:
    PUBLISH_LATER = 2                   # of publish_now: it waits for a look that was begun
