# Rows of Arrow arrays as PUB and HPUB frames. Layouts: https://arrow.apache.org/docs/format/Columnar.html
#
# Whatever a row holds, one frame comes of it or a reason why not: lengths are checked against the buffers they are of, and
# nothing that ends a line gets into a control line or a header.

cdef enum:
    RANGE_NULL = 0
    RANGE_OK = 1
    RANGE_BROKEN = -1

cdef enum:
    HEADERS_NONE = 0
    HEADERS_GROUPED = 3         # entries of a name and a list of values
    HEADERS_PAIRS = 4           # entries of a name and a value
    HEADERS_BLOCK = 5           # header blocks as they stand

cdef enum:
    ADDED_MAX = 8
    LEFT_OUT_MAX = 32
    CONTROL_LINE_MAX = 4096     # the server's max_control_line when nothing else is configured

cdef enum:
    ROW_OK = 0
    ROW_NO_MEMORY = -1
    ROW_NO_SUBJECT = 1
    ROW_SUBJECT_EMPTY_TOKEN = 2
    ROW_SUBJECT_BLANK = 3
    ROW_SUBJECT_WILDCARD = 4
    ROW_SUBJECT_LONG = 5
    ROW_HEADER_NAME = 6
    ROW_HEADER_VALUE = 7
    ROW_HEADER_BLOCK = 8
    ROW_TOO_LARGE = 9
    ROW_BROKEN = 10


cdef struct Ranges:
    # A column's offsets: where row i starts and stops in what it is made of.
    const uint8_t* valid        # a bit a row, or NULL: all of them
    const uint8_t* offsets
    bint wide                   # of 64 bits, not 32
    uint64_t at                 # where row 0 is in valid and offsets
    uint64_t n
    uint64_t end                # bytes, or rows of the child


cdef struct Texts:
    Ranges r
    const uint8_t* data


cdef struct Added:
    Span name
    Texts values


cdef struct Sources:
    # A batch's columns. `has_` tells those that were given.
    uint64_t n
    bint has_subject
    bint has_data
    int form
    int n_added
    Texts subject
    Texts data
    Ranges entries              # of a row
    Texts names                 # of an entry
    Ranges groups               # of an entry, HEADERS_GROUPED only: its values
    Texts values                # or a row's block
    Added added[ADDED_MAX]


cdef struct Constants:
    # What is the same for all rows.
    Span subject                # of rows that name none
    Span inbox                  # with the dot behind it
    Span lines                  # header lines for every row
    bint with_ids
    Span id_prefix              # a row's id is this and its number
    Span left_out[LEFT_OUT_MAX]  # names of the rows' headers that are not sent
    int n_left_out
    uint32_t* met               # a bit for each of them that a row brought
    bint stored                 # subjects are those of messages that a server stored
    uint64_t max_payload


cdef int range_at(const Ranges* r, uint64_t i, uint64_t* start, uint64_t* stop) noexcept nogil:
    cdef int64_t a, b
    cdef uint64_t at = r.at + i
    if i >= r.n:
        return RANGE_BROKEN
    if r.valid != NULL and not r.valid[at >> 3] >> (at & 7) & 1:
        return RANGE_NULL
    if r.wide:
        a = (<const int64_t*>r.offsets)[at]
        b = (<const int64_t*>r.offsets)[at + 1]
    else:
        a = (<const int32_t*>r.offsets)[at]
        b = (<const int32_t*>r.offsets)[at + 1]
    if a < 0 or b < a or <uint64_t>b > r.end:
        return RANGE_BROKEN
    start[0] = <uint64_t>a
    stop[0] = <uint64_t>b
    return RANGE_OK


cdef int text_at(const Texts* t, uint64_t i, Span* out) noexcept nogil:
    cdef uint64_t start = 0, stop = 0
    cdef int found = range_at(&t.r, i, &start, &stop)
    if found == RANGE_OK:
        if stop - start > UINT32_MAX:
            return RANGE_BROKEN
        out[0] = span(t.data + start, <uint32_t>(stop - start))
    return found


cdef int check_subject(Span s, bint stored) noexcept nogil:
    # Whether one can publish to it: tokens between dots, none of them empty or a wildcard.
    #
    # `stored`: a server took it before, and servers take wildcards and whatever does not end a word of their protocol.
    cdef uint32_t i, token = 0
    cdef uint8_t c
    if s.n == 0:
        return ROW_NO_SUBJECT
    for i in range(s.n + 1):
        c = s.p[i] if i < s.n else c'.'
        if c == c'.':
            if i == token:
                return ROW_SUBJECT_EMPTY_TOKEN
            if not stored and i == token + 1 and (s.p[token] == c'*' or s.p[token] == c'>'):
                return ROW_SUBJECT_WILDCARD
            token = i + 1
        elif c == c' ' or c == c'\t' or c == c'\r' or c == c'\n' or (not stored and (c < c' ' or c == 127)):
            return ROW_SUBJECT_BLANK
    return ROW_OK


