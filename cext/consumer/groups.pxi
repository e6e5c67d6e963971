# Priority groups (ADR-42): which of the requests that wait may have the next message, where they are not all alike. A consumer
# has one pin, whatever its groups, and a group is no more than a name that requests must know: both as in nats-server.

cdef uint64_t PIN_OTHER = UINT64_MAX        # the pin of a request with the id of none that there is


# ---- what a request says -------------------------------------------------------------------------------------

cdef bint is_group(const Consumer* c, const PullAsk* a) noexcept nogil:
    cdef uint32_t i
    for i in range(c.cfg.n_priority_groups):
        if a.n_group > 0 and span_eq(c.cfg.priority_groups[i], span(a.group, <uint32_t>a.n_group)):
            return True
    return False


cdef uint64_t pin_named(const Consumer* c, const PullAsk* a) noexcept nogil:
    if a.n_id == 0:
        return 0
    return c.pin.number if c.pin.number and a.n_id == PIN_SIZE and memcmp(a.id, c.pin.id, PIN_SIZE) == 0 else PIN_OTHER


cdef bint group_refused(Consumer* c, const PullAsk* a, Span reply) noexcept nogil:
    # True when a status was sent. The pinned client keeps the pin by pulling.
    if not a.formal:
        return False
    if a.n_group == 0:
        refuse(c, reply, b"400 Bad Request - Priority Group missing")
    elif not is_group(c, a):
        refuse(c, reply, b"400 Bad Request - Invalid Priority Group")
    elif c.pin.number and pin_named(c, a) == PIN_OTHER:
        refuse(c, reply, b"423 Nats-Pin-Id mismatch")
    else:
        if c.pin.number and pin_named(c, a) == c.pin.number:
            pin_arm(c)
        return False
    return True


cdef void pull_take_group(Consumer* c, Pull* q, const PullAsk* a) noexcept nogil:
    q.min_pending = a.min_pending
    q.min_ack_pending = a.min_ack_pending
    q.priority = <uint8_t>a.priority if a.formal else 10    # behind all that name one
    q.pin = pin_named(c, a)
    if a.n_group > 0:
        q.n_group = <uint8_t>a.n_group
        memcpy(q.group, a.group, q.n_group)


# ---- the pin ---------------------------------------------------------------------------------------------------

cdef void advise_pin(Consumer* c, int kind, Span text) noexcept nogil:
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if (add_span(&b, span(c.pin.group, c.pin.n_group)) == 0 and add_text(&b, b" ") == 0
            and add_span(&b, text) == 0):
        advise(c, kind, 0, 0, 0, 0, span(b.data, <uint32_t>b.n))
    bytes_free(&b)


cdef void pin_arm(Consumer* c) noexcept nogil:
    timer_set(&c.env.timers, &c.timers[TIMER_PIN], c.env.mono + c.cfg.priority_timeout)


cdef void pin_take(Consumer* c, Pull* q) noexcept nogil:
    # From now on messages go to the sender of this request, who pulls with the id that they bring.
    c.pin.given += 1
    c.pin.number = c.pin.given
    c.pin.ts = c.env.now
    env_token(c.env, c.pin.id, PIN_SIZE)
    c.pin.n_group = q.n_group
    memcpy(c.pin.group, q.group, q.n_group)
    q.pin = c.pin.number
    pin_arm(c)
    advise_pin(c, ADV_PINNED, span(c.pin.id, PIN_SIZE))


cdef void pin_end(Consumer* c) noexcept nogil:
    c.pin.number = 0
    c.pin.ts = 0
    timer_cancel(&c.env.timers, &c.timers[TIMER_PIN])


cdef void unpin(Consumer* c) noexcept nogil:
    pin_end(c)
    wake_delivery(c)


cdef void pin_over(Timer* t, int64_t now) noexcept nogil:
    # It asked for nothing for too long.
    cdef Consumer* c = <Consumer*>t.owner
    if c.pin.number:
        advise_pin(c, ADV_UNPINNED, span_c(b"timeout"))
        unpin(c)


