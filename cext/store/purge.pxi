# Purges: of everything, of a part, of one subject. Nothing here waits for a file.

cdef enum:
    KEPT_MAX = 1000             # messages that stay, up to which a purge of all before them makes the index anew
    PURGE_AHEAD = 16            # messages that a purge looks for before it removes them


cdef int purge_all(Store* s, uint64_t first) noexcept nogil:
    # Everything goes at once; first > last_seq + 1 moves the sequences on. The commit thread replaces the directory.
    cdef Block** old = <Block**>malloc((s.n_blocks + 1) * sizeof(Block*))
    cdef Op* op = <Op*>calloc(1, sizeof(Op))
    cdef Block* tail = NULL
    cdef uint32_t n = s.n_blocks, i
    cdef uint64_t last = max(s.last_seq, first - 1 if first else 0)
    cdef Index fresh
    cdef bint made = index_init(&fresh, s.env) == ST_OK
    if s.storage == STORE_FILE:
        tail = tail_make(s, REC_MIN, last + 1)
        made = made and tail != NULL
    if not made or old == NULL or op == NULL or blocks_reserve(s) < 0:
        index_free(&fresh)
        free(old)
        free(op)
        if tail != NULL:
            block_free(tail)
        return ST_NO_MEMORY
    invariant(counts_fit(s), "a store counts what it holds, before a purge")
    memcpy(old, s.blocks + s.b0, n * sizeof(Block*))
    fresh.births = s.x.births + 2 * BORN    # cached filters are out of date
    sweeps_empty(&s.x)
    index_replace(s, &fresh)
    s.b0 = 0
    s.n_blocks = 0
    s.empties = NULL
    s.stays = NULL
    memos_forget(s)
    s.tail = NULL
    s.msgs = 0
    s.bytes = 0
    s.last_seq = last
    s.first_seq = last + 1
    if s.storage == STORE_MEMORY:
        for i in range(n):
            leftover_block(s, old[i])
        free(old)
        free(op)
        publish(s)
        return ST_OK
    tail_set(s, tail)
    stage_bare(s, last | TOMB, s.last_ts)
    s.announced = False
    op.kind = OP_PURGE
    op.block = tail
    op.blocks = old
    op.n = n
    for i in range(n):
        lru_remove(s.com, old[i])
    # Together: the old directory may not go before the new one can hold the last sequence.
    q_lock(s.com)
    for i in range(n):
        block_left(old[i])
    s.queue.out = tail
    s.queue.out_tail = tail
    fences_lift(s)      # the blocks before them are not written any more
    ops_add(s, op)
    q_unlock(s.com)
    invariant(counts_fit(s) and s.n_blocks == 1, "a store counts what it holds, after a purge")
    publish(s)
    return ST_OK


cdef uint32_t kept_from(const Store* s, uint64_t seq, uint64_t keep) noexcept nogil:
    # The slot of the tail from which on messages stay where the newest `keep` do, or those from a sequence on. Its n where
    # none does, where not all of them stand in the tail, or where there are more than KEPT_MAX.
    cdef const Block* b = s.tail
    cdef uint32_t i = b.n, first = b.n
    cdef uint64_t left = keep if keep else KEPT_MAX
    if (keep and seq) or keep > KEPT_MAX or (keep == 0 and (seq < b.base or seq <= s.first_seq)):
        return b.n
    while i > b.head:
        i -= 1
        if b.off[i] == 0:
            continue
        if keep == 0 and seq_at(b, i) < seq:
            return first
        if left == 0:
            return first if keep else b.n
        first = i
        left -= 1
    return first if keep == 0 or left == 0 else b.n


cdef bint purges_all(const Store* s, const Filter* filter, uint64_t seq, uint64_t keep) noexcept nogil:
    return matches_all(filter) and keep == 0 and (seq == 0 or seq > s.last_seq) and not s.batch


cdef bint store_purges_at_once(const Store* s, const Filter* filter, uint64_t seq, uint64_t keep) noexcept nogil:
    return (purges_all(s, filter, seq, keep)
            or (matches_all(filter) and s.tail != NULL and kept_from(s, seq, keep) < s.tail.n))


cdef int index_of_kept(Store* s, Index* x, uint32_t first) noexcept nogil:
    # An index with the subjects of the tail's messages from this slot on, none counted yet.
    cdef Block* b = s.tail
    cdef uint32_t i
    if index_init(x, s.env) < 0:
        return ST_NO_MEMORY
    for i in range(first, b.n):
        if b.off[i] and index_intern(x, node_text(&s.x, b.sid[i])) < 0:
            return ST_NO_MEMORY
    return ST_OK


