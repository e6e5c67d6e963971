# The maintenance thread: what may take its time, outside the commit path and, but for short moments, outside the lock.
#
# Its work: regions of sealed blocks are given back and their sidecars written, sparse blocks compacted, files zero-filled
# ahead of use, what went is removed, mappings bounded, idle stores made lean.

cdef enum:
    MAPS_MAX = 1024             # sealed blocks that stay mapped
    DECODED_MAX = 64 << 20      # bytes of those that were decoded
    AHEAD_STEP = 65536          # zeros written by one call


cdef void* keeper_main(void* arg) noexcept nogil:
    cdef Committer* c = <Committer*>arg
    cdef int64_t due
    q_lock(c)
    while not c.queue.stopping or not list_empty(&c.queue.zeros):
        if list_empty(&c.queue.zeros) and list_empty(&c.queue.trash) and list_empty(&c.queue.sides) and not c.queue.chore:
            due = min(rest_due(c), c.queue.follow_at)
            if due > env_clock(c.env):
                q_wait(c, &c.chores, due)
                continue
        keeper_some(c)
    q_unlock(c)
    return NULL


cdef int64_t rest_due(const Committer* c) noexcept nogil:
    # With q held: when the store that is idle longest becomes lean.
    cdef const Store* s = store_idle_longest(&c.queue.resting)
    return s.queue.active_at + IDLE_LEAN if s != NULL else INT64_MAX


cdef void keeper_turn(Committer* c) noexcept nogil:
    # Everything that is due, without a thread.
    q_lock(c)
    while (not list_empty(&c.queue.zeros) or not list_empty(&c.queue.trash) or not list_empty(&c.queue.sides) or c.queue.chore
           or min(rest_due(c), c.queue.follow_at) <= env_clock(c.env)):
        keeper_some(c)
    q_unlock(c)


cdef void keeper_some(Committer* c) noexcept nogil:
    # With q held, which is let go meanwhile: the most urgent thing.
    if not list_empty(&c.queue.zeros):
        keeper_zero(c)
    elif c.queue.follow_at <= env_clock(c.env):
        c.queue.follow_at = INT64_MAX
        q_unlock(c)
        journal_follow(c)
        q_lock(c)
    elif not list_empty(&c.queue.trash):
        trash_go(c)
    elif not list_empty(&c.queue.sides):
        keeper_side(c)
    elif c.queue.chore:
        c.queue.chore = False
        q_unlock(c)
        keeper_unmap(c)
        while keeper_slim(c):
            pass
        q_lock(c)
    else:
        keeper_rest(c)


# ---- sealed blocks -------------------------------------------------------------------------------------------------

cdef void keeper_side(Committer* c) noexcept nogil:
    # A sealed block's region is no longer needed, its file is read from now on; then its sidecar, and its compression.
    cdef Block* b = <Block*>list_owner(list_pop(&c.queue.sides), &(<Block*>NULL).queue.side)
    cdef Store* s = b.store
    cdef bint dead = has_left(b), rewrite = b.queue.rewrite
    cdef uint8_t* region = NULL
    b.queue.rewrite = False
    s.queue.busy += 1
    q_unlock(c)
    if not dead:
        env_lock(c.env)
        if b.bytes == BYTES_REGION and is_closed(b):
            region = b.data
            b.data = NULL
            b.bytes = BYTES_MAPPED
        env_unlock(c.env)
        if region != NULL:
            region_free(s, region, b.data_cap, b.lean)
        if not b.sided and side_build(b):
            block_compress(c, b)
        b.sided = True
        if rewrite:
            block_rewrite(c, b)
    q_lock(c)
    unpin(c, b)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)


cdef Block* lru_block(ListNode* n) noexcept nogil:
    return <Block*>list_owner(n, &(<Block*>NULL).lru)


cdef Block* lru_victim(Committer* c) noexcept nogil:
    # With the engine lock held: the block whose bytes are to go next, NULL: there are not too many.
    cdef ListWalk walk
    cdef Block* b
    cdef Block* victim = NULL
    if c.decoded <= DECODED_MAX:
        return lru_block(list_last(&c.lru)) if c.n_maps > MAPS_MAX else NULL
    walk = list_walk(&c.lru)
    list_step(&walk)                # the one that was read last stays: it may be large
    b = lru_block(list_step(&walk))
    while b != NULL:
        victim = b if b.bytes == BYTES_DECODED else victim
        b = lru_block(list_step(&walk))
    return victim


