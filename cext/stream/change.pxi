# A stream changes by values. A request is checked, which makes a Change of it, and the change is applied. Sequence, time, ids and
# arguments are in the value: applying reads neither clock nor asker, so the same changes make the same stream anywhere.
#
# A stream applies at once, but what is staged (overlay.pxi). Limits are part of applying. Age is no change: each stream lets go
# of what is too old by its clock, and as that takes the oldest, as the limits do, it makes no difference when. Where messages
# may have times of their own it is one (expiry.pxi).

cdef void roll_up(Stream* s, Span subject, int rollup, uint64_t below, uint64_t keep) noexcept nogil:
    # Only the message just stored stays, if it was, of its subject or of all. below: only what is older than that one goes.
    cdef Filter f
    cdef Change all
    if rollup == ROLLUP_ALL:
        memset(&all, 0, sizeof(Change))
        all.seq = below
        all.keep = keep
        purge_told(s, NULL, &all)
    elif filter_init(&f, &subject, 1) == ST_OK:
        store_purge(s.store, &f, below, keep)       # few messages: each is told to the consumers
        filter_free(&f)


cdef int rollup_of(Span kind) noexcept nogil:
    if key_is(kind, b"sub"):
        return ROLLUP_SUBJECT
    return ROLLUP_ALL if key_is(kind, b"all") else ROLLUP_NONE


cdef void message_entered(Stream* s, Span subject, uint64_t seq) noexcept nogil:
    # A message was stored: the watchers hear of it when it may be seen.
    cdef Telling t
    invariant(seq > s.entered, "messages enter in their order")
    t.seq = seq
    if sequence_entered(s, seq) and s.watchers.n and not s.newest_gone:
        watch_match(&s.watchers, subject, tell_stored, &t)


cdef bint sequence_entered(Stream* s, uint64_t seq) noexcept nogil:
    # Whether the sequence is shown now, and its watchers are to be told.
    cdef uint64_t before = s.entered
    s.entered = seq
    if is_shown_synced(s):
        return False
    if s.shown == before and shown_most(s, seq) == seq:
        s.shown = seq
        return True
    show_most(s, seq)           # also what was stored before the stream was a member of a group, and is not on disk yet
    return False


cdef int apply_message(Stream* s, const Change* c) noexcept nogil:
    cdef bint again = s.cfg.republish != NULL and stream_leads(s)
    cdef uint64_t before = store_last_of(s.store, c.subject) if again else 0
    cdef const PubHeaders* said = c.said
    cdef PubHeaders h
    cdef int rc
    s.newest_gone = False
    store_hold(s.store)         # what the message takes away is acked with it
    rc = store_append_at(s.store, c.seq, c.ts, c.subject, c.header, c.data)
    if rc == ST_OK:
        if again:
            republish(s, c, before)
        remember_id(s, c)
        message_entered(s, c.subject, c.seq)
        if said == NULL and (s.timetable != NULL or s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES):
            read_headers(&h, c.header)
            said = &h
        if s.timetable != NULL:
            timetable_stored(s, c, said)
        if c.rollup:
            roll_up(s, c.subject, c.rollup, 0, 1)
        if s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES:
            schedule_end(s, said)
    store_let(s.store)
    if rc == ST_OK:
        stream_count_bytes(s)
    return rc


cdef int apply_skip(Stream* s, const Change* c) noexcept nogil:
    cdef PubHeaders h
    cdef int rc
    store_hold(s.store)
    rc = store_skip_at(s.store, c.seq, c.ts)
    if rc == ST_OK:
        invariant(c.seq > s.entered, "skips enter in the messages' order")
        sequence_entered(s, c.seq)
        remember_id(s, c)
        if c.rollup:
            roll_up(s, c.subject, c.rollup, 0, 0)
            stream_count_bytes(s)
        if s.cfg.flags & STREAM_ALLOW_MSG_SCHEDULES and c.header.n:
            read_headers(&h, c.header)
            schedule_end(s, &h)
            stream_count_bytes(s)
    store_let(s.store)
    return rc


