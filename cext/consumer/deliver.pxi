# Delivery: what comes next, to whom, and what is remembered of it. It runs as a task, some messages a turn.

cdef enum:
    DELIVER_TURN = 256                  # messages a turn
    ANSWER_PAUSE = 1000000              # ns between two looks whether an answer has gone out


cdef enum Step:
    STEP_WAIT = 0                       # nothing to do until something happens
    STEP_ON = 1
    STEP_LATER = 2                      # in another turn


# ---- which message ---------------------------------------------------------------------------------------------


cdef int load_new(Consumer* c, Record* r) noexcept nogil:
    # The next message that was never delivered; 1: it is still looked for. At the end of what may be seen the consumer stands
    # behind it.
    cdef uint64_t seq
    cdef int rc
    while c.skip.seqs != NULL:
        if c.skip.at >= c.skip.n:
            skip_end(c)
            break
        c.next = c.skip.seqs[c.skip.at]
        if c.next > c.s.shown:
            return ST_NOT_FOUND
        rc = store_load_warm(c.s.store, c.next, r, &c.cold)
        if rc != ST_NOT_FOUND:
            return rc
        c.skip.at += 1
        if filter_is_loose(&c.filter):
            count_pending(c)        # the filter itself need not match it, so its removal was not told
    if c.next > c.s.shown:
        return ST_NOT_FOUND
    rc = store_next_some(c.s.store, filter_of(c), &c.next, &seq)
    if rc == 1:
        c.next = min(c.next, c.s.shown + 1)
        return rc
    if seq == 0 or seq > c.s.shown:
        c.next = c.s.shown + 1
        return ST_NOT_FOUND
    c.next = seq
    return store_load_warm(c.s.store, seq, r, &c.cold)


# ---- when ------------------------------------------------------------------------------------------------------

cdef void wake_fired(Timer* t, int64_t now) noexcept nogil:
    wake_delivery(<Consumer*>t.owner)


cdef bint replay_waits(Consumer* c, const Record* r) noexcept nogil:
    # Whether this message's time has not come yet, when messages are replayed as they were stored.
    cdef int64_t gap = r.ts - c.replay.ts
    if c.replay.ts and gap > 1000000 and c.env.mono < c.last_delivery + gap:
        timer_set(&c.env.timers, &c.timers[TIMER_WAKE], c.last_delivery + gap)
        return True
    return False


cdef inline int64_t rate_burst(const Consumer* c) noexcept nogil:
    return c.s.cfg.max_msg_size if c.s.cfg.max_msg_size > 0 else c.s.place.max_payload


cdef void rate_start(Consumer* c) noexcept nogil:
    # A burst is free.
    c.rate.tokens = <double>rate_burst(c)
    c.rate.at = c.env.mono


cdef bint rate_waits(Consumer* c, int64_t cost) noexcept nogil:
    cdef double rate = <double>c.cfg.rate_limit_bps / 8
    cdef int64_t burst = rate_burst(c)
    if cost > burst:
        return False
    c.rate.tokens = min(c.rate.tokens + rate * (c.env.mono - c.rate.at) / 1e9, <double>burst)
    c.rate.at = c.env.mono
    if c.rate.tokens < cost:
        timer_set(&c.env.timers, &c.timers[TIMER_WAKE], c.env.mono + 1 + <int64_t>((cost - c.rate.tokens) / rate * 1e9))
        return True
    c.rate.tokens -= cost
    return False


# ---- sending ----------------------------------------------------------------------------------------------------

cdef uint32_t put_ack_subject(Consumer* c, uint8_t* p, const Record* r, uint64_t dseq, uint32_t deliveries,
                              uint64_t pending) noexcept nogil:
    cdef uint32_t n = c.n_ack_prefix
    memcpy(p, c.ack_prefix, n)
    n += put_u64(p + n, deliveries)
    p[n] = c'.'
    n += 1
    n += put_u64(p + n, r.seq)
    p[n] = c'.'
    n += 1
    n += put_u64(p + n, dseq)
    p[n] = c'.'
    n += 1
    n += put_u64(p + n, <uint64_t>r.ts)
    p[n] = c'.'
    n += 1
    return n + put_u64(p + n, pending)


cdef int size_header(const Record* r, Bytes* b) noexcept nogil:
    # The stored headers with the size of the payload, which is not sent.
    if r.header.n > 2:
        if bytes_add(b, r.header.p, r.header.n - 2) < 0:
            return -1
    elif bytes_add(b, b"NATS/1.0\r\n", 10) < 0:
        return -1
    if add_text(b, b"Nats-Msg-Size: ") < 0 or add_u64(b, r.data.n) < 0:
        return -1
    return bytes_add(b, b"\r\n\r\n", 4)


