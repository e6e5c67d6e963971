# The client protocol's parser: bytes in, one operation out, no socket and no copy. All spans of an
# operation are views of the bytes given. What is incomplete is given again, with more behind it;
# `scanned` remembers how far a line end was looked for, so that nothing is scanned twice.

cdef inline uint8_t upper(uint8_t ch) noexcept nogil:
    return ch & 0xdf


cdef inline bint is_blank(uint8_t ch) noexcept nogil:
    return ch == c' ' or ch == c'\t'


cdef int verb_of(const uint8_t* p, size_t n, size_t* used) noexcept nogil:
    # The operation a line starts with; *used = length of the verb. PARSE_MORE while it may still become
    # one, PARSE_UNKNOWN when it cannot. OP_PUB stands for HPUB too (the caller looks at the first byte).
    cdef const char* want
    cdef size_t length, i
    cdef int kind
    cdef uint8_t first = upper(p[0])
    if first == c'P':
        if n < 2:
            return PARSE_MORE
        if upper(p[1]) == c'U':
            want = b"PUB"
            kind = OP_PUB
        elif upper(p[1]) == c'I':
            want = b"PING"
            kind = OP_PING
        elif upper(p[1]) == c'O':
            want = b"PONG"
            kind = OP_PONG
        else:
            return PARSE_UNKNOWN
    elif first == c'H':
        want = b"HPUB"
        kind = OP_PUB
    elif first == c'S':
        want = b"SUB"
        kind = OP_SUB
    elif first == c'U':
        want = b"UNSUB"
        kind = OP_UNSUB
    elif first == c'C':
        want = b"CONNECT"
        kind = OP_CONNECT
    elif first == c'I':
        want = b"INFO"
        kind = OP_INFO
    elif p[0] == c'+':
        want = b"+OK"
        kind = OP_OK
    elif p[0] == c'-':
        want = b"-ERR"
        kind = OP_ERR
    else:
        return PARSE_UNKNOWN
    length = strlen(want)
    for i in range(1, length):
        if i >= n:
            return PARSE_MORE
        if upper(p[i]) != upper(want[i]):
            return PARSE_UNKNOWN
    used[0] = length
    return kind


cdef int split_args(Span line, Span* out) noexcept nogil:
    # Blank-separated fields; their number, or MAX_ARGS + 1 when there are more.
    cdef const uint8_t* p = line.p
    cdef const uint8_t* end = line.p + line.n
    cdef const uint8_t* start
    cdef int n = 0
    while True:
        while p < end and is_blank(p[0]):
            p += 1
        if p == end:
            return n
        if n == MAX_ARGS:
            return MAX_ARGS + 1
        start = p
        while p < end and not is_blank(p[0]):
            p += 1
        out[n].p = start
        out[n].n = <uint32_t>(p - start)
        n += 1


cdef int64_t parse_size(Span s) noexcept nogil:
    # Up to nine digits; -1 otherwise.
    cdef int64_t v = 0
    cdef uint32_t i
    if s.n == 0 or s.n > 9:
        return -1
    for i in range(s.n):
        if s.p[i] < c'0' or s.p[i] > c'9':
            return -1
        v = v * 10 + (s.p[i] - c'0')
    return v


cdef int parse_pub(Parser* ps, Op* op, const uint8_t* p, size_t n, size_t line_size) noexcept nogil:
    # PUB subject [reply] size, HPUB subject [reply] header-size size; then the payload and CRLF.
    cdef Span a[6]
    cdef int count = split_args(op.args, a)
    cdef int64_t total, hdr = 0
    cdef int fixed = 2 if not op.has_header else 3
    if count != fixed and count != fixed + 1:
        return PARSE_ARGS
    total = parse_size(a[count - 1])
    if total < 0:
        return PARSE_SIZE
    if op.has_header:
        hdr = parse_size(a[count - 2])
        if hdr < 0 or hdr > total:
            return PARSE_SIZE
    op.subject = a[0]
    op.reply.n = 0
    if count == fixed + 1:
        op.reply = a[1]
    return take_payload(ps, op, total, hdr, p, n, line_size)


