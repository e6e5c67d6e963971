# The headers that a stream looks at, found in one pass over a block.

cdef struct PubHeaders:
    # The values of the headers that a publish looks at; .p is NULL where there is none.
    Span msg_id
    Span stream
    Span last_seq
    Span subject_seq
    Span subject_seq_of
    Span last_msg_id
    Span rollup
    Span ttl
    Span incr
    Span batch
    Span schedule
    Span scheduler
    Span schedule_next
    Span zone
    bint request_info


cdef inline bint name_is(Span line, const char* name, uint32_t n, Span* value) noexcept nogil:
    # A line "name: value", blanks before the value skipped; only the first one counts.
    if line.n < n or memcmp(line.p, name, n) != 0 or value.p != NULL:
        return False
    value[0] = span(line.p + n, line.n - n)
    while value.n and (value.p[0] == c' ' or value.p[0] == c'\t'):
        value.p += 1
        value.n -= 1
    return True


cdef void note_header(PubHeaders* h, Span line) noexcept nogil:
    # A line that starts with "Nats-".
    cdef uint8_t c = line.p[5] if line.n > 5 else 0
    cdef Span any
    any.p = NULL
    if c == c'M':
        name_is(line, b"Nats-Msg-Id:", 12, &h.msg_id)
    elif c == c'E':
        if (name_is(line, b"Nats-Expected-Stream:", 21, &h.stream)
                or name_is(line, b"Nats-Expected-Last-Sequence:", 28, &h.last_seq)
                or name_is(line, b"Nats-Expected-Last-Subject-Sequence:", 36, &h.subject_seq)
                or name_is(line, b"Nats-Expected-Last-Subject-Sequence-Subject:", 44, &h.subject_seq_of)):
            return
        name_is(line, b"Nats-Expected-Last-Msg-Id:", 26, &h.last_msg_id)
    elif c == c'R':
        if not name_is(line, b"Nats-Rollup:", 12, &h.rollup) and name_is(line, b"Nats-Request-Info:", 18, &any):
            h.request_info = True
    elif c == c'T':
        name_is(line, b"Nats-TTL:", 9, &h.ttl)
    elif c == c'I':
        name_is(line, b"Nats-Incr:", 10, &h.incr)
    elif c == c'B':
        name_is(line, b"Nats-Batch-Id:", 14, &h.batch)
    elif c == c'S':
        if (name_is(line, b"Nats-Schedule:", 14, &h.schedule)
                or name_is(line, b"Nats-Scheduler:", 15, &h.scheduler)):
            return
        if not name_is(line, b"Nats-Schedule-Next:", 19, &h.schedule_next):
            name_is(line, b"Nats-Schedule-Time-Zone:", 24, &h.zone)


cdef const uint8_t* line_end(const uint8_t* p, const uint8_t* end) noexcept nogil:
    # Where the CRLF starts, or the end.
    cdef const uint8_t* cr
    while p < end:
        cr = <const uint8_t*>memchr(p, c'\r', end - p)
        if cr == NULL or cr + 1 >= end:
            return end
        if cr[1] == c'\n':
            return cr
        p = cr + 1
    return end


cdef void read_headers(PubHeaders* h, Span block) noexcept nogil:
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    memset(h, 0, sizeof(PubHeaders))
    if block.n == 0:
        return
    p = line_end(p, end) + 2                                # behind the status line
    while p < end:
        stop = line_end(p, end)
        if stop - p > 8 and memcmp(p, b"Nats-", 5) == 0:
            note_header(h, span(p, <uint32_t>(stop - p)))
        p = stop + 2


cdef struct Schedule:
    # The headers of a message that is a schedule; .p is NULL where there is none.
    Span pattern
    Span zone
    Span ttl
    Span rollup
    Span target
    Span source


