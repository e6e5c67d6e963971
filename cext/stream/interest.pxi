# Interest retention: a message leaves when no consumer needs it. Nothing is kept of who needs a message: consumers know it,
# also after a crash. They are asked when one lets go.

cdef enum:
    SETTLE_TURN = 1000              # messages


cdef int ask_needs(void* ctx, void* kept) noexcept nogil:
    # Up to the first that needs it, which is then the first to be asked: it often needs the next one too.
    cdef Telling* t = <Telling*>ctx
    cdef Spot* spot = <Spot*>kept
    cdef SpotItem item
    cdef uint32_t i
    t.wanted = True
    for i in range(spot.n):
        item = spot.items[i]
        if item.w.needs(item.w, t.seq):
            t.needed = True
            spot_place(spot, i, spot.items[0])
            spot_place(spot, 0, item)
            return 1
    return 0


cdef void ask(Stream* s, Telling* t, uint64_t seq) noexcept nogil:
    cdef Span subject = store_subject(s.store, seq)
    t.seq = seq
    t.wanted = False
    t.needed = False
    if subject.p != NULL:
        watch_match(&s.watchers, subject, ask_needs, t)


cdef void stream_release(Stream* s, uint64_t seq) noexcept nogil:
    cdef Telling t
    if s.cfg.retention == RETENTION_LIMITS:
        return
    if s.cfg.retention == RETENTION_INTEREST:
        ask(s, &t, seq)
        if t.needed or s.consumer_missing:
            return
    stream_remove(s, CHANGE_RELEASE, seq, False)
    stream_count_bytes(s)


cdef void stream_settle(Stream* s, uint64_t start, bint all) noexcept nogil:
    cdef uint64_t* at = &s.settle_all if all else &s.settle_wanted
    if s.cfg.retention == RETENTION_INTEREST and not s.consumer_missing:
        start = max(start, <uint64_t>1)
        at[0] = min(at[0], start) if at[0] else start
        settle_turn(&s.settle)


cdef void settle_from(Stream* s, uint64_t* at, bint all, uint32_t* left) noexcept nogil:
    cdef Telling t
    cdef uint64_t seq
    if s.watchers.n == 0 and not all:
        at[0] = 0
    while at[0] and left[0]:
        left[0] -= 1
        seq = store_next_seq(s.store, NULL, at[0])
        at[0] = seq + 1 if seq else 0
        if seq:
            ask(s, &t, seq)
            if not t.needed and (t.wanted or all):
                stream_remove(s, CHANGE_RELEASE, seq, False)


cdef void settle_turn(Task* t) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef uint32_t left = SETTLE_TURN
    if s.cfg.retention != RETENTION_INTEREST:
        s.settle_wanted = 0
        s.settle_all = 0
    settle_from(s, &s.settle_wanted, False, &left)
    settle_from(s, &s.settle_all, True, &left)
    stream_count_bytes(s)
    if s.settle_wanted or s.settle_all:
        task_post(&s.env.tasks, t)


cdef bint stream_keeps_all(const Stream* s) noexcept nogil:
    return s.cfg.retention == RETENTION_LIMITS
