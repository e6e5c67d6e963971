# Truncation: everything behind a sequence goes, and what is appended next takes its number.
#
# What a block still has below the cut is copied into a new block T, with a cut record that names the blocks which T takes
# the place of; these leave when T is on disk. Whichever of them a crash leaves: a replay that meets the cut record drops
# them, and one without it finds the stream as it was. In place of their tombstones for older blocks, T has some for all that
# left those.
#
#       before:  .. | 1 2 3 | 4 5 6 | 7 8        truncated behind 5:  .. | 1 2 3 | cut 4 5      (T)
#
# A fence stands before it: what was changed until then, in the blocks that go as well, is on disk before T is written. So
# what the logs say of the truncation is there first, and a log never knows of a sequence that another message has by now.

# ---- the new block -----------------------------------------------------------------------------------------------

cdef uint64_t cut_size(const Block* b, uint64_t seq) noexcept nogil:
    # Bytes of a block's messages up to seq.
    cdef uint64_t size = 0
    cdef uint32_t i
    for i in range(b.n):
        if b.off[i] and seq_at(b, i) <= seq:
            size += st_get32(b.data + b.off[i] - 1) & 0x7fffffff
    return size


cdef bint loses_tombs(const Store* s, const Block* b, uint32_t first) noexcept nogil:
    # Whether a block from that index on has tombstones that are needed for b.
    cdef uint32_t i, k
    cdef const Block* other
    for i in range(first, s.n_blocks if b.ghosts else first):
        other = block_i(s, i)
        k = hold_from(other, b.num)
        if k < other.n_holds and other.holds[k].num == b.num:
            return True
    return False


cdef int cut_tombs(Block* to, Block* b) noexcept nogil:
    # Tombstones for all that left b: which of them stood where cannot be read from a block that is being written.
    cdef Span none = span(NULL, 0)
    cdef uint32_t i
    if hold_add(to, b.num, b.n - b.live) < 0:
        return ST_NO_MEMORY
    for i in range(b.n):
        if b.off[i] == 0:
            stage(to, REC_MIN, seq_at(b, i) | TOMB, b.last_ts, none, none, none)
            to.tombs += 1
    return ST_OK


cdef int cut_copy(Store* s, Block* to, Block* b, uint64_t seq) noexcept nogil:
    # Copies the messages of b up to seq, and what is known of them.
    cdef Record r
    cdef uint32_t i, at, k
    cdef int rc
    for i in range(b.n):
        if b.off[i] == 0 or seq_at(b, i) > seq:
            continue
        rc = slot_load(s, b, i, &r)
        if rc == ST_DAMAGED:
            continue        # it is listed as lost, and cannot be served from T either
        if rc < 0 or block_room(to, r.seq) != ST_OK:
            return ST_IO if rc < 0 else ST_NO_MEMORY
        at = stage(to, <uint32_t>record_size(r.subject, r.header, r.data), r.seq, r.ts, r.subject, r.header, r.data)
        to.first_ts = r.ts if to.n == 0 else to.first_ts
        to.last_ts = max(to.last_ts, r.ts)
        k = slot_add(to, r.seq, at, b.sid[i], slot_size(b, i))
        to.nxt[k] = b.nxt[i]
    return ST_OK


cdef int64_t newest_time(Store* s, uint64_t seq) noexcept nogil:
    # The time of the newest message up to seq; as it was where there is none, but for a stream that begins again.
    cdef uint32_t bi = min(block_from(s, seq) + 1, s.n_blocks), i
    cdef Block* b
    while bi:
        bi -= 1
        b = block_i(s, bi)
        i = slot_from(b, seq + 1) if b.live else 0
        while i:
            i -= 1
            if b.off[i]:
                return ts_of(b, i)
    return s.last_ts if seq else 0


