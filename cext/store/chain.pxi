# The messages of one subject, along its chain through the blocks.

cdef uint64_t chain_next(Store* s, Block* b, uint32_t i, uint32_t id) noexcept nogil:
    # The subject's first live message after a slot of it, 0 when there is none.
    cdef uint64_t start = seq_at(b, i), seq = start
    cdef uint32_t* link = &b.nxt[i]
    cdef uint32_t d
    cdef int64_t k = i
    if node_at(&s.x, id).count == 0 or node_at(&s.x, id).last <= seq:
        return 0
    while True:
        d = b.nxt[k]
        if d == 0 or d == FAR:
            seq = scan_id(s, id, seq + 1)
            break
        seq += d
        if seq > b.last:
            b = block_along(s, seq)
        k = slot_of(b, seq) if b != NULL else -1
        if k < 0:
            seq = scan_id(s, id, seq)
            break
        if b.off[k]:
            break
    if seq and seq - start != link[0]:
        link[0] = <uint32_t>min(seq - start, <uint64_t>FAR)       # the next walk does not pass what is gone
    return seq


cdef uint64_t scan_id(Store* s, uint32_t id, uint64_t start) noexcept nogil:
    # The first live message of an id from a sequence on, by looking at the id arrays.
    cdef uint32_t bi = block_from(s, start), i
    cdef uint64_t last = node_at(&s.x, id).last
    cdef Block* b
    while bi < s.n_blocks:
        b = block_i(s, bi)
        if b.base > last:
            break
        if b.live:
            i = slot_from(b, start)
            i = st_find(b.sid, b.off, max(i, b.head), b.n, id)
            if i < b.n:
                return seq_at(b, i)
        bi += 1
    return 0


cdef uint64_t scan_id_back(Store* s, uint32_t id, uint64_t before) noexcept nogil:
    # The last live message of an id below a sequence, 0 when there is none.
    cdef uint32_t bi = block_from(s, before), i
    cdef Block* b
    if bi == s.n_blocks:
        if bi == 0:
            return 0
        bi -= 1
    while True:
        b = block_i(s, bi)
        if b.live:
            i = st_find_back(b.sid, b.off, slot_from(b, before), id)
            if i != 0xffffffffU:
                return seq_at(b, i)
        if bi == 0:
            return 0
        bi -= 1


cdef uint64_t prev_of(Store* s, uint32_t id, uint64_t before) noexcept nogil:
    # The subject's newest live message below `before`, by its chain when that is short.
    cdef Node* n = node_at(&s.x, id)
    cdef uint64_t seq = n.first, next
    cdef Block* b
    if n.first >= before:
        return 0
    if <uint64_t>n.count * 128 > before - n.first:
        return scan_id_back(s, id, before)
    while True:
        b = block_of(s, seq)
        next = chain_next(s, b, <uint32_t>slot_of(b, seq), id)
        if next == 0 or next >= before:
            return seq
        seq = next


cdef uint64_t next_of_id(Store* s, uint32_t id, uint64_t start) noexcept nogil:
    # The first message of a subject from a sequence on: along its chain if it is sparse, else by scanning.
    cdef Node* n = node_at(&s.x, id)
    cdef uint64_t seq, steps
    cdef Block* b
    cdef int64_t i
    if n.count == 0 or n.last < start:
        return 0
    if start <= n.first:
        return n.first
    if start == n.last:
        return start
    b = block_of(s, start - 1)      # a consumer asks right behind the message it had
    i = slot_of(b, start - 1) if b != NULL else -1
    if i >= 0 and b.sid[i] == id:
        return chain_next(s, b, <uint32_t>i, id)
    if <uint64_t>n.count * 128 > n.last - n.first:
        return scan_id(s, id, start)
    seq = n.first
    steps = n.count
    while seq and seq < start and steps:
        b = block_of(s, seq)
        seq = chain_next(s, b, <uint32_t>slot_of(b, seq), id)
        steps -= 1
    return seq
