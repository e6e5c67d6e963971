# Filters of many patterns with wildcards: where walking them one by one would take longer, every subject is looked at
# once. Patterns with wildcards at the same tokens have one shape, and a table of texts finds them together.

cdef enum:
    MANY = 16                   # patterns with wildcards from which on it is worth to think about
    WALKED_ENOUGH = 1

cdef struct Shapes:
    StrMap texts                # the patterns
    StrMap known                # the shapes: of each token `*`, `>` or, for any other, a dot
    uint8_t* room               # for a subject as a pattern of some shape


cdef void shapes_free(Shapes* h) noexcept nogil:
    strmap_free(&h.texts)
    strmap_free(&h.known)
    free(h.room)


cdef uint32_t shape_of(Span pattern, uint8_t* out) noexcept nogil:
    """Its length, the number of tokens."""
    cdef uint32_t i, n = 0, start = 0
    for i in range(pattern.n + 1):
        if i < pattern.n and pattern.p[i] != c'.':
            continue
        out[n] = c'.'
        if i - start == 1 and (pattern.p[start] == c'*' or (pattern.p[start] == c'>' and i == pattern.n)):
            out[n] = pattern.p[start]
        n += 1
        start = i + 1
    return n


cdef int shapes_init(Shapes* h, const Filter* f) noexcept nogil:
    """Of the patterns with wildcards; 0 | ST_NO_MEMORY."""
    cdef uint32_t i
    cdef Span shape
    memset(h, 0, sizeof(Shapes))
    h.room = <uint8_t*> malloc(65536 + 2)
    if h.room == NULL:
        return ST_NO_MEMORY
    shape.p = h.room
    for i in range(f.n_literals, f.n):
        if f.patterns[i].n > 65535:
            continue                        # longer than any subject
        shape.n = shape_of(f.patterns[i], h.room)
        if strmap_put(&h.known, shape, h) < 0 or strmap_put(&h.texts, f.patterns[i], h) < 0:
            shapes_free(h)
            return ST_NO_MEMORY
    return ST_OK


cdef bint shape_fits(Shapes* h, const uint8_t* shape, uint32_t n_shape, Span s) noexcept nogil:
    """Whether one of the patterns of a shape matches."""
    cdef uint32_t k, at = 0, end, n = 0
    cdef const uint8_t* dot
    for k in range(n_shape):
        if at > s.n:
            return False
        if k:
            h.room[n] = c'.'
            n += 1
        if shape[k] != c'.':
            h.room[n] = shape[k]
            n += 1
            if shape[k] == c'>':
                return strmap_get(&h.texts, span(h.room, n)) != NULL
        dot = <const uint8_t*> memchr(s.p + at, c'.', s.n - at) if at < s.n else NULL
        end = <uint32_t> (dot - s.p) if dot != NULL else s.n
        if shape[k] == c'.':
            memcpy(h.room + n, s.p + at, end - at)
            n += end - at
        at = end + 1
    return at > s.n and strmap_get(&h.texts, span(h.room, n)) != NULL


cdef bint shapes_match(const Filter* f, Shapes* h, Span s) noexcept nogil:
    cdef uint32_t i
    if is_listed(f, s):
        return True
    if has_empty_token(s):      # in no shape
        return filter_matches(f, s)
    for i in range(h.known.cap):
        if h.known.keys[i] != NULL and shape_fits(h, h.known.keys[i], h.known.lens[i], s):
            return True
    return False


cdef int walk_past(void* ctx, Index* x, uint32_t id, uint32_t what) noexcept nogil:
    return 0


cdef bint walks_far(Index* x, const Filter* f, uint32_t n_shapes) noexcept nogil:
    """Whether to walk the patterns takes more steps than to look at every subject."""
    cdef uint32_t i
    cdef uint64_t left = <uint64_t> x.n_subjects * n_shapes
    for i in range(f.n_literals, f.n):
        if walk(x, f.patterns[i], False, walk_past, NULL, &left) == WALKED_ENOUGH:
            return True
    return False


cdef int look_at_all(Index* x, const Filter* f, Shapes* h,
                     int (*fn)(void* ctx, Index* x, uint32_t id) noexcept nogil, void* ctx) noexcept nogil:
    """As index_each, by a look at every subject."""
    cdef uint32_t id = 0
    cdef int r
    while True:
        if node_at(x, id).count:
            if shapes_match(f, h, node_text(x, id)):
                r = fn(ctx, x, id)
                if r:
                    return r
        id = next_below(x, 0, id)
        if id == 0:
            return 0


cdef bint each_of_many(Index* x, const Filter* f, int* r,
                       int (*fn)(void* ctx, Index* x, uint32_t id) noexcept nogil, void* ctx) noexcept nogil:
    """index_each for a filter for which that is better, with its result in r; False: it is not."""
    cdef Shapes h
    if f.n - f.n_literals < MANY or f.loose or shapes_init(&h, f) < 0:
        return False
    if not walks_far(x, f, h.known.n):
        shapes_free(&h)
        return False
    r[0] = look_at_all(x, f, &h, fn, ctx)
    shapes_free(&h)
    return True
