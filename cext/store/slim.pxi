# Compaction: a sealed block of which less than half is alive is copied without the rest, outside the lock.
#
# The copy goes to N.blk.tmp; the commit thread renames it between its groups; then, under the lock, the offsets change
# over. Until then the engine reads through its mapping of the old file, which therefore is made first.

cdef struct Slim:
    Store* s
    Block* b
    const uint8_t* p
    uint64_t size
    uint64_t oldest             # no block holds anything below: tombstones for it are of no use
    uint32_t* off               # offset + 1 in the copy
    Bytes out
    uint32_t tombs
    uint64_t tomb_min
    uint64_t digest
    uint32_t n


cdef bint slim_worth(const Store* s, const Block* b) noexcept nogil:
    return b.sealed and not b.damaged and not b.compacting and b.live_bytes * 2 < b.used and not b.region


cdef int slim_keep(Slim* m, uint64_t at, const Parsed* r) noexcept nogil:
    m.digest += record_mark(m.p + at, r, m.out.n)
    if not record_good(m.b.key, m.p + at, r) or bytes_add(&m.out, m.p + at, r.size) < 0:
        return -1
    m.n += 1
    return 0


cdef int slim_copy(Slim* m) noexcept nogil:
    """Collects what stays. Messages that are removed meanwhile may be in the copy: their slots say so."""
    cdef Parsed r
    cdef Limits limits
    cdef Block* b = m.b
    cdef uint64_t at = 0
    cdef int64_t i
    cdef uint32_t k
    m.tomb_min = UINT64_MAX
    if not groups_fit(b.key, m.p, m.size, UINT64_MAX, False):
        return -1
    while at + REC_MIN <= m.size:
        if not record_parse(m.p + at, m.size - at, &r):
            return -1
        if r.raw_seq & TOMB:
            if r.seq >= m.oldest and r.seq < b.base:
                if slim_keep(m, at, &r) < 0:
                    return -1
                m.tombs += 1
                m.tomb_min = min(m.tomb_min, r.seq)
            elif r.seq == 0 and limits_read(m.p + at, &r, &limits) and slim_keep(m, at, &r) < 0:
                return -1
        elif not r.raw_seq & ERASED and r.seq:
            i = slot_of(b, r.seq)
            if i >= 0 and b.off[i] == at + 1:
                m.off[i] = <uint32_t> m.out.n + 1
                if slim_keep(m, at, &r) < 0:
                    return -1
        at += r.size
    for k in range(b.n):
        if b.off[k] and m.off[k] == 0:
            return -1       # a record that the walk did not meet
    return 0 if at == m.size else -1


