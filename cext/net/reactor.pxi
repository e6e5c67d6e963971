# The reactor: one thread that waits for sockets and timers and works turn by turn. It reads without the engine lock, routes, runs
# timers and tasks with it, and writes and closes without it again.

cdef enum:
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


cdef int receive(Reactor* r, epoll_event* events, int n, int at) noexcept nogil:
    # Without the lock: reads for the events from `at` on, as many as fit into the buffer; returns where it stopped.
    cdef Arrival* a
    cdef size_t used = 0
    r.n_arrivals = 0
    while at < n and used < READ_SIZE:
        a = &r.arrivals[r.n_arrivals]
        a.head = <Head*>events[at].data.ptr
        a.events = events[at].events
        at += 1
        if a.head.kind == HEAD_CONN:
            used += conn_receive(<Conn*>a.head.owner, a, r.buffer + used)
        if a.head.kind != HEAD_WAKE:    # waking is all that one is for
            r.n_arrivals += 1
    return at


cdef void settle(Reactor* r) noexcept nogil:
    # What came of writing: errors, deadlines, chunks to use again, connections that have ended.
    cdef Conn* c
    cdef Chunk* k
    while r.settling != NULL:
        c = r.settling
        r.settling = c.next_settling
        conn_settle(c)
    while r.ending != NULL:
        c = r.ending
        r.ending = c.next_ending
        conn_free(c)
    while r.written != NULL:
        k = r.written
        r.written = k.next
        chunk_release(r.engine, k)
    r.n_written = 0


cdef void take_arrivals(Reactor* r) noexcept nogil:
    cdef uint32_t i
    cdef Arrival* a
    for i in range(r.n_arrivals):
        a = &r.arrivals[i]
        if a.head.kind == HEAD_CONN:
            conn_arrived(<Conn*>a.head.owner, a)
        else:
            accept_ready(<Listener*>a.head.owner)


cdef void take_dirty(Reactor* r) noexcept nogil:
    # A connection that could not take everything is written to when it can again.
    cdef Client* c
    while r.engine.dirty != NULL:
        c = r.engine.dirty
        r.engine.dirty = c.next_dirty
        c.dirty = False
        if not c.closing and not (<Conn*>c).writing:
            conn_flush_soon(<Conn*>c)


cdef void take_closing(Reactor* r) noexcept nogil:
    cdef Client* c
    while r.engine.closing != NULL:
        c = r.engine.closing
        r.engine.closing = c.next_closing
        conn_finish(<Conn*>c)


cdef void write_out(Reactor* r) noexcept nogil:
    # Without the lock.
    cdef Conn* c
    while r.flushing != NULL:
        c = r.flushing
        r.flushing = c.next_flushing
        c.flushing = False
        if not c.finished:
            conn_flush(c)
    c = r.ending
    while c != NULL:
        conn_end(c)
        c = c.next_ending


cdef bint is_settled(const Reactor* r) noexcept nogil:
    return r.settling == NULL and r.ending == NULL and r.n_written < WRITTEN_MAX


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


cdef void run_due(Reactor* r) noexcept nogil:
    # Timers, tasks, and acks of what is on disk.
    cdef Env* env = &r.engine.env
    cdef int64_t until
    if r.committer != NULL:
        committer_poll(r.committer)
    timer_run(&env.timers, env.mono, TIMERS_A_TURN)
    until = env.mono + TASKS_NS_A_TURN
    while task_run(&env.tasks, TASKS_A_STEP) == TASKS_A_STEP and clock_ns(CLOCK_MONOTONIC) < until:
        pass


cdef int turn(Reactor* r, epoll_event* events, int n) noexcept nogil:
    # One turn, in as many steps as its input takes; returns how many ms the next one may be waited for. What an event may name
    # is freed in the next turn at the earliest.
    cdef int at = 0, wait = 0
    cdef bint last = False
    while not last:
        at = receive(r, events, n, at)
        last = at == n
        env_lock(&r.engine.env)
        read_clocks(r.engine)
        settle(r)
        take_arrivals(r)
        if last:
            run_due(r)
        take_dirty(r)
        if last:
            take_closing(r)
            listeners_bury(r)
            wait = wait_ms(r)
        engine_gc(r.engine)
        env_unlock(&r.engine.env)
        write_out(r)
    return wait if is_settled(r) else 0


cdef void reactor_run(Reactor* r) noexcept nogil:
    # The thread's body; returns when reactor_stop was called.
    cdef epoll_event[EVENTS_MAX] events
    cdef int n, wait = 0
    while not r.stopping:
        n = epoll_wait(r.epoll, events, EVENTS_MAX, wait)
        wait = turn(r, events, max(n, 0))


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
    r.buffer = <uint8_t*>malloc(BUFFER_SIZE)
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
    settle(r)
    while r.conns != NULL:
        client_close(&r.conns.base, CLOSE_SHUTDOWN)
        take_closing(r)
        write_out(r)
        settle(r)
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
