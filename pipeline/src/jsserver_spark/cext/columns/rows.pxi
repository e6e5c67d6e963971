# A batch of rows in the making: one growing buffer for each Arrow buffer of the wanted columns.
# Layouts: https://arrow.apache.org/docs/format/Columnar.html

cdef enum:
    COLUMN_STREAM = 1
    COLUMN_SUBJECT = 2
    COLUMN_SEQ = 4
    COLUMN_TIMESTAMP = 8        # microseconds
    COLUMN_NANOS = 16           # the nanoseconds' last three digits
    COLUMN_HEADERS = 32
    COLUMN_HEADERS_RAW = 64
    COLUMN_DATA = 128
    COLUMN_PARTITION = 256

cdef enum:
    HEADERS_MAP = 1             # map<string, array<string>>
    HEADERS_ARRAY = 2           # array<struct<key: string, value: binary>>

cdef enum:
    ROWS_MAX = 1 << 20
    BYTES_MAX = 256 << 20       # with the largest record far below what 32-bit offsets reach


cdef struct Sizes:
    uint32_t n
    size_t subjects
    size_t datas
    size_t raws


cdef struct RowSet:
    int columns
    int headers                 # their format
    uint32_t token              # of the subject that is the partition, counted from 1; 0: none
    uint32_t max_rows
    uint64_t max_bytes
    uint32_t n
    uint64_t n_bytes            # in columns of variable length
    Span stream
    Sizes before                # of the batch before this one: as much room is made for this one at once
    Bytes subject_at
    Bytes subjects
    Bytes seq
    Bytes timestamp
    Bytes nanos
    Bytes partition
    Bytes present               # a bit a row: has headers
    Bytes raw_at
    Bytes raws
    Bytes data_at
    Bytes datas
    Names names


cdef inline bint rows_full(const RowSet* r) noexcept nogil:
    return r.n >= r.max_rows or r.n_bytes >= r.max_bytes


cdef int32_t token_number(Span subject, uint32_t token) noexcept nogil:
    # The number that stands in a token of the subject, or -1.
    cdef uint32_t i = 0
    cdef int64_t value = -1
    while token > 1 and i < subject.n:
        if subject.p[i] == c'.':
            token -= 1
        i += 1
    if token > 1:
        return -1
    while i < subject.n and subject.p[i] != c'.':
        if not c'0' <= subject.p[i] <= c'9':
            return -1
        value = max(value, 0) * 10 + (subject.p[i] - c'0')
        if value > INT32_MAX:
            return -1
        i += 1
    return <int32_t>value


cdef inline int text_add(Bytes* at, Bytes* texts, Span text) noexcept nogil:
    if offset_add(at, texts.n) < 0 or bytes_add(texts, text.p, text.n) < 0:
        return -1
    return 0


