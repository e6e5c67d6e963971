# Input that rests: why it does, and what is kept of it meanwhile.

cdef bint keep_left(Conn* c, const uint8_t* p, size_t n, size_t cap) noexcept nogil:
    # Keeps p[0:n] (which may lie in c.input.left itself) in a buffer of at least cap bytes.
    cdef uint8_t* grown
    if cap < n:
        cap = n
    if c.input.left != NULL and p >= c.input.left and p <= c.input.left + c.input.cap_left:
        memmove(c.input.left, p, n)
        if c.input.cap_left < cap:
            grown = <uint8_t*>realloc(c.input.left, cap)
            if grown == NULL:
                return False
            c.input.left = grown
            c.input.cap_left = cap
    else:
        if c.input.cap_left < cap:
            free(c.input.left)
            c.input.cap_left = 0
            c.input.left = <uint8_t*>malloc(cap)
            if c.input.left == NULL:
                c.input.n_left = 0
                return False
            c.input.cap_left = cap
        memcpy(c.input.left, p, n)
    c.input.n_left = n
    return True


cdef void drop_left(Conn* c) noexcept nogil:
    free(c.input.left)
    c.input.left = NULL
    c.input.n_left = 0
    c.input.cap_left = 0


cdef void conn_stall(Conn* c) noexcept nogil:
    # A receiver is close to its limit: its sender pauses for a moment.
    if c.rest.stalls_left == 0:
        return
    c.rest.stalls_left -= 1
    c.rest.stalls += 1
    c.base.engine.stats.stalls += 1
    if timer_set(&c.reactor.timers, &c.rest.timer, c.base.engine.env.mono + STALL_NS) == 0:
        c.rest.stalled |= FOR_RECEIVER
        conn_events(c)


cdef void conn_rest(Conn* c) noexcept nogil:
    # Much waits for a receiver: there is more to send when it has taken some, or soon.
    cdef Net* net = c.reactor.net
    if conn_halted(c) or timer_set(&c.reactor.timers, &c.rest.timer, net.engine.env.mono + REST_NS) != 0:
        return
    c.rest.stalled |= FOR_ROOM
    list_push_front(&net.resting, &c.rest.node)
    conn_events(c)


cdef void rests_over(Net* net) noexcept nogil:
    # A receiver has room again: those who rest go on in their reactors' next turn.
    cdef Conn* c
    while not list_empty(&net.resting):
        c = <Conn*>list_owner(list_pop(&net.resting), &(<Conn*>NULL).rest.node)
        c.rest.stalled &= ~FOR_ROOM
        timer_cancel(&c.reactor.timers, &c.rest.timer)
        task_post(&c.reactor.tasks, &c.rest.resume)


cdef void forget_resting(Conn* c) noexcept nogil:
    if list_drop(&c.rest.node):
        c.rest.stalled &= ~FOR_ROOM


cdef void conn_unpause(Conn* c) noexcept nogil:
    # It is decided that the input may flow again; the reactor lets it, in its own thread.
    c.rest.paused = False
    task_post(&c.reactor.tasks, &c.rest.resume)


cdef void conn_answered(Conn* c, uint32_t n) noexcept nogil:
    # The control plane is done with n of its requests.
    c.base.asking -= min(n, c.base.asking)
    if c.rest.stalled & FOR_ANSWERS and c.base.asking <= (0 if c.rest.alone else c.base.engine.inbox.asking_max // 2):
        c.rest.alone = False
        c.rest.stalled &= ~FOR_ANSWERS
        task_post(&c.reactor.tasks, &c.rest.resume)
