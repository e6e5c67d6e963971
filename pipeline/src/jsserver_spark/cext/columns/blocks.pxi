# Blocks of a store's files: their plain bytes in memory, and the walk over their records into rows.
#
# Bytes are read into memory of our own, never mapped: a server may cut its files while they are read.

cdef uint64_t REC_TOMB = <uint64_t>1 << 62
cdef uint64_t REC_ERASED = <uint64_t>1 << 63
cdef enum:
    REC_LEAST = 30
    PLAIN_MAX = 1 << 30         # no block comes near it
    NANOS = 1000000000

cpdef enum:
    WALK_DONE = 0               # the block has nothing more
    WALK_FULL = 1               # the batch is full
    WALK_BAD = 2                # bytes that are no good record
    SIDE_NONE = 3               # the sidecar is not to be used
    SIDE_LOAD = 4               # the block's bytes are needed beside it


cdef class Plain:
    """A block's bytes, in memory that is used again for the next one."""
    cdef Bytes b
    cdef Py_ssize_t shape
    cdef int shown              # buffers that others hold

    def __dealloc__(self):
        bytes_free(&self.b)

    def __len__(self):
        return self.b.n

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.b.data if self.b.data != NULL else &empty_buffer, <Py_ssize_t>self.b.n, 0, flags)
        self.shown += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.shown -= 1

    cdef int alone(self) except -1:
        if self.shown:
            raise BufferError("the block's bytes are still looked at")
        return 0

    def clear(self):
        self.alone()
        self.b.n = 0

    def extend(self, data):
        cdef const uint8_t[::1] view = memoryview(data).cast("B")
        self.alone()
        if len(view) and (self.b.n + len(view) > PLAIN_MAX or bytes_add(&self.b, &view[0], len(view)) < 0):
            raise MemoryError

    def read(self, int fd, size_t size):
        cdef ssize_t got = 1
        cdef int number = 0
        self.alone()
        self.b.n = 0
        if size > PLAIN_MAX or bytes_reserve(&self.b, size + 1) < 0:
            raise MemoryError
        with nogil:
            while self.b.n < size:
                got = pread(fd, self.b.data + self.b.n, size - self.b.n, self.b.n)
                if got < 0:
                    number = errno
                    if number == EINTR:
                        continue
                    break
                if got == 0:
                    break
                self.b.n += got
        if got < 0:
            raise OSError(number, "read failed")

    def swap(self, Plain other not None):
        """Each has the other's bytes."""
        cdef Bytes b = self.b
        self.alone()
        other.alone()
        self.b = other.b
        other.b = b

    @property
    def packed(self):
        """Whether these are the bytes of a compressed block."""
        return self.b.n >= 4 and memcmp(self.b.data, b"cmp", 3) == 0 and self.b.data[3] <= 2

    def unpack(self, Plain source not None):
        """The plain bytes of a compressed block: "cmp", algorithm, length, S2 stream, the last 8 bytes as they are."""
        cdef uint64_t at, length = 0
        cdef int rc
        cdef Span s
        cdef Bytes* p = &source.b
        self.alone()
        self.b.n = 0
        if not source.packed or source is self:
            raise ValueError("this is no compressed block")
        if p.data[3] != 1:
            raise ValueError(f"the block is compressed with an unknown algorithm {p.data[3]}")
        s = span(p.data + 4, <uint32_t>min(p.n - 4, <size_t>9))
        if not get_uv(&s, &length):
            raise ValueError("the compressed block is cut short")
        at = <uint64_t>(s.p - p.data)
        if p.n < at + 8:
            raise ValueError("the compressed block is cut short")
        if length <= 64 << 20 and bytes_reserve(&self.b, length + S2_SLACK) < 0:
            raise MemoryError
        with nogil:
            rc = s2_whole(p.data + at, p.n - 8 - at, PLAIN_MAX - S2_CHUNK_MAX, &self.b)
        s2_raise(rc)
        if bytes_add(&self.b, p.data + p.n - 8, 8) < 0:
            raise MemoryError


def block_key(text):
    """The key of a block's checksums, from "STREAM-N", or of a cache's, from "STREAM"."""
    cdef bytes b = text.encode("utf-8", "surrogateescape")
    cdef uint64_t key[4]
    store_key(span_of(b), key)
    return (<const char*>key)[:32]


cdef uint64_t good_from(const uint64_t* key, const uint8_t* p, uint64_t size, uint64_t at) noexcept nogil:
    # Where the next good record starts, size when there is none.
    cdef Parsed r
    while at + REC_LEAST <= size:
        if record_parse(p + at, size - at, &r) and record_good(key, p + at, &r):
            return at
        at += 1
    return size


