# sequence.jsr: up to which sequence the blocks may have been filled. When the last of them is gone, or its end cannot be
# read, what is stored next gets sequences behind that: none that was acked is used again.
#
# Two lines of 32 bytes that are written in turn, so that one is always whole: magic u64 · number u64 · sequence u64 ·
# checksum u64. The one with the higher number counts. Written and synced before a block may hold sequences beyond what it
# says; after a group that failed it says which were used. The first time it is written behind the first group's sync and
# before its acks: a stream without a block that has it has lost one, whose messages may have been acked.

cdef uint64_t RESERVE_MAGIC = 0x3152534a534a534a
cdef uint64_t FLOOR_MAGIC = 0x3146534a534a534a
cdef enum:
    RESERVE_LINE = 32
    RESERVE_STEP = 4096         # sequences that are reserved beyond what a block may hold


cdef void reserve_path(const Store* s, char* out, size_t cap) noexcept nogil:
    snprintf(out, cap, "%s/sequence.jsr", s.dir)


cdef void reserve_read(Store* s) noexcept nogil:
    cdef char path[4300]
    cdef uint64_t size, at = 0
    cdef uint8_t* p
    reserve_path(s, path, sizeof(path))
    p = file_read(s.files, path, &size)
    if p == NULL:
        return
    while at + RESERVE_LINE <= min(size, <uint64_t>2 * RESERVE_LINE):
        if (st_get64(p + at) == RESERVE_MAGIC and st_get64(p + at + 24) == hh64(s.key, p + at, 24)
                and st_get64(p + at + 8) > s.writing.reserve_number):
            s.writing.reserve_number = st_get64(p + at + 8)
            s.writing.reserved = st_get64(p + at + 16)
        at += RESERVE_LINE
    if (at + RESERVE_LINE <= size and st_get64(p + at) == FLOOR_MAGIC
            and st_get64(p + at + 24) == hh64(s.key, p + at, 24)):
        s.writing.floor = st_get64(p + at + 8)
    pages_free(p, size)


cdef int reserve_keep(Store* s, const Block* b) noexcept nogil:
    # That what b may hold is reserved: 0 or -errno.
    cdef uint64_t need = max(b.base + s.block_size // REC_MIN, st_load(&s.shared.shown_seq) + 1)
    return reserve_write(s, need + RESERVE_STEP) if need > s.writing.reserved else 0


cdef int reserve_before(Committer* c, Store* s, const Block* b) noexcept nogil:
    # Before b is written to (commit thread). A store that syncs each group reserves its first sequences behind it.
    return 0 if s.writing.reserve_number == 0 and c.sync_interval <= 0 else reserve_keep(s, b)


cdef int reserve_behind(Committer* c, Round* r, const Part* p) noexcept nogil:
    # Before the acks of a group that is on disk: 0 or -errno.
    cdef const Block* b
    cdef uint32_t i
    cdef int rc
    for i in range(p.piece, p.piece + p.n if p.s.writing.reserve_number == 0 else p.piece):
        if r.pieces[i].wrote:
            b = r.pieces[p.piece + p.n - 1].b
            rc = reserve_keep(p.s, b)
            if may_again(c, r, rc):
                rc = reserve_keep(p.s, b)
            return rc
    return 0


cdef int reserve_line(Store* s, uint8_t* line, uint64_t place) noexcept nogil:
    # Writes a line, all but its checksum, and syncs it: 0 or -errno.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef int fd
    cdef int64_t rc
    reserve_path(s, path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR | O_CREAT, 0o600)
    if fd < 0:
        return fd
    st_put64(line + 24, hh64(s.key, line, 24))
    rc = f.pwrite(f.ctx, fd, line, RESERVE_LINE, <off_t>(place * RESERVE_LINE))
    rc = f.datasync(f.ctx, fd) if rc >= 0 else rc
    f.close(f.ctx, fd)
    if rc >= 0 and s.writing.reserve_number == 0:
        rc = f.sync_dir(f.ctx, s.dir)
    return <int>min(rc, 0)


cdef int reserve_write(Store* s, uint64_t upto) noexcept nogil:
    # 0 or -errno.
    cdef uint8_t line[RESERVE_LINE]
    cdef int rc
    st_put64(line, RESERVE_MAGIC)
    st_put64(line + 8, s.writing.reserve_number + 1)
    st_put64(line + 16, upto)
    rc = reserve_line(s, line, (s.writing.reserve_number + 1) % 2)
    if rc == 0:
        s.writing.reserve_number += 1
        s.writing.reserved = upto
    return rc


cdef int floor_write(Store* s, uint64_t seq) noexcept nogil:
    # No later start goes on below that sequence; 0: from any. 0 or -errno.
    cdef uint8_t line[RESERVE_LINE]
    cdef int rc
    st_put64(line, FLOOR_MAGIC)
    st_put64(line + 8, seq)
    st_put64(line + 16, 0)
    rc = reserve_line(s, line, 2)
    if rc == 0:
        s.writing.floor = seq
    return rc
