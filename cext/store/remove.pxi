# Removing messages: one, and by age; blocks that hold nothing any more leave. Nothing here waits for a file.

cdef void first_forward(Store* s) noexcept nogil:
    # Finds the first live message again.
    cdef uint32_t bi = 0
    cdef Block* b
    s.first_seq = s.last_seq + 1
    while s.msgs and bi < s.n_blocks:
        b = block_i(s, bi)
        if b.live:
            b.head = st_first_live(b.off, b.head, b.n)
            s.first_seq = seq_at(b, b.head)
            break
        bi += 1
    invariant(s.msgs == 0 or s.first_seq <= s.last_seq, "where there are messages, there is a first one")
    st_release(&s.shared.floor, s.first_seq)    # what moved it is staged by now; no file may go before it is written


cdef void take_out(Store* s, Block* b, uint32_t i, int reason) noexcept nogil:
    # One live message leaves every index; its bytes stay where they are.
    cdef uint64_t seq = seq_at(b, i), size = slot_size(b, i)
    cdef uint32_t id = b.sid[i]
    cdef Node* n = node_at(&s.x, id)
    invariant(s.recovery.replaying or env_held(s.env), "a message leaves under the engine lock")
    invariant(b.off[i] != 0 and b.live and n.count and s.msgs, "only what is counted leaves")
    invariant(b.live_bytes >= size and s.bytes >= size, "bytes were counted as they are taken away")
    if s.x.sweeps != NULL:
        sweeps_touch(&s.x, id)
    b.off[i] = 0
    b.live -= 1
    b.live_bytes -= size
    b.ghosts += 1
    s.msgs -= 1
    s.bytes -= size
    n.count -= 1
    index_up(&s.x, id, -1)
    if n.count == 0:
        if id:
            s.x.n_subjects -= 1
    elif seq == n.first:
        n.first = chain_next(s, b, i, id)
    elif seq == n.last:
        n.last = n.first if n.count == 1 else prev_of(s, id, seq)
    invariant(s.msgs or s.bytes == 0, "no messages have no bytes")
    invariant(b.live or b.live_bytes == 0, "a block without messages counts no bytes")
    if seq == s.first_seq:
        first_forward(s)
    if s.lost != NULL:
        lost_drop(s, seq)
    if s.on_removed != NULL and not s.recovery.replaying:
        s.on_removed(s.ctx, seq, node_text(&s.x, id), reason)
    if id and node_at(&s.x, id).count == 0 and not s.recovery.unsettled:
        node_prune(&s.x, id)
    if b.live == 0:
        empty_block(s, b)
    else:
        slim_look(s, b)


cdef bint take_seq(Store* s, uint64_t seq, int reason) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    if i < 0 or b.off[i] == 0:
        return False
    take_out(s, b, <uint32_t>i, reason)
    return True


cdef void block_drop(Store* s, Block* b) noexcept nogil:
    invariant(b.live == 0 and not has_left(b) and b.store == s, "only an empty block leaves, and once")
    blocks_take_out(s, b)
    block_leaves(s, b)


cdef void block_leaves(Store* s, Block* b) noexcept nogil:
    # A block that is not among the store's any more; its file goes after the next group is on disk.
    if s.storage == STORE_MEMORY:
        leftover_block(s, b)
        return
    lru_remove(s.com, b)
    q_lock(s.com)
    block_left(b)       # at once: a compaction under way may not take it for an empty block and drop it again
    q_unlock(s.com)
    op_push(s, OP_DROP, b, 0, 0, 0)


