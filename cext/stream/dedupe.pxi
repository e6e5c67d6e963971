# The window of deduplication: ids in the order in which they were stored, found through their hashes.
# An entry lies in the queue as a head and the bytes of the id; different ids with the same hash take the next keys.

cdef enum:
    DEDUPE_PROBES = 8
    DEDUPE_PAUSE = 50 * 1000000         # between two turns of expiry, ns
    DEDUPE_TURN = 10000                 # entries that one turn lets go at most
    DEDUPE_READ = 500                   # messages that one turn reads


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
    # In place of an older message with this id, which only a stream still has whose clock is behind the one by which
    # the window was over. Without memory the id is not remembered: -1.
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
        timer_set(&s.env.timers, &d.timer, head.at + s.cfg.duplicate_window)
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
        rest = head.at + s.cfg.duplicate_window - now
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
# Their ids are read when the first publish asks for any. Where that takes more than a turn, publishes wait (waiting.pxi).


cdef uint64_t dedupe_next(Stream* s) noexcept nogil:
    cdef Dedupe* d = &s.dedupe
    if d.read_at == 0:
        d.read_at = max(store_seq_at(s.store, s.env.now - s.cfg.duplicate_window), <uint64_t>1)
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
    return s.dedupe.unread != 0 and s.cfg.duplicate_window > 0 and s.failed == 0


cdef inline bint ids_wanted(const Stream* s) noexcept nogil:
    return s.dedupe.asked and ids_unread(s)


cdef void dedupe_read(Stream* s) noexcept nogil:
    # All of them at once.
    while ids_unread(s):
        dedupe_piece(s)


cdef void dedupe_window_changed(Stream* s) noexcept nogil:
    if s.cfg.duplicate_window <= 0:
        dedupe_free(s)
        if s.dedupe.reading:
            task_post(&s.env.tasks, &s.dedupe.turn)
    elif s.dedupe.n:
        timer_set(&s.env.timers, &s.dedupe.timer, s.env.mono)


cdef void last_id_resume(Stream* s) noexcept nogil:
    # Takes the last id from the last message, where that has one.
    cdef StoreState state
    cdef Record r
    cdef Span id
    store_state(s.store, &state)
    s.last_id.n = 0
    if state.msgs and store_load(s.store, state.last_seq, &r) == ST_OK:
        id = header_get(r.header, b"Nats-Msg-Id")
        bytes_add(&s.last_id, id.p, id.n)


cdef bint is_last_gone(Stream* s) noexcept nogil:
    # The last sequence has no message, so that its id is not known after a start.
    cdef StoreState state
    cdef Record r
    store_state(s.store, &state)
    return state.last_seq > 0 and store_load(s.store, state.last_seq, &r) != ST_OK


cdef void remember_id(Stream* s, const Change* c) noexcept nogil:
    s.last_id.n = 0
    if s.member != NULL:
        s.member.id_unknown = False
    if c.id.n:
        bytes_add(&s.last_id, c.id.p, c.id.n)
        if s.cfg.duplicate_window > 0:
            dedupe_add(s, c.id, c.seq, c.ts)
