# What a direct get asks for, read from its request without a copy.

cdef struct DirectGet:
    # A request. Spans point into it, or into room.
    uint64_t seq
    int64_t batch
    uint64_t up_to_seq
    int64_t max_bytes
    int64_t start_time
    int64_t up_to_time
    bint has_start
    bint has_up_to_time
    bint no_hdr
    Span last_by
    Span next_by
    Span* multi
    uint32_t n_multi
    uint32_t multi_room                 # patterns that `multi` has room for
    bint no_memory
    uint8_t* room                       # of texts with escapes
    uint8_t* room_at
    uint32_t room_left


cdef bint read_text(const JsonItem* it, DirectGet* g, Span* text) noexcept nogil:
    # A string: a view of the request, or of g.room where escapes had to be resolved. null is no text.
    cdef int n
    if it.kind == JSON_NULL:
        return True
    if it.kind != JSON_STRING:
        return False
    text[0] = it.text
    if not it.escaped:
        return True
    if g.room == NULL:
        g.room = <uint8_t*>malloc(g.room_left)
        g.room_at = g.room
    if g.room == NULL:
        return False
    n = json_text(it, g.room_at, g.room_left)
    if n < 0:
        return False
    text[0] = span(g.room_at, <uint32_t>n)
    g.room_at += n
    g.room_left -= n
    return True


cdef bint add_pattern(DirectGet* g, Span pattern) noexcept nogil:
    if array_room(&g.multi, &g.multi_room, <uint64_t>g.n_multi + 1, sizeof(Span), 16) < 0:    # the request's bytes bound it
        g.no_memory = True
        return False
    g.multi[g.n_multi] = pattern
    g.n_multi += 1
    return True


cdef bint read_multi(const JsonItem* it, DirectGet* g) noexcept nogil:
    # Where the key is there twice the last list counts.
    cdef JsonReader list
    cdef JsonItem element
    cdef Span pattern
    cdef int rc
    g.n_multi = 0
    if it.kind == JSON_NULL:
        return True
    json_open(&list, it.text)
    if not json_enter_array(&list):
        return False
    while True:
        rc = json_next_element(&list, &element)
        if rc <= 0:
            return rc == 0
        pattern = span(NULL, 0)
        if not read_text(&element, g, &pattern) or not add_pattern(g, pattern):
            return False


cdef bint read_time(const JsonItem* it, DirectGet* g, int64_t* t, bint* given) noexcept nogil:
    cdef Span text
    if it.kind == JSON_NULL:
        return True
    given[0] = read_text(it, g, &text) and get_time(text, t)
    return given[0]


cdef bint read_int(const JsonItem* it, int64_t* v) noexcept nogil:
    return it.kind == JSON_NULL or json_int(it, v)


cdef bint read_uint(const JsonItem* it, uint64_t* v) noexcept nogil:
    return it.kind == JSON_NULL or json_uint(it, v)


cdef bint read_member(DirectGet* g, const JsonItem* key, const JsonItem* val) noexcept nogil:
    if json_key_is(key, b"seq"):
        return read_uint(val, &g.seq)
    if json_key_is(key, b"last_by_subj"):
        return read_text(val, g, &g.last_by)
    if json_key_is(key, b"next_by_subj"):
        return read_text(val, g, &g.next_by)
    if json_key_is(key, b"batch"):
        return read_int(val, &g.batch)
    if json_key_is(key, b"max_bytes"):
        return read_int(val, &g.max_bytes)
    if json_key_is(key, b"start_time"):
        return read_time(val, g, &g.start_time, &g.has_start)
    if json_key_is(key, b"multi_last"):
        return read_multi(val, g)
    if json_key_is(key, b"up_to_seq"):
        return read_uint(val, &g.up_to_seq)
    if json_key_is(key, b"up_to_time"):
        return read_time(val, g, &g.up_to_time, &g.has_up_to_time)
    if json_key_is(key, b"no_hdr"):
        return json_bool(val, &g.no_hdr)
    return True


cdef bint read_direct(Span text, DirectGet* g) noexcept nogil:
    cdef JsonReader j
    cdef JsonItem key, val
    cdef int rc
    if span_eq(trimmed(text), span(b"null", 4)):
        return True
    json_open(&j, text)
    if not json_enter_object(&j):
        return False
    while True:
        rc = json_next_member(&j, &key, &val)
        if rc <= 0:
            break
        if not read_member(g, &key, &val):
            return False
    return rc == 0 and json_at_end(&j)
