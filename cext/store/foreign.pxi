# Directories that go from one server to the other. nats-server writes nothing where a limit removes a message: its index.db,
# written at a clean stop, leaves the message out, and without an index.db what fits the limits is there again. So what an
# index.db of its own leaves out is removed here too, and at our clean stop, after which there is none, what it would show
# again gets a tombstone.

cdef struct Take:
    # Numbers taken from front to back; bad when there are not enough bytes.
    const uint8_t* p
    uint64_t n
    bint bad


cdef uint64_t take_uv(Take* t) noexcept nogil:
    cdef Span s = span(t.p, <uint32_t>min(t.n, <uint64_t>10))
    cdef uint64_t value = 0
    if not get_uv(&s, &value):
        t.bad = True
        return 0
    t.n -= <uint64_t>(s.p - t.p)
    t.p = s.p
    return value


cdef int64_t take_sv(Take* t) noexcept nogil:
    cdef uint64_t v = take_uv(t)
    return <int64_t>(v >> 1) ^ -<int64_t>(v & 1)


cdef const uint8_t* take_bytes(Take* t, uint64_t n) noexcept nogil:
    if t.bad or n > t.n:
        t.bad = True
        return NULL
    t.p += n
    t.n -= n
    return t.p - n


cdef void take_subject(Take* t, int version) noexcept nogil:
    # A subject, how many messages it has, its first block and its last.
    cdef uint64_t total
    take_bytes(t, take_uv(t))
    total = take_uv(t)
    take_uv(t)
    if total > 1 or version >= 4:
        take_uv(t)


