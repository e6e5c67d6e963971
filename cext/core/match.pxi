# Matching: gathers the subscriptions of a subject and remembers the result of subjects that come again.
#
# The cache is set-associative and bounded in entries and in bytes. A subject enters it only
# when it misses a second time before another subject misses in its set: so subjects used once (inboxes,
# acks) never cause an allocation, they are answered from scratch results that gc recycles. A literal's
# coming or going drops its subject's result; a wildcard's makes all older results stale.

cdef enum:
    CACHE_SETS_MIN = 16
    CACHE_SETS_MAX = 1024
    CACHED_BYTES_MAX = 8388608      # of all results together
    RESULT_BYTES_MAX = 524288       # a larger one is not kept
    SCRATCH_KEPT = 4                # idle scratch results
    SCRATCH_SUBS_KEPT = 4096        # capacity up to which an idle one is kept


cdef Match no_match


# ---- gathering -----------------------------------------------------------------------------------------

cdef void* grown(Sublist* l, void* p, uint32_t* cap, uint64_t need, size_t item) noexcept nogil:
    # p with room for at least `need` items of a size, its contents kept; NULL: no memory, p is as it was.
    cdef uint64_t to = 16
    cdef void* q
    while to < need:
        to *= 2
    if to > VEC_MAX:
        return NULL
    q = realloc(p, <size_t>to * item)
    if q != NULL:
        if p == NULL:
            l.blocks += 1
        cap[0] = <uint32_t>to
    return q


cdef struct Taking:
    Sublist* list
    Scratch* into


cdef int take_set(void* taking, void* kept) noexcept nogil:
    # 0 | -1 no memory
    cdef Sublist* subs = (<Taking*>taking).list
    cdef Scratch* r = (<Taking*>taking).into
    cdef SubSet* set = <SubSet*>kept
    cdef void* p
    if set.plain.n > r.cap_plain - r.n_plain:
        p = grown(subs, r.plain, &r.cap_plain, <uint64_t>r.n_plain + set.plain.n, sizeof(Sub*))
        if p == NULL:
            return -1
        r.plain = <Sub**>p
    if set.plain.n:
        memcpy(r.plain + r.n_plain, vec_subs(&set.plain), set.plain.n * sizeof(Sub*))
        r.n_plain += set.plain.n
    if set.queued.n > r.cap_queued - r.n_queued:
        p = grown(subs, r.queued, &r.cap_queued, <uint64_t>r.n_queued + set.queued.n, 2 * sizeof(Sub*))
        if p == NULL:
            return -1
        r.queued = <Sub**>p
    if set.queued.n:
        memcpy(r.queued + r.n_queued, vec_subs(&set.queued), set.queued.n * sizeof(Sub*))
        r.n_queued += set.queued.n
    return 0


cdef inline bint is_far(const Sub* s) noexcept nogil:
    # Whether it stands for members of another cluster.
    return s.client != NULL and s.client.kind == KIND_GATEWAY


cdef int sort_groups(Sublist* l, Scratch* r) noexcept nogil:
    # Makes one group of each queue name: counts its members, then lays them side by side, those that are near first.
    cdef Finder* f = &l.finder
    cdef QueueGroup* g
    cdef QueueName* q
    cdef Sub** to = r.queued + r.cap_queued
    cdef uint32_t i, n = 0
    cdef void* p
    f.stamp += 1
    for i in range(r.n_queued):
        q = r.queued[i].group
        if q.stamp != f.stamp:
            if n == r.cap_groups:
                p = grown(l, r.groups, &r.cap_groups, <uint64_t>n + 1, sizeof(QueueGroup))
                if p == NULL:
                    return -1
                r.groups = <QueueGroup*>p
            q.stamp = f.stamp
            q.index = n
            r.groups[n].name = r.queued[i].queue
            r.groups[n].n = r.groups[n].near = 0
            r.groups[n].weight = 0
            n += 1
        g = &r.groups[q.index]
        g.n += 1
        if not is_far(r.queued[i]):
            g.near += 1
            g.weight += r.queued[i].weight
    for i in range(n):
        g = &r.groups[i]
        g.subs = to
        to += g.n
        g.n = g.near
        g.near = 0
    for i in range(r.n_queued):
        g = &r.groups[r.queued[i].group.index]
        if is_far(r.queued[i]):
            g.subs[g.n] = r.queued[i]
            g.n += 1
        else:
            g.subs[g.near] = r.queued[i]
            g.near += 1
    r.match.n_groups = n
    return 0