cdef void keeper_unmap(Committer* c) noexcept nogil:
    # Unmaps the sealed blocks that were read longest ago.
    cdef Block* b
    cdef Opened o
    while True:
        env_lock(c.env)
        b = lru_victim(c)
        if b == NULL or b.work != WORK_NONE:
            env_unlock(c.env)
            return
        o = block_closed(b)
        env_unlock(c.env)
        opened_free(c.env.files, &o)


# ---- zeros ahead of use ----------------------------------------------------------------------------------------------

cdef void keeper_zero(Committer* c) noexcept nogil:
    cdef Block* b = <Block*>list_owner(list_first(&c.queue.zeros), &(<Block*>NULL).queue.zero)
    cdef Store* s = b.store
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint8_t* zeros
    cdef uint64_t at = b.queue.zero_from
    cdef int fd = -1
    cdef int64_t rc = 0
    cdef bint full
    list_remove(&b.queue.zero)
    s.queue.busy += 1
    q_unlock(c)
    zeros = <uint8_t*>aligned_alloc(PAGE, AHEAD_STEP)
    block_path(s, b, ".blk", path, sizeof(path))
    if zeros != NULL and not has_left(b):
        memset(zeros, 0, AHEAD_STEP)
        # Past the page cache: the commit thread's fdatasync waits for every dirty page of the file.
        fd = f.open(f.ctx, path, O_RDWR, 0)
        if fd >= 0:
            f.direct(f.ctx, fd, True)
    full = st_load(&c.shared.full) != 0
    while fd >= 0 and at < b.queue.zero_to and not full:
        rc = f.pwrite(f.ctx, fd, zeros, min(b.queue.zero_to - at, <uint64_t>AHEAD_STEP), <off_t>at)
        if rc < 0:
            break
        at += <uint64_t>rc
        full = st_load(&c.shared.full) != 0
    if fd >= 0:
        if rc < 0 or full:
            f.truncate(f.ctx, fd, <off_t>b.queue.zero_from)     # the room is for what must be written
        sync_said(s, f.datasync(f.ctx, fd))
        f.close(f.ctx, fd)
    free(zeros)
    q_lock(c)
    if rc < 0 or fd < 0:
        b.writing.zeroed = UINT64_MAX       # after an error it is not tried again
    elif not full:
        b.writing.zeroed = at
    b.queue.zeroing = False
    unpin(c, b)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)


# ---- idle stores --------------------------------------------------------------------------------------------------------

cdef bint rests(const Store* s) noexcept nogil:
    # Whether pages of its tail are in the file and need not be in memory.
    cdef const Block* b = s.tail
    return b != NULL and b.bytes == BYTES_REGION and b.writing.written == b.used and b.used >= PAGE and not s.shared.dirty


cdef void keeper_rest(Committer* c) noexcept nogil:
    # With q held: the store that is idle longest keeps its tail in the file instead of in memory.
    cdef Store* s = store_idle_longest(&c.queue.resting)
    cdef Block* b
    cdef uint64_t whole = 0, num = 0
    cdef FileOps* f
    cdef char path[4300]
    cdef int fd
    if s == NULL or s.queue.active_at + IDLE_LEAN > env_clock(c.env):
        return
    active_leave(s)
    s.queue.busy += 1
    q_unlock(c)
    f = s.files
    env_lock(c.env)
    b = s.tail
    if rests(s):
        num = b.num
        block_path(s, b, ".blk", path, sizeof(path))
    env_unlock(c.env)
    fd = f.open(f.ctx, path, O_RDONLY, 0) if num else -1
    if fd >= 0:
        env_lock(c.env)
        if s.tail == b and rests(s) and b.num == num:
            whole = b.used & ~<uint64_t>(PAGE - 1)
            if f.map_over(f.ctx, b.data, fd, whole) == 0:
                b.lean = whole
        env_unlock(c.env)
        f.close(f.ctx, fd)
    q_lock(c)
    s.queue.busy -= 1
    q_broadcast(c, &c.idle)
