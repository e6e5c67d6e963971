# Blocks: their arrays by slot, the regions that they are appended to in, and the list of them by sequence.

# ---- states ---------------------------------------------------------------------------------------------------

cdef inline bint is_sealed(const Block* b) noexcept nogil:
    return b.queue.state == BLOCK_SEALED or b.queue.state == BLOCK_LEFT


cdef inline bint has_left(const Block* b) noexcept nogil:
    return b.queue.state >= BLOCK_LEFT_OPEN


cdef inline void block_left(Block* b) noexcept nogil:
    # With q held: the store has let go of it.
    invariant(not has_left(b), "a block leaves its store once")
    b.queue.state = BLOCK_LEFT_OPEN if b.queue.state == BLOCK_OPEN else BLOCK_LEFT


cdef inline bint has_file(const Block* b) noexcept nogil:
    # Whether its directory entry is there.
    return b.writing.file >= FILE_OPEN


cdef inline bint is_closed(const Block* b) noexcept nogil:
    # Whether nothing is written to its file any more, if it has one.
    return b.writing.file == FILE_NEVER or b.writing.file >= FILE_CLOSED


cdef inline bint counts_fit(const Store* s) noexcept nogil:
    # What holds of a store before each change and after it.
    if s.msgs == 0:
        return s.bytes == 0 and s.first_seq == s.last_seq + 1
    return s.first_seq <= s.last_seq and s.msgs <= s.last_seq - s.first_seq + 1


# ---- slots ------------------------------------------------------------------------------------------------

cdef inline uint64_t seq_at(const Block* b, uint32_t i) noexcept nogil:
    return b.base + (i if b.rel == NULL else b.rel[i])


cdef inline uint32_t slot_from(const Block* b, uint64_t seq) noexcept nogil:
    # The first slot whose sequence is >= seq; b.n when none.
    cdef uint64_t d
    cdef uint32_t lo = 0, hi = b.n, mid
    if seq <= b.base:
        return 0
    d = seq - b.base
    if b.rel == NULL:
        return <uint32_t>d if d < b.n else b.n
    while lo < hi:
        mid = (lo + hi) >> 1
        if b.rel[mid] < d:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef inline int64_t slot_of(const Block* b, uint64_t seq) noexcept nogil:
    # The slot of exactly this sequence, -1 when there is none.
    cdef uint32_t i
    if seq < b.base:
        return -1
    i = slot_from(b, seq)
    if i < b.n and (b.rel == NULL or b.base + b.rel[i] == seq):
        return i
    return -1


cdef void arrays_free(Block* b) noexcept nogil:
    if b.arrays_size:
        pages_free(b.arrays, b.arrays_size)
    else:
        free(b.arrays)
    free(b.nxt_own)
    b.nxt_own = NULL
    b.arrays = NULL
    b.arrays_size = 0


cdef int arrays_grow(Block* b, uint32_t cap) noexcept nogil:
    # Moves the arrays to room for cap slots.
    cdef size_t size = <size_t>cap * 14
    cdef uint8_t* p
    cdef size_t mapped = 0
    cdef uint32_t* off
    cdef uint32_t* sid
    cdef uint32_t* nxt
    cdef uint16_t* lens
    if cap > SLOTS_SMALL:
        mapped = page_up(size)
        p = <uint8_t*>pages_new(mapped)
    else:
        p = <uint8_t*>malloc(size)
    if p == NULL:
        return ST_NO_MEMORY
    off = <uint32_t*>p
    sid = off + cap
    nxt = sid + cap
    lens = <uint16_t*>(nxt + cap)
    memcpy(off, b.off, b.n * 4)
    memcpy(sid, b.sid, b.n * 4)
    memcpy(nxt, b.nxt, b.n * 4)
    memcpy(lens, b.len, b.n * 2)
    arrays_free(b)
    b.arrays = p
    b.arrays_size = mapped
    b.off = off
    b.sid = sid
    b.nxt = nxt
    b.len = lens
    b.cap = cap
    return ST_OK


cdef int rel_grow(Block* b, uint32_t need) noexcept nogil:
    cdef uint32_t cap = max(need, b.cap_rel * 2)
    cdef uint32_t* p
    if need <= b.cap_rel:
        return ST_OK
    p = <uint32_t*>realloc(b.rel if b.cap_rel else NULL, <size_t>cap * 4)
    if p == NULL:
        return ST_NO_MEMORY
    if b.cap_rel == 0 and b.rel != NULL:
        memcpy(p, b.rel, <size_t>b.n * 4)      # it stood in a file
    b.rel = p
    b.cap_rel = cap
    return ST_OK


cdef int block_sparse(Block* b) noexcept nogil:
    # From a slot for every sequence to a slot for every message.
    cdef uint32_t i
    if b.rel != NULL:
        return ST_OK
    if rel_grow(b, max(b.n + 1, <uint32_t>16)) < 0:
        return ST_NO_MEMORY
    for i in range(b.n):
        b.rel[i] = i
    return ST_OK


