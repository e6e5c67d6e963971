# Opening what a store left that acks before it syncs: where it ends.
#
# A power cut leaves any part of what was not synced, of many groups and of several blocks. A beginning of it is kept, up to
# the first place that cannot be read. What stands behind may take away messages in favour of some that are gone; so it goes too,
# with all later blocks. A marker says up to where its block had been synced, and where that is not its beginning, that
# all blocks before had been (Mark.durable). What is bad there is damage, as elsewhere: what stands behind it is kept.
#
# A block that lacks its end looks like one that ends there. One that is full ends with a marker that says so (MARK_SEALED), but
# it may be just that which is missing. So the groups are numbered: the first one of a block follows on the last one of the block
# before. A block that is not there between two left after a sync, which had all that is older.

cdef bint lazily(const Scan* c) noexcept nogil:
    # Whether what has no marker of its own may be of a store that acks before it syncs.
    return c.o.lazy or c.s.com.sync_interval > 0


cdef int vouched_behind(Opening* o) noexcept nogil:
    # Whether later blocks say that all of the one that is read was on disk: 1, 0 or an error.
    cdef int64_t i = o.at + 1
    cdef int rc = o.nums[o.at] < o.vouched
    cdef Scan c
    if o.nums[o.at] == o.unvouched:
        return 0
    while rc == 0 and i < o.n:
        if o.nums[i] != o.nums[i - 1] + 1:
            rc = ST_NOT_FOUND
        else:
            rc = ahead_read(o, o.nums[i], &c)
            if rc == 1:
                search_begin(&c)
                rc = survey(&c)
                rc = rc if rc < 0 else c.search.vouches
            ahead_free(&c)
        rc = rc if rc != ST_NOT_FOUND else 1
        if rc == 1:
            o.vouched = o.nums[i]
        i += 1
    if rc == 0:
        o.unvouched = o.nums[o.at]
    return rc


cdef int unsynced(Scan* c) noexcept nogil:
    # Whether the bytes at c.at, which cannot be read, may not have been on disk: 1, 0 or an error.
    cdef Search* k = &c.search
    cdef int rc
    if not batches_count(c) or k.durable > c.at:
        return 0
    if k.lazy_at <= c.at and (k.marked_at > c.at or not lazily(c)):
        return 0
    rc = vouched_behind(c.o)
    return rc if rc < 0 else not rc


cdef bint removal_follows(Scan* c) noexcept nogil:
    # Of a message at c.at whose removal stands further on: whether all is good up to there, so that it will be kept too.
    cdef uint64_t at = c.at + (st_get32(c.p + c.at) & 0x7fffffff), seq = st_get64(c.p + c.at + 4) & ~ERASED
    cdef Parsed r
    while at + REC_MIN <= c.size and good_at(c, at, &r):
        if r.raw_seq == seq | TOMB:
            return True
        at += r.size
    return False


cdef bint group_follows(const Scan* c, uint64_t group) noexcept nogil:
    # Whether a block's first group is the one behind that number, or the marker of an earlier one stands in its place.
    cdef uint64_t at = 0
    cdef Parsed r
    cdef Mark m
    while at + REC_MIN <= c.size and record_parse(c.p + at, c.size - at, &r) and record_good(c.b.key, c.p + at, &r):
        if marker_read(c.p + at, &r, &m):
            return m.group <= group + 1
        at += r.size
    return at == c.size         # nats-server's


cdef int next_follows(Opening* o, uint64_t group) noexcept nogil:
    # Whether the next block goes on behind the group of that number: 1, 0 or an error.
    cdef int64_t i = o.at + 1
    cdef int rc
    cdef bint there
    cdef Scan c
    while i < o.n and o.nums[i] == o.nums[i - 1] + 1:
        rc = ahead_read(o, o.nums[i], &c)
        there = rc == 1 and not all_zero(c.p, c.size)
        if there:
            rc = group_follows(&c, group)
        ahead_free(&c)
        if there or rc < 0:
            return rc if rc != ST_NOT_FOUND else 1
        i += 1
    return 1


