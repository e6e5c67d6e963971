# What a consumer hears from its stream: messages that came and went.

cdef inline Consumer* watcher_owner(Watcher* w) noexcept nogil:
    return <Consumer*>w.owner


cdef bint on_stored(Watcher* w, uint64_t seq) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if not undelivered(c, seq):
        return False
    c.num_pending += 1
    wake_delivery(c)
    return True


cdef void on_gone(Watcher* w, uint64_t seq, int reason) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    cdef uint32_t i
    if undelivered(c, seq):
        c.num_pending -= 1
        return
    if c.exhausted.n and u64map_del(&c.exhausted, seq):
        log_acked(c, seq)
    i = pending_find(&c.pending, seq)
    if i:
        pending_gone(c, i, b"Message deleted by stream limits" if reason == RM_LIMIT or reason == RM_AGE
                     else b"Unacknowledged message was deleted")
        wake_delivery(c)


cdef bint still_stored(Consumer* c, uint64_t seq) noexcept nogil:
    return store_next_seq(c.s.store, NULL, seq) == seq


cdef void count_pending(Consumer* c) noexcept nogil:
    cdef uint64_t i
    c.num_pending = 0
    for i in range(c.skip_at, c.n_skip):
        if still_stored(c, c.skip[i]):
            c.num_pending += 1
    c.num_pending += <int64_t>store_pending(c.s.store, NULL if c.filter.all else &c.filter,
                                            c.next if c.skip == NULL else c.resume)


cdef void drop_vanished(Consumer* c) noexcept nogil:
    # Forgets what waits for acks of messages that are not stored any more.
    cdef uint32_t i = c.pending.first, after, at = 0, cap
    cdef uint64_t seq
    while i:
        after = entry_at(&c.pending, i).next
        if not still_stored(c, entry_at(&c.pending, i).sseq):
            log_acked(c, entry_at(&c.pending, i).sseq)
            take_out(c, i)
        i = after
    while at < c.exhausted.cap:
        seq = c.exhausted.keys[at]
        if seq == 0 or still_stored(c, seq):
            at += 1
            continue
        cap = c.exhausted.cap
        log_acked(c, seq)
        u64map_del(&c.exhausted, seq)           # another key moves to this place, or all to another table
        if c.exhausted.cap != cap:
            at = 0
    ack_timer_set(c)


cdef void on_purged(Watcher* w) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    cdef StoreState state
    store_state(c.s.store, &state)
    if c.skip == NULL and c.next < state.first_seq:
        c.next = state.first_seq
    if c.resume < state.first_seq:
        c.resume = state.first_seq
    drop_vanished(c)
    count_pending(c)
    wake_delivery(c)


cdef bint on_asked(Watcher* w, uint64_t seq) noexcept nogil:
    # Whether this stored message, which matches, is still needed here.
    cdef Consumer* c = watcher_owner(w)
    cdef uint64_t deliveries
    return (undelivered(c, seq) or pending_find(&c.pending, seq) != 0
            or u64map_get(&c.exhausted, seq, &deliveries))
