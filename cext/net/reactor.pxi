# The reactor: one thread that waits for sockets and timers and does everything else under the engine
# lock, turn by turn: read and route, run timers and tasks, write, bury the closed.

cdef enum:
    EVENTS_MAX = 256
    TIMERS_A_TURN = 4096
    TASKS_A_STEP = 4
    TASKS_NS_A_TURN = 1000000
    ACCEPTS_A_TURN = 64

cdef int64_t clock_ns(int which) noexcept nogil:
    cdef timespec ts
    clock_gettime(which, &ts)
    return <int64_t>ts.tv_sec * 1000000000 + ts.tv_nsec


cdef void read_clocks(Engine* e) noexcept nogil:
    e.env.now = clock_ns(CLOCK_REALTIME)
    e.env.mono = clock_ns(CLOCK_MONOTONIC)


cdef void listener_resume(Timer* t, int64_t now) noexcept nogil:
    cdef Reactor* r = <Reactor*>t.owner
    cdef epoll_event ev
    if r.listener.fd < 0 or not r.listener.paused:
        return
    r.listener.paused = False
    ev.events = EPOLLIN
    ev.data.ptr = &r.listener
    epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.listener.fd, &ev)


cdef void accept_ready(Reactor* r) noexcept nogil:
    cdef sockaddr_storage addr
    cdef socklen_t n_addr
    cdef int fd, i
    for i in range(ACCEPTS_A_TURN):
        n_addr = sizeof(addr)
        fd = accept4(r.listener.fd, <sockaddr*>&addr, &n_addr, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            if errno == EMFILE or errno == ENFILE or errno == ENOBUFS or errno == ENOMEM:
                # Out of descriptors: the pending connection would wake us for ever.
                epoll_ctl(r.epoll, EPOLL_CTL_DEL, r.listener.fd, NULL)
                r.listener.paused = True
                timer_set(&r.engine.env.timers, &r.listener.timer, r.engine.env.mono + 100000000)
            return
        conn_open(r, fd, &addr)


cdef void set_address(Conn* c, sockaddr_storage* addr) noexcept nogil:
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


cdef void conn_open(Reactor* r, int fd, sockaddr_storage* addr) noexcept nogil:
    cdef Conn* c = <Conn*>calloc(1, client_protocol.size)
    cdef Engine* e = r.engine
    cdef int one = 1
    cdef Span text
    cdef int64_t port
    if c == NULL:
        close(fd)
        return
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
    r.next_cid += 1
    client_init(&c.base, e, r.default_account, r.next_cid, KIND_CLIENT, &client_protocol)
    c.reactor = r
    c.transport = &plain_transport
    c.fd = fd
    c.started = e.env.now
    c.last_active = e.env.now
    c.input_at = e.env.mono
    set_address(c, addr)
    c.base.address = span(c.address, c.n_address)
    c.base.port = c.port
    timer_init(&c.ping_timer, ping_due, c)
    timer_init(&c.auth_timer, auth_due, c)
    timer_init(&c.write_timer, write_due, c)
    timer_init(&c.stall_timer, stall_over, c)
    c.resume.fn = resume_run
    c.resume.owner = c
    if u64map_put(&r.by_cid, c.base.cid, <uint64_t>c) != 0 or c.transport.want(c, True, False) != 0:
        u64map_del(&r.by_cid, c.base.cid)
        close(fd)
        free(c)
        return
    c.reading = True
    c.next = r.conns
    if r.conns != NULL:
        r.conns.prev = c
    r.conns = c
    r.n_conns += 1
    e.stats.total_connections += 1
    if e.debug:
        text.p = <const uint8_t*>c.address
        text.n = c.n_address
        port = c.port
        inbox_put(&e.inbox, IN_OPENED, c.base.cid, &text, 1, &port, 1)
    c.base.protocol.open(&c.base)


cdef void flush_dirty(Reactor* r) noexcept nogil:
    cdef Client* c
    while r.engine.dirty != NULL:
        c = r.engine.dirty
        r.engine.dirty = c.next_dirty
        c.dirty = False
        if not c.closing:
            conn_flush(<Conn*>c)


cdef void bury(Reactor* r) noexcept nogil:
    # Closing may deliver nothing more, so the list does not grow while it is worked off, but by errors.
    cdef Client* c
    while r.engine.closing != NULL:
        c = r.engine.closing
        r.engine.closing = c.next_closing
        conn_close_now(<Conn*>c)


cdef int wait_ms(Reactor* r) noexcept nogil:
    # How long the next turn may be waited for.
    cdef int64_t until
    if r.engine.env.tasks.head != NULL or r.engine.dirty != NULL or r.engine.closing != NULL:
        return 0
    until = timer_next(&r.engine.env.timers)
    if until == INT64_MAX:
        return 10000
    until -= clock_ns(CLOCK_MONOTONIC)
    if until <= 0:
        return 0
    if until > <int64_t>10000 * 1000000:
        return 10000
    return <int>((until + 999999) // 1000000)


cdef void turn(Reactor* r, epoll_event* events, int n) noexcept nogil:
    # One turn, under the engine lock.
    cdef int i
    cdef Conn* c
    cdef int64_t until
    read_clocks(r.engine)
    for i in range(n):
        if events[i].data.ptr == &r.listener:
            accept_ready(r)
        elif events[i].data.ptr != &r.wake:    # waking was all it was for
            c = <Conn*>events[i].data.ptr
            if events[i].events & EPOLLOUT:
                conn_flush(c)
            if events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR):
                if c.reading:
                    conn_readable(c)
                elif events[i].events & (EPOLLHUP | EPOLLERR):
                    client_close(&c.base, CLOSE_CLIENT)
    if r.committer != NULL:
        committer_poll(r.committer)
    timer_run(&r.engine.env.timers, r.engine.env.mono, TIMERS_A_TURN)
    until = r.engine.env.mono + TASKS_NS_A_TURN
    while task_run(&r.engine.env.tasks, TASKS_A_STEP) == TASKS_A_STEP and clock_ns(CLOCK_MONOTONIC) < until:
        pass
    flush_dirty(r)
    bury(r)
    engine_gc(r.engine)


cdef void reactor_run(Reactor* r) noexcept nogil:
    # The thread's body; returns when reactor_stop was called.
    cdef epoll_event events[EVENTS_MAX]
    cdef int n, wait
    env_lock(&r.engine.env)
    while not r.stopping:
        wait = wait_ms(r)
        env_unlock(&r.engine.env)
        n = epoll_wait(r.epoll, events, EVENTS_MAX, wait)
        env_lock(&r.engine.env)
        turn(r, events, n if n > 0 else 0)
    env_unlock(&r.engine.env)


cdef void reactor_wake(Reactor* r) noexcept nogil:
    cdef uint64_t one = 1
    write(r.wake, &one, 8)


cdef int reactor_init(Reactor* r, Engine* e) noexcept nogil:
    # 0 or -errno.
    cdef epoll_event ev
    memset(r, 0, sizeof(Reactor))
    r.engine = e
    r.listener.fd = -1
    timer_init(&r.listener.timer, listener_resume, r)
    r.epoll = epoll_create1(EPOLL_CLOEXEC)
    r.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if r.epoll < 0 or r.wake < 0:
        return -errno
    r.buffer = <uint8_t*>malloc(LEFT_MAX + READ_SIZE)
    if r.buffer == NULL:
        return -ENOMEM
    ev.events = EPOLLIN | EPOLLET   # each write wakes once; nobody need read it
    ev.data.ptr = &r.wake
    if epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.wake, &ev) != 0:
        return -errno
    r.auth_timeout = <int64_t>2 * 1000000000
    r.ping_interval = <int64_t>120 * 1000000000
    r.ping_max = 2
    r.write_deadline = <int64_t>10 * 1000000000
    read_clocks(e)
    return 0


cdef void reactor_free(Reactor* r) noexcept nogil:
    # After reactor_run returned: what is still connected is closed. The eventfd `wake` stays.
    while r.conns != NULL:
        client_close(&r.conns.base, CLOSE_SHUTDOWN)
        bury(r)
    close(r.epoll)
    free(r.buffer)
    u64map_free(&r.by_cid)
    bytes_free(&r.info_head)
    bytes_free(&r.info_tail)
    bytes_free(&r.info_connected)
