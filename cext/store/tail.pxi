# The tail block, which is appended to: records put into it, and the next one opened.

cdef Block* tail_make(Store* s, uint64_t size, uint64_t base) noexcept nogil:
    # A block with a region for a record of that size, not in the list yet.
    cdef Block* b = block_new(s, s.next_num, base)
    if b == NULL:
        return NULL
    b.data_cap = page_up(max(s.block_size, size) + SLACK)
    b.data = region_new(s, b.data_cap)
    b.bytes = BYTES_REGION
    if b.data == NULL:
        free(b)
        return NULL
    return b


cdef int tail_open(Store* s, uint64_t size, uint64_t base) noexcept nogil:
    # A new last block with room for a record of that size.
    cdef Block* b
    if blocks_reserve(s) < 0:
        return ST_NO_MEMORY
    b = tail_make(s, size, base)
    if b == NULL:
        return ST_NO_MEMORY
    tail_set(s, b)
    if s.storage == STORE_FILE:
        out_push(s, b)
    return ST_OK


cdef void tail_set(Store* s, Block* b) noexcept nogil:
    # Into the list, in which blocks_reserve has made room.
    invariant(s.b0 + s.n_blocks < s.cap_blocks, "room was made for a block")
    invariant(s.n_blocks == 0 or block_i(s, s.n_blocks - 1).num < b.num, "blocks are in the order of their numbers")
    s.next_num += 1
    stays_again(s)      # what was the last block may leave now
    if s.n_blocks:
        slim_look(s, block_i(s, s.n_blocks - 1))
    s.blocks[s.b0 + s.n_blocks] = b
    s.n_blocks += 1
    s.tail = b


cdef void tail_seal(Store* s) noexcept nogil:
    # No more appends to the tail; the commit thread closes its file when everything is written.
    cdef Block* b = s.tail
    if b == NULL:
        return
    invariant(b.queue.state == BLOCK_OPEN, "a block is sealed once")
    invariant(s.n_blocks and block_i(s, s.n_blocks - 1) == b, "the tail is the last block")
    s.tail = NULL
    if s.storage == STORE_FILE:
        q_lock(s.com)
        b.queue.state = BLOCK_SEALED
        b.floor = s.first_seq
        q_unlock(s.com)
    else:
        b.queue.state = BLOCK_SEALED
    if b.live == 0:
        empty_block(s, b)


cdef int tail_for(Store* s, uint64_t size, uint64_t seq) noexcept nogil:
    # Makes the tail ready for a record; seq 0: one that gets no slot.
    cdef uint64_t used
    cdef int r
    cdef bint fresh = False
    while True:
        if s.tail != NULL:
            used = st_load(&s.tail.used)
            if (fresh or used + size <= s.block_size) and used + size + SLACK // 2 <= s.tail.data_cap:
                r = block_room(s.tail, seq) if seq else ST_OK
                if r <= 0 or fresh:
                    return ST_NO_MEMORY if r else ST_OK
            tail_seal(s)
        r = tail_open(s, size, seq if seq else s.last_seq + 1)
        if r < 0:
            return r
        fresh = True


cdef inline uint32_t stage(Block* b, uint32_t size, uint64_t seq, int64_t ts, Span subject, Span header,
                           Span data) noexcept nogil:
    # Copies a record in and makes it visible to the commit thread; its checksum is added by that.
    #
    # The commit thread may reserve the place first, for a marker; then the record is written again behind it.
    cdef uint64_t at
    while True:
        at = st_load(&b.used)
        record_write(b.data + at, size, seq, ts, subject, header, data)
        if st_cas(&b.used, at, at + size):
            return <uint32_t>at


cdef void stage_bare(Store* s, uint64_t raw_seq, int64_t ts) noexcept nogil:
    # A tombstone or skip record; tail_for must have made room. File storage only.
    cdef Span none = span(NULL, 0)
    stage(s.tail, REC_MIN, raw_seq, ts, none, none, none)
    if raw_seq & TOMB:
        s.tail.tombs += 1


cdef int stage_tomb(Store* s, const Block* b, uint64_t seq, int64_t ts) noexcept nogil:
    # Says that a message of that block is gone. File storage only.
    cdef int r = tail_for(s, REC_MIN, 0)
    if r < 0 or (b != s.tail and hold_add(s.tail, b.num, 1) < 0):
        return ST_NO_MEMORY
    stage_bare(s, seq | TOMB, ts)
    return ST_OK


cdef inline bint no_room(Store* s) noexcept nogil:
    return s.storage == STORE_FILE and st_load(&s.com.shared.full) != 0 and s.hold.depth < 2
