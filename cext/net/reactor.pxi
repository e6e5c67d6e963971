# Reactors: each is one thread that waits for sockets and timers and works turn by turn. It reads without the engine lock, routes,
# runs timers and tasks with it, and writes and closes without it again. A connection stays with the reactor that it came to: what
# others do to it they leave in that reactor's worklist, and wake it if it sleeps.

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


cdef int receive(Reactor* r, epoll_event* events, int n, int at, List* rest) noexcept nogil:
    # Without the lock: reads for the events from `at` on, as many as fit into the buffer; returns where it stopped. After them
    # come the connections that are read without an event: no step has both, so none reads a connection twice.
    cdef Arrival* a
    cdef Conn* c
    cdef size_t used = 0
    r.n_arrivals = 0
    r.n_ahead = 0
    if at == n:
        while not list_empty(rest) and used < READ_SIZE and r.n_arrivals < EVENTS_MAX:
            c = <Conn*>list_owner(list_pop(rest), &(<Conn*>NULL).input.again)
            a = &r.arrivals[r.n_arrivals]
            a.head = &c.head
            a.events = EPOLLIN
            if not is_coming(c):
                used += conn_receive(c, a, r.buffer + used)
            elif not conn_approach(c, a):
                conn_read_again(c)
                continue
            r.n_arrivals += 1
        return at
    while at < n and used < READ_SIZE:
        a = &r.arrivals[r.n_arrivals]
        a.head = <Head*>events[at].data.ptr
        a.events = events[at].events
        at += 1
        if a.head.kind == HEAD_CONN:
            if not is_coming(<Conn*>a.head.owner):
                used += conn_receive(<Conn*>a.head.owner, a, r.buffer + used)
            elif not conn_approach(<Conn*>a.head.owner, a):
                continue
        if a.head.kind != HEAD_WAKE:    # waking is all that one is for
            r.n_arrivals += 1
    return at


cdef bint conn_approach(Conn* c, Arrival* a) noexcept nogil:
    # Goes on with what comes before its bytes; False: it must wait for the next turn, so that those which have no handshake to
    # make need not. Its event comes again.
    cdef Reactor* r = c.reactor
    cdef int64_t begun
    if r.coming_ns >= COMING_NS_A_TURN:
        return False
    begun = clock_ns(CLOCK_MONOTONIC)
    a.data = NULL
    a.got = -EAGAIN
    if c.rest.paused:
        if a.events & (EPOLLHUP | EPOLLERR):
            a.got = -ECONNRESET
        return True
    c.input.more = False
    a.got = c.transport.establish(c)
    if c.input.more:
        conn_read_again(c)
    r.coming_ns += clock_ns(CLOCK_MONOTONIC) - begun
    return True


cdef void settle(Reactor* r) noexcept nogil:
    # What came of writing: errors, deadlines, chunks to use again, connections that have ended.
    cdef Conn* c
    cdef Chunk* k
    while r.settling != NULL:
        c = r.settling
        r.settling = c.output.next_settling
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
    if r.net.committer != NULL:
        committer_hold(r.net.committer)
    for i in range(r.n_arrivals):
        a = &r.arrivals[i]
        if a.head.kind == HEAD_CONN:
            conn_arrived(<Conn*>a.head.owner, a)
        else:
            accept_ready(<Listener*>a.head.owner)
    if r.net.committer != NULL:
        committer_let(r.net.committer)


cdef void take_dirty(Reactor* r) noexcept nogil:
    # A connection that could not take everything is written to when it can again.
    cdef Client* c
    while not list_empty(&r.work.dirty):
        c = <Client*>list_owner(list_pop(&r.work.dirty), &(<Client*>NULL).dirty)
        if not c.closing and not (<Conn*>c).wants.writing:
            conn_flush_soon(<Conn*>c)


cdef void take_closing(Reactor* r) noexcept nogil:
    cdef Client* c
    while r.work.closing != NULL:
        c = r.work.closing
        r.work.closing = c.next_closing
        conn_finish(<Conn*>c)


cdef void write_out(Reactor* r) noexcept nogil:
    # Without the lock.
    cdef Conn* c
    while r.flushing != NULL:
        c = r.flushing
        r.flushing = c.output.next_flushing
        c.output.flushing = False
        if c.ending == NOT_ENDING:
            conn_flush(c)
    c = r.ending
    while c != NULL:
        conn_end(c)
        c = c.next_ending


