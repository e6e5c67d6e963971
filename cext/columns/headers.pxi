# Header blocks as columns: raw, as a map from name to values, or as an array of (name, value).
#
# A block is "NATS/1.0" with an optional status, CRLF, lines "name: value" CRLF, CRLF (ADR-4). Names keep their case; blanks
# around a value do not count; a line without a colon is passed over.

cdef struct Line:
    Span name
    Span value
    const uint8_t* rest         # behind the line


cdef bint header_line(const uint8_t* p, const uint8_t* end, Line* line) noexcept nogil:
    """The first line with a name in p..end."""
    cdef const uint8_t* stop
    cdef const uint8_t* colon
    while p < end:
        stop = <const uint8_t*> memchr(p, c'\n', end - p)
        line.rest = end if stop == NULL else stop + 1
        if stop == NULL:
            stop = end
        elif stop > p and (stop - 1)[0] == c'\r':
            stop -= 1
        colon = <const uint8_t*> memchr(p, c':', stop - p) if stop > p else NULL
        if colon != NULL and colon > p:
            line.name = span(p, <uint32_t> (colon - p))
            colon += 1
            while colon < stop and (colon[0] == c' ' or colon[0] == c'\t'):
                colon += 1
            while stop > colon and ((stop - 1)[0] == c' ' or (stop - 1)[0] == c'\t'):
                stop -= 1
            line.value = span(colon, <uint32_t> (stop - colon))
            return True
        p = line.rest
    return False


cdef inline const uint8_t* header_lines(Span block) noexcept nogil:
    """Behind the first line of a block, or its end."""
    cdef const uint8_t* p = <const uint8_t*> memchr(block.p, c'\n', block.n) if block.n else NULL
    return block.p + block.n if p == NULL else p + 1


cdef struct Names:
    # The headers column in the making, in the layout that its format asks for.
    Bytes first                 # int32 a row: where its entries start
    Bytes name_at               # int32 an entry
    Bytes names
    Bytes values_at             # map only, int32 an entry: where its values start
    Bytes value_at              # int32 a value
    Bytes values
    uint32_t n_names
    uint32_t n_values


cdef void names_free(Names* s) noexcept nogil:
    bytes_free(&s.first)
    bytes_free(&s.name_at)
    bytes_free(&s.names)
    bytes_free(&s.values_at)
    bytes_free(&s.value_at)
    bytes_free(&s.values)


cdef inline int offset_add(Bytes* b, uint64_t at) noexcept nogil:
    cdef int32_t offset = <int32_t> at
    return bytes_add(b, &offset, 4)


cdef int value_add(Names* s, Span value) noexcept nogil:
    if offset_add(&s.value_at, s.values.n) < 0 or bytes_add(&s.values, value.p, value.n) < 0:
        return -1
    s.n_values += 1
    return 0


cdef int name_add(Names* s, Span name) noexcept nogil:
    if offset_add(&s.name_at, s.names.n) < 0 or bytes_add(&s.names, name.p, name.n) < 0:
        return -1
    s.n_names += 1
    return 0


cdef inline bint same_name(Span a, Span b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, a.n) == 0


cdef int map_add(Names* s, Span block) noexcept nogil:
    """One row of a map: every name once, in order of its first line, with all its values."""
    cdef Line line, other
    cdef const uint8_t* start = header_lines(block)
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef bint seen
    while header_line(p, end, &line):
        seen = False
        q = start
        while header_line(q, end, &other) and other.name.p < line.name.p:
            if same_name(other.name, line.name):
                seen = True
                break
            q = other.rest
        p = line.rest
        if seen:
            continue
        if offset_add(&s.values_at, s.n_values) < 0 or name_add(s, line.name) < 0 or value_add(s, line.value) < 0:
            return -1
        q = p
        while header_line(q, end, &other):
            if same_name(other.name, line.name) and value_add(s, other.value) < 0:
                return -1
            q = other.rest
    return 0


cdef int array_add(Names* s, Span block) noexcept nogil:
    """One row of an array: the lines as they stand."""
    cdef Line line
    cdef const uint8_t* p = header_lines(block)
    while header_line(p, block.p + block.n, &line):
        if name_add(s, line.name) < 0 or value_add(s, line.value) < 0:
            return -1
        p = line.rest
    return 0