cdef int64_t ttl_nanos(Span text) noexcept nogil:
    # What Nats-TTL asks for: seconds, or numbers with the units of Go's durations. 0: for ever, or not understood.
    cdef uint32_t i = 0
    cdef double total = 0, value, scale
    cdef bint any
    while i < text.n:
        value = 0
        scale = 1
        any = False
        while i < text.n and (c'0' <= text.p[i] <= c'9' or text.p[i] == c'.'):
            if text.p[i] == c'.':
                if scale < 1:
                    return 0
                scale = 0.1
            elif scale < 1:
                value += (text.p[i] - c'0') * scale
                scale /= 10
            else:
                value = value * 10 + (text.p[i] - c'0')
            any = True
            i += 1
        if not any:
            return 0
        if i == text.n and total == 0 and scale == 1:
            total = value * NANOS
            break
        if i + 1 < text.n and text.p[i] == c'm' and text.p[i + 1] == c's':
            total += value * 1e6
            i += 2
        elif i + 1 < text.n and (text.p[i] == c'u' or text.p[i] == c'n') and text.p[i + 1] == c's':
            total += value * (1e3 if text.p[i] == c'u' else 1)
            i += 2
        elif i < text.n and (text.p[i] == c's' or text.p[i] == c'm' or text.p[i] == c'h'):
            total += value * (1e9 if text.p[i] == c's' else 60e9 if text.p[i] == c'm' else 3600e9)
            i += 1
        else:
            return 0
    return <int64_t>total if total < 9e18 else 0


cdef inline bint ttl_over(const Parsed* r, int64_t now) noexcept nogil:
    # Whether the message's own time to live has passed.
    cdef Span text
    cdef int64_t life
    if r.header.n == 0:
        return False
    text = header_get(r.header, b"Nats-TTL")
    if text.p == NULL or text.n == 0:
        return False
    life = ttl_nanos(text)
    return life > 0 and elapsed(now, r.ts) >= life


cdef class Wanted:
    """Which messages of a stream are asked for: bounds that include their ends, and subjects."""
    cdef uint64_t first
    cdef uint64_t last
    cdef int64_t min_ts
    cdef int64_t max_ts
    cdef int64_t ttl_now
    cdef Filter filter
    cdef bint ready

    def __cinit__(self, *, first=0, last=UINT64_MAX, min_ts=INT64_MIN, max_ts=INT64_MAX, subjects=(), ttl_now=0):
        cdef list texts = [subject.encode() for subject in subjects]
        cdef Span* spans = <Span*>calloc(len(texts) + 1, sizeof(Span))
        cdef Py_ssize_t i
        cdef int rc
        if spans == NULL:
            raise MemoryError
        self.first = first
        self.last = last
        self.min_ts = min_ts
        self.max_ts = max_ts
        self.ttl_now = ttl_now
        for i in range(len(texts)):
            spans[i] = span_of(texts[i])
        rc = filter_init(&self.filter, spans, <uint32_t>len(texts))
        free(spans)
        if rc < 0:
            raise MemoryError
        self.ready = True

    def __dealloc__(self):
        if self.ready:
            filter_free(&self.filter)


cdef class BlockReader:
    """A walk over one block's records into rows."""
    cdef Plain plain
    cdef Wanted wanted
    cdef uint64_t key[4]
    cdef bytes gone             # deleted sequences: pairs of first and last, ascending
    cdef const uint64_t* runs   # the same
    cdef size_t n_runs          # its words
    cdef size_t run
    cdef uint64_t pos
    cdef uint64_t seen          # the highest sequence so far

    def __cinit__(self, Plain plain not None, bytes key not None, Wanted wanted not None, bytes gone not None=b""):
        if len(key) != 32 or len(gone) % 16:
            raise ValueError("a key has 32 bytes, a deleted run 16")
        self.plain = plain
        self.wanted = wanted
        self.gone = gone
        self.runs = <const uint64_t*><const char*>gone
        self.n_runs = len(gone) // 8
        memcpy(self.key, <const char*>key, 32)

    @property
    def offset(self):
        return self.pos

    @property
    def last_seq(self):
        return self.seen

    def fill(self, Rows rows not None):
        cdef int end
        with nogil:
            end = self.walk(&rows.r)
        if end < 0:
            raise MemoryError
        return end

    def skip(self):
        """Goes on at the next good record; the bytes passed over."""
        cdef uint64_t next
        cdef const Bytes* b = &self.plain.b
        with nogil:
            next = good_from(self.key, b.data, b.n, self.pos + 1)
        next -= self.pos
        self.pos += next
        return next

    cdef int walk(self, RowSet* rows) noexcept nogil:
        cdef const uint8_t* p = self.plain.b.data
        cdef uint64_t size = self.plain.b.n
        cdef Parsed r
        while self.pos < size:
            if rows_full(rows):
                return WALK_FULL
            if not record_parse(p + self.pos, size - self.pos, &r) or not record_good(self.key, p + self.pos, &r):
                return WALK_BAD
            self.pos += r.size
            if r.raw_seq != r.seq or r.seq == 0 or r.seq <= self.seen:
                continue
            self.seen = r.seq
            if r.seq > self.wanted.last:
                self.pos = size
                break
            if (r.seq < self.wanted.first or r.ts < self.wanted.min_ts or r.ts > self.wanted.max_ts
                    or self.deleted(r.seq) or not (self.wanted.filter.all or filter_matches(&self.wanted.filter, r.subject))
                    or (self.wanted.ttl_now and ttl_over(&r, self.wanted.ttl_now))):
                continue
            if rows_add(rows, r.subject, r.seq, r.ts, r.header, r.data) < 0:
                return -1
        return WALK_DONE

    cdef bint deleted(self, uint64_t seq) noexcept nogil:
        while self.run < self.n_runs and self.runs[self.run + 1] < seq:
            self.run += 2
        return self.run < self.n_runs and self.runs[self.run] <= seq


cdef bint zeros(const uint8_t* p, uint64_t n) noexcept nogil:
    return n == 0 or (p[0] == 0 and memcmp(p, p + 1, n - 1) == 0)
