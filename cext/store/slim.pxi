# Compaction: a sealed block of which less than half is alive is copied without the rest, outside the lock.
#
# The copy goes to N.blk.tmp; the commit thread renames it between its groups; then, under the lock, the offsets change
# over. Until then the engine reads through its mapping of the old file, which therefore is made first.

cdef struct OlderBlock:
    # A block with ghosts, and the sequences that may be among them.
    uint64_t num
    uint64_t base
    uint64_t last

cdef struct Slim:
    Store* s
    Block* b
    const uint8_t* p
    uint64_t size
    OlderBlock* older           # older blocks: only tombstones for these are of use
    uint32_t n_older
    uint32_t* off               # offset + 1 in the copy
    Bytes out
    Block to                    # the holds of the copy
    uint32_t tombs
    Extent extent
    uint64_t digest
    uint32_t n


cdef bint slim_worth(const Store* s, Block* b) noexcept nogil:
    # Not the last block that has a byte: it says which sequence was the last.
    cdef uint64_t framing = MARKER
    if (not is_sealed(b) or b.damaged or b.cut or b.compaction == COMPACT_NEVER or b.work != WORK_NONE
            or b.bytes == BYTES_REGION or b == last_written(s)):
        return False
    if b.compaction == COMPACT_WANTED:
        return b.ghosts > 0
    tombs_needed(s, b)
    if b.framing > framing:
        framing = b.framing
    return is_sparse(s, b, b.live_bytes + b.needed + framing)


cdef bint slim_begin(Slim* m, Store* s, Block* b) noexcept nogil:
    # With the engine lock held: what is to be known of the other blocks.
    cdef uint32_t i
    cdef Block* other
    memset(m, 0, sizeof(Slim))
    m.s = s
    m.b = b
    m.older = <OlderBlock*>malloc((s.n_blocks + 1) * sizeof(OlderBlock))
    m.off = <uint32_t*>calloc(b.n + 1, 4)
    if m.older == NULL or m.off == NULL:
        return False
    for i in range(s.n_blocks):
        other = block_i(s, i)
        if other == b:
            break
        if other.ghosts:
            m.older[m.n_older].num = other.num
            m.older[m.n_older].base = other.base
            m.older[m.n_older].last = other.last
            m.n_older += 1
    return True


cdef uint64_t slim_older(const Slim* m, uint64_t seq) noexcept nogil:
    # The number of the block for whose ghost this tombstone may be, 0 when there is none.
    cdef uint32_t lo = 0, hi = m.n_older, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if m.older[mid].last < seq:
            lo = mid + 1
        else:
            hi = mid
    return m.older[lo].num if lo < m.n_older and m.older[lo].base <= seq else 0


cdef int slim_keep(Slim* m, uint64_t at, const Parsed* r) noexcept nogil:
    m.digest += record_mark(m.p + at, r, m.out.n)
    if not record_good(m.b.key, m.p + at, r) or bytes_add(&m.out, m.p + at, r.size) < 0:
        return -1
    m.n += 1
    return 0


cdef int slim_copy(Slim* m) noexcept nogil:
    # Collects what stays. Messages that are removed meanwhile may be in the copy: their slots say so.
    cdef Parsed r
    cdef Block* b = m.b
    cdef uint64_t at = 0, num
    cdef int64_t i
    cdef uint32_t k
    if not groups_fit(b.key, m.p, m.size, UINT64_MAX, False):
        return -1
    while at + REC_MIN <= m.size:
        if not record_parse(m.p + at, m.size - at, &r):
            return -1
        if r.raw_seq & TOMB:
            num = slim_older(m, r.seq) if r.seq else 0
            if num:
                if slim_keep(m, at, &r) < 0 or hold_add(&m.to, num, 1) < 0:
                    return -1
                m.tombs += 1
            elif r.seq == 0:
                extent_of(m.p + at, &r, &m.extent)
        elif not r.raw_seq & ERASED and r.seq:
            i = slot_of(b, r.seq)
            if i >= 0 and b.off[i] == at + 1:
                m.off[i] = <uint32_t>m.out.n + 1
                if slim_keep(m, at, &r) < 0:
                    return -1
        at += r.size
    for k in range(b.n):
        if b.off[k] and m.off[k] == 0:
            return -1       # a record that the walk did not meet
    return 0 if at == m.size else -1