cdef int slim_write(Slim* m) noexcept nogil:
    """The copy, closed by a marker over all of it, on disk under its temporary name."""
    cdef FileOps* f = m.s.files
    cdef Mark mark
    cdef uint8_t end[MARKER]
    cdef char path[4300]
    cdef int64_t rc
    cdef int fd
    mark.group = 0
    mark.start = 0
    mark.durable = m.out.n
    mark.digest = m.digest
    mark.count = m.n
    mark.flags = MARK_WHOLE | MARK_SUM
    marker_write(m.b.key, end, &mark)
    if bytes_add(&m.out, end, MARKER) < 0:
        return -1
    block_path(m.s, m.b, ".blk.tmp", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
    if fd < 0:
        return -1
    rc = f.pwrite(f.ctx, fd, m.out.data, m.out.n, 0)
    if rc >= 0:
        rc = f.datasync(f.ctx, fd)
    f.close(f.ctx, fd)
    return 0 if rc >= 0 else -1


cdef void swap_finish(Store* s, Op* op, int err) noexcept nogil:
    """The commit thread's part: the new file takes the old one's name, unless the block is gone."""
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef char temp[4300]
    cdef char side[4300]
    cdef bint ok = False
    block_path(s, op.block, ".blk", path, sizeof(path))
    block_path(s, op.block, ".blk.tmp", temp, sizeof(temp))
    if err == 0 and not op.block.gone:
        block_fd_close(op.block)
        block_path(s, op.block, ".jsx", side, sizeof(side))
        f.unlink(f.ctx, side)           # it knows another file
        ok = f.rename(f.ctx, temp, path) == 0
    if ok:
        f.sync_dir(f.ctx, s.msgs_dir)
    else:
        f.unlink(f.ctx, temp)
    op.answer[0] = 1 if ok else 2


cdef bint slim_swap(Committer* c, Slim* m) noexcept nogil:
    """Has the commit thread rename the copy; whether it did."""
    cdef Store* s = m.s
    cdef uint64_t answer = 0
    cdef Op* op = <Op*> calloc(1, sizeof(Op))
    cdef Op** at
    cdef Op* last = NULL
    if op == NULL:
        return False
    op.kind = OP_SWAP
    op.block = m.b
    op.answer = &answer
    op_queue(s, op)
    if not c.running:
        commit_inline(c)
    pthread_mutex_lock(&c.q)
    while answer == 0 and c.running:
        st_cond_wait(&c.idle, &c.q, INT64_MAX)
    if answer == 0:         # the thread has ended: take the request back
        at = &s.ops
        while at[0] != NULL:
            if at[0] == op:
                at[0] = op.next
                break
            last = at[0]
            at = &at[0].next
        if s.ops_tail == op:
            s.ops_tail = last
        free(op)
    pthread_mutex_unlock(&c.q)
    return answer == 1


cdef int block_thin(Block* b) noexcept nogil:
    """Arrays with a slot for each live message only. With the engine lock held."""
    cdef uint32_t i, k = 0
    cdef uint32_t* rel = <uint32_t*> malloc((b.live + 1) * 4)
    cdef uint32_t* off = <uint32_t*> malloc(<size_t> (b.live + 1) * 14)
    cdef uint32_t* sid = off + b.live
    cdef uint32_t* nxt = sid + b.live
    cdef uint16_t* lens = <uint16_t*> (nxt + b.live)
    if rel == NULL or off == NULL:
        free(rel)
        free(off)
        return ST_NO_MEMORY
    for i in range(b.n):
        if b.off[i]:
            rel[k] = <uint32_t> (seq_at(b, i) - b.base)
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
    """Under the engine lock, after the rename: the offsets change over."""
    cdef Block* b = m.b
    cdef uint32_t i
    cdef uint64_t size
    for i in range(b.n):
        if b.off[i]:
            b.off[i] = m.off[i]
        elif m.off[i]:      # removed while it was copied: its bytes shall not stay
            size = st_get32(m.out.data + m.off[i] - 1) & 0x7fffffff
            op_push(m.s, OP_ERASE, b, m.off[i] - 1, size, seq_at(b, i))
    b.used = m.out.n
    b.written = m.out.n
    b.durable = m.out.n
    b.tombs = m.tombs
    b.tomb_min = m.tomb_min
    b.sided = False
    if <uint64_t> b.live * 4 < b.n:
        block_thin(b)
    if b.live == 0 and not b.in_empties:
        empty_block(m.s, b)
        reap(m.s)


cdef void slim_block(Committer* c, Store* s, Block* b, uint64_t oldest) noexcept nogil:
    """Without locks; the block is pinned and mapped, the store busy."""
    cdef Slim m
    cdef uint8_t* old = NULL
    cdef uint64_t old_size = 0
    cdef bint swapped = False
    memset(&m, 0, sizeof(m))
    m.s = s
    m.b = b
    m.oldest = oldest
    m.p = b.data
    m.size = b.used
    m.off = <uint32_t*> calloc(b.n + 1, 4)
    if m.off != NULL and slim_copy(&m) == 0 and slim_write(&m) == 0:
        swapped = slim_swap(c, &m)
    env_lock(c.env)
    if swapped and not b.dead:
        lru_remove(c, b)
        old = b.data
        old_size = b.data_cap
        b.data = NULL
        slim_enter(c, &m)
    b.compacting = False
    env_unlock(c.env)
    if old != NULL:
        st_unmap(old, old_size)
    pthread_mutex_lock(&c.q)
    if swapped and not b.dead:
        side_queue(c, b)
    unpin(c, b)
    s.busy -= 1
    pthread_cond_broadcast(&c.idle)
    pthread_mutex_unlock(&c.q)
    free(m.off)
    bytes_free(&m.out)


cdef bint keeper_slim(Committer* c) noexcept nogil:
    """Compacts one block; False when there is nothing to do. Without locks."""
    cdef Store* s
    cdef Block* b = NULL
    cdef uint64_t oldest = 0
    cdef uint32_t i
    env_lock(c.env)
    s = c.slim
    if s == NULL:
        env_unlock(c.env)
        return False
    for i in range(s.n_blocks):
        b = block_i(s, i)
        if i and slim_worth(s, b) and block_data(b) != NULL and b.data_cap == b.used:
            break
        b = NULL
    if b == NULL or s.io_errno:
        c.slim = s.next_slim
        s.in_slim = False
        env_unlock(c.env)
        return True
    b.compacting = True
    oldest = block_i(s, 0).base
    pthread_mutex_lock(&c.q)
    b.pins += 1
    s.busy += 1
    pthread_mutex_unlock(&c.q)
    env_unlock(c.env)
    slim_block(c, s, b, oldest)
    return True


# ---- memory storage -------------------------------------------------------------------------------------------------

cdef void slim_region(Store* s, Block* b) noexcept nogil:
    """Copies the live records of a memory block together; at most half a block."""
    cdef uint64_t size = 0, at = 0, cap
    cdef uint32_t i, n
    cdef uint8_t* p
    for i in range(b.head, b.n):
        if b.off[i]:
            size += st_get32(b.data + b.off[i] - 1) & 0x7fffffff
    cap = page_up(size + 1)
    p = <uint8_t*> st_reserve(cap)
    if p == NULL:
        return
    for i in range(b.head, b.n):
        if b.off[i]:
            n = st_get32(b.data + b.off[i] - 1) & 0x7fffffff
            memcpy(p + at, b.data + b.off[i] - 1, n)
            b.off[i] = <uint32_t> at + 1
            at += n
    st_unmap(b.data, b.data_cap)
    b.data = p
    b.data_cap = cap
    b.used = at
    if <uint64_t> b.live * 4 < b.n:
        block_thin(b)


cdef void slim_memory(Task* t) noexcept nogil:
    """One block a turn."""
    cdef Store* s = <Store*> t.owner
    cdef Block* b
    cdef uint32_t i
    for i in range(1, s.n_blocks):
        b = block_i(s, i)
        if b.sealed and b.live and b.live_bytes * 2 < b.used and b.used > PAGE:
            slim_region(s, b)
            if b.live_bytes * 2 < b.used:
                continue    # small messages: it cannot become denser
            task_post(&s.env.tasks, &s.slim_task)
            return
