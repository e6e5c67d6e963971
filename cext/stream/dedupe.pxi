# The window of deduplication: ids in the order in which they were stored, found through their hashes.
# An entry lies in the queue as a head and the bytes of the id; different ids with the same hash take the next keys.

cdef enum:
    DEDUPE_PROBES = 8
    DEDUPE_PAUSE = 50 * 1000000         # between two turns of expiry, ns
    DEDUPE_TURN = 10000                 # entries that one turn lets go at most
    DEDUPE_READ = 500                   # messages that one turn reads
    PUBLISH_LATER = 2           # of publish_now: it waits for a look that was begun
    DEDUPE_PUBLISH = 250                # publishes that waited for it, and go on in one turn


cdef struct IdHead:
    int64_t at              # when it was stored, on the monotonic clock: a wall clock that is set does not matter
    uint64_t seq
    uint64_t key            # under which by_hash knows it
    uint32_t n


cdef inline uint64_t id_hash(Span id) noexcept nogil:
    cdef uint64_t h = table_hash(id.p, id.n)
    return h if 0 < h < UINT64_MAX - DEDUPE_PROBES else 1


cdef inline uint8_t* id_at(Dedupe* d, uint64_t position) noexcept nogil:
    return d.ids.b.data + (position - d.ids.base)


cdef bint dedupe_find(Dedupe* d, Span id, uint64_t* seq) noexcept nogil:
    cdef uint64_t key = id_hash(id), position
    cdef IdHead head
    cdef int i
    for i in range(DEDUPE_PROBES):
        if not u64map_get(&d.by_hash, key + i, &position):
            return False
        memcpy(&head, id_at(d, position - 1), sizeof(IdHead))
        if head.n == id.n and memcmp(id_at(d, position - 1) + sizeof(IdHead), id.p, id.n) == 0:
            seq[0] = head.seq
            return True
    return False


cdef int dedupe_add(Stream* s, Span id, uint64_t seq, int64_t ts) noexcept nogil:
    # In place of an older message with this id, which only a stream still has whose clock is behind that of whoever decided
    # that the window was over. Without memory the id is not remembered: -1.
    cdef Dedupe* d = &s.dedupe
    cdef IdHead head
    cdef IdHead old
    cdef uint64_t position
    cdef uint8_t* p
    cdef int i
    head.at = s.env.mono - max(elapsed(s.env.now, ts), <int64_t>0)
    head.seq = seq
    head.n = id.n
    head.key = id_hash(id)
    for i in range(DEDUPE_PROBES):
        if not u64map_get(&d.by_hash, head.key, &position):
            break
        memcpy(&old, id_at(d, position - 1), sizeof(IdHead))
        if old.n == id.n and memcmp(id_at(d, position - 1) + sizeof(IdHead), id.p, id.n) == 0:
            break
        head.key += 1
    else:
        return -1
    p = fifo_add(&d.ids, sizeof(IdHead) + id.n)
    if p == NULL:
        return -1
    memcpy(p, &head, sizeof(IdHead))
    memcpy(p + sizeof(IdHead), id.p, id.n)
    position = d.ids.base + <uint64_t>(p - d.ids.b.data)
    if u64map_put(&d.by_hash, head.key, position + 1) < 0:
        d.ids.b.n -= sizeof(IdHead) + id.n
        return -1
    d.n += 1
    if d.timer.pos == 0:
        timer_set(&s.env.timers, &d.timer, head.at + s.cfg.window)
    return 0


cdef void dedupe_expire(Timer* t, int64_t now) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef Dedupe* d = &s.dedupe
    cdef IdHead head
    cdef int64_t rest
    cdef uint64_t position
    cdef int i
    for i in range(DEDUPE_TURN):
        if d.n == 0:
            return
        memcpy(&head, d.ids.b.data + d.ids.head, sizeof(IdHead))
        rest = head.at + s.cfg.window - now
        if rest > 0:
            timer_set(&s.env.timers, t, now + max(rest, DEDUPE_PAUSE))
            return
        if u64map_get(&d.by_hash, head.key, &position) and position == d.ids.base + d.ids.head + 1:
            u64map_del(&d.by_hash, head.key)
        fifo_drop(&d.ids, sizeof(IdHead) + head.n)
        d.n -= 1
    if d.n:
        timer_set(&s.env.timers, t, now + 1)


