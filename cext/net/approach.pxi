# What comes before a connection's bytes: a PROXY header, a handshake, a request for WebSocket, and what the control plane says
# of a peer's certificates.

cdef void conn_established(Conn* c, int rc) noexcept nogil:
    # What establishing a connection has come to.
    cdef bint dialled = c.approach == DIALLING
    if rc == -EAGAIN:
        return
    if rc == ASK_CONTROL:
        c.transport.asks(c)
        return
    if rc != 0:
        if dialled:
            client_close(&c.base, CLOSE_UNREACHABLE)
        else:
            c.transport.failed(c, rc)
        return
    timer_cancel(&c.reactor.timers, &c.auth_timer)
    if c.transport.next != NULL and c.transport.next(c):
        coming_wait(c)
        if not conn_admitted(c):
            conn_throttled(c)
        return
    if c.ws != NULL and c.ws.state == WS_BELOW:
        ws_begin(c)
        coming_wait(c)
        return
    c.approach = ESTABLISHED
    conn_want(c, True, c.wants.writing and not dialled)
    if dialled or c.ws != NULL:
        c.coming.hushed = False
        conn_open(c)
        return
    c.last_active = c.base.engine.env.now
    if c.coming.hushed:
        c.coming.hushed = False
        c.base.protocol.greet(&c.base)
    if not c.base.closing:
        c.base.protocol.open(&c.base)


cdef void coming_wait(Conn* c) noexcept nogil:
    # The next thing that comes before its bytes does so in time.
    timer_set(&c.reactor.timers, &c.auth_timer, c.base.engine.env.mono + c.transport.patience(c))


cdef int64_t greets_after(const Conn* c) noexcept nogil:
    return c.security.fallback if c.coming.hushed and c.security != NULL else 0


cdef bint conn_admitted(Conn* c) noexcept nogil:
    # Who comes to make a handshake and nothing else is counted, and refused, before it begins; others once it does. Behind a
    # PROXY header, when that was read.
    cdef Security* s = c.security
    if c.approach != HANDSHAKING or c.ws != NULL or s.optional or greets_after(c):
        return True
    c.coming.admitted = s.admits(s)
    return c.coming.admitted


cdef bint greet_after_all(Conn* c) noexcept nogil:
    # Without a handshake's beginning a connection may be one that wants to be greeted first.
    if c.link != NULL or not greets_after(c):
        return False
    c.coming.hushed = False
    c.base.protocol.greet(&c.base)
    coming_wait(c)
    return True


cdef void auth_due(Timer* t, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    if c.approach == DIALLING:
        client_close(&c.base, CLOSE_UNREACHABLE)
    elif is_coming(c):
        c.transport.late(c)
    elif c.auth != AUTH_OPEN:
        c.base.protocol.refuse(&c.base, CLOSE_AUTH_TIMEOUT, span_c(b"Authentication Timeout"))


# ---- a handshake behind the first words

cdef int conn_secure(Conn* c, Security* security, Span name) noexcept nogil:
    # 0, or -1: no memory.
    c.secured.n = 0
    if bytes_add(&c.secured, name.p, name.n) != 0:
        return -1
    security.hold(security)
    c.security = security
    c.coming.judged.fn = secure_begins
    task_post(&c.reactor.tasks, &c.coming.judged)
    return 0


cdef void secure_begins(Task* t) noexcept nogil:
    # In its reactor, which writes without the engine lock. What came behind the words in clear was not said by whom the
    # handshake is made with.
    cdef Conn* c = <Conn*>t.owner
    c.rest.paused = False
    if c.input.n_left:
        note_text(&c.base, b"TLS handshake error: bytes in clear come before it")
        client_close(&c.base, CLOSE_TLS_HANDSHAKE)
        return
    c.transport = c.security.caller
    c.approach = HANDSHAKING
    if c.transport.establish(c) != 0:
        client_close(&c.base, CLOSE_TLS_HANDSHAKE)
        return
    conn_established(c, 0)


# ---- what the control plane says of certificates

cdef void peer_ask(Conn* c) noexcept nogil:
    # It is to decide about those of a connection; until then nothing is read, and the handshake's time runs.
    cdef Span texts[2]
    cdef int64_t num[2]
    texts[0] = c.base.address
    texts[1] = span(c.secured.data, <uint32_t>c.secured.n)
    num[0] = c.port
    num[1] = c.ws != NULL
    c.rest.paused = True
    c.wants.reading = c.wants.writing = False
    if c.transport.want(c, False, False) != 0 or inbox_put(&c.base.engine.inbox, IN_PEER, c.base.cid, texts, 2, num, 2) != 0:
        client_close(&c.base, CLOSE_TLS_HANDSHAKE)


cdef bint peer_answer(Conn* c, bint good) noexcept nogil:
    # What it says; the reactor goes on from there. False: the connection does not wait for that.
    if not is_coming(c) or not c.rest.paused or c.coming.verdict or c.base.closing:
        return False
    c.coming.verdict = 1 if good else -1
    task_post(&c.reactor.tasks, &c.coming.judged)
    return True


cdef void peer_judged(Task* t) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    c.rest.paused = False
    c.wants.reading = True
    conn_established(c, c.transport.establish(c))
