# Appending, which the engine does under its lock. Nothing here waits for a file.

cdef enum:
    APPEND_TRIMS = 8            # messages that an append takes away while the limits are being brought about


cdef uint64_t store_size_of(Store* s, Span subject, Span header, Span data) noexcept nogil:
    if s.storage == STORE_MEMORY:
        return <uint64_t>subject.n + header.n + data.n + 16
    return record_size(subject, header, data)


cdef inline bint too_large(uint64_t size, Span subject) noexcept nogil:
    return size > REC_MAX or subject.n > 65535


cdef int store_fits(Span subject, Span header, Span data) noexcept nogil:
    return ST_TOO_LARGE if too_large(record_size(subject, header, data), subject) else ST_OK


cdef inline void link_after(Store* s, Block* b, uint64_t prev, uint64_t seq) noexcept nogil:
    # Notes at a subject's message `prev` that `seq` is its next.
    cdef Block* pb = b if prev >= b.base else block_of(s, prev)
    cdef int64_t i
    cdef uint64_t d = seq - prev
    if pb == NULL:
        return
    i = slot_of(pb, prev)
    if i >= 0:
        pb.nxt[i] = <uint32_t>d if d < FAR else FAR


cdef inline void index_count(Index* x, uint32_t id, uint64_t seq) noexcept nogil:
    # One more message of a subject, the newest. Its link from the one before is the caller's.
    cdef Node* n = node_at(x, id)
    if x.sweeps != NULL:
        sweeps_touch(x, id)
    if n.count == 0:
        n.first = seq
        if id:
            x.n_subjects += 1
        if x.born != NULL:
            x.born[x.births % BORN] = id
        x.births += 1
    invariant(n.count == 0 or n.first <= n.last < seq, "a subject's messages come in their order")
    n.last = seq
    n.count += 1
    index_up(x, id, 1)


cdef inline void count_in(Store* s, Block* b, uint64_t seq, int64_t ts, uint32_t off, uint32_t id,
                          uint64_t counted) noexcept nogil:
    # Enters a message that stands in the block into every index.
    cdef Node* n = node_at(&s.x, id)
    invariant(seq > s.last_seq or s.recovery.replaying, "a message comes behind all others")
    invariant(seq >= b.base and (b.n == 0 or seq_at(b, b.n - 1) < seq), "a block's slots are in order")
    if b.n == 0 or b.first_ts == 0:
        b.first_ts = ts
    if ts > b.last_ts:
        b.last_ts = ts
    slot_add(b, seq, off, id, counted)
    if n.count:
        link_after(s, b, n.last, seq)
    index_count(&s.x, id, seq)
    if s.msgs == 0:
        s.first_seq = seq
    s.msgs += 1
    s.bytes += counted
    s.last_seq = seq
    s.last_ts = ts
    invariant(b.live <= b.n and b.last == seq and b.live_bytes <= s.bytes, "a block counts what it holds")


cdef int store_append_at(Store* s, uint64_t seq, int64_t ts, Span subject, Span header, Span data) noexcept nogil:
    cdef uint64_t size = record_size(subject, header, data)
    cdef int64_t id
    cdef int r
    cdef uint32_t at
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    if no_room(s):
        return ST_FULL
    if seq <= s.last_seq or seq >= TOMB:
        return ST_ORDER
    if too_large(size, subject):
        return ST_TOO_LARGE
    invariant(counts_fit(s), "a store counts what it holds, before an append")
    r = tail_for(s, size, seq)
    if r < 0:
        return r
    id = index_intern(&s.x, subject)
    if id < 0:
        return <int>id
    at = stage(s.tail, <uint32_t>size, seq, ts, subject, header, data)
    count_in(s, s.tail, seq, ts, at, <uint32_t>id,
             size if s.storage == STORE_FILE else <uint64_t>subject.n + header.n + data.n + 16)
    keep_limits(s, <uint32_t>id)
    invariant(counts_fit(s) and s.last_seq == seq, "a store counts what it holds, after an append")
    publish(s)      # last: who is told of the message's durability may rely on that of what it removed
    return ST_OK


cdef inline void keep_limits(Store* s, uint32_t id) noexcept nogil:
    # After an append to that subject.
    cdef uint64_t most = APPEND_TRIMS if s.trim.phase != TRIM_NONE else UINT64_MAX
    if s.limits.max_msgs_per > 0:
        keep_subject(s, id, most)
    trim_head(s, most)
    if s.limits.max_age > 0 and s.age_timer.pos == 0 and not s.recovery.replaying:
        age_arm(s)
    if s.empties != NULL:
        reap(s)


cdef inline void trim_head(Store* s, uint64_t most) noexcept nogil:
    if s.limits.trim:
        while s.msgs and most and ((s.limits.max_msgs > 0 and s.msgs > <uint64_t>s.limits.max_msgs)
                                   or (s.limits.max_bytes > 0 and s.bytes > <uint64_t>s.limits.max_bytes)):
            take_seq(s, s.first_seq, RM_LIMIT)
            most -= 1


cdef inline bint keep_subject(Store* s, uint32_t id, uint64_t most) noexcept nogil:
    # A subject's oldest messages leave: at the head of the stream by its first sequence, elsewhere by tombstones. Whether
    # it still has too many after that, but for want of memory.
    cdef uint64_t seq
    cdef Block* b
    cdef int64_t i
    while node_at(&s.x, id).count > <uint64_t>s.limits.max_msgs_per:
        if most == 0:
            return True
        most -= 1
        seq = node_at(&s.x, id).first
        b = block_of(s, seq)
        i = slot_of(b, seq) if b != NULL else -1
        if i < 0 or (s.storage == STORE_FILE and seq != s.first_seq and stage_tomb(s, b, seq, s.env.now) < 0):
            return False    # the next message tries again
        take_out(s, b, <uint32_t>i, RM_LIMIT)
    return False


cdef int store_skip_at(Store* s, uint64_t seq, int64_t ts) noexcept nogil:
    cdef int r
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    if no_room(s):
        return ST_FULL
    if seq <= s.last_seq or seq >= TOMB:
        return ST_ORDER
    invariant(counts_fit(s), "a store counts what it holds, before a skip")
    if s.storage == STORE_FILE:
        r = tail_for(s, REC_MIN, 0)
        if r < 0:
            return r
        stage_bare(s, seq | ERASED, ts)
        s.tail.last = seq
    s.last_seq = seq
    s.last_ts = ts
    if s.msgs == 0:
        s.first_seq = seq + 1
    invariant(counts_fit(s), "a store counts what it holds, after a skip")
    publish(s)
    return ST_OK
