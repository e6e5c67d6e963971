# What a consumer's records say, read from its log or from a leader's, and applied to its state.

cdef struct Replayed:
    # Of one consumer not yet open.
    Bytes records
    Bytes known             # hash and time of files, as KnownState
    uint64_t resume
    bint hole               # entries are missing before what comes next


cdef struct KnownState:
    uint64_t hash
    uint64_t time


# ---- reading ---------------------------------------------------------------------------------------------------------

cdef struct ReplayContext:
    Consumers* k
    U64Map names            # id -> Replayed*


cdef void replayed_free(Replayed* r) noexcept nogil:
    bytes_free(&r.records)
    bytes_free(&r.known)
    free(r)


cdef Replayed* replayed_named(Consumers* k, Span name) noexcept nogil:
    cdef Replayed* r = <Replayed*>strmap_get(&k.replayed, name)
    if r != NULL:
        return r
    r = <Replayed*>calloc(1, sizeof(Replayed))
    if r != NULL and strmap_put(&k.replayed, name, r) < 0:
        free(r)
        return NULL
    return r


cdef uint32_t record_numbers(uint8_t kind) noexcept nogil:
    # How many numbers follow the id; -1 for an unknown kind.
    if kind == LOG_DELIVERED:
        return 4
    if kind == LOG_RESET:
        return 3
    if kind == LOG_ACKED_UPTO or kind == LOG_DEADLINE or kind == LOG_KNOWN or kind == LOG_TRUNCATED:
        return 2
    if kind == LOG_ACKED or kind == LOG_EXHAUSTED or kind == LOG_PASSED:
        return 1
    return 0 if kind == LOG_DELETED else UINT32_MAX


cdef bint record_name(Span* s, uint64_t* resume, Span* name) noexcept nogil:
    # Takes off what follows the head of a name. False: damaged
    cdef uint64_t n
    if not get_uv(s, resume) or not get_uv(s, &n) or n > s.n:
        return False
    name[0] = span(s.p, <uint32_t>n)
    s.p += n
    s.n -= <uint32_t>n
    return True


cdef int replay_name(ReplayContext* x, Span* s, uint64_t id) noexcept nogil:
    cdef uint64_t resume
    cdef Span name
    cdef Replayed* r
    if not record_name(s, &resume, &name):
        return -1
    r = replayed_named(x.k, name)
    if r == NULL or u64map_put(&x.names, id, <uint64_t>r) < 0:
        return -1
    r.resume = resume
    r.known.n = 0                               # what is known follows
    x.k.next_id = max(x.k.next_id, <uint32_t>id + 1)
    return 0


cdef int replay_known(Replayed* r, Span body) noexcept nogil:
    cdef KnownState known
    get_uv(&body, &known.hash)
    get_uv(&body, &known.time)
    return bytes_add(&r.known, &known, sizeof(KnownState))


cdef bint record_head(Span* s, uint8_t* kind, uint64_t* id) noexcept nogil:
    # Takes off what a record of an entry, which is not empty, starts with. False: damaged
    kind[0] = s.p[0]
    s.p += 1
    s.n -= 1
    return get_uv(s, id) and 0 < id[0] < UINT32_MAX


cdef bint record_body(Span* s, uint8_t kind, Span* body) noexcept nogil:
    # Takes off what follows, of all but a name. False: damaged
    cdef uint64_t n
    cdef uint32_t numbers
    body[0] = s[0]
    if kind == LOG_STATE:
        if not get_uv(s, &n) or n > s.n:
            return False
        s.p += n
        s.n -= <uint32_t>n
    else:
        numbers = record_numbers(kind)
        if numbers == UINT32_MAX:
            return False
        while numbers:
            numbers -= 1
            if not get_uv(s, &n):
                return False
    body.n -= s.n
    return True


