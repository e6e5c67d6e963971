# What a client's verbs mean once they are parsed, and are answered by: publish, subscribe, unsubscribe.

cdef void no_responders(Client* c, Span subject, Span reply) noexcept nogil:
    # The 503 frame, if a plain subscription of c itself waits for the reply (ADR-22).
    cdef const Match* found = sublist_match(c.account.subs, reply)
    cdef Sub* s
    cdef uint32_t i
    cdef uint8_t* p
    cdef uint8_t* start
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


cdef int client_publish(Client* c, Span subject, Span reply, Span header, Span data) noexcept nogil:
    # Returns the number of receivers. header is empty for PUB.
    cdef Msg m
    cdef Span trace
    cdef int taken
    if c.opts.pedantic and not (subject_is_valid(subject) and subject_is_literal(subject)):
        client_error(c, b"Invalid Publish Subject")
    m.subject = subject
    m.reply = reply
    m.header = header
    m.data = data
    if not publish_check(c, &m, &trace):
        return 0
    if c.opts.verbose:
        client_ok(c)
    taken = publish_route(c, &m, trace)
    if taken == 0 and reply.n and c.opts.no_responders and c.opts.headers and not c.closing:
        no_responders(c, m.subject, reply)
    return taken


cdef void client_subscribe(Client* c, Span subject, Span queue, Span sid) noexcept nogil:
    if sub_begin(c, subject, queue, sid, 1, 0) and c.opts.verbose:
        client_ok(c)


cdef void client_unsubscribe(Client* c, Span sid, uint64_t max) noexcept nogil:
    sub_end(c, sid, max)
    if c.opts.verbose:
        client_ok(c)