cdef bint is_settled(const Reactor* r) noexcept nogil:
    return r.settling == NULL and r.ending == NULL and list_empty(&r.again) and r.n_written < WRITTEN_MAX


# ---- who is awake, and whom others wake

cdef int64_t reactor_due(Reactor* r) noexcept nogil:
    # When it has something to do that no socket tells it of; 0: at once.
    cdef Env* env = &r.engine.env
    if not list_empty(&r.work.dirty) or r.work.closing != NULL or not list_empty(&r.tasks):
        return 0
    if r != r.net.reactors:
        return timer_next(&r.timers)
    if not list_empty(&env.tasks):
        return 0
    return min(timer_next(&r.timers), timer_next(&env.timers))


cdef int sleep_ms(Reactor* r) noexcept nogil:
    # How long it may wait for sockets from now on, unless it is woken.
    cdef int64_t until = reactor_due(r), now = clock_ns(CLOCK_MONOTONIC)
    if until <= now:    # before anything is subtracted: a deadline may lie as far back as its type goes
        return 0
    r.sleeps_until = until
    if until == INT64_MAX:
        return 10000
    until -= now
    if until > <int64_t>10000 * 1000000:
        return 10000
    return <int>((until + 999999) // 1000000)


cdef uint64_t reactors_called(Net* net) noexcept nogil:
    # Under the engine lock, by a thread that may have made work: a bit for each reactor that would sleep over it. They are the
    # caller's to wake, once it has let go of the lock.
    cdef uint64_t called = 0
    cdef uint32_t i
    cdef Reactor* r
    for i in range(net.n_reactors):
        r = &net.reactors[i]
        if r.sleeps_until != 0 and reactor_due(r) < r.sleeps_until:
            r.sleeps_until = 0
            called |= <uint64_t>1 << i
    return called


cdef void reactors_wake(Net* net, uint64_t called) noexcept nogil:
    cdef uint64_t one = 1
    cdef uint32_t i = 0
    while called:
        if called & 1:
            write(net.reactors[i].wake, &one, 8)
        called >>= 1
        i += 1


# ---- turns

cdef void run_tasks(List* tasks, int64_t until) noexcept nogil:
    while task_run(tasks, TASKS_A_STEP) == TASKS_A_STEP and clock_ns(CLOCK_MONOTONIC) < until:
        pass


cdef void run_due(Reactor* r) noexcept nogil:
    # Timers, tasks, and acks of what is on disk. The engine's own are run by every reactor that has the lock anyway; what is
    # left over, and what is due while all sleep, is the first one's.
    cdef Env* env = &r.engine.env
    if r.net.committer != NULL:
        committer_poll(r.net.committer)
    timer_run(&r.timers, env.mono, TIMERS_A_TURN)
    timer_run(&env.timers, env.mono, TIMERS_A_TURN)
    run_tasks(&r.tasks, env.mono + TASKS_NS_A_TURN)
    run_tasks(&env.tasks, env.mono + TASKS_NS_A_TURN)


cdef int turn(Reactor* r, epoll_event* events, int n) noexcept nogil:
    # One turn, in as many steps as its input takes; returns how many ms the next one may be waited for, -1: there is to be none.
    # What an event may name is freed in the next turn at the earliest.
    cdef int at = 0, wait = 0
    cdef bint last = False
    cdef uint64_t called
    cdef List rest
    memset(&rest, 0, sizeof(List))
    list_take(&rest, &r.again)
    r.coming_ns = 0
    while not last:
        at = receive(r, events, n, at, &rest)
        last = at == n and list_empty(&rest)
        env_lock(&r.engine.env)
        r.sleeps_until = 0
        read_clocks(r.engine)
        settle(r)
        take_arrivals(r)
        if last:
            run_due(r)
        take_dirty(r)
        if last:
            take_closing(r)
            listeners_free(r)
            wait = -1 if r.net.stopping else sleep_ms(r)
        called = reactors_called(r.net)
        engine_gc(r.engine)
        env_unlock(&r.engine.env)
        reactors_wake(r.net, called)
        write_out(r)
    return wait if is_settled(r) else min(wait, 0)


cdef void reactor_run(Reactor* r) noexcept nogil:
    # The thread's body; returns when net_stop was called.
    cdef epoll_event[EVENTS_MAX] events
    cdef int n, wait = 0
    while wait >= 0:
        n = epoll_wait(r.epoll, events, EVENTS_MAX, wait)
        wait = turn(r, events, max(n, 0))


# ---- life

cdef int reactor_init(Reactor* r, Net* net) noexcept nogil:
    # 0 or -errno.
    cdef epoll_event ev
    r.net = net
    r.engine = net.engine
    r.epoll = epoll_create1(EPOLL_CLOEXEC)
    r.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if r.epoll < 0 or r.wake < 0:
        return -errno
    r.buffer = <uint8_t*>malloc(BUFFER_SIZE)
    r.ahead = <Ahead*>malloc(LOOK_AHEAD_MAX * sizeof(Ahead))
    if r.buffer == NULL or r.ahead == NULL:
        return -ENOMEM
    ev.events = EPOLLIN | EPOLLET   # each write wakes once; nobody need read it
    r.wake_head.kind = HEAD_WAKE
    ev.data.ptr = &r.wake_head
    return -errno if epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.wake, &ev) != 0 else 0


