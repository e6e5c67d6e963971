# Every subject that a filter matches, each once, and how many messages they have.

cdef struct Each:
    const Filter* f
    uint32_t which              # of the patterns
    IdSet* seen                 # where two patterns may match the same
    uint64_t* left              # how many nodes may still be looked at; NULL: any
    int (*fn)(void* ctx, Index* x, uint32_t id) noexcept nogil
    void* ctx


cdef bint each_again(Each* e, Index* x, uint32_t id) noexcept nogil:
    # Whether an earlier pattern has shown it already.
    cdef uint32_t i
    if e.seen != NULL:
        if st_has(e.seen.pages, e.seen.n_pages, id):
            return True
        if idset_put(e.seen, id, True) == 0:
            return False
        idset_free(e.seen)
        e.seen = NULL
    for i in range(e.which):
        if subject_matches(e.f.patterns[i], node_text(x, id)):
            return True
    return False


cdef inline int each_one(Each* e, Index* x, uint32_t id) noexcept nogil:
    if e.f != NULL and e.f.overlap and each_again(e, x, id):
        return 0
    return e.fn(e.ctx, x, id)


cdef int each_visit(void* ctx, Index* x, uint32_t id, uint32_t what) noexcept nogil:
    cdef Each* e = <Each*>ctx
    cdef uint32_t root = id
    cdef int r
    if what & VISIT_IT and node_at(x, id).count:
        r = each_one(e, x, id)
        if r:
            return r
    if not what & VISIT_BELOW:
        return 0
    id = next_below(x, root, root)
    while id:
        if e.left != NULL:
            if e.left[0] == 0:
                return WALKED_ENOUGH
            e.left[0] -= 1
        if node_at(x, id).count:
            r = each_one(e, x, id)
            if r:
                return r
        id = next_below(x, root, id)
    return 0


cdef int index_each(Index* x, const Filter* f, int (*fn)(void* ctx, Index* x, uint32_t id) noexcept nogil, void* ctx,
                    uint64_t* left) noexcept nogil:
    # Calls fn once for every subject that matches, until it returns other than 0. fn must not change the index. At most of so
    # many nodes, if `left` is given: 0 when they were not enough.
    cdef Each e
    cdef uint32_t i
    cdef int r = 0
    e.f = f
    e.seen = NULL
    e.fn = fn
    e.ctx = ctx
    e.which = 0
    e.left = left
    if matches_all(f):
        e.f = NULL
        if node_at(x, 0).count:
            r = fn(ctx, x, 0)
            if r:
                return r
        return each_visit(&e, x, 0, VISIT_BELOW)
    if left == NULL and each_of_many(x, f, &r, fn, ctx):
        return r
    if f.overlap:
        e.seen = <IdSet*>calloc(1, sizeof(IdSet))
    for i in range(f.n):
        e.which = i
        r = walk(x, f.patterns[i], f.loose, each_visit, &e, left)
        if r:
            break
    idset_free(e.seen)
    return r


cdef int total_visit(void* ctx, Index* x, uint32_t id, uint32_t what) noexcept nogil:
    cdef Node* n = node_at(x, id)
    (<uint64_t*>ctx)[0] += (n.count if what & VISIT_IT else 0) + (n.total - n.count if what & VISIT_BELOW else 0)
    return 0


cdef int total_one(void* ctx, Index* x, uint32_t id) noexcept nogil:
    (<uint64_t*>ctx)[0] += node_at(x, id).count
    return 0


cdef uint64_t index_total(Index* x, const Filter* f, uint64_t* left) noexcept nogil:
    # Messages of all subjects that match. `left`, if given, are the nodes that may be looked at: 0 when they are not enough.
    cdef uint64_t total = 0
    cdef uint32_t i
    cdef int r = 0
    if matches_all(f):
        return node_at(x, 0).total
    if left == NULL and each_of_many(x, f, &r, total_one, &total):
        return total
    if f.overlap:
        index_each(x, f, total_one, &total, left)
        return total
    for i in range(f.n):
        if walk(x, f.patterns[i], False, total_visit, &total, left) == WALKED_ENOUGH:
            break
    return total
