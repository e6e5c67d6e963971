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
