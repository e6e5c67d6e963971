# The transport: first until the handshake is made, then for what flows.

cdef enum:
    HANDSHAKE_RECORD = 22       # the first byte of a handshake
    HANDSHAKE_BYTES = 32768     # that it may take from the socket in a turn
    WRITE_BATCH = 114688        # bytes of ciphertext that one call sends, at most: more than what one read becomes


cdef int link_send(Conn* c, Link* t) noexcept nogil:
    # Sends what is in `out`: 0 when nothing is left, else -errno.
    cdef ssize_t sent
    while t.out_at < t.out.n:
        sent = send(c.fd, t.out.data + t.out_at, t.out.n - t.out_at, MSG_NOSIGNAL)
        if sent < 0:
            if errno != EINTR:
                return -errno
        else:
            t.out_at += <size_t>sent
    if t.out.cap > RECORD_ROOM:
        bytes_free(&t.out)
    t.out.n = 0
    t.out_at = 0
    return 0


# ---- until the handshake is made

cdef bint hello_admits(Security* s) noexcept nogil:
    # Counts handshakes, in seconds that begin with their first.
    cdef Context* x = <Context*>s
    cdef timespec ts
    cdef int64_t now, until
    if x.rate == 0:
        return True
    clock_gettime(CLOCK_MONOTONIC, &ts)
    now = <int64_t>ts.tv_sec * 1000000000 + ts.tv_nsec
    until = atomic_load(&x.rate_until)
    if now >= until and atomic_swap_if(&x.rate_until, until, now + 1000000000):
        atomic_store(&x.rate_count, 0)
    return atomic_add_long(&x.rate_count, 1) <= x.rate


cdef int hello_fault(Conn* c, const char* why, int rc) noexcept nogil:
    fault_words(&c.secured, b"", why)
    return rc


cdef int hello_begin(Conn* c) noexcept nogil:
    # Whether there is a handshake to be made: 0, and there is c.link for it, or there is another transport; else -errno.
    cdef Context* x = <Context*>c.security
    cdef uint8_t first
    cdef ssize_t got = recv(c.fd, &first, 1, MSG_PEEK)
    if got < 0:
        if errno == EAGAIN or errno == EINTR:
            return -EAGAIN
        return hello_fault(c, b"connection reset by peer", -EPROTO)
    if got == 0 or first != HANDSHAKE_RECORD:
        if not c.coming.hushed and x.security.optional:
            c.transport = &plain_transport
            return 0
        if got == 0:
            return hello_fault(c, b"EOF", -EPROTO)
        return hello_fault(c, b"tls: first record does not look like a TLS handshake", -EPROTONOSUPPORT)
    if not c.coming.admitted and not hello_admits(c.security):
        return -EBUSY
    c.link = link_new(x, c.fd)
    return 0 if c.link != NULL else hello_fault(c, b"no memory", -ENOMEM)


cdef int hello_judged(Conn* c) noexcept nogil:
    # What the control plane has come to; while it has not, whether the connection is still there.
    if c.coming.verdict < 0:
        return hello_fault(c, b"client not OCSP valid", -EPROTO)
    if c.coming.verdict == 0:
        if plain_establish(c) != 0:
            return hello_fault(c, b"connection reset by peer", -EPROTO)
        return -EAGAIN
    return 0


cdef int hello_establish(Conn* c) noexcept nogil:
    cdef Link* t
    cdef int rc
    if c.link == NULL:
        rc = hello_begin(c)
        if rc != 0 or c.link == NULL:
            return rc
    t = <Link*>c.link
    if t.asked:
        rc = hello_judged(c)
    else:
        t.allowance = HANDSHAKE_BYTES
        rc = link_handshake(t, &c.secured)
        link_send(c, t)
        if rc == -EAGAIN:
            plain_want(c, True, t.out.n != 0)
        elif rc == 0 and t.context.inquires:
            t.asked = True
            link_chain(t, &c.secured)
            return ASK_CONTROL
    if rc != 0:
        return rc
    t.fd = -1
    SSL_free_buffers(t.ssl)
    link_describe(t, c.coming.hushed and c.ws == NULL, &c.secured)
    c.transport = &tls_transport
    plain_want(c, True, c.wants.writing)
    return 0


cdef int call_establish(Conn* c) noexcept nogil:
    # Of the side that dials: once the other one is there.
    cdef int rc = plain_establish(c)
    if rc != 0:
        return rc
    c.link = link_call(<Context*>c.security, c.fd, span(c.secured.data, <uint32_t>c.secured.n))
    c.secured.n = 0
    return 0 if c.link != NULL else -ENOMEM


cdef bint call_next(Conn* c) noexcept nogil:
    c.transport = &hello_transport
    c.approach = HANDSHAKING
    c.wants.reading = True
    c.wants.writing = False
    plain_want(c, True, True)       # it speaks first
    return True


cdef int64_t hello_patience(Conn* c) noexcept nogil:
    cdef int64_t ns = greets_after(c)
    return ns if ns else c.security.timeout


