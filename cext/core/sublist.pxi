# Which subscriptions a subject has. Literal ones live in a hash table by their whole subject, those with
# wildcards among the patterns of `bytes`; match.pxi gathers and caches results. What a result may still name
# when it is removed (subscriptions, results) is kept until sublist_gc.

cdef enum:
    VEC_MAX = 0x40000000        # elements of a vector
    CACHE_WAYS = 4


cdef struct SubVec:
    # Subscriptions in no order; each knows its place. One alone is held in `p` itself.
    void* p
    uint32_t n
    uint32_t cap                # 0: p is the only one, or nothing

cdef struct SubSet:
    # The subscriptions of one pattern.
    SubVec plain
    SubVec queued
    PatternNode* node           # NULL: a literal's

cdef struct QueueName:
    # A queue group's name, shared by its members; stamp and index are match.pxi's scribbles.
    uint64_t stamp
    uint32_t index
    uint32_t members

# Of match.pxi: a remembered result, a set of the cache, a result in the making, and all of them.

cdef struct Cached:
    # One allocation with the arrays of its match and the subject.
    Match match
    Cached* next            # retired: of what gc frees
    uint64_t hash
    uint64_t generation
    Span subject
    uint32_t size           # bytes of the allocation

cdef struct CacheSet:
    uint64_t missed         # hash of the last subject that missed here and was not kept
    Cached* way[CACHE_WAYS]
    uint32_t tag[CACHE_WAYS]
    uint8_t used[CACHE_WAYS]
    uint8_t hand

cdef struct Scratch:
    Match match
    Scratch* next
    Sub** plain
    Sub** queued            # as found; sorted by group they are put behind, at queued + cap_queued
    QueueGroup* groups
    uint32_t n_plain
    uint32_t cap_plain
    uint32_t n_queued
    uint32_t cap_queued
    uint32_t cap_groups

cdef struct Finder:
    CacheSet* sets
    uint32_t n_sets
    uint32_t sweep          # the set that gives way next when the results together are too large
    uint32_t n_cached
    uint64_t cached_bytes
    Cached* last            # what was found last; publishers tend to go on with the same subject
    Cached* retired         # by next; freed by gc
    Scratch* idle
    Scratch* busy           # in use until gc
    uint32_t n_idle
    uint64_t stamp          # of the gathering under way, for QueueName

cdef struct Sublist:
    Table literals
    PatternTrie patterns
    StrMap queues               # name -> QueueName
    uint64_t generation         # of the wildcard patterns: older results in the cache are stale
    uint64_t n_subs
    uint64_t blocks             # allocations it holds now, but subscriptions, tables and nodes of patterns
    uint64_t inserts
    uint64_t removes
    uint64_t matches
    uint64_t hits
    Sub* removed                # by next; freed by gc
    bint garbage                # gc has something to do
    Sublist** waiting           # of its owner: sublists that gc has something to do for; NULL: nobody collects them
    Sublist* next_waiting
    Finder finder


# ---- memory --------------------------------------------------------------------------------------------

cdef inline void* list_alloc(Sublist* l, size_t n) noexcept nogil:
    cdef void* p = calloc(1, n)
    if p != NULL:
        l.blocks += 1
    return p


cdef inline void list_free(Sublist* l, void* p) noexcept nogil:
    if p != NULL:
        l.blocks -= 1
        free(p)


cdef Sub* sub_new(Span subject, Span queue, Span sid) noexcept nogil:
    cdef Sub* s = <Sub*>calloc(1, sizeof(Sub) + <size_t>subject.n + queue.n + sid.n)
    cdef uint8_t* text
    if s == NULL:
        return NULL
    text = <uint8_t*>s + sizeof(Sub)
    s.subject = sub_text(&text, subject)
    s.queue = sub_text(&text, queue)
    s.sid = sub_text(&text, sid)
    s.weight = 1
    return s


cdef inline Span sub_text(uint8_t** to, Span text) noexcept nogil:
    cdef Span copy = span(to[0], text.n)
    if text.n:
        memcpy(to[0], text.p, text.n)
        to[0] += text.n
    return copy


cdef void sub_free(Sub* s) noexcept nogil:
    free(s)


# ---- vectors -------------------------------------------------------------------------------------------

cdef inline Sub** vec_subs(SubVec* v) noexcept nogil:
    return <Sub**>&v.p if v.cap == 0 else <Sub**>v.p


cdef int vec_resize(Sublist* l, SubVec* v, uint32_t cap) noexcept nogil:
    cdef Sub** a
    if v.cap:
        a = <Sub**>realloc(v.p, cap * sizeof(Sub*))
    else:
        a = <Sub**>list_alloc(l, cap * sizeof(Sub*))
        if a != NULL:
            a[0] = <Sub*>v.p
    if a == NULL:
        return -1
    v.p = a
    v.cap = cap
    return 0


