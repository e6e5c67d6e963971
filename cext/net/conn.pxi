# A connection: its transport, its buffers and its timers around the Client that routing knows.

cdef void conn_events(Conn* c) noexcept nogil:
    # Tells the transport what this connection waits for.
    cdef bint read = not (c.paused or c.stalled or c.base.closing)
    cdef bint write = c.base.head != NULL
    if c.connecting or (read == c.reading and write == c.writing):
        return
    c.reading = read
    c.writing = write
    c.transport.want(c, read, write)


cdef void conn_flush(Conn* c) noexcept nogil:
    # Writes as much of the out buffer as the transport takes.
    cdef iovec iov[IOV_MAX_USED]
    cdef Client* b = &c.base
    cdef Chunk* k
    cdef int n
    cdef ssize_t sent
    cdef size_t asked
    cdef bint progress = False
    while b.head != NULL:
        n = 0
        asked = 0
        k = b.head
        while k != NULL and n < IOV_MAX_USED:
            iov[n].iov_base = chunk_data(k) + k.start
            iov[n].iov_len = k.end - k.start
            asked += iov[n].iov_len
            n += 1
            k = k.next
        sent = c.transport.write(c, iov, n)
        if sent < 0:
            if sent == -EAGAIN:
                break
            client_close(b, CLOSE_WRITE_ERROR)
            return
        progress = True
        b.pending -= <uint64_t>sent
        asked -= <size_t>sent
        while b.head != NULL and sent >= <ssize_t>(b.head.end - b.head.start):
            k = b.head
            sent -= k.end - k.start
            b.head = k.next
            chunk_release(b.engine, k)
        if b.head == NULL:
            b.tail = NULL
        else:
            b.head.start += <uint32_t>sent
        if asked:
            break
    if b.head == NULL:
        if c.write_timer.pos:
            timer_cancel(&b.engine.env.timers, &c.write_timer)
    elif progress or c.write_timer.pos == 0:
        timer_set(&b.engine.env.timers, &c.write_timer, b.engine.env.mono + c.reactor.write_deadline)
    conn_events(c)


cdef bint keep_left(Conn* c, const uint8_t* p, size_t n, size_t cap) noexcept nogil:
    # Keeps p[0:n] (which may lie in c.left itself) in a buffer of at least cap bytes.
    cdef uint8_t* grown
    if cap < n:
        cap = n
    if c.left != NULL and p >= c.left and p <= c.left + c.cap_left:
        memmove(c.left, p, n)
        if c.cap_left < cap:
            grown = <uint8_t*>realloc(c.left, cap)
            if grown == NULL:
                return False
            c.left = grown
            c.cap_left = cap
    else:
        if c.cap_left < cap:
            free(c.left)
            c.cap_left = 0
            c.left = <uint8_t*>malloc(cap)
            if c.left == NULL:
                c.n_left = 0
                return False
            c.cap_left = cap
        memcpy(c.left, p, n)
    c.n_left = n
    return True


cdef void drop_left(Conn* c) noexcept nogil:
    free(c.left)
    c.left = NULL
    c.n_left = 0
    c.cap_left = 0


cdef inline bint conn_halted(const Conn* c) noexcept nogil:
    # Nothing more of its input is to be looked at for now.
    return c.base.closing or c.paused or c.stalled


