# Filters: sets of subject patterns, and walks over what they match.

cdef enum:
    VISIT_IT = 1                # the node itself, which may have no messages
    VISIT_BELOW = 2             # everything below it
    WALK_ON = 4
    WALKED_ENOUGH = 1

ctypedef int (*visit_fn)(void* ctx, Index* x, uint32_t id, uint32_t what) noexcept nogil      # 0 to go on

cdef enum:
    COMPARED_MOST = 1 << 18     # pairs of a filter's patterns, which takes some milliseconds


cdef int compare_patterns(const void* a, const void* b) noexcept nogil:
    cdef const Span* x = <const Span*>a
    cdef const Span* y = <const Span*>b
    if x.n != y.n:
        return 1 if x.n > y.n else -1
    return memcmp(x.p, y.p, x.n)


cdef bint patterns_overlap(const Filter* f) noexcept nogil:
    # Whether a subject may match two; of so many that it takes long to tell, that is assumed.
    cdef uint32_t i, k
    for i in range(1, f.n_literals):
        if compare_patterns(&f.patterns[i - 1], &f.patterns[i]) == 0:
            return True
    if <uint64_t>(f.n - f.n_literals) * f.n > COMPARED_MOST:
        return True
    for i in range(f.n):
        for k in range(max(f.n_literals, i + 1), f.n):
            if subjects_overlap(f.patterns[i], f.patterns[k]):
                return True
    return False


cdef int filter_room(Filter* f, uint32_t n, size_t size) noexcept nogil:
    # For so many patterns of so many bytes together.
    f.patterns = <Span*>calloc(n, sizeof(Span))
    f.texts = <uint8_t*>malloc(max(size, <size_t>1))
    if f.patterns == NULL or f.texts == NULL:
        filter_free(f)
        return ST_NO_MEMORY
    f.n = n
    return ST_OK


cdef int filter_init(Filter* f, const Span* patterns, uint32_t n) noexcept nogil:
    cdef uint32_t i, at, wild = n
    cdef size_t size = 0
    cdef uint8_t* text
    cdef bint literal
    memset(f, 0, sizeof(Filter))
    f.all = n == 0
    if n == 0:
        return ST_OK
    for i in range(n):
        size += patterns[i].n
    if filter_room(f, n, size) != ST_OK:
        return ST_NO_MEMORY
    text = f.texts
    for i in range(n):      # literal ones from the front, others from the end
        literal = subject_is_literal(patterns[i])
        at = f.n_literals if literal else wild - 1
        f.patterns[at] = patterns[i]
        place_text(&text, &f.patterns[at])
        if literal:
            f.n_literals += 1
        else:
            wild -= 1
        if patterns[i].n == 1 and patterns[i].p[0] == c'>':
            f.all = True
    qsort(f.patterns, f.n_literals, sizeof(Span), compare_patterns)
    qsort(f.patterns + f.n_literals, n - f.n_literals, sizeof(Span), compare_patterns)
    f.literal = n == 1 and f.n_literals == 1
    f.overlap = patterns_overlap(f)
    return ST_OK


cdef void filter_free(Filter* f) noexcept nogil:
    free(f.patterns)
    free(f.texts)
    idset_free(<IdSet*>f.cache)
    memset(f, 0, sizeof(Filter))


cdef int filter_copy(Filter* to, const Filter* f) noexcept nogil:
    cdef uint32_t i
    cdef size_t size = 0
    cdef uint8_t* text
    to[0] = f[0]
    to.patterns = NULL
    to.texts = NULL
    to.cache = NULL
    to.asked = 0
    if f.n == 0:
        return ST_OK
    for i in range(f.n):
        size += f.patterns[i].n
    if filter_room(to, f.n, size) != ST_OK:
        return ST_NO_MEMORY
    text = to.texts
    for i in range(f.n):
        to.patterns[i] = f.patterns[i]
        place_text(&text, &to.patterns[i])
    return ST_OK


cdef inline bint is_loose(Span p) noexcept nogil:
    # Whether the last token ends with a wildcard and is none.
    return p.n > 1 and (p.p[p.n - 1] == c'*' or p.p[p.n - 1] == c'>') and p.p[p.n - 2] != c'.'