cdef int vec_add(Sublist* l, SubVec* v, Sub* s) noexcept nogil:
    if v.n and (v.n == v.cap or v.cap == 0):
        if v.cap >= VEC_MAX or vec_resize(l, v, v.cap * 2 if v.cap else 4) < 0:
            return -1
    vec_subs(v)[v.n] = s
    s.place = v.n
    v.n += 1
    return 0


cdef void vec_remove(Sublist* l, SubVec* v, Sub* s) noexcept nogil:
    cdef Sub** a = vec_subs(v)
    cdef Sub* last
    v.n -= 1
    last = a[v.n]
    a[s.place] = last
    last.place = s.place
    if v.cap == 0:
        return
    if v.n <= 1:
        v.p = a[0] if v.n else NULL
        v.cap = 0
        list_free(l, a)
    elif v.n <= v.cap // 4:
        vec_resize(l, v, v.cap // 2)        # without memory it stays large


# ---- literals ------------------------------------------------------------------------------------------

cdef inline SubSet* literal_find(const Table* t, Span subject, uint64_t hash) noexcept nogil:
    # A set is never empty, so any of its subscriptions tells its subject.
    cdef uint32_t i
    cdef SubSet* set
    cdef SubVec* any
    if t.n == 0:
        return NULL
    i = <uint32_t>hash & (t.cap - 1)
    while t.a[i].item != NULL:
        if t.a[i].hash == hash:
            set = <SubSet*>t.a[i].item
            any = &set.plain if set.plain.n else &set.queued
            if span_eq(vec_subs(any)[0].subject, subject):
                return set
        i = (i + 1) & (t.cap - 1)
    return NULL


# ---- the sets of patterns ------------------------------------------------------------------------------

cdef SubSet* wild_set(Sublist* l, Span pattern) noexcept nogil:
    # The set of a pattern, made if it is missing. NULL: no memory, and nothing has changed.
    cdef PatternNode* at
    cdef void** place = patterns_place(&l.patterns, pattern, &at)
    if place == NULL:
        return NULL
    if place[0] == NULL:
        place[0] = list_alloc(l, sizeof(SubSet))
        if place[0] == NULL:
            patterns_prune(&l.patterns, at)
            return NULL
        (<SubSet*>place[0]).node = at
    return <SubSet*>place[0]


cdef SubSet* literal_set(Sublist* l, Span subject, uint64_t hash) noexcept nogil:
    cdef SubSet* set = literal_find(&l.literals, subject, hash)
    if set == NULL:
        set = <SubSet*>list_alloc(l, sizeof(SubSet))
        if set != NULL and table_add(&l.literals, hash, set) < 0:
            list_free(l, set)
            return NULL
    return set


cdef void set_prune(Sublist* l, SubSet* set, uint64_t hash) noexcept nogil:
    # Frees a set that has become empty, and its place.
    cdef PatternNode* at = set.node
    if set.plain.n or set.queued.n:
        return
    if at == NULL:
        table_remove(&l.literals, hash, set)
    elif at.tail == set:
        at.tail = NULL
    else:
        at.here = NULL
    list_free(l, set)
    if at != NULL:
        patterns_prune(&l.patterns, at)


# ---- queue names ---------------------------------------------------------------------------------------

cdef QueueName* queue_join(Sublist* l, Span name) noexcept nogil:
    cdef QueueName* q = <QueueName*>strmap_get(&l.queues, name)
    if q == NULL:
        q = <QueueName*>list_alloc(l, sizeof(QueueName))
        if q == NULL:
            return NULL
        if strmap_put(&l.queues, name, q) < 0:
            list_free(l, q)
            return NULL
    q.members += 1
    return q


cdef void queue_leave(Sublist* l, QueueName* q, Span name) noexcept nogil:
    q.members -= 1
    if q.members == 0:
        strmap_del(&l.queues, name)
        if l.queues.n == 0:
            strmap_free(&l.queues)
        list_free(l, q)


# ---- insert and remove ---------------------------------------------------------------------------------

cdef Sublist* sublist_new(Sublist** waiting) noexcept nogil:
    cdef Sublist* made = <Sublist*>calloc(1, sizeof(Sublist))
    if made != NULL:
        made.waiting = waiting
    return made


cdef inline void has_garbage(Sublist* l) noexcept nogil:
    if l.garbage:
        return
    l.garbage = True
    if l.waiting != NULL:
        l.next_waiting = l.waiting[0]
        l.waiting[0] = l


cdef int sublist_insert(Sublist* l, Sub* s) noexcept nogil:
    cdef bint wild = not subject_is_literal(s.subject)
    cdef SubSet* set
    s.hash = table_hash(s.subject.p, s.subject.n)
    if s.queue.n:
        s.group = queue_join(l, s.queue)
        if s.group == NULL:
            return -1
    set = wild_set(l, s.subject) if wild else literal_set(l, s.subject, s.hash)
    if set == NULL or vec_add(l, &set.queued if s.queue.n else &set.plain, s) < 0:
        if set != NULL:
            set_prune(l, set, s.hash)
        if s.group != NULL:
            queue_leave(l, s.group, s.queue)
            s.group = NULL
        return -1
    s.home = set
    s.closed = False
    l.n_subs += 1
    l.inserts += 1
    sublist_changed(l, s, wild)
    return 0


cdef void sublist_remove(Sublist* l, Sub* s) noexcept nogil:
    cdef SubSet* set = s.home
    cdef bint wild
    if s.closed or set == NULL:
        return
    wild = set.node != NULL
    vec_remove(l, &set.queued if s.queue.n else &set.plain, s)
    set_prune(l, set, s.hash)
    if s.group != NULL:
        queue_leave(l, s.group, s.queue)
        s.group = NULL
    s.home = NULL
    s.closed = True
    s.next = l.removed
    l.removed = s
    has_garbage(l)
    l.n_subs -= 1
    l.removes += 1
    sublist_changed(l, s, wild)


cdef inline void sublist_changed(Sublist* l, const Sub* s, bint wild) noexcept nogil:
    # Drops the cached results that its coming or going makes wrong.
    if wild:
        l.generation += 1
    else:
        cache_drop(l, s.subject, s.hash)


cdef void subs_free(Sub* s) noexcept nogil:
    cdef Sub* after
    while s != NULL:
        after = s.next
        free(s)
        s = after


cdef void sublist_gc(Sublist* l) noexcept nogil:
    if not l.garbage:
        return
    l.garbage = False
    subs_free(l.removed)
    l.removed = NULL
    finder_gc(l)


cdef void sublists_gc(Sublist** waiting) noexcept nogil:
    cdef Sublist* first
    while waiting[0] != NULL:
        first = waiting[0]
        waiting[0] = first.next_waiting
        sublist_gc(first)


cdef void sub_remove_each(void* ctx, Sub* s) noexcept nogil:
    # Links all, for sublist_free: removing one by one would walk the structure while it changes.
    s.next = (<Sublist*>ctx).removed
    (<Sublist*>ctx).removed = s


cdef void stop_waiting(Sublist* l) noexcept nogil:
    # Its owner's list does not name it any more, nor will it.
    cdef Sublist** at = l.waiting
    while l.garbage and at != NULL and at[0] != NULL:
        if at[0] == l:
            at[0] = l.next_waiting
            break
        at = &at[0].next_waiting
    l.waiting = NULL


cdef void sublist_free(Sublist* l) noexcept nogil:
    cdef Sub* s
    cdef Sub* after
    if l == NULL:
        return
    stop_waiting(l)
    subs_free(l.removed)
    l.removed = NULL
    sublist_each(l, sub_remove_each, l)
    s = l.removed
    l.removed = NULL
    while s != NULL:
        after = s.next
        sublist_remove(l, s)
        s = after
    sublist_gc(l)
    finder_free(l)
    free(l)


# ---- looking at all of it ------------------------------------------------------------------------------

cdef struct Each:
    void (*fn)(void* ctx, Sub* s) noexcept nogil
    void* ctx


cdef int set_each(void* each, void* kept) noexcept nogil:
    cdef const Each* e = <const Each*>each
    cdef SubSet* set = <SubSet*>kept
    cdef uint32_t i
    for i in range(set.plain.n):
        e.fn(e.ctx, vec_subs(&set.plain)[i])
    for i in range(set.queued.n):
        e.fn(e.ctx, vec_subs(&set.queued)[i])
    return 0


cdef void sublist_each(Sublist* l, void (*fn)(void* ctx, Sub* s) noexcept nogil, void* ctx) noexcept nogil:
    cdef uint32_t i
    cdef Each each
    each.fn = fn
    each.ctx = ctx
    for i in range(l.literals.cap):
        if l.literals.a[i].item != NULL:
            set_each(&each, l.literals.a[i].item)
    patterns_each(&l.patterns, set_each, &each)


cdef void sublist_stats(Sublist* l, SublistStats* out) noexcept nogil:
    out.subs = l.n_subs
    out.blocks = l.blocks + l.patterns.n + (l.literals.cap != 0) + (l.patterns.edges.cap != 0)
    out.cached_bytes = l.finder.cached_bytes
    out.inserts = l.inserts
    out.removes = l.removes
    out.matches = l.matches
    out.cache_hits = l.hits
    cache_stats(l, out)
