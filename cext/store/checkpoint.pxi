# The checkpoint: the whole index and all blocks' arrays as they stand in memory, written at a clean stop.
#
# Opening reads it whole and uses it where it lies; its checksum is over everything. It is bound to the blocks by
# their numbers and sizes and the last block's last 8 bytes, and removed before a block changes.
#
# msgs/checkpoint.jss: CheckHead · hash slots · nodes · texts · (CheckBlock · rel · nxt · off · sid · len) x blocks ·
# lost sequences · checksum.
# Every part starts at a multiple of 8.

cdef uint64_t CHECK_MAGIC = 0x3554504b434a534a

cdef struct CheckHead:
    uint64_t magic
    uint64_t size
    uint64_t end                # last 8 bytes of the last block's file
    uint64_t msgs
    uint64_t bytes
    uint64_t first_seq
    uint64_t last_seq
    int64_t last_ts
    uint64_t group
    uint64_t dict
    uint64_t dict_total
    uint64_t dict_size
    uint64_t damage
    uint64_t lost               # sequences of messages that are lost
    uint64_t lost_bytes
    uint64_t n_blocks
    Extent extent
    Index index

cdef struct CheckBlock:
    uint64_t num
    uint64_t size               # of the file
    uint64_t base
    uint64_t last
    int64_t first_ts
    int64_t last_ts
    uint64_t live_bytes
    uint32_t n
    uint32_t head
    uint32_t live
    uint32_t tombs
    uint32_t sparse
    uint32_t damaged
    uint32_t sided
    uint32_t ghosts
    uint32_t n_holds
    uint32_t pad

cdef enum:
    OUT_GATHERED = 1 << 16      # bytes that are written by one call; larger parts are written by themselves

cdef struct Out:
    # A file that is written from front to end, with a running checksum.
    FileOps* f
    int fd
    uint8_t* room               # what is to be written next, `held` bytes
    uint64_t held
    uint64_t at                 # what is written
    int64_t rc
    HHState hash


cdef void out_write(Out* o, const void* p, size_t n) noexcept nogil:
    if o.rc >= 0:
        o.rc = o.f.pwrite(o.f.ctx, o.fd, p, n, <off_t>o.at)
    o.at += n


cdef void out_flush(Out* o) noexcept nogil:
    if o.held:
        out_write(o, o.room, o.held)
    o.held = 0


cdef void out_add(Out* o, const void* p, size_t n) noexcept nogil:
    if o.held + n > OUT_GATHERED:
        out_flush(o)
    if n > OUT_GATHERED:
        out_write(o, p, n)
        return
    memcpy(o.room + o.held, p, n)
    o.held += n


cdef void out_put(Out* o, const void* p, size_t n) noexcept nogil:
    cdef uint64_t zero = 0
    cdef size_t pad = (8 - n % 8) % 8
    if o.rc < 0 or n == 0:
        return
    hh_update(&o.hash, <const uint8_t*>p, n)
    out_add(o, p, n)
    if pad:
        hh_update(&o.hash, <const uint8_t*>&zero, pad)
        out_add(o, &zero, pad)


cdef void check_block(Out* o, Block* b) noexcept nogil:
    cdef CheckBlock c
    memset(&c, 0, sizeof(c))
    c.num = b.num
    c.size = b.writing.written
    c.base = b.base
    c.last = b.last
    c.first_ts = b.first_ts
    c.last_ts = b.last_ts
    c.live_bytes = b.live_bytes
    c.n = b.n
    c.head = b.head
    c.live = b.live
    c.tombs = b.tombs
    c.sparse = b.rel != NULL
    c.damaged = b.damaged
    c.sided = b.sided
    c.ghosts = b.ghosts
    c.n_holds = b.n_holds
    out_put(o, &c, sizeof(c))
    if b.rel != NULL:
        out_put(o, b.rel, <size_t>b.n * 4)
    out_put(o, b.nxt, <size_t>b.n * 4)
    out_put(o, b.off, <size_t>b.n * 4)
    out_put(o, b.sid, <size_t>b.n * 4)
    out_put(o, b.len, <size_t>b.n * 2)
    out_put(o, b.holds, b.n_holds * sizeof(Hold))


cdef uint64_t file_end(Store* s, const Block* b, uint64_t* size) noexcept nogil:
    # The last 8 bytes of a block's file, and the block's size; 0 when it cannot be read.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint64_t end = 0
    cdef int64_t n
    cdef int fd
    block_path(s, b, ".blk", path, sizeof(path))
    size[0] = 0
    fd = f.open(f.ctx, path, O_RDONLY, 0)
    if fd < 0:
        return 0
    n = f.size(f.ctx, fd)
    if n >= 8 and f.pread(f.ctx, fd, &end, 8, <off_t>(n - 8)) == 8:
        size[0] = plain_size(f, fd, <uint64_t>n)
    f.close(f.ctx, fd)
    return end


