# What is staged is applied: as a whole or not at all, and acked.

cdef int changes_store(Stream* s, const Bytes* changes, uint64_t n, size_t* end) noexcept nogil:
    # The first n changes, no more than there are, as a whole or not at all; `end`: where what stays begins. An error:
    # nothing came of them.
    cdef uint64_t done = 0
    cdef bint batch = n > 1
    cdef size_t at
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef int rc = ST_FULL if store_error(s.store) else ST_OK
    end[0] = 0
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


cdef void staged_ack(Stream* s, size_t end) noexcept nogil:
    # What stands before `end` is stored.
    cdef size_t at = 0
    cdef Staged head
    cdef Change c
    cdef Span reply
    while at < end:
        at = staged_at(&s.staging.changes, at, &head, &reply, &c)
        if head.n_more and not s.cfg.flags & STREAM_NO_ACK:
            pub_ack_more(s, reply, head.seq, 0, staged_tail(&head, &c))
        elif fast_applied(s, reply, head.seq):
            pass
        elif s.cfg.flags & STREAM_ALLOW_MSG_COUNTER and head.kind == CHANGE_MESSAGE:
            counter_ack(s, reply, head.seq, c.data)
        else:
            pub_ack(s, reply, head.seq, head.kind == STAGED_REPEAT)


cdef void staged_keep(Stream* s, size_t at) noexcept nogil:
    # What stands from there on is staged again, on what is applied now.
    cdef Overlay* old = s.staging
    cdef Staged head
    cdef Change c
    cdef Span reply
    cdef size_t next
    cdef int rc = 0
    s.staging = <Overlay*>calloc(1, sizeof(Overlay))
    while s.staging != NULL and at < old.changes.n:
        next = staged_at(&old.changes, at, &head, &reply, &c)
        if head.kind == STAGED_REPEAT:
            publish_repeated(s, reply, head.seq)
        elif overlay_add(s, reply, &c, staged_tail(&head, &c)) < 0:
            break
        at = next
    if at < old.changes.n:          # no memory: what follows was judged as if this one came
        overlay_free(s.staging)
        s.staging = old
        staged_refuse(s, at, store_text(ST_NO_MEMORY))
        overlay_clear(old)
    else:
        overlay_free(old)


cdef int stream_stage_apply(Stream* s, uint64_t n) noexcept nogil:
    cdef size_t end
    cdef int rc = changes_store(s, &s.staging.changes, min(n, s.staging.n), &end)
    cdef char reason[REASON_ROOM]
    if rc == ST_OK:
        staged_ack(s, end)
        if end:
            staged_keep(s, end)
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
