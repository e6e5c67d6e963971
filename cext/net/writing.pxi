# The way out: taken under the engine lock, written without it, settled with it again.

cdef void conn_take(Conn* c) noexcept nogil:
    # What waits in the out buffer is the reactor's to write.
    cdef Client* b = &c.base
    if b.head == NULL:
        return
    if c.out == NULL:
        c.out = b.head
    else:
        c.out_tail.next = b.head
    c.out_tail = b.tail
    c.relieving = b.awaited
    b.head = NULL
    b.tail = NULL


cdef void conn_flush_soon(Conn* c) noexcept nogil:
    conn_take(c)
    if (c.out != NULL or c.owes) and not c.flushing:
        c.flushing = True
        c.next_flushing = c.reactor.flushing
        c.reactor.flushing = c


cdef void conn_wrote(Conn* c, size_t n) noexcept nogil:
    # The peer has n bytes more.
    cdef Reactor* r = c.reactor
    cdef Chunk* k = c.out
    store_relaxed(&c.base.sent, c.base.sent + n)
    while k != NULL and n >= chunk_left(k):
        n -= chunk_left(k)
        c.out = k.next
        store_relaxed(&c.base.chunks_sent, c.base.chunks_sent + 1)
        k.next = r.written
        r.written = k
        r.n_written += 1
        k = c.out
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
    c.progress = False
    while c.out != NULL or c.owes:
        n = 0
        asked = 0
        k = c.out
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
            c.write_failed = sent != -EAGAIN
            return
        if sent > 0:
            c.progress = True
            conn_wrote(c, <size_t>sent)
        if <size_t>sent < asked:
            return


cdef void conn_flush(Conn* c) noexcept nogil:
    cdef bint waits
    conn_write(c)
    waits = c.out != NULL or c.owes
    conn_want(c, c.reading, waits)
    if c.write_failed or waits or c.deadline_set or c.relieving:
        c.next_settling = c.reactor.settling
        c.reactor.settling = c


cdef void conn_settle(Conn* c) noexcept nogil:
    # The deadline of what is not written yet begins anew with each piece that was. Whoever rests for it goes on.
    cdef TimerHeap* timers = &c.reactor.timers
    if c.base.awaited and client_pending(&c.base) <= c.base.engine.limits.much_pending // 2:
        c.base.awaited = False
        rests_over(c.reactor.net)
    if c.write_failed:
        client_close(&c.base, CLOSE_WRITE_ERROR)
    elif c.out == NULL and not c.owes:
        timer_cancel(timers, &c.write_timer)
        c.deadline_set = False
        if c.base.head != NULL:
            conn_flush_soon(c)      # it came while the rest was about to be written
    elif c.progress or not c.deadline_set:
        c.deadline_set = timer_set(timers, &c.write_timer, c.base.engine.env.mono + c.reactor.net.limits.write_deadline) == 0