cdef void hello_late(Conn* c) noexcept nogil:
    # Without a handshake's beginning a connection may be one that has none.
    if greet_after_all(c):
        return
    if c.link == NULL and not c.coming.hushed and c.security.optional:
        c.transport = &plain_transport
        conn_established(c, 0)
        return
    note_span(&c.base, span_c(b"TLS handshake timeout"), NOTE_DEBUG)
    client_close(&c.base, CLOSE_TLS_HANDSHAKE)


cdef void hello_failed(Conn* c, int rc) noexcept nogil:
    if rc == -EBUSY:
        conn_throttled(c)
        return
    # A client that only looks what listens here, and speaks no TLS, is no error of ours.
    note_span(&c.base, span(c.secured.data, <uint32_t>c.secured.n), NOTE_DEBUG if rc == -EPROTONOSUPPORT else NOTE_LINE)
    client_close(&c.base, CLOSE_TLS_HANDSHAKE)


cdef ssize_t hello_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    # Until the handshake begins what is written is INFO, or why the connection ends.
    return plain_write(c, iov, n) if c.link == NULL else -EAGAIN


cdef void tls_shutdown(Conn* c) noexcept nogil:
    # The peer is told that nothing more comes, if it has taken all before that.
    cdef Link* t = <Link*>c.link
    if t != NULL:
        if t.out.n == 0 and not t.failed and SSL_is_init_finished(t.ssl):
            ERR_clear_error()
            SSL_shutdown(t.ssl)
        link_send(c, t)
        link_free(t)
        c.link = NULL
    plain_shutdown(c)


# ---- what flows

cdef ssize_t tls_read(Conn* c, void* p, size_t n) noexcept nogil:
    cdef Link* t = <Link*>c.link
    cdef uint8_t* scratch = reactor_scratch(c.reactor)
    cdef ssize_t got
    if t.failed or scratch == NULL:
        return -EPROTO
    if t.ended:
        return 0
    invariant(n > RECORD_ROOM, "a read has room for a record")
    # OpenSSL may hold the most part of a record: what is read with it has its place even so.
    got = recv(c.fd, scratch, min(n - RECORD_ROOM, <size_t>SCRATCH_SIZE), 0)
    if got <= 0:
        return 0 if got == 0 else -errno
    t.inward = scratch
    t.n_inward = <size_t>got
    got = link_decrypt(t, <uint8_t*>p, n)
    t.n_inward = 0
    SSL_free_buffers(t.ssl)     # if nothing is in them
    if t.out.n and t.claimed == 0:
        link_send(c, t)
    if t.ended or t.failed:
        if got > 0:
            shutdown(c.fd, SHUT_RD)     # so that the next turn comes back here
        else:
            return 0 if t.ended else -EPROTO
    return got if got > 0 else -EAGAIN


cdef ssize_t tls_write(Conn* c, const iovec* iov, int n) noexcept nogil:
    # What was encrypted and is not sent yet counts as taken when it is.
    cdef Link* t = <Link*>c.link
    cdef uint8_t* scratch = reactor_scratch(c.reactor)
    cdef const uint8_t* record = NULL
    cdef size_t done = t.claimed, at = t.claimed, batch, size
    cdef ssize_t sent
    cdef int i = 0, rc
    if t.failed or scratch == NULL:
        return -EPROTO
    rc = link_send(c, t)
    if rc != 0:
        return rc
    t.claimed = 0
    while i < n and at >= iov[i].iov_len:
        at -= iov[i].iov_len
        i += 1
    while i < n:
        t.into = scratch + RECORD_MAX
        t.room = SCRATCH_SIZE - RECORD_MAX
        t.n_into = 0
        batch = 0
        while i < n and t.n_into + RECORD_ROOM <= WRITE_BATCH:
            size = gather(iov, n, &i, &at, RECORD_MAX, scratch, &record)
            if size and SSL_write(t.ssl, record, <int>size) != <int>size:
                t.failed = True
                break
            batch += size
        t.into = NULL
        if t.failed:
            return -EPROTO
        SSL_free_buffers(t.ssl)
        sent = send(c.fd, scratch + RECORD_MAX, t.n_into, MSG_NOSIGNAL)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                return -errno
            sent = 0
        if <size_t>sent < t.n_into:
            if bytes_add(&t.out, scratch + RECORD_MAX + sent, t.n_into - <size_t>sent) != 0:
                t.failed = True
                return -ENOMEM
            t.claimed = batch
            return <ssize_t>done if done else -EAGAIN
        done += batch
    return <ssize_t>done


cdef size_t tls_slack(const Conn* c) noexcept nogil:
    return 2 * RECORD_ROOM


cdef Transport call_transport
cdef Transport hello_transport
cdef Transport tls_transport

call_transport.establish = call_establish
call_transport.want = plain_want
call_transport.write = hello_write
call_transport.shutdown = tls_shutdown
call_transport.next = call_next

hello_transport.establish = hello_establish
hello_transport.write = hello_write
hello_transport.want = plain_want
hello_transport.shutdown = tls_shutdown
hello_transport.patience = hello_patience
hello_transport.late = hello_late
hello_transport.failed = hello_failed
hello_transport.asks = peer_ask

tls_transport.read = tls_read
tls_transport.slack = tls_slack
tls_transport.write = tls_write
tls_transport.want = plain_want
tls_transport.shutdown = tls_shutdown