cdef bint filter_is_loose(const Filter* f) noexcept nogil:
    cdef uint32_t i
    for i in range(f.n):
        if is_loose(f.patterns[i]):
            return True
    return False


cdef void filter_loosen(Filter* f) noexcept nogil:
    if filter_is_loose(f):
        f.loose = True
        f.literal = False
        f.overlap = f.n > 1


cdef bint is_listed(const Filter* f, Span subject) noexcept nogil:
    # Whether a subject is one of the literal patterns.
    cdef uint32_t i, lo = 0, hi = f.n_literals
    cdef Span* p
    cdef int order
    while lo < hi:
        i = (lo + hi) >> 1
        p = &f.patterns[i]
        order = <int>(p.n > subject.n) - <int>(p.n < subject.n)
        if order == 0:
            order = memcmp(p.p, subject.p, subject.n)
            if order == 0:
                return True
        if order < 0:
            lo = i + 1
        else:
            hi = i
    return False


cdef bint filter_matches(const Filter* f, Span subject) noexcept nogil:
    cdef uint32_t i
    if f.all or is_listed(f, subject):
        return True
    for i in range(f.n_literals, f.n):
        if subject_matches(f.patterns[i], subject):
            return True
    return False


cdef inline bint matches_all(const Filter* f) noexcept nogil:
    return f == NULL or f.all


# ---- walks ---------------------------------------------------------------------------------------------

cdef bint kid_fits(Index* x, uint32_t kid, uint32_t start, const uint8_t* tok, uint32_t n) noexcept nogil:
    cdef Node* k = node_at(x, kid)
    return k.stem - start == n and memcmp(text_at(x, k.text) + start, tok, n) == 0


cdef uint32_t child_of(Index* x, uint32_t id, Span tok) noexcept nogil:
    # The child of a node to which a token leads, 0 when there is none.
    cdef Node* n = node_at(x, id)
    cdef uint32_t start = edge_start(x, id), end = start + tok.n
    cdef uint32_t kid = n.kid, tried = 0
    cdef uint8_t near[512]
    cdef uint8_t* text = near
    while kid and tried < 4:
        if kid_fits(x, kid, start, tok.p, tok.n):
            return kid
        kid = node_at(x, kid).next
        tried += 1
    if kid == 0 or tok.n == 0 or end > 65535:
        return 0
    if end > sizeof(near):
        text = <uint8_t*>malloc(end)
    if text == NULL:        # one by one then
        while kid and not kid_fits(x, kid, start, tok.p, tok.n):
            kid = node_at(x, kid).next
        return kid
    if start:
        memcpy(text, text_at(x, n.text), n.len)
        text[n.len] = c'.'
    memcpy(text + start, tok.p, tok.n)
    kid = child_hashed(x, id, text, start, end, st_hash(x.seed, text, end))
    if text != near:
        free(text)
    return kid


cdef struct Walk:
    # Where a walk stands: the token of the pattern that is next below the node at hand.
    Span pat
    uint32_t at
    uint32_t end
    bint loose                  # the last token stands for those that begin with it


cdef inline void walk_to(Walk* w, uint32_t at) noexcept nogil:
    cdef const uint8_t* dot = <const uint8_t*>memchr(w.pat.p + at, c'.', w.pat.n - at) if at < w.pat.n else NULL
    w.at = at
    w.end = <uint32_t>(dot - w.pat.p) if dot != NULL else w.pat.n


cdef inline bint walk_star(const Walk* w) noexcept nogil:
    return w.end - w.at == 1 and w.pat.p[w.at] == c'*'


cdef inline bint walk_many(const Walk* w) noexcept nogil:
    # Whether more than one child may match.
    return walk_star(w) or (w.loose and w.end == w.pat.n)


cdef inline bint walk_tail(const Walk* w) noexcept nogil:
    return w.end - w.at == 1 and w.end == w.pat.n and w.pat.p[w.at] == c'>'


cdef inline uint32_t walk_first(Walk* w, Index* x, uint32_t id) noexcept nogil:
    # The first child below a node that may match.
    if walk_many(w):
        return node_at(x, id).kid
    return child_of(x, id, span(w.pat.p + w.at, w.end - w.at))


