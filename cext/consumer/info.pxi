# A consumer's state as the control plane shows it.

cdef uint64_t count_hidden(Consumer* c) noexcept nogil:
    # What is pending besides and may not be seen yet: an answer that counts it waits for the disk.
    cdef uint64_t i, n
    if c.s.shown >= c.s.entered:
        return 0
    n = stream_hidden(c.s, filter_of(c), c.next if c.skip.seqs == NULL else c.skip.resume)
    for i in range(c.skip.at, c.skip.n):
        n += c.skip.seqs[i] > c.s.shown and still_stored(c, c.skip.seqs[i])
    return n


cdef inline bint starts_here(const Consumer* c) noexcept nogil:
    # Whether it is new, and its group has not agreed yet on where it starts.
    return c.group != NULL and c.fresh and c.role == ROLE_LEADS


cdef void info_fill(Consumer* c, ConsumerInfo* out) noexcept nogil:
    # Once what is pending is counted.
    cdef StoreState state
    cdef uint64_t purged = max(c.group.purged, <uint64_t>1) if c.group != NULL else 1
    cdef int64_t pending = max(<int64_t>0, c.num_pending) + <int64_t>count_hidden(c)
    pulls_sweep(c)
    store_state(c.s.store, &state)
    if c.next > state.last_seq:
        pending = 0
    else:
        pending = min(pending, <int64_t>min(state.msgs, state.last_seq - c.next + 1))
    out.delivered_dseq = c.dseq - 1
    out.delivered_seq = c.next - 1 if starts_here(c) else max(c.delivered_seq, purged - 1)
    out.delivered_ts = c.delivered_ts
    out.floor_dseq = c.floor_dseq
    out.floor_seq = c.floor_seq
    if purged > c.floor_seq + 1 and c.pending.n == 0:
        out.floor_dseq = out.delivered_dseq
        out.floor_seq = out.delivered_seq
    elif purged > c.floor_seq + 1:
        out.floor_seq = max(c.floor_seq, min(purged, entry_at(&c.pending, c.pending.first).sseq) - 1)
    out.floor_ts = c.floor_ts
    out.num_ack_pending = c.pending.n
    out.num_redelivered = 0 if c.cfg.max_deliver == 1 else <uint64_t>c.n_redelivered + c.exhausted.n
    out.num_waiting = 0 if is_push(c) else c.pull.n
    out.num_pending = <uint64_t>pending
    out.bound = c.push.bound
    out.pin_ts = c.pin.ts
    memcpy(out.pin_id, c.pin.id, PIN_SIZE)
