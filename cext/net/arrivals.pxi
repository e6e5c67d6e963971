# How connections come: from listeners, and by our asking for them.

cdef enum:
    ACCEPTS_A_TURN = 64
    ACCEPT_PAUSE_NS = 100000000
    COMING_MAX = 4096       # connections that have not asked for what they want yet


cdef void set_address(Conn* c, const sockaddr_storage* addr) noexcept nogil:
    cdef sockaddr_in* v4
    cdef sockaddr_in6* v6
    cdef uint8_t* bytes6
    c.address[0] = 0
    if addr.ss_family == AF_INET:
        v4 = <sockaddr_in*>addr
        inet_ntop(AF_INET, &v4.sin_addr, c.address, ADDRESS_MAX)
        c.port = ntohs(v4.sin_port)
    elif addr.ss_family == AF_INET6:
        v6 = <sockaddr_in6*>addr
        bytes6 = <uint8_t*>&v6.sin6_addr
        # A dual-stack listener sees IPv4 peers as ::ffff:a.b.c.d; they are shown as they are.
        if memcmp(bytes6, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
            inet_ntop(AF_INET, bytes6 + 12, c.address, ADDRESS_MAX)
        else:
            inet_ntop(AF_INET6, bytes6, c.address, ADDRESS_MAX)
        c.port = ntohs(v6.sin6_port)
    c.n_address = <uint32_t>strlen(c.address)


cdef bint is_from_here(const Conn* c) noexcept nogil:
    return memcmp(c.address, b"127.", 4) == 0 or span_eq(c.base.address, span_c(b"::1"))


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


cdef void auth_due(Timer* t, int64_t now) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    if c.connecting == DIALLING:
        client_close(&c.base, CLOSE_UNREACHABLE)
    elif c.connecting == COMING:
        coming_late(c)
    elif c.auth != AUTH_OPEN:
        client_error(&c.base, b"Authentication Timeout")
        client_close(&c.base, CLOSE_AUTH_TIMEOUT)


cdef Reactor* least_loaded(Net* net) noexcept nogil:
    # Whoever serves the fewest connections gets the next: how busy each will be cannot be known, and so they stay even when
    # those of one reactor end together.
    cdef Reactor* best = net.reactors
    cdef uint32_t i
    for i in range(1, net.n_reactors):
        if net.reactors[i].n_conns < best.n_conns:
            best = &net.reactors[i]
    return best


cdef Conn* conn_new(Net* net, int fd, int kind, const Protocol* protocol, const Transport* transport) noexcept nogil:
    # A connection that nobody knows yet; NULL: no memory.
    cdef Conn* c = <Conn*>calloc(1, protocol.size)
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
    c.terms = &net.terms[kind]
    c.fd = fd
    c.base.started = e.env.now
    c.last_active = e.env.now
    c.input_at = e.env.mono
    timer_init(&c.ping_timer, ping_due, c)
    timer_init(&c.auth_timer, auth_due, c)
    timer_init(&c.write_timer, write_due, c)
    timer_init(&c.stall_timer, stall_over, c)
    c.resume.fn = resume_run
    c.resume.owner = c
    c.judged.fn = peer_judged
    c.judged.owner = c
    return c


cdef void conn_drop(Conn* c) noexcept nogil:
    # It never was.
    ws_free(c)
    client_free(&c.base)
    if c.security != NULL:
        c.security.release(c.security)
    free(c)


cdef int conn_join(Conn* c, const sockaddr_storage* addr) noexcept nogil:
    # Its reactor serves it from now on; 0, or -1 and it is as if it had never been, but for its descriptor.
    cdef Net* net = c.reactor.net
    if addr != NULL:
        set_address(c, addr)
    c.base.address = span(c.address, c.n_address)
    c.base.port = c.port
    c.base.websocket = c.ws != NULL
    c.writing = c.connecting == DIALLING
    c.reading = not c.writing
    if u64map_put(&net.by_cid, c.base.cid, <uint64_t>c) != 0 or c.transport.want(c, c.reading, c.writing) != 0:
        u64map_del(&net.by_cid, c.base.cid)
        conn_drop(c)
        return -1
    c.next = net.conns
    if net.conns != NULL:
        net.conns.prev = c
    net.conns = c
    net.n_coming += 1
    c.reactor.n_conns += 1
    if c.ws == NULL:
        conn_count(c)
    return 0


cdef void conn_count(Conn* c) noexcept nogil:
    # From now on it is a connection, to the control plane too.
    c.known = True
    c.reactor.net.n_coming -= 1
    c.reactor.net.n_conns += 1


cdef void conn_open(Conn* c) noexcept nogil:
    # It has come; bytes may flow unless something comes before.
    cdef Engine* e = c.base.engine
    cdef int64_t port = c.port
    e.stats.total_connections += 1
    if e.debug:
        inbox_put(&e.inbox, IN_OPENED, c.base.cid, &c.base.address, 1, &port, 1)
    if not c.hushed:
        c.base.protocol.greet(&c.base)
    if not c.connecting:
        c.base.protocol.open(&c.base)


cdef void conn_established(Conn* c, int rc) noexcept nogil:
    # What establishing a connection has come to.
    cdef bint dialled = c.connecting == DIALLING
    if rc == -EAGAIN:
        return
    if rc == ASK_CONTROL:
        if c.transport == &ws_transport:
            ws_ask(c)
        else:
            peer_ask(c)
        return
    if rc != 0:
        if dialled:
            client_close(&c.base, CLOSE_UNREACHABLE)
        else:
            coming_failed(c, rc)
        return
    timer_cancel(&c.reactor.timers, &c.auth_timer)
    if c.transport == &proxy_transport:
        proxy_done(c)
        if c.security != NULL:
            coming_wait(c)
            return
    if c.ws != NULL and c.ws.state == WS_BELOW:
        ws_begin(c)
        coming_wait(c)
        return
    c.connecting = ESTABLISHED
    conn_want(c, True, c.writing and not dialled)
    if dialled or c.ws != NULL:
        c.hushed = False
        conn_open(c)
        return
    c.last_active = c.base.engine.env.now
    if c.hushed:
        c.hushed = False
        c.base.protocol.greet(&c.base)
    if not c.base.closing:
        c.base.protocol.open(&c.base)


# ---- what the control plane says of certificates

cdef void peer_ask(Conn* c) noexcept nogil:
    # It is to decide about those of a connection; until then nothing is read, and the handshake's time runs.
    cdef Span texts[2]
    cdef int64_t num[2]
    texts[0] = c.base.address
    texts[1] = span(c.secured.data, <uint32_t>c.secured.n)
    num[0] = c.port
    num[1] = c.ws != NULL
    c.paused = True
    c.reading = c.writing = False
    if c.transport.want(c, False, False) != 0 or inbox_put(&c.base.engine.inbox, IN_PEER, c.base.cid, texts, 2, num, 2) != 0:
        client_close(&c.base, CLOSE_TLS_HANDSHAKE)


cdef bint peer_answer(Conn* c, bint good) noexcept nogil:
    # What it says; the reactor goes on from there. False: the connection does not wait for that.
    if c.connecting != COMING or not c.paused or c.verdict or c.base.closing:
        return False
    c.verdict = 1 if good else -1
    task_post(&c.reactor.tasks, &c.judged)
    return True


cdef void peer_judged(Task* t) noexcept nogil:
    cdef Conn* c = <Conn*>t.owner
    c.paused = False
    c.reading = True
    conn_established(c, c.transport.establish(c))


# ---- from listeners

cdef void coming_wait(Conn* c) noexcept nogil:
    # The next thing that comes before its bytes does so in time.
    cdef int64_t ns = PROXY_TIMEOUT_NS
    if c.transport == &ws_transport:
        ns = c.ws.patience
    elif c.hushed and c.security != NULL and c.security.fallback:
        ns = c.security.fallback
    elif c.transport != &proxy_transport:
        ns = c.security.timeout
    timer_set(&c.reactor.timers, &c.auth_timer, c.base.engine.env.mono + ns)


cdef void coming_late(Conn* c) noexcept nogil:
    # It did not. Without a handshake's beginning a connection may be one that wants to be greeted first, or have none.
    cdef Client* b = &c.base
    if c.transport == &ws_transport:
        client_close(b, CLOSE_UNREACHABLE)
    elif c.link == NULL and c.hushed and c.security != NULL and c.security.fallback:
        c.hushed = False
        b.protocol.greet(b)
        coming_wait(c)
    elif c.transport == &proxy_transport:
        note_span(b, span_c(b"failed to read protocol version: i/o timeout"), NOTE_PROXY)
        client_close(b, CLOSE_PROTOCOL_VIOLATION)
    elif c.link == NULL and not c.hushed and c.security.optional:
        c.transport = &plain_transport
        conn_established(c, 0)
    else:
        note_span(b, span_c(b"TLS handshake timeout"), NOTE_DEBUG)
        client_close(b, CLOSE_TLS_HANDSHAKE)


cdef void coming_throttled(Conn* c) noexcept nogil:
    client_error(&c.base, b"Connection throttling is active. Please try again later.")
    client_close(&c.base, CLOSE_THROTTLED)


cdef void coming_failed(Conn* c, int rc) noexcept nogil:
    cdef Client* b = &c.base
    cdef Span words = span(c.secured.data, <uint32_t>c.secured.n)
    if c.transport == &ws_transport:
        client_close(b, CLOSE_UNREACHABLE)
    elif c.transport == &proxy_transport:
        note_span(b, words, NOTE_PROXY)
        client_close(b, CLOSE_PROTOCOL_VIOLATION)
    elif rc == -EBUSY:
        coming_throttled(c)
    else:
        # Whoever looks what listens here, and speaks no TLS, is no error of ours.
        note_span(b, words, NOTE_DEBUG if rc == -EPROTONOSUPPORT else NOTE_LINE)
        client_close(b, CLOSE_TLS_HANDSHAKE)


cdef void listener_arm(Listener* s) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN
    ev.data.ptr = &s.head
    epoll_ctl(s.reactor.epoll, EPOLL_CTL_ADD, s.fd, &ev)


cdef void listener_resume(Timer* t, int64_t now) noexcept nogil:
    cdef Listener* s = <Listener*>t.owner
    s.paused = False
    listener_arm(s)


cdef Listener* listener_open(Net* net, int fd, int kind, const Protocol* protocol,
                             const Transport* transport) noexcept nogil:
    # Accepts connections from a listening, non-blocking socket, which stays its owner's. NULL: no memory.
    cdef Reactor* r = net.reactors
    cdef Listener* s = <Listener*>calloc(1, sizeof(Listener))
    if s == NULL:
        return NULL
    s.head.kind = HEAD_LISTENER
    s.head.owner = s
    s.reactor = r
    s.fd = fd
    s.kind = kind
    s.protocol = protocol
    s.transport = transport
    timer_init(&s.timer, listener_resume, s)
    s.next = r.listeners
    r.listeners = s
    listener_arm(s)
    return s


cdef void listener_secure(Listener* s, Security* security, bint proxied) noexcept nogil:
    # What those that it accepts from now on are secured by; NULL: nothing.
    if security != NULL:
        security.hold(security)
    if s.security != NULL:
        s.security.release(s.security)
    s.security = security
    s.proxied = proxied


cdef void listener_close(Listener* s) noexcept nogil:
    # Nothing more is accepted; an event of the turn under way may still name it.
    cdef Reactor* r = s.reactor
    cdef Listener** at = &r.listeners
    while at[0] != s:
        at = &at[0].next
    at[0] = s.next
    if not s.paused:
        epoll_ctl(r.epoll, EPOLL_CTL_DEL, s.fd, NULL)
    timer_cancel(&r.timers, &s.timer)
    s.fd = -1
    s.next = r.closed_listeners
    r.closed_listeners = s


cdef void listeners_bury(Reactor* r) noexcept nogil:
    cdef Listener* s
    while r.closed_listeners != NULL:
        s = r.closed_listeners
        r.closed_listeners = s.next
        listener_secure(s, NULL, False)
        free(s)


cdef int conn_guard(Conn* c, Listener* s) noexcept nogil:
    # Before its bytes comes what the listener asks for. -1: no memory.
    if s.terms != NULL:
        c.terms = s.terms
    if s.framed and ws_wrap(c, s.patience) != 0:
        return -1
    if s.security != NULL:
        s.security.hold(s.security)
        c.security = s.security
        # Else it is told so at once.
        c.hushed = s.security.first and (s.framed or not net_is_full(c.reactor.net, 1))
        c.transport = s.security.transport
    if s.proxied:
        c.transport = &proxy_transport
    if c.transport != s.transport:
        c.connecting = COMING
    elif s.framed:
        ws_begin(c)
    return 0


cdef bint conn_admitted(Conn* c) noexcept nogil:
    # Who comes to make a handshake and nothing else is counted, and refused, before it begins; others once it does.
    cdef Security* s = c.security
    if s == NULL or c.ws != NULL or c.transport != s.transport or s.optional or (c.hushed and s.fallback):
        return True
    c.admitted = s.admits(s)
    return c.admitted


cdef void accept_ready(Listener* s) noexcept nogil:
    cdef Engine* e = s.reactor.engine
    cdef sockaddr_storage addr
    cdef socklen_t n_addr
    cdef Conn* c
    cdef int fd, i, one = 1, local = LOCAL_SEND_BUFFER
    if s.fd < 0 or s.paused:
        return
    for i in range(ACCEPTS_A_TURN):
        n_addr = sizeof(addr)
        fd = accept4(s.fd, <sockaddr*>&addr, &n_addr, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            if errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
                # Out of descriptors: the pending connection would wake us for ever.
                epoll_ctl(s.reactor.epoll, EPOLL_CTL_DEL, s.fd, NULL)
                s.paused = True
                timer_set(&s.reactor.timers, &s.timer, e.env.mono + ACCEPT_PAUSE_NS)
            return
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        if s.framed and s.reactor.net.n_coming >= COMING_MAX:
            close(fd)       # whoever keeps so many waiting shall not have all descriptors
            continue
        c = conn_new(s.reactor.net, fd, s.kind, s.protocol, s.transport)
        if c == NULL:
            close(fd)
            continue
        if conn_guard(c, s) != 0:
            conn_drop(c)
            close(fd)
            continue
        if conn_join(c, &addr) != 0:
            close(fd)
            continue
        if is_from_here(c):
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &local, sizeof(local))
        if c.ws == NULL:
            conn_open(c)
        if c.connecting:
            coming_wait(c)
            if not c.base.closing and not conn_admitted(c):
                coming_throttled(c)


# ---- by our asking

cdef Conn* conn_dial(Net* net, int fd, const sockaddr_storage* addr, int kind, const Protocol* protocol,
                     const Transport* transport, int64_t timeout) noexcept nogil:
    # A connection over a non-blocking socket that connect() was called for. It opens once it is established; where that fails,
    # or takes longer than `timeout` ns, it closes with CLOSE_UNREACHABLE. NULL: no memory, and fd is the caller's.
    cdef Conn* c = conn_new(net, fd, kind, protocol, transport)
    if c == NULL:
        return NULL
    c.connecting = DIALLING
    if conn_join(c, addr) != 0:
        return NULL
    timer_set(&c.reactor.timers, &c.auth_timer, net.engine.env.mono + timeout)
    return c
