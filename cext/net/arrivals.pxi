# How connections come: from listeners, and by our asking for them.

cdef enum:
    ACCEPTS_A_TURN = 64
    ACCEPT_PAUSE_NS = 100000000
    COMING_MAX = 4096       # connections that have not asked for what they want yet


# ---- from listeners

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
    list_push_front(&r.listeners, &s.node)
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


cdef inline Listener* listener_at(const ListNode* n) noexcept nogil:
    return <Listener*>list_owner(n, &(<Listener*>NULL).node)


cdef void listener_close(Listener* s) noexcept nogil:
    # Nothing more is accepted; an event of the turn under way may still name it.
    cdef Reactor* r = s.reactor
    list_remove(&s.node)
    if not s.paused:
        epoll_ctl(r.epoll, EPOLL_CTL_DEL, s.fd, NULL)
    timer_cancel(&r.timers, &s.timer)
    s.fd = -1
    list_push_front(&r.closed_listeners, &s.node)


cdef void listeners_free(Reactor* r) noexcept nogil:
    cdef Listener* s
    while not list_empty(&r.closed_listeners):
        s = listener_at(list_pop(&r.closed_listeners))
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
        c.coming.hushed = s.security.first and (s.framed or s.kind != KIND_CLIENT or not net_is_full(c.reactor.net, 1))
        c.transport = s.security.transport
        c.approach = HANDSHAKING
    if s.proxied:
        c.transport = &proxy_transport
        c.approach = PROXYING
    if s.framed and c.approach == ESTABLISHED:
        ws_begin(c)
    return 0


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
            close(fd)       # connections that wait shall not have all descriptors
            continue
        c = conn_new(s.reactor.net, fd, s.kind, s.protocol, s.transport, s.becomes.size if s.becomes != NULL else 0)
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
        if c.approach:
            coming_wait(c)
            if not c.base.closing and not conn_admitted(c):
                conn_throttled(c)


# ---- by our asking

cdef Conn* conn_dial(Net* net, int fd, const sockaddr_storage* addr, int kind, const Protocol* protocol,
                     const Transport* transport, int64_t timeout, Security* security, Span name, Span request) noexcept nogil:
    # A connection over a non-blocking socket that connect() was called for. It opens once it is established; where that fails,
    # or takes longer than `timeout` ns, it closes with CLOSE_UNREACHABLE. What it is secured by (NULL: nothing) comes first, then
    # with the server of that name or address alone (empty: any). A request for WebSocket (empty: none) comes behind that, whose
    # answer the control plane judges. NULL: no memory, and fd is the caller's.
    cdef Conn* c = conn_new(net, fd, kind, protocol, transport, 0)
    if c == NULL:
        return NULL
    c.approach = DIALLING
    if request.n and (ws_wrap(c, timeout) != 0 or ws_request(c.ws, request) != 0):
        conn_drop(c)
        return NULL
    if security != NULL:
        security.hold(security)
        c.security = security
        c.transport = security.caller
        c.coming.hushed = True
        if bytes_add(&c.secured, name.p, name.n) != 0:
            conn_drop(c)
            return NULL
    if conn_join(c, addr) != 0:
        return NULL
    timer_set(&c.reactor.timers, &c.auth_timer, net.engine.env.mono + timeout)
    return c