cdef void take_map(Take* t, IndexBlock* b) noexcept nogil:
    # The delete map of a block: bitmaps of so many sequences each, in no order that counts.
    cdef const uint8_t* head = take_bytes(t, 10)
    if head == NULL or head[0] != 22 or head[1] not in (1, 2):
        t.bad = True
        return
    b.map_bits = 2048 if head[1] == 2 else 4096
    b.map_nodes = st_get32(head + 2)
    b.map = take_bytes(t, <uint64_t>b.map_nodes * (8 + b.map_bits // 8 + 2))


cdef bint index_db_read(const uint8_t* p, uint64_t n, const uint64_t* key, IndexDb* head, index_block_fn visit,
                        void* ctx) noexcept nogil:
    cdef Take t
    cdef IndexBlock b
    cdef uint64_t count, msgs = 0, size = 0
    cdef int64_t base
    cdef int version
    if n < 20 or p[0] != 11 or not 1 <= p[1] <= 4 or st_get64(p + n - 8) != hh64(key, p, n - 8):
        return False
    version = p[1]
    t.p = p + 2
    t.n = n - 10
    t.bad = False
    head.msgs = take_uv(&t)
    head.size = take_uv(&t)
    head.first = take_uv(&t)
    base = take_sv(&t)
    head.last = take_uv(&t)
    take_sv(&t)
    count = take_uv(&t)
    while count and not t.bad:
        take_subject(&t, version)
        count -= 1
    count = take_uv(&t)
    while count and not t.bad:
        memset(&b, 0, sizeof(b))
        b.num = take_uv(&t)
        b.size = take_uv(&t)
        b.first = take_uv(&t)
        b.first_ts = take_sv(&t) + base
        b.last = take_uv(&t)
        b.last_ts = take_sv(&t) + base
        b.deleted = take_uv(&t)
        if version >= 2:
            take_uv(&t)
        if version >= 3:
            take_uv(&t)
        if b.deleted and not t.bad:
            take_map(&t, &b)
        if t.bad or (visit != NULL and not visit(ctx, &b)):
            return False
        if b.last + 1 > b.first:
            msgs += b.last + 1 - b.first - b.deleted
        size += b.size
        count -= 1
    head.end_num = take_uv(&t)
    head.end = take_bytes(&t, 8)
    return not t.bad and msgs == head.msgs and size == head.size


# ---- at the start, after nats-server ---------------------------------------------------------------------------------

cdef bint listed_leave(void* ctx, const IndexBlock* x) noexcept nogil:
    # Removes what a block of the index.db leaves out.
    cdef Store* s = <Store*>ctx
    cdef Block* b = block_numbered(s, x.num)
    cdef const uint8_t* node = x.map
    cdef uint64_t base, word
    cdef uint32_t i = 0, k, n
    if b == NULL:
        return True
    while i < b.n and seq_at(b, i) < x.first:
        if not leave(s, b, i):
            return False
        i += 1
    for k in range(x.map_nodes):
        base = st_get64(node)
        for n in range(x.map_bits // 64):
            word = st_get64(node + 8 + n * 8)
            while word:
                if not leave(s, b, slot_of(b, base + n * 64 + low_bit(word))):
                    return False
                word &= word - 1
        node += 8 + x.map_bits // 8 + 2
    return True


cdef void foreign_leave(Store* s) noexcept nogil:
    # What nats-server's index.db leaves out leaves. It counts where nats-server goes by it: if it fits the last block.
    cdef IndexDb head
    cdef char path[4300]
    cdef uint64_t size
    cdef uint8_t* p
    cdef Block* b = block_i(s, s.n_blocks - 1) if s.n_blocks else NULL
    cdef const uint8_t* data = block_data(b) if b != NULL else NULL
    if data == NULL or b.used < 8:
        return
    snprintf(path, sizeof(path), "%s/index.db", s.msgs_dir)
    p = file_read(s.files, path, &size)
    if p == NULL:
        return
    if (index_db_read(p, size, s.key, &head, NULL, NULL) and head.end_num == b.num
            and memcmp(head.end, data + b.used - 8, 8) == 0):
        index_db_read(p, size, s.key, &head, listed_leave, s)
    pages_free(p, size)


# ---- at a clean stop, before nats-server -----------------------------------------------------------------------------

cdef struct Ghosts:
    # Messages of a block that left at the head of the stream, whose bytes are still there.
    Store* s
    Block* b
    uint64_t* has_tomb            # a bit for each sequence from the block's base on that has a tombstone
    int64_t now
    bint fits                   # nats-server would find room for one of them


cdef void tombs_note(Ghosts* g, Block* b) noexcept nogil:
    # Notes the tombstones of this block for messages of g's.
    cdef uint64_t at = 0, i
    cdef Parsed r
    cdef Opened o
    cdef bint opened = block_open(b, &o)        # the file, because the markers do not stand in a region
    while opened and at < o.size and record_parse(o.p + at, o.size - at, &r):
        if r.raw_seq & TOMB and g.b.base <= r.seq < g.s.first_seq and r.seq <= g.b.last:
            i = r.seq - g.b.base
            g.has_tomb[i // 64] |= <uint64_t>1 << (i % 64)
        at += r.size
    opened_free(g.s.files, &o)


cdef bint would_fit(const Store* s, const Parsed* r) noexcept nogil:
    # Whether the limits but for age would let this message stay beside what is live.
    if not s.limits.trim:
        return True
    return ((s.limits.max_msgs <= 0 or s.msgs < <uint64_t>s.limits.max_msgs)
            and (s.limits.max_bytes <= 0 or s.bytes + r.size <= <uint64_t>s.limits.max_bytes))


cdef int ghosts_visit(Ghosts* g, bint write) noexcept nogil:
    # Looks whether one of them would fit, or gives every one a tombstone: otherwise the next would have the room. What is
    # too old by now does not count.
    cdef Store* s = g.s
    cdef uint64_t at = 0, i
    cdef Opened o
    cdef bint opened = block_open(g.b, &o)
    cdef int64_t age = s.limits.max_age if s.limits.max_age > 0 else INT64_MAX
    cdef int rc = ST_OK
    cdef Parsed r
    while opened and rc == ST_OK and at < o.size and record_parse(o.p + at, o.size - at, &r):
        i = r.seq - g.b.base
        if (r.raw_seq & (TOMB | ERASED) == 0 and g.b.base <= r.seq < s.first_seq and r.seq <= g.b.last
                and not g.has_tomb[i // 64] >> (i % 64) & 1 and elapsed(g.now, r.ts) < age):
            if write:
                rc = stage_tomb(s, g.b, r.seq, r.ts)
            elif would_fit(s, &r):
                g.fits = True
        at += r.size
    opened_free(s.files, &o)
    return rc


cdef bint ghosts_take(Ghosts* g) noexcept nogil:
    # Reads which of the block's messages have tombstones; False where that would take too much memory.
    cdef uint32_t i, at
    cdef Block* b
    if g.b.last - g.b.base > 0xffffffffU:
        return False
    g.has_tomb = <uint64_t*>calloc((g.b.last - g.b.base) // 64 + 1, 8)
    if g.has_tomb == NULL:
        return False
    for i in range(g.s.n_blocks):
        b = block_i(g.s, i)
        at = hold_from(b, g.b.num)
        if b == g.b or (at < b.n_holds and b.holds[at].num == g.b.num):
            tombs_note(g, b)
    return True


cdef void heads_tombstone(Store* s) noexcept nogil:
    # Gives tombstones to what left at the head by a limit, if nats-server, which knows the limits alone, would show any of it
    # again. Nobody else knows the store any more.
    cdef Ghosts g
    cdef uint32_t i, n = 0
    cdef bint fits = False
    g.s = s
    env_lock(s.env)
    g.now = s.env.now
    env_unlock(s.env)
    while n < s.n_blocks and block_i(s, n).base < s.first_seq:
        n += 1
    for i in range(2 * n):      # first looks at all, then writes tombstones
        g.b = block_i(s, i % n)
        g.fits = False
        if g.b.ghosts == 0 or g.b.last < g.b.base or (i >= n and not fits):
            continue
        g.has_tomb = NULL
        if ghosts_take(&g):
            ghosts_visit(&g, i >= n)
            fits = fits or g.fits
        free(g.has_tomb)
    if fits:
        publish(s)
