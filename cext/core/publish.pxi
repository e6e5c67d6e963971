# A connection's messages on their way to routing: where they go, and whether they may.

cdef void trace_mapping(Client* c, Span subject, Span to) noexcept nogil:
    cdef Draft line
    draft_open(&line)
    draft_add(&line, subject.p, subject.n)
    draft_add(&line, b" -> ", 4)
    draft_add(&line, to.p, to.n)
    trace_line(c, TRACE_IN, b"MAPPING", draft_span(&line))
    draft_free(&line)


cdef Span map_subject(Client* c, Span subject) noexcept nogil:
    # From here on nothing knows of the subject that the client named. .p NULL: no memory.
    cdef Draft* d = &c.engine.mapped
    d.n = 0
    if not account_renames(c.account, subject, d):
        return subject
    if d.failed:
        d.failed = False
        return span(NULL, 0)
    if c.engine.trace:
        trace_mapping(c, subject, draft_span(d))
    return draft_span(d)


cdef bint publish_check(Client* c, Msg* m, Span* trace) noexcept nogil:
    # Counts a message, of which the caller gives subject, reply, header and data, and fills in the rest. False: it is not to be
    # routed, and c has heard why.
    cdef Engine* e = c.engine
    cdef Span none = span(NULL, 0)
    cdef uint32_t size = m.header.n + m.data.n
    c.in_msgs += 1
    c.in_bytes += size
    c.account.in_msgs += 1
    c.account.in_bytes += size
    e.stats.in_msgs += 1
    e.stats.in_bytes += size
    if c.account.renames:
        m.subject = map_subject(c, m.subject)
        if m.subject.p == NULL:
            return False
    trace[0] = trace_dest(m.header) if m.header.n else none
    if trace.n and not may_trace(c, trace[0]):
        violation(c, b"Publish to", trace[0], none, none, b"")
        return False
    if is_kept_from(c, m.subject):
        violation(c, b"Publish to", m.subject, none, none, b"")
        return False
    if c.perms != NULL and not perms_can_publish(c.perms, m.subject) and not may_respond(c, m.subject):
        violation(c, b"Publish to", m.subject, none, none, b"")
        return False
    if m.reply.n and reply_is_reserved(m.reply):
        violation(c, b"Publish with Reply of", m.reply, none, none, b"")
        return False
    m.dest = m.subject
    m.cid = c.cid
    m.kind = c.kind
    m.behind = c.asking > 0
    m.account = c.account
    return True


cdef int publish_route(Client* c, const Msg* m, Span trace) noexcept nogil:
    # Returns the number of receivers of a message that was checked; trace: as publish_check has it.
    if trace.n and is_yes(trace_header(m.header, b"Nats-Trace-Only")):
        return dry_run(c, m, trace)
    return engine_route(c.engine, c, m)
