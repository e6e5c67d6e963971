# What a start does to the store where it meets a tombstone, a marker's first sequence, a hole, or a truncation.

cdef void hole_close(Store* s, uint64_t next) noexcept nogil:
    # The first message behind a hole has the sequence `next`.
    cdef Damage* d = &s.recovery.hole
    cdef uint64_t seq, n
    if d.kind == 0:
        return
    n = min(next - d.first, min(d.count, <uint64_t>GAP_MAX))       # behind what fits, sequences were left out
    d.count = n
    if n == 0:
        d.first = 0
        d.last = 0
    else:
        d.last = d.first + n - 1
        for seq in range(d.first, d.last + 1 if d.kind != DAMAGE_TAIL else d.first):
            lost_add(s, seq, d.size // n)
    lost_place(s, d.kind, d.block, d.at, d.size, d.first, d.last, d.count)
    memset(d, 0, sizeof(Damage))


cdef int replay_tomb(Store* s, Block* b, uint64_t seq) noexcept nogil:
    # A tombstone in b: its message leaves.
    cdef Block* of = block_of(s, seq)
    b.tombs += 1
    if of != NULL and of != b and hold_add(b, of.num, 1) < 0:
        return ST_NO_MEMORY
    if not take_seq(s, seq, RM_DELETE) and s.lost != NULL:
        lost_drop(s, seq)
    return ST_OK


cdef void replay_extent(Store* s) noexcept nogil:
    # All goes that is below the first sequence which the markers name.
    cdef uint64_t first = s.writing.extent.first
    while s.msgs and s.first_seq < first:
        take_seq(s, s.first_seq, RM_LIMIT)
    while s.lost != NULL and s.lost.n and s.lost.seqs[0] < first:
        lost_drop(s, s.lost.seqs[0])


cdef void skip_to(Store* s, Block* b, uint64_t seq) noexcept nogil:
    # A sequence that is used and has no message.
    if b.n == 0 and b.last < b.base:
        b.base = max(b.base, s.last_seq + 1)
    b.last = max(b.last, seq)
    s.last_seq = max(s.last_seq, seq)
    if s.msgs == 0:
        s.first_seq = s.last_seq + 1


cdef void cut_replay(Store* s, Block* b, const Cut* cut) noexcept nogil:
    # The cut record stands in b, the last block so far. Where nothing is left of what it cut away nothing changes, but what
    # blocks before it say of the stream's end, which may be newer than they are, counts no more.
    cdef uint32_t i = 0, k
    cdef Block* old
    b.cut = True
    while i < s.n_blocks:
        old = block_i(s, i)
        if old == b or old.num < cut.num:
            i += 1
            continue
        for k in range(old.n):
            if old.off[k]:
                take_out(s, old, k, RM_LIMIT)
        empties_remove(s, old)
        blocks_take_out(s, old)
        old.queue.next_out = s.recovery.void_blocks
        s.recovery.void_blocks = old
    lost_cut(s, cut.behind)
    if s.recovery.hole.first > cut.behind:
        memset(&s.recovery.hole, 0, sizeof(Damage))
    hole_close(s, cut.behind + 1)
    if b.n == 0:
        b.base = cut.behind + 1
        b.last = cut.behind
    memos_forget(s)
    s.last_seq = cut.behind
    s.last_ts = cut.last_ts
    s.recovery.told = min(s.recovery.told, cut.behind)
    if s.msgs == 0:
        s.first_seq = cut.behind + 1
    cut_extent(cut, &s.writing.extent)


cdef void cut_finish(Store* s) noexcept nogil:
    # At the end of a recovery, with the cut on disk: the files of what it cut away go.
    cdef Block* b
    while s.recovery.void_blocks != NULL:
        b = s.recovery.void_blocks
        s.recovery.void_blocks = b.queue.next_out
        block_unlink(s, b)
        block_free(b)
    unlinks_sync(s)


cdef void empties_remove(Store* s, Block* b) noexcept nogil:
    cdef Block** at = &s.empties
    while at[0] != NULL and at[0] != b:
        at = &at[0].next_empty
    if at[0] == b:
        at[0] = b.next_empty
    b.empty = EMPTY_NO


cdef void block_forget(Store* s, Block* b) noexcept nogil:
    # The last of the list leaves it; its file stays as it is.
    s.n_blocks -= 1
    memos_forget(s)
    block_free(b)
