# Acks: their subjects, their bodies, and what they change.

cdef enum:
    ACK_TURN = 500              # messages that one ack takes out in a turn
    NAK_DELAY_LEAST = 10000000  # ns that a delay asked for takes, as in nats-server: an ack may still come before


# ---- effects: each returns whether a double ack is answered ------------------------------------------------------

cdef void ack_metric(Consumer* c, const Pending* e, const AckTokens* t) noexcept nogil:
    if c.cfg.sample_percent and (c.cfg.sample_percent >= 100 or env_random(c.env) % 100 < c.cfg.sample_percent):
        advise(c, ADV_ACK_METRIC, t.sseq, t.dseq, t.deliveries, c.env.mono - e.sent, span(NULL, 0))


cdef void ack_late(Consumer* c, uint64_t sseq) noexcept nogil:
    # Of a message that was given up.
    cdef uint64_t deliveries
    if c.group != NULL:
        if u64map_get(&c.exhausted, sseq, &deliveries):
            propose_acked(c, c.floor_dseq, sseq)
    elif u64map_del(&c.exhausted, sseq):
        log_acked(c, sseq)
        let_go(c, sseq)


cdef void ack_explicit(Consumer* c, const AckTokens* t, bint metric) noexcept nogil:
    cdef uint32_t i = pending_find(&c.pending, t.sseq)
    if i == 0:
        ack_late(c, t.sseq)
        return
    if entry_at(&c.pending, i).place == AT_ACKED:
        return
    if metric:
        ack_metric(c, entry_at(&c.pending, i), t)
    if c.group != NULL:
        propose_done(c, i)
        return
    take_out(c, i)
    log_acked(c, t.sseq)
    let_go(c, t.sseq)


cdef void ack_late_upto(Consumer* c, uint64_t sseq) noexcept nogil:
    # Of all that were given up to here.
    cdef uint64_t i
    cdef Bytes seqs
    memset(&seqs, 0, sizeof(Bytes))
    for i in range(exhausted_in(c, 1, sseq, &seqs)):
        ack_late(c, (<uint64_t*>seqs.data)[i])
    bytes_free(&seqs)


cdef void ack_upto(Consumer* c, const AckTokens* t) noexcept nogil:
    # Ack policy all: this one and everything before.
    if c.exhausted.n:
        ack_late_upto(c, t.sseq)
    if t.sseq <= max(c.floor_seq, c.upto.seq):
        return
    if c.group != NULL:
        propose_acked_upto(c, t.sseq)
        return
    c.upto.seq = t.sseq
    c.upto.dseq = t.dseq
    ack_piece(c)


cdef void ack_piece(Consumer* c) noexcept nogil:
    # Each piece is an ack of all up to its last message: whatever comes between two of them finds the consumer as after that.
    cdef uint32_t left = ACK_TURN, i
    cdef uint64_t sseq = c.upto.seq, dseq = c.upto.dseq
    while c.pending.first and entry_at(&c.pending, c.pending.first).sseq <= c.upto.seq:
        if left == 0:
            break
        left -= 1
        i = c.pending.first
        sseq = entry_at(&c.pending, i).sseq
        dseq = entry_at(&c.pending, i).dseq
        drop_pending(c, i)
        let_go(c, sseq)
    else:
        sseq = c.upto.seq
        dseq = c.upto.dseq
        c.upto.seq = 0
    c.floor_seq = max(c.floor_seq, sseq)
    if dseq < c.dseq:
        c.floor_dseq = max(c.floor_dseq, dseq)
    c.floor_ts = c.env.now
    log_acked_upto(c, c.floor_seq, c.floor_dseq)
    waiting_acks_answer(c)
    if c.upto.seq:
        task_post(&c.env.tasks, &c.upto.task)


cdef void ack_turn(Task* t) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    if c.upto.seq and not stands_still(c):
        ack_piece(c)
        wake_delivery(c)


cdef bint acks_left(Consumer* c) noexcept nogil:
    # Takes out a piece, if there is one that can be; whether there is more.
    if c.upto.seq and c.role == ROLE_LEADS and c.group == NULL and not stands_still(c):
        ack_piece(c)
        return c.upto.seq != 0
    return False


