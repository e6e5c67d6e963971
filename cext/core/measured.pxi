# Requests of other servers' clients that are measured. The service's own server knows how long the answer took, and who gave
# it: the server that the request came from puts that into its report of the service's latency.

cdef enum:
    MEASURED_NS = 120000000000      # how long an answer is waited for: as long as services may take by default
    MEASURED_MAX = 16384            # of one connection
    TRACKED_END = 11                # `.<server>.T`, the end of such a request's reply

cdef struct Measured:
    # One allocation, with its text.
    int64_t since               # mono
    int64_t began               # wall
    ListNode node               # of ClientOptions.measured_by_time
    Span reply


cdef inline Measured* measured_at(const ListNode* n) noexcept nogil:
    return <Measured*>list_owner(n, &(<Measured*>NULL).node)


cdef inline bint is_tracked(Span reply) noexcept nogil:
    # No client can name such a reply.
    return (reply.n > TRACKED_END + 4 and reply.p[reply.n - 1] == c'T' and reply.p[reply.n - 2] == c'.'
            and reply.p[reply.n - TRACKED_END] == c'.' and memcmp(reply.p, b"_R_.", 4) == 0)


cdef void measured_free(ClientOptions* o, Measured* m) noexcept nogil:
    strmap_del(&o.measured, m.reply)
    list_remove(&m.node)
    free(m)


cdef void note_measured(Client* c, Span reply) noexcept nogil:
    # c was asked with that reply. Without memory its answer is not measured.
    cdef ClientOptions* o = c.opts
    cdef int64_t now = c.engine.env.mono
    cdef Measured* m
    while not list_empty(&o.measured_by_time):
        m = measured_at(list_first(&o.measured_by_time))
        if now - m.since < MEASURED_NS and o.measured.n < MEASURED_MAX:
            break
        measured_free(o, m)
    m = <Measured*>strmap_get(&o.measured, reply)
    if m != NULL:               # several of its subscriptions hear the request
        return
    m = <Measured*>calloc(1, sizeof(Measured) + reply.n)
    if m == NULL:
        return
    memcpy(m + 1, reply.p, reply.n)
    m.reply = span(<const uint8_t*>(m + 1), reply.n)
    m.since = now
    m.began = c.engine.env.now
    if strmap_put(&o.measured, m.reply, m) != 0:
        free(m)
        return
    list_push_back(&o.measured_by_time, &m.node)


cdef void tell_measured(Client* c, Span reply) noexcept nogil:
    # c sends something there: the answer, if it was asked with that reply.
    cdef Measured* m = <Measured*>strmap_get(&c.opts.measured, reply)
    cdef Span texts[2]
    cdef int64_t num[4]
    cdef Draft d
    if m == NULL:
        return
    draft_open(&d)
    client_describe(c, c.account.name, span(NULL, 0), True, False, &d)
    texts[0] = m.reply
    texts[1] = draft_span(&d)
    num[0] = c.account.id
    num[1] = m.began
    num[2] = max(c.engine.env.now - m.began - c.rtt, <int64_t>0)
    num[3] = max(c.engine.env.now - m.began, <int64_t>0)
    if not d.failed:
        inbox_put(&c.engine.inbox, IN_MEASURED, 0, texts, 2, num, 4)
    draft_free(&d)
    measured_free(c.opts, m)


cdef void client_forget_measured(Client* c) noexcept nogil:
    if c.opts == NULL:
        return
    while not list_empty(&c.opts.measured_by_time):
        measured_free(c.opts, measured_at(list_first(&c.opts.measured_by_time)))
    strmap_free(&c.opts.measured)
