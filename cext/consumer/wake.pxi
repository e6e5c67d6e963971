# Whether a consumer can deliver, and waking its delivery.

cdef enum:
    STUCK_AFTER = 5                     # s without a delivery


cdef inline bint is_push(const Consumer* c) noexcept nogil:
    return c.cfg.deliver_subject.n > 0


cdef inline bint has_taker(const Consumer* c) noexcept nogil:
    return c.push.bound if is_push(c) else c.pull.n > 0


cdef inline void wake_delivery(Consumer* c) noexcept nogil:
    if c.role == ROLE_LEADS and has_taker(c):
        task_post(&c.env.tasks, &c.deliver)


cdef inline bint stands_still(const Consumer* c) noexcept nogil:
    # Nothing that happens now could be remembered.
    return c.s.failed != 0 or c.s.halted != 0 or (c.group != NULL and c.group.refused)


cdef inline bint stalled(const Consumer* c) noexcept nogil:
    cdef int64_t n = c.pending.n
    if c.group != NULL:
        n += c.group.firsts
    return c.cfg.max_ack_pending > 0 and n >= c.cfg.max_ack_pending


cdef inline void stuck_note(Consumer* c) noexcept nogil:
    # Somebody waits, and gets nothing of what is there.
    if c.timers[TIMER_STUCK].pos == 0:
        timer_set(&c.env.timers, &c.timers[TIMER_STUCK], c.env.mono + STUCK_AFTER * <int64_t>SECOND)
