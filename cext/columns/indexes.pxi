# The caches beside the blocks that say which messages are live: nats-server's index.db, our checkpoint.jss.

cdef enum:
    MAP_BITS_1 = 4096           # sequences of one node of a delete map, by its version
    MAP_BITS_2 = 2048

cdef struct Take:
    # Numbers taken from front to back; bad when there are not enough bytes.
    const uint8_t* p
    uint64_t n
    bint bad


cdef uint64_t take_uv(Take* t) noexcept nogil:
    cdef Span s = span(t.p, <uint32_t> min(t.n, <uint64_t> 10))
    cdef uint64_t value = 0
    if not get_uv(&s, &value):
        t.bad = True
        return 0
    t.n -= <uint64_t> (s.p - t.p)
    t.p = s.p
    return value


cdef int64_t take_sv(Take* t) noexcept nogil:
    cdef uint64_t v = take_uv(t)
    return <int64_t> (v >> 1) ^ -<int64_t> (v & 1)


cdef const uint8_t* take_bytes(Take* t, uint64_t n) noexcept nogil:
    if t.bad or n > t.n:
        t.bad = True
        return NULL
    t.p += n
    t.n -= n
    return t.p - n


cdef int add_run(Bytes* out, uint64_t seq) noexcept nogil:
    """A sequence that is higher than all before."""
    cdef uint64_t pair[2]
    if out.n:
        memcpy(pair, out.data + out.n - 16, 16)
        if pair[1] + 1 == seq:
            memcpy(out.data + out.n - 8, &seq, 8)
            return 0
    pair[0] = seq
    pair[1] = seq
    return bytes_add(out, pair, 16)


