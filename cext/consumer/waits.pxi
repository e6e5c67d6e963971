# Until when an ack may come, and a change of that time, `ack_wait` or `backoff`: what is delivered and not acked is due as
# much earlier or later. With a backoff that depends on how often each message was delivered, so each is looked at, in pieces.
# Until its turn comes a message is due when it was before.

# ---- when a message is due -------------------------------------------------------------------------------------------

cdef enum:
    ACK_WAIT_LEAST = 1000000            # ns: with less, a message would be redelivered without a pause


cdef inline int64_t wait_by(const ConsumerConfig* cfg, uint32_t deliveries) noexcept nogil:
    # How long a message that was delivered this often may stay without an ack.
    cdef uint32_t i
    if cfg.n_backoff == 0:
        return max(cfg.ack_wait, <int64_t>ACK_WAIT_LEAST)
    i = deliveries - 1 if deliveries else 0
    return max(cfg.backoff[min(i, cfg.n_backoff - 1)], <int64_t>ACK_WAIT_LEAST)


cdef inline int64_t wait_of(const Consumer* c, uint32_t deliveries) noexcept nogil:
    return wait_by(&c.cfg, deliveries)


cdef int64_t wall_time(const Consumer* c, int64_t mono) noexcept nogil:
    return c.env.now + (mono - c.env.mono)


cdef void ack_timer_set(Consumer* c) noexcept nogil:
    cdef int64_t deadline = pending_deadline(&c.pending) if c.role == ROLE_LEADS else INT64_MAX
    if deadline == INT64_MAX:
        timer_cancel(&c.env.timers, &c.timers[TIMER_ACK])
    elif c.timers[TIMER_ACK].pos == 0 or deadline < c.timers[TIMER_ACK].deadline:
        timer_set(&c.env.timers, &c.timers[TIMER_ACK], deadline)


cdef void start_waiting(Consumer* c, uint32_t i) noexcept nogil:
    # The time in which the ack must come starts now.
    cdef Pending* e = entry_at(&c.pending, i)
    cdef int64_t deadline = c.env.mono + wait_of(c, e.deliveries)
    e.sent = c.env.mono
    pending_schedule(&c.pending, i, deadline, c.cfg.n_backoff == 0)
    if c.timers[TIMER_ACK].pos == 0 or deadline < c.timers[TIMER_ACK].deadline:
        timer_set(&c.env.timers, &c.timers[TIMER_ACK], deadline)


# ---- a change --------------------------------------------------------------------------------------------------------

cdef enum:
    MOVE_TURN = 2000                # messages that are looked at without letting the lock go


cdef bint same_waits(const ConsumerConfig* a, const ConsumerConfig* b) noexcept nogil:
    cdef uint32_t i
    if a.n_backoff != b.n_backoff or (a.n_backoff == 0 and a.ack_wait != b.ack_wait):
        return False
    for i in range(a.n_backoff):
        if a.backoff[i] != b.backoff[i]:
            return False
    return True


cdef void move_piece(Consumer* c, const ConsumerConfig* before, uint32_t most) noexcept nogil:
    # By as much as the time for an ack got longer or shorter: what was asked to come later still does.
    cdef PendingTable* t = &c.pending
    cdef int64_t longer
    cdef uint32_t i
    cdef Pending* e
    while t.moved and most:
        most -= 1
        i = t.moved
        e = entry_at(t, i)
        t.moved = e.next
        if e.change == t.change:
            continue                # its time began since
        longer = wait_of(c, e.deliveries) - wait_by(before, e.deliveries)
        if longer != 0 and (e.place == AT_TIMED or e.place == AT_HEAP):
            pending_schedule(t, i, deadline_of(t, e) + longer, c.cfg.n_backoff == 0)
    ack_timer_set(c)


cdef void deadlines_shift(PendingTable* t, int64_t longer) noexcept nogil:
    # All of them, whose order stays.
    cdef uint32_t i = t.first
    t.later += longer
    if -FOREVER <= t.later <= FOREVER:
        return
    while i:                            # changes there and back by way of backoffs have added up
        entry_at(t, i).deadline += t.later
        i = entry_at(t, i).next
    t.later = 0


cdef void deadlines_move(Consumer* c, const ConsumerConfig* before, uint8_t* texts) noexcept nogil:
    # The configuration was `before` until now; its texts are freed when they are of no more use.
    if same_waits(&c.cfg, before):
        free(texts)
        return
    if c.cfg.n_backoff == 0 and before.n_backoff == 0:
        deadlines_shift(&c.pending, wait_of(c, 1) - wait_by(before, 1))
        ack_timer_set(c)
        free(texts)
        return
    c.pending.change += 1
    c.pending.moved = c.pending.first
    move_piece(c, before, MOVE_TURN)
    c.waits = <OldWaits*>malloc(sizeof(OldWaits)) if c.pending.moved else NULL
    if c.waits == NULL:
        move_piece(c, before, UINT32_MAX)
        free(texts)
        return
    c.waits.cfg = before[0]
    c.waits.texts = texts
    task_post(&c.env.tasks, &c.move)


cdef void move_turn(Task* t) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    move_piece(c, &c.waits.cfg, MOVE_TURN)
    if c.pending.moved:
        task_post(&c.env.tasks, t)
    else:
        deadlines_forget(c)


cdef void deadlines_finish(Consumer* c) noexcept nogil:
    # At once, before they are written, or move again.
    if c.waits != NULL:
        move_piece(c, &c.waits.cfg, UINT32_MAX)
        deadlines_forget(c)


cdef void deadlines_forget(Consumer* c) noexcept nogil:
    task_cancel(&c.move)
    if c.waits != NULL:
        free(c.waits.texts)
        free(c.waits)
    c.waits = NULL
    c.pending.moved = 0
