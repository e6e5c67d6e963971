# What is staged is applied: as a whole or not at all, and acked.

cdef int changes_store(Stream* s, const Bytes* changes, uint64_t n, size_t* end) noexcept nogil:
    # The n changes from `end` on, no more than there are, as a whole or not at all; `end`: where what stays begins. An error:
    # nothing came of them.
    cdef uint64_t done = 0
    cdef bint batch = n > 1
    cdef size_t at
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef int rc = ST_FULL if store_error(s.store) else ST_OK
    if rc == ST_OK and batch:
        rc = store_batch(s.store)
    if rc != ST_OK:
        return rc
    while rc == ST_OK and end[0] < changes.n:
        at = staged_at(changes, end[0], &head, &reply, &c)
        if head.kind != STAGED_REPEAT:
            if done == n:
                break
            rc = stream_append(s, &c)
            done += rc == ST_OK
        end[0] = at if rc == ST_OK else end[0]
    if rc != ST_OK and done:
        stream_fail(s, ENOMEM)      # nothing else fails behind the first: back to what is on disk
    if batch:
        store_batch_end(s.store, rc == ST_OK or done == 0)
    return rc


cdef void applied_ack(Stream* s, Span reply, uint64_t seq, const Change* c, Span more) noexcept nogil:
    # A staged message or skip is applied. more: further members of its ack
    if more.n and not s.cfg.flags & STREAM_NO_ACK:
        pub_ack_more(s, reply, seq, 0, more)
    elif fast_applied(s, reply, seq):
        pass
    elif s.cfg.flags & STREAM_ALLOW_MSG_COUNTER and c.kind == CHANGE_MESSAGE:
        counter_ack(s, reply, seq, c.data)
    else:
        pub_ack(s, reply, seq, False)


cdef void staged_ack(Stream* s, size_t end) noexcept nogil:
    # What stands before `end` is stored.
    cdef Overlay* o = s.staging
    cdef size_t at = o.changes.head
    cdef Staged head
    cdef Change c
    cdef Span reply
    while at < end:
        at = staged_at(&o.changes.b, at, &head, &reply, &c)
        if head.kind == STAGED_REPEAT:
            pub_ack(s, reply, head.seq, True)
        else:
            applied_ack(s, reply, head.seq, &c, staged_tail(&head, &c))


cdef int stream_stage_apply(Stream* s, uint64_t n) noexcept nogil:
    cdef Overlay* o = s.staging
    cdef size_t end = o.changes.head, left
    cdef int rc = changes_store(s, &o.changes.b, min(n, o.n), &end)
    cdef char reason[REASON_ROOM]
    if rc == ST_OK:
        staged_ack(s, end)
        left = o.changes.b.n - end
        while staged_size(o) > left:
            overlay_pop(s)
    elif rc == ST_IO or rc == ST_FULL:
        stream_reason(s, reason, sizeof(reason))
        staged_drop(s, reason)
    else:
        staged_drop(s, store_text(rc))
    return rc


cdef void stream_stage_end(Stream* s, bint apply) noexcept nogil:
    if s.staging != NULL and apply:
        stream_stage_apply(s, UINT64_MAX)
    overlay_free(s.staging)
    s.staging = NULL
