# Requests that went to a service of another account and wait for replies. Each has a reply subject of its own in the
# exporting account, `_R_.<account>.<id>`; what is sent there goes to the requester's own in its account.

cdef enum:
    RESPONSES_MAX = 262144          # of one import; beyond it the oldest is forgotten
    REPLY_PREFIX = 10               # `_R_.` and six characters
    REPLY_DIGITS = 10               # of an id, after one more dot: too many to guess one of RESPONSES_MAX
    REPLY_SIZE = 21
    TRACKED_SIZE = 32               # with `.<server>.T` behind
    HALF_IDS = 916132832            # 62 ** 5
    SWEEP_PIECE = 1024
    SWEEP_PIECE_NS = 5000000
    SWEEP_AGAIN_NS = 500000000      # from the end of a sweep to the next one


cdef inline uint64_t response_hash(const Account* to, Span reply) noexcept nogil:
    return table_hash(reply.p, reply.n) ^ (<uint64_t>to.id << 32)


cdef uint8_t digit_of[256]

for _digit in range(256):
    digit_of[_digit] = 62       # none
for _digit in range(62):
    digit_of[base62(_digit)] = _digit


cdef inline void half_put(uint8_t* p, uint32_t v) noexcept nogil:
    # The last digit first.
    cdef uint32_t i
    for i in range(REPLY_DIGITS // 2):
        p[i] = base62(v % 62)
        v //= 62


cdef inline void reply_put(uint8_t* p, uint64_t id) noexcept nogil:
    # As halves of 32 bits, whose digits cost less.
    half_put(p, <uint32_t>(id % HALF_IDS))
    half_put(p + REPLY_DIGITS // 2, <uint32_t>(id // HALF_IDS))


cdef inline uint64_t reply_draw(Env* e) noexcept nogil:
    # A 32-bit number for each half, scaled to what its digits hold.
    cdef uint64_t drawn = env_secret(e), half = HALF_IDS
    return (((drawn >> 32) * half) >> 32) * half + ((<uint64_t><uint32_t>drawn * half) >> 32)


cdef uint64_t reply_id(Span subject) noexcept nogil:
    # The id in a reply subject; 0: it is none.
    cdef uint64_t id = 0
    cdef uint32_t i
    cdef uint8_t digit
    if subject.n < REPLY_SIZE or (subject.n > REPLY_SIZE and subject.p[REPLY_SIZE] != c'.'):
        return 0
    for i in range(REPLY_DIGITS):
        digit = digit_of[subject.p[REPLY_SIZE - 1 - i]]
        if digit == 62:
            return 0
        id = id * 62 + digit
    return id


# ---- the tables: by id, and by account and reply -------------------------------------------------------

cdef Response* response_find(Engine* e, uint64_t id) noexcept nogil:
    cdef uint64_t found
    return <Response*>found if id and u64map_get(&e.responses.by_id, id, &found) else NULL


cdef inline Response** response_bucket(Engine* e, uint64_t hash) noexcept nogil:
    return &e.responses.buckets[hash & (e.responses.n_buckets - 1)]


cdef inline void bucket_add(Response** at, Response* r) noexcept nogil:
    r.same = at[0]
    if r.same != NULL:
        r.same.same_from = &r.same
    r.same_from = at
    at[0] = r


cdef int responses_grow(Engine* e) noexcept nogil:
    cdef Responses* all = &e.responses
    cdef uint32_t n = 2 * all.n_buckets if all.n_buckets else 64, i
    cdef Response** buckets = <Response**>calloc(n, sizeof(Response*))
    cdef Response* r
    cdef Response* after
    if buckets == NULL:
        return -1
    for i in range(all.n_buckets):
        r = all.buckets[i]
        while r != NULL:
            after = r.same
            bucket_add(&buckets[r.hash & (n - 1)], r)
            r = after
    free(all.buckets)
    all.buckets = buckets
    all.n_buckets = n
    return 0


cdef void response_append(Response* r, int64_t now) noexcept nogil:
    # The last of its import's to run out.
    cdef ServiceImport* of = r.of
    r.since = now
    r.next = NULL
    r.prev = of.last
    if of.last != NULL:
        of.last.next = r
    else:
        of.first = r
    of.last = r


cdef void response_unlink(Response* r) noexcept nogil:
    cdef ServiceImport* of = r.of
    if r.prev != NULL:
        r.prev.next = r.next
    else:
        of.first = r.next
    if r.next != NULL:
        r.next.prev = r.prev
    else:
        of.last = r.prev


cdef void response_free(Engine* e, Response* r) noexcept nogil:
    r.same_from[0] = r.same
    if r.same != NULL:
        r.same.same_from = r.same_from
    u64map_del(&e.responses.by_id, r.id)
    response_unlink(r)
    r.of.n -= 1
    r.at.n_answering -= 1
    r.to.n_awaiting -= 1
    bytes_free(&r.report)
    free(r)


cdef void responses_free(Engine* e, ServiceImport* of) noexcept nogil:
    timer_cancel(&e.env.timers, &of.timer)
    while of.first != NULL:
        response_free(e, of.first)


cdef void responses_adopt(Engine* e, ServiceImport* of, ServiceImport* before) noexcept nogil:
    # Whoever waits for replies by an import that takes the place of another waits on.
    cdef Response* r = before.first
    timer_cancel(&e.env.timers, &before.timer)
    of.first = before.first
    of.last = before.last
    of.n = before.n
    before.first = before.last = NULL
    before.n = 0
    while r != NULL:
        r.of = of
        r = r.next
    timer_set(&e.env.timers, &of.timer, of.first.since + of.threshold)


# ---- their lives ---------------------------------------------------------------------------------------

cdef int answer_here(Account* a) noexcept nogil:
    # The account's replies have a prefix, and somebody takes what is sent there. 0 | -1 no memory.
    cdef Sub* s
    cdef uint8_t pattern[REPLY_PREFIX + 2]
    if a.answers:
        return 0
    memcpy(a.reply_prefix, b"_R_.", 4)
    env_token(&a.engine.env, a.reply_prefix + 4, REPLY_PREFIX - 4)
    memcpy(pattern, a.reply_prefix, REPLY_PREFIX)
    memcpy(pattern + REPLY_PREFIX, b".>", 2)
    s = account_serve(a, span(pattern, REPLY_PREFIX + 2), HEARS_ALL | LISTENS, NULL)
    if s == NULL:
        return -1
    s.link = LINK_REPLY
    a.answers = True
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
        response_end(e, of.first, REPORT_UNAVAILABLE)
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
    at.n_answering += 1
    to.n_awaiting += 1
    if of.timer.pos == 0:
        timer_set(&e.env.timers, &of.timer, e.env.mono + of.threshold)
    return r


cdef uint32_t response_subject(const Response* r, uint8_t* text) noexcept nogil:
    # What answers go to; at most TRACKED_SIZE bytes.
    memcpy(text, r.at.reply_prefix, REPLY_PREFIX)
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
    cdef uint32_t i
    for i in range(SWEEP_PIECE):
        if of.first == NULL or now - of.first.since < of.threshold:
            break
        response_end(e, of.first, REPORT_TIMEOUT)
    if of.first != NULL:
        timer_set(&e.env.timers, t, max(of.first.since + of.threshold, now + 1000000))


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
    a.sweep = True
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
    cdef Account* a
    cdef Response* r
    cdef Response* after
    cdef Response* awaited
    cdef uint32_t looked = 0
    if all.sweep_at == 0:
        a = e.first_account
        while a != NULL:
            a.swept = a.sweep
            a.sweep = False
            a = a.next
    while all.sweep_at < all.n_buckets and looked < SWEEP_PIECE:
        r = all.buckets[all.sweep_at]
        awaited = NULL          # many may wait for one reply subject
        while r != NULL and looked < SWEEP_PIECE:
            after = r.same
            if r.to.swept and not (awaited != NULL and r.to == awaited.to and span_eq(r.reply, awaited.reply)):
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
    a = e.first_account
    while a != NULL:
        if a.sweep:
            timer_set(&e.env.timers, t, all.sweep_again)
            return
        a = a.next
