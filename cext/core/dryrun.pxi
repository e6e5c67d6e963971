# Messages that ask for a trace. Traces are not made yet; but a publisher that asks for a dry run must not have the message
# delivered and stored, and one that may not publish where the trace would go is refused.

cdef enum:
    HEADER_VERSION = 8      # bytes of NATS/1.0
    TRACE_NAME = 11         # of what the names of its headers begin with


cdef bint is_yes(Span value) noexcept nogil:
    # 1, true or on, in letters of any case.
    if value.n == 1:
        return value.p[0] == c'1'
    if value.n == 2:
        return value.p[0] | 32 == c'o' and value.p[1] | 32 == c'n'
    return (value.n == 4 and value.p[0] | 32 == c't' and value.p[1] | 32 == c'r' and value.p[2] | 32 == c'u'
            and value.p[3] | 32 == c'e')


cdef inline bint mentions_trace(Span header) noexcept nogil:
    # Of every message with headers: whether one is about traces, found by its capital T, which few headers have.
    cdef const uint8_t* p = header.p + HEADER_VERSION
    cdef const uint8_t* end = header.p + header.n
    while p < end:
        p = <const uint8_t*>memchr(p, c'T', end - p)
        if p == NULL:
            return False
        if end - p > TRACE_NAME - 5 and memcmp(p - 5, b"Nats-Trace-", TRACE_NAME) == 0:
            return True
        p += 1
    return False


cdef Span trace_dest(Span header) noexcept nogil:
    # Where the trace is to go; empty: the message is an ordinary one.
    cdef Span dest = trace_header(header, b"Nats-Trace-Dest") if mentions_trace(header) else span(NULL, 0)
    return span(NULL, 0) if span_eq(dest, span_c(b"trace disabled")) else dest


cdef bint may_trace(Client* c, Span dest) noexcept nogil:
    # Whether the publisher may publish there itself. What is no subject gets no trace, and forbids nothing.
    if not (subject_is_valid(dest) and subject_is_literal(dest)):
        return True
    return not is_kept_from(c, dest) and (c.perms == NULL or perms_can_publish(c.perms, dest))


cdef int dry_run(Client* c, const Msg* m, Span dest) noexcept nogil:
    # Nobody gets the message. Whether somebody would have: else the publisher hears that nobody responds.
    if not (subject_is_valid(dest) and subject_is_literal(dest)):
        note_error(c, b"Destination ", dest, b" is not valid, won't be able to trace events")
        return 1
    return outlet_has_interest(c.engine, m.account, m.dest)
