# What a consumer hears from its stream: messages that came and went.

cdef inline Consumer* watcher_owner(Watcher* w) noexcept nogil:
    return <Consumer*>w.owner


cdef void on_stored(Watcher* w, uint64_t seq) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if not c.leads:
        c.behind = True
    elif undelivered(c, seq):
        c.num_pending += is_counted(c, seq)
        wake_delivery(c)


cdef void on_gone(Watcher* w, uint64_t seq, int reason) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    cdef uint32_t i
    if not c.leads:
        c.behind = True         # the leader's records say what becomes of it
        return
    if undelivered(c, seq):
        c.shared.follows = True     # what is delivered next says that this one was passed
        c.num_pending -= is_counted(c, seq)
        return
    if c.exhausted.n and u64map_del(&c.exhausted, seq):
        c.shared.follows = True
        log_acked(c, seq)
    i = pending_find(&c.pending, seq)
    if i:
        c.shared.follows = True
        pending_gone(c, i)
        wake_delivery(c)


cdef bint still_stored(Consumer* c, uint64_t seq) noexcept nogil:
    return store_next_seq(c.s.store, NULL, seq) == seq


cdef uint64_t count_hidden(Consumer* c) noexcept nogil:
    # What is pending besides and may not be seen yet: an answer that counts it waits for the disk.
    cdef uint64_t i, n
    if c.s.shown >= c.s.entered:
        return 0
    n = stream_hidden(c.s, filter_of(c), c.next if c.skip == NULL else c.resume)
    for i in range(c.skip_at, c.n_skip):
        n += c.skip[i] > c.s.shown and still_stored(c, c.skip[i])
    return n


cdef void drop_below(Consumer* c, uint64_t start) noexcept nogil:
    # Forgets what waits for acks of messages below a sequence, where nothing is left; the log hears of the floor.
    cdef uint32_t i = c.pending.first
    if i == 0 or entry_at(&c.pending, i).sseq >= start:
        return
    if entry_at(&c.pending, c.pending.last).sseq < start:
        pending_free(&c.pending)
        c.n_redelivered = 0
    while c.pending.n and entry_at(&c.pending, c.pending.first).sseq < start:
        i = c.pending.first
        if entry_at(&c.pending, i).deliveries > 1:
            c.n_redelivered -= 1
        pending_remove(&c.pending, i)
    floor_after(c, True)


cdef void drop_vanished(Consumer* c, bint told) noexcept nogil:
    # Forgets what waits for acks of messages that are not stored any more; `told`: an advisory says so of each.
    cdef uint32_t i = c.pending.first, after
    cdef uint64_t seq, k
    cdef Bytes seqs
    while i:
        after = entry_at(&c.pending, i).next
        if not still_stored(c, entry_at(&c.pending, i).sseq):
            if told:
                pending_gone(c, i)
            else:
                log_acked(c, entry_at(&c.pending, i).sseq)
                take_out(c, i)
        i = after
    memset(&seqs, 0, sizeof(Bytes))
    for k in range(exhausted_in(c, 1, UINT64_MAX, &seqs)):
        seq = (<uint64_t*>seqs.data)[k]
        if not still_stored(c, seq):
            log_acked(c, seq)
            u64map_del(&c.exhausted, seq)
    bytes_free(&seqs)
    ack_timer_set(c)


cdef inline bint ends_full(Span pattern) noexcept nogil:
    return pattern.n > 0 and pattern.p[pattern.n - 1] == c'>' and (pattern.n == 1 or pattern.p[pattern.n - 2] == c'.')


cdef bint covers(Span a, Span b) noexcept nogil:
    # Whether all that pattern b matches is matched by pattern a.
    return subject_matches(a, b) and (ends_full(a) or not ends_full(b))


cdef bint wants_only(const Consumer* c, const Filter* what) noexcept nogil:
    # Whether all that the consumer wants is covered by what was purged.
    cdef uint32_t i
    if what.all:
        return True
    if c.filter.all:
        return False
    for i in range(c.filter.n):
        if not covers(what.patterns[0], c.filter.patterns[i]):
            return False
    return True


cdef bint wants_more(const Consumer* c, const Filter* what) noexcept nogil:
    # Whether all that was purged is covered by what the consumer wants.
    cdef uint32_t i
    for i in range(c.filter.n):
        if covers(c.filter.patterns[i], what.patterns[0]):
            return True
    return c.filter.all


cdef uint64_t start_after_purge(Consumer* c, const Filter* what) noexcept nogil:
    # The first sequence that may still matter to the consumer; 0 when the purge was of other subjects.
    cdef StoreState state
    cdef uint64_t seq
    store_state(c.s.store, &state)
    if what == NULL:
        return state.first_seq
    if not wants_only(c, what):
        return state.first_seq if wants_more(c, what) else 0
    if store_pending_soon(c.s.store, what, 0, &seq) and seq == 0:
        return state.last_seq + 1
    seq = store_next_seq(c.s.store, what, 0)
    return seq if seq else state.last_seq + 1