cdef int ends_early(Scan* c) noexcept nogil:
    # Whether the block lacks its end, which was not synced, and others follow: 1, 0 or an error.
    cdef int rc
    if c.is_last or c.mark.shut or c.b.damaged or not batches_count(c) or not lazily(c):
        return 0
    if not c.mark.seen and c.size and c.end == c.size:
        return 0                # nats-server's
    rc = next_follows(c.o, c.mark.group)
    if rc == 0:
        rc = vouched_behind(c.o)
    return rc if rc < 0 else not rc


cdef int empty_ends(Opening* o, Block* b, int fd, bint is_last) noexcept nogil:
    # Of a block without a byte: 0, or an error.
    cdef Scan c
    cdef int rc
    memset(&c, 0, sizeof(c))
    c.s = o.s
    c.o = o
    c.b = b
    c.is_last = is_last
    rc = ends_early(&c)
    return rest_undo(o, &c, fd) if rc == 1 else rc


cdef bint ends_sealed(FileOps* f, const Block* b, int fd) noexcept nogil:
    # Whether a block's last marker says that another block follows.
    cdef uint8_t line[MARKER]
    cdef Parsed r
    cdef Mark m
    cdef uint64_t end = <uint64_t>max(f.size(f.ctx, fd), <int64_t>0) if is_compressed(f, fd) else b.used
    if end < MARKER or f.pread(f.ctx, fd, line, MARKER, <off_t>(end - MARKER)) != MARKER:
        return False
    return (record_parse(line, MARKER, &r) and marker_read(line, &r, &m) and record_good(b.key, line, &r)
            and m.flags & MARK_SEALED != 0)


cdef bint side_leaves(Store* s, Block* b) noexcept nogil:
    # Removes the sidecar of a block that gets longer; whether it is gone for good.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int rc
    block_path(s, b, ".jsx", path, sizeof(path))
    rc = f.unlink(f.ctx, path)
    rc = f.sync_dir(f.ctx, s.msgs_dir) if rc == 0 else rc
    b.sided = b.sided and rc != 0
    return rc == 0 or rc == -ENOENT


cdef void last_unseal(Store* s) noexcept nogil:
    # Where the last block that has a byte says that another follows, a marker behind that takes it back: what followed is gone,
    # and this start has dealt with that. No other start is to miss it.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint8_t mark[MARKER]
    cdef uint32_t k = s.n_blocks
    cdef Block* b
    cdef int fd
    while k and block_i(s, k - 1).used == 0:
        k -= 1
    b = block_i(s, k - 1) if 0 < k < s.n_blocks else NULL
    if b == NULL or b.damaged or b.data != NULL:
        return
    block_path(s, b, ".blk", path, sizeof(path))
    fd = b.writing.fd if b.writing.fd >= 0 else f.open(f.ctx, path, O_RDWR, 0)
    if fd < 0:
        return
    if not is_compressed(f, fd) and ends_sealed(f, b, fd) and side_leaves(s, b):
        s.writing.extent.last = s.last_seq      # where this start leaves sequences out, so does the next
        s.writing.extent.last_ts = s.last_ts
        group_seal(s, b, b.used, b.used, 0, 0, mark)
        if f.pwrite(f.ctx, fd, mark, MARKER, <off_t>b.used) == MARKER and f.datasync(f.ctx, fd) == 0:
            b.used += MARKER
            b.writing.written = b.used
            b.writing.durable = b.used
        else:
            f.truncate(f.ctx, fd, <off_t>b.used)
            s.writing.group -= 1
    if fd != b.writing.fd:
        f.close(f.ctx, fd)


cdef void empty_leaves(Store* s) noexcept nogil:
    # Last blocks without a byte go, and their numbers are given again: one between others would look as if it had lost all.
    cdef Block* b = block_i(s, s.n_blocks - 1) if s.n_blocks and s.com.sync_interval > 0 else NULL
    cdef char path[4300]
    if b != NULL and b.used == 0:
        last_unseal(s)
    while b != NULL and b.used == 0 and b.n == 0 and not b.damaged:
        block_path(s, b, ".blk", path, sizeof(path))
        if s.files.unlink(s.files.ctx, path) < 0:
            return
        s.next_num = b.num
        block_forget(s, b)
        b = block_i(s, s.n_blocks - 1) if s.n_blocks else NULL
