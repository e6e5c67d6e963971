# A publish: the checks in the order in which clients see their errors, then the store, the ack and the consumers.

cdef enum:
    IMPORTED_REPLY = 4096               # a longer one is none of a fast batch


cdef int publish_checked(Stream* s, const Msg* m, const PubHeaders* h) noexcept nogil:
    cdef StoreState state
    cdef int rc
    store_state(s.store, &state)
    if s.staging != NULL:
        overlay_state(s.staging, &state)
    if s.cfg.sealed:
        return publish_failed(s, m, &ERR_STREAM_SEALED)
    if h.incr.n and check_increment(s, m, h):
        return 1
    rc = check_expected(s, m, h, state.last_seq)
    if rc:
        return rc
    if h.schedule.n:
        return publish_schedule(s, m, h, &state)
    return publish_entered(s, m, h, &state)


cdef int publish_entered(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # Where what a stream publishes itself comes in.
    if check_duplicate(s, m, h) or check_rollup(s, m, h):
        return 1
    if s.cfg.allow_counter:
        return publish_counter(s, m, h, state)
    return publish_sized(s, m, h, state)


cdef int publish_sized(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # As it will be stored.
    cdef Change c
    cdef uint64_t size
    cdef int64_t ttl
    if check_sizes(s, m):
        return 1
    c.kind = CHANGE_MESSAGE
    c.seq = state.last_seq + 1
    c.ts = s.env.now
    c.subject = m.subject
    c.header = m.header
    c.data = m.data
    c.id = h.msg_id
    c.said = h
    c.keep = 0
    c.erase = False
    c.rollup = rollup_of(h.rollup) if h.rollup.n else ROLLUP_NONE
    if s.cfg.retention == RETAIN_INTEREST and not watched(&s.watchers, m.subject):
        c.kind = CHANGE_SKIP        # nobody is interested: the sequence is used up
        return publish_change(s, m, &c)
    size = store_size_of(s.store, m.subject, m.header, m.data)
    if over(s.cfg.account_usage, size if s.staging == NULL else staged_more(s.staging, size)):
        return publish_failed(s, m, &ERR_ACCOUNT_RESOURCES_EXCEEDED)
    if h.ttl.n:
        if not get_ttl(h.ttl, &ttl):
            return publish_failed(s, m, &ERR_MESSAGE_TTL_INVALID)
        if s.cfg.marker_ttl and too_short(s, ttl):
            return publish_longer(s, m, h, state, &c)
    if s.cfg.discard_new and check_discard_new(s, m, h, state):
        return 1
    return publish_change(s, m, &c)


cdef int publish_longer(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state, Change* c) noexcept nogil:
    # With the shortest time that a message may have here.
    cdef Msg longer = m[0]
    cdef Bytes b
    memset(&b, 0, sizeof(Bytes))
    if header_with_ttl(&b, m.header, s.cfg.marker_ttl // SECOND) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    else:
        longer.header = span(b.data, <uint32_t>b.n)
        c.header = longer.header
        c.said = NULL
        if not (s.cfg.discard_new and check_discard_new(s, &longer, h, state)):
            publish_change(s, &longer, c)
    bytes_free(&b)
    return 1


cdef int publish_rewritten(Stream* s, const Msg* m) noexcept nogil:
    cdef Msg clean = m[0]
    cdef PubHeaders h
    cdef Bytes b
    cdef int rc = 1
    memset(&b, 0, sizeof(Bytes))
    if rewrite_headers(m.header, &b) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, b"out of memory")
    else:
        clean.header = span(b.data, <uint32_t>b.n)
        read_headers(&h, clean.header)
        rc = publish_checked(s, &clean, &h)
    bytes_free(&b)
    return rc


cdef int publish_renamed(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # Under the subject that it is stored under.
    cdef Msg renamed = m[0]
    cdef Draft d
    cdef int rc = 1
    draft_open(&d)
    if stream_rename(s, &renamed.subject, &d) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_TOO_LARGE))
    else:
        rc = publish_named(s, &renamed, h, fast)
    draft_free(&d)
    return rc


cdef int publish_now(Stream* s, const Msg* m) noexcept nogil:
    cdef uint8_t room[IMPORTED_REPLY]
    cdef PubHeaders h
    cdef Span fast = span(NULL, 0)
    if s.failed or s.halted:
        return publish_down(s, m)
    if m.reply.n and ends_fast(m.reply):
        fast = m.reply
    elif m.header.n == 0:
        memset(&h, 0, sizeof(PubHeaders))
    else:
        read_headers(&h, m.header)
        if h.request_info:              # it came from another account
            fast = imported_reply(m, room, IMPORTED_REPLY)
        if h.batch.n and fast.n == 0:
            return publish_atomic(s, m, &h)         # renamed at the commit
    return publish_renamed(s, m, &h, fast) if s.cfg.transform != NULL else publish_named(s, m, &h, fast)


cdef int publish_named(Stream* s, const Msg* m, const PubHeaders* h, Span fast) noexcept nogil:
    # h: not looked at in a fast batch, whose reply is the last argument
    if fast.n:
        return publish_fast(s, m, fast)
    if m.header.n and (h.request_info or has_status(m.header)):
        return publish_rewritten(s, m)
    return publish_checked(s, m, h)


cdef int publish_schedule(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    # It passed.
    cdef Msg only = m[0]
    cdef PubHeaders rolled = h[0]
    cdef Bytes b
    if h.rollup.n:
        return publish_entered(s, m, h, state)
    memset(&b, 0, sizeof(Bytes))
    if header_rolled(&b, m.header) < 0:
        publish_failed_as(s, m, &ERR_STREAM_STORE_FAILED, store_text(ST_NO_MEMORY))
    else:
        only.header = span(b.data, <uint32_t>b.n)
        rolled.rollup = span_c(b"sub")
        publish_entered(s, &only, &rolled, state)
    bytes_free(&b)
    return 1


cdef int publish_counter(Stream* s, const Msg* m, const PubHeaders* h, const StoreState* state) noexcept nogil:
    cdef Msg sum = m[0]
    cdef Bytes body, header
    cdef const ApiError* error
    memset(&body, 0, sizeof(Bytes))
    memset(&header, 0, sizeof(Bytes))
    error = counter_sum(s, m, h, NULL, &body, &header)
    if error != NULL:
        publish_failed(s, m, error)
    else:
        sum.data = span(body.data, <uint32_t>body.n)
        if header.n:
            sum.header = span(header.data, <uint32_t>header.n)
        publish_sized(s, &sum, h, state)
    bytes_free(&body)
    bytes_free(&header)
    return 1
