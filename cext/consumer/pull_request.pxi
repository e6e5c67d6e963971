# A pull request comes: it is refused, or waits in the queue.

cdef enum:
    SWEEP_PAUSE = 1000000000            # between two sweeps of a full queue, ns


cdef bint ask_refused(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    # The limits of the consumer; True when a status was sent.
    cdef char text[80]
    cdef char duration[33]
    if a.heartbeat > 0 and (a.expires <= 0 or a.heartbeat > a.expires // 2):
        refuse(c, reply, b"400 Bad Request - heartbeat value too large")
    elif c.cfg.max_batch > 0 and a.batch > c.cfg.max_batch:
        refuse_number(c, reply, b"409 Exceeded MaxRequestBatch of ", c.cfg.max_batch)
    elif c.cfg.max_expires > 0 and a.expires > c.cfg.max_expires:
        duration[put_duration(<uint8_t*>duration, c.cfg.max_expires)] = 0
        snprintf(text, sizeof(text), b"409 Exceeded MaxRequestExpires of %s", duration)
        refuse(c, reply, text)
    elif c.cfg.max_bytes > 0 and a.max_bytes > c.cfg.max_bytes:
        refuse_number(c, reply, b"409 Exceeded MaxRequestMaxBytes of ", c.cfg.max_bytes)
    elif (a.min_pending or a.min_ack_pending) and c.cfg.priority_policy != PRIORITY_POLICY_OVERFLOW:
        refuse(c, reply, b"400 Bad Request - Not a Overflow Priority consumer")
    elif a.n_id and c.cfg.priority_policy != PRIORITY_POLICY_PINNED_CLIENT:
        refuse(c, reply, b"400 Bad Request - Not a Pinned Client Priority consumer")
    elif a.priority < 0 or a.priority > 9:
        refuse(c, reply, b"400 Bad Request - Priority must be between 0 and 9")
    else:
        return c.cfg.priority_policy != PRIORITY_POLICY_NONE and group_refused(c, a, reply)
    return True


cdef bint more_wanted(const Consumer* c, int64_t available) noexcept nogil:
    # Whether the requests that wait want more than that.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef const Pull* q = pull_step(&all)
    cdef int64_t wanted = 0
    while q != NULL and wanted <= available:
        wanted += min(max(q.batch, <int64_t>1), available + 1)
        q = pull_step(&all)
    return wanted > available


cdef bint nothing_to_wait_for(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    # A request that takes what there is, and cannot be served now.
    cdef int64_t available = max(<int64_t>0, c.num_pending) + c.pending.queue.n
    if not a.no_wait or (available == 0 and a.expires):
        return False
    if available == 0:
        refuse(c, reply, b"404 No Messages")
        return True
    if more_wanted(c, available):
        pulls_sweep(c)
        if more_wanted(c, available):
            refuse(c, reply, b"408 Requests Pending")
            return True
    return False


cdef bint queue_is_full(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    if <int64_t>c.pull.n < c.cfg.max_waiting:
        return False
    if c.env.mono - c.pull.swept >= SWEEP_PAUSE:
        c.pull.swept = c.env.mono
        pulls_sweep(c)
    if <int64_t>c.pull.n < c.cfg.max_waiting:
        return False
    if a.heartbeat == 0:
        refuse(c, reply, b"409 Exceeded MaxWaiting")
    return True


cdef Pull* pull_new(Consumer* c, Span reply) noexcept nogil:
    # In no queue yet. NULL: no memory
    cdef Pull* q = <Pull*>malloc(sizeof(Pull) + reply.n)
    if q == NULL:
        return NULL
    memset(q, 0, sizeof(Pull))
    q.c = c
    q.timer.fn = pull_due
    q.timer.owner = q
    q.last = c.env.mono
    if c.group != NULL:
        c.group.untold += 1
    q.n_reply = reply.n
    memcpy(q.reply, reply.p, reply.n)
    return q


cdef void pull_request(Consumer* c, Span reply, Span header, Span body) noexcept nogil:
    cdef PullAsk a
    cdef Pull* q
    cdef char wrong[WRONG_ROOM]
    cdef char text[WRONG_ROOM + 32]
    if is_push(c):
        refuse(c, reply, b"409 Consumer is push based")
        return
    if header.n and level_too_high(header):
        refuse(c, reply, b"412 Required Api Level")
        return
    if not read_ask(&a, body, wrong):
        snprintf(text, sizeof(text), b"400 Bad Request - %s", wrong)
        refuse(c, reply, text)
        return
    if ask_refused(c, &a, reply) or nothing_to_wait_for(c, &a, reply) or queue_is_full(c, &a, reply):
        return
    if c.paused and a.no_wait and a.expires == 0:
        refuse(c, reply, b"404 No Messages")
        return
    q = pull_new(c, reply)
    if q == NULL:
        refuse(c, reply, b"500 out of memory")
        return
    q.batch = a.batch
    q.bytes = a.max_bytes if a.max_bytes > 0 else 0
    q.has_bytes = a.max_bytes > 0
    q.no_wait = a.no_wait
    if a.expires:                               # less than none: over by now
        q.expires = c.env.mono + min(a.expires, FOREVER) if a.expires > 0 else 1
    q.heartbeat = min(a.heartbeat, FOREVER) if a.heartbeat > 0 else 0
    if c.cfg.priority_policy != PRIORITY_POLICY_NONE:
        pull_take_group(c, q, &a)
    pull_enqueue(c, q)
    c.pull.n += 1
    if q.no_wait:
        c.pull.n_no_wait += 1
    pull_arm(c, q)
    c.last_activity = c.env.mono
    wake_delivery(c)


cdef int pull_inbound(void* target, const Msg* m) noexcept nogil:
    if m.reply.n:
        pull_request(<Consumer*>target, m.reply, m.header, m.data)
    return 1
