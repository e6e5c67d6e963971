# Looks at every subject that matches, in pieces. Few are found along the patterns at once; where that takes too long, all
# nodes are looked at by their numbers. What changes meanwhile is taken as it was before: a subject is shown before its messages
# change, unless its number was passed. So the answer is that of one moment, the first.

cdef enum:
    SWEEP_FIRST = 4096          # nodes that the first piece looks at along the patterns
    SWEEP_NODES = 16384         # nodes of one pattern that a piece looks at
    SWEEP_SORTED = 65536        # sequences that a piece brings into order
    RUN = 1024                  # of which so many are sorted in the usual way

cdef enum SweepPhase:
    SWEEP_BY_NUMBER = 1
    SWEEP_SORTS = 2
    SWEEP_DONE = 3

cdef struct Merge:
    # Sorted runs of some width become half as many: [a, end_a) and [b, end_b) of `src` go to [to, ..) of `dst`.
    uint64_t* src
    uint64_t* dst
    uint64_t width
    uint64_t a
    uint64_t end_a
    uint64_t b
    uint64_t end_b
    uint64_t to

cdef struct Sweep:
    Sweep* next
    Store* s                    # NULL: it is not among the store's any more
    const Filter* f
    bint lasts
    uint64_t upto
    uint64_t most
    SweepPhase phase
    bint failed                 # no memory
    bint closed
    uint32_t at                 # numbers [at, end) are to be looked at
    uint32_t end
    IdSet* seen                 # of those, what was shown or was not there at the beginning
    Matcher matcher
    uint64_t n
    Bytes found
    Merge merge


# ---- life ------------------------------------------------------------------------------------------------------------

cdef Sweep* sweep_new(Store* s, const Filter* f, bint lasts, uint64_t upto, uint64_t most) noexcept nogil:
    cdef Sweep* w = <Sweep*>calloc(1, sizeof(Sweep))
    if w == NULL:
        return NULL
    w.f = f
    w.lasts = lasts
    w.upto = upto
    w.most = most
    w.closed = s.stopped
    if not w.closed:
        w.s = s
        w.next = s.x.sweeps
        s.x.sweeps = w
        sweep_begin(w)
    return w


cdef Sweep* sweep_subjects(Store* s, const Filter* filter) noexcept nogil:
    return sweep_new(s, filter, False, 0, 0)


cdef Sweep* sweep_lasts(Store* s, const Filter* filter, uint64_t upto, uint64_t most) noexcept nogil:
    return sweep_new(s, filter, True, upto, most)


cdef inline size_t sweep_size(const Sweep* w) noexcept nogil:
    # Bytes that all subjects would take.
    cdef const Index* x = &w.s.x
    if w.lasts:
        return <size_t>x.n_subjects * 8 + 8
    return <size_t>x.n_subjects * 12 + <size_t>x.n_texts * TEXT_CHUNK


cdef void sweep_begin(Sweep* w) noexcept nogil:
    # Along the patterns, if that is a piece of work. From now on changes are taken as they were before.
    cdef uint64_t left = SWEEP_FIRST
    w.at = 0
    w.end = w.s.x.n_nodes
    w.n = 0
    w.found.n = 0
    idset_free(w.seen)
    w.seen = NULL
    index_each(&w.s.x, w.f, sweep_visit, w, &left)
    w.phase = SWEEP_SORTS
    if left:
        w.at = w.end
        return
    w.phase = SWEEP_BY_NUMBER
    w.n = 0
    w.found.n = 0
    # Room for all is only touched as far as it is used; to grow, tens of megabytes might have to be copied.
    bytes_reserve(&w.found, sweep_size(w))
    w.failed = w.failed or matcher_init(&w.matcher, w.f) < 0


cdef void sweep_leave(Sweep* w) noexcept nogil:
    # Nothing that changes is of importance any more.
    cdef Sweep** at
    if w.s == NULL:
        return
    at = &w.s.x.sweeps
    while at[0] != w:
        at = &at[0].next
    at[0] = w.next
    w.s = NULL


