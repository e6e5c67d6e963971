# Header blocks as columns: raw, as a map from name to values, or as an array of (name, value).
#
# A block is "NATS/1.0" with an optional status, CRLF, lines "name: value" CRLF, CRLF (ADR-4). Names keep their case; blanks
# around a value do not count; a line without a colon is passed over.

cdef struct Line:
    Span name
    Span value
    const uint8_t* rest         # behind the line


cdef bint header_line(const uint8_t* p, const uint8_t* end, Line* line) noexcept nogil:
    # The first line with a name in p..end.
    cdef const uint8_t* stop
    cdef const uint8_t* colon
    while p < end:
        stop = <const uint8_t*>memchr(p, c'\n', end - p)
        line.rest = end if stop == NULL else stop + 1
        if stop == NULL:
            stop = end
        elif stop > p and (stop - 1)[0] == c'\r':
            stop -= 1
        colon = <const uint8_t*>memchr(p, c':', stop - p) if stop > p else NULL
        if colon != NULL and colon > p:
            line.name = span(p, <uint32_t>(colon - p))
            colon += 1
            while colon < stop and (colon[0] == c' ' or colon[0] == c'\t'):
                colon += 1
            while stop > colon and ((stop - 1)[0] == c' ' or (stop - 1)[0] == c'\t'):
                stop -= 1
            line.value = span(colon, <uint32_t>(stop - colon))
            return True
        p = line.rest
    return False


cdef inline const uint8_t* header_lines(Span block) noexcept nogil:
    # Behind the first line of a block, or its end.
    cdef const uint8_t* p = <const uint8_t*>memchr(block.p, c'\n', block.n) if block.n else NULL
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
    Bytes lines                 # of the block in hand, where there are many: MapLine
    Bytes table                 # their names: uint32, 1 + the first line that has the name; 0 is a free place


cdef enum:
    LINES_FEW = 16              # up to so many, comparing each with each is quicker than a table


cdef struct MapLine:
    Line line
    uint32_t next               # 1 + the next line of that name; 0: none
    uint32_t last               # of a name's first line: 1 + its last one; 0: not a first line


cdef void names_free(Names* s) noexcept nogil:
    bytes_free(&s.first)
    bytes_free(&s.name_at)
    bytes_free(&s.names)
    bytes_free(&s.values_at)
    bytes_free(&s.value_at)
    bytes_free(&s.values)
    bytes_free(&s.lines)
    bytes_free(&s.table)


cdef inline int offset_add(Bytes* b, uint64_t at) noexcept nogil:
    cdef int32_t offset = <int32_t>at
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


cdef int lines_read(Names* s, Span block) noexcept nogil:
    # The block's lines into s.lines; how many.
    cdef MapLine one
    cdef const uint8_t* p = header_lines(block)
    cdef uint32_t n = 0
    s.lines.n = 0
    memset(&one, 0, sizeof(MapLine))
    while header_line(p, block.p + block.n, &one.line):
        if bytes_add(&s.lines, &one, sizeof(MapLine)) < 0:
            return -1
        p = one.line.rest
        n += 1
    return <int>n              # a line takes two bytes at least, a block has less than 2^32


cdef int lines_chain(Names* s, uint32_t n) noexcept nogil:
    # Links the lines that have the same name.
    cdef MapLine* lines = <MapLine*>s.lines.data
    cdef MapLine* first
    cdef uint32_t* table
    cdef size_t places = 64, at
    cdef uint32_t i
    while places < 2 * <size_t>n:
        places *= 2
    s.table.n = 0
    if bytes_reserve(&s.table, places * 4) < 0:
        return -1
    table = <uint32_t*>s.table.data
    memset(table, 0, places * 4)
    for i in range(n):
        at = table_hash(lines[i].line.name.p, lines[i].line.name.n) & (places - 1)
        while table[at] and not same_name(lines[table[at] - 1].line.name, lines[i].line.name):
            at = (at + 1) & (places - 1)
        if table[at] == 0:
            table[at] = lines[i].last = i + 1
        else:
            first = &lines[table[at] - 1]
            lines[first.last - 1].next = i + 1
            first.last = i + 1
    return 0


cdef int map_add_many(Names* s, uint32_t n) noexcept nogil:
    # map_add for the n lines in s.lines.
    cdef MapLine* lines
    cdef uint32_t i, k
    if lines_chain(s, n) < 0:
        return -1
    lines = <MapLine*>s.lines.data
    for i in range(n):
        if lines[i].last == 0:
            continue
        if offset_add(&s.values_at, s.n_values) < 0 or name_add(s, lines[i].line.name) < 0:
            return -1
        k = i + 1
        while k:
            if value_add(s, lines[k - 1].line.value) < 0:
                return -1
            k = lines[k - 1].next
    return 0


cdef bint has_many_lines(Span block) noexcept nogil:
    cdef const uint8_t* p = block.p
    cdef const uint8_t* end = block.p + block.n
    cdef int n = 0
    while p < end and n <= LINES_FEW:
        p = <const uint8_t*>memchr(p, c'\n', end - p)
        if p == NULL:
            return False
        p += 1
        n += 1
    return n > LINES_FEW


cdef int map_add(Names* s, Span block) noexcept nogil:
    # One row of a map: every name once, in order of its first line, with all its values.
    cdef int n
    cdef Line line, other
    cdef const uint8_t* start = header_lines(block)
    cdef const uint8_t* end = block.p + block.n
    cdef const uint8_t* p = start
    cdef const uint8_t* q
    cdef bint seen
    if has_many_lines(block):
        n = lines_read(s, block)
        return -1 if n < 0 else map_add_many(s, <uint32_t>n)
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
    # One row of an array: the lines as they stand.
    cdef Line line
    cdef const uint8_t* p = header_lines(block)
    while header_line(p, block.p + block.n, &line):
        if name_add(s, line.name) < 0 or value_add(s, line.value) < 0:
            return -1
        p = line.rest
    return 0
