# A consumer's state as nats-server keeps it in o.dat, version 2: unsigned and zigzag varints behind two bytes.

cdef enum:
    STATE_MAGIC = 22
    STATE_VERSION = 2


cdef int add_uv(Bytes* b, uint64_t v) noexcept nogil:
    cdef uint8_t text[10]
    return bytes_add(b, text, put_uv(text, v))


cdef int add_sv(Bytes* b, int64_t v) noexcept nogil:
    return add_uv(b, (<uint64_t>v << 1) ^ <uint64_t>(v >> 63))


cdef bint get_sv(Span* s, int64_t* v) noexcept nogil:
    cdef uint64_t x
    if not get_uv(s, &x):
        return False
    v[0] = <int64_t>(x >> 1) ^ -<int64_t>(x & 1)
    return True


# ---- writing ---------------------------------------------------------------------------------------------------

cdef int64_t sent_at(Consumer* c, const Pending* e) noexcept nogil:
    # When the entry would have been sent for its deadline to be the usual time later; wall clock, seconds. Rounded up:
    # nothing is redelivered too early. Never before 1970, however long the usual time is.
    cdef int64_t deadline = deadline_of(&c.pending, e)
    if e.place == AT_QUEUE and c.group == NULL:
        deadline = c.env.mono                   # due now
    return max(<int64_t>0, (c.env.now + (deadline - c.env.mono) - wait_of(c, e.deliveries) + SECOND - 1) // SECOND)


cdef int encode_pending(Consumer* c, Bytes* b) noexcept nogil:
    cdef int64_t base = c.env.now // SECOND
    cdef uint32_t i = c.pending.first
    cdef Pending* e
    if add_uv(b, c.pending.n) < 0:
        return -1
    if c.pending.n and add_sv(b, base) < 0:
        return -1
    while i:
        e = entry_at(&c.pending, i)
        if (add_uv(b, sub_wrapped(e.sseq, c.floor_seq)) < 0 or add_uv(b, sub_wrapped(e.dseq, c.floor_dseq)) < 0
                or add_sv(b, base - sent_at(c, e)) < 0):
            return -1
        i = e.next
    return 0


@cython.overflowcheck(False)
cdef inline uint64_t sub_wrapped(uint64_t a, uint64_t b) noexcept nogil:
    return a - b


@cython.overflowcheck(False)
cdef inline uint64_t add_wrapped(uint64_t a, uint64_t b) noexcept nogil:
    return a + b


cdef int encode_redelivered(Consumer* c, Bytes* b) noexcept nogil:
    cdef uint32_t i = c.pending.first
    cdef uint64_t at = 0
    cdef U64Pair given_up
    cdef Pending* e
    if add_uv(b, <uint64_t>c.n_redelivered + c.exhausted.n) < 0:
        return -1
    while i:
        e = entry_at(&c.pending, i)
        if e.deliveries > 1 and (add_uv(b, sub_wrapped(e.sseq, c.floor_seq)) < 0 or add_uv(b, e.deliveries - 1) < 0):
            return -1
        i = e.next
    while u64map_each(&c.exhausted, &at, &given_up):
        if add_uv(b, sub_wrapped(given_up.key, c.floor_seq)) < 0 or add_uv(b, given_up.val - 1) < 0:
            return -1
    return 0


cdef int consumer_encode_state(Consumer* c, Bytes* b) noexcept nogil:
    cdef uint8_t head[2]
    deadlines_finish(c)
    head[0] = STATE_MAGIC
    head[1] = STATE_VERSION
    if (bytes_add(b, head, 2) < 0 or add_uv(b, c.floor_dseq) < 0 or add_uv(b, c.floor_seq) < 0
            or add_uv(b, c.dseq - 1) < 0 or add_uv(b, c.delivered_seq) < 0):
        return -1
    if encode_pending(c, b) < 0:
        return -1
    return encode_redelivered(c, b)


# ---- reading ---------------------------------------------------------------------------------------------------

cdef void restore_deadline(Consumer* c, uint32_t i, int64_t sent) noexcept nogil:
    # sent: wall clock, ns. What is overdue comes soon after the start.
    cdef int64_t deadline
    cdef Pending* e = entry_at(&c.pending, i)
    sent = min(max(sent, <int64_t>0), c.env.now + FOREVER)
    e.sent = c.env.mono - (c.env.now - sent)
    deadline = e.sent + wait_of(c, e.deliveries)
    pending_schedule(&c.pending, i, deadline, c.cfg.n_backoff == 0)


cdef int decode_pending(Consumer* c, Span* s, uint64_t version) noexcept nogil:
    cdef uint64_t n, k, sseq, dseq = 0
    cdef int64_t base, ago, sent
    cdef uint32_t i
    if not get_uv(s, &n):
        return -2
    if n == 0:
        return 0
    if not get_sv(s, &base) or n > s.n:
        return -2
    for k in range(n):
        if not get_uv(s, &sseq) or (version > 1 and not get_uv(s, &dseq)) or not get_sv(s, &ago):
            return -2
        sseq = add_wrapped(sseq, c.floor_seq)
        dseq = add_wrapped(dseq, c.floor_dseq) if version > 1 else c.floor_dseq + k + 1
        sent = <int64_t>sub_wrapped(<uint64_t>base, <uint64_t>ago)
        if sseq == 0 or not (0 <= sent <= INT64_MAX // SECOND) or pending_find(&c.pending, sseq):
            return -2
        i = pending_add(&c.pending, sseq, dseq)
        if i == 0:
            return -1
        restore_deadline(c, i, sent * SECOND)
    return 0


cdef int decode_redelivered(Consumer* c, Span* s) noexcept nogil:
    cdef uint64_t n, k, sseq, more
    cdef uint32_t i
    if not get_uv(s, &n) or n > s.n:
        return -2
    for k in range(n):
        if not get_uv(s, &sseq) or not get_uv(s, &more) or more > UINT32_MAX - 1:
            return -2
        sseq = add_wrapped(sseq, c.floor_seq)
        i = pending_find(&c.pending, sseq)
        if i and more:
            entry_at(&c.pending, i).deliveries = <uint32_t>more + 1
            c.n_redelivered += 1
        elif not i and sseq and u64map_put(&c.exhausted, sseq, more + 1) < 0:
            return -1
    return 0


cdef void forget_state(Consumer* c) noexcept nogil:
    pending_free(&c.pending)
    u64map_free(&c.exhausted)
    c.n_redelivered = 0
    c.dseq = 0
    c.delivered_seq = 0
    c.next = 0
    c.floor_dseq = 0
    c.floor_seq = 0
    c.reset_to = 0


cdef int consumer_decode_state(Consumer* c, Span s) noexcept nogil:
    cdef uint64_t delivered_dseq, delivered_seq
    cdef uint64_t version
    cdef int rc
    if s.n < 2 or s.p[0] != STATE_MAGIC or not (1 <= s.p[1] <= STATE_VERSION):
        return -2
    version = s.p[1]
    s.p += 2
    s.n -= 2
    forget_state(c)
    if (not get_uv(&s, &c.floor_dseq) or not get_uv(&s, &c.floor_seq) or not get_uv(&s, &delivered_dseq)
            or not get_uv(&s, &delivered_seq) or delivered_dseq == UINT64_MAX or delivered_seq == UINT64_MAX):
        return -2
    c.dseq = delivered_dseq + 1
    c.delivered_seq = delivered_seq
    c.next = delivered_seq + 1
    rc = decode_pending(c, &s, version)
    if rc == 0:
        rc = decode_redelivered(c, &s)
    return rc
