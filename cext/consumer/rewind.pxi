# A consumer forgets what is not stored any more, goes back, or begins somewhere else.

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
        drop_pending(c, i)
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


cdef void go_back(Consumer* c, uint64_t seq) noexcept nogil:
    # The stream ends there, unless the consumer was to begin behind that; deliveries are numbered on.
    cdef uint64_t last = start_bound(c, seq)
    cdef uint32_t i = c.pending.last
    cdef uint64_t k
    cdef Bytes seqs
    dead_truncated(c, seq)
    while i and entry_at(&c.pending, i).sseq > seq:
        drop_pending(c, i)
        i = c.pending.last
    memset(&seqs, 0, sizeof(Bytes))
    for k in range(exhausted_in(c, seq + 1, UINT64_MAX, &seqs)):
        u64map_del(&c.exhausted, (<uint64_t*>seqs.data)[k])
    bytes_free(&seqs)
    while c.skip.n > c.skip.at and c.skip.seqs[c.skip.n - 1] > seq:
        c.skip.n -= 1
    c.skip.resume = min(c.skip.resume, seq + 1)
    c.upto.seq = min(c.upto.seq, seq)
    c.delivered_seq = min(c.delivered_seq, last)
    c.next = min(c.next, last + 1)
    if c.skip.seqs != NULL and c.skip.at >= c.skip.n:
        skip_end(c)
    if c.pending.n == 0:
        c.floor_dseq = c.dseq - 1
        c.floor_seq = max(c.floor_seq, c.delivered_seq)
    c.floor_seq = min(c.floor_seq, last)
    c.replay.until = min(c.replay.until, seq)
    c.replay.on = c.replay.on and c.delivered_seq < c.replay.until


cdef void stand_at(Consumer* c, uint64_t seq, uint64_t resume, bint ahead) noexcept nogil:
    # As one that starts there; resume: where all messages follow those of a list of last ones, 0: there is no such list.
    dead_stop(c)
    pending_free(&c.pending)
    u64map_free(&c.exhausted)
    c.n_redelivered = 0
    c.upto.seq = 0
    c.dseq = 1
    c.next = seq
    c.delivered_seq = seq - 1
    c.floor_dseq = 0
    c.floor_seq = seq - 1
    c.reset_to = seq if ahead else 0
    if resume == 0:
        free(c.skip.seqs)
        c.skip.seqs = NULL
        c.skip.n = 0
        c.skip.at = 0
    c.skip.resume = resume
    skip_from(c, seq)