cdef int replay_record(ReplayContext* x, Span* s) noexcept nogil:
    # Takes one record off and keeps it for its consumer, without the id. 0 | -1 damaged, or no memory
    cdef uint8_t kind, hole = LOG_HOLE
    cdef uint64_t id, found
    cdef Span body, rest
    cdef Replayed* r = NULL
    if not record_head(s, &kind, &id):
        return -1
    if kind == LOG_NAME:
        return replay_name(x, s, id)
    if not record_body(s, kind, &body):
        return -1
    if not u64map_get(&x.names, id, &found):
        return 0
    r = <Replayed*>found
    if kind == LOG_KNOWN:
        return replay_known(r, body)
    if kind == LOG_DELETED or kind == LOG_STATE:
        r.records.n = 0
        r.hole = False
    if kind == LOG_DELETED:
        r.known.n = 0
        return 0
    if r.hole and bytes_add(&r.records, &hole, 1) < 0:
        return -1
    r.hole = False
    if kind == LOG_TRUNCATED:
        rest = body
        get_uv(&rest, &found)
        r.resume = min(r.resume, found + 1)     # a list of last messages goes no further
    if kind == LOG_RESET:
        rest = body
        get_uv(&rest, &found)
        get_uv(&rest, &r.resume)
    return 0 if bytes_add(&r.records, &kind, 1) == 0 and add_span(&r.records, body) == 0 else -1


cdef void replay_hole(Consumers* k) noexcept nogil:
    cdef uint32_t i
    for i in range(k.replayed.cap):
        if k.replayed.keys[i] != NULL:
            (<Replayed*>k.replayed.vals[i]).hole = True


cdef int replay_entry(void* ctx, Span entry) noexcept nogil:
    if entry.n == 0:
        replay_hole((<ReplayContext*>ctx).k)
    while entry.n:
        if replay_record(<ReplayContext*>ctx, &entry) < 0:
            return -1
    return 0


# ---- applying --------------------------------------------------------------------------------------------------------

cdef void replay_delivered(Consumer* c, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t sent) noexcept nogil:
    cdef uint32_t i
    if dseq < c.dseq:
        return
    c.dseq = dseq + 1
    if sseq > c.delivered_seq:
        c.delivered_seq = sseq
        c.next = max(c.next, sseq + 1)
        if c.cfg.ack_policy == ACK_POLICY_NONE:
            c.floor_dseq = dseq
            c.floor_seq = sseq
            return
        i = pending_find(&c.pending, sseq)
        if i == 0:
            i = pending_add(&c.pending, sseq, dseq)
    else:
        i = pending_find(&c.pending, sseq)
    if i == 0:
        return
    if deliveries > 1 and entry_at(&c.pending, i).deliveries == 1:
        c.n_redelivered += 1
    entry_at(&c.pending, i).deliveries = <uint32_t>min(max(deliveries, <uint64_t>1), <uint64_t>UINT32_MAX)
    restore_deadline(c, i, sent)


cdef void replay_upto(Consumer* c, uint64_t sseq, uint64_t dseq) noexcept nogil:
    cdef uint32_t i
    while c.pending.first and entry_at(&c.pending, c.pending.first).sseq <= sseq:
        i = c.pending.first
        drop_pending(c, i)
    c.floor_seq = max(c.floor_seq, sseq)
    c.floor_dseq = max(c.floor_dseq, dseq)


cdef void replay_apply(Consumer* c, uint8_t kind, const uint64_t* v) noexcept nogil:
    cdef uint32_t i = pending_find(&c.pending, v[0])
    if kind == LOG_DELIVERED:
        replay_delivered(c, v[0], v[1], v[2], <int64_t>v[3])
    elif kind == LOG_ACKED:
        u64map_del(&c.exhausted, v[0])
        if i:
            take_out(c, i)
    elif kind == LOG_ACKED_UPTO:
        replay_upto(c, v[0], v[1])
    elif kind == LOG_EXHAUSTED and i:
        u64map_put(&c.exhausted, v[0], entry_at(&c.pending, i).deliveries)
        drop_pending(c, i)
    elif kind == LOG_PASSED and c.delivered_seq < v[0] < UINT64_MAX:
        c.delivered_seq = v[0]
        c.next = max(c.next, v[0] + 1)
    elif kind == LOG_DEADLINE and i:
        restore_deadline(c, i, <int64_t>v[1])
    elif kind == LOG_TRUNCATED:
        c.dseq = min(c.dseq, v[1])      # also of a newer state: what follows says again how that came about
        go_back(c, v[0])
    elif kind == LOG_RESET and v[0]:
        stand_at(c, v[0], v[1], v[2] != 0)      # likewise