cdef inline Pull* request_next(Consumer* c, int64_t cost) noexcept nogil:
    # The request whose turn it is; NULL: there is none.
    cdef Pull* q = pull_for(c, cost) if c.cfg.priority_policy <= PRIORITY_POLICY_PRIORITIZED else pull_in_group(c, cost)
    if q == NULL and c.pull.n_full:
        pulls_wait_for_room(c)
    return q


cdef inline int request_send(Consumer* c, const Pull* q, Msg* m) noexcept nogil:
    # To the one that pulls. As Outlet.send.
    m.dest = span(q.reply, q.n_reply)
    c.env.out.full = False
    return send_pinned(c, m) if c.cfg.priority_policy == PRIORITY_POLICY_PINNED_CLIENT else c.env.out.send(c.env.out.ctx, m)


cdef inline void push_send(Consumer* c, Msg* m, int64_t cost) noexcept nogil:
    m.dest = c.cfg.deliver_subject
    c.env.out.send(c.env.out.ctx, m)
    c.push.sent = c.env.mono
    flow_sent(c, cost)


cdef bint send_message(Consumer* c, Msg* m, int64_t cost) noexcept nogil:
    # To the deliver subject or the next request; False when nobody was there to take it.
    cdef Pull* q
    cdef int taken
    if is_push(c):
        push_send(c, m, cost)
        return True
    while True:
        q = request_next(c, cost)
        if q == NULL:
            return False
        c.pull.delivering = True
        taken = request_send(c, q, m)
        c.pull.delivering = False
        if taken < 0:
            return False
        if taken:
            pull_fills(c, q)
            pull_served(c, q, cost)
            return True
        pull_remove(c, q)


cdef int message_make(Consumer* c, const Record* r, uint64_t dseq, uint32_t deliveries, uint64_t pending, uint8_t* reply,
                      Bytes* header, Msg* m) noexcept nogil:
    # A message as it is delivered, but for where to. header: frees what it may need; valid as long. 0 | -1 no memory
    memset(m, 0, sizeof(Msg))
    memset(header, 0, sizeof(Bytes))
    m.account = c.s.account
    m.subject = r.subject
    m.header = r.header
    m.data = r.data
    m.reply = span(reply, put_ack_subject(c, reply, r, dseq, deliveries, pending))
    if c.cfg.flags & CONSUMER_HEADERS_ONLY:
        if size_header(r, header) < 0:
            bytes_free(header)
            return -1
        m.header = span(header.data, <uint32_t>header.n)
        m.data.n = 0
    return 0


cdef inline int64_t message_cost(const Msg* m) noexcept nogil:
    return <int64_t>m.subject.n + m.reply.n + m.header.n + m.data.n


cdef bint deliver_record(Consumer* c, const Record* r, uint32_t deliveries, uint64_t pending, int64_t* cost) noexcept nogil:
    cdef uint8_t reply[ACK_SUBJECT_ROOM]
    cdef Msg m
    cdef Bytes b
    cdef bint sent
    invariant(env_held(c.env) and c.role == ROLE_LEADS, "who leads delivers, under the engine lock")
    if message_make(c, r, c.dseq, deliveries, pending, reply, &b, &m) < 0:
        return False
    cost[0] = message_cost(&m)
    if c.cfg.rate_limit_bps and rate_waits(c, cost[0]):
        sent = False
    else:
        c.s.lent = True
        sent = send_message(c, &m, cost[0])
        c.s.lent = False
    bytes_free(&b)
    return sent


# ---- what is remembered ------------------------------------------------------------------------------------------

cdef void note_delivered(Consumer* c) noexcept nogil:
    c.dseq += 1
    c.delivered_ts = c.env.now
    c.last_delivery = c.env.mono
    c.last_activity = c.env.mono