cdef uint64_t sweep_take(Sweep* w, Bytes* out) noexcept nogil:
    out[0] = w.found
    memset(&w.found, 0, sizeof(Bytes))
    return w.n


cdef void sweep_free(Sweep* w) noexcept nogil:
    if w == NULL:
        return
    sweep_leave(w)
    matcher_free(&w.matcher)
    idset_free(w.seen)
    bytes_free(&w.found)
    free(w.merge.dst)
    free(w)


# ---- what happens meanwhile ------------------------------------------------------------------------------------------

cdef void sweeps_touch(Index* x, uint32_t id) noexcept nogil:
    # A subject's messages are about to change.
    cdef Sweep* w = x.sweeps
    while w != NULL:
        if w.at <= id < w.end and not (w.seen != NULL and st_has(w.seen.pages, w.seen.n_pages, id)):
            if w.seen == NULL:
                w.seen = <IdSet*>calloc(1, sizeof(IdSet))
            if w.seen == NULL or idset_put(w.seen, id, True) < 0:
                w.failed = True
            elif node_at(x, id).count and matcher_wants(&w.matcher, w.f, node_text(x, id)):
                sweep_show(w, x, id)
        w = w.next


cdef void sweeps_empty(Index* x) noexcept nogil:
    # Everything goes at once: that is the moment of which the answers are.
    cdef Sweep* w
    while x.sweeps != NULL:
        w = x.sweeps
        w.n = 0
        w.found.n = 0
        w.phase = SWEEP_DONE
        sweep_leave(w)


cdef void sweeps_close(Index* x) noexcept nogil:
    while x.sweeps != NULL:
        x.sweeps.closed = True
        sweep_leave(x.sweeps)


cdef void sweeps_again(Store* s, uint64_t seq) noexcept nogil:
    # All behind a sequence is gone.
    cdef Sweep* w = s.x.sweeps
    while w != NULL:
        w.upto = min(w.upto, seq)
        sweep_begin(w)
        w = w.next


# ---- what is found ---------------------------------------------------------------------------------------------------

cdef int sweep_show(Sweep* w, Index* x, uint32_t id) noexcept nogil:
    # Other than 0: that is enough.
    cdef Node* n = node_at(x, id)
    cdef Span text
    cdef uint64_t seq = n.last, count = n.count
    if w.lasts:
        if n.first > w.upto:
            return 0
        if seq > w.upto:
            seq = prev_of(w.s, id, w.upto + 1)
        if seq == 0:
            return 0
        w.failed |= bytes_add(&w.found, &seq, 8) < 0
    else:
        if id == 0:
            return 0
        text = node_text(x, id)
        w.failed |= (bytes_add(&w.found, &count, 8) < 0 or bytes_add(&w.found, &text.n, 4) < 0
                     or bytes_add(&w.found, text.p, text.n) < 0)
    w.n += 1
    return w.failed or (w.lasts and w.n > w.most)


cdef int sweep_visit(void* ctx, Index* x, uint32_t id) noexcept nogil:
    return sweep_show(<Sweep*>ctx, x, id)


cdef bint sweep_numbers(Sweep* w) noexcept nogil:
    # By number; whether it is at the end.
    cdef Index* x = &w.s.x
    cdef uint32_t cost = matcher_cost(&w.matcher, w.f), left = SWEEP_NODES, id
    while w.at < w.end and left > 0:
        id = w.at
        w.at += 1
        left -= min(left, cost)
        if node_at(x, id).count == 0 or (w.seen != NULL and st_has(w.seen.pages, w.seen.n_pages, id)):
            continue
        if matcher_wants(&w.matcher, w.f, node_text(x, id)) and sweep_show(w, x, id):
            return True
    return w.at >= w.end


# ---- in order --------------------------------------------------------------------------------------------------------

cdef void merge_pair(Merge* m, uint64_t at, uint64_t n) noexcept nogil:
    m.a = at
    m.end_a = min(at + m.width, n)
    m.b = m.end_a
    m.end_b = min(m.b + m.width, n)


