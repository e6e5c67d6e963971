# The caches beside the blocks that say which messages are live: nats-server's index.db, our checkpoint.jss.

cdef int add_run(Bytes* out, uint64_t seq) noexcept nogil:
    # A sequence that is higher than all before.
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


cdef bytes delete_map(const IndexBlock* b):
    # The runs of a delete map.
    cdef size_t size = 8 + b.map_bits // 8 + 2
    cdef uint32_t i
    cdef uint64_t base
    cdef Bytes runs
    cdef list nodes = []
    for i in range(b.map_nodes):
        memcpy(&base, b.map + i * size, 8)
        nodes.append((base, i))
    nodes.sort()
    memset(&runs, 0, sizeof(runs))
    try:
        for base, i in nodes:
            if add_bits(&runs, base, b.map + i * size + 8, b.map_bits) < 0:
                raise MemoryError
        return (<const char*>runs.data)[:runs.n] if runs.n else b""
    finally:
        bytes_free(&runs)


cdef bint index_block(void* ctx, const IndexBlock* b) noexcept nogil:
    return bytes_add(<Bytes*>ctx, b, sizeof(IndexBlock)) == 0


def index_db(data, bytes key not None):
    """What nats-server's index.db says, None when it is damaged or of an unknown version.

    (messages, bytes, first, last sequence, [(number, bytes, first, first time, last, last time, deleted, runs)], last block,
    its last 8 bytes)
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint64_t words[4]
    cdef IndexDb head
    cdef IndexBlock b
    cdef Bytes found
    cdef size_t i
    cdef list blocks = []
    if len(key) != 32:
        raise ValueError("a key has 32 bytes")
    if len(view) == 0:
        return None
    memcpy(words, <const char*>key, 32)
    memset(&found, 0, sizeof(found))
    try:
        if not index_db_read(&view[0], len(view), words, &head, index_block, &found):
            return None
        for i in range(found.n // sizeof(IndexBlock)):
            memcpy(&b, found.data + i * sizeof(IndexBlock), sizeof(IndexBlock))
            blocks.append((b.num, b.size, b.first, b.first_ts, b.last, b.last_ts, b.deleted, delete_map(&b)))
    finally:
        bytes_free(&found)
    return head.msgs, head.size, head.first, head.last, blocks, head.end_num, (<const char*>head.end)[:8]


# ---- our checkpoint --------------------------------------------------------------------------------------------------

cdef struct Checked:
    Bytes blocks                # CheckedBlock each
    Bytes runs                  # of all blocks
    Bytes ends                  # size_t a block: where its runs end
    bint failed


cdef int checked_block(void* ctx, const CheckedBlock* b) noexcept nogil:
    # Takes a block's figures, and its messages that left as runs over whatever lies between live ones.
    cdef Checked* c = <Checked*>ctx
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
        for i in range(<size_t>n):
            b = <CheckedBlock*>(c.blocks.data + i * sizeof(CheckedBlock))
            memcpy(&to, c.ends.data + i * sizeof(size_t), sizeof(size_t))
            runs = (<const char*>c.runs.data)[at:to] if to > at else b""
            out.append((b.num, b.size, b.base, b.last, b.first_ts, b.last_ts, b.live, b.live_bytes, runs))
            at = to
        return last, out, (<const char*>&end)[:8]
    finally:
        bytes_free(&c.blocks)
        bytes_free(&c.runs)
        bytes_free(&c.ends)