cdef int deliver_new(Consumer* c) noexcept nogil:
    cdef Record r
    cdef uint64_t seq, dseq = c.dseq
    cdef int64_t ts, cost
    cdef uint32_t i
    cdef int rc = load_new(c, &r)
    if rc == 1:
        return STEP_LATER
    if rc == ST_NOT_FOUND:
        if c.pull.n_no_wait:
            pulls_at_end(c)
        return STEP_WAIT
    if rc == ST_DAMAGED and passes_on(c, r.seq):
        return STEP_WAIT
    if rc == ST_DAMAGED:
        log_damaged(c, r.seq)
        step_over(c, r.seq)
        return STEP_ON
    if rc != ST_OK:
        return STEP_WAIT
    if c.replay.on and replay_waits(c, &r):
        return STEP_WAIT
    if c.group != NULL:
        return depart_new(c, &r)
    seq = r.seq
    ts = r.ts
    if not deliver_record(c, &r, 1, <uint64_t>max(<int64_t>0, c.num_pending - 1), &cost):
        return STEP_WAIT
    step_over(c, seq)
    c.delivered_seq = seq
    note_delivered(c)
    if c.replay.on:
        c.replay.ts = ts
        c.replay.on = seq < c.replay.until
    log_delivered(c, seq, dseq, 1, c.env.now)
    if c.cfg.ack_policy == ACK_POLICY_NONE:
        c.floor_dseq = dseq
        c.floor_seq = seq
        if not stream_keeps_all(c.s):
            stream_release(c.s, seq)
        return STEP_ON
    i = pending_add(&c.pending, seq, dseq)
    if i:                                       # without memory it is as if its ack would never be asked for
        start_waiting(c, i)
    return STEP_ON


cdef int deliver_again(Consumer* c) noexcept nogil:
    cdef uint32_t i = c.pending.queue.head
    cdef Pending* e = entry_at(&c.pending, i)
    cdef Record r
    cdef uint64_t seq = e.sseq, dseq = c.dseq
    cdef uint32_t deliveries = e.deliveries + 1
    cdef int64_t cost
    cdef int rc
    if seq <= c.upto.seq and c.group != NULL:
        await_group(c, i, AT_ACKED)
        return STEP_ON
    if seq <= c.upto.seq:                       # it is about to be taken out
        take_out(c, i)
        log_acked(c, seq)
        let_go(c, seq)
        return STEP_ON
    if seq > c.s.shown:                         # this member of the stream's group does not have it yet
        return STEP_WAIT
    rc = store_load_warm(c.s.store, seq, &r, &c.cold)
    if rc == ST_DAMAGED and passes_on(c, seq):
        return STEP_WAIT
    if rc == ST_NOT_FOUND or rc == ST_DAMAGED:
        return STEP_ON if pending_gone(c, i) else STEP_WAIT
    if rc != ST_OK:
        return STEP_WAIT
    if c.group != NULL:
        return depart_again(c, &r, deliveries)
    if not deliver_record(c, &r, deliveries, <uint64_t>max(<int64_t>0, c.num_pending), &cost):
        return STEP_WAIT
    note_delivered(c)
    log_delivered(c, seq, dseq, deliveries, c.env.now)
    i = pending_find(&c.pending, seq)           # what was sent may have led to its ack already
    if i:
        e = entry_at(&c.pending, i)
        if e.deliveries == 1:
            c.n_redelivered += 1
        e.deliveries = deliveries
        start_waiting(c, i)
    return STEP_ON


cdef bint answer_waits(Consumer* c) noexcept nogil:
    # Whether the answer to the request that made the consumer is still to be sent.
    c.unanswered = c.answer_ticket > store_durable_ticket(c.s.store)
    if c.unanswered and c.answer_ticket != UINT64_MAX:
        timer_set(&c.env.timers, &c.timers[TIMER_WAKE], c.env.mono + ANSWER_PAUSE)
    return c.unanswered


cdef int deliver_step(Consumer* c) noexcept nogil:
    if c.paused or stands_still(c) or c.role != ROLE_LEADS or not has_taker(c):
        if (c.paused or stands_still(c)) and c.pull.n_no_wait:
            pulls_at_end(c)
        return STEP_WAIT
    if c.count.phase or c.count.failed or (c.unanswered and answer_waits(c)):
        return STEP_WAIT
    if c.group != NULL and c.group.resetting:
        return STEP_WAIT
    if c.flow.window and c.flow.unconfirmed + (c.group.bytes if c.group != NULL else 0) > c.flow.window:
        stuck_note(c)
        return STEP_WAIT
    if c.pull.n_full and all_are_full(c):
        return STEP_WAIT
    if c.pending.queue.head:
        return deliver_again(c)
    if stalled(c):
        if c.cfg.ack_policy == ACK_POLICY_FLOW_CONTROL and not c.flow.asking and c.upto.seq == 0:
            flow_ask(c)
        stuck_note(c)
        return STEP_WAIT
    return deliver_new(c)


cdef void deliver_run(Task* t) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef int i, step
    for i in range(DELIVER_TURN):
        step = deliver_step(c)
        if step == STEP_WAIT:
            if c.group != NULL and c.group.untold:
                requests_tell(c)
            return
        if step == STEP_LATER:
            break
    task_post(&c.env.tasks, t)