cdef int slim_write(Slim* m) noexcept nogil:
    # The copy, closed by a marker over all of it, on disk under its temporary name.
    cdef Mark mark
    cdef uint8_t end[MARKER]
    cdef Bytes made
    cdef int rc
    mark.group = 0
    mark.start = 0
    mark.durable = m.out.n
    mark.digest = m.digest
    mark.count = m.n
    mark.flags = MARK_WHOLE | MARK_SUM
    mark.extent = m.extent
    marker_write(m.b.key, end, &mark)
    if bytes_add(&m.out, end, MARKER) < 0:
        return -1
    if not m.s.compress or m.out.n < COMPRESS_FROM:
        return temp_write(m.b, m.out.data, m.out.n)
    memset(&made, 0, sizeof(made))
    rc = compressed_make(m.out.data, m.out.n, &made)
    if rc >= 0:
        rc = temp_write(m.b, made.data, made.n) if rc == 0 else temp_write(m.b, m.out.data, m.out.n)
    bytes_free(&made)
    return rc


cdef int block_thin(Block* b) noexcept nogil:
    # Arrays with a slot for each live message only. With the engine lock held.
    cdef uint32_t i, k = 0
    cdef uint32_t* rel = <uint32_t*>malloc((b.live + 1) * 4)
    cdef uint32_t* off = <uint32_t*>malloc(<size_t>(b.live + 1) * 14)
    cdef uint32_t* sid = off + b.live
    cdef uint32_t* nxt = sid + b.live
    cdef uint16_t* lens = <uint16_t*>(nxt + b.live)
    if rel == NULL or off == NULL:
        free(rel)
        free(off)
        return ST_NO_MEMORY
    for i in range(b.n):
        if b.off[i]:
            rel[k] = <uint32_t>(seq_at(b, i) - b.base)
            off[k] = b.off[i]
            sid[k] = b.sid[i]
            nxt[k] = b.nxt[i]
            lens[k] = b.len[i]
            k += 1
    if b.cap_rel:
        free(b.rel)
    arrays_free(b)
    b.rel = rel
    b.cap_rel = b.live + 1
    b.arrays = off
    b.off = off
    b.sid = sid
    b.nxt = nxt
    b.len = lens
    b.n = k
    b.cap = k
    b.head = 0
    return ST_OK


cdef void slim_enter(Committer* c, Slim* m) noexcept nogil:
    # Under the engine lock, after the rename: the offsets change over.
    cdef Block* b = m.b
    cdef Block* empty
    cdef uint32_t i
    cdef uint64_t size
    b.ghosts = 0
    for i in range(b.n):
        if b.off[i]:
            b.off[i] = m.off[i]
        elif m.off[i]:      # removed while it was copied: its bytes shall not stay
            size = st_get32(m.out.data + m.off[i] - 1) & 0x7fffffff
            op_push(m.s, OP_ERASE, b, m.off[i] - 1, size, seq_at(b, i))
            b.ghosts += 1
    b.used = m.out.n
    b.writing.written = m.out.n
    b.writing.durable = m.out.n
    b.tombs = m.tombs
    free(b.holds)
    b.holds = m.to.holds
    b.n_holds = m.to.n_holds
    b.cap_holds = m.to.cap_holds
    b.needed = m.to.needed
    m.to.holds = NULL
    b.holding = 0
    tombs_needed(m.s, b)    # as slim_worth counts: there are more tombstones than that, of blocks with fewer ghosts
    b.framing = b.used - min(b.used, b.live_bytes + b.needed)
    b.compaction = COMPACT_SPARSE
    b.sided = False
    if <uint64_t>b.live * 4 < b.n:
        block_thin(b)
    if b.live == 0:
        empty_block(m.s, b)
    empty = m.s.stays
    while empty != NULL:    # its ghosts are gone
        empty.empty = EMPTY_LISTED
        empty = empty.next_empty
    stays_again(m.s)
    reap(m.s)


