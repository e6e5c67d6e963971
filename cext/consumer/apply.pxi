# What a consumer's Raft group agreed on changes its state, on each member alike, and as on members that are nats-servers: what
# they count as redelivered and not as pending is given up here. Entries that come again over a newer state lead back to it.

cdef void count_deliveries(Consumer* c, uint32_t i, uint64_t deliveries) noexcept nogil:
    # Of one that is pending: never fewer than before.
    cdef Pending* e = entry_at(&c.pending, i)
    if deliveries > e.deliveries:
        c.n_redelivered += e.deliveries == 1
        e.deliveries = <uint32_t>min(deliveries, <uint64_t>UINT32_MAX)


cdef int apply_given_up(Consumer* c, uint64_t sseq, uint64_t deliveries) noexcept nogil:
    # Delivered too often, or again after it was acked. The ack floor stays. 0 | -1 no memory
    cdef uint32_t i = pending_find(&c.pending, sseq)
    cdef uint64_t before = 0
    if i:
        deliveries = max(deliveries, <uint64_t>entry_at(&c.pending, i).deliveries)
        log_exhausted(c, sseq)
        drop_pending(c, i)
    u64map_get(&c.exhausted, sseq, &before)
    return u64map_put(&c.exhausted, sseq, max(before, deliveries))


cdef int apply_first_delivery(Consumer* c, uint64_t sseq, uint64_t dseq, uint32_t* at) noexcept nogil:
    # 0 | -1 no memory
    cdef uint32_t i = pending_add(&c.pending, sseq, dseq)
    cdef uint64_t deliveries
    if i and u64map_get(&c.exhausted, sseq, &deliveries):
        u64map_del(&c.exhausted, sseq)
        count_deliveries(c, i, deliveries)
    at[0] = i
    return 0 if i else -1


cdef int apply_delivered(Consumer* c, const ConsumerEntry* e) noexcept nogil:
    cdef bint new = e.sseq > c.delivered_seq
    cdef bint next = e.dseq >= c.dseq           # else it says of an earlier delivery from when on its ack is waited for
    cdef bint acked
    cdef uint32_t i
    if next and c.role == ROLE_LEADS:
        invariant(c.group.deliveries > 0, "a leader applies what it proposed")
        c.group.deliveries -= 1
        c.group.firsts -= new and c.cfg.ack_policy != ACK_POLICY_NONE
    if e.dseq <= c.floor_dseq:
        return 0
    c.dseq = max(c.dseq, e.dseq + 1)
    c.delivered_seq = max(c.delivered_seq, e.sseq)
    c.next = max(c.next, e.sseq + 1)
    c.delivered_ts = c.env.now
    if next:
        log_delivered(c, e.sseq, e.dseq, <uint32_t>min(e.deliveries, <uint64_t>UINT32_MAX), e.sent)
    if c.cfg.ack_policy == ACK_POLICY_NONE:
        c.floor_dseq = c.dseq - 1
        c.floor_seq = max(c.floor_seq, c.delivered_seq)
        return 0
    i = pending_find(&c.pending, e.sseq)
    if new and i == 0 and apply_first_delivery(c, e.sseq, e.dseq, &i) < 0:
        return -1
    if e.deliveries > 1 and (i == 0 or 0 < c.cfg.max_deliver < <int64_t>min(e.deliveries, <uint64_t>INT64_MAX)):
        return apply_given_up(c, e.sseq, e.deliveries)
    if i == 0:
        return 0
    count_deliveries(c, i, e.deliveries)
    acked = entry_at(&c.pending, i).place == AT_ACKED
    restore_deadline(c, i, e.sent)
    if acked:
        await_group(c, i, AT_ACKED)
    ack_timer_set(c)
    if not next:
        log_sent(c, e.sseq, e.sent)
    return 0


# ---- acks --------------------------------------------------------------------------------------------------------------

cdef void apply_acked_upto(Consumer* c, const ConsumerEntry* e) noexcept nogil:
    # This one, which is pending, and all before. What was given up goes with them where nats-server looks at each sequence, which
    # it does where what is pending is more.
    cdef uint64_t seq = e.sseq, left = sub_wrapped(e.sseq, c.floor_seq)
    cdef uint32_t i
    if left <= c.pending.n:
        while left and c.pending.n:
            i = pending_find(&c.pending, seq)
            if i:
                drop_pending(c, i)
            if i or u64map_del(&c.exhausted, seq):
                let_go(c, seq)
            seq -= 1
            left -= 1
    while c.pending.first and entry_at(&c.pending, c.pending.first).sseq <= e.sseq:
        seq = entry_at(&c.pending, c.pending.first).sseq
        drop_pending(c, c.pending.first)
        let_go(c, seq)
    c.floor_dseq = min(e.dseq, c.dseq - 1)
    c.floor_seq = e.sseq
    if c.upto.seq <= e.sseq:
        c.upto.seq = 0
    log_acked_upto(c, c.floor_seq, c.floor_dseq)


cdef void apply_acked_one(Consumer* c, const ConsumerEntry* e, uint32_t i) noexcept nogil:
    cdef uint64_t dseq = min(e.dseq, entry_at(&c.pending, i).dseq)
    cdef uint32_t after = entry_at(&c.pending, i).next
    drop_pending(c, i)
    if c.pending.n == 0:
        c.floor_dseq = c.dseq - 1
        c.floor_seq = c.delivered_seq
    elif dseq == c.floor_dseq + 1:
        c.floor_dseq = dseq
        c.floor_seq = e.sseq
        if after and c.dseq - 1 > dseq and entry_at(&c.pending, after).dseq:
            c.floor_dseq = entry_at(&c.pending, after).dseq - 1
            c.floor_seq = entry_at(&c.pending, after).sseq - 1
    log_acked(c, e.sseq)


