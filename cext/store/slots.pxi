# One message of a block: whether its record is what the index knows, its bytes, and its time.

cdef bint slot_fits(Store* s, Block* b, uint32_t i, const uint8_t* bytes, Parsed* r) noexcept nogil:
    # Whether the record of that slot stands in the block's bytes. Its checksum leaves the lengths out, so these are compared
    # with what the index knows of the subject, and with where a header ends.
    cdef const Node* node = node_at(&s.x, b.sid[i])
    cdef uint64_t at = b.off[i] - 1, used = st_load(&b.used)
    cdef const uint8_t* p = bytes + at
    st_prefetch(node)
    if at >= used or not record_parse(p, used - at, r) or not chunks_ready(b, at, r.size):
        return False
    if r.raw_seq != seq_at(b, i) or not record_good(b.key, p, r):
        return False
    return node.len == r.subject.n and (not r.headed or header_ends(r) or header_vouched(b, bytes, at))


cdef bint header_vouched(Block* b, const uint8_t* bytes, uint64_t at) noexcept nogil:
    # Of a record whose header does not show its end: whether the group's marker says that its lengths are right.
    if b.bytes == BYTES_REGION:
        return True
    if not chunks_ready(b, 0, b.used):
        return False
    if b.vouched == 0:
        b.vouched = 1 if groups_fit(b.key, bytes, b.used, UINT64_MAX, True) else 2
    return b.vouched == 1 or groups_fit(b.key, bytes, b.used, at, True)


cdef inline bint slot_ours(const Block* b, uint32_t i) noexcept nogil:
    # Whether the slot's record stands in memory as it was staged, not in a file.
    return b.bytes == BYTES_REGION and b.off[i] > b.lean


cdef int slot_load(Store* s, Block* b, uint32_t i, Record* out) noexcept nogil:
    cdef const uint8_t* p = slot_bytes(b, i)
    cdef uint64_t at = b.off[i] - 1
    cdef Parsed r
    out.seq = seq_at(b, i)
    if p == NULL:
        return ST_IO
    if slot_ours(b, i):
        record_parse(p + at, st_load(&b.used) - at, &r)
    elif not slot_fits(s, b, i, p, &r):
        slot_damaged(s, b, i)
        return ST_DAMAGED
    out.ts = r.ts
    out.subject = r.subject
    out.header = r.header
    out.data = r.data
    return ST_OK


cdef int64_t ts_of(Block* b, uint32_t i) noexcept nogil:
    # A message's time; for a damaged record that of its block's first, of one that cannot be read now, of its last: none is
    # let go for its age before its time.
    cdef const uint8_t* p = slot_bytes(b, i)
    cdef uint64_t at = b.off[i] - 1
    cdef int64_t ts
    cdef Parsed r
    if p == NULL:
        return b.last_ts
    ts = <int64_t>st_get64(p + at + 12)
    if slot_ours(b, i) or b.first_ts <= ts <= b.last_ts:
        return ts
    return ts if record_parse(p + at, b.used - at, &r) and record_good(b.key, p + at, &r) else b.first_ts
