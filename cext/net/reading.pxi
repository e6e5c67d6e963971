# The way in: received without the engine lock, worked through with it.

cdef inline size_t conn_slack(const Conn* c) noexcept nogil:
    return transport_slack(c, c.transport)


cdef void conn_feed(Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    # Has p[0:n] (c.input.left or the reactor's buffer) worked through and keeps what is left over.
    cdef size_t used, room
    c.input.need = 0
    used = c.base.protocol.feed(&c.base, p, n, &c.input.need)
    if c.rest.tiring:
        c.rest.tiring = False
        conn_rest(c)
    if c.base.closing or used == n:
        drop_left(c)
        return
    room = c.input.need + conn_slack(c) if c.input.need > LEFT_MAX else c.input.need
    if (n - used > LEFT_MAX and c.input.need == 0 and not conn_halted(c)) or not keep_left(c, p + used, n - used, room):
        client_close(&c.base, CLOSE_READ_ERROR)


cdef void conn_resume(Conn* c) noexcept nogil:
    # Input may flow again: first what was kept.
    if conn_halted(c):
        return
    if c.input.n_left:
        conn_feed(c, c.input.left, c.input.n_left)
    conn_events(c)


cdef void resume_run(Task* t) noexcept nogil:
    conn_resume(<Conn*>t.owner)


cdef void stall_over(Timer* t, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    forget_resting(c)
    c.rest.stalled &= ~FOR_RECEIVER
    conn_resume(c)


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
    c.input.more = False
    got = c.transport.read(c, p, n)
    if c.input.more:
        conn_read_again(c)
    return got


cdef size_t conn_receive(Conn* c, Arrival* a, uint8_t* into) noexcept nogil:
    # Reads, without the engine lock; returns how many bytes of `into` it used.
    cdef size_t before = c.input.n_left
    a.got = -EAGAIN
    a.data = NULL
    if c.approach:
        a.got = c.transport.establish(c)
        return 0
    if not a.events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        return 0
    if not c.wants.reading:
        if a.events & (EPOLLHUP | EPOLLERR):
            a.got = 0
        return 0
    if c.input.cap_left > before and c.input.need > LEFT_MAX:
        # A large message: straight into its own buffer.
        a.got = conn_pull(c, c.input.left + before, c.input.need + conn_slack(c) - before)
        return 0
    if before > LEFT_MAX:
        if c.input.more:
            conn_read_again(c)
        return 0        # it rested, and what was kept then is not worked through yet
    if before:
        memcpy(into, c.input.left, before)
    a.got = conn_pull(c, into + before, READ_SIZE + conn_slack(c))
    if a.got <= 0:
        return 0
    a.data = into
    a.n = before + <size_t>a.got
    conn_look(c, a)
    return a.n


cdef void read_complain(Conn* c, const char* trouble) noexcept nogil:
    # The log hears what was wrong with what came.
    cdef char text[WS_TROUBLE + 16]
    snprintf(text, sizeof(text), b"read error: %s", trouble)
    note_text(&c.base, text)


cdef void conn_arrived(Conn* c, const Arrival* a) noexcept nogil:
    # What was received, under the engine lock.
    if c.base.closing:
        return
    if c.approach != DIALLING and (a.events & EPOLLOUT or (c.output.owes and not c.wants.writing)):
        conn_flush_soon(c)
    if c.approach:
        conn_established(c, <int>a.got)
        return
    if a.got == -EAGAIN or a.got == -EINTR:
        return
    if a.got <= 0:
        if c.ws != NULL and c.ws.trouble[0]:
            read_complain(c, c.ws.trouble)
        elif c.compression != NULL and c.compression.trouble != NULL:
            read_complain(c, c.compression.trouble)
        client_close(&c.base, CLOSE_CLIENT if a.got == 0 or a.got == -ECONNRESET else CLOSE_READ_ERROR)
        return
    if c.ws != NULL:
        c.ws.message.max_payload = ws_max_payload(c)
    c.rest.stalls_left = STALLS_MAX
    c.input.at = c.base.engine.env.mono
    c.last_active = c.base.engine.env.now
    if a.data != NULL:
        c.input.n_left = 0
        c.input.ahead = a.ahead
        c.input.n_ahead = a.n_ahead
        conn_feed(c, a.data, a.n)
        c.input.n_ahead = 0
        return
    c.input.n_left += <size_t>a.got
    if c.input.n_left >= c.input.need:
        conn_feed(c, c.input.left, c.input.n_left)