cdef void reap(Store* s) noexcept nogil:
    # Drops blocks that hold nothing any more, neither messages nor tombstones that are still needed. Never the last
    # with any bytes: it says which sequence was the last. Nor, where that is damaged, the last whole one: it names the first.
    # Nor one with a cut record while there is a block before it: what that one says of the stream's end counts no more.
    cdef Block* b
    cdef Block* last
    cdef Block* whole
    cdef uint32_t i = s.n_blocks
    if s.recovery.replaying or i == 0:
        return
    last = last_written(s)
    while i > 1 and (block_i(s, i - 1).damaged or st_load(&block_i(s, i - 1).used) == 0):
        i -= 1
    whole = block_i(s, i - 1)
    while s.empties != NULL:
        b = s.empties
        s.empties = b.next_empty
        if b.live or b == s.tail:
            b.empty = EMPTY_NO
        elif b == last or b == whole or (b != block_i(s, 0) and (b.cut or tombs_needed(s, b))):
            b.next_empty = s.stays
            s.stays = b
            if b.empty != EMPTY_STAYS:
                b.empty = EMPTY_STAYS
                ghosts_reclaim(s, b)
        else:
            b.empty = EMPTY_NO
            block_drop(s, b)
            stays_again(s)
    if s.msgs == 0 and s.tail != NULL:
        tail_shed(s)


cdef void tail_shed(Store* s) noexcept nogil:
    # When nothing is left, a well-filled tail gives way to a new one that holds only the last sequence.
    cdef Block* b = s.tail
    if s.storage == STORE_MEMORY:
        s.tail = NULL
        block_drop(s, b)
        return
    if st_load(&b.used) < s.block_size // 2 or s.io_errno:
        return
    tail_seal(s)
    if tail_for(s, REC_MIN, 0) == ST_OK:
        stage_bare(s, s.last_seq | TOMB, s.last_ts)
        publish(s)
    reap(s)


cdef int tomb_add(Store* s, Block* b, uint32_t i, int reason, Op* after) noexcept nogil:
    # Removes a message so that it stays removed after a restart; `after` is done when the tombstone is on disk, and
    # before the removal counts as durable. It stays the caller's where the result is an error.
    cdef uint64_t seq = seq_at(b, i)
    cdef int r
    if s.storage == STORE_FILE:
        r = stage_tomb(s, b, seq, ts_of(b, i))
        if r < 0:
            return r
    take_out(s, b, i, reason)
    if after != NULL:
        op_stage(s, after)      # before the ticket counts: no round can take that one without this
    publish(s)
    return ST_OK


cdef int store_remove(Store* s, uint64_t seq, bint erase) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    cdef uint64_t at
    cdef uint32_t size = 0
    cdef uint8_t* p
    cdef Record whole
    cdef Op* op = NULL
    cdef int r
    if s.stopped:
        return ST_CLOSED
    if i < 0 or b.off[i] == 0:
        return ST_NOT_FOUND
    if s.io_errno:
        return ST_IO
    invariant(counts_fit(s), "a store counts what it holds, before a removal")
    at = b.off[i] - 1
    p = <uint8_t*>slot_bytes(b, <uint32_t>i)
    if erase and slot_load(s, b, <uint32_t>i, &whole) == ST_OK:     # what is damaged does not say how long it is
        size = st_get32(p + at) & 0x7fffffff
    if size and s.storage == STORE_FILE and not b.damaged:
        op = op_new(OP_ERASE, b, at, size, seq)
        if op == NULL:
            return ST_NO_MEMORY
    r = tomb_add(s, b, <uint32_t>i, RM_DELETE, op)
    if r < 0:
        free(op)
        return r
    if size and s.storage == STORE_MEMORY:
        memset(p + at + HEAD, 0, size - HEAD)
    if s.empties != NULL or s.msgs == 0:
        reap(s)
    invariant(counts_fit(s), "a store counts what it holds, after a removal")
    return ST_OK


cdef int store_expire(Store* s, uint64_t seq) noexcept nogil:
    cdef Block* b = block_of(s, seq)
    cdef int64_t i = slot_of(b, seq) if b != NULL else -1
    cdef int r
    if s.stopped:
        return ST_CLOSED
    if i < 0 or b.off[i] == 0:
        return ST_NOT_FOUND
    if s.io_errno:
        return ST_IO
    invariant(counts_fit(s), "a store counts what it holds, before a message's life ends")
    r = take_for_good(s, b, <uint32_t>i, RM_AGE, True)
    if r < 0:
        return r
    if s.empties != NULL or s.msgs == 0:
        reap(s)
    invariant(counts_fit(s), "a store counts what it holds, after a message's life ended")
    publish(s)
    return ST_OK


