# Sets of the subjects' numbers that a filter matches, kept with the filter and brought up to date by births. They are made in
# pieces, between which the lock may be let go: few along the patterns, many by a look at every number.

cdef enum:
    IDS_FIRST = 2048            # nodes that are looked at along the patterns
    IDS_NODES = 16384           # nodes of one pattern that a piece looks at by number


cdef struct IdFill:
    IdSet* set
    bint failed


cdef int idset_fill(void* ctx, Index* x, uint32_t id) noexcept nogil:
    cdef IdFill* fill = <IdFill*>ctx
    fill.set.n_msgs += node_at(x, id).count
    if idset_put(fill.set, id, True) < 0:
        fill.failed = True
        return 1
    return 0


cdef int ids_births(Store* s, const Filter* f, IdSet* c) noexcept nogil:
    # 1: it has to be made anew.
    cdef Index* x = &s.x
    cdef uint32_t id
    cdef bint on
    while c.births < x.births:
        id = x.born[c.births % BORN]
        on = filter_matches(f, node_text(x, id))
        if not on and node_at(x, id).count:
            if c.bare:
                return 1
            c.covers = False
        if not c.bare and idset_put(c, id, on) < 0:
            return ST_NO_MEMORY
        c.births += 1
    return ST_OK


cdef int ids_begin(Store* s, const Filter* f) noexcept nogil:
    # A new set, with what is found along the patterns if that is a piece of work.
    cdef Index* x = &s.x
    cdef IdSet* c = <IdSet*>calloc(1, sizeof(IdSet))
    cdef IdFill fill
    cdef uint64_t left = IDS_FIRST
    idset_free(<IdSet*>f.cache)
    (<Filter*>f).cache = c
    if c == NULL:
        return ST_NO_MEMORY
    c.store = s.id
    c.births = x.births
    if index_total(x, f, &left) == node_at(x, 0).total and left:
        c.covers = True
        c.bare = True
        return ST_OK
    fill.set = c
    fill.failed = False
    left = IDS_FIRST
    index_each(x, f, idset_fill, &fill, &left)
    if not fill.failed and left == 0:
        c.n_msgs = 0
        c.covers = True
        c.end = x.n_nodes
        return matcher_init(&c.matcher, f)
    return ST_NO_MEMORY if fill.failed else ST_OK


cdef int ids_numbers(Store* s, const Filter* f, IdSet* c) noexcept nogil:
    # A piece of the numbers.
    cdef Index* x = &s.x
    cdef uint32_t left = IDS_NODES, cost = matcher_cost(&c.matcher, f), id
    cdef Node* n
    while c.at < c.end and left:
        id = c.at
        c.at += 1
        left -= min(left, cost)
        n = node_at(x, id)
        if n.count == 0 or st_has(c.pages, c.n_pages, id):
            c.n_msgs += n.count
            continue
        if not matcher_wants(&c.matcher, f, node_text(x, id)):
            c.covers = False
            continue
        c.n_msgs += n.count
        if idset_put(c, id, True) < 0:
            return ST_NO_MEMORY
    return ST_OK


cdef int ids_step(Store* s, const Filter* f, IdSet** out) noexcept nogil:
    # A piece of the way to the numbers that a filter (not one of everything) matches now: 1, or ST_OK with them in `out`.
    cdef Index* x = &s.x
    cdef IdSet* c
    cdef int rc = ST_OK
    if x.born == NULL:
        x.born = <uint32_t*>calloc(BORN, 4)
        if x.born == NULL:
            return ST_NO_MEMORY
        x.births += BORN + 1    # whatever was cached before this ring is out of date
    c = <IdSet*>f.cache
    if c == NULL or c.store != s.id or x.births - c.births > BORN:
        rc = 1
    elif c.births < x.births:
        rc = ids_births(s, f, c)
    if rc == 1:
        rc = ids_begin(s, f)
        c = <IdSet*>f.cache
    elif rc == ST_OK and c.at < c.end:
        rc = ids_numbers(s, f, c)
    if rc < 0:
        idset_free(<IdSet*>f.cache)
        (<Filter*>f).cache = NULL
        return rc
    out[0] = c
    return 1 if c.at < c.end else ST_OK


cdef IdSet* filter_ids(Store* s, const Filter* f) noexcept nogil:
    # All of it at once; NULL when memory ran out.
    cdef IdSet* c = NULL
    cdef int rc = 1
    while rc == 1:
        rc = ids_step(s, f, &c)
    return c if rc == ST_OK else NULL


cdef int store_ready(Store* s, const Filter* filter) noexcept nogil:
    cdef IdSet* c
    if matches_all(filter) or filter.literal:
        return ST_OK
    return max(ids_step(s, filter, &c), <int>ST_OK)
