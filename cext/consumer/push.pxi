# Push consumers: whether somebody listens, idle heartbeats, and the window of flow control.

cdef enum:
    FLOW_WINDOW = 2 << 20               # at first
    FLOW_WINDOW_MAX = 32 << 20
    # Who confirms: clients, here and through imports, and streams that take in. No consumer delivers a confirmation.
    HEARS_FLOW = HEARS_REQUESTS | 1 << KIND_ACCOUNT | 1 << KIND_ACK


# ---- interest ------------------------------------------------------------------------------------------------

cdef void bound_changed(void* target, bint bound) noexcept nogil:
    cdef Consumer* c = <Consumer*>target
    if c.bound == bound:
        return
    c.bound = bound
    if bound:
        timer_cancel(&c.env.timers, &c.gone)
        c.last_sent = c.env.mono
        if c.cfg.idle_heartbeat > 0:
            timer_set(&c.env.timers, &c.heartbeat, c.env.mono + c.cfg.idle_heartbeat)
        wake_delivery(c)
        return
    timer_cancel(&c.env.timers, &c.heartbeat)
    flow_reset(c)
    c.last_activity = c.env.mono
    gone_arm(c)


cdef void heartbeat_due(Timer* t, int64_t now) noexcept nogil:
    cdef Consumer* c = <Consumer*>t.owner
    cdef int64_t due = c.last_sent + c.cfg.idle_heartbeat
    if due <= now:
        send_heartbeat(c, c.cfg.deliver_subject)
        if c.cfg.ack_policy == ACK_FLOW and c.pending.n and not c.asking:
            flow_ask(c)                         # whoever waits for more has acked what came
        due = now + c.cfg.idle_heartbeat
    timer_set(&c.env.timers, t, due)


# ---- flow control --------------------------------------------------------------------------------------------
# The server asks, with a request on the deliver subject, that what was sent up to it be confirmed. Bytes sent and not
# confirmed may be as much as the window, which doubles with each confirmation.

cdef uint32_t put_flow_subject(Consumer* c, uint8_t* p) noexcept nogil:
    # $JS.FC.<stream>.<consumer>.<id>: as the ack subjects, with another word in front.
    cdef uint32_t n = c.n_ack_prefix - 1
    memcpy(p, b"$JS.FC.", 7)
    memcpy(p + 7, c.ack_prefix + 8, n - 7)
    memcpy(p + n, c.flow_id, 4)
    return n + 4


cdef void flow_ask(Consumer* c) noexcept nogil:
    cdef uint8_t reply[ACK_SUBJECT_ROOM]
    env_token(c.env, c.flow_id, sizeof(c.flow_id))
    c.asked = c.unconfirmed
    c.asking = True
    send_status(c, c.cfg.deliver_subject, span(reply, put_flow_subject(c, reply)),
                b"NATS/1.0 100 FlowControl Request\r\n\r\n", 36)


cdef void flow_sent(Consumer* c, int64_t cost) noexcept nogil:
    if c.window == 0:
        return
    c.unconfirmed += cost
    if not c.asking and c.unconfirmed > c.window // 2:
        flow_ask(c)


cdef void flow_reset(Consumer* c) noexcept nogil:
    c.window = FLOW_WINDOW if c.cfg.flow_control else 0
    c.unconfirmed = 0
    c.asked = 0
    c.asking = False


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
    if not c.asking or m.dest.n < 4 or memcmp(m.dest.p + m.dest.n - 4, c.flow_id, 4) != 0:
        return 1
    c.unconfirmed -= c.asked
    c.asked = 0
    c.asking = False
    if c.cfg.ack_policy == ACK_FLOW and m.header.n and not stands_still(c):
        flow_acked(c, m.header)
    c.window = min(c.window * 2, <int64_t>FLOW_WINDOW_MAX)
    wake_delivery(c)
    return 1
