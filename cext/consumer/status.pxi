# The statuses that requests and receivers hear: refusals, ends, heartbeats.

cdef uint32_t put_flow_subject(Consumer* c, uint8_t* p) noexcept nogil:
    # $JS.FC.<stream>.<consumer>.<id>: as the ack subjects, with another word in front.
    cdef uint32_t n = c.n_ack_prefix - 1
    memcpy(p, b"$JS.FC.", 7)
    memcpy(p + 7, c.ack_prefix + 8, n - 7)
    memcpy(p + n, c.flow.id, 4)
    return n + 4


cdef void send_status(Consumer* c, Span dest, Span reply, const void* text, size_t n) noexcept nogil:
    # Behind the messages that are on their way.
    if c.group == NULL or c.group.n == 0 or status_later(c, dest, reply, span(text, <uint32_t>n)) < 0:
        send_status_now(c, dest, reply, span(text, <uint32_t>n))


cdef void send_status_now(Consumer* c, Span dest, Span reply, Span header) noexcept nogil:
    cdef Msg m
    memset(&m, 0, sizeof(Msg))
    m.dest = dest
    m.subject = dest
    m.reply = reply
    m.header = header
    m.account = c.s.account
    c.env.out.send(c.env.out.ctx, &m)


cdef void refuse(Consumer* c, Span dest, const char* status) noexcept nogil:
    # A status without further headers.
    cdef char text[256]
    cdef int n = snprintf(text, sizeof(text), b"NATS/1.0 %s\r\n\r\n", status)
    send_status(c, dest, span(NULL, 0), text, min(n, <int>sizeof(text) - 1))


cdef void refuse_number(Consumer* c, Span dest, const char* status, int64_t number) noexcept nogil:
    cdef char text[160]
    snprintf(text, sizeof(text), b"%s%lld", status, <long long>number)
    refuse(c, dest, text)


cdef void pull_status(Consumer* c, const Pull* q, const char* status) noexcept nogil:
    # A status that says what is left of the request.
    cdef char text[256]
    cdef int n = snprintf(text, sizeof(text),
                          b"NATS/1.0 %s\r\nNats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n\r\n", status,
                          <long long>q.batch, <long long>q.bytes)
    send_status(c, span(q.reply, q.n_reply), span(NULL, 0), text, min(n, <int>sizeof(text) - 1))


cdef void send_heartbeat(Consumer* c, Span dest) noexcept nogil:
    cdef char text[1536]
    cdef int n = snprintf(text, sizeof(text),
                          b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %llu\r\nNats-Last-Stream: %llu\r\n",
                          <unsigned long long>(c.dseq - 1), <unsigned long long>(c.next - 1))
    cdef uint32_t flow
    if c.flow.asking:
        memcpy(text + n, b"Nats-Consumer-Stalled: ", 23)
        n += 23
        flow = put_flow_subject(c, <uint8_t*>text + n)
        n += flow
        memcpy(text + n, b"\r\n", 2)
        n += 2
    memcpy(text + n, b"\r\n", 2)
    send_status(c, dest, span(NULL, 0), text, n + 2)