cdef void dedupe_cut(Stream* s, uint64_t seq) noexcept nogil:
    # Ids of messages behind seq are not known any more; those they came in place of are. Their bytes stay until they age.
    cdef Dedupe* d = &s.dedupe
    cdef size_t at = d.ids.head
    cdef uint64_t position, known
    cdef IdHead head
    d.unread = min(d.unread, seq)
    while at < d.ids.b.n:
        memcpy(&head, d.ids.b.data + at, sizeof(IdHead))
        position = d.ids.base + at + 1
        if head.seq <= seq:
            u64map_put(&d.by_hash, head.key, position)
        elif u64map_get(&d.by_hash, head.key, &known) and known == position:
            u64map_del(&d.by_hash, head.key)
        at += sizeof(IdHead) + head.n


cdef void dedupe_free(Stream* s) noexcept nogil:
    timer_cancel(&s.env.timers, &s.dedupe.timer)
    wait_cancel(&s.dedupe.cold)
    u64map_free(&s.dedupe.by_hash)
    fifo_free(&s.dedupe.ids)
    s.dedupe.n = 0


# ---- the messages that were there at the start -----------------------------------------------------------------------
# Their ids are read when the first one asks for any. Where that takes more than a turn, all publishes to this stream wait for
# it, in their order; nobody else does. So they do for one that expects what is looked for in turns.

cdef struct WaitingHead:
    # A publish; subject, reply, header and data follow.
    uint64_t cid
    int kind
    uint32_t n_subject
    uint32_t n_reply
    uint32_t n_header
    uint32_t n_data


cdef uint64_t dedupe_next(Stream* s) noexcept nogil:
    cdef Dedupe* d = &s.dedupe
    if d.read_at == 0:
        d.read_at = max(store_seq_at(s.store, s.env.now - s.cfg.window), <uint64_t>1)
    return store_next_seq(s.store, NULL, d.read_at)


cdef inline bint dedupe_cold(Stream* s) noexcept nogil:
    # Whether the next of them are still on the disk. The turn comes when they are in memory.
    return not store_warm(s.store, dedupe_next(s), &s.dedupe.cold)


cdef void dedupe_piece(Stream* s) noexcept nogil:
    cdef Dedupe* d = &s.dedupe
    cdef Record r
    cdef Span id
    cdef uint64_t seq = dedupe_next(s), upto, old
    if seq == 0 or seq > d.unread:
        d.unread = 0
        return
    upto = min(d.unread, seq + DEDUPE_READ - 1)
    while store_next_headed(s.store, seq, upto, &r) == ST_OK:
        seq = r.seq + 1
        id = header_get(r.header, b"Nats-Msg-Id")
        if id.n and not dedupe_find(d, id, &old):
            dedupe_add(s, id, r.seq, r.ts)
    d.read_at = upto + 1
    if upto == d.unread:
        d.unread = 0


cdef inline bint ids_unread(const Stream* s) noexcept nogil:
    return s.dedupe.unread != 0 and s.cfg.window > 0 and s.failed == 0


cdef inline bint ids_wanted(const Stream* s) noexcept nogil:
    return s.dedupe.asked and ids_unread(s)


cdef void dedupe_read(Stream* s) noexcept nogil:
    # All of them at once.
    while ids_unread(s):
        dedupe_piece(s)


cdef int publish_keep(Fifo* q, const Msg* m) noexcept nogil:
    # 0 | -1 no memory
    cdef WaitingHead h
    cdef uint8_t* p = fifo_add(q, sizeof(WaitingHead) + <size_t>m.subject.n + m.reply.n + m.header.n + m.data.n)
    if p == NULL:
        return -1
    h.cid = m.cid
    h.kind = m.kind
    h.n_subject = m.subject.n
    h.n_reply = m.reply.n
    h.n_header = m.header.n
    h.n_data = m.data.n
    memcpy(p, &h, sizeof(WaitingHead))
    p = put_bytes(p + sizeof(WaitingHead), m.subject)
    p = put_bytes(p, m.reply)
    p = put_bytes(p, m.header)
    put_bytes(p, m.data)
    return 0


cdef uint8_t* publish_taken(Fifo* q) noexcept nogil:
    # The first that waits, taken out; NULL without memory: nobody hears of it, and its sender tries again.
    cdef WaitingHead h
    cdef size_t n
    cdef uint8_t* p
    memcpy(&h, q.b.data + q.head, sizeof(WaitingHead))
    n = sizeof(WaitingHead) + <size_t>h.n_subject + h.n_reply + h.n_header + h.n_data
    p = <uint8_t*>malloc(n)
    if p != NULL:
        memcpy(p, q.b.data + q.head, n)
    fifo_drop(q, n)
    return p


cdef void publish_read(Stream* s, const uint8_t* p, Msg* m) noexcept nogil:
    # Views of what publish_taken gave.
    cdef WaitingHead h
    memcpy(&h, p, sizeof(WaitingHead))
    memset(m, 0, sizeof(Msg))
    m.dest = span(p + sizeof(WaitingHead), h.n_subject)
    m.subject = m.dest
    m.reply = span(m.dest.p + h.n_subject, h.n_reply)
    m.header = span(m.reply.p + h.n_reply, h.n_header)
    m.data = span(m.header.p + h.n_header, h.n_data)
    m.cid = h.cid
    m.kind = h.kind
    m.account = s.account