cdef int gather(Sublist* l, Scratch* r, Span subject, uint64_t hash) noexcept nogil:
    cdef SubSet* literal = literal_find(&l.literals, subject, hash)
    cdef Taking taking
    r.n_plain = 0
    r.n_queued = 0
    r.match.n_groups = 0
    taking.list = l
    taking.into = r
    if literal != NULL and take_set(&taking, literal) < 0:
        return -1
    if patterns_match(&l.patterns, subject, take_set, &taking) < 0:
        return -1
    if r.n_queued and sort_groups(l, r) < 0:
        return -1
    r.match.plain = r.plain
    r.match.n_plain = r.n_plain
    r.match.groups = r.groups
    return 0


# ---- scratch results -----------------------------------------------------------------------------------

cdef void scratch_free(Sublist* l, Scratch* r) noexcept nogil:
    list_free(l, r.plain)
    list_free(l, r.queued)
    list_free(l, r.groups)
    list_free(l, r)


cdef void scratch_rest(Sublist* l, Scratch* r) noexcept nogil:
    # Back among the idle ones, or freed if there are enough of them or it is large.
    cdef Finder* f = &l.finder
    if f.n_idle >= SCRATCH_KEPT or <uint64_t>r.cap_plain + r.cap_queued + r.cap_groups > SCRATCH_SUBS_KEPT:
        scratch_free(l, r)
        return
    r.next = f.idle
    f.idle = r
    f.n_idle += 1


cdef inline Scratch* scratch_take(Sublist* l) noexcept nogil:
    cdef Scratch* r = l.finder.idle
    if r == NULL:
        return <Scratch*>list_alloc(l, sizeof(Scratch))
    l.finder.idle = r.next
    l.finder.n_idle -= 1
    return r


# ---- the cache -----------------------------------------------------------------------------------------

cdef inline CacheSet* cache_set(Finder* f, uint64_t hash) noexcept nogil:
    return &f.sets[<uint32_t>hash & (f.n_sets - 1)]


cdef inline int cache_way(const CacheSet* set, Span subject, uint64_t hash) noexcept nogil:
    # Where the subject's result is, fresh or stale; -1: nowhere.
    cdef uint32_t tag = <uint32_t>(hash >> 32)
    cdef int i
    for i in range(CACHE_WAYS):
        if (set.tag[i] == tag and set.way[i] != NULL and set.way[i].hash == hash
                and span_eq(set.way[i].subject, subject)):
            return i
    return -1


cdef void cache_clear(Sublist* l, CacheSet* set, int i) noexcept nogil:
    # A delivery under way may still use the result: gc frees it.
    cdef Cached* c = set.way[i]
    set.way[i] = NULL
    if l.finder.last == c:
        l.finder.last = NULL
    l.finder.n_cached -= 1
    l.finder.cached_bytes -= c.size
    c.next = l.finder.retired
    l.finder.retired = c
    has_garbage(l)


cdef void cache_drop(Sublist* l, Span subject, uint64_t hash) noexcept nogil:
    cdef CacheSet* set
    cdef int i
    if l.finder.n_cached == 0:
        return
    set = cache_set(&l.finder, hash)
    i = cache_way(set, subject, hash)
    if i >= 0:
        cache_clear(l, set, i)
        set.missed = hash       # it was worth keeping and will be again


cdef int cache_room(Sublist* l, CacheSet* set) noexcept nogil:
    # A free way: one that is empty, stale or unused since the hand's last round; -1: all are fresh and used.
    cdef int i
    for i in range(CACHE_WAYS):
        if set.way[i] == NULL:
            return i
    for i in range(CACHE_WAYS):
        if set.way[i].generation != l.generation:
            cache_clear(l, set, i)
            return i
    if l.finder.n_sets < CACHE_SETS_MAX:
        return -1
    while set.used[set.hand]:
        set.used[set.hand] = 0
        set.hand = (set.hand + 1) & (CACHE_WAYS - 1)
    i = set.hand
    set.hand = (set.hand + 1) & (CACHE_WAYS - 1)
    cache_clear(l, set, i)
    return i