cdef void apply_acked(Consumer* c, const ConsumerEntry* e) noexcept nogil:
    # The stream hears of each ack: whether the message leaves it, and by whose word, is said there.
    cdef uint32_t i = pending_find(&c.pending, e.sseq)
    c.last_activity = c.env.mono
    c.floor_ts = c.env.now
    if c.cfg.ack_policy != ACK_POLICY_NONE:
        if u64map_del(&c.exhausted, e.sseq):
            log_acked(c, e.sseq)
        if i and e.dseq > c.floor_dseq:
            if c.cfg.ack_policy == ACK_POLICY_EXPLICIT:
                apply_acked_one(c, e, i)
            else:
                apply_acked_upto(c, e)
    if not needs(c, e.sseq):
        let_go(c, e.sseq)
    ack_timer_set(c)


# ---- where it stands ---------------------------------------------------------------------------------------------------

cdef void apply_skipped(Consumer* c, uint64_t next) noexcept nogil:
    c.next = max(c.next, next)
    if next - 1 > c.delivered_seq:
        c.delivered_seq = next - 1
        if c.cfg.ack_policy == ACK_POLICY_NONE:
            c.floor_seq = c.delivered_seq
        log_passed(c)


cdef void apply_reset(Consumer* c, uint64_t next) noexcept nogil:
    stand_at(c, next, 0, next > c.s.entered + 1)
    c.delivered_ts = 0
    c.floor_ts = 0
    c.group.purged = 0
    log_reset(c)
    ack_timer_set(c)
    stream_settle(c.s, 0, True)
    if c.role == ROLE_LEADS:
        c.group.resetting = False
        count_pending(c)
        info_when_counted(c, c.group.before)


cdef int consumer_apply(Consumer* c, const ConsumerEntry* e) noexcept nogil:
    cdef int rc = 0
    c.fresh = False
    if c.role != ROLE_LEADS:
        c.role = ROLE_BEHIND
    else:
        c.group.applied += 1
    if e.op == OP_DELIVERED:
        rc = apply_delivered(c, e)
    elif e.op == OP_ACKED:
        apply_acked(c, e)
    elif e.op == OP_SKIP:
        apply_skipped(c, e.sseq)
    elif e.op == OP_RESET:
        apply_reset(c, e.sseq)
    elif c.role != ROLE_LEADS and e.op == OP_REQUEST:
        rc = asked_add(c, e.reply)
    elif c.role != ROLE_LEADS:
        asked_remove(c, e.reply)
    if c.role == ROLE_LEADS:
        if c.group.n:
            task_post(&c.env.tasks, &c.group.task)
        wake_delivery(c)
    return rc


# ---- snapshots ---------------------------------------------------------------------------------------------------------

cdef bint state_fits(Consumer* c) noexcept nogil:
    # What is pending lies between the floor and the last delivery.
    cdef PendingTable* t = &c.pending
    return (c.floor_dseq < c.dseq and c.floor_seq <= c.delivered_seq
            and (t.n == 0 or (entry_at(t, t.first).sseq > c.floor_seq and entry_at(t, t.last).sseq <= c.delivered_seq)))


cdef int consumer_restore(Consumer* c, Span state, bint installed) noexcept nogil:
    cdef Bytes before
    cdef Span head = span(state.p + 2, state.n - 2) if state.n > 2 else span(NULL, 0)
    cdef uint64_t floor_seq = 0, delivered = 0, skipped
    cdef int rc
    if not get_uv(&head, &skipped) or not get_uv(&head, &floor_seq) or not get_uv(&head, &delivered):
        return -2
    if c.role == ROLE_LEADS or (not installed and (delivered + 1 < c.dseq or floor_seq < c.floor_seq)):
        return 0
    memset(&before, 0, sizeof(Bytes))
    rc = consumer_encode_state(c, &before)
    if rc == 0:
        rc = consumer_decode_state(c, state)
        rc = -2 if rc == 0 and not state_fits(c) else rc
        if rc < 0:
            consumer_decode_state(c, span(before.data, <uint32_t>before.n))
        else:
            c.role = ROLE_BEHIND
            c.fresh = False
            c.group.purged = 0
            log_opened(c)
    bytes_free(&before)
    return rc


# ---- being a member ----------------------------------------------------------------------------------------------------

cdef int consumer_join(Consumer* c) noexcept nogil:
    c.group = <ConsumerGroup*>calloc(1, sizeof(ConsumerGroup))
    if c.group == NULL:
        return -1
    c.group.task.fn = flights_run
    c.group.task.owner = c
    c.group.cold.task = &c.group.task
    if c.fresh:
        count_stop(c)
        forget_state(c)
        stand_at(c, 1, 0, False)
    c.role = ROLE_BEHIND
    log_opened(c)
    return 0


cdef uint64_t behind_floor(Consumer* c) noexcept nogil:
    # The ack floor of the group is of what was acked: one that starts further on has its own.
    cdef uint64_t seq = c.floor_seq + 1
    if c.floor_dseq == 0 and c.exhausted.n == 0:
        seq = entry_at(&c.pending, c.pending.first).sseq if c.pending.n else c.delivered_seq + 1
    return max(seq, c.group.purged)


cdef int consumer_reset_group(Consumer* c, uint64_t seq, Span reply) noexcept nogil:
    seq = max(seq if seq else behind_floor(c), <uint64_t>1)
    if propose_position(c, OP_RESET, seq, reply) < 0:
        return -1
    c.group.resetting = True
    return 0
