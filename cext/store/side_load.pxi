# Sidecars that a start reads.

cdef bint side_whole(const uint64_t* key, const uint8_t* p, uint64_t size) noexcept nogil:
    cdef SideHead h
    cdef uint64_t need
    if size < sizeof(SideHead) + 8:
        return False
    memcpy(&h, p, sizeof(SideHead))
    need = sizeof(SideHead) + <uint64_t>h.n * (14 if h.sparse else 10)
    need = ((need + 7) & ~<uint64_t>7) + <uint64_t>h.tombs * 16 + 8
    return h.magic == SIDE_MAGIC and need == size and st_get64(p + size - 8) == hh64(key, p, size - 8)


cdef bint side_fits(const uint64_t* key, const uint8_t* p, uint64_t size, uint64_t file_size,
                    uint64_t file_end) noexcept nogil:
    # Whether a sidecar is whole and its block's file is what it was.
    cdef const SideHead* h = <const SideHead*>p
    return side_whole(key, p, size) and h.size == file_size and h.end == file_end


cdef bint side_view(const uint8_t* p, uint64_t size, Span name, uint64_t file_size, uint64_t file_end,
                    SideBlock* out) noexcept nogil:
    cdef uint64_t key[4]
    cdef const SideHead* h = <const SideHead*>p
    cdef const uint8_t* at = p + sizeof(SideHead)
    store_key(name, key)
    if not side_fits(key, p, size, file_size, file_end):
        return False
    out.dict = h.dict
    out.needs = h.needs
    out.base = h.base
    out.last = h.last
    out.first_ts = h.first_ts
    out.last_ts = h.last_ts
    out.n = h.n
    out.tombs = h.tombs
    out.extent = h.extent
    out.rel = <const uint32_t*>at if h.sparse else NULL
    at += <size_t>h.n * 4 if h.sparse else 0
    out.off = <const uint32_t*>at
    out.sid = out.off + h.n
    out.len = <const uint16_t*>(out.sid + h.n)
    at = <const uint8_t*>(out.len + h.n)
    out.tomb = <const uint64_t*>(p + (((at - p) + 7) & ~<size_t>7))
    return True


cdef int side_load(Store* s, Block* b, int block_file, uint64_t file_size, bint suspects) noexcept nogil:
    # 1: the block was entered from its sidecar; 0: there is none that fits; or an error.
    #
    # With suspects also where its file is gone or not what it was: what is missing is then known.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint8_t end[8]
    cdef int rc = 0
    cdef uint64_t size
    cdef uint8_t* p
    cdef const SideHead* h
    cdef bint fits = file_size >= REC_MIN and f.pread(f.ctx, block_file, end, 8, <off_t>(file_size - 8)) == 8
    if not fits and not suspects:
        return 0
    block_path(s, b, ".jsx", path, sizeof(path))
    p = file_read(f, path, &size)
    if p == NULL:
        return 0
    h = <const SideHead*>p
    if not side_whole(s.key, p, size) or h.num != b.num or h.dict != s.keeping.dict:
        pass
    elif h.needs > s.keeping.dict_total:
        s.recovery.dict_short = True
    else:
        b.suspect = not (fits and h.size == plain_size(f, block_file, file_size) and h.end == st_get64(end))
        if not b.suspect or suspects:
            b.used = h.size
            rc = side_enter(s, b, p, <size_t>size)
            if b.arrays == p:
                return rc   # the memory is the block's
    pages_free(p, <size_t>size)
    return rc