cdef void read_schedule(Schedule* x, Span block) noexcept nogil:
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef Span line
    memset(x, 0, sizeof(Schedule))
    if block.n == 0:
        return
    p = line_end(block.p, end) + 2
    while p < end:
        stop = line_end(p, end)
        line = span(p, <uint32_t>(stop - p))
        if line.n > 13 and memcmp(p, b"Nats-Schedule", 13) == 0 and not (
                name_is(line, b"Nats-Schedule:", 14, &x.pattern) or name_is(line, b"Nats-Schedule-Target:", 21, &x.target)
                or name_is(line, b"Nats-Schedule-Source:", 21, &x.source) or name_is(line, b"Nats-Schedule-TTL:", 18, &x.ttl)
                or name_is(line, b"Nats-Schedule-Rollup:", 21, &x.rollup)):
            name_is(line, b"Nats-Schedule-Time-Zone:", 24, &x.zone)
        p = stop + 2


cdef inline bint is_control(Span header, Span data) noexcept nogil:
    # Whether it is a heartbeat or flow control, of what brings a stream's messages.
    return data.n == 0 and starts_with(header, b"NATS/1.0 100 ")


# ---- headers that are stored changed ---------------------------------------------------------------------------------

cdef enum:
    BARE_HEADER = 12                    # of a header block without a line


cdef bint has_status(Span block) noexcept nogil:
    # Whether something stands between the version and the end of its line.
    cdef const uint8_t* cr
    if block.n <= 8 or memcmp(block.p, b"NATS/1.0", 8) != 0:
        return False
    cr = <const uint8_t*>memchr(block.p, c'\r', block.n)
    return cr != NULL and cr > block.p + 8


cdef int rewrite_headers(Span block, Bytes* b) noexcept nogil:
    # The block without a status and without Nats-Request-Info; empty when no line is left. All else stays as
    # it came, well formed or not. 0 | -1 no memory
    cdef const uint8_t* p = block.p
    if has_status(block):
        if bytes_add(b, p, 8) < 0:
            return -1
        p = <const uint8_t*>memchr(p, c'\r', block.n)
    return header_lines(p, block, b)


cdef int header_lines(const uint8_t* p, Span block, Bytes* b) noexcept nogil:
    # The block from p on without Nats-Request-Info; empty when no line is left. 0 | -1 no memory
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    while p < end:
        stop = line_end(p, end)
        stop = stop + 2 if stop < end else end
        if not (p > block.p and stop - p > 18 and memcmp(p, b"Nats-Request-Info:", 18) == 0):
            if bytes_add(b, p, stop - p) < 0:
                return -1
        p = stop
    if b.n <= BARE_HEADER:
        b.n = 0
    return 0


cdef int header_without(Bytes* b, Span block, bint (*dropped)(Span line) noexcept nogil) noexcept nogil:
    # The block without some lines, and without the empty one at its end. 0 | -1 no memory
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* stop
    while p < end:
        stop = line_end(p, end)
        if stop == p:
            break
        if not dropped(span(p, <uint32_t>(stop - p))):
            if bytes_add(b, p, stop - p) < 0 or add_text(b, b"\r\n") < 0:
                return -1
        p = stop + 2
    return 0


cdef int header_line(Bytes* b, const char* name, Span value) noexcept nogil:
    return -1 if (add_text(b, name) < 0 or add_text(b, b": ") < 0 or add_span(b, value) < 0
                  or add_text(b, b"\r\n") < 0) else 0


cdef bint is_rollup(Span line) noexcept nogil:
    return starts_with(line, b"Nats-Rollup:")


cdef int header_rolled(Bytes* b, Span block) noexcept nogil:
    # There is one schedule on a subject. 0 | -1 no memory
    return -1 if (header_without(b, block, is_rollup) < 0 or header_line(b, b"Nats-Rollup", span_c(b"sub")) < 0
                  or add_text(b, b"\r\n") < 0) else 0


# ---- what a header asks of the server --------------------------------------------------------------------------------

cdef bint level_too_high(Span header) noexcept nogil:
    cdef Span value = header_get(header, b"Nats-Required-Api-Level")
    cdef uint64_t level
    cdef bint negative = value.n > 1 and value.p[0] == c'-'
    if value.n == 0:
        return False
    if negative or (value.n > 1 and value.p[0] == c'+'):
        value = span(value.p + 1, value.n - 1)
    return not get_u64(value, &level) or (level > API_LEVEL and not negative)
