# The ack floor: messages that are not pending any more, for whatever reason.

cdef void floor_after(Consumer* c, bint was_first) noexcept nogil:
    # An entry was taken out of what is pending; was_first: the oldest one.
    cdef Pending* e
    if c.pending.n == 0:
        c.floor_dseq = c.dseq - 1
        c.floor_seq = max(c.floor_seq, c.delivered_seq)
    elif was_first:
        e = entry_at(&c.pending, c.pending.first)
        c.floor_dseq = max(c.floor_dseq, e.dseq - 1)
        c.floor_seq = max(c.floor_seq, e.sseq - 1)
    invariant(c.floor_dseq < c.dseq, "nothing is acked that was not delivered")


cdef inline void drop_pending(Consumer* c, uint32_t i) noexcept nogil:
    # No longer pending; the floor stays.
    invariant(entry_at(&c.pending, i).deliveries <= 1 or c.n_redelivered > 0, "redeliveries are counted")
    if entry_at(&c.pending, i).deliveries > 1:
        c.n_redelivered -= 1
    pending_remove(&c.pending, i)


cdef void take_out(Consumer* c, uint32_t i) noexcept nogil:
    # No longer pending, for whatever reason.
    cdef bint first = i == c.pending.first
    invariant(c.pending.n > 0, "what is acked was pending")
    drop_pending(c, i)
    floor_after(c, first)


cdef void let_go(Consumer* c, uint64_t sseq) noexcept nogil:
    if not stream_keeps_all(c.s):
        stream_release(c.s, sseq)


cdef bint pending_gone(Consumer* c, uint32_t i) noexcept nogil:
    # The message left the stream before it was acked. False: its group takes no more for the moment.
    cdef Pending* e = entry_at(&c.pending, i)
    cdef uint64_t sseq = e.sseq, dseq = e.dseq
    cdef uint32_t deliveries = e.deliveries
    if c.group == NULL:
        take_out(c, i)
        c.floor_ts = c.env.now
        log_acked(c, sseq)
    elif propose_done(c, i) < 0:
        return False
    advise(c, ADV_TERM, sseq, dseq, deliveries, 0, span_c(b"Unacknowledged message was deleted"))
    return True


cdef uint64_t exhausted_in(const Consumer* c, uint64_t first, uint64_t last, Bytes* out) noexcept nogil:
    # Adds the sequences up to `last` of messages that were given up, as far as there is memory; how many.
    cdef uint64_t at = 0, n = 0
    cdef U64Pair given_up
    while u64map_each(&c.exhausted, &at, &given_up):
        if first <= given_up.key <= last and bytes_add(out, &given_up.key, 8) == 0:
            n += 1
    return n