cdef int replay_unknown(Consumer* c, uint8_t kind, uint64_t sseq) noexcept nogil:
    # The first record behind a hole that goes further: which of the messages up to its own were delivered is not known, so
    # they are delivered again. 0 | -1 no memory
    cdef uint64_t seq = c.next, end
    cdef uint32_t i
    cdef StoreState state
    store_state(c.s.store, &state)
    end = min(sseq, state.last_seq)
    if kind == LOG_PASSED or kind == LOG_DEADLINE:
        end += 1                # its own as well
    while c.cfg.ack_policy != ACK_POLICY_NONE and seq < end:
        seq = store_next_seq(c.s.store, NULL if c.filter.all else &c.filter, seq)
        if seq == 0 or seq >= end:
            break
        i = pending_add(&c.pending, seq, c.dseq)
        if i == 0:
            return -1
        restore_deadline(c, i, 0)
        seq += 1
    if kind != LOG_DELIVERED:
        c.delivered_seq = sseq
        c.next = max(c.next, sseq + 1)
    return 0


cdef int replay_state(Consumer* c, Span state) noexcept nogil:
    # The log's state, unless the file's is newer.
    cdef Span head = span(state.p + 2, state.n - 2) if state.n > 2 else span(NULL, 0)
    cdef uint64_t v = 0
    cdef int i
    for i in range(3):                          # the third number is the last delivery
        if not get_uv(&head, &v):
            return -2
    if v + 1 < c.dseq:
        return 0
    return consumer_decode_state(c, state)


# ---- files -----------------------------------------------------------------------------------------------------------

cdef bint file_differs(const Replayed* r, const StateFile* file) noexcept nogil:
    # Whether the log knows files of the consumer's and this is another one.
    cdef const KnownState* known = <const KnownState*>r.known.data
    cdef uint64_t hash = state_hash(file.bytes)
    cdef size_t i
    for i in range(r.known.n // sizeof(KnownState)):
        if known[i].hash == hash:
            return False
    return r.known.n > 0 and file.bytes.n > 0


cdef bint file_damaged(const Replayed* r, const StateFile* file) noexcept nogil:
    # Of a file that differs: whether its bytes changed, but nobody wrote it.
    cdef const KnownState* known = <const KnownState*>r.known.data
    cdef size_t i
    for i in range(r.known.n // sizeof(KnownState)):
        if known[i].hash and known[i].time == <uint64_t>file.time:
            return True
    return False


cdef int consumer_replay(Consumer* c, Replayed* r) noexcept nogil:
    # What the log says, over the state at hand. 0 | -1 no memory | -2 damaged
    cdef Span s = span(r.records.data, <uint32_t>r.records.n)
    cdef uint8_t kind
    cdef uint64_t v[4]
    cdef uint64_t n
    cdef uint32_t i
    cdef bint hole = False
    cdef int rc
    while s.n:
        kind = s.p[0]
        s.p += 1
        s.n -= 1
        if kind == LOG_HOLE:
            hole = True
            continue
        if kind == LOG_STATE:
            if not get_uv(&s, &n) or n > s.n:
                return -2
            rc = replay_state(c, span(s.p, <uint32_t>n))
            s.p += n
            s.n -= <uint32_t>n
            if rc < 0:
                return rc
            continue
        memset(v, 0, sizeof(v))
        for i in range(record_numbers(kind)):
            if not get_uv(&s, &v[i]):
                return -2
        if kind == LOG_RESET:
            hole = False
        if hole and kind != LOG_TRUNCATED and c.delivered_seq < v[0] < UINT64_MAX:
            if replay_unknown(c, kind, v[0]) < 0:
                return -1
            hole = kind != LOG_DELIVERED
        replay_apply(c, kind, v)
    return 0
