# A connection's life: it is made, joins its reactor, opens, and ends.

# ---- the beginning

cdef void timer_init(Timer* t, timer_fn fn, void* owner) noexcept nogil:
    t.pos = 0
    t.deadline = 0
    t.fn = fn
    t.owner = owner


cdef void ping_due(Timer* t, int64_t now) noexcept nogil:
    cdef Client* c = &(<Conn*>t.owner).base
    c.protocol.keepalive(c, now)


cdef void write_due(Timer* t, int64_t now) noexcept nogil:
    client_close(&(<Conn*>t.owner).base, CLOSE_SLOW_DEADLINE)


cdef Reactor* least_loaded(Net* net) noexcept nogil:
    # The reactor with the fewest connections gets the next: how busy each will be cannot be known, and so they stay even when
    # those of one reactor end together.
    cdef Reactor* best = net.reactors
    cdef uint32_t i
    for i in range(1, net.n_reactors):
        if net.reactors[i].n_conns < best.n_conns:
            best = &net.reactors[i]
    return best


cdef Conn* conn_new(Net* net, int fd, int kind, const Protocol* protocol, const Transport* transport,
                    size_t room) noexcept nogil:
    # A connection that nobody knows yet, with memory of `room` bytes at least; NULL: no memory.
    cdef size_t size = max(protocol.size, room)
    cdef Conn* c = <Conn*>calloc(1, size)
    cdef Engine* e = net.engine
    cdef Reactor* r = least_loaded(net)
    if c == NULL:
        return NULL
    net.next_cid += 1
    client_init(&c.base, e, &r.work, net.default_account, net.next_cid, kind, protocol)
    c.head.kind = HEAD_CONN
    c.head.owner = c
    c.reactor = r
    c.transport = transport
    c.size = size
    c.terms = &net.terms[kind]
    c.fd = fd
    c.base.started = e.env.now
    c.last_active = e.env.now
    c.input.at = e.env.mono
    timer_init(&c.keepalive.timer, ping_due, c)
    timer_init(&c.auth_timer, auth_due, c)
    timer_init(&c.output.timer, write_due, c)
    timer_init(&c.rest.timer, stall_over, c)
    c.rest.resume.fn = resume_run
    c.rest.resume.owner = c
    c.coming.judged.fn = peer_judged
    c.coming.judged.owner = c
    return c


cdef bint conn_become(Conn* c, int kind, const Protocol* protocol) noexcept nogil:
    # False: the connection has no room for that protocol, or is in use already.
    if c.known or c.size < protocol.size:
        return False
    memset(<uint8_t*>c + sizeof(Conn), 0, c.size - sizeof(Conn))
    client_become(&c.base, kind, protocol)
    c.terms = &c.reactor.net.terms[kind]
    return True


cdef void conn_drop(Conn* c) noexcept nogil:
    # It never was.
    ws_free(c)
    client_free(&c.base)
    bytes_free(&c.secured)
    if c.security != NULL:
        c.security.release(c.security)
    free(c)


cdef void conn_count(Conn* c) noexcept nogil:
    # From now on it is a connection, to the control plane too.
    c.known = True
    c.reactor.net.n_coming -= 1
    c.reactor.net.n_clients += c.base.kind == KIND_CLIENT


cdef int conn_join(Conn* c, const sockaddr_storage* addr) noexcept nogil:
    # Its reactor serves it from now on; 0, or -1 and it is as if it had never been, but for its descriptor.
    cdef Net* net = c.reactor.net
    if addr != NULL:
        set_address(c, addr)
    c.base.address = span(c.address, c.n_address)
    c.base.port = c.port
    c.base.websocket = c.ws != NULL
    c.wants.writing = c.approach == DIALLING
    c.wants.reading = not c.wants.writing
    if u64map_put(&net.by_cid, c.base.cid, <uint64_t>c) != 0 or c.transport.want(c, c.wants.reading, c.wants.writing) != 0:
        u64map_del(&net.by_cid, c.base.cid)
        conn_drop(c)
        return -1
    list_push_front(&net.conns, &c.node)
    net.n_coming += 1
    c.reactor.n_conns += 1
    if c.ws == NULL or c.ws.dials:
        conn_count(c)
    return 0


