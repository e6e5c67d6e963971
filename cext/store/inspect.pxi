# What tools see that look at a store's files without a server: the records of a block, its damaged places, and the blocks that
# a checkpoint lists. Nothing is opened here; the bytes are handed in.

cdef enum RowKind:
    ROW_RECORD = 0
    ROW_MARK = 1                # a marker whose digest is that of its group, or says nothing of it
    ROW_MISFIT = 2              # a marker of a group whose lengths are not what they were
    ROW_CUT = 3
    ROW_BAD = 4                 # bytes that are no good record
    ROW_ZEROS = 5               # zeros up to the end: written ahead

cdef enum:
    ROW_OPEN_HEADER = 1         # flag: the header's first blank line is not its end

cdef struct Row:
    uint64_t at
    uint64_t raw_seq
    int64_t ts
    uint32_t size
    uint32_t header
    uint16_t subject
    uint8_t kind
    uint8_t flags
    uint32_t pad

cdef uint64_t row_next(const uint64_t* key, const uint8_t* p, uint64_t size, uint64_t at, uint64_t near,
                       uint64_t* work) noexcept nogil:
    # Where the next good record starts, `size` when there is none, or the budget for hashing is used up. near: the sequence
    # of a record before, 0: there is none, and any may be.
    cdef Parsed r
    while at + REC_MIN <= size:
        if record_parse(p + at, size - at, &r) and plausible(&r, near or r.seq):
            if not paid(work, r.size):
                return size
            if record_good(key, p + at, &r):
                return at
        at += 1
    return size


cdef void row_of(const uint8_t* p, uint64_t at, const Parsed* r, GroupSum* g, bint* torn, Row* row) noexcept nogil:
    # Of a good record. torn: its group has bytes that are no record, so its digest need not fit.
    cdef Mark m
    cdef Cut cut
    row.raw_seq = r.raw_seq
    row.ts = r.ts
    row.size = r.size
    row.header = r.header.n
    row.subject = <uint16_t>r.subject.n
    if marker_read(p + at, r, &m):
        row.kind = ROW_MARK
        if not torn[0]:
            group_trim(g, p, at, &m)
            if m.flags & MARK_SUM and not g.erased and (m.count != g.n or m.digest != g.sum):
                row.kind = ROW_MISFIT
        memset(g, 0, sizeof(GroupSum))
        g.start = at + r.size
        torn[0] = False
        return
    row.kind = ROW_CUT if cut_read(p + at, r, &cut) else ROW_RECORD
    row.flags = ROW_OPEN_HEADER if r.header.n and not header_ends(r) else 0
    group_add(g, p, at, r)


cdef int block_rows(const uint64_t* key, const uint8_t* p, uint64_t size, Bytes* out) noexcept nogil:
    # 0, -1 without memory.
    cdef uint64_t at = 0, near = 0, next, work = size * 32 + (1 << 24)
    cdef Parsed r
    cdef Row row
    cdef GroupSum g
    cdef bint torn = False
    memset(&g, 0, sizeof(g))
    while at < size:
        memset(&row, 0, sizeof(Row))
        row.at = at
        if record_parse(p + at, size - at, &r) and record_good(key, p + at, &r):
            row_of(p, at, &r, &g, &torn, &row)
            near = r.seq if r.seq else near
            at += r.size
        elif all_zero(p + at, size - at):
            row.kind = ROW_ZEROS
            row.size = <uint32_t>(size - at)
            at = size
        else:
            next = row_next(key, p, size, at + 1, near, &work)
            row.kind = ROW_BAD
            row.size = <uint32_t>(next - at)
            torn = True
            at = next
        if bytes_add(out, &row, sizeof(Row)) < 0:
            return -1
    return 0


def py_block_rows(bytes key not None, data) -> bytes:
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint64_t words[4]
    cdef Bytes out
    cdef uint64_t size = len(view)
    cdef const uint8_t* p
    cdef int rc
    if len(key) != 32 or size > 0xffffffff:
        raise ValueError("a key has 32 bytes, and a block less than 4 GiB")
    if size == 0:
        return b""
    memcpy(words, <const char*>key, 32)
    memset(&out, 0, sizeof(out))
    p = &view[0]
    with nogil:
        rc = block_rows(words, p, size, &out)
    try:
        if rc < 0:
            raise MemoryError
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)


cdef int checked_row(void* ctx, const CheckedBlock* b) noexcept nogil:
    cdef uint64_t row[6]
    row[0] = b.num
    row[1] = b.size
    row[2] = b.base
    row[3] = b.last
    row[4] = b.live
    row[5] = b.live_bytes
    return bytes_add(<Bytes*>ctx, row, sizeof(row))


def py_checkpoint_rows(str stream not None, data) -> bytes | None:
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef bytes name = stream.encode("utf-8", "surrogateescape")
    cdef Span key = span(<const uint8_t*><const char*>name, <uint32_t>len(name))
    cdef Bytes out
    cdef uint64_t end = 0, last = 0, size = len(view)
    cdef const uint8_t* p
    cdef int64_t n
    if size == 0:
        return None
    memset(&out, 0, sizeof(out))
    p = &view[0]
    with nogil:
        n = checkpoint_blocks(p, size, key, &end, &last, checked_row, &out)
    try:
        if n < 0:
            return None
        if <uint64_t>n * 48 != out.n:
            raise MemoryError
        return (<const char*>out.data)[:out.n]
    finally:
        bytes_free(&out)


def py_record_mark(uint64_t checksum, uint32_t size, uint32_t subject, uint32_t header, uint64_t at) -> int:
    return st_mark(checksum, size, subject, header, at)


def py_plain_size(bytes head not None, uint64_t size) -> int:
    return plain_of(<const uint8_t*><const char*>head, <uint64_t>len(head), size)


globals().update(block_rows=py_block_rows, checkpoint_rows=py_checkpoint_rows, record_mark=py_record_mark,
                 plain_size=py_plain_size, BLOCK_HEAD=COMPRESSED_HEAD)