cdef void on_purged(Watcher* w, const Filter* what) noexcept nogil:
    # The consumer goes on behind what is gone, and all that it has passed by then counts as delivered.
    cdef Consumer* c = watcher_owner(w)
    cdef uint32_t waiting = c.pending.n
    cdef uint64_t floor_seq = c.floor_seq
    cdef uint64_t start
    if not c.leads:
        c.behind = True
        return
    if placing(c):
        return
    start = start_after_purge(c, what)
    c.shared.follows = True
    if start and c.skip == NULL and c.delivered_seq + 1 < max(c.next, start):
        c.next = max(c.next, start)
        c.delivered_seq = c.next - 1
        log_passed(c)
    c.resume = max(c.resume, start)
    if what == NULL or what.all:
        drop_below(c, start)
    drop_vanished(c, what != NULL and not what.all)
    if start and c.pending.n == 0:
        c.floor_seq = max(c.floor_seq, c.delivered_seq)
        c.floor_dseq = c.dseq - 1
    elif c.floor_seq + 1 < start:
        c.floor_seq = start - 1
    if c.floor_seq > floor_seq:
        log_acked_upto(c, c.floor_seq, c.floor_dseq)
    if c.pending.n < waiting:
        c.floor_ts = c.env.now
    count_pending(c)
    wake_delivery(c)


cdef void go_back(Consumer* c, uint64_t seq) noexcept nogil:
    # The stream ends there, unless the consumer was to begin behind that; deliveries are numbered on.
    cdef uint64_t last = start_bound(c, seq)
    cdef uint32_t i = c.pending.last
    cdef uint64_t k
    cdef Bytes seqs
    dead_truncated(c, seq)
    while i and entry_at(&c.pending, i).sseq > seq:
        if entry_at(&c.pending, i).deliveries > 1:
            c.n_redelivered -= 1
        pending_remove(&c.pending, i)
        i = c.pending.last
    memset(&seqs, 0, sizeof(Bytes))
    for k in range(exhausted_in(c, seq + 1, UINT64_MAX, &seqs)):
        u64map_del(&c.exhausted, (<uint64_t*>seqs.data)[k])
    bytes_free(&seqs)
    while c.n_skip > c.skip_at and c.skip[c.n_skip - 1] > seq:
        c.n_skip -= 1
    c.resume = min(c.resume, seq + 1)
    c.acked_to = min(c.acked_to, seq)
    c.delivered_seq = min(c.delivered_seq, last)
    c.next = min(c.next, last + 1)
    if c.skip != NULL and c.skip_at >= c.n_skip:
        skip_end(c)
    if c.pending.n == 0:
        c.floor_dseq = c.dseq - 1
        c.floor_seq = max(c.floor_seq, c.delivered_seq)
    c.floor_seq = min(c.floor_seq, last)
    c.replay_until = min(c.replay_until, seq)
    c.replaying = c.replaying and c.delivered_seq < c.replay_until


cdef void on_truncated(Watcher* w, uint64_t seq) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if not c.leads:
        c.behind = True         # the leader's records say what becomes of it
        return
    if not placing(c):
        log_truncated(c, seq)
        consumers_flush(c.s)
    go_back(c, seq)
    count_pending(c)
    ack_timer_set(c)
    wake_delivery(c)


cdef void on_resumed(Watcher* w) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if c.acked_to:
        task_post(&c.env.tasks, &c.acked)
    wake_delivery(c)


cdef bint on_asked(Watcher* w, uint64_t seq) noexcept nogil:
    # Whether this stored message, which matches, is still needed here.
    cdef Consumer* c = watcher_owner(w)
    cdef uint64_t deliveries
    return (placing(c) or undelivered(c, seq) or pending_find(&c.pending, seq) != 0
            or u64map_get(&c.exhausted, seq, &deliveries))


# ---- the server's log ------------------------------------------------------------------------------------------

cdef void say(Consumer* c, const char* text) noexcept nogil:
    # A line for the server's log.
    cdef Event e
    memset(&e, 0, sizeof(Event))
    e.kind = EV_LOG
    e.account = c.s.account
    e.text[0] = span_c(text)
    c.env.out.event(c.env.out.ctx, &e)


cdef void log_damaged(Consumer* c, uint64_t seq) noexcept nogil:
    cdef char text[700]
    snprintf(text, sizeof(text), b"stream %.*s: message %llu is damaged and passed over by consumer %.*s",
             <int>c.s.cfg.name.n, <const char*>c.s.cfg.name.p, <unsigned long long>seq,
             <int>c.cfg.name.n, <const char*>c.cfg.name.p)
    say(c, text)


cdef void say_of(Consumer* c, const char* what) noexcept nogil:
    cdef char text[700]
    snprintf(text, sizeof(text), b"stream %.*s: consumer %.*s: %s", <int>c.s.cfg.name.n,
             <const char*>c.s.cfg.name.p, <int>c.cfg.name.n, <const char*>c.cfg.name.p, what)
    say(c, text)
