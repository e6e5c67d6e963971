# The reactor: one thread that waits for sockets and timers and does everything else under the engine
# lock, turn by turn: read and route, run timers and tasks, write, bury the closed.

cdef enum:
    EVENTS_MAX = 256
    TIMERS_A_TURN = 4096
    TASKS_A_STEP = 4
    TASKS_NS_A_TURN = 1000000

cdef int64_t clock_ns(int which) noexcept nogil:
    cdef timespec ts
    clock_gettime(which, &ts)
    return <int64_t>ts.tv_sec * 1000000000 + ts.tv_nsec


cdef void read_clocks(Engine* e) noexcept nogil:
    e.env.now = clock_ns(CLOCK_REALTIME)
    e.env.mono = clock_ns(CLOCK_MONOTONIC)


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
    cdef int64_t until, now = clock_ns(CLOCK_MONOTONIC)
    if r.engine.env.tasks.head != NULL or r.engine.dirty != NULL or r.engine.closing != NULL:
        return 0
    until = timer_next(&r.engine.env.timers)
    if until == INT64_MAX:
        return 10000
    if until <= now:    # before anything is subtracted: a deadline may lie as far back as its type goes
        return 0
    until -= now
    if until > <int64_t>10000 * 1000000:
        return 10000
    return <int>((until + 999999) // 1000000)


cdef void conn_event(Conn* c, uint32_t events) noexcept nogil:
    if c.connecting:
        conn_dialled(c)
        return
    if events & EPOLLOUT:
        conn_flush(c)
    if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        if c.reading:
            conn_readable(c)
        elif events & (EPOLLHUP | EPOLLERR):
            client_close(&c.base, CLOSE_CLIENT)


cdef void turn(Reactor* r, epoll_event* events, int n) noexcept nogil:
    # One turn, under the engine lock.
    cdef int i
    cdef Head* head
    cdef int64_t until
    read_clocks(r.engine)
    for i in range(n):
        head = <Head*>events[i].data.ptr
        if head.kind == HEAD_CONN:
            conn_event(<Conn*>head.owner, events[i].events)
        elif head.kind == HEAD_LISTENER:
            accept_ready(<Listener*>head.owner)
        # The third kind wakes, which is all it is for.
    if r.committer != NULL:
        committer_poll(r.committer)
    timer_run(&r.engine.env.timers, r.engine.env.mono, TIMERS_A_TURN)
    until = r.engine.env.mono + TASKS_NS_A_TURN
    while task_run(&r.engine.env.tasks, TASKS_A_STEP) == TASKS_A_STEP and clock_ns(CLOCK_MONOTONIC) < until:
        pass
    flush_dirty(r)
    bury(r)
    listeners_bury(r)
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
    cdef int kind
    memset(r, 0, sizeof(Reactor))
    r.engine = e
    r.epoll = epoll_create1(EPOLL_CLOEXEC)
    r.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if r.epoll < 0 or r.wake < 0:
        return -errno
    r.buffer = <uint8_t*>malloc(LEFT_MAX + READ_SIZE)
    if r.buffer == NULL:
        return -ENOMEM
    ev.events = EPOLLIN | EPOLLET   # each write wakes once; nobody need read it
    r.wake_head.kind = HEAD_WAKE
    ev.data.ptr = &r.wake_head
    if epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.wake, &ev) != 0:
        return -errno
    for kind in range(KIND_LEAF + 1):
        r.terms[kind].auth_timeout = <int64_t>2 * 1000000000
    r.ping_interval = <int64_t>120 * 1000000000
    r.ping_max = 2
    r.write_deadline = <int64_t>10 * 1000000000
    read_clocks(e)
    return 0


cdef void reactor_free(Reactor* r) noexcept nogil:
    # After reactor_run returned: what is still connected is closed. The eventfd `wake` stays.
    cdef int kind
    while r.conns != NULL:
        client_close(&r.conns.base, CLOSE_SHUTDOWN)
        bury(r)
    while r.listeners != NULL:
        listener_close(r.listeners)
    listeners_bury(r)
    close(r.epoll)
    free(r.buffer)
    u64map_free(&r.by_cid)
    for kind in range(KIND_LEAF + 1):
        bytes_free(&r.terms[kind].info_head)
        bytes_free(&r.terms[kind].info_tail)
        bytes_free(&r.terms[kind].info_connected)
