# What was not acked in time comes again, or is given up.

cdef enum:
    EXPIRE_TURN = 1024                  # messages a turn


cdef void exhaust(Consumer* c, uint32_t i) noexcept nogil:
    # Delivered as often as it may be: it is not waited for any more, but stays marked until a late ack.
    cdef Pending* e = entry_at(&c.pending, i)
    cdef uint64_t seq = e.sseq
    cdef uint32_t deliveries = e.deliveries
    if c.cfg.dead_subject.n:
        if dead_add(c, i, NULL, span(NULL, 0), span(NULL, 0)):
            advise(c, ADV_MAX_DELIVER, seq, 0, deliveries, 0, span(NULL, 0))
        else:
            start_waiting(c, i)                 # without memory: once more later
        return
    if c.group != NULL:
        if propose_given_up(c, i) < 0:
            start_waiting(c, i)                 # once more later
            return
    else:
        drop_pending(c, i)
        u64map_put(&c.exhausted, seq, deliveries)
        log_exhausted(c, seq)
    advise(c, ADV_MAX_DELIVER, seq, 0, deliveries, 0, span(NULL, 0))


cdef void requeue(Consumer* c, uint32_t i) noexcept nogil:
    cdef Pending* e = entry_at(&c.pending, i)
    if e.sseq <= c.upto.seq or dead_of(c, e.sseq) != NULL or e.place >= AT_PROPOSED:
        return
    if c.cfg.max_deliver > 0 and <int64_t>e.deliveries >= c.cfg.max_deliver:
        exhaust(c, i)
    elif e.place != AT_QUEUE:
        pending_unplace(&c.pending, i)
        pending_list_append(&c.pending, &c.pending.queue, i, AT_QUEUE)


cdef void requeue_all(Consumer* c) noexcept nogil:
    cdef uint32_t i = c.pending.first, after
    while i:
        after = entry_at(&c.pending, i).next
        requeue(c, i)
        i = after
    ack_timer_set(c)


cdef void ack_expired(Timer* t, int64_t now) noexcept nogil:
    # What expired together is redelivered by sequence; what is more than a turn takes comes in the next one.
    cdef Consumer* c = <Consumer*>t.owner
    cdef uint64_t seqs[EXPIRE_TURN]
    cdef uint32_t n = 0, k, i
    while n < EXPIRE_TURN:
        i = pending_due(&c.pending, now)
        if i == 0:
            break
        pending_unplace(&c.pending, i)
        seqs[n] = entry_at(&c.pending, i).sseq
        n += 1
    qsort(seqs, n, sizeof(uint64_t), compare_u64)
    for k in range(n):
        i = pending_find(&c.pending, seqs[k])
        if i:
            requeue(c, i)
    ack_timer_set(c)
    if c.timers[TIMER_ACK].pos and c.timers[TIMER_ACK].deadline <= now:
        timer_set(&c.env.timers, &c.timers[TIMER_ACK], now + 1)
    wake_delivery(c)