cdef int send_pinned(Consumer* c, Msg* m) noexcept nogil:
    # How many took it; with an empty id where the request has no group and nobody is pinned. -1 no memory
    cdef Span header = m.header
    cdef Bytes b
    cdef int rc = 0
    memset(&b, 0, sizeof(Bytes))
    rc = add_span(&b, span(header.p, header.n - 2)) if header.n > 2 else add_text(&b, b"NATS/1.0\r\n")
    if (rc == 0 and add_text(&b, b"Nats-Pin-Id: ") == 0 and add_span(&b, span(c.pin.id, PIN_SIZE if c.pin.number else 0)) == 0
            and add_text(&b, b"\r\n\r\n") == 0):
        m.header = span(b.data, <uint32_t>b.n)
        rc = c.env.out.send(c.env.out.ctx, m)
        m.header = header
    else:
        rc = -1
    bytes_free(&b)
    return rc


# ---- whose turn it is --------------------------------------------------------------------------------------------

cdef enum Turn:
    TURN_YES = 0
    TURN_LATER = 1                      # it stays, behind the others
    TURN_NEVER = 2                      # its pin is over


cdef bint heard(Consumer* c, const Pull* q) noexcept nogil:
    return c.env.out.has_interest(c.env.out.ctx, c.s.account, span(q.reply, q.n_reply))


cdef int turn_of_pinned(Consumer* c, const Pull* q) noexcept nogil:
    if c.pin.number == 0:
        return TURN_NEVER if q.pin else TURN_YES
    if q.pin == c.pin.number:
        return TURN_YES
    return TURN_NEVER if q.pin else TURN_LATER


cdef int turn_of_overflow(const Consumer* c, const Pull* q) noexcept nogil:
    # What is redelivered is pending once more.
    cdef int64_t pending = c.num_pending + (c.pending.queue.head != 0)
    if q.min_pending <= 0 and q.min_ack_pending <= 0:
        return TURN_YES
    if 0 < q.min_pending <= pending or 0 < q.min_ack_pending <= <int64_t>c.pending.n:
        return TURN_YES
    return TURN_LATER


cdef Pull* pull_in_group(Consumer* c, int64_t cost) noexcept nogil:
    # As pull_for, of consumers where not every request may have the next message.
    cdef ListWalk all = list_walk(&c.pull.all)
    cdef Pull* q = pull_step(&all)
    cdef uint32_t left = c.pull.n            # those that go behind the others are not looked at again
    cdef bint anew
    cdef int turn
    while left and q != NULL:
        left -= 1
        turn = turn_of_pinned(c, q) if c.cfg.priority_policy == PRIORITY_POLICY_PINNED_CLIENT else turn_of_overflow(c, q)
        if q.expires and q.expires <= c.env.mono:
            pull_status(c, q, b"408 Request Timeout")
        elif q.full:
            q = pull_step(&all)
            continue
        elif turn == TURN_LATER:
            if all.ahead != NULL:
                list_remove(&q.node)
                list_push_back(&c.pull.all, &q.node)
            q = pull_step(&all)
            continue
        elif turn == TURN_NEVER:
            pull_status(c, q, b"423 Nats-Wrong-Pin-Id")
        elif heard(c, q):
            anew = c.pin.number == 0 and c.cfg.priority_policy == PRIORITY_POLICY_PINNED_CLIENT and q.n_group > 0
            if anew:
                pin_take(c, q)
            if not q.has_bytes or cost <= q.bytes:
                return q
            pull_status(c, q, b"409 Message Size Exceeds MaxBytes")
            if anew:
                pin_end(c)
        pull_remove(c, q)
        q = pull_step(&all)
    if c.pull.n_full:
        return NULL
    if c.pull.n_no_wait:
        pulls_at_end(c)
    stuck_note(c)
    return NULL


# ---- update --------------------------------------------------------------------------------------------------------

cdef void groups_changed(Consumer* c) noexcept nogil:
    # The configuration is another one: requests that wait follow it.
    cdef List waiting
    cdef Pull* q
    if c.cfg.priority_policy != PRIORITY_POLICY_PINNED_CLIENT:
        pin_end(c)
    if c.cfg.priority_policy != PRIORITY_POLICY_PRIORITIZED:
        return
    memset(&waiting, 0, sizeof(List))
    list_take(&waiting, &c.pull.all)
    q = pull_at(list_pop(&waiting))
    while q != NULL:
        pull_sort_in(c, q)
        q = pull_at(list_pop(&waiting))