cdef void checkpoint_write(Store* s) noexcept nogil:
    # At a clean stop, when nobody else knows the store. Failing only costs the next start its time.
    cdef Out o
    cdef CheckHead h
    cdef Index* x = &s.x
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef char temp[4400]
    cdef uint32_t i
    cdef uint64_t size, hash
    if s.n_blocks == 0:
        return
    if x.old != NULL:
        slots_move(x, 0xffffffffU)
    memset(&h, 0, sizeof(h))
    h.end = file_end(s, block_i(s, s.n_blocks - 1), &size)
    if size != block_i(s, s.n_blocks - 1).writing.written:
        return
    checkpoint_path(s, path, sizeof(path))
    snprintf(temp, sizeof(temp), "%s.tmp", path)
    memset(&o, 0, sizeof(o))
    o.f = f
    o.room = <uint8_t*>malloc(OUT_GATHERED)
    o.fd = file_new(f, temp) if o.room != NULL else -ENOMEM
    if o.fd < 0:
        free(o.room)
        return
    hh_init(&o.hash, s.key)
    h.magic = CHECK_MAGIC
    h.msgs = s.msgs
    h.bytes = s.bytes
    h.first_seq = s.first_seq
    h.last_seq = s.last_seq
    h.last_ts = s.last_ts
    h.group = s.writing.group
    h.dict = s.keeping.dict
    h.dict_total = s.keeping.dict_total
    h.dict_size = s.keeping.dict_size
    h.damage = s.damage
    if s.lost != NULL:
        h.lost = s.lost.n
        h.lost_bytes = s.lost.bytes
    h.n_blocks = s.n_blocks
    h.extent = s.writing.extent
    h.index = x[0]
    out_put(&o, &h, sizeof(h))
    if x.slots != NULL:
        out_put(&o, x.slots, <size_t>8 << x.bits)
    for i in range(x.n_chunks):
        out_put(&o, x.nodes[i], sizeof(Node) * (min(x.n_nodes, x.cap_first) if x.n_chunks == 1 else NODES))
    for i in range(x.n_texts):
        out_put(&o, x.texts[i], x.text_used if i + 1 == x.n_texts else TEXT_CHUNK)
    for i in range(s.n_blocks):
        check_block(&o, block_i(s, i))
    if s.lost != NULL:
        out_put(&o, s.lost.seqs, <size_t>s.lost.n * 8)
    hash = hh_final(&o.hash)
    out_add(&o, &hash, 8)
    out_flush(&o)
    f.close(f.ctx, o.fd)
    free(o.room)
    if o.rc >= 0:
        f.rename(f.ctx, temp, path)
    else:
        f.unlink(f.ctx, temp)


# ---- reading -----------------------------------------------------------------------------------------------------

cdef struct In:
    uint8_t* p
    uint64_t at
    uint64_t end


cdef void* in_take(In* r, uint64_t n) noexcept nogil:
    # The next n bytes, NULL when there are not that many.
    cdef uint8_t* p = r.p + r.at
    if n > r.end - r.at:
        return NULL
    r.at = min(r.end, r.at + ((n + 7) & ~<uint64_t>7))
    return p


cdef int check_index(Store* s, In* r, const Index* old) noexcept nogil:
    # Sets the index up over the mapping; small ones are copied, since their first chunks still grow in place.
    cdef Index* x = &s.x
    cdef uint32_t i, n
    cdef bint small = old.n_chunks == 1 and old.n_texts == 1
    cdef void* p
    cdef Node** nodes = <Node**>calloc(old.n_chunks + 1, sizeof(Node*))
    cdef uint8_t** texts = <uint8_t**>calloc(old.n_texts + 1, sizeof(uint8_t*))
    if nodes == NULL or texts == NULL:
        free(nodes)
        free(texts)
        return ST_NO_MEMORY
    index_free(x)
    x[0] = old[0]
    x.map = s.map
    x.map_size = s.map_size
    x.nodes = nodes
    x.texts = texts
    x.cap_chunks = old.n_chunks + 1
    x.cap_texts = old.n_texts + 1
    x.slots = NULL
    x.old = NULL
    x.born = NULL
    x.n_chunks = 0
    x.n_texts = 0
    if old.slots != NULL:
        x.slots = <uint64_t*>in_take(r, <uint64_t>8 << old.bits)
        if x.slots == NULL:
            return ST_DAMAGED
    for i in range(old.n_chunks):
        n = min(old.n_nodes, old.cap_first) if old.n_chunks == 1 else NODES
        p = in_take(r, <uint64_t>n * sizeof(Node))
        if p == NULL:
            return ST_DAMAGED
        x.nodes[i] = <Node*>p
        if old.n_chunks == 1:
            x.nodes[i] = <Node*>malloc(old.cap_first * sizeof(Node))
            if x.nodes[i] == NULL:
                return ST_NO_MEMORY
            memcpy(x.nodes[i], p, <size_t>n * sizeof(Node))
        x.n_chunks += 1
    for i in range(old.n_texts):
        n = old.text_used if i + 1 == old.n_texts else TEXT_CHUNK
        p = in_take(r, n)
        if p == NULL:
            return ST_DAMAGED
        x.texts[i] = <uint8_t*>p
        if i + 1 == old.n_texts:    # it is filled further
            x.texts[i] = <uint8_t*>malloc(old.cap_text0 if old.n_texts == 1 else TEXT_CHUNK)
            if x.texts[i] == NULL:
                return ST_NO_MEMORY
            memcpy(x.texts[i], p, n)
        x.n_texts += 1
    return ST_OK