cdef int cut_make(Store* s, uint64_t seq, int64_t ts, uint32_t first, Block** out) noexcept nogil:
    # T, not in the list yet: it takes the place of the blocks from that index on. ts: of the newest message left.
    cdef Block* b = block_i(s, first) if first < s.n_blocks else NULL
    cdef uint64_t num = b.num if b != NULL else s.next_num
    cdef uint64_t behind = min(seq, b.base - 1) if b != NULL else seq
    cdef uint64_t size = CUT_SIZE + REC_MIN
    cdef uint8_t payload[CUT_SIZE - REC_MIN]
    cdef Span none = span(NULL, 0)
    cdef Block* to
    cdef uint64_t cut = 0, end, digest = 0
    cdef uint32_t i
    cdef int rc = ST_OK
    for i in range(first, s.n_blocks):
        b = block_i(s, i)
        if b.base > seq:
            break
        if b.live and block_data(b) == NULL:
            return ST_IO
        size += cut_size(b, seq)
    for i in range(first if s.storage == STORE_FILE else 0):
        b = block_i(s, i)
        size += <uint64_t>(b.n - b.live) * REC_MIN if loses_tombs(s, b, first) else 0
    to = tail_make(s, size, behind + 1)
    if to == NULL:
        return ST_NO_MEMORY
    if s.storage == STORE_FILE:
        for i in range(first):
            if rc == ST_OK and loses_tombs(s, block_i(s, i), first):
                rc = cut_tombs(to, block_i(s, i))
        st_put64(payload, CUT_MAGIC)
        st_put64(payload + 8, num)
        st_put64(payload + 16, behind)
        memset(payload + 24, 0, sizeof(payload) - 24)
        cut = stage(to, CUT_SIZE, TOMB, ts, none, none, span(payload, sizeof(payload)))
        to.tombs += 1
        to.cut = True
    for i in range(first, s.n_blocks):
        rc = cut_copy(s, to, block_i(s, i), seq) if rc == ST_OK else rc
    if rc == ST_OK and s.storage == STORE_FILE and to.last < seq:
        stage(to, REC_MIN, seq | TOMB, ts, none, none, none)    # which sequence is the last
        to.tombs += 1
        to.last = seq
    if rc < 0:
        block_free(to)
        return rc
    to.last = max(to.last, seq)
    if s.storage == STORE_FILE:
        end = st_load(&to.used)
        st_put64(to.data + cut + HEAD + 24, end)
        cut_digest(NULL, to.data, end, &digest)
        st_put64(to.data + cut + HEAD + 32, digest)
    out[0] = to
    return ST_OK


# ---- truncating --------------------------------------------------------------------------------------------------

cdef void chain_keep(Block** chain, const Store* s) noexcept nogil:
    # Of a chain by next_empty: the blocks that stay in the store.
    cdef Block* b
    while chain[0] != NULL:
        b = chain[0]
        if block_numbered(s, b.num) == b:
            chain = &b.next_empty
        else:
            chain[0] = b.next_empty


cdef void messages_cut(Store* s, uint32_t first, uint64_t seq) noexcept nogil:
    # All behind seq leave the indexes, then what could not be copied. The first sequence does not move up meanwhile: a
    # marker would say that all below it are gone, before the cut is written.
    cdef uint32_t bi, i
    cdef uint64_t at, size
    cdef Block* b
    s.first_seq = min(s.first_seq, seq)
    for bi in range(first, s.n_blocks):
        b = block_i(s, bi)
        for i in range(slot_from(b, seq + 1), b.n):
            if b.off[i]:
                take_out(s, b, i, RM_TRUNCATE)
    s.last_seq = seq
    if s.msgs == 0:
        s.first_seq = seq + 1
    for bi in range(first, s.n_blocks if s.lost != NULL else first):
        b = block_i(s, bi)
        for i in range(b.n):
            at = seq_at(b, i)
            if b.off[i] and s.lost.n and s.lost.seqs[min(lost_find(s.lost, at), s.lost.n - 1)] == at:
                size = b.len[i]
                take_out(s, b, i, RM_LIMIT)
                lost_add(s, at, size)


cdef Op* fence_new(Store* s) noexcept nogil:
    # A fence, and behind it an op for what each log has staged by then. NULL: no memory
    cdef Op* fence = op_new(OP_FENCE, NULL, 0, 0, 0)
    cdef Op* op = fence
    cdef Log* g
    q_lock(s.com)
    g = s.queue.logs
    while g != NULL and op != NULL:
        op.next = op_new(OP_APPEND, NULL, 0, 0, 0)
        op = op.next
        if op != NULL:
            op.log = g
        g = g.queue.next
    q_unlock(s.com)
    if op == NULL:
        ops_free(fence)
        return NULL
    return fence


cdef void ops_free(Op* op) noexcept nogil:
    cdef Op* after
    while op != NULL:
        after = op.next
        free(op)
        op = after


cdef void fence_put(Store* s, Op* fence) noexcept nogil:
    # With q held: what is staged, in the logs too, stands before it.
    cdef Op* op = fence.next
    cdef Op* after
    fence.next = NULL
    while op != NULL:
        after = op.next
        op.next = NULL
        if op.log.queue.dirty:
            op.bytes = op.log.queue.staged
            op.n = op.log.queue.follows
            op.log.queue.dirty = False
            op.log.queue.follows = False
            memset(&op.log.queue.staged, 0, sizeof(Bytes))
            ops_add(s, op)
        else:
            free(op)
        op = after
    ops_add(s, fence)