cdef inline int bit_add(Bytes* bits, uint32_t i, bint on) noexcept nogil:
    cdef uint8_t zero = 0
    if i % 8 == 0 and bytes_add(bits, &zero, 1) < 0:
        return -1
    if on:
        bits.data[i // 8] |= <uint8_t>(1 << i % 8)
    return 0


cdef inline bint says_nothing(Span header) noexcept nogil:
    # A block without status and lines; the answer to a direct get does not tell it from none.
    return header.n == 12 and memcmp(header.p, b"NATS/1.0\r\n\r\n", 12) == 0


cdef int headers_add(RowSet* r, Span header) noexcept nogil:
    if says_nothing(header):
        header.n = 0
    if bit_add(&r.present, r.n, header.n > 0) < 0:
        return -1
    if r.columns & COLUMN_HEADERS_RAW:
        if text_add(&r.raw_at, &r.raws, header) < 0:
            return -1
    if r.columns & COLUMN_HEADERS:
        if offset_add(&r.names.first, r.names.n_names) < 0:
            return -1
        if header.n:
            return map_add(&r.names, header) if r.headers == HEADERS_MAP else array_add(&r.names, header)
    return 0


cdef int rows_room(RowSet* r) noexcept nogil:
    # Room for as much as the batch before had.
    cdef size_t n = r.before.n
    cdef int wanted = r.columns
    if wanted & COLUMN_SEQ and bytes_reserve(&r.seq, n * 8) < 0:
        return -1
    if wanted & COLUMN_TIMESTAMP and bytes_reserve(&r.timestamp, n * 8) < 0:
        return -1
    if wanted & COLUMN_NANOS and bytes_reserve(&r.nanos, n * 4) < 0:
        return -1
    if wanted & COLUMN_SUBJECT and (
            bytes_reserve(&r.subject_at, (n + 1) * 4) < 0 or bytes_reserve(&r.subjects, r.before.subjects) < 0):
        return -1
    if wanted & COLUMN_DATA and (
            bytes_reserve(&r.data_at, (n + 1) * 4) < 0 or bytes_reserve(&r.datas, r.before.datas) < 0):
        return -1
    if wanted & COLUMN_HEADERS_RAW and (
            bytes_reserve(&r.raw_at, (n + 1) * 4) < 0 or bytes_reserve(&r.raws, r.before.raws) < 0):
        return -1
    return 0


cdef int rows_add(RowSet* r, Span subject, uint64_t seq, int64_t ts, Span header, Span data) noexcept nogil:
    # One message; `ts` in nanoseconds since 1970, `header` the whole block or empty. -1: no memory.
    cdef int64_t micros = ts // 1000 - (1 if ts % 1000 < 0 else 0)
    cdef int32_t nanos = <int32_t>(ts - micros * 1000), number
    cdef int wanted = r.columns
    if r.n == 0 and rows_room(r) < 0:
        return -1
    if wanted & COLUMN_SEQ and bytes_add(&r.seq, &seq, 8) < 0:
        return -1
    if wanted & COLUMN_TIMESTAMP and bytes_add(&r.timestamp, &micros, 8) < 0:
        return -1
    if wanted & COLUMN_NANOS and bytes_add(&r.nanos, &nanos, 4) < 0:
        return -1
    if wanted & COLUMN_SUBJECT and text_add(&r.subject_at, &r.subjects, subject) < 0:
        return -1
    if wanted & COLUMN_DATA and text_add(&r.data_at, &r.datas, data) < 0:
        return -1
    if wanted & (COLUMN_HEADERS | COLUMN_HEADERS_RAW) and headers_add(r, header) < 0:
        return -1
    if wanted & COLUMN_PARTITION and r.token:
        number = token_number(subject, r.token)
        if bytes_add(&r.partition, &number, 4) < 0:
            return -1
    r.n += 1
    r.n_bytes += subject.n + <uint64_t>header.n + data.n
    return 0


cdef void rows_free(RowSet* r) noexcept nogil:
    bytes_free(&r.subject_at)
    bytes_free(&r.subjects)
    bytes_free(&r.seq)
    bytes_free(&r.timestamp)
    bytes_free(&r.nanos)
    bytes_free(&r.partition)
    bytes_free(&r.present)
    bytes_free(&r.raw_at)
    bytes_free(&r.raws)
    bytes_free(&r.data_at)
    bytes_free(&r.datas)
    names_free(&r.names)
    r.n = 0
    r.n_bytes = 0


# ---- the Python face -------------------------------------------------------------------------------------------

COLUMNS = {
    "stream": COLUMN_STREAM,
    "subject": COLUMN_SUBJECT,
    "seq": COLUMN_SEQ,
    "timestamp": COLUMN_TIMESTAMP,
    "ts_nanos": COLUMN_NANOS,
    "headers": COLUMN_HEADERS,
    "headers_raw": COLUMN_HEADERS_RAW,
    "data": COLUMN_DATA,
    "partition": COLUMN_PARTITION,
}
HEADER_FORMATS = {"map": HEADERS_MAP, "array": HEADERS_ARRAY}

cdef uint8_t empty_buffer = 0


cdef class Buffer:
    # Memory that was filled once: frees it when nobody looks at it any more.
    cdef uint8_t* p
    cdef size_t n

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.p if self.p != NULL else &empty_buffer, <Py_ssize_t>self.n, 1, flags)

    def __len__(self):
        return self.n

    def __dealloc__(self):
        free(self.p)


cdef Buffer taken(Bytes* b):
    cdef Buffer out = Buffer()
    out.p = b.data
    out.n = b.n
    memset(b, 0, sizeof(Bytes))
    return out


cdef Buffer offsets_taken(Bytes* b, uint64_t end):
    # Offsets with the one behind the last.
    if offset_add(b, end) < 0:
        raise MemoryError
    return taken(b)


