# Records as they stand in blocks: sizes, encoding, checksums, and the marker that closes a group.
#
# A marker is a tombstone of sequence 0, which every reader of the format passes over. Its payload:
#   magic u64 · group u64 · start offset u64 · durable offset u64 · digest u64 · records u32 · flags u32
#   · first u64 · last u64 · last time i64 · 0 u16
# (The second line is missing in older ones.) The digest is the sum of one number for each of the group's records
# (record_mark). With the records' own checksums every byte of the group is covered, lengths included, and none is hashed
# twice; of a record whose lengths do not fit, the difference tells which it is. The last three say how the group leaves the
# stream: no message below `first` is left, whatever took it away; the highest sequence used, and its time. So a replay
# derives none of that.

cdef uint64_t MARKER_MAGIC = 0x314b524d534a534a
cdef enum:
    MARK_LAZY = 1               # written by a store that acks before it syncs
    MARK_WHOLE = 2              # covers a whole rewritten block
    MARK_SEALED = 8             # the last of its block: another block follows
    MARK_SUM = 4                # its digest is a sum: in older ones it is none that is known here
    MARK_BATCH = 16             # what follows, up to the next one that is not MARK_OPEN, is there as a whole or not at all
    MARK_OPEN = 32              # such a group goes on in the next block

cdef struct Mark:
    uint64_t group
    uint64_t start
    uint64_t durable
    uint64_t digest
    uint32_t count
    uint32_t flags
    Extent extent

cdef void store_key(Span name, uint64_t* key) noexcept nogil:
    # The key of a text's checksums: its SHA-256.
    sha256(name.p, name.n, <uint8_t*>key)


cdef inline uint64_t record_size(Span subject, Span header, Span data) noexcept nogil:
    return <uint64_t>REC_MIN + subject.n + data.n + (4 + <uint64_t>header.n if header.n else 0)


cdef inline void record_write(uint8_t* p, uint32_t size, uint64_t seq, int64_t ts, Span subject, Span header,
                              Span data) noexcept nogil:
    # Everything but the checksum.
    st_put32(p, size | HAS_HEADER if header.n else size)
    st_put64(p + 4, seq)
    st_put64(p + 12, <uint64_t>ts)
    st_put16(p + 20, <uint16_t>subject.n)
    p += HEAD
    memcpy(p, subject.p, subject.n)
    p += subject.n
    if header.n:
        st_put32(p, header.n)
        memcpy(p + 4, header.p, header.n)
        p += 4 + header.n
    if data.n:
        memcpy(p, data.p, data.n)


cdef bint record_parse(const uint8_t* p, uint64_t left, Parsed* r) noexcept nogil:
    # Whether a record of sane lengths starts here.
    cdef uint32_t head, sub, hdr = 0, at
    if left < REC_MIN:
        return False
    head = st_get32(p)
    r.headed = (head & HAS_HEADER) != 0
    r.size = head & 0x7fffffff
    sub = st_get16(p + 20)
    if r.size < REC_MIN or r.size > REC_MAX or r.size > left or sub > r.size - REC_MIN:
        return False
    at = HEAD + sub
    if r.headed:
        if sub + 4 > r.size - REC_MIN:
            return False
        hdr = st_get32(p + at)
        at += 4
        if hdr > r.size - 8 - at:
            return False
    r.raw_seq = st_get64(p + 4)
    r.seq = r.raw_seq & ~(TOMB | ERASED)
    r.ts = <int64_t>st_get64(p + 12)
    r.subject = span(p + HEAD, sub)
    r.header = span(p + at, hdr)
    r.data = span(p + at + hdr, r.size - 8 - at - hdr)
    return True


cdef uint64_t record_hash(const uint64_t* key, const uint8_t* p, const Parsed* r) noexcept nogil:
    # Over bytes 4..19, subject, header and payload: the lengths between them are left out.
    cdef HHState h
    hh_init(&h, key)
    hh_update(&h, p + 4, 16)
    if r.headed:
        hh_update(&h, r.subject.p, r.subject.n)
        hh_update(&h, r.header.p, r.header.n + r.data.n)
    else:
        hh_update(&h, r.subject.p, r.subject.n + r.data.n)
    return hh_final(&h)


cdef bint header_ends(const Parsed* r) noexcept nogil:
    # Whether the header's first blank line is its end, as the protocol has it.
    cdef const uint8_t* end = <const uint8_t*>memmem(r.header.p, r.header.n, b"\r\n\r\n", 4)
    return end != NULL and end + 4 == r.header.p + r.header.n


cdef inline bint record_good(const uint64_t* key, const uint8_t* p, const Parsed* r) noexcept nogil:
    return st_get64(p + r.size - 8) == record_hash(key, p, r)


cdef uint64_t record_mark(const uint8_t* p, const Parsed* r, uint64_t at) noexcept nogil:
    # A record's part of its group's digest: over its lengths, its place in the block and its checksum.
    #
    # An erased record counts as what it was, which it says where there is room: so its group's digest still fits.
    if r.raw_seq & ERASED and r.size >= REC_MIN + 8 and not r.raw_seq & TOMB:
        return st_get64(p + HEAD)
    return st_mark(st_get64(p + r.size - 8), st_get32(p), r.subject.n, r.header.n, at)