cdef void fences_lift(Store* s) noexcept nogil:
    # With q held: nothing waits any more for what was to be on disk first.
    cdef Op** at = &s.queue.ops
    cdef Op* op
    s.queue.ops_tail = NULL
    while at[0] != NULL:
        op = at[0]
        if op.kind == OP_FENCE:
            at[0] = op.next
            free(op)
        else:
            s.queue.ops_tail = op
            at = &op.next


cdef void blocks_cut(Store* s, uint32_t first, Block* to, Op* fence, Op* op) noexcept nogil:
    # T takes the place of the blocks from that index on, in the list and before the commit thread, which still writes
    # what they have.
    cdef uint32_t i
    invariant(first <= s.n_blocks and s.tail == NULL, "the tail is sealed before blocks are cut")
    op.n = s.n_blocks - first
    memcpy(op.blocks, s.blocks + s.b0 + first, op.n * sizeof(Block*))
    s.n_blocks = first
    memos_forget(s)
    chain_keep(&s.empties, s)
    chain_keep(&s.stays, s)
    s.announced = False
    tail_set(s, to)
    if s.storage == STORE_MEMORY:
        for i in range(op.n):
            block_free(op.blocks[i])
        free(op.blocks)
        free(op)
        return
    for i in range(op.n):
        lru_remove(s.com, op.blocks[i])
    st_release(&s.shared.floor, s.first_seq)
    q_lock(s.com)
    for i in range(op.n):
        block_left(op.blocks[i])
    fence_put(s, fence)
    if s.queue.out_tail != NULL:
        s.queue.out_tail.queue.next_out = to
    else:
        s.queue.out = to
    s.queue.out_tail = to
    ops_add(s, op)
    # A round that is under way knows of messages that are gone: their sequences are given again.
    if s.queue.done_ticket >= s.queue.cut_ticket:
        s.queue.cut_seq = s.last_seq
        s.queue.uncut_seq = s.queue.done_seq
    s.queue.cut_seq = min(s.queue.cut_seq, s.last_seq)
    s.queue.cut_ticket = s.shared.ticket + 1
    s.queue.done_seq = min(s.queue.done_seq, s.last_seq)
    q_unlock(s.com)
    s.durable_seq = min(s.durable_seq, s.last_seq)
    invariant(s.tail == to, "a truncated store goes on in the new block")


cdef uint64_t store_kept_seq(Store* s) noexcept nogil:
    cdef uint64_t seq
    q_lock(s.com)
    seq = s.queue.uncut_seq if s.queue.done_ticket < s.queue.cut_ticket else s.durable_seq
    q_unlock(s.com)
    return seq


cdef int store_truncate(Store* s, uint64_t seq, void (*before)(void* ctx) noexcept nogil, void* ctx) noexcept nogil:
    cdef uint32_t first
    cdef Block* to = NULL
    cdef Op* op
    cdef Op* fence = NULL
    cdef Sweep* sweeps = s.x.sweeps
    cdef int64_t ts
    cdef int rc
    if s.stopped:
        return ST_CLOSED
    if s.io_errno:
        return ST_IO
    if s.batch:
        return ST_UNKNOWN
    if seq >= s.last_seq:
        return ST_OK
    if no_room(s):
        return ST_FULL
    first = block_from(s, seq + 1)
    op = op_new(OP_CUT, NULL, 0, 0, seq)
    if op == NULL:
        return ST_NO_MEMORY
    op.blocks = <Block**>malloc((s.n_blocks - first + 1) * sizeof(Block*))
    rc = blocks_reserve(s) if op.blocks != NULL else ST_NO_MEMORY
    ts = newest_time(s, seq)
    rc = cut_make(s, seq, ts, first, &to) if rc == ST_OK else rc
    if rc == ST_OK and s.storage == STORE_FILE:
        fence = fence_new(s)
        if fence == NULL:
            block_free(to)
            rc = ST_NO_MEMORY
    if rc < 0:
        free(op.blocks)
        free(op)
        return rc
    invariant(counts_fit(s), "a store counts what it holds, before a truncation")
    if before != NULL:
        before(ctx)
    tail_seal(s)
    if fence != NULL:
        fence.off = to.num - 1
        fence.size = s.shared.ticket
        fence.seq = s.last_seq
        fence.first = st_load(&s.shared.floor)
    s.x.sweeps = NULL
    messages_cut(s, first, seq)
    s.last_ts = ts
    s.first_ts_seq = 0
    s.x.births += 2 * BORN      # cached filters are out of date
    lost_cut(s, seq)
    blocks_cut(s, first, to, fence, op)
    if s.storage == STORE_FILE:
        tail_seal(s)
    s.x.sweeps = sweeps
    sweeps_again(s, seq)
    if not s.recovery.replaying:
        age_arm(s)
    reap(s)
    invariant(counts_fit(s) and s.last_seq == seq, "a store counts what it holds, after a truncation")
    publish(s)
    return ST_OK