cdef inline bint net_is_full(const Net* net, uint64_t more) noexcept nogil:
    # Whether it has more clients than it may, with so many that are not counted yet.
    cdef int64_t most = net.engine.limits.max_connections
    return most <= 0 or net.n_clients + more > <uint64_t>most


cdef void conn_open(Conn* c) noexcept nogil:
    # It has come; bytes may flow unless something comes before.
    cdef Engine* e = c.base.engine
    cdef int64_t port = c.port
    e.stats.total_connections += c.base.kind == KIND_CLIENT
    if e.debug and c.base.kind == KIND_CLIENT:
        inbox_put(&e.inbox, IN_OPENED, c.base.cid, &c.base.address, 1, &port, 1)
    if not c.coming.hushed:
        c.base.protocol.greet(&c.base)
    if not c.approach:
        c.base.protocol.open(&c.base)


# ---- monitoring, and the end

cdef void conn_numbers(Conn* c, Span* texts, ConnFigures* num) noexcept nogil:
    # What monitoring wants to know of a connection, open or closing.
    texts[0].p = <const uint8_t*>c.address
    texts[0].n = c.n_address
    texts[1].p = c.connect.data
    texts[1].n = <uint32_t>c.connect.n
    texts[2] = span(c.secured.data, <uint32_t>c.secured.n if not c.approach else 0)
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
    num.stalls = <int64_t>c.rest.stalls
    num.account = c.base.account.id
    num.websocket = c.ws != NULL
    num.compression = c.compression.level if c.compression != NULL else 0
    num.kind = c.base.kind
    num.chunks = <int64_t>(c.base.chunks_queued - load_relaxed(&c.base.chunks_sent))


cdef void conn_finish(Conn* c) noexcept nogil:
    # It is closing: nothing more happens to it but that its last words are written and it ends, without the engine lock.
    cdef Reactor* r = c.reactor
    cdef int reason = c.base.closing
    timer_cancel(&r.timers, &c.keepalive.timer)
    timer_cancel(&r.timers, &c.auth_timer)
    timer_cancel(&r.timers, &c.output.timer)
    timer_cancel(&r.timers, &c.rest.timer)
    task_cancel(&c.rest.resume)
    task_cancel(&c.coming.judged)
    if c.ws != NULL:
        task_cancel(&c.ws.answered)
    if c.compression != NULL:
        task_cancel(&c.compression.begins)
        task_cancel(&c.compression.changes)
    list_drop(&c.base.dirty)
    list_drop(&c.input.again)
    forget_resting(c)
    conn_take(c)
    c.ending = (ENDS_AT_ONCE if reason == CLOSE_SLOW_PENDING or reason == CLOSE_SLOW_DEADLINE or reason == CLOSE_WRITE_ERROR
                else ENDS_WITH_LAST_WORDS)
    c.next_ending = r.ending
    r.ending = c


cdef void conn_end(Conn* c) noexcept nogil:
    if c.ending == ENDS_WITH_LAST_WORDS:
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
        net.n_clients -= c.base.kind == KIND_CLIENT
    else:
        net.n_coming -= 1
    list_remove(&c.node)
    c.reactor.n_conns -= 1
    u64map_del(&net.by_cid, c.base.cid)
    while c.output.head != NULL:
        k = c.output.head
        c.output.head = k.next
        chunk_release(e, k)
    ws_free(c)
    compression_free(c)
    client_free(&c.base)
    drop_left(c)
    bytes_free(&c.connect)
    bytes_free(&c.secured)
    if c.security != NULL:
        c.security.release(c.security)
    free(c)