cdef int check_name(Span s) noexcept nogil:
    cdef uint32_t i
    if s.n == 0:
        return ROW_HEADER_NAME
    for i in range(s.n):
        if s.p[i] <= c' ' or s.p[i] == c':' or s.p[i] == 127:
            return ROW_HEADER_NAME
    return ROW_OK


cdef inline int check_value(Span s) noexcept nogil:
    if s.n and (memchr(s.p, c'\n', s.n) != NULL or memchr(s.p, c'\r', s.n) != NULL):
        return ROW_HEADER_VALUE
    return ROW_OK


# ---- a row's header block --------------------------------------------------------------------------------------

cdef bint left_out(const Constants* c, Span name) noexcept nogil:
    cdef int i
    for i in range(c.n_left_out):
        if same_name(c.left_out[i], name):
            c.met[0] |= <uint32_t>1 << i
            return True
    return False


cdef int line_add(Bytes* head, Span name, Span value) noexcept nogil:
    cdef uint8_t* p
    if bytes_reserve(head, <size_t>name.n + value.n + 4) < 0:
        return ROW_NO_MEMORY
    p = head.data + head.n
    memcpy(p, name.p, name.n)
    p += name.n
    memcpy(p, b": ", 2)
    memcpy(p + 2, value.p, value.n)
    memcpy(p + 2 + value.n, b"\r\n", 2)
    head.n += name.n + value.n + 4
    return ROW_OK


cdef int entry_add(Bytes* head, const Sources* s, const Constants* c, uint64_t entry) noexcept nogil:
    # The lines of one entry of a map or an array; a value that is null is an empty one.
    cdef Span name = span(NULL, 0), value
    cdef uint64_t i = entry, stop = entry + 1
    cdef int found = text_at(&s.names, entry, &name)
    if found != RANGE_OK:
        return ROW_HEADER_NAME if found == RANGE_NULL else ROW_BROKEN
    found = check_name(name)
    if found != ROW_OK:
        return found
    if left_out(c, name):
        return ROW_OK
    if s.form == HEADERS_GROUPED:
        found = range_at(&s.groups, entry, &i, &stop)
        if found != RANGE_OK:
            return ROW_OK if found == RANGE_NULL else ROW_BROKEN
    while i < stop:
        value = span(NULL, 0)
        if text_at(&s.values, i, &value) == RANGE_BROKEN:
            return ROW_BROKEN
        if check_value(value) != ROW_OK:
            return ROW_HEADER_VALUE
        if line_add(head, name, value) < 0:
            return ROW_NO_MEMORY
        i += 1
    return ROW_OK


cdef int block_add(Bytes* head, Span block, const Constants* c) noexcept nogil:
    # A block's lines as they stand, from the first to the empty one, without those that are left out.
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    cdef const uint8_t* colon
    cdef bint first = True
    if block.n < 12 or memcmp(p, b"NATS/1.0", 8) != 0 or memcmp(end - 4, b"\r\n\r\n", 4) != 0:
        return ROW_HEADER_BLOCK
    end -= 2
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p) + 1
        if not first and stop - p == 2 and p[0] == c'\r':
            return ROW_HEADER_BLOCK                 # a server would stop reading here
        colon = <const uint8_t*>memchr(p, c':', stop - p)
        if first or colon == NULL or not left_out(c, span(p, <uint32_t>(colon - p))):
            if bytes_add(head, p, stop - p) < 0:
                return ROW_NO_MEMORY
        first = False
        p = stop
    return ROW_OK


cdef int own_headers_add(Bytes* head, const Sources* s, const Constants* c, uint64_t i) noexcept nogil:
    # The headers that the row brings.
    cdef uint64_t entry = 0, stop = 0
    cdef Span block = span(NULL, 0)
    cdef int found
    if s.form == HEADERS_BLOCK:
        found = text_at(&s.values, i, &block)
        if found == RANGE_BROKEN:
            return ROW_BROKEN
        if found == RANGE_OK and block.n:
            return block_add(head, block, c)
        return ROW_OK
    found = range_at(&s.entries, i, &entry, &stop)
    if found == RANGE_BROKEN:
        return ROW_BROKEN
    if found == RANGE_NULL or entry == stop:
        return ROW_OK
    if bytes_add(head, b"NATS/1.0\r\n", 10) < 0:
        return ROW_NO_MEMORY
    while entry < stop:
        found = entry_add(head, s, c, entry)
        if found != ROW_OK:
            return found
        entry += 1
    return ROW_OK


cdef int start_block(Bytes* head) noexcept nogil:
    return bytes_add(head, b"NATS/1.0\r\n", 10) if head.n == 0 else 0


cdef int id_add(Bytes* head, const Constants* c, uint64_t row) noexcept nogil:
    cdef uint32_t n
    if bytes_reserve(head, <size_t>c.id_prefix.n + U64_DIGITS_MAX + 16) < 0:
        return -1
    memcpy(head.data + head.n, b"Nats-Msg-Id: ", 13)
    memcpy(head.data + head.n + 13, c.id_prefix.p, c.id_prefix.n)
    n = 13 + c.id_prefix.n
    n += put_u64(head.data + head.n + n, row)
    memcpy(head.data + head.n + n, b"\r\n", 2)
    head.n += n + 2
    return 0