cdef int net_init(Net* net, Engine* e, uint32_t n_reactors) noexcept nogil:
    # 0 or -errno; what there is by then is net_free's and net_forget's.
    cdef uint32_t i
    cdef int kind, rc
    memset(net, 0, sizeof(Net))
    net.engine = e
    net.reactors = <Reactor*>calloc(n_reactors, sizeof(Reactor))
    if net.reactors == NULL:
        return -ENOMEM
    for i in range(n_reactors):
        net.reactors[i].epoll = net.reactors[i].wake = -1
    net.n_reactors = n_reactors
    for kind in range(KIND_HUB + 1):
        net.terms[kind].auth.timeout = <int64_t>2 * 1000000000
    net.websocket.auth.timeout = <int64_t>2 * 1000000000
    net.limits.ping_interval = <int64_t>120 * 1000000000
    net.limits.ping_max = 2
    net.limits.write_deadline = <int64_t>10 * 1000000000
    for i in range(n_reactors):
        rc = reactor_init(&net.reactors[i], net)
        if rc != 0:
            return rc
    read_clocks(e)
    return 0


cdef void terms_free(Terms* t) noexcept nogil:
    bytes_free(&t.info_head)
    bytes_free(&t.later_head)
    bytes_free(&t.info_tail)
    bytes_free(&t.info_middle)


cdef void net_stop(Net* net) noexcept nogil:
    # Every reactor_run returns.
    env_lock(&net.engine.env)
    net.stopping = True
    env_unlock(&net.engine.env)
    reactors_wake(net, UINT64_MAX >> (REACTORS_MAX - net.n_reactors))


cdef void net_free(Net* net) noexcept nogil:
    # After every reactor_run has returned: what is still connected is closed. What wakes reactors stays.
    cdef ListWalk conns = list_walk(&net.conns)
    cdef Reactor* r
    cdef Conn* c
    cdef uint32_t i
    cdef int kind
    c = conn_step(&conns)
    while c != NULL:
        client_close(&c.base, CLOSE_SHUTDOWN)
        c = conn_step(&conns)
    for i in range(net.n_reactors):
        r = &net.reactors[i]
        settle(r)
        take_closing(r)
        write_out(r)
        settle(r)
        while not list_empty(&r.listeners):
            listener_close(listener_at(list_first(&r.listeners)))
        listeners_free(r)
        if r.epoll >= 0:
            close(r.epoll)
        free(r.buffer)
        free(r.ahead)
        scratch_free(r)
        timers_free(&r.timers)
    u64map_free(&net.by_cid)
    for kind in range(KIND_HUB + 1):
        terms_free(&net.terms[kind])
    terms_free(&net.websocket)


cdef void net_forget(Net* net) noexcept nogil:
    # When nobody wakes a reactor any more.
    cdef uint32_t i
    for i in range(net.n_reactors):
        if net.reactors[i].wake >= 0:
            close(net.reactors[i].wake)
    free(net.reactors)
    net.reactors = NULL
    net.n_reactors = 0
