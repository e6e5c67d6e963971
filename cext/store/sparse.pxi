# Blocks of which little is alive: which of them are to be compacted, and what keeps them from it.

cdef void slim_wanted(Store* s) noexcept nogil:
    # The maintenance thread is to compact the blocks that are worth it.
    cdef Committer* c = s.com
    if not (list_linked(&s.slim) or s.recovery.replaying or s.stopped):
        list_push_front(&c.slim, &s.slim)
        chore_wanted(c)


cdef inline void slim_soon(Store* s) noexcept nogil:
    # Some block is worth compacting, in its time.
    if s.recovery.replaying or s.stopped:
        return
    if s.storage == STORE_MEMORY:
        if not task_queued(&s.slim_task):
            task_post(&s.env.tasks, &s.slim_task)
    elif s.com.slim_wait == 0 or (s.slim_timer.pos == 0 and timer_set(&s.env.timers, &s.slim_timer,
                                                                      s.env.mono + s.com.slim_wait) < 0):
        slim_wanted(s)


cdef void slim_fire(Timer* t, int64_t now) noexcept nogil:
    slim_wanted(<Store*>t.owner)


cdef inline bint is_sparse(const Store* s, const Block* b, uint64_t kept) noexcept nogil:
    # Whether a copy of what is kept of a block is worth it. The first block is usually on its way out: of that less is kept.
    return kept * (4 if b == block_i(s, 0) else 2) < b.used


cdef inline void slim_look(Store* s, const Block* b) noexcept nogil:
    # At a block that has less than before, or is the last one no more.
    if (is_sealed(b) and is_sparse(s, b, b.live_bytes + b.needed)
            and not (s.storage == STORE_MEMORY and b == block_i(s, 0))):
        slim_soon(s)


cdef void ghosts_reclaim(Store* s, const Block* b) noexcept nogil:
    # An empty block stays because of its tombstones: those whose ghosts they are for are compacted, if they are sparse
    # or keep several.
    cdef uint32_t i
    cdef Block* other
    for i in range(b.n_holds):
        other = block_numbered(s, b.holds[i].num)
        if other != NULL and other.ghosts:
            other.holding += 1
            if other.live_bytes * 2 < other.used or other.holding >= HOLDING_MAX:
                if other.compaction != COMPACT_NEVER:
                    other.compaction = COMPACT_WANTED
                if other.holding >= HOLDING_MAX:
                    slim_wanted(s)
                else:
                    slim_soon(s)


cdef void empty_block(Store* s, Block* b) noexcept nogil:
    # Remembers a block without live messages for reap().
    if b.empty == EMPTY_NO and b != s.tail:
        b.empty = EMPTY_LISTED
        b.next_empty = s.empties
        s.empties = b


cdef void stays_again(Store* s) noexcept nogil:
    # Something changed: the blocks that could not leave are looked at again.
    cdef Block* b
    while s.stays != NULL:
        b = s.stays
        s.stays = b.next_empty
        b.next_empty = s.empties
        s.empties = b
