# What a client gets of a message: its permissions, its limits, and the frame in its out buffer.


cdef inline uint8_t* put_span(uint8_t* p, Span s) noexcept nogil:
    # Subjects and ids are short: two copies of a fixed size, which may overlap, cost less than a call.
    if 8 <= s.n <= 16:
        memcpy(p + s.n - 8, s.p + s.n - 8, 8)
        memcpy(p, s.p, 8)
    elif s.n == 1:
        p[0] = s.p[0]
    elif 4 <= s.n < 8:
        memcpy(p + s.n - 4, s.p + s.n - 4, 4)
        memcpy(p, s.p, 4)
    else:
        memcpy(p, s.p, s.n)
    return p + s.n


cdef Payload* shared_payload(Engine* e, const Msg* m) noexcept nogil:
    # The payload of the message under way, copied when the first connection takes it. NULL: no memory.
    if e.shared == NULL:
        e.shared = payload_new(e, m.data)
    return e.shared


cdef void slow_down(Engine* e, Client* c) noexcept nogil:
    # Much waits for c: its senders pause.
    if not e.limits.stall:
        return
    if client_pending(c) > <uint64_t>(e.limits.max_pending - e.limits.max_pending // 4):
        e.pace = PACE_STALL
    elif e.pace == PACE_FREE:
        e.pace = PACE_REST
    c.awaited = True


cdef inline uint8_t* put_line(uint8_t* p, const Sub* s, const Msg* m, uint32_t hdr) noexcept nogil:
    # The MSG or HMSG line; where it ends.
    if hdr:
        memcpy(p, b"HMSG ", 5)
        p += 5
    else:
        memcpy(p, b"MSG ", 4)
        p += 4
    p = put_span(p, m.subject)
    p[0] = c' '
    p = put_span(p + 1, s.sid)
    p[0] = c' '
    p += 1
    if m.reply.n:
        p = put_span(p, m.reply)
        p[0] = c' '
        p += 1
    if hdr:
        p += put_u64(p, hdr)
        p[0] = c' '
        p += 1
    p += put_u64(p, hdr + m.data.n)
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline void put_data(Client* c, Span data) noexcept nogil:
    # A payload, and the end of its line.
    cdef uint8_t* p
    if c.tail.cap - c.tail.end >= data.n + 2:
        p = chunk_data(c.tail) + c.tail.end
        memcpy(p, data.p, data.n)
        p[data.n] = c'\r'
        p[data.n + 1] = c'\n'
        client_commit(c, data.n + 2)
    else:
        client_write(c, data.p, data.n)
        client_write(c, b"\r\n", 2)


cdef void count_sent(Engine* e, Client* c, Sub* s, Account* a, uint32_t total) noexcept nogil:
    count_out(e, c, s, a, total)


cdef inline void count_out(Engine* e, Client* c, Sub* s, Account* a, uint32_t total) noexcept nogil:
    s.delivered += 1
    c.out_msgs += 1
    c.out_bytes += total
    a.out_msgs += 1
    a.out_bytes += total
    e.stats.out_msgs += 1
    e.stats.out_bytes += total


cdef int client_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # Writes one MSG or HMSG into the client's out buffer. 1: it took it.
    cdef Client* c = s.client
    cdef uint32_t hdr = 0
    cdef uint32_t total
    cdef size_t line
    cdef uint8_t* start
    cdef uint8_t* p
    cdef Payload* shared = NULL
    if c.closing or (c == src and not c.opts.echo):
        return 0
    if s.filtered and not perms_can_receive(c.perms, m.dest, s.queue):
        return 0
    if is_mapped(m.reply):
        return unmapped_deliver(e, src, s, m)
    if c.opts.headers:
        hdr = m.header.n
    total = hdr + m.data.n
    line = <size_t>m.subject.n + s.sid.n + m.reply.n + 36
    if client_pending(c) + line + total > <uint64_t>e.limits.max_pending:
        client_close(c, CLOSE_SLOW_PENDING)
        return 0
    if e.sharing == m:
        shared = shared_payload(e, m)
        if shared == NULL or (client_room(c) < line + hdr and not client_grow(c, CHUNK_TINY, line + hdr)):
            return 0
    start = client_reserve(c, line)
    if start == NULL:
        return 0
    p = put_line(start, s, m, hdr)
    if e.trace:
        trace_message(c, TRACE_OUT, b"HMSG" if hdr else b"MSG",
                      span(start + (5 if hdr else 4), <uint32_t>(p - start - (7 if hdr else 6))),
                      span(m.header.p, hdr), m.data)
    client_commit(c, p - start)
    if hdr:
        client_write(c, m.header.p, hdr)
    if shared != NULL:
        client_share(c, shared)
    else:
        put_data(c, m.data)
    client_mark_dirty(c)
    count_out(e, c, s, <Account*>m.account, total)
    if c.opts.responses and m.reply.n:
        note_response(c, m.reply)
    if m.reply.n and (m.kind == KIND_ROUTER or m.kind == KIND_GATEWAY) and is_tracked(m.reply):
        note_measured(c, m.reply)
    if s.max and s.delivered >= s.max:
        sub_drop(c, s)
    if client_pending(c) > e.limits.much_pending:
        if src != NULL:
            slow_down(e, c)
        elif client_pending(c) > full_pending(e):
            e.env.out.full = True
    return 1


cdef int unmapped_deliver(Engine* e, Client* src, Sub* s, const Msg* m) noexcept nogil:
    # A request of another cluster, of whose reply the client sees what its own cluster's would say.
    cdef Client* c = s.client
    cdef Msg to = m[0]
    cdef int taken
    to.reply = unmapped(m.reply)
    if is_mapped(to.reply):
        return 0                # no server makes such a reply
    if e.sharing == m:
        e.sharing = &to
    taken = client_deliver(e, src, s, &to)
    if e.sharing == &to:
        e.sharing = m
    if taken:
        note_mapped(c, m.reply)
    return taken