cdef void acks_finish(Consumer* c) noexcept nogil:
    # At once, before its state is written or it serves no more.
    while acks_left(c):
        pass


cdef inline WaitingAck* waiting_ack_at(const ListNode* n) noexcept nogil:
    return <WaitingAck*>list_owner(n, &(<WaitingAck*>NULL).node)


cdef void waiting_acks_answer(Consumer* c) noexcept nogil:
    # Double acks of what is out by now.
    cdef WaitingAck* h = waiting_ack_at(list_first(&c.upto.waiting))
    while h != NULL and h.seq <= c.floor_seq:
        list_remove(&h.node)
        stream_answer(c.s, change_ticket(c), span(h.reply, h.n_reply))
        free(h)
        h = waiting_ack_at(list_first(&c.upto.waiting))


cdef void waiting_acks_free(Consumer* c) noexcept nogil:
    cdef WaitingAck* h = waiting_ack_at(list_pop(&c.upto.waiting))
    while h != NULL:
        free(h)
        h = waiting_ack_at(list_pop(&c.upto.waiting))


cdef void answer_ack(Consumer* c, uint64_t sseq, Span reply) noexcept nogil:
    cdef WaitingAck* h = NULL
    cdef const WaitingAck* last = waiting_ack_at(list_last(&c.upto.waiting))
    if c.group != NULL:
        answer_later(c, reply)
        return
    if c.upto.seq and sseq > c.floor_seq:
        h = <WaitingAck*>calloc(1, sizeof(WaitingAck) + reply.n)
        if h == NULL:
            acks_finish(c)
    if h == NULL:
        stream_answer(c.s, change_ticket(c), reply)
        return
    h.seq = sseq if last == NULL else max(sseq, last.seq)
    h.n_reply = reply.n
    memcpy(h.reply, reply.p, reply.n)
    list_push_back(&c.upto.waiting, &h.node)


cdef bint do_ack(Consumer* c, const AckTokens* t, bint metric) noexcept nogil:
    # False for a message that was never delivered.
    if t.sseq and undelivered(c, t.sseq):
        return False
    if c.cfg.ack_policy == ACK_POLICY_ALL:
        ack_upto(c, t)
    else:
        ack_explicit(c, t, metric)
    c.floor_ts = c.env.now
    return True


cdef void do_nak(Consumer* c, const AckTokens* t, Span arg) noexcept nogil:
    cdef uint32_t i = pending_find(&c.pending, t.sseq)
    cdef int64_t delay = 0
    if (i == 0 or t.dseq <= c.floor_dseq or t.dseq > c.dseq or t.sseq <= c.upto.seq
            or entry_at(&c.pending, i).place >= AT_PROPOSED):
        return
    advise(c, ADV_NAK, t.sseq, t.dseq, t.deliveries, 0, span(NULL, 0))
    if read_delay(arg, &delay):
        delay = min(max(delay, <int64_t>NAK_DELAY_LEAST), FOREVER)
        if c.group != NULL:
            propose_deadline(c, i, c.env.now + delay)
            return
        pending_schedule(&c.pending, i, c.env.mono + delay, False)
        log_deadline(c, t.sseq, c.env.now + delay)
        ack_timer_set(c)
    else:
        requeue(c, i)
        log_deadline(c, t.sseq, c.env.now)      # where it still waits


cdef void do_progress(Consumer* c, const AckTokens* t) noexcept nogil:
    # What is already to be redelivered still is.
    cdef uint32_t i = pending_find(&c.pending, t.sseq)
    if i == 0 or t.sseq <= c.upto.seq or entry_at(&c.pending, i).place >= AT_QUEUE:
        return
    if c.group != NULL:
        propose_deadline(c, i, c.env.now + wait_of(c, entry_at(&c.pending, i).deliveries))
    else:
        start_waiting(c, i)
        log_deadline(c, t.sseq, c.env.now + wait_of(c, entry_at(&c.pending, i).deliveries))