cdef uint32_t loose_edge(const Walk* w, const uint8_t* tok, uint32_t n, bint last) noexcept nogil:
    # As walk_edge, of a token and a pattern's last one, `x*` or `x>`.
    cdef uint32_t begin = w.end - w.at - 1
    if n < begin or memcmp(tok, w.pat.p + w.at, begin) != 0:
        return 0
    if w.pat.p[w.end - 1] == c'>':
        return VISIT_IT | VISIT_BELOW
    return VISIT_IT if last and n > begin else 0


cdef uint32_t walk_edge(Walk* w, Index* x, uint32_t id, uint32_t start) noexcept nogil:
    # What a node adds to its parent's text, against the pattern: which of VISIT_* it matches; WALK_ON, with the walk
    # behind the edge, where more is to match; or 0.
    cdef Node* n = node_at(x, id)
    cdef const uint8_t* p = text_at(x, n.text)
    cdef uint32_t from_ = w.at, end = n.stem, what
    while True:
        if walk_tail(w):
            walk_to(w, from_)
            return VISIT_IT | VISIT_BELOW
        if w.loose and w.end == w.pat.n:
            what = loose_edge(w, p + start, end - start, end == n.len)
            walk_to(w, from_)
            return what
        if end == start or (not walk_star(w) and (w.end - w.at != end - start
                                                  or memcmp(w.pat.p + w.at, p + start, end - start))):
            break
        if w.end == w.pat.n or end == n.len:
            if w.end == w.pat.n and end == n.len:
                walk_to(w, from_)
                return VISIT_IT if n.count else 0
            if end == n.len:
                walk_to(w, w.end + 1)
                return WALK_ON
            break
        start = end + 1
        end = token_end(p, n.len, start)
        walk_to(w, w.end + 1)
    walk_to(w, from_)
    return 0


cdef void walk_back(Walk* w, Index* x, uint32_t id, uint32_t start) noexcept nogil:
    # From behind a node's edge to before it: as many tokens of the pattern as the edge has.
    cdef Node* n = node_at(x, id)
    cdef const uint8_t* p = text_at(x, n.text)
    cdef uint32_t end = n.stem, at = w.at
    while True:
        at -= 1
        while at and w.pat.p[at - 1] != c'.':
            at -= 1
        if end == n.len:
            break
        end = token_end(p, n.len, end + 1)
    walk_to(w, at)


cdef int walk(Index* x, Span pat, bint loose, visit_fn fn, void* ctx, uint64_t* left) noexcept nogil:
    # Visits what a pattern (not of everything) matches, at most every node once. `left`, if given, are the steps that
    # it may still take: WALKED_ENOUGH when they do not suffice.
    cdef Walk w
    cdef uint32_t id = 0, kid, what
    cdef int r
    w.pat = pat
    w.loose = loose and is_loose(pat)
    walk_to(&w, 0)
    kid = walk_first(&w, x, 0)
    while True:
        if left != NULL:
            if left[0] == 0:
                return WALKED_ENOUGH
            left[0] -= 1
        if kid:
            what = walk_edge(&w, x, kid, edge_start(x, id))
            if what == WALK_ON:
                id = kid
                kid = 0
                if not walk_tail(&w):
                    kid = walk_first(&w, x, id)
                    continue
                what = VISIT_BELOW
                r = fn(ctx, x, id, what)
            else:
                r = fn(ctx, x, kid, what) if what else 0
                kid = node_at(x, kid).next if walk_many(&w) else 0
            if r:
                return r
        elif id == 0:
            return 0
        else:
            kid = id
            id = node_at(x, kid).parent
            walk_back(&w, x, kid, edge_start(x, id))
            kid = node_at(x, kid).next if walk_many(&w) else 0


cdef inline uint32_t next_below(Index* x, uint32_t root, uint32_t id) noexcept nogil:
    # Pre-order over what stands below root; start with id = root; 0 at the end.
    cdef Node* n = node_at(x, id)
    if n.kid:
        return n.kid
    while id != root:
        n = node_at(x, id)
        if n.next:
            return n.next
        id = n.parent
    return 0