cdef inline int take_for_good(Store* s, Block* b, uint32_t i, int reason, bint marked) noexcept nogil:
    # Removes a message without a look at its bytes. marked: what goes at the head leaves no tombstone, and the marker that
    # says so needs a block to stand in; nats-server passes over that, and may show the message again if it runs after a kill and
    # the message's block is still there.
    cdef uint64_t seq = seq_at(b, i)
    cdef int r = ST_OK
    if s.storage == STORE_FILE:
        r = tail_for(s, REC_MIN, 0) if marked and seq == s.first_seq else stage_tomb(s, b, seq, s.env.now)
    if r == ST_OK:
        take_out(s, b, i, reason)
    return r


# ---- age -------------------------------------------------------------------------------------------------------------

cdef int64_t store_first_time(Store* s) noexcept nogil:
    cdef Block* b
    cdef int64_t i
    if s.msgs == 0:
        return 0
    if s.first_ts_seq != s.first_seq:
        b = block_of(s, s.first_seq)
        if b != NULL and s.first_seq == b.base and b.first_ts:     # a list of many idle streams reads none
            s.first_ts = b.first_ts
            s.first_ts_seq = s.first_seq
            return s.first_ts
        i = slot_of(b, s.first_seq) if b != NULL else -1
        s.first_ts = ts_of(b, <uint32_t>i) if i >= 0 else 0
        s.first_ts_seq = s.first_seq if i < 0 or slot_bytes(b, <uint32_t>i) != NULL else 0
    return s.first_ts


cdef void age_arm(Store* s) noexcept nogil:
    # Sets the timer to the first message's end.
    cdef int64_t left
    if s.limits.max_age <= 0 or s.msgs == 0 or s.stopped:
        timer_cancel(&s.env.timers, &s.age_timer)
        return
    left = s.limits.max_age - elapsed(s.env.now, store_first_time(s))
    timer_set(&s.env.timers, &s.age_timer, s.env.mono + max(left, <int64_t>0))


cdef void age_fire(Timer* t, int64_t now) noexcept nogil:
    # At most 2,000 messages a turn; what is left is due at once again.
    cdef Store* s = <Store*>t.owner
    age_trim(s, 2000)
    floor_later(s)
    age_arm(s)


cdef void floor_later(Store* s) noexcept nogil:
    # After what only aged: its end is written with the next group, at the latest when the store has been idle for a
    # moment. A restart before would find it too old again.
    cdef Committer* c = s.com
    cdef int64_t now
    if s.storage == STORE_MEMORY:
        return
    now = env_clock(s.env)
    q_lock(c)
    if s.queue.list != &c.queue.active:
        active_enter(&c.queue.active, s, now)
        c.queue.due = min(c.queue.due, now + IDLE_CLOSE)
        if c.queue.sleeping:
            q_signal(c, &c.wake)
    q_unlock(c)


cdef void age_trim(Store* s, uint32_t limit) noexcept nogil:
    while s.msgs and s.limits.max_age > 0 and limit and elapsed(s.env.now, store_first_time(s)) >= s.limits.max_age:
        take_seq(s, s.first_seq, RM_AGE)
        limit -= 1
    if s.empties != NULL or s.msgs == 0:
        reap(s)


cdef bint leave(Store* s, Block* b, int64_t i) noexcept nogil:
    # As where a limit of ours removes it.
    if i < 0 or b.off[i] == 0:
        return True
    if seq_at(b, <uint32_t>i) != s.first_seq and stage_tomb(s, b, seq_at(b, <uint32_t>i), s.env.now) < 0:
        return False
    take_out(s, b, <uint32_t>i, RM_LIMIT)
    return True
