# Patterns: subjects with wildcards, found by the literal subjects that they match, in a trie of tokens.
#
#      edges: hash(parent, token) ─► PatternNode        root ── "orders" ── *(star) ── "new"
#                                                                  │ tail: of orders.>   └─ here: of orders.*.new

cdef inline const uint8_t* node_token(const PatternNode* at) noexcept nogil:
    return <const uint8_t*>at + sizeof(PatternNode)


@cython.overflowcheck(False)
cdef inline uint64_t edge_hash(const PatternNode* parent, uint64_t token_hash) noexcept nogil:
    cdef uint64_t z = (token_hash + <uint64_t><size_t>parent) * 0x9e3779b97f4a7c15ULL
    return z ^ (z >> 32)


cdef inline PatternNode* edge_find(const Table* t, const PatternNode* parent, const Tokens* token,
                                   uint64_t token_hash) noexcept nogil:
    cdef uint64_t hash = edge_hash(parent, token_hash)
    cdef uint32_t at = 0
    cdef PatternNode* node = <PatternNode*>table_first(t, hash, &at)
    while node != NULL and not (node.parent == parent and node.n_token == token.n
                                and memcmp(node_token(node), token.p, token.n) == 0):
        node = <PatternNode*>table_more(t, hash, &at)
    return node


cdef PatternNode* node_step(PatternTrie* x, PatternNode* at, const Tokens* t) noexcept nogil:
    # The child of `at` for the token, made if it is missing. NULL: no memory.
    cdef PatternNode* child = at.star
    cdef uint64_t hash = 0
    cdef bint star = is_star(t)
    if not star:
        hash = table_hash(t.p, t.n)
        child = edge_find(&x.edges, at, t, hash) if at.n_edges else NULL
    if child != NULL:
        return child
    child = <PatternNode*>calloc(1, sizeof(PatternNode) + (0 if star else t.n))
    if child == NULL:
        return NULL
    child.parent = at
    if star:
        at.star = child
    elif table_add(&x.edges, edge_hash(at, hash), child) < 0:
        free(child)
        return NULL
    else:
        child.n_token = t.n
        if t.n:
            memcpy(<uint8_t*>node_token(child), t.p, t.n)
        at.n_edges += 1
    x.n += 1
    return child


cdef void patterns_prune(PatternTrie* x, PatternNode* at) noexcept nogil:
    cdef PatternNode* parent
    while at.parent != NULL and at.here == NULL and at.tail == NULL and at.star == NULL and at.n_edges == 0:
        parent = at.parent
        if parent.star == at:
            parent.star = NULL
        else:
            table_remove(&x.edges, edge_hash(parent, table_hash(node_token(at), at.n_token)), at)
            parent.n_edges -= 1
        free(at)
        x.n -= 1
        at = parent


cdef void** patterns_place(PatternTrie* x, Span pattern, PatternNode** node) noexcept nogil:
    cdef Tokens t = tokens_of(pattern)
    cdef PatternNode* at = &x.root
    cdef PatternNode* child
    while not is_tail(&t):
        child = node_step(x, at, &t)
        if child == NULL:
            patterns_prune(x, at)
            return NULL
        at = child
        if t.last:
            break
        tokens_cut(&t)
    node[0] = at
    return &at.tail if is_tail(&t) else &at.here


cdef enum:
    STEPS_KEPT = 8

cdef struct Step:
    const uint8_t* rest     # what the token was cut from
    Tokens t
    uint64_t hash

cdef struct Matching:
    const PatternTrie* x
    pattern_fn fn
    void* ctx
    Step steps[STEPS_KEPT]  # by the token's number: all nodes of a level go on with the same one, and it may be long


cdef inline uint64_t step(Matching* m, Tokens* t, uint32_t number) noexcept nogil:
    # Goes on to the token of this number, whose hash is returned.
    cdef Step* s = &m.steps[number % STEPS_KEPT]
    if s.rest == t.rest:
        t[0] = s.t
        return s.hash
    s.rest = t.rest
    tokens_cut(t)
    s.t = t[0]
    s.hash = table_hash(t.p, t.n)
    return s.hash


cdef int match_from(Matching* m, const PatternNode* at, Tokens t, uint32_t number) noexcept nogil:
    # What matches the tokens behind t, which has led to this node; the next one has this number. It calls itself where a literal
    # has a star beside it, and so is no deeper than the patterns are many.
    cdef const PatternNode* child
    cdef uint64_t hash
    cdef int rc
    while not t.last:
        hash = step(m, &t, number)
        child = edge_find(&m.x.edges, at, &t, hash) if at.n_edges else NULL
        number += 1
        if at.tail != NULL:
            rc = m.fn(m.ctx, at.tail)
            if rc != 0:
                return rc
        if child == NULL:
            child = at.star
        elif at.star != NULL:
            rc = match_from(m, at.star, t, number)
            if rc != 0:
                return rc
        if child == NULL:
            return 0
        at = child
    return m.fn(m.ctx, at.here) if at.here != NULL else 0


cdef int patterns_match(const PatternTrie* x, Span subject, pattern_fn fn, void* ctx) noexcept nogil:
    cdef Matching m
    cdef Tokens t
    cdef int i
    m.x = x
    m.fn = fn
    m.ctx = ctx
    for i in range(STEPS_KEPT):
        m.steps[i].rest = <const uint8_t*>&m    # where no subject is
    t.rest = subject.p
    t.n_rest = subject.n
    t.last = False
    return match_from(&m, &x.root, t, 0)


cdef void patterns_each(const PatternTrie* x, pattern_fn fn, void* ctx) noexcept nogil:
    # Every node is the root, an edge's, or reached from one of these by stars alone.
    cdef uint32_t i
    cdef const PatternNode* at
    for i in range(x.edges.cap + 1):
        at = &x.root if i == x.edges.cap else <const PatternNode*>x.edges.a[i].item
        while at != NULL:
            if at.here != NULL:
                fn(ctx, at.here)
            if at.tail != NULL:
                fn(ctx, at.tail)
            at = at.star
