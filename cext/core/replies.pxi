# Replies that are waited for, by their ids and by account and reply subject, and those of an import by time.

cdef enum:
    REPLY_PREFIX = 10               # `_R_.` and six characters
    REPLY_DIGITS = 10               # of an id, after one more dot: too many to guess one of RESPONSES_MAX
    REPLY_SIZE = 21
    HALF_IDS = 916132832            # 62 ** 5


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


cdef inline Response* response_at(const ListNode* n) noexcept nogil:
    return <Response*>list_owner(n, &(<Response*>NULL).node)


cdef inline Response* first_waiting(const ServiceImport* of) noexcept nogil:
    return response_at(list_first(&of.waiting))


cdef void response_append(Response* r, int64_t now) noexcept nogil:
    # The last of its import's to run out.
    r.since = now
    list_push_back(&r.of.waiting, &r.node)


cdef void response_free(Engine* e, Response* r) noexcept nogil:
    r.same_from[0] = r.same
    if r.same != NULL:
        r.same.same_from = r.same_from
    u64map_del(&e.responses.by_id, r.id)
    list_remove(&r.node)
    r.of.n -= 1
    r.at.replies.n_answering -= 1
    r.to.replies.n_awaiting -= 1
    bytes_free(&r.report)
    free(r)


cdef void responses_free(Engine* e, ServiceImport* of) noexcept nogil:
    timer_cancel(&e.env.timers, &of.timer)
    while not list_empty(&of.waiting):
        response_free(e, first_waiting(of))


cdef void responses_adopt(Engine* e, ServiceImport* of, ServiceImport* before) noexcept nogil:
    # A client that waits for replies by an import waits on when another import takes its place.
    cdef ListWalk all
    cdef Response* r
    timer_cancel(&e.env.timers, &before.timer)
    list_take(&of.waiting, &before.waiting)
    of.n = before.n
    before.n = 0
    all = list_walk(&of.waiting)
    r = response_at(list_step(&all))
    while r != NULL:
        r.of = of
        r = response_at(list_step(&all))
    timer_set(&e.env.timers, &of.timer, first_waiting(of).since + of.threshold)
