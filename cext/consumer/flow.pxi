# Flow control. The server asks, with a request on the deliver subject, that what was sent up to it be confirmed. Bytes sent
# and not confirmed may be as much as the window, which doubles with each confirmation.

cdef enum:
    FLOW_WINDOW = 2 << 20               # at first
    FLOW_WINDOW_MAX = 32 << 20


cdef void flow_ask(Consumer* c) noexcept nogil:
    cdef uint8_t reply[ACK_SUBJECT_ROOM]
    env_token(c.env, c.flow.id, sizeof(c.flow.id))
    c.flow.asked = c.flow.unconfirmed
    c.flow.asking = True
    send_status(c, c.cfg.deliver_subject, span(reply, put_flow_subject(c, reply)),
                b"NATS/1.0 100 FlowControl Request\r\n\r\n", 36)


cdef void flow_sent(Consumer* c, int64_t cost) noexcept nogil:
    if c.flow.window == 0:
        return
    c.flow.unconfirmed += cost
    if not c.flow.asking and c.flow.unconfirmed > c.flow.window // 2:
        flow_ask(c)


cdef void flow_reset(Consumer* c) noexcept nogil:
    c.flow.window = FLOW_WINDOW if c.cfg.flags & CONSUMER_FLOW_CONTROL else 0
    c.flow.unconfirmed = 0
    c.flow.asked = 0
    c.flow.asking = False