cdef int purge_older(Store* s, uint32_t first) noexcept nogil:
    # Everything before a live slot of the tail goes, by blocks: what stands before it in the tail is struck out, and the index
    # made anew of the rest, whose ids nobody else reads there.
    cdef Block* b = s.tail
    cdef uint32_t n = s.n_blocks - 1, start = s.b0, head = b.head, i, k
    cdef uint64_t seq = seq_at(b, first)
    cdef Index fresh
    if index_of_kept(s, &fresh, first) < 0:
        index_free(&fresh)
        return ST_NO_MEMORY
    b.ghosts += b.live
    b.live = 0
    b.live_bytes = 0
    memset(b.off, 0, <size_t>first * 4)
    b.head = first
    for i in range(first, b.n):
        if b.off[i]:
            b.sid[i] = <uint32_t>index_intern(&fresh, node_text(&s.x, b.sid[i]))   # it is there
            index_count(&fresh, b.sid[i], seq_at(b, i))
            b.live += 1
            b.live_bytes += slot_size(b, i)
    b.ghosts -= b.live
    fresh.births = s.x.births + 2 * BORN    # cached filters are out of date
    fresh.sweeps = s.x.sweeps
    index_replace(s, &fresh)
    s.msgs = b.live
    s.bytes = b.live_bytes
    s.first_seq = seq
    st_release(&s.shared.floor, seq)    # before the files are on their way out
    s.b0 += n
    s.n_blocks = 1
    memos_forget(s)
    s.empties = NULL
    s.stays = NULL
    for k in range(n):
        block_leaves(s, s.blocks[start + k])
    lost_drop_below(s, seq)
    sweeps_again(s, UINT64_MAX)
    if s.storage == STORE_FILE:
        for i in range(head, first):        # where memory runs out, only the marker says so
            if stage_tomb(s, b, seq_at(b, i), s.env.now) < 0:
                break
    return ST_OK


cdef int64_t store_purge(Store* s, const Filter* filter, uint64_t seq, uint64_t keep) noexcept nogil:
    cdef uint64_t total, end, before = s.last_seq + 1
    cdef int r
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    total = index_total(&s.x, filter, NULL)
    if purges_all(s, filter, seq, keep):
        r = purge_all(s, seq)
        if r < 0:
            return r
        if total and s.on_removed != NULL:
            s.on_removed(s.ctx, 0, span(NULL, 0), RM_PURGE)
        return <int64_t>total
    if keep >= total:
        return 0
    if store_purges_at_once(s, filter, seq, keep):
        r = purge_older(s, kept_from(s, seq, keep))
        if r < 0:
            return r
        if s.on_removed != NULL:
            s.on_removed(s.ctx, 0, span(NULL, 0), RM_PURGE)
        publish(s)
        return <int64_t>(total - s.msgs)
    end = seq if seq else before
    while keep and before:
        before = store_back(s, filter, before, &keep)
    return store_purge_some(s, filter, 0, min(end, before), UINT64_MAX)


cdef uint32_t purge_look(Store* s, const Filter* filter, uint64_t at, uint64_t end, uint64_t most, uint64_t* out) noexcept nogil:
    # The next messages that go. What of the indexes their removal needs is on its way into the processor's cache by then.
    cdef uint32_t n = 0, k, d
    cdef int64_t i
    cdef Block* b
    while n < min(most, <uint64_t>PURGE_AHEAD):
        at = store_next_seq(s, filter, at)
        if at == 0 or at >= end:
            break
        out[n] = at
        n += 1
        b = block_of(s, at)
        st_prefetch(node_at(&s.x, b.sid[slot_of(b, at)]))
        at += 1
    for k in range(n):
        b = block_of(s, out[k])
        i = slot_of(b, out[k])
        st_prefetch(node_at(&s.x, node_at(&s.x, b.sid[i]).parent))
        d = b.nxt[i]
        b = block_along(s, out[k] + d) if d and d != FAR else NULL
        i = slot_of(b, out[k] + d) if b != NULL else -1
        if i >= 0:
            st_prefetch(&b.off[i])
    return n


cdef int64_t store_purge_some(Store* s, const Filter* filter, uint64_t start, uint64_t end, uint64_t most) noexcept nogil:
    cdef uint64_t gone = 0, at = start
    cdef uint64_t found[PURGE_AHEAD]
    cdef uint32_t n = PURGE_AHEAD, i
    cdef Block* b
    cdef bint whole
    cdef int r = ST_OK
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    while r == ST_OK and gone < most and n == PURGE_AHEAD:
        n = purge_look(s, filter, at, end, most - gone, found)
        for i in range(n):
            at = found[i]
            b = block_of(s, at)
            whole = matches_all(filter) and b.last < end and b != s.tail    # the block goes, too
            r = take_for_good(s, b, <uint32_t>slot_of(b, at), RM_PURGE, whole)
            if r < 0:
                break
            gone += 1
            at += 1
    reap(s)
    if gone:
        publish(s)
    return <int64_t>gone if r == ST_OK else r


cdef int64_t store_purge_subject(Store* s, Span subject) noexcept nogil:
    cdef uint32_t id = index_find(&s.x, subject), left = node_at(&s.x, id).count if id else 0
    cdef int64_t gone = 0
    cdef uint64_t seq
    cdef Block* b
    cdef int r = ST_OK
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    while left:
        seq = node_at(&s.x, id).first
        b = block_of(s, seq)
        r = take_for_good(s, b, <uint32_t>slot_of(b, seq), RM_PURGE, False)
        if r < 0:
            break
        left -= 1
        gone += 1
    if gone:
        if s.empties != NULL or s.msgs == 0:
            reap(s)
        publish(s)
    return gone if r == ST_OK else r