cdef bint do_term(Consumer* c, const AckTokens* t, Span reason, Span reply) noexcept nogil:
    # One that becomes a dead letter is answered when that is stored.
    cdef uint32_t i = pending_find(&c.pending, t.sseq) if c.cfg.dead_subject.n else 0
    if i and dead_add(c, i, t, reason, reply):
        return False
    if not do_ack(c, t, False):
        return False
    advise(c, ADV_TERM, t.sseq, t.dseq, t.deliveries, 0, reason)
    return True


# ---- bodies ---------------------------------------------------------------------------------------------------------

cdef bint read_delay(Span arg, int64_t* delay) noexcept nogil:
    # {"delay": ns}, or a duration; False for anything else, which is no delay.
    cdef JsonReader j
    cdef JsonItem key, val
    cdef int rc
    arg = trimmed(arg)
    json_open(&j, arg)
    if not json_enter_object(&j):
        return get_duration(arg, delay)
    while True:
        rc = json_next_member(&j, &key, &val)
        if rc <= 0:
            return rc == 0 and json_at_end(&j)
        if json_key_is(&key, b"delay") and not read_int(&val, delay):
            return False


cdef inline bint body_is(Span body, const char* a, uint32_t n) noexcept nogil:
    return body.n == n and memcmp(body.p, a, n) == 0


cdef inline bint body_starts(Span body, const char* a, uint32_t n, Span* rest) noexcept nogil:
    if body.n < n or memcmp(body.p, a, n) != 0:
        return False
    rest[0] = trimmed(span(body.p + n, body.n - n))
    return True


cdef bint apply_ack(Consumer* c, const AckTokens* t, const Msg* m) noexcept nogil:
    # Whether it is answered. It is not when the answer is another message (+NXT), nor an ack of what was not delivered.
    cdef Span body = m.data
    cdef Span rest
    if body.n == 0 or body_is(body, b"+ACK", 4) or body_is(body, b"+OK", 3):
        return do_ack(c, t, True)
    if body_starts(body, b"-NAK", 4, &rest):
        do_nak(c, t, rest)
    elif body_is(body, b"+WPI", 4) or body_is(body, b"-WPI", 4):
        do_progress(c, t)
    elif body_starts(body, b"+TERM", 5, &rest) or body_starts(body, b"-TERM", 5, &rest):
        return do_term(c, t, rest, m.reply)
    elif body_starts(body, b"+NXT", 4, &rest) or body_starts(body, b"-NXT", 4, &rest):
        do_ack(c, t, True)
        if m.reply.n:
            pull_request(c, m.reply, span(NULL, 0), rest)
        return False
    return t.sseq != 0


# ---- subjects --------------------------------------------------------------------------------------------------------


cdef int ack_message(Consumer* c, const Msg* m, uint32_t prefix) noexcept nogil:
    cdef AckTokens t
    cdef Span s = m.dest
    if s.n <= prefix or stands_still(c):        # it will be delivered again
        return 1
    s.p += prefix
    s.n -= prefix
    t.deliveries = take_number(&s)
    t.sseq = take_number(&s)
    t.dseq = take_number(&s)
    c.last_activity = c.env.mono
    if apply_ack(c, &t, m) and m.reply.n:
        answer_ack(c, t.sseq, m.reply)
    wake_delivery(c)
    return 1


cdef int ack_inbound(void* target, const Msg* m) noexcept nogil:
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<sseq>.<dseq>.<ts>.<pending>
    cdef Consumer* c = <Consumer*>target
    return ack_message(c, m, 8 + c.s.cfg.name.n + 1 + c.cfg.name.n + 1)


cdef int ack_long_inbound(void* target, const Msg* m) noexcept nogil:
    # $JS.ACK.<domain>.<account hash>.<stream>.<consumer>. ...
    cdef Consumer* c = <Consumer*>target
    cdef uint32_t domain = c.s.place.domain.n if c.s.place.domain.n else 1
    return ack_message(c, m, 8 + domain + 1 + c.s.place.account_hash.n + 1 + c.s.cfg.name.n + 1 + c.cfg.name.n + 1)
