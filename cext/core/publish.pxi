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


cdef Span answer_subject(Client* c, Span subject) noexcept nogil:
    # Where a message of a client goes that answers requests of other clusters. Without memory interest leads.
    cdef Span full = mapped_subject(c, subject)
    cdef Draft* d = &c.engine.mapped
    if full.p == NULL:
        return subject
    d.n = 0
    draft_add(d, full.p, full.n)        # the client may be asked anew, and forget this one, before the message is routed
    if d.failed:
        d.failed = False
        return subject
    return draft_span(d)


cdef int publish(Client* c, Span subject, Span reply, Span header, Span data) noexcept nogil:
    # Returns the number of receivers. All in one function, which most of a server's messages pass: what is handed on in memory
    # is waited for.
    cdef Msg m
    cdef Engine* e = c.engine
    cdef int taken
    cdef Span none = span(NULL, 0)
    cdef Span dest
    cdef uint32_t size = header.n + data.n
    c.in_msgs += 1
    c.in_bytes += size
    c.account.in_msgs += 1
    c.account.in_bytes += size
    e.stats.in_msgs += 1
    e.stats.in_bytes += size
    if c.account.renames:
        subject = map_subject(c, subject)
        if subject.p == NULL:
            return 0
    dest = trace_dest(header) if header.n else none
    if dest.n and not may_trace(c, dest):
        violation(c, b"Publish to", dest, none, none, b"")
        return 0
    if is_kept_from(c, subject):
        violation(c, b"Publish to", subject, none, none, b"")
        return 0
    if c.perms != NULL and not perms_can_publish(c.perms, subject) and not may_respond(c, subject):
        violation(c, b"Publish to", subject, none, none, b"")
        return 0
    if reply.n and reply_is_reserved(reply):
        violation(c, b"Publish with Reply of", reply, none, none, b"")
        return 0
    if c.protocol.accepted != NULL:
        c.protocol.accepted(c)
    if c.opts != NULL and c.opts.measured.n:
        tell_measured(c, subject)
    if c.opts != NULL and c.opts.mapped.n:
        subject = answer_subject(c, subject)
    m.dest = subject
    m.subject = subject
    m.reply = reply
    m.header = header
    m.data = data
    m.cid = c.cid
    m.kind = c.kind
    m.origin = c.origin
    m.groups = NULL
    m.behind = c.asking > 0
    m.account = c.account
    if dest.n and is_yes(trace_header(header, b"Nats-Trace-Only")):
        taken = dry_run(c, &m, dest)
    else:
        taken = engine_route(e, c, &m)
    if taken == 0 and reply.n and c.protocol.unheard != NULL and not c.closing:
        c.protocol.unheard(c, subject, reply)
    return taken
