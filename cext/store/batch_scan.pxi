# Batches that a start finds: one that is not whole goes.

cdef bint crash_left(const Opening* o) noexcept nogil:
    # Whether what is not whole is what a crash left. After a clean stop it would be damage.
    return not o.foreign and o.s.recovery.stale == NULL


cdef bint batches_count(const Scan* c) noexcept nogil:
    # The same of this block: one that is compressed was whole by then.
    return c.b.bytes != BYTES_DECODED and crash_left(c.o)


cdef int batch_closed(Scan* c, uint64_t at) noexcept nogil:
    # Whether a group that goes on in the next block, behind `at` in this one, came to its end. 1, 0 or an error.
    cdef Opening* o = c.o
    cdef int64_t i = o.at + 1
    cdef int rc = 2
    cdef Parsed r
    if c.b.num < o.closed:
        return 1
    while at + REC_MIN <= c.size and record_parse(c.p + at, c.size - at, &r) and record_good(c.b.key, c.p + at, &r):
        if is_marker(c.p + at, &r):
            return 1            # written when all of it was on disk
        at += r.size
    while rc == 2 and i < o.n:
        rc = block_closes(o, o.nums[i], i + 1 == o.n)
        o.closed = o.nums[i] if rc == 1 else o.closed
        i += 1
    return rc if rc != 2 else 0


cdef int ahead_read(Opening* o, uint64_t num, Scan* c) noexcept nogil:
    # The bytes of a block whose turn has not come, to be looked at until ahead_free: 1; 0: it has none;
    # ST_NOT_FOUND: it has no file, or one that nobody can read; or another error.
    cdef Store* s = o.s
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int fd, rc = ST_NO_MEMORY
    cdef int64_t n
    memset(c, 0, sizeof(Scan))
    c.s = s
    c.o = o
    c.b = block_new(s, num, 1)
    if c.b == NULL:
        return ST_NO_MEMORY
    block_path(s, c.b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    n = f.size(f.ctx, fd) if fd >= 0 else fd
    if fd == -ENOENT or fd == -EKEYREJECTED:
        rc = ST_NOT_FOUND
    elif n <= 0:
        rc = ST_IO if n < 0 else 0
    else:
        c.size = <uint64_t>n
        c.p = <uint8_t*>pages_new(c.size)
        if c.p != NULL:
            rc = 1 if f.pread(f.ctx, fd, c.p, c.size, 0) == n else ST_IO
    if rc == 1:
        rc = ahead_decode(c)
    if rc == ST_IO:
        snprintf(o.err, o.err_cap, "%s: cannot be read", path)
    if fd >= 0:
        f.close(f.ctx, fd)
    return rc


cdef int ahead_decode(Scan* c) noexcept nogil:
    # Of a compressed file the bytes of its block take the place of its own. 1 or ST_NO_MEMORY
    cdef uint64_t plain
    cdef Opened o
    if compressed_at(c.p, c.size, &plain) == 0:
        return 1
    if not compressed_decode(c.p, c.size, 0, &o):
        return ST_NO_MEMORY
    pages_free(c.p, c.size)
    c.p = o.p
    c.size = o.size
    c.b.bytes = BYTES_DECODED
    return 1


cdef void ahead_free(Scan* c) noexcept nogil:
    cdef Opened o
    free(c.search.removals)
    o.p = c.p
    o.size = c.size
    o.chunks = NULL
    o.decoded = c.b != NULL and c.b.bytes == BYTES_DECODED
    if o.decoded:
        opened_free(c.s.files, &o)
    elif c.p != NULL:
        pages_free(c.p, c.size)
    if c.b != NULL:
        block_free(c.b)


cdef int block_closes(Opening* o, uint64_t num, bint newest) noexcept nogil:
    # Whether the group that goes on at this block's start ends in it: 1; 0: it is not whole; 2: it goes on; or an error.
    cdef Scan c
    cdef int rc = ahead_read(o, num, &c)
    if rc == ST_NOT_FOUND:
        rc = 1                  # it was there, closed: something else says so
    elif rc == 0:
        rc = not newest
    elif rc == 1:
        rc = scan_closes(&c, newest)
    ahead_free(&c)
    return rc


cdef int scan_closes(Scan* c, bint newest) noexcept nogil:
    # The same of its bytes. What follows a bad place shows whether that is damage.
    cdef Parsed r
    cdef Mark m
    cdef int rc
    search_begin(c)
    while c.at + REC_MIN <= c.size and good_at(c, c.at, &r):
        if marker_read(c.p + c.at, &r, &m):
            return 2 if m.flags & MARK_OPEN else 1
        c.at += r.size
    rc = survey(c)
    return rc if rc < 0 else not newest or c.search.started > c.at


cdef void batch_drop(Scan* c) noexcept nogil:
    # What is held is of a group that is not whole: the block ends before it.
    c.fate = FATE_UNDONE
    c.is_last = True
    while c.n_held and c.held[c.n_held - 1].at >= c.mark.unit:
        c.n_held -= 1
    c.end = c.mark.unit


cdef int rest_undo(Opening* o, Scan* c, int fd) noexcept nogil:
    # Puts aside what stands behind the end of what is kept, what later blocks have first; 0 or an error. Where there is no
    # room to keep it, it goes all the same: nobody has an ack for it, or none that a power cut leaves.
    cdef Store* s = o.s
    cdef FileOps* f = s.files
    cdef uint64_t n = tail_size(c)
    cdef char path[4300]
    cdef char aside[4300]
    cdef int64_t i = o.n - 1
    cdef int rc = 0
    while i > o.at and rc == 0:
        # The sidecar first: one without its block says that the block is missing.
        snprintf(path, sizeof(path), "%s/%llu.jsx", s.msgs_dir, <unsigned long long>o.nums[i])
        rc = f.unlink(f.ctx, path)
        snprintf(path, sizeof(path), "%s/%llu.blk", s.msgs_dir, <unsigned long long>o.nums[i])
        tail_path(s, o.nums[i], aside, sizeof(aside))
        rc = f.rename(f.ctx, path, aside) if rc == 0 or rc == -ENOENT else rc
        rc = rc if rc != -ENOENT else 0
        i -= 1
    if rc == 0 and o.at + 1 < o.n:
        rc = f.sync_dir(f.ctx, s.msgs_dir)
    tail_path(s, c.b.num, aside, sizeof(aside))
    if rc == 0 and n and file_write(f, aside, c.p + c.end, n) < 0:
        f.unlink(f.ctx, aside)
    rc = f.truncate(f.ctx, fd, <off_t>c.end) if rc == 0 else rc
    rc = f.datasync(f.ctx, fd) if rc == 0 else rc
    if rc < 0:
        snprintf(o.err, o.err_cap, "block %llu: what was not finished behind its end cannot be put aside (errno %d)",
                 <unsigned long long>c.b.num, -rc)
        return ST_IO
    lost_place(s, DAMAGE_BATCH if c.fate == FATE_UNDONE else DAMAGE_TAIL, c.b.num, c.end, n, 0, 0, 0)
    o.ended = True
    o.before.sealed = False
    o.before.doubt = False
    return ST_OK
