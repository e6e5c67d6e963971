# What a consumer says: lines for the server's log, and advisories.

cdef void say(Consumer* c, const char* text) noexcept nogil:
    # A line for the server's log.
    cdef Event e
    memset(&e, 0, sizeof(Event))
    e.kind = EV_LOG
    e.account = c.s.account
    e.text[0] = span_c(text)
    c.env.out.event(c.env.out.ctx, &e)


cdef void say_of(Consumer* c, const char* what) noexcept nogil:
    cdef char text[700]
    snprintf(text, sizeof(text), b"stream %.*s: consumer %.*s: %s", <int>c.s.cfg.name.n,
             <const char*>c.s.cfg.name.p, <int>c.cfg.name.n, <const char*>c.cfg.name.p, what)
    say(c, text)


cdef void log_damaged(Consumer* c, uint64_t seq) noexcept nogil:
    cdef char text[700]
    snprintf(text, sizeof(text), b"stream %.*s: message %llu is damaged and passed over by consumer %.*s",
             <int>c.s.cfg.name.n, <const char*>c.s.cfg.name.p, <unsigned long long>seq,
             <int>c.cfg.name.n, <const char*>c.cfg.name.p)
    say(c, text)


# ---- advisories ------------------------------------------------------------------------------------------------------

cdef bint advisory_wanted(Consumer* c, const char* subject) noexcept nogil:
    cdef Bytes b
    cdef bint wanted
    memset(&b, 0, sizeof(Bytes))
    wanted = (add_text(&b, subject) == 0 and add_span(&b, c.s.cfg.name) == 0 and add_text(&b, b".") == 0
              and add_span(&b, c.cfg.name) == 0
              and c.env.out.has_interest(c.env.out.ctx, c.s.account, span(b.data, <uint32_t>b.n)))
    bytes_free(&b)
    return wanted


cdef const char* advisory_subject(int kind) noexcept nogil:
    if kind == ADV_MAX_DELIVER:
        return b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
    if kind == ADV_NAK:
        return b"$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED."
    if kind == ADV_TERM:
        return b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."
    if kind == ADV_PINNED:
        return b"$JS.EVENT.ADVISORY.CONSUMER.PINNED."
    if kind == ADV_UNPINNED:
        return b"$JS.EVENT.ADVISORY.CONSUMER.UNPINNED."
    return b"$JS.EVENT.METRIC.CONSUMER.ACK."


cdef void advise(Consumer* c, int kind, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time,
                 Span reason) noexcept nogil:
    # Only when somebody listens.
    cdef Event e
    if not advisory_wanted(c, advisory_subject(kind)):
        return
    memset(&e, 0, sizeof(Event))
    e.kind = EV_ADVISORY
    e.account = c.s.account
    e.text[0] = c.s.cfg.name
    e.text[1] = c.cfg.name
    e.text[2] = reason
    e.num[0] = kind
    e.num[1] = <int64_t>sseq
    e.num[2] = <int64_t>dseq
    e.num[3] = <int64_t>deliveries
    e.num[4] = ack_time
    c.env.out.event(c.env.out.ctx, &e)