cdef void slim_block(Committer* c, Slim* m) noexcept nogil:
    # Without locks; the block is pinned and mapped, the store busy.
    cdef Store* s = m.s
    cdef Block* b = m.b
    cdef Opened old
    cdef bint copied, swapped
    memset(&old, 0, sizeof(old))
    m.p = b.data
    m.size = b.used
    copied = slim_copy(m) == 0
    swapped = copied and slim_write(m) == 0 and removals_wait(c, s) and temp_place(c, b, OP_SWAP, 0)
    env_lock(c.env)
    if swapped and not has_left(b):
        old = block_closed(b)
        slim_enter(c, m)
    elif not swapped:
        if not copied:
            b.compaction = COMPACT_NEVER
        if list_first(&c.slim) == &s.slim:      # not again and again
            list_remove(&s.slim)
    b.work = WORK_NONE
    env_unlock(c.env)
    opened_free(s.files, &old)
    q_lock(c)
    if swapped and not has_left(b):
        side_queue(c, b)
    unpin(c, b)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)
    q_unlock(c)


cdef void slim_free(Slim* m) noexcept nogil:
    free(m.older)
    free(m.off)
    free(m.to.holds)
    bytes_free(&m.out)


cdef void slim_map(Committer* c, Block* b) noexcept nogil:
    # With the engine lock held, which is let go: maps a block's file. One that cannot be read stays as it is.
    cdef Store* s = b.store
    cdef Opened o
    cdef bint ok
    q_lock(c)
    b.queue.pins += 1
    s.queue.busy += 1
    q_unlock(c)
    env_unlock(c.env)
    ok = block_open(b, &o)
    env_lock(c.env)
    if ok:
        opened_take(b, &o)
    else:
        b.compaction = COMPACT_NEVER
    env_unlock(c.env)
    opened_free(s.files, &o)
    q_lock(c)
    unpin(c, b)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)
    q_unlock(c)


cdef bint keeper_slim(Committer* c) noexcept nogil:
    # Compacts one block; False when there is nothing to do. Without locks.
    cdef Store* s
    cdef Slim m
    cdef Block* b = NULL
    cdef uint32_t i
    env_lock(c.env)
    s = <Store*>list_owner(list_first(&c.slim), &(<Store*>NULL).slim)
    if s == NULL:
        env_unlock(c.env)
        return False
    for i in range(s.n_blocks):
        b = block_i(s, i)
        if slim_worth(s, b) and (b.data == NULL or b.data_cap == b.used):
            break
        b = NULL
    if b != NULL and wants_bytes(b) and not s.io_errno:
        slim_map(c, b)
        return True
    if b == NULL or s.io_errno or not slim_begin(&m, s, b):
        if b != NULL and not s.io_errno:
            slim_free(&m)
        list_remove(&s.slim)
        env_unlock(c.env)
        return True
    b.work = WORK_COMPACT
    q_lock(c)
    b.queue.pins += 1
    s.queue.busy += 1
    q_unlock(c)
    env_unlock(c.env)
    slim_block(c, &m)
    slim_free(&m)
    return True


# ---- memory storage -------------------------------------------------------------------------------------------------

cdef void slim_region(Store* s, Block* b) noexcept nogil:
    # Copies the live records of a memory block together; at most half a block.
    cdef uint64_t size = 0, at = 0, cap
    cdef uint32_t i, n
    cdef uint8_t* p
    for i in range(b.head, b.n):
        if b.off[i]:
            size += st_get32(b.data + b.off[i] - 1) & 0x7fffffff
    cap = page_up(size + 1)
    p = <uint8_t*>pages_new(cap)
    if p == NULL:
        return
    for i in range(b.head, b.n):
        if b.off[i]:
            n = st_get32(b.data + b.off[i] - 1) & 0x7fffffff
            memcpy(p + at, b.data + b.off[i] - 1, n)
            b.off[i] = <uint32_t>at + 1
            at += n
    pages_free(b.data, b.data_cap)
    b.data = p
    b.data_cap = cap
    b.used = at
    if <uint64_t>b.live * 4 < b.n:
        block_thin(b)


cdef void slim_memory(Task* t) noexcept nogil:
    # One block a turn.
    cdef Store* s = <Store*>t.owner
    cdef Block* b
    cdef uint32_t i
    for i in range(1, s.n_blocks):
        b = block_i(s, i)
        if is_sealed(b) and b.live and b.live_bytes * 2 < b.used and b.used > PAGE:
            slim_region(s, b)
            if b.live_bytes * 2 < b.used:
                continue    # small messages: it cannot become denser
            task_post(&s.env.tasks, &s.slim_task)
            return
