# The way out: taken under the engine lock, written without it, settled with it again.

cdef void conn_take(Conn* c) noexcept nogil:
    # What waits in the out buffer is the reactor's to write.
    cdef Client* b = &c.base
    if b.head == NULL:
        return
    if c.output.head == NULL:
        c.output.head = b.head
    else:
        c.output.tail.next = b.head
    c.output.tail = b.tail
    c.output.relieving = b.awaited
    b.head = NULL
    b.tail = NULL


cdef void conn_flush_soon(Conn* c) noexcept nogil:
    conn_take(c)
    if (c.output.head != NULL or c.output.owes) and not c.output.flushing:
        c.output.flushing = True
        c.output.next_flushing = c.reactor.flushing
        c.reactor.flushing = c


cdef void conn_wrote(Conn* c, size_t n) noexcept nogil:
    # The peer has n bytes more.
    cdef Reactor* r = c.reactor
    cdef Chunk* k = c.output.head
    store_relaxed(&c.base.sent, c.base.sent + n)
    while k != NULL and n >= chunk_left(k):
        n -= chunk_left(k)
        c.output.head = k.next
        store_relaxed(&c.base.chunks_sent, c.base.chunks_sent + 1)
        k.next = r.written
        r.written = k
        r.n_written += 1
        k = c.output.head
    if k == NULL:
        return
    if n > k.end - k.start:
        k.shared_at += <uint32_t>n - (k.end - k.start)
        k.start = k.end
    else:
        k.start += <uint32_t>n


cdef void conn_write(Conn* c) noexcept nogil:
    # Writes as much as the transport takes.
    cdef iovec[IOV_MAX_USED] iov
    cdef Chunk* k
    cdef int n
    cdef ssize_t sent
    cdef size_t asked
    c.output.wrote = WROTE_NOTHING
    while c.output.head != NULL or c.output.owes:
        n = 0
        asked = 0
        k = c.output.head
        while k != NULL and n < IOV_MAX_USED - 1 and asked < WRITE_MAX:
            if k.end > k.start:
                iov[n].iov_base = chunk_data(k) + k.start
                iov[n].iov_len = k.end - k.start
                n += 1
            if k.shared != NULL:
                iov[n].iov_base = payload_data(k.shared) + k.shared_at
                iov[n].iov_len = k.shared.n - k.shared_at
                n += 1
            asked += chunk_left(k)
            k = k.next
        sent = c.transport.write(c, iov, n)
        if sent < 0:
            if sent != -EAGAIN:
                c.output.wrote = WROTE_IN_VAIN
            return
        if sent > 0:
            c.output.wrote = WROTE_SOME
            conn_wrote(c, <size_t>sent)
        if <size_t>sent < asked:
            return


cdef void conn_flush(Conn* c) noexcept nogil:
    cdef bint waits
    conn_write(c)
    waits = c.output.head != NULL or c.output.owes
    conn_want(c, c.wants.reading, waits)
    if c.output.wrote == WROTE_IN_VAIN or waits or c.output.deadline_set or c.output.relieving:
        c.output.next_settling = c.reactor.settling
        c.reactor.settling = c


cdef enum:
    BATCH_MAX = 64 << 20    # bytes that must be written within one deadline at most


cdef inline bint has_more_time(const Conn* c) noexcept nogil:
    # Whether the deadline of what is not written yet begins anew: with each piece that was, or with each batch.
    cdef bint whole = c.terms.whole_writes or (c.base.kind == KIND_CLIENT and c.reactor.net.limits.whole_writes)
    return c.output.wrote == WROTE_SOME and (not whole or load_relaxed(&c.base.sent) >= c.output.batch)


cdef void conn_settle(Conn* c) noexcept nogil:
    # Senders that rest for what is written now go on.
    cdef TimerHeap* timers = &c.reactor.timers
    cdef int64_t until
    if c.base.awaited and client_pending(&c.base) <= c.base.engine.limits.much_pending // 2:
        c.base.awaited = False
        rests_over(c.reactor.net)
    if c.output.wrote == WROTE_IN_VAIN:
        client_close(&c.base, CLOSE_WRITE_ERROR)
    elif c.output.head == NULL and not c.output.owes:
        timer_cancel(timers, &c.output.timer)
        c.output.deadline_set = False
        if c.base.head != NULL:
            conn_flush_soon(c)      # it came while the rest was about to be written
    elif has_more_time(c) or not c.output.deadline_set:
        c.output.batch = load_relaxed(&c.base.sent) + min(client_pending(&c.base), <uint64_t>BATCH_MAX)
        until = c.base.engine.env.mono + (c.terms.write_deadline or c.reactor.net.limits.write_deadline)
        c.output.deadline_set = timer_set(timers, &c.output.timer, until) == 0