cdef int check_load_block(Store* s, In* r, uint64_t num) noexcept nogil:
    # One block, if its file is what it was. 0 or ST_DAMAGED, ST_NO_MEMORY.
    cdef CheckBlock* c = <CheckBlock*>in_take(r, sizeof(CheckBlock))
    cdef Block* b
    cdef Hold* holds
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef uint32_t i
    cdef int fd
    cdef int64_t size
    if c == NULL or c.num != num or blocks_reserve(s) < 0:
        return ST_DAMAGED
    b = block_new(s, num, c.base)
    if b == NULL:
        return ST_NO_MEMORY
    s.blocks[s.b0 + s.n_blocks] = b
    s.n_blocks += 1
    b.last = c.last
    b.first_ts = c.first_ts
    b.last_ts = c.last_ts
    b.live_bytes = c.live_bytes
    b.ghosts = c.ghosts
    b.n = c.n
    b.cap = c.n
    b.head = c.head
    b.live = c.live
    b.tombs = c.tombs
    b.damaged = c.damaged
    b.sided = c.sided
    b.writing.file = FILE_OPEN
    b.used = c.size
    b.writing.written = c.size
    b.writing.durable = c.size
    if c.sparse:
        b.rel = <uint32_t*>in_take(r, <uint64_t>c.n * 4)
    b.nxt = <uint32_t*>in_take(r, <uint64_t>c.n * 4)
    b.off = <uint32_t*>in_take(r, <uint64_t>c.n * 4)
    b.sid = <uint32_t*>in_take(r, <uint64_t>c.n * 4)
    b.len = <uint16_t*>in_take(r, <uint64_t>c.n * 2)
    holds = <Hold*>in_take(r, c.n_holds * sizeof(Hold))
    if holds == NULL or b.len == NULL or b.sid == NULL or b.off == NULL or b.nxt == NULL:
        return ST_DAMAGED
    for i in range(c.n_holds):
        if hold_add(b, holds[i].num, holds[i].count) < 0:
            return ST_NO_MEMORY
    block_path(s, b, ".blk", path, sizeof(path))
    fd = f.open(f.ctx, path, O_RDWR, 0)
    if fd < 0:
        return ST_DAMAGED
    size = f.size(f.ctx, fd)
    b.writing.fd = fd
    if size < 0 or plain_size(f, fd, <uint64_t>size) != c.size:
        return ST_DAMAGED
    return ST_OK


