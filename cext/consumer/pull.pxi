# Pull requests that wait: the queue in which they have their turns, and how they end.

cdef enum:
    FULL_PAUSE = 1000000                # between two looks whether a client has room again, ns


cdef inline Pull* pull_at(const ListNode* n) noexcept nogil:
    return <Pull*>list_owner(n, &(<Pull*>NULL).node)


cdef inline Pull* pull_step(ListWalk* all) noexcept nogil:
    return pull_at(list_step(all))


cdef inline Pull* pull_first(const Consumer* c) noexcept nogil:
    return pull_at(list_first(&c.pull.all))


cdef void pull_sort_in(Consumer* c, Pull* q) noexcept nogil:
    # Behind all that come first or are alike.
    cdef Pull* before = pull_at(list_last(&c.pull.all))
    while before != NULL and before.priority > q.priority:
        before = pull_at(list_prev(&c.pull.all, &before.node))
    list_insert(&before.node if before != NULL else list_head(&c.pull.all), &q.node)


cdef inline void pull_enqueue(Consumer* c, Pull* q) noexcept nogil:
    if c.cfg.priority_policy == PRIORITY_POLICY_PRIORITIZED:
        pull_sort_in(c, q)
    else:
        list_push_back(&c.pull.all, &q.node)


cdef void pull_remove(Consumer* c, Pull* q) noexcept nogil:
    list_remove(&q.node)
    timer_cancel(&c.env.timers, &q.timer)
    c.pull.n -= 1
    if q.no_wait:
        c.pull.n_no_wait -= 1
    if q.full:
        c.pull.n_full -= 1
    c.last_activity = c.env.mono
    if c.group != NULL:
        request_ends(c, q)
    q.ended = True
    if q.flights == 0:
        free(q)


cdef void pull_arm(Consumer* c, Pull* q) noexcept nogil:
    cdef int64_t due = INT64_MAX
    if q.expires:
        due = q.expires
    if q.heartbeat and q.last + q.heartbeat < due:
        due = q.last + q.heartbeat
    if due != INT64_MAX:
        timer_set(&c.env.timers, &q.timer, due)


cdef void pull_due(Timer* t, int64_t now) noexcept nogil:
    cdef Pull* q = <Pull*>t.owner
    cdef Consumer* c = q.c
    cdef bint idle = not task_queued(&c.deliver) and c.timers[TIMER_WAKE].pos == 0
    if q.expires and q.expires <= now:
        pull_status(c, q, b"408 Request Timeout")
        pull_remove(c, q)
    elif not (idle and ends_unserved(q)):
        if q.heartbeat and q.last + q.heartbeat <= now:
            send_heartbeat(c, span(q.reply, q.n_reply))
            q.last = now
        pull_arm(c, q)
    if idle and c.pull.n_no_wait:
        pulls_at_end(c)                         # also where max_ack_pending stops it: they had their chance


# A server is often faster than a client that pulls a million messages: such a request waits until what was sent is taken,
# instead of leading to the client's end as a slow consumer. Others are served meanwhile.

cdef inline void pull_fills(Consumer* c, Pull* q) noexcept nogil:
    # A message was sent to it.
    if c.env.out.full and not q.full:
        q.full = True
        c.pull.n_full += 1


cdef void pulls_wait_for_room(Consumer* c) noexcept nogil:
    timer_set(&c.env.timers, &c.timers[TIMER_WAKE], c.pull.full_until)


cdef bint all_are_full(Consumer* c) noexcept nogil:
    # Whether nobody of those who ask has room by now; then delivery is woken to look again.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    if c.env.mono >= c.pull.full_until:
        c.pull.full_until = c.env.mono + FULL_PAUSE
        while q != NULL:
            if q.full and not c.env.out.still_full(c.env.out.ctx, c.s.account, span(q.reply, q.n_reply)):
                q.full = False
                c.pull.n_full -= 1
            q = pull_step(&all)
    if c.pull.n_full < c.pull.n:
        return False
    pulls_wait_for_room(c)
    return True


cdef Pull* pull_for(Consumer* c, int64_t cost) noexcept nogil:
    # The request whose turn it is. One that has no room for the message ends here.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    while q != NULL:
        if q.expires and q.expires <= c.env.mono:
            pull_status(c, q, b"408 Request Timeout")
        elif q.full:
            q = pull_step(&all)
            continue
        elif q.has_bytes and cost > q.bytes:
            pull_status(c, q, b"409 Message Size Exceeds MaxBytes")
        else:
            return q
        pull_remove(c, q)
        q = pull_step(&all)
    return NULL


cdef void pull_served(Consumer* c, Pull* q, int64_t cost) noexcept nogil:
    # One message was taken: the request goes behind the others, or ends.
    q.batch -= 1
    q.delivered += 1
    q.last = c.env.mono
    if q.has_bytes:
        q.bytes -= cost
    if q.batch > 0 and not (q.has_bytes and q.bytes == 0):
        if list_last(&c.pull.all) != &q.node:
            list_remove(&q.node)
            pull_enqueue(c, q)
        return
    if q.has_bytes and q.bytes > 0:
        pull_status(c, q, b"409 Batch Completed")
    pull_remove(c, q)


cdef inline bint ends_unserved(const Pull* q) noexcept nogil:
    # Whether the request ends when there is nothing more for it now.
    return q.no_wait and (q.expires == 0 or q.delivered)


cdef void pulls_at_end(Consumer* c) noexcept nogil:
    # Nothing more to deliver now: requests that do not wait end. Of one whose messages wait for the group nats-server says how
    # much of it is left.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    while q != NULL:
        if ends_unserved(q):
            if q.flights:
                pull_status(c, q, b"408 Request Timeout")
            else:
                refuse(c, span(q.reply, q.n_reply), b"404 No Messages")
            pull_remove(c, q)
        q = pull_step(&all)


cdef void pulls_sweep(Consumer* c) noexcept nogil:
    # Ends the requests that expired and forgets those that nobody listens for.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    if c.pull.delivering:
        return
    while q != NULL:
        if q.expires and q.expires <= c.env.mono:
            pull_status(c, q, b"408 Request Timeout")
            pull_remove(c, q)
        elif not c.env.out.has_interest(c.env.out.ctx, c.s.account, span(q.reply, q.n_reply)):
            pull_remove(c, q)
        q = pull_step(&all)


cdef void pulls_end(Consumer* c, bint deleted) noexcept nogil:
    cdef Pull* q = pull_first(c)
    while q != NULL:
        if deleted:
            refuse(c, span(q.reply, q.n_reply), b"409 Consumer Deleted")
        else:
            pull_status(c, q, b"409 Server Shutdown")
        pull_remove(c, q)
        q = pull_first(c)


cdef void pulls_moved(Consumer* c) noexcept nogil:
    # The consumer is opened again, or another member of its group leads: who waits is to ask again. Those whom the group knows
    # of hear that of who leads next.
    cdef Pull* q = pull_first(c)
    while q != NULL:
        if c.group == NULL or not q.told or asked_add(c, span(q.reply, q.n_reply)) < 0:
            refuse(c, span(q.reply, q.n_reply), b"409 Leadership Change")
        pull_remove(c, q)
        q = pull_first(c)