cdef int headers_make(Bytes* head, const Sources* s, const Constants* c, uint64_t i, uint64_t row) noexcept nogil:
    # The block of row i, empty when it has no header; `row` is its number among all.
    cdef Span value = span(NULL, 0)
    cdef int found, k
    head.n = 0
    if s.form != HEADERS_NONE:
        found = own_headers_add(head, s, c, i)
        if found != ROW_OK:
            return found
    if c.with_ids:
        if start_block(head) < 0 or id_add(head, c, row) < 0:
            return ROW_NO_MEMORY
    if c.lines.n:
        if start_block(head) < 0 or bytes_add(head, c.lines.p, c.lines.n) < 0:
            return ROW_NO_MEMORY
    for k in range(s.n_added):
        found = text_at(&s.added[k].values, i, &value)
        if found == RANGE_NULL:
            continue
        if found == RANGE_BROKEN:
            return ROW_BROKEN
        if check_value(value) != ROW_OK:
            return ROW_HEADER_VALUE
        if start_block(head) < 0 or line_add(head, s.added[k].name, value) < 0:
            return ROW_NO_MEMORY
    if head.n and bytes_add(head, b"\r\n", 2) < 0:
        return ROW_NO_MEMORY
    return ROW_OK


# ---- a row's frame ---------------------------------------------------------------------------------------------

cdef struct Frame:
    # A frame's parts, borrowed.
    uint8_t line[CONTROL_LINE_MAX + 2]
    uint32_t n_line
    Span header
    Span data
    uint64_t size


cdef int frame_subject(const Sources* s, const Constants* c, uint64_t i, Span* subject) noexcept nogil:
    cdef int found = text_at(&s.subject, i, subject) if s.has_subject else RANGE_NULL
    if found == RANGE_BROKEN:
        return ROW_BROKEN
    if found == RANGE_NULL:
        subject[0] = c.subject
    return check_subject(subject[0], c.stored)


cdef int frame_make(
    Frame* f, Bytes* head, const Sources* s, const Constants* c, uint64_t i, uint64_t row
) noexcept nogil:
    # The frame of row i of a batch; its reply subject and its id hold `row`.
    cdef Span subject = span(NULL, 0)
    cdef uint8_t* p = f.line
    cdef int bad = frame_subject(s, c, i, &subject)
    if bad != ROW_OK:
        return bad
    f.data = span(NULL, 0)
    if s.has_data and text_at(&s.data, i, &f.data) == RANGE_BROKEN:
        return ROW_BROKEN
    bad = headers_make(head, s, c, i, row)
    if bad != ROW_OK:
        return bad
    if head.n > c.max_payload or <uint64_t>head.n + f.data.n > c.max_payload:
        return ROW_TOO_LARGE
    f.header = span(head.data, <uint32_t>head.n)
    if <uint64_t>subject.n + c.inbox.n + 3 * U64_DIGITS_MAX + 16 > CONTROL_LINE_MAX:
        return ROW_SUBJECT_LONG
    if head.n:
        memcpy(p, b"HPUB ", 5)
        p += 5
    else:
        memcpy(p, b"PUB ", 4)
        p += 4
    memcpy(p, subject.p, subject.n)
    p += subject.n
    p[0] = c' '
    memcpy(p + 1, c.inbox.p, c.inbox.n)
    p += 1 + c.inbox.n
    p += put_u64(p, row)
    p[0] = c' '
    p += 1
    if head.n:
        p += put_u64(p, head.n)
        p[0] = c' '
        p += 1
    p += put_u64(p, <uint64_t>head.n + f.data.n)
    memcpy(p, b"\r\n", 2)
    f.n_line = <uint32_t>(p - f.line) + 2
    f.size = <uint64_t>f.n_line + head.n + f.data.n + 2
    return ROW_OK


cdef void frame_write(const Frame* f, uint8_t* out) noexcept nogil:
    # `out` has room for f.size bytes.
    memcpy(out, f.line, f.n_line)
    out += f.n_line
    memcpy(out, f.header.p, f.header.n)
    out += f.header.n
    memcpy(out, f.data.p, f.data.n)
    memcpy(out + f.data.n, b"\r\n", 2)


# ---- what rows hold --------------------------------------------------------------------------------------------

cdef int digest_add(
    const Texts* columns, int n_columns, uint64_t rows, bint ordered, uint64_t first_row, uint64_t* total
) noexcept nogil:
    # Adds up a number a row; so the rows' order does not count, unless they are `ordered`: then a row's number is part
    # of what it is.
    cdef uint64_t key[4]
    cdef uint64_t row, i
    cdef Span value
    cdef int k, found
    for i in range(rows):
        row = first_row + i if ordered else 0
        for k in range(n_columns):
            value = span(NULL, 0)
            found = text_at(&columns[k], i, &value)
            if found == RANGE_BROKEN:
                return -1
            key[0] = row
            key[1] = <uint64_t>k
            key[2] = <uint64_t>(found == RANGE_NULL)
            key[3] = 0
            row = hh64(key, value.p, value.n)
        total[0] += row
    return 0
