# Interest retention: a message leaves when no consumer needs it. Nothing is kept of who needs a message: consumers know it,
# also after a crash. They are asked when one lets go.

cdef enum:
    SETTLE_TURN = 1000              # messages
    STRAYS_MAX = 1 << 17


cdef int ask_needs(void* ctx, void* kept) noexcept nogil:
    # Up to the first that needs it, which is then the first to be asked: it often needs the next one too.
    cdef Telling* t = <Telling*>ctx
    cdef Spot* spot = <Spot*>kept
    cdef SpotItem item
    cdef uint32_t i
    t.wanted = True
    for i in range(spot.n):
        item = spot.items[i]
        if item.w.needs(item.w, t.seq):
            t.needed = True
            spot_place(spot, i, spot.items[0])
            spot_place(spot, 0, item)
            return 1
    return 0


cdef void ask(Stream* s, Telling* t, uint64_t seq) noexcept nogil:
    cdef Span subject = store_subject(s.store, seq)
    t.seq = seq
    t.wanted = False
    t.needed = False
    if subject.p != NULL:
        watch_match(&s.watchers, subject, ask_needs, t)


cdef bint early_note(Stream* s, uint64_t seq) noexcept nogil:
    # Of a member: whether there is nothing to decide now. Consumers have groups of their own, which may be ahead of the stream's:
    # what is let go of before it is stored is looked at then.
    if s.member.leads and seq > s.entered:
        s.member.early = max(s.member.early, seq)
    return not s.member.leads or seq > s.entered or store_subject(s.store, seq).p == NULL


cdef void stream_release(Stream* s, uint64_t seq) noexcept nogil:
    cdef Telling t
    if s.cfg.retention == RETENTION_LIMITS or (s.member != NULL and early_note(s, seq)):
        return
    if s.cfg.retention == RETENTION_INTEREST:
        ask(s, &t, seq)
        if t.needed or s.consumer_missing:
            return
    stream_remove(s, CHANGE_RELEASE, seq, False)
    stream_count_bytes(s)


cdef inline bint settles(const Stream* s, bint all) noexcept nogil:
    # Where consumers say what is needed. A work queue of one server hears it from each ack; the leader of a group did not always
    # lead, and keeps what no consumer asks for.
    if s.member == NULL:
        return s.cfg.retention == RETENTION_INTEREST
    return s.member.leads and (s.cfg.retention == RETENTION_INTEREST or (s.cfg.retention == RETENTION_WORKQUEUE and not all))


cdef void stream_settle(Stream* s, uint64_t start, bint all) noexcept nogil:
    cdef uint64_t* at = &s.settle_all if all else &s.settle_wanted
    if settles(s, all) and not s.consumer_missing:
        start = max(start, <uint64_t>1)
        at[0] = min(at[0], start) if at[0] else start
        settle_turn(&s.settle)


cdef void settle_from(Stream* s, uint64_t* at, bint all, uint32_t* left) noexcept nogil:
    cdef Telling t
    cdef uint64_t seq
    if s.watchers.n == 0 and not all:
        at[0] = 0
    while at[0] and left[0]:
        left[0] -= 1
        seq = store_next_seq(s.store, NULL, at[0])
        at[0] = seq + 1 if seq else 0
        if seq:
            ask(s, &t, seq)
            if not t.needed and (t.wanted or all):
                stream_remove(s, CHANGE_RELEASE, seq, False)


cdef void stray_note(Stream* s, const StreamEntry* e, uint64_t seq) noexcept nogil:
    # A message that a nats-server proposed, applied or found applied before the consumers are open. What finds no room stays.
    cdef Member* m = s.member
    if s.cfg.retention == RETENTION_INTEREST and s.consumer_missing and not e.judged and m.strays.n < STRAYS_MAX * sizeof(seq):
        bytes_add(&m.strays, &seq, sizeof(seq))


cdef void strays_settle(Stream* s, bint acked) noexcept nogil:
    # Looks for strays in turns: messages that this member has of a nats-server's entries, applied before its consumers were open,
    # which the other members may have skipped. acked: also those that a consumer wants, and needs no more; that look is the last.
    cdef Member* m = s.member
    if m.strays.n:
        m.stray = 0
        m.straying = True
        m.strays_acked = acked
        task_post(&s.env.tasks, &s.settle)


cdef void strays_from(Stream* s, uint32_t* left) noexcept nogil:
    # They leave this member alone: the others do not have them, or look for them themselves.
    cdef Member* m = s.member
    cdef Telling t
    cdef Change c
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_RELEASE
    c.ts = s.env.now
    while m.stray < m.strays.n and left[0]:
        left[0] -= 1
        memcpy(&c.seq, m.strays.data + m.stray, sizeof(c.seq))
        m.stray += sizeof(c.seq)
        ask(s, &t, c.seq)
        if not t.wanted or (m.strays_acked and not t.needed):
            stream_apply(s, &c)
    m.straying = m.stray < m.strays.n
    if m.strays_acked and not m.straying:
        bytes_free(&m.strays)


cdef bint strays_left(const Stream* s) noexcept nogil:
    return s.member != NULL and s.member.straying


cdef void settle_turn(Task* t) noexcept nogil:
    cdef Stream* s = <Stream*>t.owner
    cdef uint32_t left = SETTLE_TURN
    if not settles(s, False):
        s.settle_wanted = 0
    if not settles(s, True):
        s.settle_all = 0
    settle_from(s, &s.settle_wanted, False, &left)
    settle_from(s, &s.settle_all, True, &left)
    if strays_left(s):
        strays_from(s, &left)
    stream_count_bytes(s)
    if s.settle_wanted or s.settle_all or strays_left(s):
        task_post(&s.env.tasks, t)


cdef bint stream_keeps_all(const Stream* s) noexcept nogil:
    return s.cfg.retention == RETENTION_LIMITS
