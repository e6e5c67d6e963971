# What a power cut leaves of bytes that were not synced: sectors that are missing, and markers among them.

cdef enum:
    HOLE_TEXT = 8               # bytes of a hole in an encrypted file that do not read as zeros
    HOLE_LEAST = 16             # with those: no record has zeros up to there, where its time stands


cdef bint hole_at(const Scan* c, uint64_t at, uint64_t end) noexcept nogil:
    # Whether from the head of a record there are zeros up to `end`, but for its first bytes.
    return at + HOLE_LEAST <= end and all_zero(c.p + at + HOLE_TEXT, end - at - HOLE_TEXT)


cdef bint hole_behind(const Scan* c) noexcept nogil:
    # Whether nothing was written from c.at on in an encrypted file. What stands first there is noise, and no record's head.
    cdef uint32_t size = st_get32(c.p + c.at) & 0x7fffffff if c.size - c.at >= HOLE_LEAST else 0
    cdef uint64_t ahead = st_get32(c.p + c.at + 4) - (c.s.last_seq & 0xffffffffU) if size else 0
    return hole_at(c, c.at, c.size) and not (REC_MIN <= size <= REC_MAX and ahead & 0xffffffffU < 1 << 20)


cdef bint torn(const Scan* c) noexcept nogil:
    # Whether a crash leaves a last block so: its end stands where a write can end, at a page's, or is zeros that were
    # there before.
    cdef uint64_t start = max(c.at, c.size - min(c.size, <uint64_t>64))
    return c.size % PAGE == 0 or all_zero(c.p + start, c.size - start) or hole_at(c, c.at, c.size)


cdef bint begins_group(const Scan* c) noexcept nogil:
    # Whether a block's file has a beginning of its first record, and nothing else: a kill came between two pages of its first
    # group.
    cdef uint64_t end = c.size, size = st_get32(c.p) & 0x7fffffff if c.size >= REC_MIN else 0, seq
    while end and c.p[end - 1] == 0:
        end -= 1
    if size < REC_MIN or size > REC_MAX or size <= end:
        return False
    seq = st_get64(c.p + 4)
    return seq > c.s.last_seq and seq & (TOMB | ERASED) == 0 and st_get16(c.p + 20) <= size - REC_MIN


cdef uint64_t sector_end(const Scan* c, uint64_t at) noexcept nogil:
    return min(c.size, (at // SECTOR + 1) * SECTOR)


cdef bint lacks_sector(const Scan* c, uint64_t end) noexcept nogil:
    # Whether all of some sector between c.at and `end` is zeros.
    cdef uint64_t at = (c.at + SECTOR - 1) // SECTOR * SECTOR
    while at < end and sector_end(c, at) <= end:
        if all_zero(c.p + at, sector_end(c, at) - at):
            return True
        at += SECTOR
    return False


cdef bint zeros_from(const Scan* c, uint64_t at) noexcept nogil:
    # Whether zeros stand here up to the end of the sector, of which there is more than chance puts there.
    cdef uint64_t end = sector_end(c, at)
    return at + 4 <= end and all_zero(c.p + at, end - at)


cdef bint lacks_part(const Scan* c, uint64_t end) noexcept nogil:
    # Whether a record between c.at and `end` has zeros up to the end of a sector in place of its head, or where its time,
    # subject or header or its checksum ends, where no record has any: that sector did not arrive whole.
    cdef uint64_t at = c.at, size, sub, header
    if hole_at(c, at, sector_end(c, at)):
        return True
    while at < end:
        if zeros_from(c, at):
            return True
        size = st_get32(c.p + at) & 0x7fffffff if end - at >= REC_MIN else 0
        if size < REC_MIN or size > end - at:
            return False
        sub = st_get16(c.p + at + 20)
        header = 0
        if st_get32(c.p + at) & HAS_HEADER and HEAD + sub + 4 < size:
            header = st_get32(c.p + at + HEAD + sub)
        if (st_get64(c.p + at + 4) & ERASED == 0 and zeros_from(c, at + 16)
                or sub and HEAD + sub < size and zeros_from(c, at + HEAD + sub - 1)
                or header and HEAD + sub + header < size and zeros_from(c, at + HEAD + sub + header)
                or zeros_from(c, at + size - 8)):
            return True
        at += size
    return False


cdef bint marker_spoiled(const Scan* c) noexcept nogil:
    # Whether the block ends with a marker whose bytes are all there, and were changed later. A power cut leaves zeros of it.
    cdef const uint8_t* p
    cdef uint64_t end = c.size, cut
    cdef Parsed r
    while end and c.p[end - 1] == 0:
        end -= 1
    if end < MARKER:
        return False
    p = c.p + end - MARKER
    cut = sector_end(c, end - MARKER)
    if (<int>(st_get32(p) == MARKER) + <int>(st_get64(p + 4) == TOMB) + <int>(st_get64(p + HEAD) == MARKER_MAGIC) < 2
            or cut < end and cut >= 4 and st_get32(c.p + cut - 4) == 0):
        return False
    return not (record_parse(p, MARKER, &r) and record_good(c.b.key, p, &r))


cdef bint arrived_torn(const Scan* c, uint64_t end) noexcept nogil:
    # Whether the bytes from c.at to `end` are as a power cut leaves what was to be appended: parts of it are zeros.
    return not c.search.spoiled and (lacks_sector(c, end) or lacks_part(c, end))