cdef int side_enter(Store* s, Block* b, uint8_t* p, size_t size) noexcept nogil:
    # Replays a block from its sidecar, whose arrays become the block's.
    cdef SideHead h
    cdef uint8_t* at = p + sizeof(SideHead)
    memcpy(&h, p, sizeof(SideHead))
    b.nxt_own = <uint32_t*>calloc(h.n, 4)
    if b.nxt_own == NULL:
        return ST_NO_MEMORY
    hole_close(s, max(h.base, s.recovery.hole.first))
    b.arrays = p
    b.arrays_size = size
    b.nxt = b.nxt_own
    if h.sparse:
        b.rel = <uint32_t*>at      # cap_rel 0: not malloc'ed
        at += <size_t>h.n * 4
    b.off = <uint32_t*>at
    at += <size_t>h.n * 4
    b.sid = <uint32_t*>at
    at += <size_t>h.n * 4
    b.len = <uint16_t*>at
    at += <size_t>h.n * 2
    at = p + (((at - p) + 7) & ~<size_t>7)
    b.n = h.n
    b.cap = h.n
    b.base = h.base
    b.last = h.last
    b.first_ts = h.first_ts
    b.last_ts = h.last_ts
    b.ghosts = h.ghosts
    b.sided = True
    s.writing.group = max(s.writing.group, h.group)
    extent_join(&s.writing.extent, &h.extent)
    if side_replay(s, b, <const uint64_t*>at, h.tombs) < 0:
        return ST_NO_MEMORY
    if h.last > s.last_seq:
        s.last_seq = h.last
        if s.msgs == 0:
            s.first_seq = s.last_seq + 1
    s.last_ts = max(s.last_ts, h.last_ts)
    return 1


cdef int side_replay(Store* s, Block* b, const uint64_t* tombs, uint32_t n_tombs) noexcept nogil:
    # What the sidecar of block b has, though it is whole, under no subject, is lost: nothing goes unsaid.
    cdef Index* x = &s.x
    cdef uint32_t i = 0, k = 0, id
    cdef uint64_t seq, size, first = 0, last = 0, count = 0
    cdef Node* n
    while True:
        while k < n_tombs and tombs[2 * k + 1] <= i:
            if replay_tomb(s, b, tombs[2 * k]) < 0:
                return ST_NO_MEMORY
            if tombs[2 * k] > s.last_seq:
                s.last_seq = tombs[2 * k]
            k += 1
        if i >= b.n:
            break
        id = b.sid[i]
        if i + 16 < b.n and b.sid[i + 16] < x.n_nodes:
            st_prefetch(node_at(x, b.sid[i + 16]))
        if b.off[i] == 0:
            i += 1
            continue
        seq = seq_at(b, i)
        if id:
            id = index_placed(x, id)
            if id == 0 or b.off[i] + REC_MIN > b.used + 1:
                b.off[i] = 0
                if lost_add(s, seq, slot_size(b, i)):
                    first = first if count else seq
                    count += 1
                    last = seq
                i += 1
                continue
            b.sid[i] = id
        n = node_at(x, id)
        if n.count:
            link_after(s, b, n.last, seq)
        else:
            n.first = seq
            if id:
                x.n_subjects += 1
        n.last = seq
        n.count += 1        # totals are made at the end of the recovery
        b.live += 1
        size = slot_size(b, i)
        b.live_bytes += size
        if s.msgs == 0:
            s.first_seq = seq
        s.msgs += 1
        s.bytes += size
        s.last_seq = seq
        i += 1
    if count:
        b.damaged = True
        lost_place(s, DAMAGE_BLOCK, b.num, 0, b.used, first, last, count)
    if b.data != NULL and b.bytes == BYTES_DECODED:     # to tell how large its messages are
        block_unmap(b)
    return ST_OK


cdef void index_settle(Index* x) noexcept nogil:
    # After a recovery from sidecars: subjects without messages go, unused ids become free, totals are summed up.
    cdef uint32_t id
    cdef Node* n
    for id in range(1, x.n_nodes):
        n = node_at(x, id)
        if n.len and n.count == 0:
            node_prune(x, id)
    x.free_node = 0
    for id in range(x.n_nodes):
        node_at(x, id).total = 0
    id = x.n_nodes
    while id > 1:
        id -= 1
        n = node_at(x, id)
        if n.len == 0:
            n.next = x.free_node
            x.free_node = id
    for id in range(x.n_nodes):
        if node_at(x, id).count:
            index_up(x, id, node_at(x, id).count)