cdef int sort_begin(Sweep* w) noexcept nogil:
    cdef Merge* m = &w.merge
    memset(m, 0, sizeof(Merge))
    if w.n > RUN:
        m.dst = <uint64_t*>malloc(w.n * 8)
        if m.dst == NULL:
            return ST_NO_MEMORY
    m.src = <uint64_t*>w.found.data
    return ST_OK


cdef bint sort_runs(Sweep* w) noexcept nogil:
    # A piece of the first pass, after which runs are sorted.
    cdef Merge* m = &w.merge
    cdef uint64_t left = SWEEP_SORTED // 4, n
    while m.to < w.n and left:
        n = min(w.n - m.to, <uint64_t>RUN)
        qsort(m.src + m.to, n, 8, compare_u64)
        m.to += n
        left -= min(left, n)
    return m.to == w.n


cdef bint sort_merges(Sweep* w) noexcept nogil:
    # A piece of a later pass; whether all of it is in order.
    cdef Merge* m = &w.merge
    cdef uint64_t left = SWEEP_SORTED
    cdef uint64_t* p
    while left:
        if m.to == w.n:
            p = m.src
            m.src = m.dst
            m.dst = p
            w.found.data = <uint8_t*>m.src
            w.found.cap = w.n * 8
            m.width *= 2
            m.to = 0
            if m.width >= w.n:
                return True
            merge_pair(m, 0, w.n)
        elif m.a == m.end_a and m.b == m.end_b:
            merge_pair(m, m.to, w.n)
        while left and (m.a < m.end_a or m.b < m.end_b):
            if m.b == m.end_b or (m.a < m.end_a and m.src[m.a] <= m.src[m.b]):
                m.dst[m.to] = m.src[m.a]
                m.a += 1
            else:
                m.dst[m.to] = m.src[m.b]
                m.b += 1
            m.to += 1
            left -= 1
    return False


cdef bint sort_step(Sweep* w) noexcept nogil:
    # Whether it is done. A loose filter without memory may have shown a subject again: it is left out here.
    cdef Merge* m = &w.merge
    cdef uint64_t i, n = 0
    if m.width == 0:
        if not sort_runs(w):
            return False
        m.width = RUN
        m.to = 0
        merge_pair(m, 0, w.n)
        if w.n > RUN:
            return False
    if w.n > RUN:
        return sort_merges(w)
    for i in range(w.n):
        if i == 0 or m.src[i] != m.src[i - 1]:
            m.src[n] = m.src[i]
            n += 1
    w.n = n
    w.found.n = n * 8
    return True


cdef int sweep_step(Sweep* w) noexcept nogil:
    if w.closed:
        return ST_CLOSED
    if w.phase == SWEEP_BY_NUMBER and sweep_numbers(w):
        w.phase = SWEEP_SORTS
    elif w.phase == SWEEP_SORTS and w.s == NULL and sort_step(w):
        w.phase = SWEEP_DONE
    if w.phase == SWEEP_SORTS and w.s != NULL:
        sweep_leave(w)
        if not w.lasts or w.n == 0 or w.n > w.most:
            w.phase = SWEEP_DONE
        elif sort_begin(w) < 0:
            w.failed = True
        elif w.n <= RUN and sort_step(w):
            w.phase = SWEEP_DONE
    if w.failed:
        sweep_leave(w)
        return ST_NO_MEMORY
    return ST_OK if w.phase == SWEEP_DONE else 1


cdef int64_t store_last_per_subject(Store* s, const Filter* filter, uint64_t upto, uint64_t** out) noexcept nogil:
    cdef Sweep* w = sweep_lasts(s, filter, upto if upto else UINT64_MAX - 1, UINT64_MAX)
    cdef Bytes found
    cdef int64_t n
    cdef int rc = 1 if w != NULL else ST_NO_MEMORY
    out[0] = NULL
    while rc == 1:
        rc = sweep_step(w)
    n = rc
    if rc == ST_OK:
        n = <int64_t>sweep_take(w, &found)
        out[0] = <uint64_t*>found.data
    sweep_free(w)
    return n
