# A block's file (commit thread): its descriptor, and writes past the page cache.

cdef enum:
    SMALL = 65536               # groups up to here are copied, to be written together with their marker by one call
    SCRATCH = 524288            # likewise, past the page cache


cdef int block_fd(Store* s, Block* b, const char* dir, bint* made) noexcept nogil:
    # 0 or -errno; made: the file is new in its directory.
    cdef char path[4200]
    if b.writing.fd >= 0:
        return 0
    snprintf(path, sizeof(path), "%s/%llu.blk", dir, <unsigned long long>b.num)
    b.writing.fd = s.files.open(s.files.ctx, path, O_RDWR | (0 if has_file(b) else O_CREAT), 0o600)
    b.writing.direct = False
    if b.writing.fd < 0:
        return b.writing.fd
    if not has_file(b):
        b.writing.file = FILE_OPEN
        made[0] = True
    return 0


cdef bint block_direct(Committer* c, Block* b, bint on) noexcept nogil:
    # Whether writes to the block's file now go past the page cache, or through it, as wanted.
    if b.writing.direct == on:
        return True
    if on and (c.writing.no_direct or b.store.files.once):
        return False
    if b.store.files.direct(b.store.files.ctx, b.writing.fd, on) < 0:
        c.writing.no_direct = True      # not every file system has it
        return False
    b.writing.direct = on
    return True


cdef bint page_ready(Committer* c, Block* b, uint64_t at, uint64_t n) noexcept nogil:
    # Has the first n bytes of the file's page `at` in b.writing.page. Not from the region: markers do not stand there.
    cdef FileOps* f = b.store.files
    if b.writing.page == NULL:
        b.writing.page = <uint8_t*>malloc(PAGE)
    if b.writing.page == NULL:
        return False
    if n == 0 or b.writing.page_at == at:
        return True
    return block_direct(c, b, False) and f.pread(f.ctx, b.writing.fd, b.writing.page, n, <off_t>at) == <int64_t>n


cdef int direct_write(Committer* c, Block* b, uint8_t* p, uint64_t first, uint64_t start, uint64_t end) noexcept nogil:
    # [start, end) of the file, which stand in p as the page `first` goes on, past the page cache. That costs half the
    # processor time: whole pages, the first with what it held before, the last filled with zeros. 0 or -errno, -EINVAL
    # where it cannot be done.
    cdef FileOps* f = b.store.files
    cdef uint64_t behind = page_up(end)
    cdef int64_t rc
    if not page_ready(c, b, first, start - first) or not block_direct(c, b, True):
        return -EINVAL
    memcpy(p, b.writing.page, start - first)
    memset(p + (end - first), 0, behind - end)
    b.writing.page_at = UINT64_MAX
    rc = f.pwrite(f.ctx, b.writing.fd, p, behind - first, <off_t>first)
    if rc == -EINVAL:
        c.writing.no_direct = True
    if rc < 0:
        return <int>rc
    b.writing.page_at = behind - PAGE
    memcpy(b.writing.page, p + (b.writing.page_at - first), PAGE)
    return 0


cdef int group_write(Committer* c, Round* r, Block* b, uint64_t start, uint64_t end, const uint8_t* mark) noexcept nogil:
    # [start, end) of the region and the marker into the file; 0 or -errno.
    cdef FileOps* f = b.store.files
    cdef uint64_t first = start & ~<uint64_t>(PAGE - 1)
    cdef bint direct = end > start and not r.journal and c.sync_interval <= 0
    cdef bint small
    cdef uint8_t* p = NULL
    cdef int64_t rc
    if r.scratch == NULL:
        r.scratch = <uint8_t*>aligned_alloc(PAGE, SCRATCH + 4 * PAGE)
    small = end - start <= (SCRATCH if direct else SMALL) and r.scratch != NULL
    if small:
        p = r.scratch + (start - first)
        memcpy(p, b.data + start, end - start)
        memcpy(p + (end - start), mark, MARKER)
    if small and direct:
        rc = direct_write(c, b, r.scratch, first, start, end + MARKER)
        if rc != -EINVAL:
            return <int>rc
    block_direct(c, b, False)
    b.writing.page_at = UINT64_MAX
    if small:
        rc = f.pwrite(f.ctx, b.writing.fd, p, end - start + MARKER, <off_t>start)
    else:
        rc = f.pwrite(f.ctx, b.writing.fd, b.data + start, end - start, <off_t>start)
        if rc >= 0:
            rc = f.pwrite(f.ctx, b.writing.fd, mark, MARKER, <off_t>end)
    return <int>min(rc, <int64_t>0)