cdef void conn_feed(Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    # Has p[0:n] (c.left or the reactor's buffer) worked through and keeps what is left over.
    cdef size_t used
    c.need = 0
    used = c.base.protocol.feed(&c.base, p, n, &c.need)
    if c.base.closing or used == n:
        drop_left(c)
        return
    if (n - used > LEFT_MAX and c.need == 0 and not conn_halted(c)) or not keep_left(c, p + used, n - used, c.need):
        client_close(&c.base, CLOSE_READ_ERROR)


cdef inline void conn_pace(Conn* c) noexcept nogil:
    # After each operation: whoever sends to a slow receiver, or asks too much, rests.
    cdef Engine* e = c.base.engine
    if e.stalled:
        e.stalled = False
        conn_stall(c)
    if e.asked:
        c.asking += e.asked
        e.asked = 0
        if c.asking >= ASKING_MAX:
            c.stalled |= FOR_ANSWERS
            conn_events(c)


cdef void conn_stall(Conn* c) noexcept nogil:
    # A receiver is close to its limit: whoever feeds it pauses for a moment.
    if c.stalls_left == 0:
        return
    c.stalls_left -= 1
    c.stalls += 1
    c.base.engine.stats.stalls += 1
    if timer_set(&c.base.engine.env.timers, &c.stall_timer, c.base.engine.env.mono + STALL_NS) == 0:
        c.stalled |= FOR_RECEIVER
        conn_events(c)


cdef void stall_over(Timer* t, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    c.stalled &= ~FOR_RECEIVER
    conn_resume(c)


cdef void conn_resume(Conn* c) noexcept nogil:
    # Input may flow again: first what was kept.
    if conn_halted(c):
        return
    if c.n_left:
        conn_feed(c, c.left, c.n_left)
    conn_events(c)


cdef void resume_run(Task* t) noexcept nogil:
    conn_resume(<Conn*>t.owner)


cdef void conn_unpause(Conn* c) noexcept nogil:
    # Whoever decided that the input may flow again; the reactor lets it, in its own thread.
    c.paused = False
    task_post(&c.base.engine.env.tasks, &c.resume)


cdef bint conn_answered(Conn* c, uint32_t n) noexcept nogil:
    # The control plane is done with n of its requests. Whether its input flows again.
    c.asking -= min(n, c.asking)
    if c.stalled & FOR_ANSWERS and c.asking <= ASKING_MAX // 2:
        c.stalled &= ~FOR_ANSWERS
        task_post(&c.base.engine.env.tasks, &c.resume)
        return True
    return False


cdef void conn_readable(Conn* c) noexcept nogil:
    cdef Reactor* r = c.reactor
    cdef ssize_t got
    cdef uint8_t* into
    cdef size_t room, before
    if conn_halted(c):
        return
    before = c.n_left
    if c.cap_left > before and c.need > LEFT_MAX:
        into = c.left + before          # a large message: straight into its own buffer
        room = c.need - before
    else:
        if before:
            memcpy(r.buffer, c.left, before)
        into = r.buffer + before
        room = READ_SIZE
    got = c.transport.read(c, into, room)
    if got == 0:
        client_close(&c.base, CLOSE_CLIENT)
        return
    if got < 0:
        if got != -EAGAIN and got != -EINTR:
            client_close(&c.base, CLOSE_READ_ERROR if got != -ECONNRESET else CLOSE_CLIENT)
        return
    c.stalls_left = STALLS_MAX
    c.input_at = c.base.engine.env.mono
    c.last_active = c.base.engine.env.now
    if into == c.left + before and c.left != NULL:
        c.n_left = before + <size_t>got
        if c.n_left >= c.need:
            conn_feed(c, c.left, c.n_left)
        return
    c.n_left = 0
    conn_feed(c, r.buffer, before + <size_t>got)


cdef int64_t count_chunks(const Client* b) noexcept nogil:
    cdef int64_t n = 0
    cdef const Chunk* k = b.head
    while k != NULL:
        n += 1
        k = k.next
    return n


cdef void conn_numbers(Conn* c, Span* texts, int64_t* num) noexcept nogil:
    # What monitoring wants to know of a connection, open or closing.
    texts[0].p = <const uint8_t*>c.address
    texts[0].n = c.n_address
    texts[1].p = c.connect.data
    texts[1].n = <uint32_t>c.connect.n
    num[0] = c.base.closing
    num[1] = c.port
    num[2] = c.started
    num[3] = c.last_active
    num[4] = c.rtt
    num[5] = <int64_t>c.base.in_msgs
    num[6] = <int64_t>c.base.out_msgs
    num[7] = <int64_t>c.base.in_bytes
    num[8] = <int64_t>c.base.out_bytes
    num[9] = c.base.n_subs
    num[10] = c.base.engine.env.now
    num[11] = <int64_t>c.base.pending
    num[12] = <int64_t>c.stalls
    num[13] = c.base.account.id
    num[14] = count_chunks(&c.base)


cdef void forget_dirty(Engine* e, Client* c) noexcept nogil:
    cdef Client** at = &e.dirty
    if not c.dirty:
        return
    while at[0] != NULL:
        if at[0] == c:
            at[0] = c.next_dirty
            break
        at = &at[0].next_dirty
    c.dirty = False


cdef void conn_close_now(Conn* c) noexcept nogil:
    # The end of a closing connection: last words, socket, memory.
    cdef Reactor* r = c.reactor
    cdef Engine* e = c.base.engine
    cdef Span texts[2]
    cdef int64_t num[CONN_NUMBERS]
    cdef int reason = c.base.closing
    if reason != CLOSE_SLOW_PENDING and reason != CLOSE_SLOW_DEADLINE and reason != CLOSE_WRITE_ERROR:
        conn_flush(c)
    timer_cancel(&e.env.timers, &c.ping_timer)
    timer_cancel(&e.env.timers, &c.auth_timer)
    timer_cancel(&e.env.timers, &c.write_timer)
    timer_cancel(&e.env.timers, &c.stall_timer)
    task_cancel(&e.env.tasks, &c.resume)
    c.transport.shutdown(c)
    conn_numbers(c, texts, num)
    inbox_put(&e.inbox, IN_CLOSED, c.base.cid, texts, 2, num, CONN_NUMBERS)
    if c.prev != NULL:
        c.prev.next = c.next
    else:
        r.conns = c.next
    if c.next != NULL:
        c.next.prev = c.prev
    r.n_conns -= 1
    u64map_del(&r.by_cid, c.base.cid)
    forget_dirty(e, &c.base)
    client_free(&c.base)
    drop_left(c)
    bytes_free(&c.connect)
    free(c)
