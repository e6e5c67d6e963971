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


cdef bint line_good(const Store* s, const uint8_t* line, uint64_t magic) noexcept nogil:
    return st_get64(line) == magic and st_get64(line + 24) == hh64(s.key, line, 24)


cdef bint line_mended(const Store* s, uint8_t* line, uint64_t magic) noexcept nogil:
    # Whether the line is good, where needed with a single changed bit changed back.
    cdef int i
    if line_good(s, line, magic):
        return True
    for i in range(8 * RESERVE_LINE):
        line[i // 8] ^= <uint8_t>(1 << i % 8)
        if line_good(s, line, magic):
            return True
        line[i // 8] ^= <uint8_t>(1 << i % 8)
    return False


cdef void reserve_take(Store* s, uint8_t* lines, uint64_t n) noexcept nogil:
    # What the file's first n bytes say; behind them, up to the end of the third line, are zeros.
    cdef uint64_t i
    cdef uint8_t* line
    cdef bint damaged = False, floor_damaged = False
    for i in range(2):      # the second one is written before the first
        line = lines + i * RESERVE_LINE
        if all_zero(line, RESERVE_LINE):
            continue
        if not line_mended(s, line, RESERVE_MAGIC):
            damaged = True
        elif st_get64(line + 8) > s.writing.reserve_number:
            s.writing.reserve_number = st_get64(line + 8)
            s.writing.reserved = st_get64(line + 16)
    s.recovery.own = s.writing.reserve_number > 0
    line = lines + 2 * RESERVE_LINE
    if not all_zero(line, RESERVE_LINE):
        floor_damaged = not line_mended(s, line, FLOOR_MAGIC)
        s.writing.floor = st_get64(line + 8) if not floor_damaged else 0
    if s.writing.reserve_number == 0:
        # A power cut may have torn the first line that was ever written, before any ack: it has no end.
        if floor_damaged:
            s.recovery.reserve = RESERVE_FLOOR_LOST
        elif n > 2 * RESERVE_LINE or damaged and not (all_zero(lines, RESERVE_LINE) and lines[2 * RESERVE_LINE - 1] == 0):
            s.recovery.reserve = RESERVE_LOST
    elif damaged:           # it may be the newer one
        s.writing.reserved += s.block_size // REC_MIN + RESERVE_STEP + 1
    if floor_damaged:
        s.writing.floor = s.writing.reserved


cdef int reserve_read(Store* s) noexcept nogil:
    # 0 or -errno.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint8_t lines[3 * RESERVE_LINE]
    cdef int64_t n
    cdef int fd
    reserve_path(s, path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return 0 if fd == -ENOENT else fd
    memset(lines, 0, sizeof(lines))
    n = f.pread(f.ctx, fd, lines, sizeof(lines), 0)
    f.close(f.ctx, fd)
    if n > 0:
        reserve_take(s, lines, <uint64_t>n)
    return <int>min(n, <int64_t>0)


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


cdef int reserve_anew(Store* s) noexcept nogil:
    # After a start that needed none of its lines: both in the place of the damaged ones. 0 or -errno.
    cdef int rc = reserve_write(s, s.last_seq)
    lost_place(s, DAMAGE_RESERVE, 0, 0, 0, 0, 0, 0)
    return reserve_write(s, s.last_seq) if rc == 0 else rc


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