cdef int cache_resize(Sublist* l, uint32_t n_sets) noexcept nogil:
    # 0, or -1 without memory. Doubling splits each set in two, so everything finds room.
    cdef Finder* f = &l.finder
    cdef CacheSet* old = f.sets
    cdef uint32_t n_old = f.n_sets, i
    cdef int j, k
    cdef CacheSet* to
    cdef CacheSet* sets = <CacheSet*>list_alloc(l, n_sets * sizeof(CacheSet))
    if sets == NULL:
        return -1
    f.sets = sets
    f.n_sets = n_sets
    for i in range(n_old):
        for j in range(CACHE_WAYS):
            if old[i].way[j] == NULL:
                continue
            to = cache_set(f, old[i].way[j].hash)
            k = 0
            while to.way[k] != NULL:
                k += 1
            to.way[k] = old[i].way[j]
            to.tag[k] = old[i].tag[j]
            to.used[k] = old[i].used[j]
    list_free(l, old)
    return 0


cdef inline uint64_t cached_size(const Scratch* r, Span subject) noexcept nogil:
    return (sizeof(Cached) + r.match.n_groups * sizeof(QueueGroup)
            + (<uint64_t>r.n_plain + r.n_queued) * sizeof(Sub*) + subject.n)


cdef Cached* cached_new(Sublist* l, const Scratch* r, Span subject, uint64_t hash) noexcept nogil:
    cdef uint32_t n_groups = r.match.n_groups, i
    cdef Cached* c = <Cached*>list_alloc(l, cached_size(r, subject))
    cdef Sub** subs
    if c == NULL:
        return NULL
    c.size = <uint32_t>cached_size(r, subject)
    c.match.groups = <QueueGroup*>(c + 1)
    c.match.n_groups = n_groups
    subs = <Sub**>(c.match.groups + n_groups)
    c.match.plain = subs
    c.match.n_plain = r.n_plain
    if r.n_plain:
        memcpy(subs, r.plain, r.n_plain * sizeof(Sub*))
        subs += r.n_plain
    for i in range(n_groups):
        c.match.groups[i] = r.groups[i]
        c.match.groups[i].subs = subs
        memcpy(subs, r.groups[i].subs, r.groups[i].n * sizeof(Sub*))
        subs += r.groups[i].n
    memcpy(subs, subject.p, subject.n)
    c.subject = span(subs, subject.n)
    c.hash = hash
    c.generation = l.generation
    return c


cdef CacheSet* cache_make_room(Sublist* l, Span subject, uint64_t hash, int* way) noexcept nogil:
    # A set with an empty way for the subject; NULL: no memory to grow.
    cdef CacheSet* set
    while True:
        set = cache_set(&l.finder, hash)
        way[0] = cache_way(set, subject, hash)
        if way[0] >= 0:
            cache_clear(l, set, way[0])
            return set
        way[0] = cache_room(l, set)
        if way[0] >= 0:
            return set
        if cache_resize(l, l.finder.n_sets * 2) < 0:
            return NULL


cdef const Match* cache_keep(Sublist* l, const Scratch* r, Span subject, uint64_t hash) noexcept nogil:
    # NULL: not kept, for want of memory or because it is too large.
    cdef Finder* f = &l.finder
    cdef uint64_t size = cached_size(r, subject)
    cdef CacheSet* set
    cdef Cached* c
    cdef int i
    if size > RESULT_BYTES_MAX:
        return NULL
    while f.cached_bytes + size > CACHED_BYTES_MAX:
        f.sweep = (f.sweep + 1) & (f.n_sets - 1)
        for i in range(CACHE_WAYS):
            if f.sets[f.sweep].way[i] != NULL:
                cache_clear(l, &f.sets[f.sweep], i)
    set = cache_make_room(l, subject, hash, &i)
    if set == NULL:
        return NULL
    c = cached_new(l, r, subject, hash)
    if c == NULL:
        return NULL
    set.way[i] = c
    set.tag[i] = <uint32_t>(hash >> 32)
    set.used[i] = 1
    f.n_cached += 1
    f.cached_bytes += size
    return &c.match


