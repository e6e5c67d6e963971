# Consumers that nobody uses are removed after a time.

cdef enum:
    GONE_SLACK = 100 * 1000000          # pull consumers are removed this long after their threshold, ns


cdef int64_t gone_at(Consumer* c) noexcept nogil:
    # When it will have been inactive for too long, if nothing happens. What is not acked may still be, in its time.
    cdef int64_t since = c.last_activity
    if is_push(c):
        return since + c.cfg.inactive_threshold
    if c.pending.n:
        since = max(since, c.last_delivery + c.cfg.ack_wait)
    return since + c.cfg.inactive_threshold + GONE_SLACK


cdef void gone_arm(Consumer* c) noexcept nogil:
    if c.cfg.inactive_threshold <= 0 or c.role != ROLE_LEADS:
        timer_cancel(&c.env.timers, &c.timers[TIMER_GONE])
        return
    timer_set(&c.env.timers, &c.timers[TIMER_GONE], gone_at(c))


cdef void gone_due(Timer* t, int64_t now) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef Event e
    cdef int64_t due
    if c.pull.n:
        pulls_sweep(c)
        if c.pull.n:
            c.last_activity = now
    due = gone_at(c)
    if due > now:
        timer_set(&c.env.timers, t, due)
        return
    memset(&e, 0, sizeof(Event))
    e.kind = EV_CONSUMER_GONE
    e.account = c.s.account
    e.text[0] = c.s.cfg.name
    e.text[1] = c.cfg.name
    e.num[0] = c.serial
    c.env.out.event(c.env.out.ctx, &e)
    timer_set(&c.env.timers, t, now + max(c.cfg.inactive_threshold, <int64_t>SECOND))   # should nobody have listened
