# Input that rests: why it does, and what is kept of it meanwhile.

cdef bint keep_left(Conn* c, const uint8_t* p, size_t n, size_t cap) noexcept nogil:
    # Keeps p[0:n] (which may lie in c.left itself) in a buffer of at least cap bytes.
    cdef uint8_t* grown
    if cap < n:
        cap = n
    if c.left != NULL and p >= c.left and p <= c.left + c.cap_left:
        memmove(c.left, p, n)
        if c.cap_left < cap:
            grown = <uint8_t*>realloc(c.left, cap)
            if grown == NULL:
                return False
            c.left = grown
            c.cap_left = cap
    else:
        if c.cap_left < cap:
            free(c.left)
            c.cap_left = 0
            c.left = <uint8_t*>malloc(cap)
            if c.left == NULL:
                c.n_left = 0
                return False
            c.cap_left = cap
        memcpy(c.left, p, n)
    c.n_left = n
    return True


cdef void drop_left(Conn* c) noexcept nogil:
    free(c.left)
    c.left = NULL
    c.n_left = 0
    c.cap_left = 0


cdef void conn_stall(Conn* c) noexcept nogil:
    # A receiver is close to its limit: whoever feeds it pauses for a moment.
    if c.stalls_left == 0:
        return
    c.stalls_left -= 1
    c.stalls += 1
    c.base.engine.stats.stalls += 1
    if timer_set(&c.reactor.timers, &c.stall_timer, c.base.engine.env.mono + STALL_NS) == 0:
        c.stalled |= FOR_RECEIVER
        conn_events(c)


cdef void conn_rest(Conn* c) noexcept nogil:
    # Much waits for a receiver: there is more to send when it has taken some, or soon.
    cdef Net* net = c.reactor.net
    if conn_halted(c) or timer_set(&c.reactor.timers, &c.stall_timer, net.engine.env.mono + REST_NS) != 0:
        return
    c.stalled |= FOR_ROOM
    c.next_resting = net.resting
    net.resting = c
    conn_events(c)


cdef void rests_over(Net* net) noexcept nogil:
    # A receiver has room again: those who rest go on in their reactors' next turn.
    cdef Conn* c
    while net.resting != NULL:
        c = net.resting
        net.resting = c.next_resting
        c.stalled &= ~FOR_ROOM
        timer_cancel(&c.reactor.timers, &c.stall_timer)
        task_post(&c.reactor.tasks, &c.resume)


cdef void forget_resting(Conn* c) noexcept nogil:
    cdef Conn** at = &c.reactor.net.resting
    if not c.stalled & FOR_ROOM:
        return
    while at[0] != c:
        at = &at[0].next_resting
    at[0] = c.next_resting
    c.stalled &= ~FOR_ROOM


cdef void conn_unpause(Conn* c) noexcept nogil:
    # Whoever decided that the input may flow again; the reactor lets it, in its own thread.
    c.paused = False
    task_post(&c.reactor.tasks, &c.resume)


cdef void conn_answered(Conn* c, uint32_t n) noexcept nogil:
    # The control plane is done with n of its requests.
    c.base.asking -= min(n, c.base.asking)
    if c.stalled & FOR_ANSWERS and c.base.asking <= (0 if c.alone else c.base.engine.inbox.asking_max // 2):
        c.alone = False
        c.stalled &= ~FOR_ANSWERS
        task_post(&c.reactor.tasks, &c.resume)
