# A whole checkpoint that does not fit the blocks. It was written by the last clean stop, and is removed before a block changes:
# so all that it says was so when the store was closed, and what differs by now is damage.

cdef struct StaleLook:
    Store* s
    uint64_t next               # sequences below it are dealt with


cdef void stale_free(Store* s) noexcept nogil:
    if s.recovery.stale != NULL:
        pages_free(s.recovery.stale, s.recovery.stale_size)
    s.recovery.stale = NULL


cdef bint shorter_now(Store* s, const CheckedBlock* c, uint64_t* size) noexcept nogil:
    # Whether a block has lost its end; size: of what is left.
    cdef Block* b = block_numbered(s, c.num)
    size[0] = b.used if b != NULL else 0
    return size[0] < c.size


cdef int check_missing(void* ctx, const CheckedBlock* c) noexcept nogil:
    # What a block had when the store was closed and is not there any more.
    cdef Store* s = <Store*>ctx
    cdef Block* b
    cdef uint64_t seq, first = 0, last = 0, count = 0, size
    cdef int64_t k
    cdef uint32_t i
    cdef bint missing = False
    for i in range(c.n):
        if c.off[i] == 0:
            continue
        seq = c.base + (c.rel[i] if c.rel != NULL else i)
        b = block_of(s, seq)
        k = slot_of(b, seq) if b != NULL else -1
        if k >= 0 and b.off[k]:
            continue
        missing = True          # a damaged block may have told of it already
        if lost_add(s, seq, c.live_bytes // max(c.live, <uint32_t>1)):
            first = first if count else seq
            last = seq
            count += 1
    if count:
        lost_place(s, DAMAGE_BLOCK, c.num, 0, c.size, first, last, count)
    if shorter_now(s, c, &size):
        s.recovery.shorter = True
        if not missing:
            lost_place(s, DAMAGE_SHORT, c.num, size, c.size - size, 0, 0, 0)
    return 0


cdef bint stale_read(Store* s, uint64_t* last) noexcept nogil:
    # What is missing is noted. last: the last sequence when the store was closed. False: it does not say
    cdef Span name = span(s.name, <uint32_t>strlen(s.name))
    cdef uint64_t end
    return checkpoint_blocks(s.recovery.stale, s.recovery.stale_size, name, &end, last, check_missing, s) > 0


cdef void rest_aside(Store* s, const Damage* d) noexcept nogil:
    # Bytes at the end of a shortened block that are no record: what they were part of is known to be no message. They are put
    # aside, so that no later start, which does not know that, looks for messages there.
    cdef FileOps* f = s.files
    cdef Block* b = block_numbered(s, d.block)
    cdef char path[4300]
    cdef uint8_t* p
    cdef int fd
    if b == NULL or d.kind != DAMAGE_RECORDS or d.at + d.size != b.used:
        return
    block_path(s, b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR, 0)
    if fd < 0:
        return
    p = <uint8_t*>malloc(<size_t>d.size)
    if p != NULL and not is_compressed(f, fd) and f.pread(f.ctx, fd, p, <size_t>d.size, <off_t>d.at) == <int64_t>d.size:
        tail_path(s, b.num, path, sizeof(path))
        if file_write(f, path, p, d.size) == 0 and f.truncate(f.ctx, fd, <off_t>d.at) == 0 and f.datasync(f.ctx, fd) == 0:
            b.used = d.at
            b.writing.written = d.at
            b.writing.durable = d.at
    free(p)
    f.close(f.ctx, fd)


cdef bint checked_live(const CheckedBlock* c, uint64_t seq) noexcept nogil:
    cdef uint32_t low = 0, high = c.n, mid
    if seq < c.base:
        return False
    if c.rel == NULL:
        return seq - c.base < c.n and c.off[seq - c.base] != 0
    while low < high:
        mid = (low + high) >> 1
        if c.rel[mid] < seq - c.base:
            low = mid + 1
        else:
            high = mid
    return low < c.n and c.rel[low] == seq - c.base and c.off[low] != 0


cdef int leave_upto(StaleLook* look, uint64_t last, const CheckedBlock* c) noexcept nogil:
    # Of the messages up to `last` those stay that were live in c, if there is one. 0, or 1: no memory
    cdef Store* s = look.s
    cdef Block* b
    cdef uint64_t seq = store_next_seq(s, NULL, look.next)
    while seq and seq <= last:
        if c == NULL or not checked_live(c, seq):
            b = block_of(s, seq)
            if not leave(s, b, slot_of(b, seq)):
                return 1
        seq = store_next_seq(s, NULL, seq + 1)
    look.next = last + 1
    return 0


cdef int gone_leave(void* ctx, const CheckedBlock* c) noexcept nogil:
    return leave_upto(<StaleLook*>ctx, c.last, c) if c.last >= c.base else 0


cdef void stale_leave(Store* s) noexcept nogil:
    # What had left before the store was closed leaves again: where a block has lost its end, so may have the tombstones.
    cdef StaleLook look
    cdef Span name = span(s.name, <uint32_t>strlen(s.name))
    cdef uint64_t end, last
    if s.recovery.stale == NULL:
        return
    look.s = s
    look.next = 1
    if checkpoint_blocks(s.recovery.stale, s.recovery.stale_size, name, &end, &last, gone_leave, &look) > 0:
        leave_upto(&look, last, NULL)
    stale_free(s)