cdef void bare_write(const uint64_t* key, uint8_t* p, uint64_t raw_seq, int64_t ts) noexcept nogil:
    # A record without subject and payload: 30 bytes, checksum included.
    st_put32(p, REC_MIN)
    st_put64(p + 4, raw_seq)
    st_put64(p + 12, <uint64_t>ts)
    st_put16(p + 20, 0)
    st_put64(p + 22, hh64(key, p + 4, 16))


cdef void marker_write(const uint64_t* key, uint8_t* p, const Mark* m) noexcept nogil:
    cdef Parsed r
    memset(p, 0, MARKER)
    st_put32(p, MARKER)
    st_put64(p + 4, TOMB)
    st_put64(p + 22, MARKER_MAGIC)
    st_put64(p + 30, m.group)
    st_put64(p + 38, m.start)
    st_put64(p + 46, m.durable)
    st_put64(p + 54, m.digest)
    st_put32(p + 62, m.count)
    st_put32(p + 66, m.flags)
    st_put64(p + 70, m.extent.first)
    st_put64(p + 78, m.extent.last)
    st_put64(p + 86, <uint64_t>m.extent.last_ts)
    record_parse(p, MARKER, &r)
    st_put64(p + MARKER - 8, record_hash(key, p, &r))


cdef bint marker_read(const uint8_t* p, const Parsed* r, Mark* m) noexcept nogil:
    # Whether this record (its checksum checked) is one of our markers.
    memset(&m.extent, 0, sizeof(Extent))
    if r.raw_seq != TOMB or (r.size != MARKER and r.size != MARKER_SHORT) or st_get64(p + 22) != MARKER_MAGIC:
        return False
    m.group = st_get64(p + 30)
    m.start = st_get64(p + 38)
    m.durable = st_get64(p + 46)
    m.digest = st_get64(p + 54)
    m.count = st_get32(p + 62)
    m.flags = st_get32(p + 66)
    if r.size == MARKER:
        m.extent.first = st_get64(p + 70)
        m.extent.last = st_get64(p + 78)
        m.extent.last_ts = <int64_t>st_get64(p + 86)
    return True


cdef inline void extent_join(Extent* a, const Extent* b) noexcept nogil:
    # What is known after both.
    a.first = max(a.first, b.first)
    if b.last >= a.last:
        a.last = b.last
        a.last_ts = b.last_ts


cdef void extent_of(const uint8_t* p, const Parsed* r, Extent* extent) noexcept nogil:
    cdef Mark m
    if marker_read(p, r, &m):
        extent_join(extent, &m.extent)


cdef bint is_marker(const uint8_t* p, const Parsed* r) noexcept nogil:
    cdef Mark m
    return marker_read(p, r, &m)


cdef bint header_explains(const uint8_t* p, uint64_t at, const Parsed* r, uint64_t missing) noexcept nogil:
    # Whether one changed bit in the length of this record's header is what its group's digest misses.
    cdef uint64_t was = record_mark(p, r, at)
    cdef uint32_t bit
    for bit in range(32):
        if st_mark(st_get64(p + r.size - 8), st_get32(p), r.subject.n, r.header.n ^ (<uint32_t>1 << bit), at) - was == missing:
            return True
    return False


cdef struct GroupSum:
    uint64_t start              # where the group begins
    uint64_t sum                # of its records' parts of the digest
    uint32_t n
    bint erased


cdef void group_add(GroupSum* g, const uint8_t* p, uint64_t at, const Parsed* r) noexcept nogil:
    g.sum += record_mark(p + at, r, at)
    g.n += 1
    g.erased = g.erased or r.raw_seq & ERASED != 0


cdef void group_trim(GroupSum* g, const uint8_t* p, uint64_t at, const Mark* m) noexcept nogil:
    # Leaves out what stands before the group of the marker at `at`: nats-server's records, and what was restored.
    cdef Parsed r
    cdef uint64_t next
    if not g.start < m.start <= at:
        return
    memset(g, 0, sizeof(GroupSum))
    g.start = next = m.start
    while next < at and record_parse(p + next, at - next, &r):
        group_add(g, p, next, &r)
        next += r.size


cdef bint groups_fit(const uint64_t* key, const uint8_t* p, uint64_t size, uint64_t wanted, bint strict) noexcept nogil:
    # Whether the lengths in a block's bytes are what they were when their groups were closed: of the record at `wanted`,
    # UINT64_MAX: of all. Where no marker says anything, they are; one record does not suffer from another's damage. Strict:
    # also of groups with erased records, which need not say what they were.
    cdef Parsed r
    cdef Parsed w
    cdef Mark m
    cdef GroupSum g
    cdef uint64_t at = 0
    memset(&g, 0, sizeof(g))
    while at + REC_MIN <= size:
        if not record_parse(p + at, size - at, &r):
            return wanted != UINT64_MAX
        if marker_read(p + at, &r, &m) and record_good(key, p + at, &r):
            group_trim(&g, p, at, &m)
            if m.flags & MARK_SUM and (m.count != g.n or m.digest != g.sum):
                if wanted == UINT64_MAX and (strict or not g.erased):
                    return False
                if g.start <= wanted < at and m.count == g.n and record_parse(p + wanted, size - wanted, &w):
                    return not header_explains(p + wanted, wanted, &w, m.digest - g.sum)
            if wanted < at:
                return True
            memset(&g, 0, sizeof(g))
            g.start = at + r.size
        else:
            group_add(&g, p, at, &r)
        at += r.size
    return True
