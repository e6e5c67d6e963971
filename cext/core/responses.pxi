# Requests that went to a service of another account and wait for replies. Each has a reply subject of its own in the
# exporting account, `_R_.<account>.<id>`; what is sent there goes to the requester's own in its account.

cdef enum:
    RESPONSES_MAX = 262144          # of one import; beyond it the oldest is forgotten
    TRACKED_SIZE = 32               # REPLY_SIZE with `.<server>.T` behind
    SWEEP_PIECE = 1024
    SWEEP_PIECE_NS = 5000000
    SWEEP_AGAIN_NS = 500000000      # from the end of a sweep to the next one


# ---- their lives ---------------------------------------------------------------------------------------

cdef int answer_here(Account* a) noexcept nogil:
    # The account's replies have a prefix, and somebody takes what is sent there. 0 | -1 no memory.
    cdef uint8_t pattern[REPLY_PREFIX + 2]
    if a.replies.taken:
        return 0
    memcpy(a.replies.prefix, b"_R_.", 4)
    env_token(&a.engine.env, a.replies.prefix + 4, REPLY_PREFIX - 4)
    memcpy(pattern, a.replies.prefix, REPLY_PREFIX)
    memcpy(pattern + REPLY_PREFIX, b".>", 2)
    if serve_link(a, span(pattern, REPLY_PREFIX + 2), HEARS_ALL | LISTENS, LINK_REPLY, NULL) == NULL:
        return -1
    a.replies.taken = True
    return 0


cdef Response* response_new(ServiceImport* of, Account* at, Account* to, Span reply) noexcept nogil:
    # NULL: no memory, or the account that is to answer is closed.
    cdef Engine* e = at.engine
    cdef Response* r
    cdef uint64_t scrap
    if at.closed or answer_here(at) < 0:
        return NULL
    if e.responses.by_id.n >= e.responses.n_buckets and responses_grow(e) < 0:
        return NULL
    if of.n >= RESPONSES_MAX:
        note_forgotten(of)
        response_end(e, first_waiting(of), REPORT_UNAVAILABLE)
    r = <Response*>calloc(1, sizeof(Response) + reply.n)
    if r == NULL:
        return NULL
    while r.id == 0 or u64map_get(&e.responses.by_id, r.id, &scrap):
        r.id = reply_draw(&e.env)
    if u64map_put(&e.responses.by_id, r.id, <uint64_t>r) != 0:
        free(r)
        return NULL
    memcpy(r + 1, reply.p, reply.n)
    r.reply = span(r + 1, reply.n)
    r.of = of
    r.at = at
    r.to = to
    r.hash = response_hash(to, reply)
    bucket_add(response_bucket(e, r.hash), r)
    response_append(r, e.env.mono)
    of.n += 1
    at.replies.n_answering += 1
    to.replies.n_awaiting += 1
    if of.timer.pos == 0:
        timer_set(&e.env.timers, &of.timer, e.env.mono + of.threshold)
    return r


cdef uint32_t response_subject(const Response* r, uint8_t* text) noexcept nogil:
    # What answers go to; at most TRACKED_SIZE bytes.
    memcpy(text, r.at.replies.prefix, REPLY_PREFIX)
    text[REPLY_PREFIX] = c'.'
    reply_put(text + REPLY_PREFIX + 1, r.id)
    if r.report.n == 0:
        return REPLY_SIZE
    text[REPLY_SIZE] = c'.'
    memcpy(text + REPLY_SIZE + 1, r.at.engine.server_hash, 8)
    memcpy(text + REPLY_SIZE + 9, b".T", 2)
    return TRACKED_SIZE


cdef void response_end(Engine* e, Response* r, int status) noexcept nogil:
    # It is over without an answer.
    if r.report.n:
        report_failure(r, status)
    response_free(e, r)


cdef void responses_expire(Timer* t, int64_t now) noexcept nogil:
    cdef ServiceImport* of = <ServiceImport*>t.owner
    cdef Engine* e = of.account.engine
    cdef Response* r = first_waiting(of)
    cdef uint32_t i
    for i in range(SWEEP_PIECE):
        if r == NULL or now - r.since < of.threshold:
            break
        response_end(e, r, REPORT_TIMEOUT)
        r = first_waiting(of)
    if r != NULL:
        timer_set(&e.env.timers, t, max(r.since + of.threshold, now + 1000000))