cdef int take_payload(Parser* ps, Op* op, int64_t total, int64_t hdr, const uint8_t* p, size_t n,
                      size_t line_size) noexcept nogil:
    if ps.max_payload >= 0 and total > ps.max_payload:
        ps.need = <size_t>total
        return PARSE_PAYLOAD
    if n < line_size + <size_t>total + 2:
        # Wrong bytes behind a payload that is there are told at once.
        if n > line_size + <size_t>total and p[line_size + <size_t>total] != c'\r':
            return PARSE_UNKNOWN
        ps.need = line_size + <size_t>total + 2
        return PARSE_MORE
    if p[line_size + <size_t>total] != c'\r' or p[line_size + <size_t>total + 1] != c'\n':
        return PARSE_UNKNOWN
    op.header.p = p + line_size
    op.header.n = <uint32_t>hdr
    op.data.p = p + line_size + hdr
    op.data.n = <uint32_t>(total - hdr)
    op.size = line_size + <size_t>total + 2
    return PARSE_OK


cdef int parse_sub(Op* op) noexcept nogil:
    cdef Span a[6]
    cdef int count = split_args(op.args, a)
    if count < 2 or count > 3:
        return PARSE_ARGS
    op.subject = a[0]
    op.queue.n = 0
    if count == 3:
        op.queue = a[1]
    op.sid = a[count - 1]
    return PARSE_OK


cdef int parse_unsub(Op* op) noexcept nogil:
    cdef Span a[6]
    cdef int count = split_args(op.args, a)
    cdef int64_t max = 0
    if count < 1 or count > 2:
        return PARSE_ARGS
    op.sid = a[0]
    if count == 2:
        max = parse_size(a[1])
    op.max = <uint64_t>max if max > 0 else 0
    return PARSE_OK


cdef int parse(Parser* ps, const uint8_t* p, size_t n, Op* op) noexcept nogil:
    # The next operation of p[0:n]; PARSE_OK with op.size bytes used, or another ParseResult.
    cdef size_t used = 0
    cdef size_t start, end, line_size
    cdef const uint8_t* eol
    cdef int kind
    ps.need = 0
    op.kind = 0
    if n == 0:
        return PARSE_MORE
    kind = verb_of(p, n, &used)
    if kind <= 0:
        return kind
    if (kind == OP_PUB or kind == OP_SUB or kind == OP_UNSUB) and n > used and not is_blank(p[used]):
        return PARSE_UNKNOWN
    if ps.scanned < used:
        ps.scanned = used
    eol = <const uint8_t*>memchr(p + ps.scanned, c'\n', n - ps.scanned)
    start = used
    while start < n and is_blank(p[start]):
        start += 1
    if eol == NULL:
        ps.scanned = n
        if kind != OP_PING and kind != OP_PONG and kind != OP_OK and n > start and <int64_t>(n - start) > ps.max_line + 1:
            return PARSE_LINE
        return PARSE_MORE
    end = eol - p
    line_size = end + 1
    ps.scanned = end
    if end > start and p[end - 1] == c'\r':
        end -= 1
    if start > end:
        start = end
    op.kind = kind
    op.args.p = p + start
    op.args.n = <uint32_t>(end - start)
    op.size = line_size
    if kind == OP_PING or kind == OP_PONG or kind == OP_OK:
        ps.scanned = 0
        return PARSE_OK
    if <int64_t>(end - start) > ps.max_line:
        return PARSE_LINE
    if kind == OP_PUB:
        op.has_header = upper(p[0]) == c'H'
        kind = parse_pub(ps, op, p, n, line_size)
        if kind != PARSE_MORE:
            ps.scanned = 0
        return kind
    ps.scanned = 0
    if kind == OP_SUB:
        return parse_sub(op)
    if kind == OP_UNSUB:
        return parse_unsub(op)
    return PARSE_OK
