# What a consumer hears from its stream: messages that came and went.

cdef inline Consumer* watcher_owner(Watcher* w) noexcept nogil:
    return <Consumer*>w.owner


cdef void on_stored(Watcher* w, uint64_t seq) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if c.role != ROLE_LEADS:
        c.role = ROLE_BEHIND
    elif undelivered(c, seq):
        c.num_pending += is_counted(c, seq)
        wake_delivery(c)
    elif c.pending.queue.head:          # the stream comes to where its group was
        wake_delivery(c)


cdef void on_gone(Watcher* w, uint64_t seq, int reason) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    cdef uint32_t i
    if c.role != ROLE_LEADS:
        c.role = ROLE_BEHIND         # the group says what becomes of it
        return
    if c.group != NULL and not undelivered(c, seq):
        proposed_gone(c, seq)
        i = pending_find(&c.pending, seq)
        if i and entry_at(&c.pending, i).place != AT_ACKED:
            pending_gone(c, i)
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


cdef bint is_gone(Consumer* c, uint64_t seq) noexcept nogil:
    # A stream that takes a leader's state drops what came before: messages behind what it shows are still to come.
    return seq <= c.s.shown and not still_stored(c, seq)


cdef void purged_in_group(Consumer* c, uint64_t start, bint told) noexcept nogil:
    # The consumer goes on behind what is gone, once the group agrees; `told`: as of drop_vanished.
    cdef uint32_t i = c.pending.first
    cdef uint64_t k
    cdef Bytes seqs
    if start and c.skip.seqs == NULL and c.next < start:
        c.next = start
    if start > c.delivered_seq + 1:
        propose_position(c, OP_SKIP, start, span(NULL, 0))
    c.skip.resume = max(c.skip.resume, start) if c.skip.seqs != NULL else 0
    while i:
        if is_gone(c, entry_at(&c.pending, i).sseq):
            if not told:
                propose_done(c, i)
            elif entry_at(&c.pending, i).place != AT_ACKED:
                pending_gone(c, i)
        i = entry_at(&c.pending, i).next
    memset(&seqs, 0, sizeof(Bytes))
    for k in range(exhausted_in(c, 1, UINT64_MAX, &seqs)):
        if is_gone(c, (<uint64_t*>seqs.data)[k]):
            proposed_gone(c, (<uint64_t*>seqs.data)[k])
    bytes_free(&seqs)
    count_pending(c)
    wake_delivery(c)


cdef void on_purged(Watcher* w, const Filter* what) noexcept nogil:
    # The consumer goes on behind what is gone, and all that it has passed by then counts as delivered.
    cdef Consumer* c = watcher_owner(w)
    cdef uint32_t waiting = c.pending.n
    cdef uint64_t floor_seq = c.floor_seq
    cdef uint64_t start
    if c.role != ROLE_LEADS:
        c.role = ROLE_BEHIND
        if c.group != NULL and not placing(c):
            c.group.purged = max(c.group.purged, start_after_purge(c, what))
        return
    if placing(c):
        return
    start = start_after_purge(c, what)
    if c.group != NULL:
        c.group.purged = max(c.group.purged, start)
        purged_in_group(c, start, what != NULL and not what.all)
        return
    c.shared.follows = True
    if start and c.skip.seqs == NULL and c.delivered_seq + 1 < max(c.next, start):
        c.next = max(c.next, start)
        c.delivered_seq = c.next - 1
        log_passed(c)
    c.skip.resume = max(c.skip.resume, start)
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


cdef void on_truncated(Watcher* w, uint64_t seq) noexcept nogil:
    cdef Consumer* c = watcher_owner(w)
    if c.role != ROLE_LEADS:
        c.role = ROLE_BEHIND         # the group says what becomes of it
        return
    if c.group != NULL:
        count_pending(c)
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
    if c.upto.seq:
        task_post(&c.env.tasks, &c.upto.task)
    wake_delivery(c)


cdef bint on_asked(Watcher* w, uint64_t seq) noexcept nogil:
    # Whether this stored message, which matches, is still needed here.
    return needs(watcher_owner(w), seq)