cdef void note_forgotten(ServiceImport* of) noexcept nogil:
    # A line in the log, one a second.
    cdef Engine* e = of.account.engine
    cdef Event ev
    cdef char text[400]
    e.stats.forgotten += 1
    if e.env.mono < e.responses.tell_again:
        return
    e.responses.tell_again = e.env.mono + 1000000000
    memset(&ev, 0, sizeof(ev))
    ev.kind = EV_LOG
    ev.account = of.account
    ev.text[0].n = <uint32_t>snprintf(
        text, sizeof(text), b"Forgot the oldest requests to a service of account '%.*s': %d of account '%.*s' wait for replies",
        <int>min(of.to.name.n, <uint32_t>100), <const char*>of.to.name.p, <int>RESPONSES_MAX,
        <int>min(of.account.name.n, <uint32_t>100), <const char*>of.account.name.p)
    ev.text[0].p = <const uint8_t*>text
    outlet_event(e, &ev)


# ---- requesters that leave -----------------------------------------------------------------------------

cdef inline bint is_awaited(Response* r) noexcept nogil:
    return outlet_has_interest(r.to.engine, r.to, r.reply)


cdef void sweep_soon(Account* a) noexcept nogil:
    cdef Engine* e = a.engine
    a.replies.sweep = True
    if e.responses.sweep.pos == 0:
        timer_set(&e.env.timers, &e.responses.sweep, max(e.env.mono + SWEEP_PIECE_NS, e.responses.sweep_again))


cdef void interest_gone(Account* a, Span subject) noexcept nogil:
    # A subscription has ended, by which replies may have been waited for. Those of a pattern, and of many requests with the
    # same, are looked for soon.
    cdef Engine* e = a.engine
    cdef Response* r
    cdef Response* after
    cdef uint32_t ended = 0
    if not subject_is_literal(subject):
        sweep_soon(a)
        return
    r = response_bucket(e, response_hash(a, subject))[0]
    while r != NULL:
        after = r.same
        if r.to == a and span_eq(r.reply, subject):
            if is_awaited(r):
                return
            if ended == SWEEP_PIECE:
                sweep_soon(a)
                return
            response_end(e, r, REPORT_GONE)
            ended += 1
        r = after


cdef void responses_sweep(Timer* t, int64_t now) noexcept nogil:
    # A piece of the table at a time, until all of it was looked through.
    cdef Engine* e = <Engine*>t.owner
    cdef Responses* all = &e.responses
    cdef ListWalk accounts
    cdef Account* a
    cdef Response* r
    cdef Response* after
    cdef Response* awaited
    cdef uint32_t looked = 0
    if all.sweep_at == 0:
        accounts = list_walk(&e.accounts)
        a = account_step(&accounts)
        while a != NULL:
            a.replies.swept = a.replies.sweep
            a.replies.sweep = False
            a = account_step(&accounts)
    while all.sweep_at < all.n_buckets and looked < SWEEP_PIECE:
        r = all.buckets[all.sweep_at]
        awaited = NULL          # many may wait for one reply subject
        while r != NULL and looked < SWEEP_PIECE:
            after = r.same
            if r.to.replies.swept and not (awaited != NULL and r.to == awaited.to and span_eq(r.reply, awaited.reply)):
                looked += 1
                if is_awaited(r):
                    awaited = r
                else:
                    response_end(e, r, REPORT_GONE)
            r = after
        if r != NULL:
            break               # what is gone is gone, the rest of the bucket comes next
        looked += 1
        all.sweep_at += 1
    if all.sweep_at < all.n_buckets:
        timer_set(&e.env.timers, t, now + SWEEP_PIECE_NS)
        return
    all.sweep_at = 0
    all.sweep_again = now + SWEEP_AGAIN_NS
    accounts = list_walk(&e.accounts)
    a = account_step(&accounts)
    while a != NULL:
        if a.replies.sweep:
            timer_set(&e.env.timers, t, all.sweep_again)
            return
        a = account_step(&accounts)
