# What a client hears whose request nobody takes.

cdef void client_unheard(Client* c, Span subject, Span reply) noexcept nogil:
    # Protocol.unheard of clients: the 503 frame, if a plain subscription of c itself waits for the reply (ADR-22).
    cdef const Match* found
    cdef Sub* s
    cdef uint32_t i
    cdef uint8_t* p
    cdef uint8_t* start
    if not (c.opts.no_responders and c.opts.headers):
        return
    found = sublist_match(c.account.subs, reply)
    if found == NULL:
        return
    for i in range(found.n_plain):
        s = found.plain[i]
        if s.client != c or s.closed:
            continue
        start = client_reserve(c, <size_t>reply.n + s.sid.n + subject.n + 80)
        if start == NULL:
            return
        p = start
        memcpy(p, b"HMSG ", 5)
        p = put_span(p + 5, reply)
        p[0] = c' '
        p = put_span(p + 1, s.sid)
        p[0] = c' '
        p += 1
        p += put_u64(p, 32 + subject.n)
        p[0] = c' '
        p += 1
        p += put_u64(p, 32 + subject.n)
        memcpy(p, b"\r\nNATS/1.0 503\r\nNats-Subject: ", 30)
        p = put_span(p + 30, subject)
        memcpy(p, b"\r\n\r\n\r\n", 6)
        p += 6
        client_commit(c, p - start)
        client_mark_dirty(c)
        return