cdef tuple repeated(Span text, uint32_t n):
    # Offsets and bytes of a column that has the same text in every row.
    cdef Bytes at, texts
    cdef uint32_t i
    memset(&at, 0, sizeof(Bytes))
    memset(&texts, 0, sizeof(Bytes))
    if bytes_reserve(&at, (<size_t>n + 1) * 4) < 0 or bytes_reserve(&texts, <size_t>n * text.n) < 0:
        bytes_free(&at)
        raise MemoryError
    for i in range(n):
        text_add(&at, &texts, text)     # there is room
    return offsets_taken(&at, texts.n), taken(&texts)


cdef Buffer zeroed(size_t n):
    cdef Buffer out = Buffer()
    if n:
        out.p = <uint8_t*>calloc(n, 1)
        if out.p == NULL:
            raise MemoryError
    out.n = n
    return out


cdef class Rows:
    """A batch in the making; readers fill it, `take` hands it over."""
    cdef RowSet r
    cdef bytes stream

    def __cinit__(self, columns, stream, uint32_t max_rows, uint64_t max_bytes, *, headers="map", uint32_t token=0):
        if not 0 < max_rows <= ROWS_MAX:
            raise ValueError(f"max_rows must be 1 to {ROWS_MAX}, not {max_rows}")
        if not 0 < max_bytes <= BYTES_MAX:
            raise ValueError(f"max_bytes must be 1 to {BYTES_MAX}, not {max_bytes}")
        for name in columns:
            self.r.columns |= COLUMNS[name]
        self.r.headers = HEADER_FORMATS[headers]
        self.r.token = token
        self.r.max_rows = max_rows
        self.r.max_bytes = max_bytes
        self.stream = stream.encode()
        self.r.stream = span_of(self.stream)

    def __dealloc__(self):
        rows_free(&self.r)

    def __len__(self):
        return self.r.n

    @property
    def full(self):
        return rows_full(&self.r)

    def add(self, bytes subject not None, uint64_t seq, int64_t ts, bytes header not None, bytes data not None):
        if rows_add(&self.r, span_of(subject), seq, ts, span_of(header), span_of(data)) < 0:
            raise MemoryError

    def take(self):
        cdef RowSet* r = &self.r
        cdef dict out = {}
        cdef uint32_t n = r.n
        cdef Buffer present = taken(&r.present)
        r.before = Sizes(n, r.subjects.n, r.datas.n, r.raws.n)
        if r.columns & COLUMN_STREAM:
            out["stream"] = repeated(r.stream, n)
        if r.columns & COLUMN_SUBJECT:
            out["subject"] = (offsets_taken(&r.subject_at, r.subjects.n), taken(&r.subjects))
        if r.columns & COLUMN_SEQ:
            out["seq"] = (taken(&r.seq),)
        if r.columns & COLUMN_TIMESTAMP:
            out["timestamp"] = (taken(&r.timestamp),)
        if r.columns & COLUMN_NANOS:
            out["ts_nanos"] = (taken(&r.nanos),)
        if r.columns & COLUMN_HEADERS_RAW:
            out["headers_raw"] = (present, offsets_taken(&r.raw_at, r.raws.n), taken(&r.raws))
        if r.columns & COLUMN_HEADERS:
            out["headers"] = (present, *self.names_taken())
        if r.columns & COLUMN_DATA:
            out["data"] = (offsets_taken(&r.data_at, r.datas.n), taken(&r.datas))
        if r.columns & COLUMN_PARTITION:
            out["partition"] = (taken(&r.partition) if r.token else zeroed(<size_t>n * 4),)
        rows_free(r)
        return n, out

    cdef tuple names_taken(self):
        cdef Names* s = &self.r.names
        cdef Buffer first = offsets_taken(&s.first, s.n_names)
        cdef Buffer name_at = offsets_taken(&s.name_at, s.names.n)
        cdef Buffer value_at = offsets_taken(&s.value_at, s.values.n)
        cdef Buffer values_at = offsets_taken(&s.values_at, s.n_values) if self.r.headers == HEADERS_MAP else None
        cdef tuple out = (s.n_names, s.n_values, first, name_at, taken(&s.names), values_at, value_at, taken(&s.values))
        bytes_free(&s.lines)
        bytes_free(&s.table)
        memset(s, 0, sizeof(Names))
        return out
