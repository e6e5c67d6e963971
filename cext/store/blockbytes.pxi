# Where a block's bytes are read: the mapping of its file, or what a compressed one is decoded into.

cdef enum:
    PIECE = 1 << 20             # of a mapped block: what lies behind a reader is let go of in these


cdef void trail_drop(Store* s, const Block* b) noexcept nogil:
    # Reading on from one block into the next: the former's pages stay with the system alone, not with the process.
    cdef uint32_t i = block_from(s, b.base)
    cdef Block* before = block_i(s, i - 1) if i else NULL
    if before != NULL and list_linked(&before.lru) and before.bytes == BYTES_MAPPED:
        s.files.cool(s.files.ctx, before.data, before.data_cap)


cdef inline void behind_drop(Block* b, uint64_t start, uint64_t end) noexcept nogil:
    # The same within a block, when a record reaches into another piece of it: the pieces before the one it starts in.
    cdef FileOps* f = b.store.files
    cdef uint64_t piece = start // PIECE
    if piece and end // PIECE != piece and b.bytes == BYTES_MAPPED:
        f.cool(f.ctx, b.data, piece * PIECE)


cdef bint block_open(const Block* b, Opened* o, bint partly = False) noexcept nogil:
    # Maps a sealed block's file, or decodes it; False when it cannot be read. partly: it may be decoded later, as far as it is
    # read.
    cdef Store* s = b.store
    cdef FileOps* f = s.files
    cdef char path[4200]
    cdef int fd
    cdef int64_t size
    cdef bint ok = True
    memset(o, 0, sizeof(Opened))
    block_path(s, b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    size = f.size(f.ctx, fd) if fd >= 0 else fd
    if fd < 0 and fd != -ENOENT or fd >= 0 and size < 0:
        if fd >= 0:
            f.close(f.ctx, fd)
        return False
    # Of a file that is gone or shorter than it was the rest reads as zeros: damage.
    if fd >= 0 and is_compressed(f, fd):
        if partly:
            ok = compressed_begin(f, fd, <uint64_t>size, b.used, o)
        else:
            ok = compressed_open(f, fd, <uint64_t>size, b.used, o)
    elif f.once and fd >= 0:
        ok = plain_open(f, fd, <uint64_t>max(size, <int64_t>b.used), o)
    else:
        o.size = <uint64_t>max(size, <int64_t>b.used)
        f.map(f.ctx, max(fd, -1), <size_t>o.size, False, &o.p)
        ok = o.p != NULL
    if fd >= 0 and o.chunks == NULL:
        f.close(f.ctx, fd)
    return ok


cdef void block_opened(Block* b, const Opened* o) noexcept nogil:
    # The block's bytes are read there from now on.
    cdef Store* s = b.store
    b.data = o.p
    b.data_cap = o.size
    b.bytes = BYTES_DECODED if o.decoded else BYTES_MAPPED
    b.chunks = o.chunks
    if not s.recovery.replaying and not s.stopped:
        lru_push(s.com, b)
        if s.com.n_maps > MAPS_MAX or s.com.decoded > DECODED_MAX:
            chore_wanted(s.com)


cdef Opened block_closed(Block* b) noexcept nogil:
    # With the engine lock held: they are read there no more, and it is the caller's to free.
    cdef Opened o
    memset(&o, 0, sizeof(o))
    o.p = b.data
    o.size = b.data_cap
    o.decoded = b.bytes == BYTES_DECODED
    o.chunks = b.chunks
    lru_remove(b.store.com, b)
    b.data = NULL
    b.chunks = NULL
    b.bytes = BYTES_MAPPED
    b.warm = 0
    return o


cdef bint wants_bytes(const Block* b) noexcept nogil:
    # Whether some of a sealed block's bytes cannot be read yet.
    return b.data == NULL or b.chunks != NULL


cdef void opened_take(Block* b, Opened* o) noexcept nogil:
    # With the engine lock held: block_opened with what was opened without it, if the block still needs it. o: what is to be
    # freed then.
    cdef Opened old
    memset(&old, 0, sizeof(old))
    if not wants_bytes(b) or has_left(b) or b.store.stopped:
        return
    if b.data != NULL:
        old = block_closed(b)
    block_opened(b, o)
    o[0] = old


cdef int block_map(Block* b, bint partly) noexcept nogil:
    # Makes a sealed file block readable. Its bytes are looked at only through block_part and block_data.
    cdef Opened o
    if not block_open(b, &o, partly):
        return ST_IO
    if not b.store.recovery.replaying and not b.store.stopped:
        trail_drop(b.store, b)
    block_opened(b, &o)
    return ST_OK


cdef void block_unmap(Block* b) noexcept nogil:
    # Its bytes are not needed any more.
    cdef Opened o = block_closed(b)
    opened_free(b.store.files, &o)


cdef inline const uint8_t* block_part(Block* b, uint64_t at, uint64_t n) noexcept nogil:
    # The block's bytes, of which the n from `at` on may be looked at; NULL when they cannot be read.
    cdef Committer* c
    if b.data == NULL:
        if b.store.storage == STORE_MEMORY or block_map(b, n < b.used) < 0:
            return NULL
    elif list_linked(&b.lru):
        c = b.store.com
        if list_first(&c.lru) != &b.lru:
            lru_remove(c, b)
            lru_push(c, b)
    if b.chunks != NULL and not chunks_ready(b, at, n):
        return NULL
    return b.data


cdef bint chunks_ready(Block* b, uint64_t at, uint64_t n) noexcept nogil:
    # Decodes what is needed of these bytes; False as chunk_fill.
    cdef FileOps* f = b.store.files
    if b.chunks == NULL:
        return True
    if not chunks_fill(f, b.chunks, b.data, at, n):
        return False
    if b.chunks.left == 0:
        chunks_free(f, b.chunks)
        b.chunks = NULL
    return True


cdef inline const uint8_t* block_data(Block* b) noexcept nogil:
    # All of the block's bytes, NULL when they cannot be read.
    return block_part(b, 0, b.used)


cdef const uint8_t* slot_bytes(Block* b, uint32_t i) noexcept nogil:
    # The block's bytes, of which slot i's record may be looked at; NULL as block_data.
    cdef uint64_t at = b.off[i] - 1, used = st_load(&b.used), n = b.len[i]
    cdef const uint8_t* p
    if n == 65535:
        p = block_part(b, at, 4)
        if p == NULL or at + 4 > used:
            return p
        n = st_get32(p + at) & 0x7fffffff
    return block_part(b, at, min(n, used - min(at, used)))


cdef uint64_t slot_size(Block* b, uint32_t i) noexcept nogil:
    # What a message counts in the state's bytes.
    cdef const uint8_t* p
    cdef uint32_t size
    if b.len[i] != 65535:
        return b.len[i]
    p = block_part(b, b.off[i] - 1, 4)
    if p == NULL:
        return 65535
    p += b.off[i] - 1
    size = st_get32(p)
    if b.store.storage == STORE_MEMORY:
        return (size & 0x7fffffff) - (18 if size & HAS_HEADER else 14)
    return size & 0x7fffffff
