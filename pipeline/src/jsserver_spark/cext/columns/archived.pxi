# Rows of an archive's record batches, poured into a batch in the making: whatever its columns are, and filtered on the way.

cdef struct Values:
    # A column of variable length: borrowed Arrow buffers.
    const int32_t* at           # n + 1 offsets
    const uint8_t* p
    size_t n_bytes


cdef inline bint value_of(const Values* t, Py_ssize_t i, Span* out) noexcept nogil:
    # The value of row i; False where the offsets lead out of the buffer.
    cdef int32_t start = t.at[i], end = t.at[i + 1]
    if start < 0 or end < start or <size_t>end > t.n_bytes:
        return False
    out[0] = span(t.p + start, <uint32_t>(end - start))
    return True


cdef class Archived:
    """Rows of a record batch with the columns of an archive."""
    cdef list held              # views of the buffers that the pointers below point into
    cdef list patterns          # bytes
    cdef Span* wanted           # they as spans
    cdef Py_ssize_t n_wanted
    cdef Py_ssize_t n
    cdef Py_ssize_t next
    cdef Py_ssize_t offset      # of the validity bits
    cdef Values subjects
    cdef Values headers
    cdef Values datas
    cdef const int64_t* seqs
    cdef const int64_t* micros
    cdef const int32_t* nanos
    cdef const uint8_t* valid   # of headers, or NULL
    cdef uint64_t first
    cdef uint64_t last
    cdef int64_t since
    cdef int64_t until

    def __init__(
        self, Py_ssize_t n, subject, headers, data, seq, timestamp, ts_nanos, *,
        patterns=(), uint64_t first=0, uint64_t last=UINT64_MAX, int64_t since=INT64_MIN, int64_t until=INT64_MAX,
    ):
        self.held = []
        self.n = n
        self.first = first
        self.last = last
        self.since = since
        self.until = until
        self.values(&self.subjects, subject, n)
        self.values(&self.datas, data, n)
        self.offset = headers[0]
        self.values(&self.headers, headers, n)
        if headers[1] is not None:
            self.valid = self.view(headers[1], (self.offset + n + 7) // 8)
        self.seqs = <const int64_t*>self.view(seq[1], (seq[0] + n) * 8) + <Py_ssize_t>seq[0]
        self.micros = <const int64_t*>self.view(timestamp[1], (timestamp[0] + n) * 8) + <Py_ssize_t>timestamp[0]
        self.nanos = <const int32_t*>self.view(ts_nanos[1], (ts_nanos[0] + n) * 4) + <Py_ssize_t>ts_nanos[0]
        self.patterns = [pattern.encode() for pattern in patterns]
        self.n_wanted = len(self.patterns)
        if self.n_wanted:
            self.wanted = <Span*>malloc(self.n_wanted * sizeof(Span))
            if self.wanted == NULL:
                raise MemoryError
            for i in range(self.n_wanted):
                self.wanted[i] = span_of(self.patterns[i])

    def __dealloc__(self):
        free(self.wanted)

    cdef const uint8_t* view(self, buffer, Py_ssize_t size) except? NULL:
        # The buffer's first byte, the buffer held; ValueError where it is shorter than `size`.
        cdef const uint8_t[::1] seen
        if size == 0:
            return &empty_buffer
        seen = memoryview(buffer).cast("B")
        if seen.shape[0] < size:
            raise ValueError(f"a buffer of {seen.shape[0]} bytes where {size} are due")
        self.held.append(seen)
        return &seen[0]

    cdef int values(self, Values* out, parts, Py_ssize_t n) except -1:
        cdef Py_ssize_t offset = parts[0]
        cdef Py_ssize_t size = len(parts[3]) if parts[3] is not None else 0
        out.at = <const int32_t*>self.view(parts[2], (offset + n + 1) * 4) + offset
        out.p = self.view(parts[3], size) if size else &empty_buffer
        out.n_bytes = size
        return 0

    cdef inline bint chosen(self, Py_ssize_t i, Span subject) noexcept nogil:
        cdef uint64_t seq = <uint64_t>self.seqs[i]
        cdef int64_t ts = self.micros[i] * 1000 + self.nanos[i]
        cdef Py_ssize_t k
        if not self.first <= seq <= self.last or not self.since <= ts <= self.until:
            return False
        for k in range(self.n_wanted):
            if subject_matches(self.wanted[k], subject):
                return True
        return self.n_wanted == 0

    cdef int pour_rows(self, RowSet* r) noexcept nogil:
        # 1: all were poured, 0: `r` is full, -1: no memory, -2: offsets lead nowhere.
        cdef Span subject, header, data
        cdef Py_ssize_t i, bit
        while self.next < self.n:
            if rows_full(r):
                return 0
            i = self.next
            if not value_of(&self.subjects, i, &subject) or not value_of(&self.datas, i, &data):
                return -2
            if not value_of(&self.headers, i, &header):
                return -2
            bit = self.offset + i
            if self.valid != NULL and not self.valid[bit >> 3] >> (bit & 7) & 1:
                header.n = 0
            if self.chosen(i, subject):
                if rows_add(r, subject, <uint64_t>self.seqs[i], self.micros[i] * 1000 + self.nanos[i], header, data) < 0:
                    return -1
            self.next += 1
        return 1

    def pour(self, Rows rows not None):
        cdef int done
        with nogil:
            done = self.pour_rows(&rows.r)
        if done == -1:
            raise MemoryError
        if done == -2:
            raise ValueError(f"row {self.next}: the offsets lead out of their buffer")
        return done == 1
