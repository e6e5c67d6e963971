# Batches that are open, of both kinds: how they are found, and their end by silence.

cdef enum:
    BATCH_ID_MAX = 64
    BATCH_SILENCE = 10                  # seconds


cdef struct OpenBatch:
    # What every one begins with.
    Stream* s
    ListNode node                       # its set's
    Timer timer
    int64_t heard                       # mono: when its last message came
    uint64_t last                       # that one's number in the batch
    uint32_t n_id
    uint8_t id[BATCH_ID_MAX]


cdef struct OpenSet:
    StrMap by_id
    List all


cdef struct Batches:
    OpenSet atomic
    OpenSet fast
    uint64_t judged                     # the message of a fast one that is being checked, by its number; 0: none
    bint repeated                       # what is being said rests on a message of another publish, which may not be agreed on
    Timer hurry                         # what fast ones stored goes to the disk
    Task settle                         # at the end of the turn, as somebody waits for an ack of it


cdef inline OpenBatch* batch_at(const ListNode* n) noexcept nogil:
    return <OpenBatch*>list_owner(n, &(<OpenBatch*>NULL).node)


cdef inline Span batch_id(const OpenBatch* b) noexcept nogil:
    return span(&b.id[0], b.n_id)


cdef inline int64_t batch_silence(const Stream* s) noexcept nogil:
    cdef int64_t ns = s.place.batch_room.timeout
    return ns if ns > 0 else BATCH_SILENCE * <int64_t>SECOND


cdef inline int64_t at_most(int64_t configured, int64_t otherwise) noexcept nogil:
    return configured if configured > 0 else otherwise


cdef void fast_hurry(Timer* t, int64_t now) noexcept nogil:
    store_hurry((<Stream*>t.owner).store)


cdef void fast_settle(Task* t) noexcept nogil:
    store_hurry((<Stream*>t.owner).store)


cdef Batches* batches_of(Stream* s) noexcept nogil:
    # NULL: no memory
    if s.batches == NULL:
        s.batches = <Batches*>calloc(1, sizeof(Batches))
        if s.batches != NULL:
            s.batches.hurry.fn = fast_hurry
            s.batches.hurry.owner = s
            s.batches.settle.fn = fast_settle
            s.batches.settle.owner = s
    return s.batches


cdef OpenBatch* batch_open(Stream* s, OpenSet* of, size_t size, Span id, timer_fn silent) noexcept nogil:
    # NULL: no memory
    cdef OpenBatch* b = <OpenBatch*>calloc(1, size)
    if b == NULL or strmap_put(&of.by_id, id, b) < 0:
        free(b)
        return NULL
    b.s = s
    b.timer.fn = silent
    b.timer.owner = b
    b.heard = s.env.mono
    b.n_id = id.n
    memcpy(&b.id[0], id.p, id.n)
    if timer_set(&s.env.timers, &b.timer, b.heard + batch_silence(s)) < 0:
        strmap_del(&of.by_id, id)
        free(b)
        return NULL
    list_push_front(&of.all, &b.node)
    return b


cdef void batch_close(OpenSet* of, OpenBatch* b) noexcept nogil:
    timer_cancel(&b.s.env.timers, &b.timer)
    strmap_del(&of.by_id, batch_id(b))
    list_remove(&b.node)
    free(b)


cdef bint batch_waits(OpenBatch* b, int64_t now) noexcept nogil:
    # Its timer has run out: whether something came since it was set, and it is set again.
    cdef int64_t rest = b.heard + batch_silence(b.s) - now
    return rest > 0 and timer_set(&b.s.env.timers, &b.timer, now + rest) == 0


cdef void batch_abandoned(Stream* s, Span id, const char* reason) noexcept nogil:
    # Told only when somebody listens.
    cdef Bytes b
    cdef Event e
    cdef void* system = s.place.batch_room.system
    cdef Span subject
    cdef bint heard
    memset(&b, 0, sizeof(Bytes))
    heard = add_text(&b, b"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.") == 0 and add_span(&b, s.cfg.name) == 0
    subject = span(b.data, <uint32_t>b.n)
    if heard and (s.env.out.has_interest(s.env.out.ctx, s.account, subject)
                  or (system != NULL and s.env.out.has_interest(s.env.out.ctx, system, subject))):
        memset(&e, 0, sizeof(Event))
        e.kind = EV_BATCH_GONE
        e.account = s.account
        e.text[0] = s.cfg.name
        e.text[1] = id
        e.text[2] = span_c(reason)
        s.env.out.event(s.env.out.ctx, &e)
    bytes_free(&b)


# ---- their acks ------------------------------------------------------------------------------------------------------

cdef int add_quoted(Bytes* b, Span s) noexcept nogil:
    # In quotes, < and > and & as they are: so ids are shown in PubAcks. 0 | -1 no memory
    cdef uint32_t i
    cdef int rc = bytes_add(b, b"\"", 1)
    for i in range(s.n):
        if s.p[i] == c'<' or s.p[i] == c'>' or s.p[i] == c'&':
            rc |= bytes_add(b, s.p + i, 1)
        else:
            rc |= add_json_text(b, span(s.p + i, 1))
    return rc | bytes_add(b, b"\"", 1)


cdef int add_batch_members(Bytes* b, Span id, uint64_t count) noexcept nogil:
    # What a PubAck says of a batch. 0 | -1 no memory
    if (add_text(b, b",\"batch\":") < 0 or add_quoted(b, id) < 0 or add_text(b, b",\"count\":") < 0
            or add_u64(b, count) < 0):
        return -1
    return 0
