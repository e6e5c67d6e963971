# A connection: its transport, its buffers and its timers around the Client that routing knows.

cdef void conn_want(Conn* c, bint read, bint write) noexcept nogil:
    # Tells the transport what this connection waits for.
    if c.connecting == DIALLING or (read == c.reading and write == c.writing):
        return
    c.reading = read
    c.writing = write
    c.transport.want(c, read, write)
    if read and c.more:
        conn_read_again(c)


cdef void conn_read_again(Conn* c) noexcept nogil:
    # Its reactor reads it again without an event.
    if not c.again:
        c.again = True
        c.next_again = c.reactor.again
        c.reactor.again = c


# ---- writing: taken under the engine lock, written without it, settled with it again

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


# ---- reading

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


cdef inline size_t conn_slack(const Conn* c) noexcept nogil:
    # Frames take less room than what they come in.
    return c.ws.below.slack if c.transport == &ws_transport else c.transport.slack


cdef void conn_feed(Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    # Has p[0:n] (c.left or the reactor's buffer) worked through and keeps what is left over.
    cdef size_t used, room
    c.need = 0
    used = c.base.protocol.feed(&c.base, p, n, &c.need)
    if c.tiring:
        c.tiring = False
        conn_rest(c)
    if c.base.closing or used == n:
        drop_left(c)
        return
    room = c.need + conn_slack(c) if c.need > LEFT_MAX else c.need
    if (n - used > LEFT_MAX and c.need == 0 and not conn_halted(c)) or not keep_left(c, p + used, n - used, room):
        client_close(&c.base, CLOSE_READ_ERROR)


cdef void conn_stall(Conn* c) noexcept nogil:
    # A receiver is close to its limit: whoever feeds it pauses for a moment.
    if c.stalls_left == 0:
        return
    c.stalls_left -= 1
    c.stalls += 1
    c.base.engine.stats.stalls += 1
    if timer_set(&c.reactor.timers, &c.stall_timer, c.base.engine.env.mono + STALL_NS) == 0:
        c.stalled |= FOR_RECEIVER
        conn_events(c)


cdef void conn_rest(Conn* c) noexcept nogil:
    # Much waits for a receiver: there is more to send when it has taken some, or soon.
    cdef Net* net = c.reactor.net
    if conn_halted(c) or timer_set(&c.reactor.timers, &c.stall_timer, net.engine.env.mono + REST_NS) != 0:
        return
    c.stalled |= FOR_ROOM
    c.next_resting = net.resting
    net.resting = c
    conn_events(c)


cdef void rests_over(Net* net) noexcept nogil:
    # A receiver has room again: those who rest go on in their reactors' next turn.
    cdef Conn* c
    while net.resting != NULL:
        c = net.resting
        net.resting = c.next_resting
        c.stalled &= ~FOR_ROOM
        timer_cancel(&c.reactor.timers, &c.stall_timer)
        task_post(&c.reactor.tasks, &c.resume)


cdef void forget_resting(Conn* c) noexcept nogil:
    cdef Conn** at = &c.reactor.net.resting
    if not c.stalled & FOR_ROOM:
        return
    while at[0] != c:
        at = &at[0].next_resting
    at[0] = c.next_resting
    c.stalled &= ~FOR_ROOM


cdef void stall_over(Timer* t, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    forget_resting(c)
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
    task_post(&c.reactor.tasks, &c.resume)


cdef void conn_answered(Conn* c, uint32_t n) noexcept nogil:
    # The control plane is done with n of its requests.
    c.base.asking -= min(n, c.base.asking)
    if c.stalled & FOR_ANSWERS and c.base.asking <= (0 if c.alone else c.base.engine.inbox.asking_max // 2):
        c.alone = False
        c.stalled &= ~FOR_ANSWERS
        task_post(&c.reactor.tasks, &c.resume)


cdef void conn_look(Conn* c, Arrival* a) noexcept nogil:
    # Recognises what it can before the engine lock is taken.
    cdef Reactor* r = c.reactor
    a.ahead = r.ahead + r.n_ahead
    a.n_ahead = 0
    if c.base.protocol.look != NULL:
        a.n_ahead = c.base.protocol.look(a.data, a.n, r.ahead + r.n_ahead, LOOK_AHEAD_MAX - r.n_ahead)
        r.n_ahead += a.n_ahead


cdef ssize_t conn_pull(Conn* c, void* p, size_t n) noexcept nogil:
    cdef ssize_t got
    c.more = False
    got = c.transport.read(c, p, n)
    if c.more:
        conn_read_again(c)
    return got


cdef size_t conn_receive(Conn* c, Arrival* a, uint8_t* into) noexcept nogil:
    # Reads, without the engine lock; returns how many bytes of `into` it used.
    cdef size_t before = c.n_left
    a.got = -EAGAIN
    a.data = NULL
    if c.connecting:
        a.got = c.transport.establish(c)
        return 0
    if not a.events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        return 0
    if not c.reading:
        if a.events & (EPOLLHUP | EPOLLERR):
            a.got = 0
        return 0
    if c.cap_left > before and c.need > LEFT_MAX:
        # A large message: straight into its own buffer.
        a.got = conn_pull(c, c.left + before, c.need + conn_slack(c) - before)
        return 0
    if before > LEFT_MAX:
        if c.more:
            conn_read_again(c)
        return 0        # it rested, and what was kept then is not worked through yet
    if before:
        memcpy(into, c.left, before)
    a.got = conn_pull(c, into + before, READ_SIZE + conn_slack(c))
    if a.got <= 0:
        return 0
    a.data = into
    a.n = before + <size_t>a.got
    conn_look(c, a)
    return a.n


cdef void conn_arrived(Conn* c, const Arrival* a) noexcept nogil:
    # What was received, under the engine lock.
    if c.base.closing:
        return
    if c.connecting != DIALLING and (a.events & EPOLLOUT or (c.owes and not c.writing)):
        conn_flush_soon(c)
    if c.connecting:
        conn_established(c, <int>a.got)
        return
    if a.got == -EAGAIN or a.got == -EINTR:
        return
    if a.got <= 0:
        if c.ws != NULL and c.ws.trouble[0]:
            ws_complain(c)
        client_close(&c.base, CLOSE_CLIENT if a.got == 0 or a.got == -ECONNRESET else CLOSE_READ_ERROR)
        return
    if c.ws != NULL:
        c.ws.max_payload = client_max_payload(&c.base)
    c.stalls_left = STALLS_MAX
    c.input_at = c.base.engine.env.mono
    c.last_active = c.base.engine.env.now
    if a.data != NULL:
        c.n_left = 0
        c.ahead = a.ahead
        c.n_ahead = a.n_ahead
        conn_feed(c, a.data, a.n)
        c.n_ahead = 0
        return
    c.n_left += <size_t>a.got
    if c.n_left >= c.need:
        conn_feed(c, c.left, c.n_left)


# ---- monitoring, and the end

cdef void conn_numbers(Conn* c, Span* texts, ConnFigures* num) noexcept nogil:
    # What monitoring wants to know of a connection, open or closing.
    texts[0].p = <const uint8_t*>c.address
    texts[0].n = c.n_address
    texts[1].p = c.connect.data
    texts[1].n = <uint32_t>c.connect.n
    texts[2] = span(c.secured.data, <uint32_t>c.secured.n if not c.connecting else 0)
    num.reason = c.base.closing
    num.port = c.port
    num.start = c.base.started
    num.last_activity = c.last_active
    num.rtt = c.base.rtt
    num.in_msgs = <int64_t>c.base.in_msgs
    num.out_msgs = <int64_t>c.base.out_msgs
    num.in_bytes = <int64_t>c.base.in_bytes
    num.out_bytes = <int64_t>c.base.out_bytes
    num.subscriptions = c.base.n_subs
    num.now = c.base.engine.env.now
    num.pending = <int64_t>client_pending(&c.base)
    num.stalls = <int64_t>c.stalls
    num.account = c.base.account.id
    num.websocket = c.ws != NULL
    num.chunks = <int64_t>(c.base.chunks_queued - load_relaxed(&c.base.chunks_sent))


cdef void forget_dirty(Client* c) noexcept nogil:
    cdef Client** at = &c.work.dirty
    if not c.dirty:
        return
    while at[0] != NULL:
        if at[0] == c:
            at[0] = c.next_dirty
            break
        at = &at[0].next_dirty
    c.dirty = False


cdef void forget_again(Conn* c) noexcept nogil:
    cdef Conn** at = &c.reactor.again
    if not c.again:
        return
    while at[0] != NULL:
        if at[0] == c:
            at[0] = c.next_again
            break
        at = &at[0].next_again
    c.again = False


cdef void conn_finish(Conn* c) noexcept nogil:
    # It is closing: nothing more happens to it but that its last words are written and it ends, without the engine lock.
    cdef Reactor* r = c.reactor
    cdef int reason = c.base.closing
    timer_cancel(&r.timers, &c.ping_timer)
    timer_cancel(&r.timers, &c.auth_timer)
    timer_cancel(&r.timers, &c.write_timer)
    timer_cancel(&r.timers, &c.stall_timer)
    task_cancel(&r.tasks, &c.resume)
    task_cancel(&r.tasks, &c.judged)
    if c.ws != NULL:
        task_cancel(&r.tasks, &c.ws.answered)
    forget_dirty(&c.base)
    forget_again(c)
    forget_resting(c)
    c.last_words = reason != CLOSE_SLOW_PENDING and reason != CLOSE_SLOW_DEADLINE and reason != CLOSE_WRITE_ERROR
    conn_take(c)
    c.finished = True
    c.next_ending = r.ending
    r.ending = c


cdef void conn_end(Conn* c) noexcept nogil:
    if c.last_words:
        conn_write(c)
    c.transport.shutdown(c)


cdef void conn_free(Conn* c) noexcept nogil:
    cdef Net* net = c.reactor.net
    cdef Engine* e = c.base.engine
    cdef Chunk* k
    cdef Span texts[CONN_TEXTS]
    cdef ConnFigures num
    if c.known:
        conn_numbers(c, texts, &num)
        inbox_put(&e.inbox, IN_CLOSED, c.base.cid, texts, CONN_TEXTS, <const int64_t*>&num, sizeof(num) // 8)
        net.n_conns -= 1
    else:
        net.n_coming -= 1
    if c.prev != NULL:
        c.prev.next = c.next
    else:
        net.conns = c.next
    if c.next != NULL:
        c.next.prev = c.prev
    c.reactor.n_conns -= 1
    u64map_del(&net.by_cid, c.base.cid)
    while c.out != NULL:
        k = c.out
        c.out = k.next
        chunk_release(e, k)
    ws_free(c)
    client_free(&c.base)
    drop_left(c)
    bytes_free(&c.connect)
    bytes_free(&c.secured)
    if c.security != NULL:
        c.security.release(c.security)
    free(c)
