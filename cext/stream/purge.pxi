# Purges on request, in pieces: each is a change of its own, and others have their turns between them. A purge is of what
# is there when it begins; consumers hear of it at its end.

cdef enum:
    PURGE_PIECE = 1000                  # messages

cdef void purge_begin(Purge* p, Stream* s, Span pattern, uint64_t seq, uint64_t keep, bint short) noexcept nogil:
    cdef StoreState state
    cdef uint64_t total
    memset(p, 0, sizeof(Purge))
    p.s = s
    p.subject = pattern
    if pattern.n:
        p.gone = filter_init(&p.filter, &pattern, 1)
        p.compiled = p.gone == ST_OK
        if not p.compiled:
            return
    store_state(s.store, &state)
    if not store_pending_soon(s.store, purge_filter(p), 0, &total):
        total = state.msgs
    if total <= PURGE_PIECE or store_purges_at_once(s.store, purge_filter(p), seq, keep):
        p.gone = stream_purge(s, pattern, seq, keep)
        return
    if short:
        p.more = True
        return
    p.keep = keep
    p.end = min(seq, state.last_seq + 1) if seq else state.last_seq + 1
    p.start = state.first_seq
    p.more = True
    purge_step(p)


cdef inline const Filter* purge_filter(const Purge* p) noexcept nogil:
    return &p.filter if p.compiled and not p.filter.all else NULL


cdef void purge_step(Purge* p) noexcept nogil:
    cdef uint64_t seq
    if store_ready(p.s.store, purge_filter(p)) == 1:
        return
    if p.keep:
        p.end = store_back(p.s.store, purge_filter(p), p.end, &p.keep)
        if p.end == 0:
            p.keep = 0
            p.end = p.start             # there are not more than are to be kept
    elif p.start < p.end:
        if store_next_some(p.s.store, purge_filter(p), &p.start, &seq) == ST_OK:
            p.start = seq if seq else p.end
            if p.start < p.end:
                purge_piece(p, PURGE_PIECE)
    else:
        purge_piece(p, 0)
        p.more = False


cdef void purge_piece(Purge* p, uint64_t most) noexcept nogil:
    cdef Change c
    cdef int64_t n
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_PURGE
    c.subject = p.subject
    c.filter = purge_filter(p)
    c.start = p.start
    c.seq = p.end
    c.most = most
    c.ts = p.s.env.now
    n = purge_change(p.s, &c)
    if n < 0:
        p.gone = n
        p.start = p.end                 # the consumers still hear of what is gone
        return
    p.gone += n if p.gone >= 0 else 0


cdef void purge_free(Purge* p) noexcept nogil:
    if p.compiled:
        filter_free(&p.filter)
    p.compiled = False