cdef int block_room(Block* b, uint64_t seq) noexcept nogil:
    # Makes sure that slot_add for this sequence cannot fail. 1: the block cannot hold it, take a new one.
    cdef uint64_t gap = seq - b.base - b.n if b.rel == NULL else 0
    cdef uint64_t need, cap
    if seq - b.base >= FAR:
        return 1
    if gap > 1024 and gap > b.n:
        if block_sparse(b) < 0:
            return ST_NO_MEMORY
        gap = 0
    need = b.n + gap + 1
    if b.rel != NULL and rel_grow(b, <uint32_t>need) < 0:
        return ST_NO_MEMORY
    if need > b.cap:
        cap = max(<uint64_t>b.cap * 4, <uint64_t>16)
        while cap < need:
            cap *= 4
        if cap > SLOTS_SMALL:
            cap = max(b.data_cap // REC_MIN + 1, need + need // 2)
        if cap >= FAR:
            return 1
        return arrays_grow(b, <uint32_t>cap)
    return ST_OK


cdef inline uint32_t slot_add(Block* b, uint64_t seq, uint32_t off, uint32_t sid, uint64_t counted) noexcept nogil:
    # After block_room: the slot of the block's newest message.
    cdef uint32_t i = b.n, at
    if b.rel == NULL:
        at = <uint32_t>(seq - b.base)
        while i < at:
            b.off[i] = 0
            b.sid[i] = 0
            b.nxt[i] = 0
            b.len[i] = 0
            i += 1
    else:
        b.rel[i] = <uint32_t>(seq - b.base)
    b.off[i] = off + 1
    b.sid[i] = sid
    b.nxt[i] = 0
    b.len[i] = <uint16_t>counted if counted < 65535 else 65535
    b.n = i + 1
    b.last = seq
    b.live += 1
    b.live_bytes += counted
    return i


# ---- the list of blocks ------------------------------------------------------------------------------------

cdef inline Block* block_i(const Store* s, uint32_t i) noexcept nogil:
    return s.blocks[s.b0 + i]


cdef Block* last_written(const Store* s) noexcept nogil:
    # The last block that has a byte, or the first one.
    cdef uint32_t i = s.n_blocks
    while i > 1 and st_load(&block_i(s, i - 1).used) == 0:
        i -= 1
    return block_i(s, i - 1)


cdef uint32_t block_from(const Store* s, uint64_t seq) noexcept nogil:
    # Index of the first block that reaches up to seq; n_blocks when none.
    cdef uint32_t lo = 0, hi = s.n_blocks, mid
    if hi and block_i(s, hi - 1).base <= seq and block_i(s, hi - 1).last >= seq:
        lo = hi - 1
        while lo and block_i(s, lo - 1).last >= seq:
            lo -= 1
        return lo
    while lo < hi:
        mid = (lo + hi) >> 1
        if block_i(s, mid).last < seq:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef inline Block* block_near(const Store* s, uint64_t seq, Block** memo) noexcept nogil:
    cdef Block* b = memo[0]
    cdef uint32_t i
    if b != NULL and b.base <= seq <= b.last:
        return b
    i = block_from(s, seq)
    if i == s.n_blocks:
        return NULL
    b = block_i(s, i)
    if b.base > seq:
        return NULL
    memo[0] = b
    return b


cdef inline Block* block_of(Store* s, uint64_t seq) noexcept nogil:
    # The block that accounts for a sequence, or NULL.
    return block_near(s, seq, &s.memo_block)


cdef inline Block* block_along(Store* s, uint64_t seq) noexcept nogil:
    # The same for the next message of a subject, which is often far from what is looked at otherwise.
    return block_near(s, seq, &s.memo_chain)


cdef inline void memos_forget(Store* s) noexcept nogil:
    # Blocks leave the list.
    s.memo_block = NULL
    s.memo_chain = NULL


cdef int blocks_reserve(Store* s) noexcept nogil:
    if s.b0 + s.n_blocks < s.cap_blocks:
        return ST_OK
    if s.b0 > s.n_blocks:
        memmove(s.blocks, s.blocks + s.b0, s.n_blocks * sizeof(Block*))
        s.b0 = 0
        return ST_OK
    if array_room(&s.blocks, &s.cap_blocks, <uint64_t>s.b0 + s.n_blocks + 1, sizeof(Block*), 2) < 0:
        return ST_NO_MEMORY
    return ST_OK


cdef void blocks_take_out(Store* s, Block* b) noexcept nogil:
    cdef uint32_t i = block_from(s, b.base)
    while i < s.n_blocks and block_i(s, i) != b:
        i += 1
    if i == s.n_blocks:     # an empty span: look everywhere
        i = 0
        while i < s.n_blocks and block_i(s, i) != b:
            i += 1
        if i == s.n_blocks:
            return
    if i == 0:
        s.b0 += 1
    else:
        memmove(s.blocks + s.b0 + i, s.blocks + s.b0 + i + 1, (s.n_blocks - i - 1) * sizeof(Block*))
    s.n_blocks -= 1
    memos_forget(s)


cdef Block* block_numbered(const Store* s, uint64_t num) noexcept nogil:
    # The block of that file, NULL when it has left.
    cdef uint32_t lo = 0, hi = s.n_blocks, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if block_i(s, mid).num < num:
            lo = mid + 1
        else:
            hi = mid
    return block_i(s, lo) if lo < s.n_blocks and block_i(s, lo).num == num else NULL


# ---- tombstones for other blocks ---------------------------------------------------------------------------
#
# A tombstone is needed as long as the bytes of its message stand in a file: a replay would take that for alive. So each
# block counts its ghosts, which a compaction or its end makes zero, and whose ghosts its tombstones are for.

cdef uint32_t hold_from(const Block* b, uint64_t num) noexcept nogil:
    # Index of the first of b's holds for a block of that number or a higher one.
    cdef uint32_t lo = 0, hi = b.n_holds, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if b.holds[mid].num < num:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef int hold_add(Block* b, uint64_t num, uint64_t n) noexcept nogil:
    # Counts tombstones of b for ghosts of another block.
    cdef uint32_t lo = hold_from(b, num)
    if lo == b.n_holds or b.holds[lo].num != num:
        if array_room(&b.holds, &b.cap_holds, <uint64_t>b.n_holds + 1, sizeof(Hold), 2) < 0:
            return ST_NO_MEMORY
        memmove(b.holds + lo + 1, b.holds + lo, (b.n_holds - lo) * sizeof(Hold))
        b.holds[lo].num = num
        b.holds[lo].count = 0
        b.n_holds += 1
    b.holds[lo].count += n
    b.needed += n * REC_MIN
    return ST_OK


cdef bint tombs_needed(const Store* s, Block* b) noexcept nogil:
    # Whether a replay would bring messages back without this block's tombstones; counts their bytes.
    cdef uint32_t i
    cdef const Block* other
    b.needed = 0
    for i in range(b.n_holds):
        other = block_numbered(s, b.holds[i].num)
        if other != NULL and other.ghosts:
            b.needed += min(b.holds[i].count, <uint64_t>other.ghosts) * REC_MIN
    return b.needed > 0


# ---- bytes ---------------------------------------------------------------------------------------------------

cdef Block* block_new(Store* s, uint64_t num, uint64_t base) noexcept nogil:
    cdef Block* b = <Block*>calloc(1, sizeof(Block))
    cdef char text[600]
    if b == NULL:
        return NULL
    b.store = s
    b.num = num
    if s.storage == STORE_FILE:
        snprintf(text, sizeof(text), "%s-%llu", s.name, <unsigned long long>num)
        store_key(span(text, <uint32_t>strlen(text)), b.key)
    b.base = base
    b.last = base - 1
    b.writing.fd = -1
    b.writing.page_at = UINT64_MAX
    return b


cdef uint8_t* region_new(Store* s, uint64_t cap) noexcept nogil:
    # An anonymous region, a recycled one when the size is the usual.
    cdef Committer* c = s.com
    cdef uint8_t* p = NULL
    if c != NULL and s.storage == STORE_FILE and cap == c.pool_size:
        q_lock(c)
        if c.queue.n_pool:
            c.queue.n_pool -= 1
            p = <uint8_t*>c.queue.pool[c.queue.n_pool]
        q_unlock(c)
        if p != NULL:
            return p
    return <uint8_t*>pages_new(cap)


cdef void region_free(Store* s, uint8_t* p, uint64_t cap, bint lean) noexcept nogil:
    # Recycled regions keep old bytes: everything in a block is written before it is read.
    cdef Committer* c = s.com
    if c != NULL and s.storage == STORE_FILE and cap == c.pool_size and not lean:
        q_lock(c)
        if c.queue.n_pool < 4:
            c.queue.pool[c.queue.n_pool] = p
            c.queue.n_pool += 1
            p = NULL
        q_unlock(c)
    if p == NULL:
        return
    if lean:
        s.files.unmap(s.files.ctx, p, cap)
    else:
        pages_free(p, cap)


cdef void lru_remove(Committer* c, Block* b) noexcept nogil:
    if not list_drop(&b.lru):
        return
    c.n_maps -= 1
    if b.bytes == BYTES_DECODED:
        c.decoded -= b.data_cap


cdef void lru_push(Committer* c, Block* b) noexcept nogil:
    list_push_front(&c.lru, &b.lru)
    c.n_maps += 1
    if b.bytes == BYTES_DECODED:
        c.decoded += b.data_cap


cdef void block_fd_close(Block* b) noexcept nogil:
    # Its descriptor, if it is open, and what is known of its file's last page.
    cdef FileOps* f = b.store.files
    if b.writing.fd >= 0:
        f.close(f.ctx, b.writing.fd)
    b.writing.fd = -1
    free(b.writing.page)
    b.writing.page = NULL
    b.writing.page_at = UINT64_MAX


cdef void block_free(Block* b) noexcept nogil:
    # Its memory; the file stays.
    cdef Store* s = b.store
    arrays_free(b)
    if b.cap_rel:
        free(b.rel)
    free(b.holds)
    if b.data != NULL:
        if b.bytes == BYTES_REGION:
            region_free(s, b.data, b.data_cap, b.lean)
        else:
            block_unmap(b)
    block_fd_close(b)
    free(b)
