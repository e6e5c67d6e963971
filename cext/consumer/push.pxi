# Push consumers: whether somebody listens, idle heartbeats, and what receivers confirm.

cdef enum:
    # Who confirms: clients, here and through imports, and streams that take in. No consumer delivers a confirmation.
    HEARS_FLOW = HEARS_REQUESTS | 1 << KIND_ACCOUNT | 1 << KIND_ACK


# ---- interest ------------------------------------------------------------------------------------------------

cdef void bound_changed(void* target, bint bound) noexcept nogil:
    cdef Consumer* c = <Consumer*>target
    if c.push.bound == bound:
        return
    c.push.bound = bound
    if bound:
        timer_cancel(&c.env.timers, &c.timers[TIMER_GONE])
        c.push.sent = c.env.mono
        if c.cfg.idle_heartbeat > 0:
            timer_set(&c.env.timers, &c.timers[TIMER_HEARTBEAT], c.env.mono + c.cfg.idle_heartbeat)
        wake_delivery(c)
        return
    timer_cancel(&c.env.timers, &c.timers[TIMER_HEARTBEAT])
    flow_reset(c)
    c.last_activity = c.env.mono
    gone_arm(c)


cdef void heartbeat_due(Timer* t, int64_t now) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef int64_t due = c.push.sent + c.cfg.idle_heartbeat
    if due <= now:
        send_heartbeat(c, c.cfg.deliver_subject)
        if c.cfg.ack_policy == ACK_POLICY_FLOW_CONTROL and c.pending.n and not c.flow.asking:
            flow_ask(c)                         # a client that waits for more has acked what came
        due = now + c.cfg.idle_heartbeat
    timer_set(&c.env.timers, t, due)


# ---- what is confirmed ------------------------------------------------------------------------------------------------

cdef void flow_acked(Consumer* c, Span header) noexcept nogil:
    # What a confirmation says of what came: its last sequence and delivery.
    cdef AckTokens t
    memset(&t, 0, sizeof(AckTokens))
    if not get_u64(trimmed(header_get(header, b"Nats-Last-Stream")), &t.sseq) or t.sseq == 0:
        return
    if not get_u64(trimmed(header_get(header, b"Nats-Last-Consumer")), &t.dseq):
        return
    if t.dseq > c.floor_dseq and not undelivered(c, t.sseq):
        ack_upto(c, &t)


cdef int flow_inbound(void* target, const Msg* m) noexcept nogil:
    # A confirmation; one of an older request says nothing.
    cdef Consumer* c = <Consumer*>target
    if not c.flow.asking or m.dest.n < 4 or memcmp(m.dest.p + m.dest.n - 4, c.flow.id, 4) != 0:
        return 1
    c.flow.unconfirmed -= c.flow.asked
    c.flow.asked = 0
    c.flow.asking = False
    if c.cfg.ack_policy == ACK_POLICY_FLOW_CONTROL and m.header.n and not stands_still(c):
        flow_acked(c, m.header)
    c.flow.window = min(c.flow.window * 2, <int64_t>FLOW_WINDOW_MAX)
    wake_delivery(c)
    return 1