cdef void publish_kept(Stream* s) noexcept nogil:
    # The first that waits goes on; what comes of it may lead to others, so it is taken out before.
    cdef Dedupe* d = &s.dedupe
    cdef Msg m
    cdef uint8_t* p = <uint8_t*>d.first
    d.first = NULL
    if p == NULL:
        p = publish_taken(&d.waiting)
    if p == NULL:
        return
    publish_read(s, p, &m)
    if publish_now(s, &m) == PUBLISH_LATER:
        d.first = p
        return
    pattern_free(s)            # where it was refused before it came to that
    free(p)


cdef inline bint publishes_wait(const Stream* s) noexcept nogil:
    return s.dedupe.first != NULL or s.dedupe.waiting.head < s.dedupe.waiting.b.n


cdef bint pattern_piece(Stream* s) noexcept nogil:
    # For what the first that waits expects; whether it takes more.
    cdef PatternLook* look = s.dedupe.look
    if look != NULL and not look.known:
        look.known = store_last_some(s.store, &look.filter, &look.at, &look.seq) != 1
        return not look.known
    return False


cdef bint pattern_keep(Stream* s, const PatternLook* look) noexcept nogil:
    # It goes on in turns; False: no memory.
    s.dedupe.look = <PatternLook*>malloc(sizeof(PatternLook))
    if s.dedupe.look == NULL:
        return False
    s.dedupe.look[0] = look[0]
    return True


cdef void pattern_free(Stream* s) noexcept nogil:
    if s.dedupe.look != NULL:
        filter_free(&s.dedupe.look.filter)
    free(s.dedupe.look)
    s.dedupe.look = NULL


cdef int publish_later(Stream* s, const Msg* m) noexcept nogil:
    # It waits for a look, and those behind it for it.
    cdef Dedupe* d = &s.dedupe
    d.reading = True
    if publish_keep(&d.waiting, m) == 0:
        task_post(&s.env.tasks, &d.turn)
        return 1
    while pattern_piece(s):            # without memory at once
        pass
    publish_now(s, m)
    pattern_free(s)
    d.reading = False
    return 1


cdef void dedupe_turn(Task* t) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef uint32_t left = DEDUPE_PUBLISH
    if s.dedupe.rolling != NULL:
        roll_up_piece(s)
        left = 0
    elif ids_wanted(s):
        if dedupe_cold(s):
            return
        dedupe_piece(s)
        left = 0
    elif s.dedupe.look != NULL:     # with it the turn has done enough
        left = 0 if pattern_piece(s) else 1
    while left and publishes_wait(s):
        publish_kept(s)
        left = left - 1 if s.dedupe.look == NULL and s.dedupe.rolling == NULL else 0
    s.dedupe.reading = s.dedupe.rolling != NULL or ids_wanted(s) or publishes_wait(s)
    if s.dedupe.reading:
        task_post(&s.env.tasks, t)


cdef void dedupe_finish(Stream* s) noexcept nogil:
    # Whoever waits goes on now.
    if not s.dedupe.reading:
        return
    if ids_wanted(s):
        dedupe_read(s)
    roll_up_finish(s)
    while publishes_wait(s):
        if not pattern_piece(s):
            publish_kept(s)
        roll_up_finish(s)
    wait_cancel(&s.dedupe.cold)
    s.dedupe.reading = False


cdef bint publish_waits(Stream* s, const Msg* m, bint asks) noexcept nogil:
    # Whether a publish, which asks for an id or not, waits for those that are not read yet; it is kept then.
    cdef Dedupe* d = &s.dedupe
    if not d.reading:
        if not asks or not ids_unread(s) or s.staging != NULL:
            return False
        if not dedupe_cold(s):
            dedupe_piece(s)
            if not ids_unread(s):
                return False
    d.asked = d.asked or asks
    if d.waiting.b.n - d.waiting.head > HELD_MAX or publish_keep(&d.waiting, m) < 0:
        d.reading = True
        dedupe_finish(s)
        return False
    d.reading = True
    task_post(&s.env.tasks, &d.turn)
    return True


cdef void dedupe_window_changed(Stream* s) noexcept nogil:
    if s.cfg.window <= 0:
        dedupe_free(s)
        if s.dedupe.reading:
            task_post(&s.env.tasks, &s.dedupe.turn)
    elif s.dedupe.n:
        timer_set(&s.env.timers, &s.dedupe.timer, s.env.mono)
