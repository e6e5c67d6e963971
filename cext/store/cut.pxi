# The cut record, with which a truncation begins its new block T (truncate.pxi).
#
# It is a tombstone of sequence 0, which every reader of the format passes over. Its payload:
#   magic u64 · number of the first block that leaves u64 · the sequence that they begin behind u64 · end of T u64 · digest u64
# The digest is a sum over T's records but for their checksums. A cut record in a T that is not all there says nothing: then the
# blocks are, and T has only copies of what is in them. What is appended next stands in another block, which is written when T
# is on disk.

cdef enum:
    CUT_SIZE = 70               # REC_MIN and the payload

cdef uint64_t CUT_MAGIC = 0x31545543534a534a

cdef struct Cut:
    uint64_t num                # blocks from this number on, up to the cut record's own, are void
    uint64_t behind             # the last sequence before them
    uint64_t end                # of T's bytes
    uint64_t digest
    int64_t last_ts             # of the newest message left


cdef bint cut_read(const uint8_t* p, const Parsed* r, Cut* cut) noexcept nogil:
    # Whether this record, which is whole, is a cut.
    if r.raw_seq != TOMB or r.size != CUT_SIZE or st_get64(p + HEAD) != CUT_MAGIC:
        return False
    cut.num = st_get64(p + HEAD + 8)
    cut.behind = st_get64(p + HEAD + 16)
    cut.end = st_get64(p + HEAD + 24)
    cut.digest = st_get64(p + HEAD + 32)
    cut.last_ts = r.ts
    return True


cdef bint cut_digest(const uint64_t* key, const uint8_t* p, uint64_t size, uint64_t* sum) noexcept nogil:
    # Over T's bytes; key: their checksums are looked at. False: they are no records.
    cdef Parsed r
    cdef uint64_t at = 0
    sum[0] = 0
    while at < size:
        if not record_parse(p + at, size - at, &r) or (key != NULL and not record_good(key, p + at, &r)):
            return False
        sum[0] += st_mark(r.raw_seq, r.size, r.subject.n, r.header.n, at)
        at += r.size
    return True


cdef bint cut_whole(const uint8_t* p, uint64_t size, const Block* b, const Cut* cut) noexcept nogil:
    # Whether all that T was made of is in its bytes.
    cdef uint64_t sum
    return cut.end <= size and cut_digest(b.key, p, cut.end, &sum) and sum == cut.digest


cdef void cut_extent(const Cut* cut, Extent* e) noexcept nogil:
    # What is known of the stream behind a cut.
    e.first = min(e.first, cut.behind + 1)
    e.last = cut.behind
    e.last_ts = cut.last_ts