cdef void tell_purged(Stream* s, const Filter* filter) noexcept nogil:
    cdef ListWalk all = list_walk(&s.watchers.attached)
    cdef Watcher* w = watcher_step(&all)
    while w != NULL:
        w.purged(w, filter)
        w = watcher_step(&all)


cdef int64_t purge_told(Stream* s, const Filter* filter, const Change* c) noexcept nogil:
    # One notice to the consumers at the end, where telling each message would cost more.
    cdef int64_t n
    invariant(not s.purging and not s.lent, "one purge at a time, of a stream that nobody reads meanwhile")
    s.purging = True
    if c.start:
        n = store_purge_some(s.store, filter, c.start, c.seq, c.most)
    else:
        n = store_purge(s.store, filter, c.seq, c.keep)
    s.purging = False
    if c.most == 0:
        tell_purged(s, filter)
    stream_count_bytes(s)
    return n


cdef int64_t apply_purge(Stream* s, const Change* c) noexcept nogil:
    cdef Filter f
    cdef int64_t n
    if c.subject.n == 0 or c.filter != NULL:
        return purge_told(s, c.filter, c)
    n = filter_init(&f, &c.subject, 1)
    if n == ST_OK:
        n = purge_told(s, &f, c)
        filter_free(&f)
    return n


cdef int apply_removal(Stream* s, const Change* c) noexcept nogil:
    cdef int rc
    if c.kind == CHANGE_EXPIRE:
        return store_expire(s.store, c.seq)
    rc = store_remove(s.store, c.seq, c.erase)
    if c.kind == CHANGE_DELETE:         # a release counts once for many
        stream_count_bytes(s)
    return rc


cdef int64_t stream_apply(Stream* s, const Change* c) noexcept nogil:
    invariant(env_held(s.env), "a stream changes under the engine lock")
    if c.kind == CHANGE_MESSAGE:
        return apply_message(s, c)
    if c.kind == CHANGE_SKIP:
        return apply_skip(s, c)
    if c.kind == CHANGE_DELETE or c.kind == CHANGE_RELEASE or c.kind == CHANGE_EXPIRE:
        return apply_removal(s, c)
    if c.kind == CHANGE_PURGE:
        return apply_purge(s, c)
    if c.kind == CHANGE_TRUNCATE:
        return apply_truncate(s, c)
    return ST_UNKNOWN


cdef inline int64_t stream_change(Stream* s, const Change* c) noexcept nogil:
    # What was decided here: every change of a stream that decides for itself comes this way, messages through stream_append.
    if s.on_change != NULL:
        s.on_change(s.change_ctx, c)
    if s.member != NULL and not is_own_affair(s, c):
        return member_decides(s, c)
    return stream_apply(s, c)


cdef inline bint is_own_affair(const Stream* s, const Change* c) noexcept nogil:
    # Of a member: what every one does by its own clock. All else comes as an entry.
    return c.kind == CHANGE_EXPIRE and s.cfg.subject_delete_marker_ttl == 0


# ---- changes on request --------------------------------------------------------------------------------------------

cdef inline int64_t purge_change(Stream* s, const Change* c) noexcept nogil:
    # A member purges what its group has agreed on.
    return stream_change(s, c) if s.member == NULL else stream_apply(s, c)


cdef int64_t stream_purge(Stream* s, Span pattern, uint64_t seq, uint64_t keep) noexcept nogil:
    cdef Change c
    memset(&c, 0, sizeof(Change))
    c.kind = CHANGE_PURGE
    c.seq = seq
    c.ts = s.env.now
    c.subject = pattern
    c.keep = keep
    return purge_change(s, &c)


cdef int stream_remove(Stream* s, ChangeKind kind, uint64_t seq, bint erase) noexcept nogil:
    cdef Change c
    memset(&c, 0, sizeof(Change))
    c.kind = kind
    c.seq = seq
    c.ts = s.env.now
    c.erase = erase
    return <int>stream_change(s, &c)


cdef int stream_delete(Stream* s, uint64_t seq, bint erase) noexcept nogil:
    return stream_remove(s, CHANGE_DELETE, seq, erase)
