# Filters of many patterns with wildcards: where walking them one by one would take longer, every subject is looked at
# once. Patterns with wildcards at the same tokens have one shape, and a table of texts finds them together.

cdef enum:
    MANY = 16                   # patterns with wildcards from which on it is worth to think about


cdef uint32_t shape_of(Span pattern, uint8_t* out) noexcept nogil:
    # Its length, the number of tokens.
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
    # Of the patterns with wildcards; 0 | ST_NO_MEMORY.
    cdef uint32_t i
    cdef Span shape
    memset(h, 0, sizeof(Shapes))
    h.room = <uint8_t*>malloc(65536 + 2)
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
    # Whether one of the patterns of a shape matches.
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
        dot = <const uint8_t*>memchr(s.p + at, c'.', s.n - at) if at < s.n else NULL
        end = <uint32_t>(dot - s.p) if dot != NULL else s.n
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
    # Whether to walk the patterns takes more steps than to look at every subject.
    cdef uint32_t i
    cdef uint64_t left = <uint64_t>x.n_subjects * n_shapes
    for i in range(f.n_literals, f.n):
        if walk(x, f.patterns[i], False, walk_past, NULL, &left) == WALKED_ENOUGH:
            return True
    return False


cdef int look_at_all(Index* x, const Filter* f, Shapes* h,
                     int (*fn)(void* ctx, Index* x, uint32_t id) noexcept nogil, void* ctx) noexcept nogil:
    # As index_each, by a look at every subject.
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
    # index_each for a filter for which that is better, with its result in r; False: it is not.
    cdef Shapes h
    if f.n - f.n_literals < MANY or f.loose or shapes_init(&h, f) < 0:
        return False
    if not walks_far(x, f, h.known.n):
        shapes_free(&h)
        return False
    r[0] = look_at_all(x, f, &h, fn, ctx)
    shapes_free(&h)
    return True


# ---- one subject after another -----------------------------------------------------------------------------------------

cdef int matcher_init(Matcher* m, const Filter* f) noexcept nogil:
    # 0 | ST_NO_MEMORY
    if m.shaped or matches_all(f) or f.loose or f.n - f.n_literals < MANY:
        return ST_OK
    if shapes_init(&m.shapes, f) < 0:
        return ST_NO_MEMORY
    m.shaped = True
    return ST_OK


cdef uint32_t matcher_cost(const Matcher* m, const Filter* f) noexcept nogil:
    # Of one subject, in looks.
    if matches_all(f):
        return 1
    return 1 + (m.shapes.known.n if m.shaped else f.n - (0 if f.loose else f.n_literals))


cdef bint loose_matches(Span pattern, Span subject) noexcept nogil:
    # subject_matches for a pattern that is_loose.
    cdef Tokens p = tokens_of(pattern)
    cdef Tokens t = tokens_of(subject)
    while not p.last:
        if t.last or not (is_star(&p) or same_token(&p, &t)):
            return False
        tokens_cut(&p)
        tokens_cut(&t)
    if t.n < p.n - 1 or memcmp(t.p, p.p, p.n - 1) != 0:
        return False
    return p.p[p.n - 1] == c'>' or (t.last and t.n > p.n - 1)


cdef bint loosely_matches(const Filter* f, Span subject) noexcept nogil:
    cdef uint32_t i
    for i in range(f.n):
        if loose_matches(f.patterns[i], subject) if is_loose(f.patterns[i]) else subject_matches(f.patterns[i], subject):
            return True
    return False


cdef bint matcher_wants(Matcher* m, const Filter* f, Span subject) noexcept nogil:
    if matches_all(f) or subject.n == 0:        # the root's, which no pattern but that of everything matches
        return matches_all(f)
    if m.shaped:
        return shapes_match(f, &m.shapes, subject)
    return loosely_matches(f, subject) if f.loose else filter_matches(f, subject)