cdef int checkpoint_load(Store* s, const uint64_t* nums, uint64_t n) noexcept nogil:
    # 1: everything is entered; 0: there is none that fits; or an error.
    cdef FileOps* f = s.files
    cdef char path[4300]
    cdef CheckHead h
    cdef In r
    cdef int rc = ST_OK
    cdef uint64_t k, end, size
    cdef const uint64_t* lost
    checkpoint_path(s, path, sizeof(path))
    s.map = file_read(f, path, &size)
    s.map_size = size
    if s.map == NULL:
        return 0
    if size < sizeof(CheckHead) + 8:
        return checkpoint_refuse(s)
    memcpy(&h, s.map, sizeof(h))
    r.p = s.map
    r.at = 0
    r.end = size - 8
    in_take(&r, sizeof(h))
    if (h.magic != CHECK_MAGIC or h.index.n_texts == 0 or h.index.n_chunks == 0
            or st_get64(s.map + size - 8) != hh64(s.key, s.map, size - 8)):
        return checkpoint_refuse(s)
    if h.n_blocks != n or n == 0:
        return checkpoint_stale(s)
    rc = check_index(s, &r, &h.index)
    for k in range(n):
        if rc == ST_OK:
            rc = check_load_block(s, &r, nums[k])
            if rc == ST_OK and k + 1 < n:
                block_fd_close(block_i(s, <uint32_t>k))
    if rc == ST_OK:
        lost = <const uint64_t*>in_take(&r, h.lost * 8)
        for k in range(h.lost if lost != NULL else 0):
            lost_add(s, lost[k], h.lost_bytes // h.lost + (k < h.lost_bytes % h.lost))
    if rc == ST_OK and file_end(s, block_i(s, s.n_blocks - 1), &end) != h.end:
        rc = ST_DAMAGED
    if rc < 0:
        return checkpoint_stale(s)
    s.msgs = h.msgs
    s.bytes = h.bytes
    s.first_seq = h.first_seq
    s.last_seq = h.last_seq
    s.last_ts = h.last_ts
    s.writing.extent = h.extent
    s.writing.group = h.group
    s.keeping.dict = h.dict
    s.keeping.dict_total = h.dict_total
    s.keeping.dict_size = h.dict_size
    s.damage = h.damage
    s.next_num = nums[n - 1] + 1
    return 1


cdef int checkpoint_stale(Store* s) noexcept nogil:
    # It is whole and does not fit: what it knows is still true of what was there. It is read anew, since its pages were
    # used.
    cdef char path[4300]
    checkpoint_path(s, path, sizeof(path))
    s.recovery.stale = file_read(s.files, path, &s.recovery.stale_size)
    return checkpoint_refuse(s)


cdef int checkpoint_refuse(Store* s) noexcept nogil:
    # Back to an empty store. 0, or ST_NO_MEMORY.
    cdef uint32_t i
    for i in range(s.n_blocks):
        block_free(block_i(s, i))
    s.n_blocks = 0
    s.b0 = 0
    memos_forget(s)
    index_free(&s.x)
    if s.map != NULL:
        pages_free(s.map, s.map_size)
    s.map = NULL
    return index_init(&s.x, s.env)


cdef int64_t checkpoint_blocks(const uint8_t* p, uint64_t size, Span name, uint64_t* end, uint64_t* last_seq,
                               int (*visit)(void* ctx, const CheckedBlock* b) noexcept nogil, void* ctx) noexcept nogil:
    cdef uint64_t key[4]
    cdef CheckHead* h = <CheckHead*>p
    cdef CheckBlock* c
    cdef CheckedBlock out
    cdef In r
    cdef uint64_t k
    cdef uint32_t i
    store_key(name, key)
    if size < sizeof(CheckHead) + 8 or h.magic != CHECK_MAGIC or h.index.n_texts == 0 or h.index.n_chunks == 0:
        return ST_DAMAGED
    if st_get64(p + size - 8) != hh64(key, p, <size_t>size - 8):
        return ST_DAMAGED
    r.p = <uint8_t*>p
    r.at = 0
    r.end = size - 8
    in_take(&r, sizeof(CheckHead))
    if h.index.slots != NULL:
        in_take(&r, <uint64_t>8 << h.index.bits)
    for i in range(h.index.n_chunks):
        in_take(&r, sizeof(Node) * (min(h.index.n_nodes, h.index.cap_first) if h.index.n_chunks == 1 else NODES))
    for i in range(h.index.n_texts):
        in_take(&r, h.index.text_used if i + 1 == h.index.n_texts else TEXT_CHUNK)
    for k in range(h.n_blocks):
        c = <CheckBlock*>in_take(&r, sizeof(CheckBlock))
        if c == NULL:
            return ST_DAMAGED
        out.num = c.num
        out.size = c.size
        out.base = c.base
        out.last = c.last
        out.first_ts = c.first_ts
        out.last_ts = c.last_ts
        out.live_bytes = c.live_bytes
        out.live = c.live
        out.n = c.n
        out.rel = <const uint32_t*>in_take(&r, <uint64_t>c.n * 4) if c.sparse else NULL
        in_take(&r, <uint64_t>c.n * 4)
        out.off = <const uint32_t*>in_take(&r, <uint64_t>c.n * 4)
        in_take(&r, <uint64_t>c.n * 4)
        if (in_take(&r, <uint64_t>c.n * 2) == NULL or in_take(&r, c.n_holds * sizeof(Hold)) == NULL or out.off == NULL
                or (c.sparse and out.rel == NULL)):
            return ST_DAMAGED
        if visit(ctx, &out) != 0:
            return <int64_t>k + 1
    end[0] = h.end
    last_seq[0] = h.last_seq
    return <int64_t>h.n_blocks