cdef bint cache_wants(Sublist* l, CacheSet* set, int stale_way, uint64_t hash) noexcept nogil:
    # Whether a subject that has just missed has come before.
    if stale_way >= 0 or set.missed == hash:
        return True
    set.missed = hash
    return False


# ---- match ---------------------------------------------------------------------------------------------

cdef const Match* sublist_match(Sublist* l, Span subject) noexcept nogil:
    cdef Finder* f = &l.finder
    cdef CacheSet* set = NULL
    cdef Cached* c = f.last
    cdef Scratch* r
    cdef const Match* kept = NULL
    cdef uint64_t hash
    cdef int i = -1
    l.matches += 1
    if l.n_subs == 0:
        return &no_match
    if c != NULL and c.generation == l.generation and span_eq(c.subject, subject):
        l.hits += 1
        return &c.match
    hash = table_hash(subject.p, subject.n)
    if f.sets != NULL:
        set = cache_set(f, hash)
        i = cache_way(set, subject, hash)
        if i >= 0:
            c = set.way[i]
            if c.generation == l.generation:
                l.hits += 1
                set.used[i] = 1
                f.last = c
                return &c.match
    elif cache_resize(l, CACHE_SETS_MIN) == 0:
        set = cache_set(f, hash)
    if has_empty_token(subject):
        return &no_match
    r = scratch_take(l)
    if r == NULL:
        return NULL
    if gather(l, r, subject, hash) < 0:
        scratch_rest(l, r)
        return NULL
    if set != NULL and cache_wants(l, set, i, hash):
        kept = cache_keep(l, r, subject, hash)
    if kept != NULL:
        scratch_rest(l, r)
        return kept
    r.next = f.busy
    f.busy = r
    has_garbage(l)
    return &r.match


cdef void match_done(Sublist* l, const Match* found) noexcept nogil:
    # The asker is through with the result: the next subject is answered from the same memory, which is still
    # in the processor's cache. Only the last one handed out; one that something else came behind waits for gc.
    cdef Scratch* r = l.finder.busy
    if r != NULL and &r.match == found:
        l.finder.busy = r.next
        scratch_rest(l, r)


cdef void finder_gc(Sublist* l) noexcept nogil:
    cdef Finder* f = &l.finder
    cdef Cached* c
    cdef Scratch* r
    while f.retired != NULL:
        c = f.retired
        f.retired = c.next
        list_free(l, c)
    while f.busy != NULL:
        r = f.busy
        f.busy = r.next
        scratch_rest(l, r)
    if l.n_subs == 0:
        finder_free(l)


cdef void finder_free(Sublist* l) noexcept nogil:
    # Everything, when no result is in use.
    cdef Finder* f = &l.finder
    cdef Scratch* r
    cdef uint32_t i
    cdef int j
    for i in range(f.n_sets):
        for j in range(CACHE_WAYS):
            list_free(l, f.sets[i].way[j])
    list_free(l, f.sets)
    while f.idle != NULL:
        r = f.idle
        f.idle = r.next
        scratch_free(l, r)
    memset(f, 0, sizeof(Finder))


cdef void cache_stats(Sublist* l, SublistStats* out) noexcept nogil:
    cdef Finder* f = &l.finder
    cdef Cached* c
    cdef uint64_t total = 0
    cdef uint32_t i, n
    cdef int j
    out.cache = 0
    out.max_fanout = 0
    for i in range(f.n_sets):
        for j in range(CACHE_WAYS):
            c = f.sets[i].way[j]
            if c == NULL or c.generation != l.generation:
                continue
            n = c.match.n_plain + c.match.n_groups
            out.cache += 1
            total += n
            if n > out.max_fanout:
                out.max_fanout = n
    out.avg_fanout = <double>total / <double>out.cache if out.cache else 0.0
