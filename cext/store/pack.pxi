# Packing: what is stored, as the records of another block, or in another store. An archive is made of such blocks, whose
# checksums have keys of their own, and which hold messages only: what was removed is a gap between sequences.

cdef enum:
    PACK_STEP = 256             # messages that are looked at under one hold of the lock
    PACK_BYTES = 1048576        # likewise bytes


cdef int record_add(Bytes* b, const uint64_t* key, uint64_t seq, int64_t ts, Span subject, Span header, Span data) noexcept nogil:
    # A record with its checksum at the end of b; ST_NO_MEMORY: b is as it was.
    cdef uint64_t size = record_size(subject, header, data)
    cdef uint8_t* p
    cdef Parsed r
    if size > REC_MAX:
        return ST_TOO_LARGE
    if bytes_reserve(b, <size_t>size) < 0:
        return ST_NO_MEMORY
    p = b.data + b.n
    record_write(p, <uint32_t>size, seq, ts, subject, header, data)
    if not record_parse(p, size, &r):
        return ST_TOO_LARGE
    st_put64(p + size - 8, record_hash(key, p, &r))
    b.n += <size_t>size
    return ST_OK


cdef int store_pack(Store* s, const uint64_t* key, uint64_t* at, uint64_t last, uint64_t most, Bytes* b, Wait* w) noexcept nogil:
    cdef uint32_t looked = 0
    cdef uint64_t before = b.n, seq
    cdef Record r
    cdef int rc
    while True:
        seq = store_next_seq(s, NULL, at[0])
        if seq == 0 or seq > last:
            at[0] = last + 1
            return ST_OK
        if looked == PACK_STEP or b.n - before >= PACK_BYTES:
            at[0] = seq
            return 1
        looked += 1
        rc = store_load_warm(s, seq, &r, w)
        if rc == ST_WAIT:
            at[0] = seq
            return ST_WAIT
        if rc == ST_DAMAGED:
            at[0] = seq + 1
            continue
        if rc != ST_OK:
            return rc
        if b.n and b.n + record_size(r.subject, r.header, r.data) > most:
            at[0] = seq
            return ST_OK
        rc = record_add(b, key, seq, r.ts, r.subject, r.header, r.data)
        if rc != ST_OK:
            return rc
        at[0] = seq + 1


cdef int store_copy(Store* s, Store* source, uint64_t* at, uint64_t last, Wait* w) noexcept nogil:
    cdef uint32_t looked
    cdef uint64_t copied = 0, seq
    cdef Record r
    cdef int rc
    for looked in range(PACK_STEP):
        seq = store_next_seq(source, NULL, at[0])
        if seq == 0 or seq > last:
            at[0] = last + 1
            return ST_OK
        at[0] = seq
        if copied >= PACK_BYTES:
            break
        rc = store_load_warm(source, seq, &r, w)
        if rc == ST_OK:
            rc = store_append_at(s, seq, r.ts, r.subject, r.header, r.data)
            copied += record_size(r.subject, r.header, r.data)
        if rc != ST_OK and rc != ST_DAMAGED:
            return rc
        at[0] = seq + 1
    return 1