cdef int add_bits(Bytes* out, uint64_t base, const uint8_t* bits, uint32_t n) noexcept nogil:
    cdef uint32_t i, k
    cdef uint64_t word
    for i in range(n // 64):
        memcpy(&word, bits + i * 8, 8)
        k = 0
        while word:
            if word & 1 and add_run(out, base + i * 64 + k) < 0:
                return -1
            word >>= 1
            k += 1
    return 0


cdef bytes delete_map(Take* t):
    """The runs of a delete map, None when it is none."""
    cdef const uint8_t* head = take_bytes(t, 10)
    cdef uint32_t n, bits, size
    cdef uint64_t base
    cdef Bytes runs
    cdef const uint8_t* p
    cdef list nodes = []
    if head == NULL or head[0] != 22 or head[1] not in (1, 2):
        return None
    bits = MAP_BITS_2 if head[1] == 2 else MAP_BITS_1
    size = 8 + bits // 8 + 2
    memcpy(&n, head + 2, 4)
    p = take_bytes(t, <uint64_t> n * size)
    if p == NULL:
        return None
    for i in range(n):
        memcpy(&base, p + <size_t> i * size, 8)
        nodes.append((base, i))
    nodes.sort()
    memset(&runs, 0, sizeof(runs))
    try:
        for base, i in nodes:
            if add_bits(&runs, base, p + <size_t> i * size + 8, bits) < 0:
                raise MemoryError
        return (<const char*> runs.data)[:runs.n] if runs.n else b""
    finally:
        bytes_free(&runs)


def index_db(data, bytes key not None):
    """What nats-server's index.db says, None when it is damaged or of an unknown version.

    (messages, bytes, first, last sequence, [(number, bytes, first, first time, last, last time, deleted, runs)], last block,
    its last 8 bytes)
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef Take t
    cdef uint64_t words[4]
    cdef uint64_t hash, msgs, size, first, last, n, i, total = 0, sum = 0
    cdef int64_t base, ts1, ts2
    cdef uint64_t number, b_size, b_first, b_last, deleted
    cdef int version
    cdef list blocks = []
    cdef const uint8_t* end
    if len(key) != 32:
        raise ValueError("a key has 32 bytes")
    if len(view) < 20 or view[0] != 11 or not 1 <= view[1] <= 4:
        return None
    memcpy(words, <const char*> key, 32)
    memcpy(&hash, &view[len(view) - 8], 8)
    if hash != hh64(words, &view[0], len(view) - 8):
        return None
    version = view[1]
    t.p = &view[2]
    t.n = len(view) - 10
    t.bad = False
    msgs = take_uv(&t)
    size = take_uv(&t)
    first = take_uv(&t)
    base = take_sv(&t)
    last = take_uv(&t)
    take_sv(&t)
    n = take_uv(&t)
    for i in range(n):
        take_bytes(&t, take_uv(&t))
        number = take_uv(&t)
        take_uv(&t)
        if number > 1 or version >= 4:
            take_uv(&t)
        if t.bad:
            return None
    n = take_uv(&t)
    for i in range(n):
        number = take_uv(&t)
        b_size = take_uv(&t)
        b_first = take_uv(&t)
        ts1 = take_sv(&t) + base
        b_last = take_uv(&t)
        ts2 = take_sv(&t) + base
        deleted = take_uv(&t)
        if version >= 2:
            take_uv(&t)
        if version >= 3:
            take_uv(&t)
        runs = delete_map(&t) if deleted and not t.bad else b""
        if t.bad or runs is None:
            return None
        blocks.append((number, b_size, b_first, ts1, b_last, ts2, deleted, runs))
        if b_last + 1 > b_first:
            total += b_last + 1 - b_first - deleted
        sum += b_size
    number = take_uv(&t)
    end = take_bytes(&t, 8)
    if t.bad or total != msgs or sum != size:
        return None
    return msgs, size, first, last, blocks, number, (<const char*> end)[:8]


# ---- our checkpoint --------------------------------------------------------------------------------------------------

cdef struct Checked:
    Bytes blocks                # CheckedBlock each
    Bytes runs                  # of all blocks
    Bytes ends                  # size_t a block: where its runs end
    bint failed


cdef int checked_block(void* ctx, const CheckedBlock* b) noexcept nogil:
    """Takes a block's figures, and its messages that left as runs over whatever lies between live ones."""
    cdef Checked* c = <Checked*> ctx
    cdef uint64_t pair[2]
    cdef uint32_t i
    cdef bint open = False
    for i in range(b.n):
        if b.off[i]:
            open = False
            continue
        pair[1] = b.base + (b.rel[i] if b.rel != NULL else i)
        if open:
            memcpy(c.runs.data + c.runs.n - 8, &pair[1], 8)
            continue
        pair[0] = pair[1]
        c.failed = c.failed or bytes_add(&c.runs, pair, 16) < 0
        open = not c.failed
    c.failed = c.failed or bytes_add(&c.blocks, b, sizeof(CheckedBlock)) < 0
    c.failed = c.failed or bytes_add(&c.ends, &c.runs.n, sizeof(size_t)) < 0
    return c.failed


def checkpoint(data, stream):
    """What a checkpoint of that stream says, None when it is damaged.

    (last sequence, [(number, file size, first, last, first time, last time, live, live bytes, runs)], the last block's last
    8 bytes)
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef bytes name = stream.encode()
    cdef Span key = span_of(name)
    cdef Checked c
    cdef CheckedBlock* b
    cdef uint64_t end = 0, last = 0
    cdef size_t i, at = 0, to
    cdef int64_t n
    cdef list out = []
    if len(view) < 8:
        return None
    memset(&c, 0, sizeof(c))
    with nogil:
        n = checkpoint_blocks(&view[0], len(view), key, &end, &last, checked_block, &c)
    try:
        if c.failed:
            raise MemoryError
        if n < 0:
            return None
        for i in range(<size_t> n):
            b = <CheckedBlock*> (c.blocks.data + i * sizeof(CheckedBlock))
            memcpy(&to, c.ends.data + i * sizeof(size_t), sizeof(size_t))
            runs = (<const char*> c.runs.data)[at:to] if to > at else b""
            out.append((b.num, b.size, b.base, b.last, b.first_ts, b.last_ts, b.live, b.live_bytes, runs))
            at = to
        return last, out, (<const char*> &end)[:8]
    finally:
        bytes_free(&c.blocks)
        bytes_free(&c.runs)
        bytes_free(&c.ends)
